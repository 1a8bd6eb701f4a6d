"""`spark.readStream.format("tailrace")`: the control of a stream on the driver.

    initialOffset   {} always; see `progress`
    latestOffset    how far the next micro-batch goes: a look at the logs, cut by the rate limits
    partitions      the ranges of that batch, packed into few tasks
    read            one task, in a worker, as in a batch query

A broker that cannot be reached, or a directory that cannot be read, stops the stream for up to
five minutes before it fails the query; the driver's log says so.

With Trigger.AvailableNow the logs are looked at once, at the beginning; what is gone before it was
read fails the run, whatever failOnDataLoss says. `minOffsetsPerTrigger` does not hold back there,
or the last records would not be read.

PySpark 4.0 and 4.1 ask `latestOffset()` without telling where the last batch ended, so there an
adapter keeps it (`StreamReaderWithoutStart`): Spark plans each batch through `partitions`, and
after a restart it plans the empty range at the end of the last batch before it asks for anything
else. With `Trigger.AvailableNow` a restarted query is asked before that. It then looks up its
starting offsets again, which have to exist, and may run one batch without rows.

Not here: continuous and real-time mode, which Spark has no Python interface for.

Invariant: with failOnDataLoss=true nothing is skipped. The query fails before Spark has noted a
batch, so what comes back, comes back for a restarted query too.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tailrace.config.settings import INT64_MAX
from tailrace.errors import ConfigError, FatalError, RetriableError
from tailrace.runtime.threads import usable_core_count
from tailrace.spark.batch_reader import TailraceReader, plan_ranges
from tailrace.spark.brief_errors import brief_errors
from tailrace.spark.losses import PartitionGoneError
from tailrace.spark.options import SourceOptions
from tailrace.spark.options.names import LIMITS
from tailrace.spark.progress import (
    INITIAL,
    Backlog,
    DataLossError,
    Extents,
    Positions,
    Progress,
    cap_bytes,
    cap_offsets,
    ends_of,
    find_backlog,
    find_shrunk,
    format_offset,
    is_worth_a_batch,
    parse_batch,
    parse_offset,
    plan_batch,
    update_progress,
)
from tailrace.spark.pyspark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from tailrace.spark.stores import BrokerStore, measure_ranges
from tailrace.spark.typed import TypedColumns
from tailrace.spark.watch import LogWatch, WatchStatistics
from tailrace.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

OUTAGE_SECONDS = 300
"""Longest time that a stream waits for its logs to come back."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatistics:
    """A stream as its driver sees it at one moment; totals are since this reader was made."""

    partition_count: int
    """Partitions that the last look has found."""
    behind_offsets_total: int | None
    """Offsets from the end of the last planned batch to the log ends of the last look, over all
    partitions; None before the first batch."""
    behind_offsets_max: int | None
    """The same of the partition that lags most (maxOffsetsBehindLatest of Spark's Kafka
    source)."""
    batch_count: int
    """Batches that were planned; one that Spark plans again after a restart counts too."""
    batch_offsets_total: int
    """Offsets in these batches: records, and offsets that have none."""
    loss_count: int
    """Ranges and partitions that were skipped because they were gone (`failOnDataLoss=false`)."""
    seen_seconds_ago: float | None
    """Seconds since the last look that succeeded; None before the first. It grows while the logs
    are out of reach."""
    looks: WatchStatistics
    """The looks at the logs."""


@brief_errors
class TailraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # PySpark is untyped here
    """One instance steers a query; others, in workers, only read. Times are in seconds."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        columns: Sequence[str],
        typed: TypedColumns | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._reader = TailraceReader(options, columns=columns, typed=typed)
        self._watch = LogWatch(options, clock=clock, pause=pause)
        self._target: Extents | None = None
        self._batch_at: float | None = None
        self._planned: Positions | None = None
        """The end of the last planned batch."""
        self._batch_count = 0
        self._batch_offsets_total = 0
        self._loss_count = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as those below
        """The beginning, whatever it will turn out to be."""
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return any limit but `ReadAllAvailable`, by which Spark says that limits do not count.

        Spark has no limit that says all that the options can; `latestOffset` goes by the options.
        """
        limits = self._options.limits
        return ReadMaxRows(limits.offsets_max or INT64_MAX) if limits.is_any else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember how far the logs reach; this run goes there and no further.

        Raises:
            RetriableError: no broker answers.
            DirectoryError: the directory cannot be read.
        """
        self._target = self._watch.look()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch, or `start` itself if there is nothing for one.

        Raises:
            ConfigError: before the first batch: topics that do not exist, offsets that the logs
                do not have.
            DataLossError: records after `start` are gone, and failOnDataLoss is true.
            FatalError: `start` is from the checkpoint of another kind of source.
            RetriableError, OSError: the logs have been out of reach for five minutes, or from the
                start.
        """
        # With Trigger.AvailableNow no look is taken, so there is nothing to wait for.
        if self._target is None:
            self._watch.wait_for_turn()
        try:
            return self._next_offset(start, limit)
        except (RetriableError, OSError, PartitionGoneError) as error:
            # In the beginning it may be a wrong address, and waiting would hide the mistake for
            # five minutes.
            if start == INITIAL or not self._is_outage_short():
                raise
            logger.warning("The stream waits for its logs: %s", error)
            return start

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the logs' end at the last look; Spark's progress shows it as latestOffset."""
        seen = self._watch.seen
        return None if seen is None else format_offset(_at_end(Progress(positions={}), seen))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch, each with explicit ranges of offsets.

        Raises:
            DataLossError: a part of the batch is gone, and failOnDataLoss is true.
            FatalError: with Trigger.AvailableNow, a part of the batch is gone since the run began.
            RetriableError: no broker answers.
            DirectoryError: the directory cannot be read.
        """
        first, limit = parse_batch(start, end)
        # A restarted query plans the last batch before it asks for the next one, and with
        # Trigger.AvailableNow the last look may be old.
        if self._watch.seen is None or self._target is not None:
            self._watch.look_for(lambda seen: self._has_batch(first, limit, seen))
        seen = self._watch.seen or {}
        shrunk = find_shrunk(limit.positions, self._target or {}, seen)
        if shrunk:
            raise FatalError("; ".join(shrunk) + "; run the query again")
        plan = plan_batch(first, limit, seen)
        if plan.losses and self._options.fails_on_data_loss:
            raise DataLossError(plan.losses)
        for loss in plan.losses:
            logger.warning("Skipped: [KAFKA_DATA_LOSS.%s", loss)
        self._planned = limit.positions
        self._batch_count += 1
        self._batch_offsets_total += sum(end - begin for begin, end in plan.ranges.values())
        self._loss_count += len(plan.losses)
        tasks = plan_ranges(
            self._options,
            measure_ranges(
                self._watch.store,
                plan.ranges,
                fails_on_data_loss=self._options.fails_on_data_loss,
            ),
            core_count=usable_core_count(),
        )
        return [InputPartition(task) for task in tasks]

    def statistics(self) -> StreamStatistics:
        """Offsets between the stream and the ends of its logs, and the batches planned so far.

        It looks at nothing: log ends are those of the last look. PySpark has no place for this in
        the progress of a query, which has `latestOffset` for the lag.
        """
        watch, planned = self._watch, self._planned
        seen = watch.seen or {}
        lags = None
        if planned is not None:
            backlog = find_backlog(planned, seen).values()
            lags = [end - start for start, end in backlog]
        return StreamStatistics(
            partition_count=len(seen),
            behind_offsets_total=None if lags is None else sum(lags),
            behind_offsets_max=None if lags is None else max(lags, default=0),
            batch_count=self._batch_count,
            batch_offsets_total=self._batch_offsets_total,
            loss_count=self._loss_count,
            seen_seconds_ago=None if watch.seen is None else watch.clock() - watch.seen_at,
            looks=watch.statistics(),
        )

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of one task as Arrow record batches."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the offsets to the group of the option `groupId`, if there is one.

        Nothing depends on them: the checkpoint has the offsets. Spark calls this when it plans the
        batch after the one that ended at `end`, and again after a restart.

        Raises:
            RemoteFatalError: the group's coordinator refuses, as for a group that has members.
        """
        group = self._options.group_id
        if group is not None and end != INITIAL:
            store = self._watch.store
            assert isinstance(store, BrokerStore), "only brokers have groups"
            try:
                store.commit_positions(group, parse_offset(end).positions)
            except RetriableError as error:
                logger.warning("The offsets were not committed to group %r: %s", group, error)

    def stop(self) -> None:
        """Close connections; Spark ends the process without calling this in most cases."""
        self._watch.close()

    def _next_offset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        first = None
        if start == INITIAL:
            seen = self._watch.look() if self._target is None else self._target
            first = self._watch.resolve_start(seen)
            if any(offset > seen[each].end for each, offset in first.items()):
                seen = self._watch.look()
                self._target = None if self._target is None else seen
            before = known = update_progress(Progress(positions=first), seen)
        else:
            before = parse_offset(start)
            if self._target is None:
                seen = self._watch.look_for(lambda found: not _losses(before, found))
            else:
                seen = self._target
            if self._options.fails_on_data_loss:
                self._watch.check_selected(before.positions)
                losses = _losses(before, seen)
                if losses:
                    raise DataLossError(losses)
            known = update_progress(before, seen)
        backlog: Backlog = find_backlog(known.positions, seen)
        if not isinstance(limit, ReadAllAvailable):
            # The first batch fixes the beginning, so it is never held back.
            if first is None and self._target is None and not self._is_worth_a_batch(backlog):
                return start
            backlog = self._capped(backlog)
        after = replace(known, positions={each: end for each, (_, end) in backlog.items()})
        # A topic that was made again may be as long as the old one: then it has no position yet.
        # And `start` itself, not an equal offset written again: Spark compares offsets by the text
        # of their JSON, in which an offset of an earlier release may have its keys in another
        # order.
        if first is None and after.positions == known.positions == before.positions:
            return start
        self._batch_at = self._watch.clock()
        return format_offset(after, first=first, group=self._options.group_id)

    def _has_batch(self, first: Progress, limit: Progress, seen: Extents) -> bool:
        """Whether the logs have all of a batch, and all that the run found in the beginning."""
        shrunk = find_shrunk(limit.positions, self._target or {}, seen)
        return not shrunk and not plan_batch(first, limit, seen).losses

    def _is_outage_short(self) -> bool:
        """Whether the logs were there in this run, and not long ago."""
        watch = self._watch
        return watch.seen is not None and watch.clock() - watch.seen_at < OUTAGE_SECONDS

    def _is_worth_a_batch(self, backlog: Backlog) -> bool:
        at = self._batch_at
        waited_ms = None if at is None else (self._watch.clock() - at) * 1000
        return is_worth_a_batch(self._options.limits, backlog, waited_ms=waited_ms)

    def _capped(self, backlog: Backlog) -> Backlog:
        limits = self._options.limits
        capped = [backlog]
        if limits.offsets_max is not None:
            capped.append(cap_offsets(backlog, limits.offsets_max))
        if limits.bytes_max is not None:
            sizes = self._watch.size_between(backlog)
            capped.append(cap_bytes(backlog, limits.bytes_max, size_between=sizes))
        return {
            partition: (start, min(each[partition][1] for each in capped))
            for partition, (start, _) in backlog.items()
        }


def _losses(known: Progress, seen: Extents) -> list[str]:
    """The records after a position that are not there any more, as sentences."""
    return plan_batch(known, _at_end(known, seen), seen).losses


def _at_end(known: Progress, seen: Extents) -> Progress:
    """The progress of a stream that continues from `known` and has read everything."""
    return replace(update_progress(known, seen), positions=ends_of(seen))


@brief_errors
class StreamReaderWithoutStart(DataSourceStreamReader):  # type: ignore[misc]  # PySpark is untyped here
    """A `TailraceStreamReader` whose `latestOffset` does not learn where the last batch ended."""

    def __init__(self, reader: TailraceStreamReader) -> None:
        self._reader = reader
        self._start: Mapping[str, Any] = INITIAL

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as those below
        """`{}`, as for `TailraceStreamReader`."""
        return self._reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the end of the logs; raise as `TailraceStreamReader.latestOffset` does."""
        return self._reader.latestOffset(dict(self._start), ReadAllAvailable())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch; raises as `TailraceStreamReader.partitions`."""
        # After a restart Spark plans the empty range at the end of the last batch; its only purpose
        # is to say where that was.
        tasks = [] if start == end else self._reader.partitions(start, end)
        self._start = end
        return tasks

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of one task as Arrow record batches."""
        return self._reader.read(partition)

    def statistics(self) -> StreamStatistics:
        """Statistics of the reader inside; a batch of no offsets is not counted."""
        return self._reader.statistics()

    def commit(self, end: dict[str, Any]) -> None:
        """Commit to the group of `groupId`, and raise, as `TailraceStreamReader.commit` does."""
        self._reader.commit(end)

    def stop(self) -> None:
        """Close connections."""
        self._reader.stop()


def refuse_limits(given: Mapping[str, str]) -> None:
    """Raise if the options have a limit per trigger.

    Raises:
        ConfigError: they have; a sentence for each limit.
    """
    named = {name.lower() for name in given}
    faults = [
        f"{name}: limits per trigger need PySpark 4.2 or later; leave it out or upgrade PySpark"
        for name in LIMITS
        if name.lower() in named
    ]
    if faults:
        raise ConfigError(faults)
