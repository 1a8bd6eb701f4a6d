"""`Nodes`: the connections to all brokers of a cluster, by node id, with Kafka's time limits.

    not connected --connect--> connecting -> setting up -> ready
         ^---------------- failure, time limit, idle ---------'      then a pause (KIP-580)

A socket event only marks its connection and calls `wake`, which must have `poll` called soon
but must not call it itself. Everything else happens when the caller calls, at the time `now` that
it passes:

    nodes.poll(now)                          # answers, failures, time limits; calls `done`
    if nodes.connect(node, now):
        nodes.send(node.id, request, now=now, done=take, timeout_ms=30_000)
    wait_until(nodes.next_deadline())        # or until `wake`

Not here: the bytes of one connection (`link`), which nodes there are, and what the requests are.

Invariant: `done` is called exactly once for each request that `send` took, and only inside `poll`
or `close`. For one node the calls are in the order of the requests, except for requests without an
answer.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from types import MappingProxyType

from tailrace.client.errors import (
    AuthenticationError,
    DisconnectedError,
    NodeError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from tailrace.client.nodes.backoff import Backoff
from tailrace.client.nodes.link import Done, Link, RequestOutcome
from tailrace.client.nodes.setup import introduce
from tailrace.client.nodes.state import (
    NEVER,
    Node,
    NodesConfig,
    NodesStatistics,
    NodeState,
)
from tailrace.client.nodes.versions import KAFKA_SINCE, Features
from tailrace.protocol.apis import ApiKey, api_of
from tailrace.protocol.fields import Message
from tailrace.runtime.network import Connector, Socket

logger = logging.getLogger(__name__)


class Nodes:
    """Connections by node id. One thread at a time may call it; no method blocks."""

    def __init__(
        self,
        config: NodesConfig,
        *,
        network: Connector,
        chance: Random,
        wake: Callable[[], None],
    ) -> None:
        self._config = config
        self._network = network
        self._chance = chance
        self._stirred = wake
        self.features = Features()
        """Features that the cluster uses."""
        self.failure_count = 0
        """Connections and connection attempts that have ended; metadata may be stale then."""
        self._states: dict[int, NodeState] = {}
        self._touched: list[NodeState] = []
        self._outcomes: deque[tuple[Done, RequestOutcome]] = deque()
        self._wake_at = NEVER
        """The next time at which something may be due; may be too early, never too late."""
        self._pauses = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, chance)
        self._setup_times = Backoff(
            config.connection_setup_timeout_ms, config.connection_setup_timeout_max_ms, chance
        )

    def is_ready(self, node_id: int, now: float) -> bool:
        """Return whether a request can be sent now: connected, set up, not throttled, not full."""
        state = self._states.get(node_id)
        if state is None or state.link is None:
            return False
        return (
            state.link.is_ready
            and len(state.link.in_flight) < self._config.in_flight_max
            and state.muted_until <= now < state.retired_at
        )

    def connect(self, node: Node, now: float) -> bool:
        """Return whether `node` is ready; connect if it is not, unless the backoff forbids it."""
        state = self._states.get(node.id)
        if state is None or (not state.is_connected and state.node != node):
            attempts = 0 if state is None else state.attempts
            state = self._states[node.id] = NodeState(node)
            state.attempts = attempts
        if state.is_connected:
            return self.is_ready(node.id, now)
        if now < state.retry_at:
            self._wake_by(state.retry_at)
        else:
            self._begin(state, now)
        return False

    def send(
        self,
        node_id: int,
        body: Message,
        *,
        now: float,
        done: Done,
        timeout_ms: int,
        has_answer: bool = True,
        version_max: int | None = None,
    ) -> None:
        """Send a request to a node that is ready; `done` gets its answer or an error.

        For a request without an answer (acks=0), `done` gets None when it has been sent. If the
        broker is too old for the request, `done` gets an `UnsupportedVersionError`. `version_max`
        is the highest version that can carry this request, if the API has later ones.
        """
        state = self._states.get(node_id)
        assert state is not None, f"node {node_id} is not ready"
        link = state.link
        assert link is not None, f"{state.node} is not ready"
        assert link.is_ready, f"{state.node} is not ready"
        api = api_of(type(body))
        version = link.versions.get(api.key)
        deadline = now + timeout_ms / 1000
        try:
            if version is None:
                raise _unsupported(state.node, api.key)
            if version_max is not None:
                version = min(version, version_max)
            link.send(
                body, done, api=api, version=version, deadline=deadline, has_answer=has_answer
            )
        except UnsupportedVersionError as error:
            self._outcomes.append((done, error))
            return
        state.active_at = now
        self._wake_by(deadline)

    def version_of(self, node_id: int, key: ApiKey) -> int:
        """The version of an API that requests to this node use; it must be ready.

        Raises:
            UnsupportedVersionError: no version is common to both sides.
        """
        state = self._states.get(node_id)
        assert state is not None, f"node {node_id} is not ready"
        assert state.link is not None, f"{state.node} is not ready"
        version = state.link.versions.get(key)
        if version is None:
            raise _unsupported(state.node, key)
        return version

    def least_loaded(self, nodes: Sequence[Node], now: float) -> Node | None:
        """The best node for a request that any node can answer; None if there is none now.

        A ready one with the fewest requests in flight; else one that is connecting; else the one
        that was tried longest ago. It need not be connected yet.
        """
        best: Node | None = None
        best_rank = (3, 0.0)
        start = self._chance.randrange(len(nodes)) if nodes else 0
        for node in (*nodes[start:], *nodes[:start]):
            rank = self._rank(node.id, now)
            if rank < best_rank:
                best, best_rank = node, rank
        return best

    def in_flight(self, node_id: int) -> int:
        """Requests to this node that have no result yet."""
        state = self._states.get(node_id)
        return 0 if state is None or state.link is None else len(state.link.in_flight)

    def failure(self, node_id: int) -> NodeError | None:
        """Return the last connection's error; None if it had none, or once one is ready again."""
        state = self._states.get(node_id)
        return None if state is None else state.failure

    def failure_of_any(self, nodes: Sequence[Node]) -> NodeError | None:
        """The error of a connection to one of these nodes; None if no connection has failed."""
        return next(filter(None, (self.failure(each.id) for each in nodes)), None)

    def login_error(self, nodes: Sequence[Node]) -> NodeError | None:
        """The error if all of these nodes refused authentication; else None."""
        failures = [self.failure(each.id) for each in nodes]
        is_refused = all(isinstance(each, AuthenticationError) for each in failures)
        return failures[0] if failures and is_refused else None

    def statistics(self) -> NodesStatistics:
        """The connections by node, with requests in flight and the reasons of failures."""
        states = self._states.items()
        return NodesStatistics(
            nodes=MappingProxyType({node_id: state.statistics() for node_id, state in states}),
            failure_count=self.failure_count,
        )

    def next_deadline(self) -> float | None:
        """Return the latest time for the next `poll`; None if only a socket event needs one.

        Never too late, but it may be too early.
        """
        if self._touched or self._outcomes:
            return 0.0
        return None if self._wake_at == NEVER else self._wake_at

    def poll(self, now: float) -> None:
        """Read answers, close connections whose time is up, and call `done`."""
        if self._touched:
            touched, self._touched = self._touched, []
            for state in touched:
                state.is_touched = False
                self._work(state, now)
        if now >= self._wake_at:
            self._check_times(now)
        outcomes = self._outcomes
        while outcomes:
            done, outcome = outcomes.popleft()
            done(outcome)

    def close(self) -> None:
        """Close every connection; requests without an answer get a DisconnectedError."""
        for state in self._states.values():
            state.drop(DisconnectedError(f"{state.node}: this client was closed"))
        self._states.clear()
        self._touched.clear()
        self._wake_at = NEVER
        while self._outcomes:
            done, outcome = self._outcomes.popleft()
            done(outcome)

    def _rank(self, node_id: int, now: float) -> tuple[int, float]:
        """Sort key of a node for `least_loaded`, best first; from 3 on it cannot be chosen."""
        state = self._states.get(node_id)
        if state is None:
            return 2, -NEVER
        if self.is_ready(node_id, now):
            return 0, self.in_flight(node_id)
        if not state.is_connected:
            return (2, state.attempted_at) if now >= state.retry_at else (3, 0.0)
        return (3, 0.0) if state.has_ready_link else (1, 0.0)

    def _begin(self, state: NodeState, now: float) -> None:
        def arrived(what: Socket | OSError) -> None:
            state.arrived = what
            self._touch(state)

        state.attempted_at = now
        state.setup_deadline = now + self._setup_times.pause_s(state.setup_failures)
        self._wake_by(state.setup_deadline)
        host, port = state.node.host, state.node.port
        state.cancel = self._network.connect(host, port, arrived, first=state.attempts)
        state.attempts += 1

    def _touch(self, state: NodeState) -> None:
        if not state.is_touched:
            state.is_touched = True
            self._touched.append(state)
            self._stirred()

    def _work(self, state: NodeState, now: float) -> None:
        arrived, state.arrived = state.arrived, None
        if isinstance(arrived, OSError):
            reason = arrived.strerror or str(arrived)
            self._fail(
                state,
                DisconnectedError(
                    f"{state.node}: no connection: {reason}; is a broker running there, and is "
                    "the address the one that it advertises?"
                ),
                now,
            )
        elif arrived is not None:
            self._set_up(state, arrived, now)
        link = state.link
        if link is None:
            return
        was_ready = link.is_ready
        state.active_at = now
        try:
            if arrived is not None:
                link.start()
            link.work()
        except NodeError as error:
            self._fail(state, error, now)
            return
        if link.is_ready and not was_ready:
            state.failures = state.setup_failures = 0
            state.failure = None
            state.retired_at = now + link.session_s
            logger.debug("node_ready node=%s", state.node)
        if link.throttle_ms:
            seconds = link.throttle_ms / 1000
            link.throttle_ms = 0
            link.postpone(seconds)
            state.muted_until = max(state.muted_until, now + seconds)
            self._wake_by(state.muted_until)
        if link.is_ready and not link.in_flight:
            self._wake_by(state.unused_until(self._config))

    def _set_up(self, state: NodeState, socket: Socket, now: float) -> None:
        state.cancel = None
        config = self._config
        if config.tls is not None:
            try:
                from tailrace.client.nodes.tls import TlsSocket

                socket = TlsSocket(socket, config.tls, host=state.node.host)
            except ValueError as error:
                socket.close()
                self._fail(state, AuthenticationError(f"{state.node}: no TLS: {error}"), now)
                return
        state.link = Link(
            socket,
            self._outcomes,
            client_id=config.client_id,
            steps=introduce(
                config.credentials,
                state.node.host,
                limits=config.version_limits,
                features=self.features,
            ),
            run_beside=self._network.run_beside,
            touched=lambda: self._touch(state),
        )

    def _check_times(self, now: float) -> None:
        """Close connections whose time is up, and set the time of the next check."""
        for state in self._states.values():
            link = state.link
            if link is None or not link.is_ready:
                if state.is_connected and now >= state.setup_deadline:
                    self._fail(
                        state,
                        RequestTimedOutError(
                            f"{state.node}: no connection within socket.connection.setup.timeout.ms"
                            + (f"; {link.awaited} takes longer" if link and link.awaited else "")
                        ),
                        now,
                    )
            elif link.in_flight:
                late = next((each for each in link.in_flight if now >= each.deadline), None)
                if late is not None:
                    self._fail(
                        state,
                        RequestTimedOutError(
                            f"{state.node}: no answer to {late.api.key.title} in time"
                        ),
                        now,
                    )
            elif now >= state.unused_until(self._config):
                self._fail(
                    state, DisconnectedError(f"{state.node}: the connection was not needed"), now
                )
        self._wake_at = min(
            (state.due(self._config, now) for state in self._states.values()), default=NEVER
        )

    def _wake_by(self, at: float) -> None:
        self._wake_at = min(self._wake_at, at)

    def _fail(self, state: NodeState, error: NodeError, now: float) -> None:
        """Close a connection or connection attempt, and start the pause before the next."""
        was_ready = state.has_ready_link
        state.drop(error)
        state.attempted_at = now
        state.retry_at = now + self._pauses.pause_s(state.failures)
        state.failures += 1
        state.setup_failures = 0 if was_ready else state.setup_failures + 1
        state.failure = error
        self.failure_count += 1
        self._wake_by(state.retry_at)
        level = logging.ERROR if isinstance(error, AuthenticationError) else logging.INFO
        logger.log(level, "node_disconnected node=%s reason=%s", state.node, error)


def _unsupported(node: Node, key: ApiKey) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{node} takes no version of {key.title} that this client speaks; Kafka "
        f"{KAFKA_SINCE.get(key, '2.1')} and later do"
    )
