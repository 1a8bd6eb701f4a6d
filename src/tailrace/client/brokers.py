"""`Brokers`: requests to the brokers of a cluster, for one thread that waits for the answers.

    broker.request(body, Response)          # sent when the broker is ready; returns the answer
    pending = broker.send_nowait(body)      # sent now, or None: the answer comes meanwhile
    pending.result(Response)                # waits for it

The connections are those of `nodes`, with its TLS, SASL, pauses and throttling. They live from one
wait to the next: nothing runs in the background, and an answer that nobody waits for stays with the
kernel, which bounds what a broker can send ahead.

Not here: which broker gets which request, and retries; see `metadata`.

Invariant: a wait ends with an answer or an error. Connecting and each request have time limits, and
a throttle time that a broker asks for is kept for five minutes at most.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Protocol, TypeVar

from tailrace.client.asking import explained
from tailrace.client.config import BrokerAddress, ClientConfig
from tailrace.client.drive.steps import Steps, T, Until
from tailrace.client.errors import UnreachableBrokerError
from tailrace.client.nodes import ConnectionPool, Node, NodeError, NodesStatistics, RequestOutcome
from tailrace.client.nodes.versions import VERSION_LIMITS
from tailrace.errors import TailraceError
from tailrace.protocol.fields import Message
from tailrace.runtime.network import Connector
from tailrace.runtime.polling import Events, PollingNetwork
from tailrace.values import dataclass

M = TypeVar("M", bound=Message)


class WaitingNetwork(Connector, Protocol):
    """A network that its single user polls; see `PollingNetwork`."""

    def wait(self, timeout_s: float | None) -> Events:
        """Wait for news of a socket, or `timeout_s`; None waits without limit."""
        ...

    def run(self, events: Events) -> None:
        """Call back what `wait` has found."""
        ...

    def close(self) -> None:
        """Release its file descriptors."""
        ...


class Brokers:
    """Connections that are opened when they are needed; not for more than one thread at a time."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        version_limits: Mapping[int, int] = VERSION_LIMITS,
        open_network: Callable[[], WaitingNetwork] = PollingNetwork.open,
        monotonic: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        """`open_network` is called when something is sent, at first and after each `close`.

        `version_limits` are the highest versions that are sent, by API key.

        Raises:
            ConfigError: a TLS file cannot be read, or a name or password is not Unicode text.
        """
        self._config = config
        self._version_limits = version_limits
        self._security = config.security.opened()
        self.request_timeout_ms = config.request_timeout_ms
        self._open_network = open_network
        self._monotonic = monotonic
        self._chance = chance or random.SystemRandom()
        self._opened: tuple[WaitingNetwork, ConnectionPool] | None = None

    def is_ready(self, node: Node) -> bool:
        """Return whether a request to this node would be sent at once."""
        return self._opened is not None and self._opened[1].is_ready(node.id, self._monotonic())

    def connect(self, node: Node, *, until: float = float("inf")) -> None:
        """Wait until the broker is ready, or until the time `until`.

        Raises:
            UnreachableBrokerError: it cannot be reached, or not in time, or is no broker.
            AuthenticationError: the login failed, or the broker's identity could not be checked.
        """
        _, nodes = self._open()
        self._turn(self._monotonic())  # a connection may have ended since the last wait
        before = nodes.failure(node.id)
        while not nodes.connect(node, self._monotonic()):
            failure = nodes.failure(node.id)
            if failure is not None and failure is not before:
                raise explained(failure, node)
            if self._monotonic() >= until:
                raise UnreachableBrokerError(
                    f"{node}: no connection within the time limit",
                    address=str(BrokerAddress(node.host, node.port)),
                )
            self._turn(until)

    @property
    def nodes(self) -> ConnectionPool:
        """The connections; opened by this if there are none."""
        return self._open()[1]

    def run(self, steps: Steps[T]) -> T:
        """Run steps on this thread, and return their result."""
        is_done: bool | None = None
        try:
            while True:
                request = steps.send(is_done)
                assert isinstance(request, Until), "an operation calls no user code"
                is_done = self._until(*request)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    def _until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        self._turn(self._monotonic())  # a connection may have ended since the last wait
        while not is_done():
            if self._monotonic() >= deadline:
                return False
            self._turn(deadline)
        return True

    def send_nowait(
        self,
        node: Node,
        body: Message,
        *,
        until: float = float("inf"),
        version_max: int | None = None,
    ) -> "PendingRequest | None":
        """Send a request if the broker is ready, else do nothing; never waits.

        Its answer has to come within `request.timeout.ms`, and before the time `until`;
        `version_max` is as for `ConnectionPool.send`.
        """
        if not self.is_ready(node):
            return None
        _, nodes = self._open()
        pending = PendingRequest(self, node)
        now = self._monotonic()
        left_ms = max(until - now, 0.0) * 1000
        nodes.send(
            node.id,
            body,
            now=now,
            done=pending.end,
            timeout_ms=int(min(self.request_timeout_ms, left_ms)),
            version_max=version_max,
        )
        return pending

    def pause(self, seconds: float) -> None:
        """Wait for `seconds`; answers that arrive meanwhile are read."""
        until = self._monotonic() + seconds
        while self._monotonic() < until:
            self._turn(until)

    def wait_for(self, pending: "PendingRequest") -> None:
        """Wait until a request has its outcome."""
        while not pending.is_done:
            self._turn()

    def wait_for_any(self, pending: "Collection[PendingRequest]", seconds: float) -> None:
        """Wait until one of these requests has its outcome, for `seconds` at most."""
        until = self._monotonic() + seconds
        while not any(each.is_done for each in pending) and self._monotonic() < until:
            self._turn(until)

    def statistics(self) -> NodesStatistics:
        """The connections by node since the last `close`; none before the first request."""
        if self._opened is None:
            return NodesStatistics(nodes=MappingProxyType({}), failure_count=0)
        return self._opened[1].statistics()

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        if self._opened is not None:
            network, nodes = self._opened
            self._opened = None
            nodes.close()
            network.close()

    def _open(self) -> tuple[WaitingNetwork, ConnectionPool]:
        if self._opened is None:
            network = self._open_network()
            nodes = ConnectionPool(
                self._config,
                network=network,
                chance=self._chance,
                wake=lambda: None,
                version_limits=self._version_limits,
                security=self._security,
            )
            self._opened = network, nodes
        return self._opened

    def _turn(self, until: float = float("inf")) -> None:
        """Wait for a socket event or the next deadline, and handle it."""
        network, nodes = self._open()
        due = nodes.next_deadline()
        at = until if due is None else min(due, until)
        assert at < float("inf"), "nothing is under way that could end this wait"
        try:
            network.run(network.wait(max(at - self._monotonic(), 0.0)))
            nodes.poll(self._monotonic())
        except BaseException:
            # Ctrl-C or a bug of ours interrupted this step, so the connections' state is unknown.
            self.close()
            raise


class PendingRequest:
    """A request that was sent; its answer may have come."""

    __slots__ = ("_brokers", "_node", "_outcome", "is_done")

    def __init__(self, brokers: Brokers, node: Node) -> None:
        self._brokers = brokers
        self._node = node
        self._outcome: RequestOutcome = None
        self.is_done = False

    def end(self, outcome: RequestOutcome) -> None:
        """Note the answer, or the error that came instead."""
        self._outcome, self.is_done = outcome, True

    def result(self, response: type[M]) -> M:
        """Wait for the answer; records in it are views of its bytes.

        Raises:
            UnreachableBrokerError: the connection broke, no answer came within the time, or what
                came is no answer.
            UnsupportedBrokerError: the broker does not take this request.
        """
        outcome = self.outcome()
        if isinstance(outcome, TailraceError):
            raise outcome
        assert isinstance(outcome, response)
        return outcome

    def outcome(self) -> Message | TailraceError:
        """Wait for the answer, and return it or the error that came instead; see `result`."""
        self._brokers.wait_for(self)
        outcome = self._outcome
        if isinstance(outcome, NodeError):
            return explained(outcome, self._node)
        assert outcome is not None, "requests of a reader have answers"
        return outcome


@dataclass(frozen=True, slots=True)
class RemoteBroker:
    """One broker that requests can be sent to."""

    brokers: Brokers
    node: Node

    @property
    def address(self) -> BrokerAddress:
        """The host and port where it listens."""
        return BrokerAddress(self.node.host, self.node.port)

    def request(self, body: Message, response: type[M], *, version_max: int | None = None) -> M:
        """Send a request and return its answer; records in it are views of its bytes.

        `version_max` is the highest version that can carry the request, if there are later ones.

        Raises:
            UnreachableBrokerError: it cannot be reached, or gives no answer within the time.
            UnsupportedBrokerError: it does not take this request.
            AuthenticationError: the login failed, or the broker's identity could not be checked.
        """
        while True:
            self.brokers.connect(self.node)
            pending = self.send_nowait(body, version_max=version_max)
            if pending is not None:
                return pending.result(response)

    def send_nowait(
        self, body: Message, *, version_max: int | None = None
    ) -> PendingRequest | None:
        """Send a request if it can be sent at once, else do nothing."""
        return self.brokers.send_nowait(self.node, body, version_max=version_max)
