"""`Work`: the parts of one consumer that its operations share; `Ahead`: records of an iteration.

Not here: the operations (`reading_calls`, `offset_calls`, `group_calls`).
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import field
from typing import TYPE_CHECKING

from tailrace.client.consumer.engine import ConsumerEngine
from tailrace.client.consumer.hooks import RebalanceHooks
from tailrace.client.interval_call import IntervalCall
from tailrace.model import TopicPartition
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.client.consumer.records import ConsumerRecord


class Ahead:
    """Records that an iteration has taken from the engine and not handed out yet.

    The engine's positions are behind them. Before a position is used or changed, they are put back.
    """

    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine
        self.records: deque[ConsumerRecord] = deque()

    def put_back(self, places: Collection[TopicPartition] | None = None) -> None:
        """Set the positions of these partitions, or of all, before their first record here."""
        firsts: dict[TopicPartition, tuple[int, int]] = {}
        for each in self.records:
            if places is None or each.topic_partition in places:
                firsts.setdefault(each.topic_partition, (each.offset, -1))
        if firsts:
            self._engine.hold_back(firsts)
            self.drop(firsts)

    def drop(self, places: Collection[TopicPartition]) -> None:
        """Forget the records of these partitions."""
        if self.records:
            kept = [each for each in self.records if each.topic_partition not in places]
            self.records.clear()
            self.records.extend(kept)

    def keep(self, places: Collection[TopicPartition]) -> None:
        """Forget the records of all other partitions."""
        self.drop({each.topic_partition for each in self.records} - set(places))


@dataclass(slots=True, eq=False)
class Work:
    """One consumer, as its operations see it."""

    engine: ConsumerEngine
    clock: Callable[[], float]
    """Monotonic seconds."""
    ahead: Ahead
    metrics_call: IntervalCall
    """The program's `on_metrics`."""
    hooks: RebalanceHooks = field(default_factory=RebalanceHooks)
    is_closing: bool = False
    """Whether `close` has begun, which commits once for all."""
