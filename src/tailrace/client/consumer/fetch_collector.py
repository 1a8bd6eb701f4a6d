"""`FetchCollector`: hands fetched records to the caller, and moves the positions past them.

Not here: how records are decoded (`rows`, `columns`).

Invariant: a position moves only past records that are returned, or that are left out for good:
markers, aborted transactions, gaps. An error is raised only if nothing is returned with it.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.client.consumer.config import ConsumerConfig
from tailrace.client.consumer.errors import PositionOutOfRangeError
from tailrace.client.consumer.fetched import FetchedPart
from tailrace.client.consumer.fetching import Fetches
from tailrace.client.consumer.metrics import ConsumerMetrics
from tailrace.client.consumer.records import ConsumerRecord
from tailrace.client.consumer.rows import take_rows
from tailrace.client.consumer.subscription import Assigned, SubscriptionState

if TYPE_CHECKING:
    from tailrace.client.consumer.columns import Collector

log = logging.getLogger(__name__)


class FetchCollector:
    """Hands out the records of one consumer, as Kafka's class of this name."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        subscription: SubscriptionState,
        fetches: Fetches,
        metrics: ConsumerMetrics,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._fetches = fetches
        self._metrics = metrics

    @property
    def has_some(self) -> bool:
        """Whether a partition that may be read has something to return or to raise."""
        assigned = self._subscription.assigned
        return any(
            assigned[each].is_fetchable and assigned[each].parts
            for each in self._fetches.ready
            if each in assigned
        )

    def records(self, count_max: int) -> list[list[ConsumerRecord]]:
        """The next records, `count_max` or fewer, by partitions; the positions move past them.

        Raises the error of the next records, if it is the first thing to tell.
        """
        found: list[list[ConsumerRecord]] = []
        left = count_max

        def take_part(state: Assigned, part: FetchedPart) -> bool:
            nonlocal left
            assert state.position is not None, "a fetchable partition has a position"
            rows = take_rows(part, state.position.offset, left)
            if rows is None:
                return False
            records, next_offset = rows
            state.read_to(next_offset, records[-1].leader_epoch)
            found.append(records)
            left -= len(records)
            return True

        self._take_parts(take_part, lambda: left > 0, lambda: bool(found))
        self._metrics.record_count += count_max - left
        return found

    def columns(self, collector: "Collector") -> None:
        """Put the next records into columns, until these are full; the positions move."""
        before = collector.row_count

        def take_part(state: Assigned, part: FetchedPart) -> bool:
            assert state.position is not None, "a fetchable partition has a position"
            passed = collector.append(part, state.position.offset)
            if passed is None:
                return False
            state.read_to(*passed)
            return True

        self._take_parts(take_part, lambda: collector.has_room, lambda: collector.row_count > 0)
        self._metrics.record_count += collector.row_count - before

    def _take_parts(
        self,
        take_part: Callable[[Assigned, FetchedPart], bool],
        has_room: Callable[[], bool],
        has_some: Callable[[], bool],
    ) -> None:
        ready = self._fetches.ready
        # A copy, because partitions leave it on the way.
        for partition in list(ready):
            state = self._subscription.assigned.get(partition)
            if state is None or not state.parts:
                del ready[partition]
                continue
            if not state.is_fetchable:
                continue
            try:
                while has_room() and state.parts:
                    part = state.parts[0]
                    if not take_part(state, part):
                        # The error is raised by the next poll, which finds it first: nothing is
                        # returned with it.
                        if part.error is not None and has_some():
                            return
                        self._end_part(state, part)
            except Exception:
                if has_some():
                    return
                # Fetch it again: the damage may be of the wire, and the next answer whole.
                state.drop_parts()
                self._fetches.rescan()
                self._metrics.error_count += 1
                raise
            if not has_room():
                # It stays in front, so that the next poll continues where this one has ended.
                return
            del ready[partition]

    def _end_part(self, state: Assigned, part: FetchedPart) -> None:
        """Continue after a part that was returned, or raise its error."""
        assert state.position is not None, "a fetchable partition has a position"
        if part.end_offset > state.position.offset:
            state.read_to(part.end_offset, part.end_epoch)
        # One answer fewer waits, so the next fetch may go out while the program works.
        self._fetches.rescan()
        error = part.error
        if error is None:
            state.parts.popleft().release()
            return
        if isinstance(error, PositionOutOfRangeError):
            # Kafka's client resets, too, when retention has deleted the position.
            policy = self._config.auto_offset_reset
            # The position has moved since that fetch, so the error says nothing about it.
            if error.offsets.get(state.partition) != state.position.offset:
                state.drop_parts()
                return
            if policy.name != "none":
                log.info(
                    "position_out_of_range partition=%s offset=%d reset=%s",
                    state.partition,
                    state.position.offset,
                    policy.name,
                )
                state.await_reset(policy)
                return
        raise error
