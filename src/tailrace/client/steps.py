"""Steps of an operation on a cluster, without I/O: requests to send, and pauses.

    def operation(call: Call) -> Steps[Answer]:
        (reply,) = yield Send((Ask(node, request, call.deadline),))
        ...
        yield Pause(0.1)
        return answer

An operation is a generator: it yields steps, and is sent a reply for each request. `asking` makes
it steps of a driver, on a thread or on an event loop.

Not here: which broker gets a request (`routes`), and retries (`admin.items`).
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tailrace.client.config import BrokerAddress
from tailrace.client.errors import UnsupportedBrokerError
from tailrace.client.nodes import Backoff, Node
from tailrace.errors import TailraceError
from tailrace.protocol.fields import Message
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.client.routes import Routes

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class Ask(NamedTuple):
    """A request to send."""

    node: Node | None
    """The broker; None: any that can be reached."""
    body: Message
    deadline: float
    """End of the wait for the answer, on the call's clock."""
    first_version: int = 0
    """The lowest version that has the meaning of this request."""
    last_version: int | None = None
    """The highest version that has it; None: the latest has it too."""


class Reply(NamedTuple):
    """An answer, or the error that came instead."""

    node: Node | None
    """The broker; None if none could be reached."""
    outcome: Message | TailraceError
    is_sent: bool
    """Whether the broker may have got the request."""

    @property
    def address(self) -> str:
        """HOST:PORT of the broker."""
        return "no broker" if self.node is None else str(address_of(self.node))

    def answer(self, response: type[M]) -> M:
        """The answer.

        Raises:
            TailraceError: the error that came instead.
        """
        if isinstance(self.outcome, TailraceError):
            raise self.outcome
        assert isinstance(self.outcome, response)
        return self.outcome


class Send(NamedTuple):
    """Send these requests at the same time, and wait for all replies."""

    asks: tuple[Ask, ...]


class Pause(NamedTuple):
    """Wait for `seconds`."""

    seconds: float


Step = Send | Pause
Replies = tuple[Reply, ...]
Steps = Generator[Step, Replies, T]
"""An operation with a result; its runner sends it `()` after a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an operation: what it knows of the cluster, and its limits."""

    routes: "Routes"
    clock: Callable[[], float]
    """Seconds, as `deadline` counts them."""
    deadline: float
    """When the call ends."""
    limit_ms: int
    """The whole time of the call (`default.api.timeout.ms`)."""
    retries: int
    """Most retries of one item."""
    pauses: Backoff
    """Pauses before retries."""

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return max(self.deadline - self.clock(), 0.0)

    @property
    def left_ms(self) -> int:
        """The same in whole milliseconds, as requests have it."""
        return min(int(self.left_s * 1000), (1 << 31) - 1)


def check_version(ask: Ask, node: Node, version: int) -> UnsupportedBrokerError | None:
    """The error of a request that a broker would take for another one; None if there is none."""
    if version >= ask.first_version:
        return None
    name = type(ask.body).__name__.removesuffix("Request")
    return UnsupportedBrokerError(
        f"{node} has {name} up to version {version}, and this needs version {ask.first_version}"
    )


def address_of(node: Node) -> BrokerAddress:
    """The host and port where a node listens."""
    return BrokerAddress(node.host, node.port)
