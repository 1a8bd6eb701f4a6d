"""`ScriptedCluster`: a stand-in for a Kafka cluster, mostly on the memory network, for tests.

    with virtual_runtime() as outside:
        cluster = ScriptedCluster(outside, nodes=3)
        cluster.start()
        cluster.create_topic("t", partitions=4)
        cluster.script.add(ApiKey.PRODUCE, FaultKind.CUT_AFTER)
        ...a client with bootstrap.servers=cluster.bootstrap...

Its nodes answer ApiVersions, Metadata, Produce and the requests of transactions as brokers do: one
request of a connection after the other. Replication is perfect: each new leader has the whole log.
`script`, `move`, `kill` and `revive` cause faults.

There are no consumers. `partition_log` has the rules of a log, `coordinator` the transactions.

Invariant: everything runs on the cluster's own loop, without randomness.
"""

from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tailrace.model import TopicPartition
from tailrace.protocol import frames
from tailrace.protocol.apis import APIS, Api, ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from tailrace.protocol.messages.produce import ProduceRequest, ProduceResponse
from tailrace.runtime.network import Listener, Socket
from tailrace.testing.answers import ANSWERS, SentBatch, refusal, spoiled
from tailrace.testing.coordinator import ScriptedCoordinator
from tailrace.testing.frame_socket import FrameSocket
from tailrace.testing.outside import Outside
from tailrace.testing.partition_log import ScriptedLog
from tailrace.testing.script import Fault, FaultKind, Script
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.protocol.errors import ErrorCode

GARBAGE = b"\x7f\xff\xff\xffHTTP/1.1 400 Bad Request\r\n"
"""Bytes that are not the start of a frame."""


@dataclass(slots=True)
class ScriptedPartition:
    """A partition: its leader and its log."""

    leader: int
    """The id of the leading node; -1 for none."""
    epoch: int = 0
    log: ScriptedLog = field(default_factory=ScriptedLog)


@dataclass(slots=True, kw_only=True)
class Request:
    """A received request that is not answered yet."""

    api: Api
    version: int
    correlation_id: int
    body: Any


class Channel:
    """A node's end of one connection."""

    def __init__(self, node: "ScriptedNode", socket: Socket) -> None:
        self.node = node
        self._socket = FrameSocket(socket, on_frame=self._received)
        self._requests: deque[Request] = deque()
        self._swapped: bytes = b""
        self._is_busy = False
        self._is_lost = False

    @property
    def is_open(self) -> bool:
        """Whether it has not ended yet."""
        return self._socket.is_open

    def start(self) -> None:
        """Begin to read requests."""
        self._socket.start()

    def resume(self) -> None:
        """Serve what its node has left during a pause."""
        self._next()

    def close(self) -> None:
        """End the connection."""
        self._requests.clear()
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are, whatever was asked."""
        self._socket.send(data)

    def _received(self, frame: memoryview) -> None:
        header, position = frames.read_request_header(frame, apis=APIS)
        api = APIS[header.api_key]
        self._requests.append(
            Request(
                api=api,
                version=header.api_version,
                correlation_id=header.correlation_id,
                body=frames.decode_body(api.request, header.api_version, frame, position=position),
            )
        )
        self._next()

    def _next(self) -> None:
        """Serve requests until a response has to be delayed."""
        if self.node.is_paused:
            return
        while self._requests and not self._is_busy and not self._is_lost and self.is_open:
            self._serve(self._requests.popleft())

    def _serve(self, request: Request) -> None:
        cluster = self.node.cluster
        partitions = set()
        if isinstance(request.body, ProduceRequest):
            partitions = partitions_of(request.body)
        cluster.counts[request.api.key] = cluster.counts.get(request.api.key, 0) + 1
        fault = cluster.script.next_fault(request.api.key, partitions)
        how = None if fault is None else fault.how
        if how in {FaultKind.LOSE, FaultKind.CUT}:
            self._is_lost = True
            if how is FaultKind.CUT:
                self.close()
            return
        answer = cluster.act(self.node, request, fault)
        if how in {FaultKind.LOSE_REPLY, FaultKind.CUT_AFTER, FaultKind.GARBAGE}:
            self._is_lost = True
            if how is FaultKind.GARBAGE:
                self.send(GARBAGE)
            elif how is FaultKind.CUT_AFTER:
                self.close()
            return
        if answer is None:
            return
        if fault is not None and how is FaultKind.EDIT:
            answer = fault.edit(answer)
        data = frames.encode_response(
            request.api, answer, version=request.version, correlation_id=request.correlation_id
        )
        if how is FaultKind.TWICE:
            data += data
        if how is FaultKind.SWAP and not self._swapped:
            self._swapped = data
            return
        data, self._swapped = data + self._swapped, b""
        if fault is None or not fault.delay_s:
            self.send(data)
            return
        self._is_busy = True
        cluster.outside.loop.call_later(fault.delay_s, self._late, data)

    def _late(self, data: bytes) -> None:
        self._is_busy = False
        if self.is_open:
            self._socket.send(data)
            self._next()


class ScriptedNode:
    """One broker of the cluster."""

    def __init__(self, cluster: "ScriptedCluster", node_id: int) -> None:
        self.cluster = cluster
        self.id = node_id
        self.channels: list[Channel] = []
        self.is_paused = False
        """Whether it accepts connections and requests and answers none, as a stopped process."""
        self._listener: Listener | None = None
        self.port = 0

    @property
    def is_alive(self) -> bool:
        """Whether it accepts connections."""
        return self._listener is not None

    def revive(self) -> None:
        """Accept connections; again on the same port as before, if there was one."""
        if self._listener is None:
            self._listener = self.cluster.outside.network.listen(
                self.cluster.host, self.port, self._accepted
            )
            self.port = self._listener.port

    def kill(self) -> None:
        """Close the port and all connections at once; pending requests are never answered."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        channels, self.channels = self.channels, []
        for channel in channels:
            channel.close()

    def resume(self) -> None:
        """Answer what was asked during a pause, and what comes."""
        self.is_paused = False
        for channel in self.channels:
            channel.resume()

    def _accepted(self, socket: Socket) -> None:
        self.channels = [each for each in self.channels if each.is_open]
        channel = Channel(self, socket)
        self.channels.append(channel)
        channel.start()


class ScriptedCluster:
    """Nodes 1 to `nodes`, their topics, and their faults; nodes accept connections from `start`."""

    def __init__(self, outside: Outside, *, nodes: int = 1, host: str = "node") -> None:
        self.outside = outside
        self.host = host
        """The host on which all nodes listen."""
        self.script = Script()
        self.partitions: dict[TopicPartition, ScriptedPartition] = {}
        self.coordinator = ScriptedCoordinator(lambda partition: self.partitions[partition].log)
        self.password = b"secret"
        """The password for SASL/PLAIN; authentication is optional."""
        self.coordinator_id = 1
        """The node that coordinates all transactions and groups."""
        self.gives_hints = True
        """Whether a NOT_LEADER_OR_FOLLOWER response names the leader (KIP-951)."""
        self.topic_errors: dict[str, ErrorCode] = {}
        """Error codes of topics in Metadata responses."""
        self.throttle_ms = 0
        """The throttle time in every Produce response."""
        self.transaction_version = 0
        """Level of the feature: with 2, clients follow KIP-890."""
        self.features_epoch = -1
        self.asked_version = 0
        """Version of the request that is being answered."""
        self.versions: dict[ApiKey, int] = {ApiKey.DESCRIBE_TOPIC_PARTITIONS: -1}
        """The last served version of an API, if it is not the last known one; -1: not served.

        Topics are described by Metadata alone, unless a test answers the other API too."""
        self.answers = dict(ANSWERS)
        """The function for each API, from cluster, node and request; a test may add others."""
        self.counts: dict[ApiKey, int] = {}
        """Number of requests received, by API."""
        self.asked_topics: list[tuple[str, ...]] = []
        """The topics of each Metadata request so far."""
        self.sent: list[SentBatch] = []
        """Every received batch, in order."""
        self.nodes = {number: ScriptedNode(self, number) for number in range(1, nodes + 1)}

    def start(self) -> None:
        """Start all nodes."""
        for node in self.nodes.values():
            node.revive()

    @property
    def bootstrap(self) -> str:
        """The value for `bootstrap.servers`."""
        return ",".join(f"{self.host}:{each.port}" for each in self.nodes.values())

    def create_topic(self, name: str, *, partitions: int = 1) -> None:
        """Create a topic, or add partitions to it; the nodes lead them in rotation."""
        ids = list(self.nodes)
        for number in range(partitions):
            place = TopicPartition(name, number)
            if place not in self.partitions:
                self.partitions[place] = ScriptedPartition(ids[number % len(ids)])

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records."""
        self.partitions = {
            place: led for place, led in self.partitions.items() if place.topic != name
        }

    def log(self, topic: str = "t", partition: int = 0) -> ScriptedLog:
        """The log of a partition."""
        return self.partitions[TopicPartition(topic, partition)].log

    def move(self, partition: TopicPartition, node_id: int) -> None:
        """Make another node the leader of a partition; -1 for no leader."""
        led = self.partitions[partition]
        led.leader = node_id
        led.epoch += 1

    def kill(self, node_id: int) -> None:
        """Stop a node; living nodes become leaders of its partitions, if there are any."""
        self.nodes[node_id].kill()
        living = [each.id for each in self.nodes.values() if each.is_alive]
        for place, led in self.partitions.items():
            if led.leader == node_id and living:
                self.move(place, living[place.partition % len(living)])
        if self.coordinator_id == node_id and living:
            self.coordinator_id = living[0]

    def revive(self, node_id: int) -> None:
        """Restart a node; it leads the partitions that it still leads."""
        self.nodes[node_id].revive()

    def heal(self) -> None:
        """Remove all faults, restart all nodes, and give every partition a leader."""
        self.script.heal()
        self.throttle_ms = 0
        self.topic_errors.clear()
        for node in self.nodes.values():
            node.revive()
        for place, led in self.partitions.items():
            if led.leader < 0:
                self.move(place, 1)

    def count(self, api: ApiKey) -> int:
        """Return the number of requests of an API that were received."""
        return self.counts.get(api, 0)

    def act(self, node: ScriptedNode, request: Request, fault: Fault | None) -> Message | None:
        """Execute a request and return its response; None for no response."""
        key = request.api.key
        if fault is not None and fault.how is FaultKind.ERROR:
            return refusal(self, node, request.body, fault=fault)
        if key is ApiKey.API_VERSIONS:
            return self._versions()
        self.asked_version = request.version
        answer = self.answers[key](self, node, request.body)
        if fault is not None and fault.how is FaultKind.ERROR_AFTER:
            if isinstance(answer, ProduceResponse):
                return spoiled(answer, fault)
            return refusal(self, node, request.body, fault=fault)
        return answer

    def _versions(self) -> ApiVersionsResponse:
        level = FinalizedFeatureKey(
            name="transaction.version",
            min_version_level=self.transaction_version,
            max_version_level=self.transaction_version,
        )
        return ApiVersionsResponse(
            api_keys=self._offered(),
            finalized_features_epoch=self.features_epoch,
            finalized_features=(level,) if self.transaction_version else (),
        )

    def set_transaction_version(self, level: int) -> None:
        """Change the feature; clients see it on their next connections."""
        if level != self.transaction_version:
            self.transaction_version = level
            self.features_epoch += 1

    def _offered(self) -> tuple[ApiVersion, ...]:
        return tuple(
            ApiVersion(api_key=key, min_version=api.first_version, max_version=last)
            for key, api in APIS.items()
            if (last := self.versions.get(api.key, api.last_version)) >= api.first_version
        )


def partitions_of(body: ProduceRequest) -> set[TopicPartition]:
    """The partitions of a Produce request."""
    return {
        TopicPartition(topic.name, each.index)
        for topic in body.topic_data
        for each in topic.partition_data
    }
