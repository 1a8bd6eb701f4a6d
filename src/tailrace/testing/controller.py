"""`ScriptedController`: a stand-in for a quorum of Kafka's controllers, on the memory network.

    with virtual_runtime() as outside:
        controller = ScriptedController(outside)
        controller.start()
        ...a broker with controller.quorum.bootstrap.servers=controller.bootstrap...
        controller.add_topic("t", partitions=3, replication_factor=2)

Its rules are those of the product (`cluster.control`), and its log has real batches: observers
fetch them, with snapshots and diverging epochs. All nodes share one log, so replication among them
is perfect; `move`, `restart`, `kill`, `cut_off`, `hold_commits` and `script` cause faults.

    Fetch, FetchSnapshot            the log, to observers
    BrokerRegistration, Heartbeat, AlterPartition, AllocateProducerIds, AssignReplicasToDirs
    Envelope                        what brokers forward for clients; also by itself
    DescribeCluster                 the cluster's id, and the controllers

Requests of a connection are answered one after the other, as by Kafka.

Invariant: everything runs on one loop. A node that does not lead changes nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from tailrace.broker.controller.log_answers import (
    Quorum,
    SeenObserver,
    fetch_answer,
    is_due,
    quorum_answer,
    snapshot_answer,
)
from tailrace.cluster.bootstrap import new_image
from tailrace.cluster.control.brokers import fence_stale
from tailrace.cluster.control.leaders import balance_leaders, elect_unclean
from tailrace.cluster.control.requests import ANSWERED, FORWARDED, decide
from tailrace.cluster.control.settings import ControlConfig
from tailrace.cluster.control.state import RECORDS_MAX, ControlState, RefusedError
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.features import ELIGIBLE_LEADERS
from tailrace.cluster.metadata.image import (
    ALL_BROKERS,
    MIN_INSYNC_REPLICAS,
    MetadataImage,
    TopicState,
)
from tailrace.cluster.metadata.served import SnapshotKey
from tailrace.cluster.metadata.snapshot import snapshot_records
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.model import TopicPartition
from tailrace.protocol import frames
from tailrace.protocol.apis import APIS, BETWEEN_NODES, Api, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from tailrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.describe_quorum import DescribeQuorumRequest
from tailrace.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tailrace.protocol.messages.fetch import FetchRequest
from tailrace.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from tailrace.runtime.background import BackgroundTasks
from tailrace.runtime.network import Listener, Socket
from tailrace.testing.error_responses import error_response
from tailrace.testing.frame_socket import FrameSocket
from tailrace.testing.metadata_log import ScriptedMetadataLog
from tailrace.testing.outside import Outside
from tailrace.testing.script import Fault, FaultKind, Script
from tailrace.values import replace

logger = logging.getLogger(__name__)

KNOWN: Final = {**APIS, **BETWEEN_NODES}
SERVED: Final = frozenset(
    {
        ApiKey.API_VERSIONS, ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT, ApiKey.ENVELOPE,
        ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_QUORUM, *ANSWERED,
    }
)  # fmt: skip
"""The APIs of a node."""
FIRST_ID: Final = 100
"""Id of the first controller, apart from those of brokers."""


class ScriptedController:
    """A quorum of one or several nodes, of which one is active."""

    def __init__(
        self,
        outside: Outside,
        *,
        nodes: int = 1,
        host: str = "controller",
        cluster_id: str = "scripted-cluster-000000",
        config: ControlConfig | None = None,
        image: MetadataImage | None = None,
        partition_count: int = 1,
        replication_factor: int = 1,
    ) -> None:
        """`image` is what the log begins with, by default the levels of a new cluster."""
        self.outside = outside
        self.host = host
        self.log = ScriptedMetadataLog()
        self.script = Script()
        self.counts: dict[ApiKey, int] = {}
        """Number of requests received, by API; those in an Envelope too."""
        self.records: list[tuple[int, Message]] = []
        """Each data record that was ever appended, with its offset, also those that were lost."""
        self.on_record: list[Callable[[int, Message], None]] = []
        """Called with each data record and its offset, when it is appended."""
        self.observers: dict[int, SeenObserver] = {}
        """The brokers that have fetched the log."""
        self.principals: list[bytes | None] = []
        """The principal of each Envelope."""
        self.commit_delay_s = 0.0
        """Time from the append of a record to its commit."""
        self.answer_delay_s = 0.0
        """Time that each answer takes longer, as that of a slow controller."""
        self.epoch = 0
        self.leader_id = FIRST_ID
        """The active node; -1: none is."""
        self.nodes = {each: _Node(self, each) for each in range(FIRST_ID, FIRST_ID + nodes)}
        defaults = TopicDefaults(
            partition_count=partition_count, replication_factor=replication_factor, given={}
        )
        self.state = ControlState(
            cluster_id,
            node_id=FIRST_ID,
            defaults=defaults,
            chance=outside.runtime.chance,
            config=config,
        )
        self._first = _first_image() if image is None else image
        self._held = False
        self._cut_off: set[int] = set()
        self._changed = asyncio.Event()
        self._tasks = BackgroundTasks()

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes; the first is active, and the log has the levels of the features."""
        for node in self.nodes.values():
            node.revive()
        self._lead(self.leader_id)
        if self.log.end_offset == 1:
            self.append(snapshot_records(self._first))
        config = self.state.config
        # Kafka looks eight times in a session.
        self._every(config.session_timeout_ms / 8000, self._fence_stale)
        if config.is_rebalancing:
            self._every(config.rebalance_s, lambda: self.append(balance_leaders(self.state)))
        self._every(
            config.unclean_election_ms / 1000, lambda: self.append(elect_unclean(self.state))
        )

    async def close(self) -> None:
        """Stop all nodes, and wait for their tasks."""
        for node in self.nodes.values():
            node.kill()
        await self._tasks.end()

    @property
    def bootstrap(self) -> str:
        """The value for `controller.quorum.bootstrap.servers`."""
        return ",".join(f"{self.host}:{each.port}" for each in self.nodes.values())

    @property
    def voters(self) -> str:
        """The value for `controller.quorum.voters`."""
        return ",".join(f"{each.id}@{self.host}:{each.port}" for each in self.nodes.values())

    @property
    def cluster_id(self) -> str:
        return self.state.cluster_id

    @property
    def image(self) -> MetadataImage:
        """The state of the cluster, committed or not."""
        return self.state.image

    def quorum(self, node_id: int) -> Quorum:
        """The quorum as a node sees it."""
        return Quorum(
            cluster_id=self.cluster_id,
            node_id=node_id,
            leader_id=self.leader_id,
            epoch=self.epoch,
            log=self.log,
            endpoints={each.id: (self.host, each.port) for each in self.nodes.values()},
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something until it ends, or the controller is closed."""
        return self._tasks.keep(self.outside.loop.create_task(work))

    # -- the log ------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Time of the loop."""
        return int(self.outside.loop.time() * 1000)

    def append(self, records: Iterable[RecordToWrite]) -> int:
        """Append records, and apply them; returns the offset after them."""
        rest = iter(records)
        while part := tuple(islice(rest, RECORDS_MAX)):
            first = self.log.end_offset
            self.log.append(part, epoch=self.epoch, now_ms=self.outside.clock.now_ms())
            self.state.replay(each.record for each in part)
            for offset, each in enumerate(part, first):
                self.records.append((offset, each.record))
                for callback in self.on_record:
                    callback(offset, each.record)
            self._commit_later()
        return self.log.end_offset

    def _commit_later(self) -> None:
        end = self.log.end_offset
        if self._held:
            pass
        elif self.commit_delay_s:
            self.outside.loop.call_later(self.commit_delay_s, self._commit, end, self.epoch)
        else:
            self.log.commit(end)
        self.wake()

    def _commit(self, end: int, epoch: int) -> None:
        # A leader commits with records of its own epoch only.
        if epoch == self.epoch and not self._held:
            self.log.commit(end)
            self.wake()

    def wake(self) -> None:
        """Let everything look again that waits for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self) -> None:
        """Wait for the next append, commit or change of the leader."""
        await self._changed.wait()

    async def until(self, holds: Callable[[MetadataImage], bool]) -> None:
        """Wait until something holds of the state of the cluster."""
        while not holds(self.image):
            await self.changed()

    # -- faults -------------------------------------------------------------------------------

    def hold_commits(self) -> None:
        """Append without a commit from now on, as a leader that has lost the majority."""
        self._held = True

    def release_commits(self) -> None:
        """Commit all that was appended."""
        self._held = False
        self.log.commit(self.log.end_offset)
        self.wake()

    def kill(self, node_id: int | None = None) -> None:
        """Stop a node, by default the active one; nobody leads until `move`."""
        node_id = self.leader_id if node_id is None else node_id
        self.nodes[node_id].kill()
        if node_id == self.leader_id:
            self.leader_id = -1
        self.wake()

    def restart(self, *, loses_uncommitted: bool = False) -> None:
        """Restart the active node: connections end, and it leads a new epoch.

        All that is in memory only is lost: sessions, and with `loses_uncommitted` the records above
        the watermark.
        """
        leader = self.leader_id
        self.kill(leader)
        self.move(leader, loses_uncommitted=loses_uncommitted)

    def move(self, node_id: int, *, loses_uncommitted: bool = False) -> None:
        """Make a node the active one, in a new epoch; it is started if it was stopped."""
        if loses_uncommitted:
            self.log.lose_uncommitted()
        self.nodes[node_id].revive()
        self._lead(node_id)

    def cut_off(self, *broker_ids: int) -> None:
        """Lose each request of these brokers from now on, without an answer."""
        self._cut_off |= set(broker_ids)

    def reconnect(self, *broker_ids: int) -> None:
        """Answer the requests of these brokers again, by default of all.

        A request that was lost stays lost.
        """
        self._cut_off -= set(broker_ids or self._cut_off)

    def snapshot(self, *, cuts: bool = True) -> SnapshotKey:
        """Save a snapshot at the end of the log; `cuts` removes the batches before it."""
        assert self.log.watermark == self.log.end_offset, "a snapshot has committed records only"
        return self.log.snapshot(self.image, now_ms=self.outside.clock.now_ms(), cuts=cuts)

    def _lead(self, node_id: int) -> None:
        self.leader_id = node_id
        self.epoch += 1
        replay = self.log.replay()
        # Who has fetched is in memory only.
        self.observers.clear()
        self.log.begin_epoch(
            self.epoch,
            leader=node_id,
            voters=tuple(self.nodes),
            now_ms=self.outside.clock.now_ms(),
        )
        self.state.begin(replay.image, next_offset=self.log.end_offset, now_ms=self.now_ms)
        self._commit_later()

    # -- periodic work ------------------------------------------------------------------------

    def _every(self, seconds: float, work: Callable[[], object]) -> None:
        async def run() -> None:
            while True:
                await asyncio.sleep(seconds)
                if self.leader_id != -1:
                    work()

        self.spawn(run())

    def _fence_stale(self) -> None:
        records = fence_stale(self.state, now_ms=self.now_ms)
        if records:
            self.append(records)

    # -- requests -----------------------------------------------------------------------------

    def add_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        assignments: Sequence[Sequence[int]] = (),
        configs: dict[str, str] | None = None,
    ) -> TopicState:
        """Create a topic, as a client's request does."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=tuple(
                CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(each))
                for number, each in enumerate(assignments)
            ),
            configs=tuple(
                CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ),
        )
        answer = self.do(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=(topic,)))
        assert isinstance(answer, CreateTopicsResponse)
        [result] = answer.topics
        if result.error_code:
            code = ErrorCode(result.error_code)
            raise RefusedError(code, f"topic {name}: {code.name}: {result.error_message}")
        return self.image.topics[result.topic_id]

    def partition(self, name: TopicPartition) -> Any:  # noqa: ANN401 - a record, imported late
        """The state of a partition."""
        topic = self.image.topic(name.topic)
        assert topic is not None, f"there is no topic {name.topic}"
        return topic.partitions[name.partition]

    def do(self, key: ApiKey, request: Message, *, version: int | None = None) -> Message:
        """Execute a request at once, without a connection; not committed if commits are held.

        Raises:
            RefusedError: the request as a whole.
        """
        last = KNOWN[key].last_version if version is None else version
        decision = decide(self.state, key, request, version=last, now_ms=self.now_ms)
        self.append(decision.records)
        return decision.answer

    async def answer(
        self, node: "_Node", api: Api, request: Message, *, version: int
    ) -> Message | None:
        """The answer of a node to a request; None: none can be given, and the connection ends."""
        self.counts[api.key] = self.counts.get(api.key, 0) + 1
        match request:
            case FetchRequest():
                return await self._fetch(node, request)
            case FetchSnapshotRequest():
                return snapshot_answer(self.quorum(node.id), request)
            case EnvelopeRequest():
                return await self._envelope(node, request)
            case DescribeClusterRequest():
                return DescribeClusterResponse(
                    cluster_id=self.cluster_id,
                    controller_id=self.leader_id,
                    brokers=tuple(
                        DescribeClusterBroker(broker_id=each.id, host=self.host, port=each.port)
                        for each in self.nodes.values()
                    ),
                )
        if api.key is ApiKey.API_VERSIONS:
            return self._versions()
        return await self._change(node, api, request, version=version)

    async def _change(
        self, node: "_Node", api: Api, request: Message, *, version: int
    ) -> Message | None:
        epoch = self.epoch
        try:
            if node.id != self.leader_id:
                raise RefusedError(ErrorCode.NOT_CONTROLLER)
            if isinstance(request, DescribeQuorumRequest):
                return quorum_answer(
                    self.quorum(node.id),
                    request,
                    observers=self.observers,
                    now_ms=self.outside.clock.now_ms(),
                )
            answer = self.do(api.key, request, version=version)
        except RefusedError as error:
            return error_response(api, request, version=version, code=error.code)
        # Also without records: what the answer is made of must be committed too.
        end = self.log.end_offset
        while self.log.watermark < end:
            await self.changed()
            if node.id != self.leader_id or epoch != self.epoch:
                code = ErrorCode.NOT_CONTROLLER
                return error_response(api, request, version=version, code=code)
        return answer

    async def _envelope(self, node: "_Node", request: EnvelopeRequest) -> EnvelopeResponse:
        self.principals.append(request.request_principal)
        if node.id != self.leader_id:
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        frame = memoryview(bytes(request.request_data))
        header, position = frames.read_request_header(frame, apis=KNOWN)
        api = KNOWN.get(header.api_key)
        if api is None or api.key not in {*FORWARDED, ApiKey.DESCRIBE_QUORUM}:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not api.is_served(header.api_version):
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        body = frames.decode_body(api.request, header.api_version, frame, position=position)
        self.counts[api.key] = self.counts.get(api.key, 0) + 1
        answer = await self._change(node, api, body, version=header.api_version)
        if answer is None:
            return EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        if node.id != self.leader_id:
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        data = frames.encode_response(
            api, answer, version=header.api_version, correlation_id=header.correlation_id
        )
        return EnvelopeResponse(response_data=data[frames.SIZE_BYTES :], error_code=ErrorCode.NONE)

    async def _fetch(self, node: "_Node", request: FetchRequest) -> Message:
        for topic in request.topics:
            for each in topic.partitions:
                seen = SeenObserver(each.fetch_offset, self.outside.clock.now_ms())
                self.observers[max(request.replica_id, request.replica_state.replica_id)] = seen
        until_s = self.outside.loop.time() + request.max_wait_ms / 1000
        while not is_due(self.quorum(node.id), request):
            left_s = until_s - self.outside.loop.time()
            if left_s <= 0:
                break
            try:
                async with asyncio.timeout(left_s):
                    await self.changed()
            except TimeoutError:
                break
        return fetch_answer(self.quorum(node.id), request)

    def _versions(self) -> ApiVersionsResponse:
        offered = (KNOWN[key] for key in sorted(SERVED))
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=tuple(
                ApiVersion(
                    api_key=each.key, min_version=each.first_version, max_version=each.last_version
                )
                for each in offered
            ),
            finalized_features_epoch=max(self.log.watermark - 1, 0),
            finalized_features=tuple(
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in self.image.features.items()
            ),
        )

    def is_lost(self, request: Message, client_id: str | None) -> bool:
        """Whether a request is one of a broker that is cut off."""
        if not self._cut_off:
            return False
        named = {getattr(request, "broker_id", None), getattr(request, "replica_id", None)}
        if isinstance(request, FetchRequest):
            named.add(request.replica_state.replica_id)
        known = {str(each) for each in self._cut_off}
        return (
            bool(named & self._cut_off) or (client_id or "").removeprefix("raft-client-") in known
        )


class _Node:
    """One controller: a port, and its connections."""

    def __init__(self, controller: ScriptedController, node_id: int) -> None:
        self.controller = controller
        self.id = node_id
        self.port = 0
        self._listener: Listener | None = None
        self._connections: dict[_Connection, None] = {}

    @property
    def is_alive(self) -> bool:
        """Whether it accepts connections."""
        return self._listener is not None

    def revive(self) -> None:
        """Accept connections, again on the same port."""
        if self._listener is None:
            network = self.controller.outside.runtime.network
            self._listener = network.listen(self.controller.host, self.port, self._accepted)
            self.port = self._listener.port

    def kill(self) -> None:
        """Close the port and all connections; nothing more is answered."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for each in tuple(self._connections):
            each.close()

    def _accepted(self, socket: Socket) -> None:
        connection = _Connection(self, socket)
        self._connections[connection] = None
        task = self.controller.spawn(connection.serve())
        task.add_done_callback(lambda _: self._connections.pop(connection, None))


class _Connection:
    """A node's end of one connection."""

    def __init__(self, node: _Node, socket: Socket) -> None:
        self._node = node
        self._socket = FrameSocket(socket, on_frame=self._received, on_end=self._ended)
        self._frames: deque[memoryview] = deque()
        self._has_news = asyncio.Event()
        self._is_lost = False

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _received(self, frame: memoryview) -> None:
        self._frames.append(frame)
        self._has_news.set()

    def _ended(self) -> None:
        self._frames.clear()
        self._has_news.set()

    async def serve(self) -> None:
        """Answer the requests, one after the other, until the connection ends."""
        if not self._socket.is_open:
            # The node was killed in the moment in which it accepted the connection.
            return
        self._socket.start()
        try:
            while self._socket.is_open:
                if self._frames:
                    await self._answer(self._frames.popleft())
                else:
                    self._has_news.clear()
                    await self._has_news.wait()
        except Exception:
            # The client sees the connection end, and the test this line.
            logger.exception("scripted_controller_failed node=%d", self._node.id)
            raise
        finally:
            self.close()

    async def _answer(self, frame: memoryview) -> None:
        controller = self._node.controller
        header, position = frames.read_request_header(frame, apis=KNOWN)
        api = KNOWN.get(header.api_key)
        if api is None or api.key not in SERVED or not api.is_served(header.api_version):
            self.close()
            return
        body = frames.decode_body(api.request, header.api_version, frame, position=position)
        fault = controller.script.next_fault(api.key, set())
        how = None if fault is None else fault.how
        if how is FaultKind.CUT:
            self.close()
        if how in (FaultKind.LOSE, FaultKind.CUT) or controller.is_lost(body, header.client_id):
            self._is_lost = True
        if self._is_lost:
            return
        answer: Message | None
        if fault is not None and how is FaultKind.ERROR:
            answer = error_response(api, body, version=header.api_version, code=fault.error)
        else:
            answer = await controller.answer(self._node, api, body, version=header.api_version)
        answer = self._spoil(answer, fault, api=api, body=body, version=header.api_version)
        delay_s = controller.answer_delay_s + (fault.delay_s if fault is not None else 0)
        if delay_s:
            await asyncio.sleep(delay_s)
        if answer is None or how is FaultKind.CUT_AFTER:
            self.close()
        elif how is FaultKind.LOSE_REPLY:
            self._is_lost = True
        else:
            data = frames.encode_response(
                api, answer, version=header.api_version, correlation_id=header.correlation_id
            )
            self._socket.send(data)

    @staticmethod
    def _spoil(
        answer: Message | None, fault: Fault | None, *, api: Api, body: Message, version: int
    ) -> Message | None:
        if fault is None or answer is None:
            return answer
        if fault.how is FaultKind.ERROR_AFTER:
            return error_response(api, body, version=version, code=fault.error)
        edited: Message = fault.edit(answer) if fault.how is FaultKind.EDIT else answer
        return edited


def _first_image() -> MetadataImage:
    """The state of a new cluster."""
    image = new_image()
    # As Kafka formats it: with eligible leaders the size of an ISR is a setting of all brokers.
    if image.features.get(ELIGIBLE_LEADERS):
        return replace(image, configs={ALL_BROKERS: {MIN_INSYNC_REPLICAS: "1"}})
    return image
