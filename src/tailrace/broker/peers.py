"""`Peers`: requests of this broker to other nodes of the cluster, each of which is awaited.

    answer = await peers.ask(node, BrokerHeartbeatRequest(...), timeout_ms=2000)

Each owner of requests has connections of its own: a node answers the requests of one connection in
their order, so that a Fetch which waits for records would hold up what comes after it.
"""

from collections.abc import Mapping
from typing import TypeVar

from tailrace.client.calls import Ask, send
from tailrace.client.cluster_engine import ClusterEngine
from tailrace.client.config import ClientConfig
from tailrace.client.drive.loop import LoopDriver
from tailrace.client.nodes import Node
from tailrace.client.routes import Routes
from tailrace.client.security import Security
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.fields import Message
from tailrace.runtime.system import Runtime

M = TypeVar("M", bound=Message)

_NO_LIMITS: Mapping[int, int] = {}
"""Brokers speak all versions with each other; the limits of clients are for other brokers' sake."""


class Peers:
    """Connections to nodes by their id, on the loop on which this was made.

    A request that names a node with another address than the last one goes there, over a new
    connection: Kafka's fetchers and channels begin again then, too.
    """

    def __init__(
        self, config: ClientConfig, runtime: Runtime, *, security: Security | None = None
    ) -> None:
        self._driver = LoopDriver()
        self._engine = ClusterEngine(
            config,
            kind="broker",
            network=runtime.network,
            chance=runtime.chance,
            clock=self._driver.clock,
            wake=self._driver.wake,
            # Most owners have one connection, as a follower that fetches.
            readable=self._driver.turn,
            version_limits=_NO_LIMITS,
            security=security,
            # A broker has no list of others to begin with: each request names its node.
            routes=Routes([]),
        )
        self._is_started = False

    async def ask(
        self,
        node: Node,
        request: Message,
        answer: type[M],
        *,
        timeout_ms: int,
        first_version: int = 0,
        last_version: int | None = None,
    ) -> M:
        """The answer of a node, in the highest version that both sides have.

        A caller that is cancelled leaves its request to the node. Requests to a node are answered
        in the order in which they were sent, of which five are under way at most.

        Raises:
            UnreachableBrokerError: there is no connection, it has ended, or no answer came in time.
            UnsupportedBrokerError: the node takes no version from `first_version` to
                `last_version`.
            AuthenticationError: it refuses the login.
        """
        # Not by the constructor: an owner may be made, and closed, without a single request.
        if not self._is_started:
            self._is_started = True
            self._driver.start(self._engine)
        # Clients keep such a connection; this broker knows from the image which address counts.
        self._engine.nodes.leave_old_address(node)
        deadline = self._driver.clock() + timeout_ms / 1000
        asked = Ask(node, request, deadline, first_version, last_version)
        (reply,) = await self._driver.run(send(self._engine, [asked]))
        return reply.answer(answer)

    def version_of(self, node_id: int, key: ApiKey) -> int:
        """The version in which this node gets requests of an API; it has answered one before."""
        return self._engine.nodes.version_of(node_id, key)

    def close(self) -> None:
        """Close all connections; requests that wait end with an error."""
        if self._is_started:
            self._driver.stop()
