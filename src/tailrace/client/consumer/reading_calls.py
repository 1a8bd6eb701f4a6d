"""`ReadingCalls`: the operations that return records, as objects or as columns."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final

from tailrace.client.consumer.errors import RecordDeserializationError, WakeupError
from tailrace.client.consumer.offset_calls import OffsetCalls
from tailrace.client.consumer.records import ConsumerRecord
from tailrace.client.consumer.rows import Deserializer, Rows
from tailrace.client.consumer.steps import Call, Steps, Wait
from tailrace.client.consumer.work import Work
from tailrace.client.pending import T
from tailrace.errors import TailraceError, kind_of
from tailrace.model import SpecialTimestamp, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.client.consumer.columns import Collector

log = logging.getLogger(__name__)

_GLANCE_S: Final = 0.1
"""Longest wait for records before a table looks at the positions again."""


class ReadingCalls:
    """Polls of one consumer."""

    def __init__(
        self,
        work: Work,
        *,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
        offsets: OffsetCalls,
        rebalance: Callable[[], Steps[None]],
    ) -> None:
        """`rebalance` carries out what the group wants, before records are returned."""
        self._work = work
        self._offsets = offsets
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._rebalance = rebalance
        self._collectors: dict[tuple[str, ...], Collector] = {}
        """The columns of the last call, whose buffers have the right size for the next."""

    def poll(self, deadline: float, count_max: int) -> Steps[list[ConsumerRecord]]:
        """Records that iteration has left over, or the next ones."""
        engine = self._work.engine
        handling = engine.handling
        if handling.ahead:
            yield from self._polled()
        if handling.ahead:
            ahead = handling.ahead
            return [ahead.popleft() for _ in range(min(count_max, len(ahead)))]

        def take() -> list[Rows]:
            return engine.taking.rows(count_max)

        while True:
            rows = yield from self._taking(take, deadline)
            if not rows:
                return []
            records = yield from self._making(rows)
            if records:
                return records

    def look_ahead(self, count_max: int) -> Steps[None]:
        """Have records for an iteration; do what the group wants, though some are left."""
        engine = self._work.engine
        handling = engine.handling
        if handling.ahead:
            yield from self._polled()
        while not handling.ahead:
            handling.ahead.extend((yield from self.poll(inf, count_max)))
        handling.must_poll = engine.has_urgent_news
        handling.is_taking = False

    def columns(
        self, deadline: float, names: Sequence[str] | None, *, is_more: bool = False
    ) -> Steps["pa.RecordBatch"]:
        """Records as columns with these names.

        With `is_more`, those that the call has taken already are not returned to the program yet.

        Raises:
            ConfigError: there is no such column.
        """
        from tailrace.client.consumer.columns import DEFAULT_COLUMNS, Collector

        engine = self._work.engine
        engine.handling.put_back()
        wanted = DEFAULT_COLUMNS if names is None else tuple(names)
        if wanted not in self._collectors:
            self._collectors = {wanted: Collector(wanted)}
        collector = self._collectors[wanted]

        def take() -> "Collector | None":
            engine.taking.columns(collector)
            return collector if collector.row_count else None

        yield from self._taking(take, deadline, is_more=is_more)
        return collector.finish()

    def table(
        self, deadline: float, names: Sequence[str] | None, *, bytes_max: int | None
    ) -> Steps["pa.Table"]:
        """Columns of all records from the positions to the ends as they are now.

        Raises:
            ConfigError: there is no such column.
            TypeError: `bytes_max` is no number.
        """
        import pyarrow as pa

        if bytes_max is not None and not isinstance(bytes_max, int):
            raise TypeError(
                f"bytes_max is {kind_of(bytes_max)} ({bytes_max!r}); give a number of bytes"
            )
        work, engine = self._work, self._work.engine
        ends: dict[TopicPartition, int] | None = None
        batches: list[pa.RecordBatch] = []
        size = 0
        while True:
            if ends is None and engine.subscription.assigned:
                ends = yield from self._ends_of(engine.subscription.assigned, deadline)
            if ends is not None and self._is_read(ends):
                deadline = work.clock()
            # A glance, since the marker of a transaction moves the position and gives no rows.
            glance = min(deadline, work.clock() + _GLANCE_S)
            try:
                batch = yield from self.columns(glance, names, is_more=bool(batches))
            except WakeupError:
                if not size:
                    raise
                engine.wakeup()
                return pa.Table.from_batches(batches)
            except TailraceError:
                # The next call raises it again, as the position stays there.
                if not size:
                    raise
                return pa.Table.from_batches(batches)
            if batch.num_rows or not batches:
                batches.append(batch)
                size += batch.nbytes
            is_full = bytes_max is not None and size >= bytes_max
            if is_full or work.clock() >= deadline:
                return pa.Table.from_batches(batches)

    def _ends_of(
        self, partitions: Collection[TopicPartition], deadline: float
    ) -> Steps[dict[TopicPartition, int]]:
        asked = dict.fromkeys(partitions, int(SpecialTimestamp.LATEST))
        found = yield from self._offsets.offsets(asked, deadline)
        return {each: end.offset for each, end in found.items() if end is not None}

    def _is_read(self, ends: dict[TopicPartition, int]) -> bool:
        """Whether the position of each partition that is still assigned is at its end."""
        assigned = self._work.engine.subscription.assigned
        positions = [(assigned[each].position, ends[each]) for each in ends if each in assigned]
        return all(at is not None and at.offset >= end for at, end in positions)

    def _polled(self) -> Steps[None]:
        """Count all that was returned as handled, and do what the group wants."""
        engine = self._work.engine
        engine.check_readable()
        engine.polled(self._work.clock())
        engine.raise_woken()
        yield from self._rebalance()
        engine.check_readable()

    def _taking(
        self, take: Callable[[], T], deadline: float, *, is_more: bool = False
    ) -> Steps[T | None]:
        """The result of `take`, once there is something in it; None at the deadline."""
        engine = self._work.engine
        engine.check_readable()
        if not is_more:
            engine.polled(self._work.clock())
        while True:
            yield from self._rebalance()
            yield from self._report()
            engine.check_readable()
            engine.raise_woken()
            engine.raise_error()
            taken = take()
            if taken:
                return taken
            if not is_more:
                engine.handling.passed()
            due_at = self._work.metrics_call.due_at
            if not (yield Wait(lambda: engine.has_news, min(deadline, due_at))):
                engine.check_readable()
                if not due_at <= self._work.clock() < deadline:
                    return None

    def _report(self) -> Steps[None]:
        """Call the program's `on_metrics`, if it is due."""
        due = self._work.metrics_call.take(self._work.clock())
        if due is not None:
            try:
                yield Call(due, ())
            except Exception:
                log.exception("user_code_failed name=on_metrics")

    def _making(self, rows: list[Rows]) -> Steps[list[ConsumerRecord]]:
        """Records of rows; user code makes keys and values without the lock, if there is any."""
        key, value = self._key_deserializer, self._value_deserializer
        if key is None and value is None:
            made = [each.records(None, None) for each in rows]
            return made[0] if len(made) == 1 else list(chain.from_iterable(made))
        records: list[ConsumerRecord] = []
        index = 0
        try:
            for index, each in enumerate(rows):  # noqa: B007 - the handlers below need it
                records += yield Call(_made, (each, key, value))
        except RecordDeserializationError as error:
            first = error
            while True:
                try:
                    records += yield Call(_made_before, (rows[index], first.offset, key, value))
                    break
                except RecordDeserializationError as earlier:
                    first = earlier
            self._seek_back(first, rows[index + 1 :])
            if not records:
                self._work.engine.metrics.error_count += 1
                raise first from first.__cause__
        except BaseException:
            self._work.engine.handling.hold_back(
                {each.block.partition: each.first_offset for each in reversed(rows)}
            )
            raise
        return records

    def _seek_back(self, error: RecordDeserializationError, rest: Iterable[Rows]) -> None:
        """Put the positions before the record that failed, and before all that came after it."""
        places = {error.partition: error.offset}
        for each in rest:
            places.setdefault(each.block.partition, each.first_offset)
        self._work.engine.handling.hold_back(places)


def _made(rows: Rows, key: Deserializer | None, value: Deserializer | None) -> list[ConsumerRecord]:
    return rows.records(key, value)


def _made_before(
    rows: Rows, offset: int, *deserializers: Deserializer | None
) -> list[ConsumerRecord]:
    """The records before the one that a deserializer has failed on."""
    return rows.before(offset).records(*deserializers)
