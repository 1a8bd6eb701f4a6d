"""What is known of each node, and the settings that it follows from: values, no behaviour in time.

Not here: who changes them, and when; see `nodes`.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.client.nodes.errors import NodeError
from tailrace.client.nodes.link import Link
from tailrace.client.nodes.sasl import Credentials
from tailrace.runtime.network import Socket

NEVER = float("inf")


class Node(NamedTuple):
    """A broker and where it listens; those of `bootstrap.servers` have ids from -1 downwards."""

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
    """What the client calls itself in every request."""
    reconnect_backoff_ms: int = 50
    """First pause after a connection has failed."""
    reconnect_backoff_max_ms: int = 1000
    """Longest such pause."""
    connection_setup_timeout_ms: int = 10_000
    """Time for a connection to become ready (`socket.connection.setup.timeout.ms`)."""
    connection_setup_timeout_max_ms: int = 30_000
    """The same after many failures."""
    connections_max_idle_ms: int = 540_000
    """How long a connection may be unused before it is closed."""
    in_flight_max: int = 5
    """Most requests per connection (`max.in.flight.requests.per.connection`)."""
    tls: ssl.SSLContext | None = None
    """What connections are encrypted with; see `tls_context`."""
    credentials: Credentials | None = None
    """Who we are, where brokers ask for SASL."""


@dataclass(slots=True, eq=False)
class NodeState:
    """What is known of one node between its connections."""

    node: Node
    link: Link | None = None
    """Its connection."""
    cancel: Callable[[], None] | None = None
    """Ends the attempt to connect that is under way."""
    arrived: Socket | OSError | None = None
    """What came of that attempt, until the next poll."""
    is_touched: bool = False
    """Whether there is news that the next poll will look at."""
    attempts: int = 0
    """Connections that were tried, ever: which of the host's addresses is first."""
    failures: int = 0
    """Connections that ended since one was last ready."""
    setup_failures: int = 0
    """Of these, in a row, those that never were."""
    attempted_at: float = -NEVER
    """When a connection was last begun or lost."""
    setup_deadline: float = NEVER
    """By when the connection must be ready."""
    retry_at: float = -NEVER
    """When another one may be begun."""
    muted_until: float = -NEVER
    """Until when the broker wants to be left alone."""
    active_at: float = -NEVER
    """When the connection was last used."""
    retired_at: float = NEVER
    """When the connection is to be replaced, since the broker forgets who we are."""
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

    def unused_until(self, config: NodesConfig) -> float:
        """When a connection with nothing in flight is to be closed."""
        return min(self.active_at + config.connections_max_idle_ms / 1000, self.retired_at)

    def due(self, config: NodesConfig, now: float) -> float:
        """When to look at the node again if nothing happens before."""
        if not self.is_connected:
            return self.retry_at if self.retry_at > now else NEVER
        if self.link is None or not self.link.is_ready:
            return self.setup_deadline
        waking = [each.deadline for each in self.link.in_flight] or [self.unused_until(config)]
        return min(waking) if self.muted_until <= now else min(*waking, self.muted_until)
