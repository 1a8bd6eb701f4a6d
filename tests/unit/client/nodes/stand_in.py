"""A stand-in broker that speaks frames and does what a test says, and a client on virtual time."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tailrace.client.config import ClientConfig
from tailrace.client.nodes import ConnectionPool, Node, NodeError, RequestOutcome
from tailrace.client.security import Security
from tailrace.protocol import frames
from tailrace.protocol.apis import APIS, Api, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.runtime.network import Socket
from tailrace.testing import Outside, virtual_runtime

Wrap = Callable[[Socket], Socket]
"""Wraps a broker's end of a connection."""

OFFERED = tuple(
    ApiVersion(api_key=api.key, min_version=api.first_version, max_version=api.last_version)
    for api in APIS.values()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that reached the broker."""

    connection: "Channel"
    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: Message

    def answer(self, body: Message, *, correlation_id: int | None = None) -> None:
        """Answer it, or another one in its place."""
        self.connection.send(
            frames.encode_response(
                self.api,
                body,
                version=self.version,
                correlation_id=(self.correlation_id if correlation_id is None else correlation_id),
            )
        )


@dataclass(eq=False, slots=True)
class Channel:
    """The broker's end of one connection."""

    broker: "StandIn"
    socket: Socket
    received: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    is_closed: bool = False

    def on_readable(self) -> None:
        """Take what is there and act on whole requests."""
        chunk = bytearray(65536)
        while not self.is_closed:
            try:
                count = self.socket.receive_into(memoryview(chunk))
            except OSError:
                count = 0
            if count is None:
                break
            if count == 0:
                self.close()
                return
            self.received += chunk[:count]
            self.take_requests()
        if not self.is_closed:
            self.send(b"")

    def take_requests(self) -> None:
        """Hand whole requests to the broker."""
        while len(self.received) >= 4 and self.broker.is_reading:
            end = 4 + int.from_bytes(self.received[:4], "big")
            if len(self.received) < end:
                return
            frame = memoryview(bytes(self.received[4:end]))
            del self.received[:end]
            self.broker.take(read_request(self, frame))

    def send(self, data: bytes) -> None:
        """Send bytes as they are; what does not go yet goes with the next call."""
        self.unsent += data
        while self.unsent:
            sent = self.socket.send([bytes(self.unsent)])
            if not sent:
                return
            del self.unsent[:sent]

    def close(self) -> None:
        """Close the connection."""
        self.is_closed = True
        self.socket.close()


def read_request(channel: Channel, frame: memoryview) -> Asked:
    """A request as the broker reads it."""
    api = APIS[int.from_bytes(frame[:2], "big")]
    version = int.from_bytes(frame[2:4], "big")
    length = int.from_bytes(frame[8:10], "big", signed=True)
    position = 10 + max(length, 0) + api.is_flexible(version)
    return Asked(
        connection=channel,
        api=api,
        version=version,
        correlation_id=int.from_bytes(frame[4:8], "big"),
        client_id=None if length < 0 else bytes(frame[10 : 10 + length]).decode(),
        body=frames.decode_body(api.request, version, frame, position=position),
    )


class StandIn:
    """A broker on a port of the memory network.

    It answers ApiVersions by itself, unless `rules` has something else to do for that request,
    and keeps every other request in `asked`.
    """

    def __init__(self, outside: Outside, *, wrap: Wrap = lambda socket: socket) -> None:
        self.channels: list[Channel] = []
        self.asked: list[Asked] = []
        self.rules: dict[ApiKey, Callable[[Asked], None]] = {
            ApiKey.API_VERSIONS: lambda asked: asked.answer(ApiVersionsResponse(api_keys=OFFERED))
        }
        self.is_reading = True
        self._wrap = wrap
        self.listener = outside.network.listen("broker", 0, self._accepted)

    def node(self, node_id: int = 1, host: str = "broker") -> Node:
        """The node that this broker is to a client."""
        return Node(node_id, host, self.listener.port)

    @property
    def channel(self) -> Channel:
        """The newest connection."""
        return self.channels[-1]

    def take(self, asked: Asked) -> None:
        """Act on a request."""
        rule = self.rules.get(asked.api.key)
        if rule is None:
            self.asked.append(asked)
        else:
            rule(asked)

    def _accepted(self, socket: Socket) -> None:
        channel = Channel(self, self._wrap(socket))
        self.channels.append(channel)
        channel.socket.watch_reads(channel.on_readable)


class Client:
    """`ConnectionPool` and the loop that drives it, as a driver would."""

    def __init__(
        self,
        outside: Outside,
        given: ClientConfig | Security | None = None,
        *,
        in_flight_max: int = 5,
        reads_at_once: bool = False,
    ) -> None:
        self.outside = outside
        self.outcomes: list[RequestOutcome] = []
        self.woken_count = 0
        self.candidates: list[Node] = []
        """The brokers of its cluster, which is logged as unreachable without one of them."""
        self.nodes = ConnectionPool(
            given if isinstance(given, ClientConfig) else ClientConfig(client_id="test"),
            network=outside.network,
            chance=random.Random(0),
            wake=self._woken,
            readable=self.poll if reads_at_once else None,
            in_flight_max=in_flight_max,
            security=given if isinstance(given, Security) else None,
            candidates=lambda: self.candidates,
        )

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.outside.loop.time()

    def _woken(self) -> None:
        self.woken_count += 1
        self.outside.loop.call_soon(self.poll)

    def poll(self) -> None:
        """One turn."""
        self.nodes.poll(self.now)

    async def pass_time(self, seconds: float) -> None:
        """Let time go by and poll whenever the client says that something is due."""
        until = self.now + seconds
        while True:
            self.poll()
            due = self.nodes.next_deadline()
            at = until if due is None else min(max(due, self.now + 0.001), until)
            if self.now >= until:
                return
            await self.outside.pass_time(at - self.now)

    async def settle(self) -> None:
        """Let happen what takes no time."""
        await self.pass_time(0.01)

    async def until(self, happened: Callable[[], object]) -> float:
        """Poll as a driver would until something is so; the seconds that it took."""
        start = self.now
        while not happened():
            assert self.now < start + 100, "it does not happen"
            due = self.nodes.next_deadline()
            step = 0.01 if due is None else min(max(due - self.now, 0.001), 0.01)
            await self.outside.pass_time(step)
            self.poll()
        return self.now - start

    async def begin(self, node: Node) -> float:
        """Ask for a connection until another one is begun; the seconds that it took."""
        firsts = self.outside.network.firsts
        count = len(firsts)

        def is_begun() -> bool:
            self.nodes.connect(node, self.now)
            return len(firsts) > count

        return await self.until(is_begun)

    async def half_connect(self, broker: StandIn) -> Node:
        """Connect to a broker that takes the connection, and keeps its versions to itself."""
        broker.rules[ApiKey.API_VERSIONS] = broker.asked.append
        node = broker.node()
        assert not self.nodes.connect(node, self.now)
        await self.settle()
        return node

    async def become_ready(self, node: Node) -> None:
        """Connect until the node is ready."""
        for _ in range(100):
            if self.nodes.connect(node, self.now):
                return
            await self.settle()
        raise AssertionError(f"{node} is not ready: {self.nodes.failure(node.id)}")

    def ask(self, node: Node, body: Message | None = None, *, timeout_ms: int = 30_000) -> None:
        """Ask for the metadata, or for something else; what comes of it is in `outcomes`."""
        self.nodes.send(
            node.id,
            body or MetadataRequest(topics=()),
            now=self.now,
            done=self.outcomes.append,
            timeout_ms=timeout_ms,
        )

    def failure(self, node: Node) -> NodeError:
        """Why the last connection to the node ended."""
        error = self.nodes.failure(node.id)
        assert error is not None
        return error


METADATA = MetadataResponse(cluster_id="cluster", controller_id=7)
"""An answer that is not all defaults."""

REFUSED = int(ErrorCode.INVALID_REQUEST)


@contextmanager
def stage(
    given: ClientConfig | Security | None = None,
    *,
    wrap: Wrap = lambda socket: socket,
    in_flight_max: int = 5,
) -> Iterator[tuple[Outside, StandIn, Client]]:
    """A network with one broker and a client that is not connected yet."""
    with virtual_runtime() as outside:
        client = Client(outside, given, in_flight_max=in_flight_max)
        yield outside, StandIn(outside, wrap=wrap), client
