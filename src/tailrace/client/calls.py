"""`Call`: one call of an operation on a cluster: its limits, its requests, and its pauses.

    def operation(call: Call) -> Steps[Answer]:
        (reply,) = yield from call.send([Ask(node, request, call.deadline)])
        ...
        yield from call.pause(0.1)
        return answer

An operation is a generator (`drive.steps`), written once for threads and event loops; tests answer
its requests without either.

Not here: which broker gets a request (`routes`), and retries (`admin.items`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from tailrace.client.config import BrokerAddress
from tailrace.client.drive.steps import Steps, Until
from tailrace.client.errors import (
    DisconnectedError,
    NodeError,
    UnreachableBrokerError,
    UnsupportedBrokerError,
    UnsupportedVersionError,
)
from tailrace.client.nodes import SILENT_S, Backoff, ConnectionPool, Node, RequestOutcome
from tailrace.errors import TailraceError
from tailrace.protocol.apis import ApiKey, api_of
from tailrace.protocol.fields import Message
from tailrace.values import dataclass, replace

if TYPE_CHECKING:
    from tailrace.client.routes import Routes

M = TypeVar("M", bound=Message)

_QUESTIONS = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_CONFIG_RESOURCES,
    }
)
"""Requests that change nothing and that any broker answers, so that several may be asked."""


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


Send = Callable[[Sequence[Ask]], Steps[tuple[Reply, ...]]]
"""Sends requests at the same time; returns all replies, in the order of the requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an operation: what it knows of the cluster, and its limits."""

    routes: "Routes"
    send: Send
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
        # The field is an int32.
        return min(int(self.left_s * 1000), (1 << 31) - 1)

    def renewed(self, *, limit_ms: int | None = None) -> "Call":
        """A call that begins now, on the same connections and with the same retries."""
        limit_ms = self.limit_ms if limit_ms is None else limit_ms
        return replace(self, limit_ms=limit_ms, deadline=self.clock() + limit_ms / 1000)

    def pause(self, seconds: float) -> Steps[None]:
        """Wait, or until the client is closed."""
        yield Until(lambda: False, self.clock() + seconds)


class Connections(Protocol):
    """The connections of one client to a cluster."""

    nodes: ConnectionPool
    clock: Callable[[], float]
    """Monotonic seconds, which deadlines are in."""
    request_timeout_ms: int
    """Longest time that a broker may take to answer."""

    def candidates(self) -> list[Node]:
        """The brokers that a request for any broker can go to."""
        ...

    def check_open(self) -> None:
        """Raise the error of calls after the client was closed, if it was."""
        ...


def send(connections: Connections, asks: Sequence[Ask]) -> Steps[tuple[Reply, ...]]:
    """Send requests, each once its broker is ready, and wait for all replies.

    A question for any broker goes to one more after each `SILENT_S` without an answer; the first
    answer counts.

    Raises: what `check_open` raises.
    """
    requests = [_Request(each, connections) for each in asks]

    def is_done() -> bool:
        now = connections.clock()
        for each in requests:
            each.advance(now)
        return all(each.reply is not None for each in requests)

    while True:
        # A driver reads what has arrived before it calls `is_done`: so no request goes to a
        # connection that the broker has closed since the last call.
        is_over = yield Until(is_done, min(each.due_at for each in requests))
        connections.check_open()
        if is_over:
            return tuple(each.reply for each in requests if each.reply is not None)


class Connecting:
    """Attempts to connect to brokers, until one is ready.

    The next attempt begins when the last one has failed, or after `SILENT_S` beside it: a broker
    that accepts connections and is silent would hold up all others.
    """

    def __init__(
        self, connections: Connections, nodes: Sequence[Node] | None = None, *, deadline: float
    ) -> None:
        """Without `nodes`, all candidates are tried: the silent last, those connected first."""
        pool, now = connections.nodes, connections.clock()
        if nodes is None:
            # A connection that exists costs nothing.
            nodes = sorted(
                connections.candidates(),
                key=lambda each: (
                    pool.silent_s(each.id, now) >= SILENT_S,
                    not pool.is_ready(each.id, now),
                ),
            )
        self.next_at = -inf
        """When the next attempt begins."""
        self._pool = pool
        self._deadline = deadline
        self._left = list(nodes)
        self._tried: dict[Node, NodeError | None] = {}
        """The brokers that are tried now, with their failures from before."""
        self._failures: list[UnreachableBrokerError] = []

    def ready(self, now: float) -> Node | None:
        """The next broker that is ready; connects as far as that is possible now.

        Raises:
            UnreachableBrokerError: none can be reached, or not in time.
            AuthenticationError: the first that can be reached refuses the login, or its identity
                could not be checked.
        """
        while True:
            for node in list(self._tried):
                if self._pool.connect(node, now):
                    del self._tried[node]
                    return node
                error = self._failure_of(node, now)
                # A login that one broker refuses, the others refuse too.
                if error is not None and not isinstance(error, UnreachableBrokerError):
                    raise error
                if error is not None:
                    del self._tried[node]
                    self._failures.append(error)
            if self._tried and (not self._left or now < self.next_at):
                return None
            if not self._left:
                raise self._error()
            node = self._left.pop(0)
            # An older failure is no answer to this attempt: the pool keeps it until the node is
            # ready.
            self._tried[node] = self._pool.failure(node.id)
            self.next_at = now + SILENT_S if self._left else inf

    def _error(self) -> UnreachableBrokerError:
        # The error itself, without a sentence around it.
        if len(self._failures) == 1:
            return self._failures[0]
        return UnreachableBrokerError(
            "no broker of the list can be reached: " + "; ".join(map(str, self._failures)),
            address=",".join(each.address for each in self._failures),
        )

    def _failure_of(self, node: Node, now: float) -> TailraceError | None:
        """Why the broker is not ready; None while it may become so."""
        failure = self._pool.failure(node.id)
        if failure is not None and failure is not self._tried[node]:
            return explained(failure, node)
        if now < self._deadline:
            return None
        return UnreachableBrokerError(
            f"{node}: no connection within the time limit; it has been silent for "
            f"{self._pool.silent_s(node.id, now):.0f} s",
            address=str(address_of(node)),
        )


class _Request:
    """One request: a broker is connected to, it is sent, it has its reply."""

    def __init__(self, ask: Ask, connections: Connections) -> None:
        self.reply: Reply | None = None
        self._ask = ask
        self._connections = connections
        self._sent_count = 0
        """Brokers that have it and have not answered."""
        self._lost: Reply | None = None
        """The first broker that has not answered in time, or whose connection broke."""
        self._next_at = -inf
        """When one more broker is asked; infinite: none is left."""
        nodes = None if ask.node is None else [ask.node]
        self._connecting = Connecting(connections, nodes, deadline=ask.deadline)

    @property
    def due_at(self) -> float:
        """When `advance` has something to do, beside answers."""
        if self.reply is not None or self._next_at == inf:
            return inf
        return max(min(self._ask.deadline, self._connecting.next_at), self._next_at)

    def advance(self, now: float) -> None:
        """Connect, and send, as far as that is possible now."""
        if self.reply is not None or now < self._next_at:
            return
        try:
            node = self._connecting.ready(now)
        except TailraceError as error:
            self._next_at = inf
            if not self._sent_count:
                self.reply = Reply(self._ask.node, error, is_sent=False)
        else:
            if node is not None:
                may_repeat = (
                    self._ask.node is None and api_of(type(self._ask.body)).key in _QUESTIONS
                )
                self._next_at = now + SILENT_S if may_repeat else inf
                self._send(node, now)

    def _send(self, node: Node, now: float) -> None:
        nodes, ask = self._connections.nodes, self._ask
        api = api_of(type(ask.body))
        try:
            version = nodes.version_of(node.id, api.key)
        except UnsupportedVersionError:
            pass  # `done` gets the same error.
        else:
            # An older broker would take the request for another one.
            if version < ask.first_version:
                mismatch = UnsupportedBrokerError(
                    f"{node} has {api.key.title} up to version {version}, and this needs version "
                    f"{ask.first_version}"
                )
                self.reply = Reply(node, mismatch, is_sent=False)
                return
        # The broker has the time that is left of the call, not a whole request.timeout.ms.
        left_ms = max(ask.deadline - now, 0.0) * 1000
        # Before the send, which may call `done` at once.
        self._sent_count += 1
        nodes.send(
            node.id,
            ask.body,
            now=now,
            done=partial(self._done, node),
            timeout_ms=int(min(self._connections.request_timeout_ms, left_ms)),
            version_max=ask.last_version,
        )

    def _done(self, node: Node, outcome: RequestOutcome) -> None:
        self._sent_count -= 1
        if self.reply is not None:
            return
        if isinstance(outcome, NodeError):
            failure = explained(outcome, node)
            # A request that cannot be encoded for this broker has not left.
            is_sent = not isinstance(failure, UnsupportedBrokerError)
            self._lost = self._lost or Reply(node, failure, is_sent=is_sent)
            # Another broker may still answer.
            if not (isinstance(outcome, DisconnectedError) and self._sent_count):
                self.reply = self._lost
            return
        assert outcome is not None, "requests of an operation have answers"
        self.reply = Reply(node, outcome, is_sent=True)


def explained(error: NodeError, node: Node) -> TailraceError:
    """The error that callers get for an error of a connection."""
    match error:
        case DisconnectedError():
            found: TailraceError = UnreachableBrokerError(str(error), address=str(address_of(node)))
        case UnsupportedVersionError():
            found = UnsupportedBrokerError(str(error))
        case _:
            return error
    found.__cause__ = error
    return found


def address_of(node: Node) -> BrokerAddress:
    """The host and port where a node listens."""
    return BrokerAddress(node.host, node.port)
