"""A controller of our own, with brokers of the cluster role: life, requests, faults."""

import asyncio
import tracemalloc

import pytest

from tailrace.broker.config import broker_config
from tailrace.broker.controller.start import start_controller
from tailrace.cluster.metadata.features import metadata_level
from tailrace.errors import ConfigError, DirectoryError
from tailrace.model import ANONYMOUS, METADATA_TOPIC
from tailrace.offline.formatting import Formatted, Wanted, format_directories, levels_of
from tailrace.offline.metadata_state import END, metadata_state
from tailrace.protocol.apis import APIS, BETWEEN_NODES, ApiKey
from tailrace.protocol.envelopes import principal_bytes
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import SIZE_BYTES, encode_request
from tailrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from tailrace.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.protocol.metadata_records import VotersRecordVoter
from tailrace.storage.directories import MetaProperties, id_text, write_identity
from tailrace.testing import DiskFault, MemoryFiles, Outside, Peer
from tests.unit.broker.brokers import batch, produce, send_all
from tests.unit.broker.controller.own_clusters import CONTROLLER, PORT, T_0, OwnCluster, own_cluster

LOG = "data/__cluster_metadata-0"
PRINCIPAL = principal_bytes(ANONYMOUS)
QUORUM = DescribeQuorumRequest(
    topics=(TopicData(topic_name=METADATA_TOPIC, partitions=(PartitionData(partition_index=0),)),)
)


def creation(name: str) -> CreateTopicsRequest:
    """A request for a topic with one partition on one broker."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=(topic,))


def envelope(
    key: ApiKey,
    request: Message,
    *,
    principal: bytes | None = PRINCIPAL,
    address: bytes = bytes(4),
    version: int | None = None,
) -> EnvelopeRequest:
    """A request as a broker forwards it."""
    api = APIS.get(key) or BETWEEN_NODES[key]
    frame = encode_request(
        api,
        request,
        version=api.last_version if version is None else version,
        correlation_id=1,
        client_id=None,
    )
    return EnvelopeRequest(
        request_data=frame[SIZE_BYTES:], request_principal=principal, client_host_address=address
    )


async def forwarded(cluster: OwnCluster, request: EnvelopeRequest) -> EnvelopeResponse:
    return await cluster.ask().ask(ApiKey.ENVELOPE, request, EnvelopeResponse)


# -- life -------------------------------------------------------------------------------------


async def test_brokers_register_lead_and_follow(outside: Outside) -> None:
    """Three brokers are unfenced, and a record with acks=all is on all of them."""
    async with own_cluster(outside, 1, 2, 3) as cluster:
        await cluster.add_topic()
        assert cluster.state().leader == 1
        answer = await produce(cluster.peer(1), "t", batch(b"one"))
        assert answer.error_code == 0
        assert [cluster.end(each, T_0) for each in (1, 2, 3)] == [1, 1, 1]


async def test_a_broker_that_stops_hands_over(outside: Outside) -> None:
    """Another leads before it is gone, and it is fenced."""
    async with own_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await cluster.stop(1)
        assert (cluster.state().leader, cluster.state().isr) == (2, (2,))
        assert cluster.image.brokers[1].fenced


async def test_a_broker_that_dies_is_fenced_after_its_session(outside: Outside) -> None:
    """Another one leads then; and it is in sync again when it is back."""
    settings = {"broker.session.timeout.ms": "3000"}
    async with own_cluster(outside, 1, 2, 3, settings=settings) as cluster:
        await cluster.add_topic()
        start_s = outside.loop.time()
        cluster.kill(1)
        await cluster.until(lambda image: image.brokers[1].fenced)
        assert outside.loop.time() - start_s < 3.5
        assert cluster.state().leader == 2
        assert (await produce(cluster.peer(2), "t", batch(b"one"))).error_code == 0
        await cluster.start(1)
        await cluster.wait(lambda: set(cluster.state().isr) == {1, 2, 3})
        assert cluster.end(1) == 1


async def test_all_that_was_decided_is_there_after_a_kill(outside: Outside) -> None:
    """The next controller has the same state in a later epoch, and brokers serve on meanwhile."""
    async with own_cluster(outside, 1, 2, 3) as cluster:
        await cluster.add_topic()
        before, epoch = cluster.image, cluster.controller.node.epoch
        cluster.kill_controller()
        assert (await produce(cluster.peer(1), "t", batch(b"one"))).error_code == 0
        await cluster.start_controller()
        assert cluster.controller.node.epoch > epoch
        assert cluster.image.topics == before.topics
        assert cluster.image.brokers == before.brokers
        await cluster.add_topic("u", replicas=(3, 1))
        assert cluster.image.topics.keys() > before.topics.keys()


def voter(cluster: OwnCluster) -> VotersRecordVoter:
    """The only voter that the log of the controller names."""
    files = cluster.disks[CONTROLLER]
    voters = metadata_state(files, LOG, END, on_skip=lambda _: None).voters
    assert voters is not None
    [found] = voters.voters
    return found


async def test_the_log_names_the_address_of_the_controller(outside: Outside) -> None:
    """With the name of its listener; another start at another address writes that, once.

    So that a controller of Kafka's which joins later finds it (KIP-853), and so do tools.
    """
    cluster = OwnCluster(outside)
    await cluster.start_controller()
    await cluster.controller.stop()
    first = voter(cluster)
    assert [(each.name, each.host, each.port) for each in first.endpoints] == [
        ("CONTROLLER", "memory", PORT)
    ]
    moved = {"controller.listener.names": "CTRL", "listeners": f"CTRL://memory:{PORT + 1}"}
    ends = []
    for _ in range(2):
        await cluster.start_controller(moved)
        ends.append(cluster.controller.node.watermark)
        peer = Peer(outside.network.open(PORT + 1))
        answer = await peer.ask(ApiKey.DESCRIBE_QUORUM, QUORUM, DescribeQuorumResponse)
        [listener] = answer.nodes[0].listeners
        assert (listener.name, listener.port) == ("CTRL", PORT + 1)
        await cluster.controller.stop()
        found = voter(cluster)
        assert [(each.name, each.port) for each in found.endpoints] == [("CTRL", PORT + 1)]
        assert found.voter_directory_id == first.voter_directory_id
    # Leader and nothing else.
    assert ends[1] == ends[0] + 1


@pytest.mark.parametrize("release", ["3.3", "4.3"])
async def test_a_formatted_directory_names_its_voter_at_the_start(
    outside: Outside, release: str
) -> None:
    """With the id of the directory, at any level of metadata; formatting again changes nothing.

    So a format needs no `--standalone` here. Before a start nobody is named, as after a format of
    Kafka's with `--no-initial-controllers`.
    """
    cluster = OwnCluster(outside)
    levels = levels_of(metadata_level(release), {})

    def formatted() -> Formatted:
        wanted = Wanted(
            cluster_id="4L6g3nShT-eMCtK--X86sw", node_id=CONTROLLER, levels=levels,
            ignores_formatted=True,
        )  # fmt: skip
        runtime = outside.runtime
        [found] = format_directories(
            runtime.files, ["data"], wanted, clock=runtime.clock, chance=runtime.chance
        )
        return found

    first = formatted()
    assert not outside.files.exists(LOG)
    await cluster.start_controller()
    assert cluster.image.features == levels
    await cluster.controller.stop()
    assert id_text(voter(cluster).voter_directory_id) == first.identity.directory_id
    again = formatted()
    assert (again.is_new, again.identity) == (False, first.identity)
    await cluster.start_controller()
    assert cluster.controller.cluster_id == first.identity.cluster_id
    await cluster.controller.stop()
    assert id_text(voter(cluster).voter_directory_id) == first.identity.directory_id


async def test_a_controller_on_a_new_disk_is_the_voter(outside: Outside) -> None:
    """With a broker's copy of the log; Kafka's would not vote in the place of another directory."""
    async with own_cluster(outside, 1) as cluster:
        before = voter(cluster).voter_directory_id
        cluster_id = cluster.controller.cluster_id
        await cluster.stop(1)
        await cluster.controller.stop()
        files = MemoryFiles()
        identity = MetaProperties(
            cluster_id=cluster_id, node_id=CONTROLLER, directory_id="M0EqCp7dTv2yJ1Nk3ZfZ4Q"
        )
        files.make_directory("data")
        write_identity(files, "data", identity)
        files.make_directory(LOG)
        for path in (f"{LOG}/{name}" for name in cluster.disks[1].list(LOG)):
            files.open(path, create=True).close()
            files.overwrite(path, cluster.disks[1].content(path))
        cluster.disks[CONTROLLER] = files
        await cluster.start_controller()
        assert voter(cluster).voter_directory_id != before
        await cluster.start(1)


async def test_an_orderly_stop_leaves_its_mark(outside: Outside) -> None:
    """The next start takes it away, and the id of the cluster stays."""
    cluster = OwnCluster(outside)
    await cluster.start_controller()
    first = cluster.controller.cluster_id
    await cluster.controller.stop()
    assert outside.files.exists("data/.kafka_cleanshutdown")
    await cluster.start_controller()
    assert not outside.files.exists("data/.kafka_cleanshutdown")
    assert cluster.controller.cluster_id == first
    await cluster.controller.stop()


async def test_a_new_broker_gets_a_snapshot(outside: Outside) -> None:
    """The batches before it are gone, and it has each topic all the same."""
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "3000",
        "metadata.log.segment.ms": "100",
    }
    async with own_cluster(outside, 1, settings=settings) as cluster:
        for number in range(30):
            await cluster.add_topic(f"t{number}", replicas=(1,))
            await outside.pass_time(1)
        assert cluster.controller.node.statistics().watermark > 60
        names = [
            name
            for name in outside.files.list("data/__cluster_metadata-0")
            if name.endswith(".checkpoint") and not name.startswith("0" * 20)
        ]
        assert names
        await cluster.start(2)
        assert len(cluster.brokers[2].cluster.image.topics) == 30
        await cluster.add_topic("more", replicas=(2, 1))


async def test_old_snapshots_are_deleted_after_a_moment_without_threads(outside: Outside) -> None:
    """A deletion that the system refuses does not end all later ones."""
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "3000",
    }

    def retired() -> list[str]:
        names = outside.files.list("data/__cluster_metadata-0")
        return [name for name in names if name.endswith(".checkpoint.deleted")]

    start = asyncio.get_running_loop().time()
    async with own_cluster(outside, 1, settings=settings) as cluster:
        for number in range(30):
            await cluster.add_topic(f"t{number}", replicas=(1,))
            await outside.pass_time(1)
        assert retired()
        # Until it looks for the first time, which is a minute after its start.
        await outside.pass_time(59 - (asyncio.get_running_loop().time() - start))
        outside.threads.refusal = RuntimeError("can't start new thread")
        await outside.pass_time(2)
        outside.threads.refusal = None
        await outside.pass_time(121)
        assert not retired()
        await cluster.add_topic("more", replicas=(1,))


async def test_decisions_do_not_wait_for_a_snapshot(outside: Outside) -> None:
    """Topics are created while the device hangs on it, and it is there when that is over."""
    async with own_cluster(
        outside, 1, settings={"metadata.log.max.record.bytes.between.snapshots": "2000"}
    ) as cluster:
        folder = "data/__cluster_metadata-0"
        before = [name for name in outside.files.list(folder) if name.endswith(".checkpoint")]
        hanging = outside.hang(".checkpoint")
        for number in range(30):
            await cluster.add_topic(f"t{number}", replicas=(1,))
            await outside.pass_time(1)
        assert len(hanging.waiting) == 1
        assert cluster.controller.node.watermark == cluster.controller.node.statistics().end_offset
        hanging.release()
        await outside.pass_time(2)
        after = [name for name in outside.files.list(folder) if name.endswith(".checkpoint")]
        assert len(after) > len(before)


async def test_a_device_that_fails_ends_the_controller(outside: Outside) -> None:
    """A request that waits is answered NOT_CONTROLLER, and brokers serve on without it."""
    async with own_cluster(outside, 1) as cluster:
        await cluster.add_topic(replicas=(1,))
        watermark = cluster.controller.node.watermark
        outside.files.faults.append(DiskFault(operation="sync", path_part="__cluster_metadata-0"))
        answer = await forwarded(cluster, envelope(ApiKey.CREATE_TOPICS, creation("u")))
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        await cluster.controller.failed.wait()
        assert "device of the metadata log has failed" in (cluster.controller.end_reason or "")
        assert cluster.controller.node.watermark == watermark
        assert (await produce(cluster.peer(1), "t", batch(b"one"))).error_code == 0
        cluster.kill(1)
        outside.files.faults.clear()


async def test_a_group_that_no_thread_can_write_ends_the_controller(outside: Outside) -> None:
    """Its answer is no success, and nothing is written after it: the next start misses nothing."""
    async with own_cluster(outside, 1) as cluster:
        await cluster.add_topic(replicas=(1,))
        outside.threads.refusal = RuntimeError("can't start new thread")
        asked = forwarded(cluster, envelope(ApiKey.CREATE_TOPICS, creation("u")))
        first = asyncio.ensure_future(asked)
        await outside.pass_time(0.01)
        outside.threads.refusal = None
        answer = await forwarded(cluster, envelope(ApiKey.CREATE_TOPICS, creation("v")))
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        assert (await first).error_code == ErrorCode.NOT_CONTROLLER
        await cluster.controller.failed.wait()
        assert "can't start new thread" in (cluster.controller.end_reason or "")
        cluster.kill_controller()
        await cluster.start_controller()
        assert list(cluster.image.topic_ids) == ["t"]


async def test_many_decisions_have_one_flush(outside: Outside) -> None:
    """While a flush takes its time, all that is decided meanwhile waits for the next one."""
    async with own_cluster(outside, 1) as cluster:
        outside.threads.seconds_per_run = 0.05
        peers = [cluster.ask() for _ in range(40)]
        before = sum("sync" in each[0] for each in outside.files.operations)
        for number, peer in enumerate(peers):
            peer.send(ApiKey.CREATE_TOPICS, creation(f"t{number}"))
        for peer in peers:
            assert await peer.read_frame()
        outside.threads.seconds_per_run = 0
        syncs = sum("sync" in each[0] for each in outside.files.operations) - before
        assert len(cluster.image.topics) == 40
        assert syncs < 10


# -- requests ---------------------------------------------------------------------------------


async def test_clients_describe_the_quorum_through_a_broker(outside: Outside) -> None:
    """The controller is the one voter, and the brokers are observers that have caught up."""
    async with own_cluster(outside, 1, 2) as cluster:
        await outside.pass_time(2)
        peer = cluster.peer(1)
        answer = await peer.ask(ApiKey.DESCRIBE_QUORUM, QUORUM, DescribeQuorumResponse)
        [partition] = answer.topics[0].partitions
        assert partition.leader_id == CONTROLLER
        assert [each.replica_id for each in partition.current_voters] == [CONTROLLER]
        assert {each.replica_id for each in partition.observers} == {1, 2}
        assert all(each.log_end_offset == partition.high_watermark for each in partition.observers)
        [node] = answer.nodes
        assert [(each.host, each.port) for each in node.listeners] == [("memory", PORT)]


async def test_who_asks_for_controllers_gets_this_one(outside: Outside) -> None:
    """A client that asks for brokers at its port is refused, as by Kafka (KIP-919)."""
    async with own_cluster(outside) as cluster:
        wanted = DescribeClusterRequest(endpoint_type=2)
        answer = await cluster.ask().ask(ApiKey.DESCRIBE_CLUSTER, wanted, DescribeClusterResponse)
        assert answer.cluster_id == cluster.controller.cluster_id
        assert [(each.broker_id, each.port) for each in answer.brokers] == [(CONTROLLER, PORT)]
        answer = await cluster.ask().ask(
            ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), DescribeClusterResponse
        )
        assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


async def test_its_versions_are_those_of_a_controller(outside: Outside) -> None:
    """Produce is not among them, and what brokers ask is; the levels of the cluster are there."""
    async with own_cluster(outside) as cluster:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        answer = await cluster.ask().ask(ApiKey.API_VERSIONS, request, ApiVersionsResponse)
        keys = {each.api_key for each in answer.api_keys}
        assert {ApiKey.BROKER_REGISTRATION, ApiKey.ENVELOPE, ApiKey.FETCH} < keys
        assert not {ApiKey.PRODUCE, ApiKey.METADATA} & keys
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        assert levels["metadata.version"] == 30
        assert levels["kraft.version"] == 1


async def test_a_request_of_brokers_ends_the_connection(outside: Outside) -> None:
    """A client that takes it for a broker learns it at once."""
    async with own_cluster(outside) as cluster:
        peer = cluster.ask()
        peer.send(ApiKey.METADATA, MetadataRequest(topics=()))
        assert await peer.is_closed()


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (envelope(ApiKey.CREATE_TOPICS, creation("t")), ErrorCode.NONE),
        (
            envelope(ApiKey.CREATE_TOPICS, creation("t"), principal=None),
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ),
        (
            envelope(ApiKey.CREATE_TOPICS, creation("t"), principal=PRINCIPAL[:-3]),
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ),
        (
            envelope(ApiKey.CREATE_TOPICS, creation("t"), principal=PRINCIPAL + b"\0"),
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ),
        (
            envelope(ApiKey.CREATE_TOPICS, creation("t"), address=bytes(5)),
            ErrorCode.INVALID_REQUEST,
        ),
        # Only what a client may ask is forwarded.
        (
            envelope(ApiKey.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest()),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            envelope(ApiKey.ENVELOPE, envelope(ApiKey.CREATE_TOPICS, creation("t"))),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            EnvelopeRequest(
                request_data=b"\0\x13\0\x63" + bytes(20),
                request_principal=PRINCIPAL,
                client_host_address=bytes(4),
            ),
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        (
            EnvelopeRequest(
                request_data=b"\0\x13\0\x07\xff",
                request_principal=PRINCIPAL,
                client_host_address=bytes(4),
            ),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_an_envelope_is_checked(
    outside: Outside, request_: EnvelopeRequest, code: ErrorCode
) -> None:
    """Principal, address and request must be valid; the codes are Kafka's."""
    async with own_cluster(outside, 1) as cluster:
        assert (await forwarded(cluster, request_)).error_code == code
        assert len(cluster.image.topics) == (1 if code is ErrorCode.NONE else 0)


async def test_brokers_must_be_registered(outside: Outside) -> None:
    """A request in the name of another registration is STALE_BROKER_EPOCH, and changes nothing."""
    async with own_cluster(outside, 1) as cluster:
        before = cluster.controller.node.watermark
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=999)
        answer = await cluster.ask().ask(
            ApiKey.ALLOCATE_PRODUCER_IDS, request, AllocateProducerIdsResponse
        )
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert cluster.controller.node.watermark == before


async def test_a_topic_of_too_many_bytes_is_refused(outside: Outside) -> None:
    """A request that would be more records than a batch may have is refused as a whole."""
    async with own_cluster(outside, 1) as cluster:
        topic = CreatableTopic(name="t", num_partitions=10_001, replication_factor=1)
        answer = await cluster.ask().ask(
            ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse
        )
        assert answer.topics[0].error_code != ErrorCode.NONE
        assert not cluster.image.topics


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x7f\xff\xff\xff" + bytes(100),
        b"\xff\xff\xff\xff" + bytes(100),
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x10" + b"\xff" * 16,
        b"\0\0\0\x0c\0\x3f\0\x02\0\0\0\1\xff\xff\0\xff",
        b"\0\x60\0\0" + b"\0\x3a\0\0\0\0\0\1\xff\xff\0" + b"\xff" * 5_000_000,
    ],
)
async def test_any_bytes_end_in_bounded_memory(outside: Outside, garbage: bytes) -> None:
    """The connection ends, the log says why, and brokers notice nothing."""
    async with own_cluster(outside, 1) as cluster:
        await cluster.add_topic(replicas=(1,))
        tracemalloc.start()
        try:
            peer = cluster.ask()
            await send_all(outside, peer, garbage)
            peer.socket.close()
            await outside.pass_time(1)
            assert tracemalloc.get_traced_memory()[1] < 40 << 20
        finally:
            tracemalloc.stop()
        await cluster.add_topic("u", replicas=(1,))
        assert cluster.controller.end_reason is None


# -- refused ----------------------------------------------------------------------------------

OWN = {
    "process.roles": "controller",
    "node.id": "100",
    "controller.listener.names": "CONTROLLER",
    "listeners": f"CONTROLLER://memory:{PORT}",
    "log.dirs": "data",
}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"controller.quorum.voters": "100@a:1,101@b:1"}, "of several controllers is Apache"),
        ({"controller.quorum.voters": "101@b:1"}, "is not node 100 alone"),
        ({"controller.quorum.bootstrap.servers": "a:1,b:2"}, "are several controllers"),
        ({"listeners": "CONTROLLER://:1,PLAINTEXT://:2"}, "PLAINTEXT://:2 is not"),
        ({"listeners": "CONTROLLER://:1,C://:2", "controller.listener.names": "CONTROLLER,C"},
         "a controller has one listener"),
        ({"listener.security.protocol.map": "CONTROLLER:SASL_SSL"}, "GSSAPI needs Krb5LoginModule"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(settings: dict[str, str], reason: str) -> None:
    """A quorum of several is Apache Kafka's, and the sentence says so."""
    with pytest.raises(ConfigError, match=reason):
        broker_config(OWN | settings)


async def test_the_log_of_another_node_is_refused(outside: Outside) -> None:
    """A quorum is not taken over by starting a node with another id on its directory."""
    cluster = OwnCluster(outside)
    await cluster.start_controller()
    await cluster.controller.stop()
    with pytest.raises(DirectoryError, match="belongs to node 100"):
        await start_controller(broker_config(OWN | {"node.id": "101"}), outside.runtime)


async def test_a_log_that_has_lost_changes_is_refused(outside: Outside) -> None:
    """Brokers may have applied them; the sentence says where a better copy is."""
    async with own_cluster(outside, 1) as cluster:
        await cluster.add_topic(replicas=(1,))
        cluster.kill_controller()
        path = "data/__cluster_metadata-0/00000000000000000000.log"
        file = outside.files.open(path)
        file.write(file.size() // 2, b"\xff" * 8)
        file.close()
        with pytest.raises(DirectoryError, match="replace the folder by that of a broker"):
            await cluster.start_controller()
        for name in outside.files.list("data/__cluster_metadata-0"):
            outside.files.remove(f"data/__cluster_metadata-0/{name}")
        # What a broker has followed is a copy to continue with.
        disk = cluster.disks[1]
        for name in disk.list("data/__cluster_metadata-0"):
            copy = outside.files.open(f"data/__cluster_metadata-0/{name}", create=True)
            source = disk.open(f"data/__cluster_metadata-0/{name}")
            copy.write(0, source.read(0, source.size()))
            copy.sync()
            copy.close()
        await cluster.start_controller()
        assert cluster.image.topic("t") is not None
        await cluster.add_topic("u", replicas=(1,))
