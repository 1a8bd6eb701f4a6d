"""The scripted controller: what a broker sees of it on the wire."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from tailrace.cluster.metadata.features import FEATURES
from tailrace.cluster.metadata.folder import TOPIC_ID
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot import read_snapshot
from tailrace.model import TopicPartition
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Records
from tailrace.protocol.frames import SIZE_BYTES, decode_response, encode_request
from tailrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tailrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from tailrace.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from tailrace.protocol.messages.broker_registration import Listener as RegisteredListener
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from tailrace.protocol.messages.describe_quorum import TopicData as DescribedTopic
from tailrace.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tailrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from tailrace.protocol.messages.fetch import PartitionData as FetchedPartition
from tailrace.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from tailrace.records.batch import read_batches
from tailrace.testing import Outside, Peer, virtual_runtime
from tailrace.testing.controller import ScriptedController
from tailrace.testing.script import FaultKind

CAUGHT_UP = 1 << 40


def bytes_of(records: Records | None) -> bytes:
    """Records of an answer, which are never in a file here."""
    assert records is None or isinstance(records, bytes | bytearray | memoryview)
    return bytes(records or b"")


def fenced(controller: ScriptedController) -> set[int]:
    """The brokers that are registered and do not serve."""
    return {each for each, broker in controller.image.brokers.items() if broker.fenced}


class Observer:
    """A broker that follows the metadata log, and says no more than it is asked to."""

    def __init__(self, controller: ScriptedController, broker_id: int) -> None:
        self.controller = controller
        self.id = broker_id
        self.epoch = -1
        self.replay = MetadataReplay()
        self.watermark = -1
        self.leader_epoch = controller.epoch
        self.last_epoch = 0
        self.connect()

    def connect(self) -> None:
        """Open connections to the active controller."""
        node = self.controller.nodes[self.controller.leader_id]
        self.peer = Peer(self.controller.outside.network.open(node.port))
        self.fetches = Peer(self.controller.outside.network.open(node.port))

    async def register(self, incarnation: int = 1) -> ErrorCode:
        """Register, and keep the epoch."""
        answer = await self.peer.ask(
            ApiKey.BROKER_REGISTRATION,
            BrokerRegistrationRequest(
                broker_id=self.id,
                cluster_id=self.controller.cluster_id,
                incarnation_id=UUID(int=self.id * 1000 + incarnation),
                listeners=(
                    RegisteredListener(
                        name="PLAINTEXT", host="broker", port=9092, security_protocol=0
                    ),
                ),
                features=tuple(
                    Feature(
                        name=name,
                        min_supported_version=each.lowest,
                        max_supported_version=each.highest,
                    )
                    for name, each in FEATURES.items()
                ),
                rack=None,
                log_dirs=(UUID(int=self.id << 64),),
            ),
            BrokerRegistrationResponse,
        )
        if not answer.error_code:
            self.epoch = answer.broker_epoch
        return ErrorCode(answer.error_code)

    async def beat(self, **fields: Any) -> BrokerHeartbeatResponse:
        """Send a heartbeat; by default all records are applied, and it wants to serve."""
        wanted = {"current_metadata_offset": CAUGHT_UP, "want_fence": False,
                  "want_shut_down": False, **fields}  # fmt: skip
        return await self.peer.ask(
            ApiKey.BROKER_HEARTBEAT,
            BrokerHeartbeatRequest(broker_id=self.id, broker_epoch=self.epoch, **wanted),
            BrokerHeartbeatResponse,
        )

    async def serve(self) -> None:
        """Register, and be unfenced."""
        assert await self.register() is ErrorCode.NONE
        assert not (await self.beat()).is_fenced

    async def fetch(self, *, max_wait_ms: int = 0, offset: int | None = None) -> FetchedPartition:
        """Fetch from the end of what was fetched; records are replayed."""
        answer = await self.fetches.ask(
            ApiKey.FETCH,
            FetchRequest(
                cluster_id=self.controller.cluster_id,
                replica_state=ReplicaState(replica_id=self.id),
                max_wait_ms=max_wait_ms,
                min_bytes=0,
                max_bytes=1 << 20,
                isolation_level=0,
                session_id=0,
                topics=(
                    FetchTopic(
                        topic="",
                        topic_id=TOPIC_ID,
                        partitions=(
                            FetchPartition(
                                partition=0,
                                current_leader_epoch=self.leader_epoch,
                                fetch_offset=self.replay.next_offset if offset is None else offset,
                                last_fetched_epoch=self.last_epoch,
                                partition_max_bytes=0,
                                replica_directory_id=UUID(int=9),
                                high_watermark=self.watermark,
                            ),
                        ),
                    ),
                ),
                forgotten_topics_data=(),
                rack_id="",
            ),
            FetchResponse,
        )
        assert answer.error_code == ErrorCode.NONE
        [partition] = answer.responses[0].partitions
        if not partition.error_code:
            self.watermark = partition.high_watermark
            for _, batch in read_batches(memoryview(bytes_of(partition.records))):
                self.replay.see(batch)
                self.last_epoch = batch.leader_epoch
        return partition


def run(
    work: Callable[[ScriptedController], Coroutine[Any, Any, None]], **fields: Any
) -> ScriptedController:
    """Run something with a controller, on virtual time."""
    with virtual_runtime() as outside:
        controller = ScriptedController(outside, **fields)

        async def main(_: Outside = outside) -> None:
            controller.start()
            await work(controller)
            await controller.close()

        outside.run(main())
    return controller


def test_a_broker_registers_and_serves() -> None:
    """Fenced at first; its heartbeat unfences it once it has seen its own registration."""

    async def work(controller: ScriptedController) -> None:
        broker = Observer(controller, 1)
        assert await broker.register() is ErrorCode.NONE
        assert fenced(controller) == {1}
        early = await broker.beat(current_metadata_offset=broker.epoch - 1)
        assert (early.is_caught_up, early.is_fenced) == (False, True)
        answer = await broker.beat()
        assert (answer.is_caught_up, answer.is_fenced) == (True, False)
        assert fenced(controller) == set()
        assert broker.epoch == controller.image.brokers[1].broker_epoch

    run(work)


def test_an_observer_reads_what_the_controller_knows() -> None:
    """The batches of the log are real ones: replayed, they are the controller's state."""

    async def work(controller: ScriptedController) -> None:
        brokers = [Observer(controller, each) for each in (1, 2, 3)]
        for broker in brokers:
            await broker.serve()
        controller.add_topic("t", partitions=6, replication_factor=3)
        await brokers[0].fetch()
        assert brokers[0].replay.image == controller.image
        assert brokers[0].watermark == controller.log.end_offset

    run(work)


def test_a_fetch_waits_for_a_record_and_for_a_commit() -> None:
    """It is answered when a record comes, when the watermark moves, and after its time."""

    async def work(controller: ScriptedController) -> None:
        broker, loop = Observer(controller, 1), controller.outside.loop
        await broker.fetch()
        start_s = loop.time()
        assert not (await broker.fetch(max_wait_ms=500)).records
        assert loop.time() - start_s == pytest.approx(0.5)
        controller.hold_commits()
        waiting = asyncio.ensure_future(broker.fetch(max_wait_ms=500))
        await controller.outside.pass_time(0.1)
        other = Observer(controller, 2)
        registered = asyncio.ensure_future(other.register())
        assert (await waiting).records
        assert broker.watermark < broker.replay.next_offset
        waiting = asyncio.ensure_future(broker.fetch(max_wait_ms=500))
        await controller.outside.pass_time(0.1)
        # What is not committed is not answered.
        assert not registered.done()
        controller.release_commits()
        assert await registered is ErrorCode.NONE
        await waiting
        assert broker.watermark == broker.replay.next_offset

    run(work)


def test_a_silent_broker_is_fenced_and_its_partitions_get_other_leaders() -> None:
    """After the session's time, in the log, for all others to see."""

    async def work(controller: ScriptedController) -> None:
        first, second = Observer(controller, 1), Observer(controller, 2)
        await first.serve()
        await second.serve()
        controller.add_topic("t", assignments=[[1, 2]])
        place = TopicPartition("t", 0)
        assert controller.partition(place).leader == 1
        for _ in range(6):
            await controller.outside.pass_time(2)
            await second.beat()
        state = controller.partition(place)
        assert (state.leader, state.isr, state.leader_epoch) == (2, (2,), 1)
        assert controller.image.brokers[1].fenced
        # Its own session goes on as soon as it is heard of.
        assert not (await first.beat()).is_fenced

    run(work)


def test_a_leader_alters_its_isr() -> None:
    """A replica that has caught up joins; a stale partition epoch is refused."""

    async def work(controller: ScriptedController) -> None:
        first, second = Observer(controller, 1), Observer(controller, 2)
        await first.serve()
        await second.serve()
        topic = controller.add_topic("t", assignments=[[1, 2]])

        async def alter(*isr: int, epoch: int) -> Any:
            answer = await first.peer.ask(
                ApiKey.ALTER_PARTITION,
                AlterPartitionRequest(
                    broker_id=1,
                    broker_epoch=first.epoch,
                    topics=(
                        TopicData(
                            topic_id=topic.topic_id,
                            partitions=(
                                PartitionData(
                                    partition_index=0,
                                    leader_epoch=0,
                                    new_isr_with_epochs=tuple(
                                        BrokerState(broker_id=each) for each in isr
                                    ),
                                    leader_recovery_state=0,
                                    partition_epoch=epoch,
                                ),
                            ),
                        ),
                    ),
                ),
                AlterPartitionResponse,
            )
            return answer.topics[0].partitions[0]

        shrunk = await alter(1, epoch=0)
        assert (shrunk.error_code, shrunk.isr, shrunk.partition_epoch) == (0, (1,), 1)
        stale = await alter(1, 2, epoch=0)
        assert stale.error_code == ErrorCode.INVALID_UPDATE_VERSION
        grown = await alter(1, 2, epoch=1)
        assert (grown.error_code, grown.isr, grown.partition_epoch) == (0, (1, 2), 2)

    run(work)


def test_blocks_of_producer_ids_do_not_overlap() -> None:
    """Each broker gets a thousand; an epoch that is over gets none."""

    async def work(controller: ScriptedController) -> None:
        broker = Observer(controller, 1)
        await broker.serve()

        async def allocate(epoch: int) -> AllocateProducerIdsResponse:
            return await broker.peer.ask(
                ApiKey.ALLOCATE_PRODUCER_IDS,
                AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch),
                AllocateProducerIdsResponse,
            )

        assert (await allocate(broker.epoch)).producer_id_start == 0
        assert (await allocate(broker.epoch)).producer_id_start == 1000
        stale = await allocate(broker.epoch + 1)
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH

    run(work)


def envelope(name: str) -> EnvelopeRequest:
    """A forwarded CreateTopics."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    frame = encode_request(
        APIS[ApiKey.CREATE_TOPICS],
        CreateTopicsRequest(topics=(topic,)),
        version=7,
        correlation_id=5,
        client_id="client",
    )
    return EnvelopeRequest(
        request_data=frame[SIZE_BYTES:],
        request_principal=b"principal",
        client_host_address=b"\x7f\0\0\1",
    )


def test_a_forwarded_request_is_answered_in_its_envelope() -> None:
    """With the header of the inner answer; the principal is there for the test to see."""

    async def work(controller: ScriptedController) -> None:
        broker = Observer(controller, 1)
        await broker.serve()
        answer = await broker.peer.ask(ApiKey.ENVELOPE, envelope("t"), EnvelopeResponse)
        assert answer.error_code == ErrorCode.NONE
        assert answer.response_data is not None
        inner = decode_response(APIS[ApiKey.CREATE_TOPICS], 7, memoryview(answer.response_data))
        assert isinstance(inner, CreateTopicsResponse)
        assert inner.topics[0].error_code == ErrorCode.NONE
        assert "t" in controller.image.topic_ids
        assert controller.principals == [b"principal"]

    run(work)


def test_a_node_that_does_not_lead_names_the_leader() -> None:
    """Its fetches get the leader and its address, and changes NOT_CONTROLLER."""

    async def work(controller: ScriptedController) -> None:
        broker = Observer(controller, 1)
        old, new = controller.nodes
        controller.move(new)
        assert await broker.register() is ErrorCode.NOT_CONTROLLER
        stale = await broker.fetch()
        assert stale.error_code == ErrorCode.FENCED_LEADER_EPOCH
        leader = stale.current_leader
        assert (leader.leader_id, leader.leader_epoch) == (new, 2)
        assert old != new
        answer = await broker.peer.ask(ApiKey.ENVELOPE, envelope("t"), EnvelopeResponse)
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        broker.connect()
        broker.leader_epoch = 2
        assert not (await broker.fetch()).error_code

    run(work, nodes=2)


def test_a_tail_that_the_next_leader_lacks_diverges() -> None:
    """An observer that has read it is told where its log is the same."""

    async def work(controller: ScriptedController) -> None:
        broker = Observer(controller, 1)
        await broker.serve()
        await broker.fetch()
        committed = controller.log.watermark
        controller.hold_commits()
        controller.add_topic("lost", replication_factor=1)
        await broker.fetch()
        assert "lost" in broker.replay.image.topic_ids
        controller.restart(loses_uncommitted=True)
        assert "lost" not in controller.image.topic_ids
        broker.connect()
        broker.leader_epoch = controller.epoch
        diverging = (await broker.fetch()).diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (1, committed)

    run(work)


def test_a_new_observer_gets_a_snapshot() -> None:
    """The Fetch names it, and FetchSnapshot gives its bytes from any position."""

    async def work(controller: ScriptedController) -> None:
        broker = Observer(controller, 1)
        await broker.serve()
        key = controller.snapshot()
        controller.add_topic("later", replication_factor=1)
        found = await Observer(controller, 2).fetch()
        assert not found.records
        assert (found.snapshot_id.end_offset, found.snapshot_id.epoch) == key
        data, size = b"", 1
        while len(data) < size:
            answer = await broker.fetches.ask(
                ApiKey.FETCH_SNAPSHOT,
                FetchSnapshotRequest(
                    cluster_id=controller.cluster_id,
                    replica_id=2,
                    max_bytes=100,
                    topics=(
                        TopicSnapshot(
                            name="__cluster_metadata",
                            partitions=(
                                PartitionSnapshot(
                                    partition=0,
                                    current_leader_epoch=controller.epoch,
                                    snapshot_id=SnapshotId(
                                        end_offset=key.end_offset, epoch=key.epoch
                                    ),
                                    position=len(data),
                                    replica_directory_id=UUID(int=9),
                                ),
                            ),
                        ),
                    ),
                ),
                FetchSnapshotResponse,
            )
            part = answer.topics[0].partitions[0]
            data, size = data + bytes_of(part.unaligned_records), part.size
        assert read_snapshot(memoryview(data)).image.brokers == controller.image.brokers
        # From the end of the snapshot on, records are fetched.
        other = Observer(controller, 2)
        other.replay = MetadataReplay(
            read_snapshot(memoryview(data)).image, next_offset=key.end_offset, epoch=key.epoch
        )
        other.last_epoch = key.epoch
        await other.fetch()
        assert other.replay.image == controller.image

    run(work)


def test_another_incarnation_waits_for_the_session_of_the_last() -> None:
    """A broker that crashed registers again once its own last session has ended."""

    async def work(controller: ScriptedController) -> None:
        broker = Observer(controller, 1)
        await broker.serve()
        assert await broker.register(2) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await controller.outside.pass_time(11)
        assert await broker.register(2) is ErrorCode.NONE

    run(work)


def test_faults_of_the_script_and_a_broker_that_is_cut_off() -> None:
    """An error that is answered changes nothing; a broker that is cut off hears nothing."""

    async def work(controller: ScriptedController) -> None:
        broker = Observer(controller, 1)
        controller.script.add(
            ApiKey.BROKER_REGISTRATION, FaultKind.ERROR, error=ErrorCode.REQUEST_TIMED_OUT
        )
        assert await broker.register() is ErrorCode.REQUEST_TIMED_OUT
        assert dict(controller.image.brokers) == {}
        await broker.serve()
        controller.cut_off(1)
        lost = asyncio.ensure_future(broker.beat())
        await controller.outside.pass_time(60)
        assert not lost.done()
        assert controller.image.brokers[1].fenced
        lost.cancel()
        controller.reconnect()
        broker.connect()
        assert not (await broker.beat()).is_fenced

    run(work)


def test_a_test_sees_every_record() -> None:
    """In order, with its offset, when it is appended."""
    seen: list[tuple[int, str]] = []

    async def work(controller: ScriptedController) -> None:
        controller.on_record.append(lambda at, each: seen.append((at, type(each).__name__)))
        await Observer(controller, 1).serve()

    controller = run(work)
    names = [name for _, name in seen]
    assert names == ["RegisterBrokerRecord", "BrokerRegistrationChangeRecord"]
    assert [at for at, _ in seen] == [at for at, _ in controller.records[-2:]]


def test_the_quorum_is_described() -> None:
    """The nodes have the whole log, an observer what it has fetched; another one knows nothing."""

    async def work(controller: ScriptedController) -> None:
        broker = Observer(controller, 1)
        await broker.serve()
        await broker.fetch()
        await broker.fetch()
        topic = DescribedTopic(topic_name="__cluster_metadata", partitions=())
        request = DescribeQuorumRequest(topics=(topic,))
        answer = await broker.peer.ask(ApiKey.DESCRIBE_QUORUM, request, DescribeQuorumResponse)
        [partition] = answer.topics[0].partitions
        end = controller.log.end_offset
        assert (partition.leader_id, partition.leader_epoch) == (100, 1)
        assert partition.high_watermark == end
        voters = {each.replica_id: each.log_end_offset for each in partition.current_voters}
        assert voters == {100: end, 101: end}
        assert [(each.replica_id, each.log_end_offset) for each in partition.observers] == [
            (1, end)
        ]
        assert [each.node_id for each in answer.nodes] == [100, 101]

    run(work, nodes=2)


def test_the_apis_are_those_of_a_controller() -> None:
    """Fetch and the requests of brokers, and none of a broker's own."""

    async def work(controller: ScriptedController) -> None:
        answer = await Observer(controller, 1).peer.ask(
            ApiKey.API_VERSIONS,
            ApiVersionsRequest(client_software_name="t", client_software_version="1"),
            ApiVersionsResponse,
        )
        keys = {each.api_key for each in answer.api_keys}
        assert {ApiKey.FETCH, ApiKey.BROKER_HEARTBEAT, ApiKey.ENVELOPE} <= keys
        assert ApiKey.PRODUCE not in keys
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        assert levels == controller.image.features

    run(work)
