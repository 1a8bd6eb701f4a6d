"""`Health`: whether a node is ready, and if not, why; from the first moment of its start on.

Live is a process whose event loop answers. Ready is a node that serves all that it is there for: it
accepts requests, its log directories are in service, and the controllers count on it. What is
missing is a sentence each.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.broker.broker import RunningBroker


class Health:
    """The state of a node; on its event loop."""

    def __init__(self) -> None:
        self.waits_for: Callable[[], str] | None = lambda: "it starts"
        """Gives the step at which the start, or the stop, is; None while the node serves."""
        self.broker: RunningBroker | None = None
        """The broker, from when it serves; None for a controller too."""

    def serves(self, broker: "RunningBroker | None" = None) -> None:
        """The start is done, of a broker or of a controller that is none."""
        self.broker, self.waits_for = broker, None

    def stops(self) -> None:
        """The stop has begun."""
        self.waits_for = lambda: "it stops"

    def reasons(self) -> list[str]:
        """Why the node is not ready; empty if it is."""
        if self.waits_for is not None:
            return [self.waits_for()]
        return [] if self.broker is None else [*_reasons(self.broker)]


def _reasons(broker: "RunningBroker") -> Iterator[str]:
    if broker.end_reason is not None:
        yield f"it ends: {broker.end_reason}"
    for path, reason in broker.logs.left_out.items():
        yield f"log directory {path} is not in service: {reason}"
    for directory in broker.logs.directories:
        if directory.failure is not None:
            yield f"log directory {directory.path} is not in service: {directory.failure}"
    if broker.metadata_statistics() is None and broker.controller_node is None:
        return  # The only node is fenced by nobody.
    registration = broker.cluster.metadata.brokers.get(broker.config.node_id)
    if registration is None:
        yield "the controllers do not have it registered"
    elif registration.fenced:
        yield "the controllers have fenced it: clients are not sent to it"
