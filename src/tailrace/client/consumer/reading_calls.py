"""`ReadingCalls`: the operations that return records, as objects or as columns."""

import logging
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final

from tailrace.client.consumer.errors import WakeupError
from tailrace.client.consumer.offset_calls import OffsetCalls
from tailrace.client.consumer.records import ConsumerRecord
from tailrace.client.consumer.rows import Deserializer, deserialized
from tailrace.client.consumer.steps import Call, Steps, Wait
from tailrace.client.consumer.work import Work
from tailrace.client.pending import T
from tailrace.errors import TailraceError, kind_of
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.runtime.extras import check_extra

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

        def take() -> list[list[ConsumerRecord]]:
            return engine.taking.records(count_max)

        while True:
            taken = yield from self._taking(take, deadline)
            if not taken:
                return []
            records = yield from self._making(taken)
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
            MissingExtraError: the extra `arrow` is not installed.
            ConfigError: there is no such column.
        """
        check_extra("arrow", "poll_columns()")
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
            MissingExtraError: the extra `arrow` is not installed.
            ConfigError: there is no such column.
            TypeError: `bytes_max` is no number.
        """
        check_extra("arrow", "to_arrow()")
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

    def _making(self, taken: list[list[ConsumerRecord]]) -> Steps[list[ConsumerRecord]]:
        """Records as they are returned; user code makes keys and values without the lock."""
        key, value = self._key_deserializer, self._value_deserializer
        if key is None and value is None:
            return taken[0] if len(taken) == 1 else list(chain.from_iterable(taken))
        found: list[ConsumerRecord] = []
        for index, records in enumerate(taken):
            try:
                made, error = yield Call(deserialized, (records, key, value))
            except BaseException:
                self._hold_back(taken)
                raise
            found += made
            if error is not None:
                # Before the record that failed, and before all that came after it.
                self._hold_back([records[len(made) :], *taken[index + 1 :]])
                if not found:
                    self._work.engine.metrics.error_count += 1
                    raise error
                break
        return found

    def _hold_back(self, taken: list[list[ConsumerRecord]]) -> None:
        """Put the positions before these records."""
        first = {each[0].topic_partition: each[0].offset for each in reversed(taken)}
        self._work.engine.handling.hold_back(first)
