"""`RebalanceHooks`: what a program does when a group gives it partitions or takes them away.

Hooks run in the thread or task that calls `poll`, `unsubscribe` or `close`, without any lock, and
may call the consumer: `seek` in `on_assigned`, `commit` in `on_revoked`. An exception in a hook is
raised by the call, after the rebalance has been carried out.
"""

from collections.abc import Callable
from typing import Any

from tailrace.model import TopicPartition
from tailrace.values import dataclass

Hook = Callable[[list[TopicPartition]], Any]
"""Is called with the partitions, in order; for `AsyncConsumer` it may be a coroutine function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceHooks:
    """The hooks of one subscription."""

    on_assigned: Hook | None = None
    """Partitions came; the list may be empty, since it is called after each rebalance."""
    on_revoked: Hook | None = None
    """Partitions go to another member; what was read of them can still be committed."""
    on_lost: Hook | None = None
    """Partitions are gone, and another member may read them already; `on_revoked` if not given."""
