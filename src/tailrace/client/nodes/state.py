"""`NodeState`: the connection state of one node; `NodesConfig`: the settings of all connections.

Not here: when this state changes; see `nodes`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tailrace.client.errors import NodeError
from tailrace.client.nodes.link import Link
from tailrace.client.nodes.sasl import Login
from tailrace.client.nodes.versions import VERSION_LIMITS
from tailrace.runtime.network import Socket
from tailrace.values import dataclass, field

if TYPE_CHECKING:
    import ssl

NEVER = float("inf")


class Node(NamedTuple):
    """A broker's id and address; those of `bootstrap.servers` have ids from -1 downwards."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"node {self.id} ({host}:{self.port})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesConfig:
    """Kafka's settings of a client's connections, with its defaults."""

    client_id: str
    """The client's name in every request."""
    reconnect_backoff_ms: int = 50
    """First pause after a connection has failed."""
    reconnect_backoff_max_ms: int = 1000
    """Longest pause between connection attempts."""
    connection_setup_timeout_ms: int = 10_000
    """Time for a connection to become ready (`socket.connection.setup.timeout.ms`)."""
    connection_setup_timeout_max_ms: int = 30_000
    """The same after many failures."""
    connections_max_idle_ms: int = 540_000
    """Time after which an unused connection is closed."""
    in_flight_max: int = 5
    """Most requests per connection (`max.in.flight.requests.per.connection`)."""
    tls: "ssl.SSLContext | None" = None
    """Context for TLS connections, from `tls_context`; None for plain ones."""
    credentials: Login | None = None
    """The login by SASL; None for connections without it."""
    version_limits: Mapping[int, int] = field(default_factory=lambda: VERSION_LIMITS)
    """Highest version of each request that the client sends, by API key; the others have none."""


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
class NodeState:
    """The connection state of one node; it outlives single connections."""

    node: Node
    link: Link | None = None
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
    retired_at: float = NEVER
    """When the connection is to be replaced, because its SASL session ends."""
    failure: NodeError | None = None
    """Why the last connection ended; None once one is ready again."""

    @property
    def has_ready_link(self) -> bool:
        """Whether there is a connection that is set up."""
        return self.link is not None and self.link.is_ready

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, or an attempt at one."""
        return self.link is not None or self.cancel is not None

    def statistics(self) -> NodeStatistics:
        """The connection and its requests right now."""
        in_flight = [] if self.link is None else self.link.in_flight
        return NodeStatistics(
            node=self.node,
            is_ready=self.has_ready_link,
            is_connecting=self.is_connected and not self.has_ready_link,
            in_flight_count=len(in_flight),
            failure_count=self.failures,
            failure=None if self.failure is None else str(self.failure),
        )

    def drop(self, error: NodeError) -> None:
        """Close the connection, or end the attempt at one; requests in flight end with `error`."""
        cancel, self.cancel = self.cancel, None
        if cancel is not None:
            cancel()
        link, self.link = self.link, None
        if link is not None:
            link.close(error)
        arrived, self.arrived = self.arrived, None
        if arrived is not None and not isinstance(arrived, OSError):
            arrived.close()
        self.retired_at = NEVER

    def unused_until(self, config: NodesConfig) -> float:
        """Return the time at which a connection with nothing in flight is to be closed."""
        return min(self.active_at + config.connections_max_idle_ms / 1000, self.retired_at)

    def due(self, config: NodesConfig, now: float) -> float:
        """The next time at which the node's time limits must be checked."""
        if not self.is_connected:
            return self.retry_at if self.retry_at > now else NEVER
        if self.link is None or not self.link.is_ready:
            return self.setup_deadline
        waking = [each.deadline for each in self.link.in_flight] or [self.unused_until(config)]
        return min(waking) if self.muted_until <= now else min(*waking, self.muted_until)
