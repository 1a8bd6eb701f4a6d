"""`Work`: the parts of one consumer that its operations share.

Not here: the operations (`reading_calls`, `offset_calls`, `group_calls`).
"""

from collections.abc import Callable

from tailrace.client.consumer.engine import ConsumerEngine
from tailrace.client.consumer.hooks import RebalanceHooks
from tailrace.client.interval_call import IntervalCall
from tailrace.values import dataclass, field


@dataclass(slots=True, eq=False)
class Work:
    """One consumer, as its operations see it."""

    engine: ConsumerEngine
    clock: Callable[[], float]
    """Monotonic seconds."""
    metrics_call: IntervalCall
    """The program's `on_metrics`."""
    hooks: RebalanceHooks = field(default_factory=RebalanceHooks)
    closer: object = None
    """The thread or task whose `close` has begun, which commits once for all."""

    @property
    def is_closing(self) -> bool:
        """Whether `close` has begun."""
        return self.closer is not None
