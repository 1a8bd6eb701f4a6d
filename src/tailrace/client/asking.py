"""`carry_out`: an operation on a cluster (`steps`), as steps that a driver runs.

    Send     each request is sent once its broker is ready; then all replies are waited for
    Pause    a wait

Not here: which operations there are (`admin`), and which broker gets a request (`routes`).
"""

from functools import partial
from math import inf
from typing import Protocol

from tailrace.client.config import BrokerAddress
from tailrace.client.drive.steps import Steps as DriverSteps
from tailrace.client.drive.steps import Until
from tailrace.client.errors import UnreachableBrokerError, UnsupportedBrokerError
from tailrace.client.nodes import (
    ConnectionPool,
    DisconnectedError,
    Node,
    NodeError,
    RequestOutcome,
    UnsupportedVersionError,
)
from tailrace.client.steps import Ask, Pause, Replies, Reply, Steps, T, check_version
from tailrace.errors import TailraceError
from tailrace.protocol.apis import api_of


class Connections(Protocol):
    """The connections to a cluster of one client."""

    @property
    def nodes(self) -> ConnectionPool:
        """The nodes of the cluster."""
        ...

    @property
    def request_timeout_ms(self) -> int:
        """Longest time that a broker may take to answer."""
        ...

    def candidates(self) -> list[Node]:
        """The brokers that a request for any broker can go to."""
        ...

    def clock(self) -> float:
        """Monotonic seconds, which deadlines are in."""
        ...

    def check_open(self) -> None:
        """Raise the error of calls after the client was closed, if it was."""
        ...


def carry_out(steps: Steps[T], connections: Connections) -> DriverSteps[T]:
    """The result of an operation, whose requests are sent and whose pauses are kept.

    Raises: what the operation and `check_open` raise.
    """
    replies: Replies = ()
    try:
        while True:
            step = steps.send(replies) if replies else next(steps)
            if isinstance(step, Pause):
                yield Until(lambda: False, connections.clock() + step.seconds)
                replies = ()
            else:
                asked = [_Request(each, connections) for each in step.asks]
                yield from _replied(asked, connections)
                replies = tuple(each.reply for each in asked if each.reply is not None)
            connections.check_open()
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


def _replied(asked: "list[_Request]", connections: Connections) -> DriverSteps[None]:
    def is_done() -> bool:
        now = connections.clock()
        for each in asked:
            each.go_on(now)
        return all(each.reply is not None for each in asked)

    while not is_done():
        deadline = min((each.deadline for each in asked if not each.is_sent), default=inf)
        if not (yield Until(is_done, deadline)):
            connections.check_open()


class _Request:
    """One request: its broker is connected to, it is sent, it has its reply."""

    def __init__(self, ask: Ask, connections: Connections) -> None:
        self.deadline = ask.deadline
        self.is_sent = False
        self.reply: Reply | None = None
        self._ask = ask
        self._connections = connections
        self._node: Node | None = None
        """The broker that is tried now."""
        self._failed_before: NodeError | None = None
        """The last failure of that broker, from before."""
        self._failures: list[UnreachableBrokerError] = []
        self._left = [ask.node] if ask.node is not None else self._sorted_candidates()

    def go_on(self, now: float) -> None:
        """Connect, and send, as far as that is possible now."""
        try:
            while self.reply is None and not self.is_sent:
                if self._node is None:
                    self._try_next()
                    continue
                nodes = self._connections.nodes
                if nodes.connect(self._node, now):
                    self._send(self._node, now)
                    break
                error = self._failure_of(self._node, now)
                if error is None:
                    break
                self._node = None
                if not isinstance(error, UnreachableBrokerError):
                    raise error
                self._failures.append(error)
        except TailraceError as error:
            self.reply = Reply(self._ask.node, error, is_sent=False)

    def _sorted_candidates(self) -> list[Node]:
        nodes, now = self._connections.nodes, self._connections.clock()
        found = self._connections.candidates()
        return sorted(found, key=lambda each: nodes.is_ready(each.id, now), reverse=True)

    def _try_next(self) -> None:
        if self._left:
            self._node = self._left.pop(0)
            self._failed_before = self._connections.nodes.failure(self._node.id)
        elif len(self._failures) == 1:
            raise self._failures[0]
        else:
            raise UnreachableBrokerError(
                "no broker of the list can be reached: " + "; ".join(map(str, self._failures)),
                address=",".join(each.address for each in self._failures),
            )

    def _failure_of(self, node: Node, now: float) -> TailraceError | None:
        """Why the broker is not ready; None while it may become so."""
        failure = self._connections.nodes.failure(node.id)
        if failure is not None and failure is not self._failed_before:
            return explained(failure, node)
        if now < self.deadline:
            return None
        return UnreachableBrokerError(
            f"{node}: no connection within the time limit",
            address=str(BrokerAddress(node.host, node.port)),
        )

    def _send(self, node: Node, now: float) -> None:
        nodes, ask = self._connections.nodes, self._ask
        try:
            version = nodes.version_of(node.id, api_of(type(ask.body)).key)
        except UnsupportedVersionError:
            pass  # `done` gets the same error.
        else:
            mismatch = check_version(ask, node, version)
            if mismatch is not None:
                self.reply = Reply(node, mismatch, is_sent=False)
                return
        left_ms = max(self.deadline - now, 0.0) * 1000
        self.is_sent = True
        nodes.send(
            node.id,
            ask.body,
            now=now,
            done=partial(self._done, node),
            timeout_ms=int(min(self._connections.request_timeout_ms, left_ms)),
            version_max=ask.last_version,
        )

    def _done(self, node: Node, outcome: RequestOutcome) -> None:
        if isinstance(outcome, NodeError):
            failure = explained(outcome, node)
            is_sent = not isinstance(failure, UnsupportedBrokerError)
            self.reply = Reply(node, failure, is_sent=is_sent)
            return
        assert outcome is not None, "requests of an operation have answers"
        self.reply = Reply(node, outcome, is_sent=True)


def explained(error: NodeError, node: Node) -> TailraceError:
    """The error that callers get for an error of a connection."""
    match error:
        case DisconnectedError():
            found: TailraceError = UnreachableBrokerError(
                str(error), address=str(BrokerAddress(node.host, node.port))
            )
        case UnsupportedVersionError():
            found = UnsupportedBrokerError(str(error))
        case _:
            return error
    found.__cause__ = error
    return found
