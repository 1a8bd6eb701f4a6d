"""`ConnectionPool`: connections to the brokers of a cluster, by node id, with Kafka's time limits.

    not connected --connect--> connecting -> setting up -> ready
         ^---------------- failure, time limit, idle ---------'      then a pause (KIP-580)

A socket event only marks its connection and calls `wake`, which must have `poll` called soon
but must not call it itself. Everything else happens when the caller calls, at the time `now` that
it passes:

    nodes.poll(now)                          # answers, failures, time limits; calls `done`
    if nodes.connect(node, now):
        nodes.send(node.id, request, now=now, done=take, timeout_ms=30_000)
    wait_until(nodes.next_deadline())        # or until `wake`

Not here: the bytes of one connection (`connection`), which nodes there are, and what requests mean.

Invariant: `done` is called exactly once for each request that `send` took, and only inside `poll`
or `close`. For one node the calls are in the order of the requests, except for requests without an
answer.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.client.errors import (
    AuthenticationError,
    DisconnectedError,
    NodeError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from tailrace.client.nodes.connection import Connection, Done, RequestOutcome
from tailrace.client.nodes.handshake import handshake
from tailrace.client.nodes.versions import KAFKA_SINCE, VERSION_LIMITS, Features
from tailrace.client.retries import Backoff
from tailrace.protocol.apis import ApiKey, api_of
from tailrace.protocol.fields import Message
from tailrace.runtime.network import Connector, Socket
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.client.config import ClientConfig
    from tailrace.client.security import Security

logger = logging.getLogger(__name__)

NEVER = float("inf")

SILENT_S: Final = 2.0
"""A broker that has owed an answer or a connection for longer is asked after all others; four times
as long as it holds a Fetch by default (`fetch.max.wait.ms`)."""

_READY, _CONNECTING, _UNCONNECTED, _SILENT, _NOT_NOW = range(5)

_FAILURES_SAID_MAX = 2
"""Failures in a row that are logged at INFO: a broker tries a lost controller twice a second."""

UNREACHABLE_AFTER_S: Final = 1.0
"""A cluster without any broker for longer is logged: one that restarts is back sooner, and a call
that fails at once has said so in its error."""

UNREACHABLE_EVERY_S: Final = 60.0
"""Seconds between two such lines of one client."""

_SETTING = "bootstrap.servers right"
_ADVERTISED = "the address the one that it advertises"

_REASONS_SAID_MAX = 3
"""Brokers whose failures such a line has."""


class Node(NamedTuple):
    """A broker's id and address; those of `bootstrap.servers` have ids from -1 downwards."""

    id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """HOST:PORT, as in the settings."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        # A number below 0 says nothing to a user; the name of the setting says where to look.
        name = f"node {self.id}" if self.id >= 0 else "bootstrap server"
        return f"{name} ({self.address})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatistics:
    """The connection to one node at one moment."""

    node: Node
    """Its id and address."""
    is_ready: bool
    """Whether there is a connection that is set up."""
    is_connecting: bool
    """Whether there is one that is not set up yet, or an attempt at one."""
    in_flight_count: int
    """Requests without a result."""
    failure_count: int
    """Connections and attempts that have ended since a connection was last ready."""
    failure: str | None
    """Why the last of these ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesStatistics:
    """The connections of one client at one moment."""

    nodes: Mapping[int, NodeStatistics]
    """Every node that the client has ever connected to, by its id; read only."""
    failure_count: int
    """Connections and attempts that have ended since the client was made, idle ones too; of a
    `ClusterReader`, since its last `close`."""


@dataclass(slots=True, eq=False)
class BrokerConnection:
    """The connection state of one node; it outlives single connections."""

    node: Node
    connection: Connection | None = None
    """Its connection."""
    cancel: Callable[[], None] | None = None
    """Ends the attempt to connect that is under way."""
    arrived: Socket | OSError | None = None
    """The result of that attempt, until the next poll handles it."""
    is_touched: bool = False
    """Whether the next poll has to look at this node."""
    attempts: int = 0
    """Connection attempts ever made; rotates through the host's addresses."""
    failures: int = 0
    """Connections that ended since one was last ready."""
    setup_failures: int = 0
    """Consecutive connections that failed before they were ready."""
    unreached_since: float = -NEVER
    """When the first attempt of these began."""
    attempted_at: float = -NEVER
    """When a connection was last begun or lost."""
    setup_deadline: float = NEVER
    """By when the connection must be ready."""
    retry_at: float = -NEVER
    """When the next attempt may begin."""
    muted_until: float = -NEVER
    """End of the broker's throttle time; nothing is sent before."""
    active_at: float = -NEVER
    """When the connection was last used."""
    heard_at: float = -NEVER
    """When the broker was last heard, or given a request while it owed no answer."""
    retired_at: float = NEVER
    """When the connection is to be replaced, because its SASL session ends."""
    failure: NodeError | None = None
    """Why the last connection ended; None once one is ready again."""

    @property
    def is_ready(self) -> bool:
        """Whether there is a connection that is set up."""
        return self.connection is not None and self.connection.is_ready

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, or an attempt at one."""
        return self.connection is not None or self.cancel is not None

    def silent_s(self, now: float) -> float:
        """Seconds for which the broker has owed an answer or a connection; 0 if it owes none."""
        if not self.is_connected:
            return 0.0
        if self.connection is None or not self.connection.is_ready:
            return now - self.attempted_at
        return now - self.heard_at if self.connection.in_flight else 0.0

    def statistics(self) -> NodeStatistics:
        """The connection and its requests right now."""
        in_flight = [] if self.connection is None else self.connection.in_flight
        return NodeStatistics(
            node=self.node,
            is_ready=self.is_ready,
            is_connecting=self.is_connected and not self.is_ready,
            in_flight_count=len(in_flight),
            failure_count=self.failures,
            failure=None if self.failure is None else str(self.failure),
        )

    def drop(self, error: NodeError) -> None:
        """Close the connection, or end the attempt at one; requests in flight end with `error`."""
        cancel, self.cancel = self.cancel, None
        if cancel is not None:
            cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close(error)
        arrived, self.arrived = self.arrived, None
        if arrived is not None and not isinstance(arrived, OSError):
            arrived.close()
        self.retired_at = NEVER

    def unused_until(self, idle_s: float) -> float:
        """Return the time at which a connection with nothing in flight is to be closed."""
        return min(self.active_at + idle_s, self.retired_at)

    def due(self, idle_s: float, now: float) -> float:
        """The next time at which the node's time limits must be checked."""
        if not self.is_connected:
            return self.retry_at if self.retry_at > now else NEVER
        if self.connection is None or not self.connection.is_ready:
            # Who waits for any broker asks another one then.
            silent_at = self.attempted_at + SILENT_S
            return min(self.setup_deadline, silent_at if silent_at > now else NEVER)
        waking = [each.deadline for each in self.connection.in_flight] or [
            self.unused_until(idle_s)
        ]
        return min(waking) if self.muted_until <= now else min(*waking, self.muted_until)


class ConnectionPool:
    """Connections by node id. One thread at a time may call it; no method blocks."""

    def __init__(
        self,
        config: "ClientConfig",
        *,
        network: Connector,
        chance: Random,
        wake: Callable[[], None],
        readable: Callable[[], None] | None = None,
        in_flight_max: int = 5,
        version_limits: Mapping[int, int] = VERSION_LIMITS,
        security: "Security | None" = None,
        candidates: Callable[[], Sequence[Node]] = tuple,
    ) -> None:
        """At most `in_flight_max` requests wait for an answer of one broker.

        `readable` is called in place of `wake` where a socket can be read, and may call `poll`.
        `version_limits` are the highest versions that are sent, by API key. `security` is for
        tests; else it follows from the settings. If none of `candidates`, the brokers that the
        client may ask, can be reached, that is logged.

        Raises:
            ConfigError: a TLS file cannot be read, a package is missing, or a name or password is
                not Unicode text.
        """
        self._client_id = config.client_id
        self._in_flight_max = in_flight_max
        self._version_limits = version_limits
        self._security = security or config.open_security()
        idle_ms = config.connections_max_idle_ms
        self._idle_s = NEVER if idle_ms < 0 else idle_ms / 1000
        self._candidates = candidates
        self._unreachable_said_at = -NEVER
        """When it was last logged that no broker can be reached; -NEVER if one was since."""
        self._network = network
        self._chance = chance
        self._wake = wake
        self._readable = readable or wake
        self.features = Features()
        """Features that the cluster uses."""
        self.failure_count = 0
        """Connections and connection attempts that have ended; metadata may be stale then."""
        self._states: dict[int, BrokerConnection] = {}
        self._is_closed = False
        self._touched: list[BrokerConnection] = []
        self._outcomes: deque[tuple[Done, RequestOutcome]] = deque()
        self._wake_at = NEVER
        """The next time at which something may be due; may be too early, never too late."""
        self._pauses = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, chance)
        self._setup_times = Backoff(
            config.socket_connection_setup_timeout_ms,
            config.socket_connection_setup_timeout_max_ms,
            chance,
        )

    def is_ready(self, node_id: int, now: float) -> bool:
        """Return whether a request can be sent now: connected, set up, not throttled, not full."""
        state = self._states.get(node_id)
        if state is None or state.connection is None:
            return False
        return (
            state.connection.is_ready
            and len(state.connection.in_flight) < self._in_flight_max
            and state.muted_until <= now < state.retired_at
        )

    def connect(self, node: Node, now: float) -> bool:
        """Return whether `node` is ready; connect if it is not, unless the backoff forbids it.

        Nothing is begun after `close`: a call that looks again then has not seen it yet.
        """
        if self._is_closed:
            return False
        state = self._states.get(node.id)
        # A node may come back with another address, as a pod does; then its old pauses do not
        # apply.
        if state is None or (not state.is_connected and state.node != node):
            attempts = 0 if state is None else state.attempts
            state = self._states[node.id] = BrokerConnection(node)
            # Kept, so that the next attempt tries the next address of the host.
            state.attempts = attempts
        if state.is_connected:
            return self.is_ready(node.id, now)
        if now < state.retry_at:
            self._wake_by(state.retry_at)
        else:
            self._begin(state, now)
        return False

    def leave_old_address(self, node: Node) -> None:
        """End the connection to another address that the node had before.

        Its requests end with an error: another process may have that address now, or none.
        """
        state = self._states.get(node.id)
        if state is not None and state.is_connected and state.node != node:
            logger.info("node_moved node=%s from=%s:%d", node, state.node.host, state.node.port)
            state.drop(DisconnectedError(f"{state.node}: it has another address by now, {node}"))
            # The next poll calls `done` of its requests.
            self._wake()

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
        connection = state.connection
        assert connection is not None, f"{state.node} is not ready"
        assert connection.is_ready, f"{state.node} is not ready"
        if not connection.in_flight:
            state.heard_at = now
        api = api_of(type(body))
        version = connection.versions.get(api.key)
        deadline = now + timeout_ms / 1000
        try:
            # The outcome and no exception: the caller may have other requests to send to other
            # nodes.
            if version is None:
                raise _unsupported(state.node, api.key)
            if version_max is not None:
                version = min(version, version_max)
            connection.send(
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
        assert state.connection is not None, f"{state.node} is not ready"
        version = state.connection.versions.get(key)
        if version is None:
            raise _unsupported(state.node, key)
        return version

    def least_loaded(self, nodes: Sequence[Node], now: float) -> Node | None:
        """The best node for a request that any node can answer; None if there is none now.

        A ready one with the fewest requests in flight; else one that is connecting; else the one
        that was tried longest ago. One that has been silent for `SILENT_S` comes last: it may be
        cut off. It need not be connected yet.
        """
        best: Node | None = None
        best_rank = (_NOT_NOW, 0.0)
        # From a random one on: clients that start together would all ask the first of the list.
        start = self._chance.randrange(len(nodes)) if nodes else 0
        for node in (*nodes[start:], *nodes[:start]):
            rank = self._rank(node.id, now)
            if rank < best_rank:
                best, best_rank = node, rank
        return best

    def silent_s(self, node_id: int, now: float) -> float:
        """Seconds for which a node has owed an answer or a connection; 0 if it owes none."""
        state = self._states.get(node_id)
        return 0.0 if state is None else state.silent_s(now)

    def in_flight(self, node_id: int) -> int:
        """Requests to this node that have no result yet."""
        state = self._states.get(node_id)
        return 0 if state is None or state.connection is None else len(state.connection.in_flight)

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
        # A look at each connection, so only when something may be due: a busy client polls
        # thousands of times a second.
        if now >= self._wake_at:
            self._check_times(now)
        # A `done` may send, which can append further outcomes: so until it is empty.
        outcomes = self._outcomes
        while outcomes:
            done, outcome = outcomes.popleft()
            done(outcome)

    def close(self) -> None:
        """Close every connection, for good; requests without an answer get a DisconnectedError."""
        self._is_closed = True
        for state in self._states.values():
            state.drop(DisconnectedError(f"{state.node}: this client was closed"))
        self._states.clear()
        self._touched.clear()
        self._wake_at = NEVER
        while self._outcomes:
            done, outcome = self._outcomes.popleft()
            done(outcome)

    def _rank(self, node_id: int, now: float) -> tuple[int, float]:
        """Sort key of a node for `least_loaded`, best first; `_NOT_NOW` cannot be chosen."""
        state = self._states.get(node_id)
        if state is None:
            return _UNCONNECTED, -NEVER
        if not state.is_connected:
            is_due = now >= state.retry_at
            return (_UNCONNECTED, state.attempted_at) if is_due else (_NOT_NOW, 0.0)
        is_ready = self.is_ready(node_id, now)
        # Ready, but full or throttled: nothing can be sent. One that is connecting may be next.
        if state.is_ready and not is_ready:
            return _NOT_NOW, 0.0
        silent_s = state.silent_s(now)
        if silent_s >= SILENT_S:
            return _SILENT, silent_s
        return (_READY, self.in_flight(node_id)) if is_ready else (_CONNECTING, 0.0)

    def _begin(self, state: BrokerConnection, now: float) -> None:
        def arrived(what: Socket | OSError) -> None:
            state.arrived = what
            self._touch(state)

        state.attempted_at = now
        if not state.setup_failures:
            state.unreached_since = now
        state.setup_deadline = now + self._setup_times.pause_s(state.setup_failures)
        host, port = state.node.host, state.node.port
        # The name is looked up each time: the addresses of a host change while a client runs.
        state.cancel = self._network.connect(host, port, arrived, first=state.attempts)
        state.attempts += 1
        self._wake_by(state.due(self._idle_s, now))

    def _touch(self, state: BrokerConnection, call: Callable[[], None] | None = None) -> None:
        # A socket may call back many times before the next poll; one look at it serves all.
        if not state.is_touched:
            state.is_touched = True
            self._touched.append(state)
            (call or self._wake)()

    def _work(self, state: BrokerConnection, now: float) -> None:
        arrived, state.arrived = state.arrived, None
        if isinstance(arrived, OSError):
            reason = arrived.strerror or str(arrived)
            self._fail(
                state,
                DisconnectedError(
                    f"{state.node}: no connection: {reason}; is a broker running there, and is "
                    # Of which the user has given the first; others came from brokers.
                    f"{_SETTING if state.node.id < 0 else _ADVERTISED}?"
                ),
                now,
            )
        elif arrived is not None:
            self._set_up(state, arrived, now)
        connection = state.connection
        if connection is None:
            return
        was_ready = connection.is_ready
        state.active_at = state.heard_at = now
        try:
            if arrived is not None:
                connection.start()
            connection.work()
        except NodeError as error:
            self._fail(state, error, now)
            return
        if connection.is_ready and not was_ready:
            state.failures = state.setup_failures = 0
            state.failure = None
            state.retired_at = now + connection.session_s
            logger.debug("node_ready node=%s", state.node)
            if self._unreachable_said_at > -NEVER:
                self._unreachable_said_at = -NEVER
                logger.info("cluster_reached client_id=%s node=%s", self._client_id, state.node)
        if connection.throttle_ms:
            seconds = connection.throttle_ms / 1000
            connection.throttle_ms = 0
            # The broker does not work on the others meanwhile, so their time must not run out.
            connection.postpone(seconds)
            state.muted_until = max(state.muted_until, now + seconds)
            self._wake_by(state.muted_until)
        if connection.is_ready and not connection.in_flight:
            self._wake_by(state.unused_until(self._idle_s))

    def _set_up(self, state: BrokerConnection, socket: Socket, now: float) -> None:
        state.cancel = None
        tls, login = self._security
        if tls is not None:
            try:
                # Here, because ssl takes 20 ms to import and most connections are plain.
                from tailrace.security.tls import TlsSocket

                socket = TlsSocket(socket, partial(tls.wrap_bio, server_hostname=state.node.host))
            except ValueError as error:
                socket.close()
                self._fail(state, AuthenticationError(f"{state.node}: no TLS: {error}"), now)
                return
        state.connection = Connection(
            socket,
            self._outcomes,
            client_id=self._client_id,
            steps=handshake(
                login,
                state.node.host,
                limits=self._version_limits,
                features=self.features,
            ),
            run_beside=self._network.run_beside,
            touched=lambda: self._touch(state),
            readable=lambda: self._touch(state, self._readable),
        )

    def _check_times(self, now: float) -> None:
        """Close connections whose time is up, and set the time of the next check."""
        for state in self._states.values():
            connection = state.connection
            if connection is None or not connection.is_ready:
                if state.is_connected and now >= state.setup_deadline:
                    self._fail(
                        state,
                        RequestTimedOutError(
                            f"{state.node}: no connection within socket.connection.setup.timeout.ms"
                            f"{_why_late(connection)}"
                        ),
                        now,
                    )
            elif connection.in_flight:
                late = next((each for each in connection.in_flight if now >= each.deadline), None)
                if late is not None:
                    self._fail(
                        state,
                        RequestTimedOutError(
                            f"{state.node}: no answer to {late.api.key.title} in time; it has "
                            f"been silent for {state.silent_s(now):.0f} s"
                        ),
                        now,
                    )
            # Before the broker does: its connections.max.idle.ms is a minute longer, and a request
            # that crosses its close would be lost.
            elif now >= state.unused_until(self._idle_s):
                self._fail(
                    state, DisconnectedError(f"{state.node}: the connection was not needed"), now
                )
        self._wake_at = min(
            (state.due(self._idle_s, now) for state in self._states.values()), default=NEVER
        )

    def _wake_by(self, at: float) -> None:
        self._wake_at = min(self._wake_at, at)

    def _fail(self, state: BrokerConnection, error: NodeError, now: float) -> None:
        """Close a connection or connection attempt, and start the pause before the next."""
        was_ready = state.is_ready
        state.drop(error)
        state.attempted_at = now
        # A broker that accepts and closes at once must not be asked in a loop: so after any end,
        # not only after failed attempts (KIP-580).
        state.retry_at = now + self._pauses.pause_s(state.failures)
        state.failures += 1
        # Only these give the next attempt more time (KIP-601): one that was ready had enough.
        state.setup_failures = 0 if was_ready else state.setup_failures + 1
        state.failure = error
        # Also of idle connections: a broker that has left the cluster closes its connections too.
        self.failure_count += 1
        self._wake_by(state.retry_at)
        # A refused login does not pass by itself, a lost connection does. Of a node that stays away
        # the first two say it: the connection that was lost, and why there is no other.
        level = logging.INFO if state.failures <= _FAILURES_SAID_MAX else logging.DEBUG
        if isinstance(error, AuthenticationError) and level != logging.DEBUG:
            level = logging.ERROR
        logger.log(level, "node_disconnected node=%s reason=%s", state.node, error)
        self._note_unreachable(now)

    def _note_unreachable(self, now: float) -> None:
        """Log that no broker could be reached for a while: once, and then once a minute.

        Only then, since clients try all that they know before they try one again.
        """
        if now < self._unreachable_said_at + UNREACHABLE_EVERY_S:
            return
        states = [self._states.get(each.id) for each in self._candidates()]
        failing = [each for each in states if each is not None and each.setup_failures]
        if not failing or len(failing) < len(states):
            return
        seconds = now - max(each.unreached_since for each in failing)
        if seconds < UNREACHABLE_AFTER_S:
            return
        reasons = [str(each.failure) for each in failing[:_REASONS_SAID_MAX]]
        if len(failing) > len(reasons):
            reasons.append(f"and {len(failing) - len(reasons)} more")
        self._unreachable_said_at = now
        logger.warning(
            "cluster_unreachable client_id=%s servers=%s attempts=%d seconds=%.0f reason=%s",
            self._client_id,
            ",".join(each.node.address for each in failing),
            sum(each.setup_failures for each in failing),
            seconds,
            "; ".join(reasons),
        )


def _why_late(connection: Connection | None) -> str:
    """The end of a sentence about a connection that was not set up in time."""
    if connection is None:
        return "; nothing answers at this address: is it right, and does a firewall allow it?"
    if connection.awaited:
        return f"; {connection.awaited} takes longer"
    return "; the port takes connections and says nothing: is it that of a broker?"


def _unsupported(node: Node, key: ApiKey) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{node} takes no version of {key.title} that this client speaks; Kafka "
        f"{KAFKA_SINCE.get(key, '2.1')} and later do"
    )
