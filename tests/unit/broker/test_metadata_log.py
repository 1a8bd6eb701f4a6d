"""Kafka's metadata log among the partitions is the cluster's state, and no topic of clients."""

import errno
import json
from dataclasses import replace

import pytest

from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.cluster.bootstrap import FILE as FIRST_RECORDS
from tailrace.cluster.bootstrap import bootstrap_file, new_image
from tailrace.cluster.image import TOPIC_RESOURCE
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.proof import prove_metadata
from tailrace.cluster.scram_arguments import parse_scram_users
from tailrace.errors import DirectoryError
from tailrace.model import METADATA_TOPIC, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ConfigSource, ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.protocol.metadata_records import ConfigRecord, FeatureLevelRecord
from tailrace.storage import names
from tailrace.storage.checkpoints import write_whole
from tailrace.testing import DiskFault, MemoryFiles, Outside, Peer, virtual_runtime
from tests.kraft import METADATA_FOLDER, METADATA_LOG, ROOT, STRANGERS, kraft_directory, not_ours
from tests.unit.broker.brokers import (
    batch,
    connect,
    create_topic,
    fetch,
    fetch_request,
    produce,
    running,
)
from tests.unit.broker.test_configs import alter_all, by_name, describe, resource, set_to
from tests.unit.broker.test_delete_records import delete_records
from tests.unit.broker.test_scram_users import SHA_256, described
from tests.unit.cluster.metadata_logs import Node

UNIQUE = "0f" * 16
"""Part of the name that a broker gives to a folder it deletes."""
EAGER = {
    "log.retention.ms": "1",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "0",
    "log.cleanup.policy": "compact,delete",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.roll.ms": "1",
    "log.segment.delete.delay.ms": "0",
}


async def delete_topic(peer: Peer, name: str) -> ErrorCode:
    """The broker's answer to a DeleteTopics request for one topic."""
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=name),))
    response = await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
    return ErrorCode(response.responses[0].error_code)


async def topics_of(peer: Peer, *wanted: str) -> dict[str | None, ErrorCode]:
    """The topics that Metadata lists, all or those wanted, with their errors."""
    asked = tuple(MetadataRequestTopic(name=name) for name in wanted) or None
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
    response = await peer.ask(ApiKey.METADATA, request, MetadataResponse)
    return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_broker_at_work_leaves_the_files_of_others(*, is_killed: bool) -> None:
    """Start, retention, cleaner, topics that come and go and a stop change none of their bytes."""
    files = kraft_directory()
    before = not_ours(files)
    assert before.keys() >= set(STRANGERS)

    async def work(outside: Outside) -> None:
        async with running(outside, EAGER) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "ours")
            for topic in ("ours", "events"):
                assert (await produce(peer, topic, batch(b"v"))).error_code == ErrorCode.NONE
            await outside.pass_time(300)
            assert await delete_topic(peer, "ours") == ErrorCode.NONE
            assert await delete_topic(peer, "other") == ErrorCode.NONE
            await outside.pass_time(300)

    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(work(outside))
    if is_killed:
        files.remove(f"{ROOT}/{names.CLEAN_SHUTDOWN}")
        with virtual_runtime(files=files) as outside:
            outside.loop.run_until_complete(work_again(outside))
    assert not_ours(files) == before


async def work_again(outside: Outside) -> None:
    """A start that recovers, and a stop."""
    async with running(outside, EAGER):
        await outside.pass_time(300)


def test_the_topics_of_kafka_are_there() -> None:
    """With their ids, settings and leader epochs, which go on; and what is not acted on stays."""
    files = kraft_directory()
    before = image_in(files)

    async def look(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            assert set(await topics_of(peer)) == {"__consumer_offsets", "events", "other"}
            topics = broker.controller.image.topics
            assert {name: topic.topic_id for name, topic in topics.items()} == before.topic_ids
            for name, topic in topics.items():
                assert topic.configs == before.configs_of(TOPIC_RESOURCE, name)
                led = broker.replicas.find(TopicPartition(name, 0)).leader_epoch
                state = before.topics[topic.topic_id].partitions[0]
                assert led == state.leader_epoch + 1

    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(look(outside))
    after = image_in(files)
    assert (after.configs, after.features) == (before.configs, before.features)
    (broker,) = after.brokers.values()
    assert broker.fenced, "after an orderly stop nobody has to wait for its session"
    mark = json.loads(files.content(f"{ROOT}/{names.CLEAN_SHUTDOWN}"))
    assert mark["brokerEpoch"] == broker.broker_epoch > before.brokers[1].broker_epoch
    for topic in after.topics.values():
        for state in topic.partitions.values():
            assert (state.leader, state.isr) == (1, (1,))
            assert not state.eligible_leader_replicas


def test_settings_of_all_brokers_are_the_defaults_of_topics() -> None:
    """One that Kafka's tools have set goes over what the broker is started with."""
    files = kraft_directory()
    node = Node(files, ROOT)
    log = node.open()
    log.append(
        [
            RecordToWrite(
                ConfigRecord(
                    resource_type=4, resource_name=name, name="log.retention.ms", value=value
                ),
                0,
            )
            for name, value in (("", "5000"), ("1", "6000"), ("2", "7000"))
        ]
    )
    log.close()

    async def look(outside: Outside) -> None:
        async with running(outside, {"log.retention.ms": "1000"}) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "ours")
            config = broker.replicas.find(TopicPartition("ours", 0)).log.config
            assert config.retention_ms == 6000
            entry = by_name(await describe(peer, "ours", is_full=True))["retention.ms"]
            assert (entry.value, entry.config_source) == ("6000", ConfigSource.DYNAMIC_BROKER)
            assert [each.value for each in entry.synonyms] == ["6000", "5000", "1000"]

    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(look(outside))


def test_a_stop_right_behind_the_start_fences_what_is_being_registered() -> None:
    """Its mark has the epoch of the registration, so that Kafka takes the stop for orderly."""
    files = kraft_directory()

    async def work(outside: Outside) -> None:
        outside.threads.seconds_per_run = 1
        async with running(outside):
            pass

    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(work(outside))
    (broker,) = image_in(files).brokers.values()
    mark = json.loads(files.content(f"{ROOT}/{names.CLEAN_SHUTDOWN}"))
    assert (mark["brokerEpoch"], broker.fenced) == (broker.broker_epoch, True)


def test_topics_that_a_damaged_log_has_lost_are_adopted() -> None:
    """With their ids and all records; settings that are lost are such that no record goes."""
    files = MemoryFiles()

    async def work(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            for topic in ("one", "two"):
                await create_topic(peer, topic, configs={"retention.ms": "5000"})
                assert (await produce(peer, topic, batch(b"v"))).error_code == ErrorCode.NONE

    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(work(outside))
    ids = image_in(files).topic_ids
    content = bytearray(files.content(METADATA_LOG))
    content[content.index(b"one")] ^= 1
    files.overwrite(METADATA_LOG, bytes(content))

    async def look(outside: Outside) -> None:
        async with running(outside) as broker:
            topics = broker.controller.image.topics
            assert {name: topic.topic_id for name, topic in topics.items()} == ids
            for topic in ids:
                log = broker.replicas.find(TopicPartition(topic, 0)).log
                assert (log.end_offset, log.config.retention_ms) == (1, -1)

    for _ in range(2):
        with virtual_runtime(files=files) as outside:
            outside.loop.run_until_complete(look(outside))
    assert not [each for each in files.list(ROOT) if each.endswith("-stray")]


def test_a_full_disk_does_not_keep_a_broker_from_starting() -> None:
    """After a kill its leaders cannot be saved, and it serves; with room again changes count."""
    files = kraft_directory()
    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(work_again(outside))
    files.remove(f"{ROOT}/{names.CLEAN_SHUTDOWN}")

    async def work(outside: Outside) -> None:
        fault = DiskFault(operation="write", path_part="quorum-state", error=errno.ENOSPC)
        files.faults.append(fault)
        async with running(outside) as broker:
            peer = connect(outside, broker)
            assert (await produce(peer, "events", batch(b"v"))).error_code == ErrorCode.NONE
            refused = (await create_topic(peer, "ours")).error_code
            assert refused == ErrorCode.KAFKA_STORAGE_ERROR
            files.faults.remove(fault)
            assert (await create_topic(peer, "ours")).error_code == ErrorCode.NONE

    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(work(outside))
    assert "ours" in image_in(files).topic_ids


async def test_a_new_directory_is_served_before_its_log_has_a_record(outside: Outside) -> None:
    """Clients are told the features meanwhile, which the log gets with the registration."""
    hanging = outside.hang(f"{METADATA_FOLDER}/quorum-state")
    async with running(outside, {"log.dirs": ROOT}) as broker:
        peer = connect(outside, broker)
        assert await topics_of(peer) == {}
        await outside.pass_time(1)
        assert hanging.waiting
        assert broker.controller.image.features["metadata.version"] > 0
        assert not broker.controller.log.image.features
        hanging.release()
        await outside.pass_time(1)
        assert broker.controller.log.image.features == broker.controller.image.features
    assert image_in(outside.files).metadata_version > 0


async def test_what_a_directory_was_formatted_with_counts_from_the_start_on(
    outside: Outside,
) -> None:
    """Its users can log in, and settings of all brokers are shown, before the log has a record."""
    outside.files.make_directory(ROOT)
    image = replace(new_image(), scram=parse_scram_users(["SCRAM-SHA-256=[name=a,password=b]"]))
    data = bootstrap_file(image, now_ms=0)
    write_whole(outside.files, f"{ROOT}/{FIRST_RECORDS}", data, is_synced=True)
    hanging = outside.hang(f"{METADATA_FOLDER}/quorum-state")
    async with running(outside, {"log.dirs": ROOT}) as broker:
        peer = connect(outside, broker)
        for _ in range(2):
            assert await described(peer, "a") == {"a": (ErrorCode.NONE, [(SHA_256, 4096)])}
            of_all = by_name(await describe(peer, "", kind=ResourceType.BROKER))
            assert of_all["min.insync.replicas"].value == "1"
            await outside.pass_time(1)
            assert hanging.waiting
        hanging.release()
        await outside.pass_time(1)
        assert await described(peer, "a") == {"a": (ErrorCode.NONE, [(SHA_256, 4096)])}
    assert image_in(outside.files).scram == image.scram


def test_a_new_directory_whose_log_had_no_record_is_new_again() -> None:
    """Killed while the first record is written, and started again, it takes topics."""

    async def kill(outside: Outside) -> None:
        outside.hang(f"{METADATA_FOLDER}/quorum-state")
        config = broker_config({"log.dirs": ROOT, "listeners": "memory:0"})
        broker = await start_broker(config, outside.runtime)
        await outside.pass_time(1)
        broker.kill()
        assert not broker.controller.log.end_offset

    async def work(outside: Outside) -> None:
        async with running(outside, {"log.dirs": ROOT}) as broker:
            peer = connect(outside, broker)
            assert (await create_topic(peer, "ours")).error_code == ErrorCode.NONE

    with virtual_runtime() as outside:
        outside.run(kill(outside))
        files = outside.files
    with virtual_runtime(files=files.crash()) as outside:
        outside.run(work(outside))
    image = image_in(outside.files)
    assert image.metadata_version > 0
    assert "ours" in image.topic_ids


async def test_a_new_directory_on_a_full_disk_refuses_topics_until_there_is_room(
    outside: Outside,
) -> None:
    """The broker serves, and the first change that is saved brings the state of a new cluster."""
    fault = DiskFault(operation="write", path_part="quorum-state", error=errno.ENOSPC)
    outside.files.faults.append(fault)
    async with running(outside, {"log.dirs": ROOT}) as broker:
        peer = connect(outside, broker)
        await outside.pass_time(1)
        assert (await create_topic(peer, "ours")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        outside.files.faults.remove(fault)
        assert (await create_topic(peer, "ours")).error_code == ErrorCode.NONE
        assert broker.controller.log.image.metadata_version > 0


def image_in(files: MemoryFiles) -> MetadataImage:
    """The state that the metadata log has."""
    return prove_metadata(files, METADATA_FOLDER, report=pytest.fail).replay.image


def test_clients_cannot_reach_the_metadata_log() -> None:
    """It is not listed, and each request for it gets the error that Kafka answers."""
    files = kraft_directory()

    async def ask(outside: Outside) -> None:
        async with running(outside, {"auto.create.topics.enable": "true"}) as broker:
            peer = connect(outside, broker)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            name = METADATA_TOPIC
            assert set(await topics_of(peer)) == {"__consumer_offsets", "events", "other"}
            assert await topics_of(peer, name) == {name: unknown}
            created = await create_topic(peer, name)
            assert created.error_code == ErrorCode.INVALID_REQUEST
            assert created.error_message == f"Creation of internal topic {name} is prohibited."
            assert (await produce(peer, name, batch(b"v"))).error_code == unknown
            assert (await fetch(peer, fetch_request(name, 0))).error_code == unknown
            assert (await delete_records(peer, name, 1)).error_code == unknown
            assert (await describe(peer, name)).error_code == unknown
            (altered,) = await alter_all(peer, resource(set_to("retention.ms", "1"), name=name))
            assert altered.error_code == unknown
            assert await delete_topic(peer, name) == unknown

    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(ask(outside))


def test_folders_that_the_metadata_does_not_know_are_set_aside() -> None:
    """Nothing of them is lost, served or made again; Kafka does the same."""
    files = kraft_directory()
    content = files.content(f"{ROOT}/other-0/{0:020d}.log")
    files.rename(f"{ROOT}/other-0", f"{ROOT}/stranger-3")

    async def look(outside: Outside) -> None:
        async with running(outside) as broker:
            assert "stranger" not in await topics_of(connect(outside, broker))

    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(look(outside))
    (aside,) = (each for each in files.list(ROOT) if each.startswith("stranger-3."))
    assert aside.endswith("-stray")
    assert files.content(f"{ROOT}/{aside}/{0:020d}.log") == content


def test_a_lost_metadata_log_costs_the_settings_and_no_record() -> None:
    """Its owner can still rename it back; until then the topics are adopted from their folders."""
    files = kraft_directory()
    moved = f"{METADATA_FOLDER}.{UNIQUE}-delete"
    files.rename(METADATA_FOLDER, moved)
    files.rename(f"{ROOT}/other-0", f"{ROOT}/other-0.{UNIQUE}-delete")
    before = not_ours(files)
    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(work_again(outside))
    assert files.is_directory(moved)
    assert not files.is_directory(f"{ROOT}/other-0.{UNIQUE}-delete")
    assert not_ours(files).items() <= before.items()
    assert image_in(files).topic_ids.keys() == {"__consumer_offsets", "events"}


def test_a_cluster_of_a_later_release_is_refused_unchanged() -> None:
    """The error names the feature and its level, and no byte of the directory has changed."""
    files = kraft_directory()
    node = Node(files, ROOT)
    log = node.open()
    record = FeatureLevelRecord(name="metadata.version", feature_level=31)
    log.append([RecordToWrite(record, 0)])
    log.close()
    before = files.content(METADATA_LOG)

    async def start(outside: Outside) -> None:
        async with running(outside):
            pytest.fail("it started")

    with (
        virtual_runtime(files=files) as outside,
        pytest.raises(DirectoryError, match="at level 31"),
    ):
        outside.loop.run_until_complete(start(outside))
    assert files.content(METADATA_LOG) == before


CHECKPOINTS = (
    names.RECOVERY_POINTS,
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
    names.CLEANER_OFFSETS,
)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints_keep_the_lines_of_partitions_that_are_not_served(name: str) -> None:
    """Lines of the metadata log and of a missing partition stay when ours are written."""
    files = kraft_directory()
    path = f"{ROOT}/{name}"
    strangers = {f"{METADATA_TOPIC} 0 42", "gone 3 17"}
    served = set(files.content(path).decode().splitlines()[2:])
    lines = ["0", str(len(served | strangers)), *sorted(served | strangers)]
    files.overwrite(path, ("\n".join(lines) + "\n").encode())

    async def work(outside: Outside) -> None:
        async with running(outside, EAGER) as broker:
            peer = connect(outside, broker)
            kept = {"retention.ms": "-1"}
            await create_topic(peer, "ours", configs={**kept, "cleanup.policy": "compact"})
            await create_topic(peer, "cut", configs={**kept, "cleanup.policy": "delete"})
            # The compacted one gets segments, the other one only a start inside of its first.
            for topic, step_ms in (("ours", 1000), ("cut", 0)):
                for number in range(5):
                    timestamp = 1_700_000_000_000 + step_ms * number
                    await produce(peer, topic, batch(b"v", timestamp=timestamp))
            await delete_records(peer, "cut", 2)
            await outside.pass_time(300)

    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(work(outside))
    left = files.content(path).decode().splitlines()
    assert strangers <= set(left[2:])
    assert left[1] == str(len(left) - 2)
    assert any(line.startswith(("ours 0 ", "cut 0 ")) for line in left[2:])
