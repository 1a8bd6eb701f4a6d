"""The image of the cluster, its only writer, and its file."""

import json
import random
import uuid
from dataclasses import replace

import pytest

from tailrace.cluster import controller as room
from tailrace.cluster.config_changes import ConfigChange
from tailrace.cluster.controller import Controller, TopicDefaults
from tailrace.cluster.image import Topic
from tailrace.cluster.store import FILE, LocalStore
from tailrace.errors import ConfigError, DirectoryError, StorageError
from tailrace.model import TopicPartition
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.storage.config import log_config
from tailrace.testing import DiskFault, MemoryFiles, ProcessKilledError

DEFAULTS = TopicDefaults(partition_count=3, replication_factor=1, configs={})
ID = uuid.UUID("12345678-1234-4234-8234-123456789abc")
PATH = f"data/{FILE}"


def started(files: MemoryFiles) -> Controller:
    """A controller on a disk."""
    files.make_directory("data")
    store = LocalStore(files, "data")
    return Controller(store, store.load(), chance=random.Random(1), defaults=DEFAULTS)


def add(controller: Controller, topic: Topic) -> None:
    """Add a planned topic; its logs are not of interest here."""
    controller.prepare(topic)
    controller.publish(topic)


def test_a_topic_outlasts_a_crash_from_the_moment_it_is_prepared() -> None:
    """With its id, partitions and settings; and is gone once it was removed."""
    files = MemoryFiles()
    controller = started(files)
    topic = controller.plan_topic("planes", configs={"cleanup.policy": "compact"})
    assert (topic.partitions, topic.topic_id.version) == ((0, 1, 2), 4)
    assert not controller.image.topics
    controller.prepare(topic)
    assert not controller.image.topics
    controller.next_producer_id()
    controller.publish(topic)
    assert controller.image.topics == {"planes": topic}
    again = started(files.crash())
    assert again.image.topics == {"planes": topic}
    assert again.image.topic_by_id(topic.topic_id) == topic
    controller.remove(topic)
    assert started(files.crash()).image.topics == {}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", room.InvalidTopicNameError), (".", room.InvalidTopicNameError),
        ("..", room.InvalidTopicNameError),
        ("a" * 250, room.InvalidTopicNameError), ("a/b", room.InvalidTopicNameError),
        ("a b", room.InvalidTopicNameError), ("\u00e4", room.InvalidTopicNameError),
        ("taken.name", room.TopicExistsError), ("taken_name", room.InvalidTopicNameError),
    ],
)  # fmt: skip
def test_names_that_cannot_be_had(name: str, error: type[Exception]) -> None:
    """Illegal ones, taken ones, and those that differ only in dots and underscores."""
    controller = started(MemoryFiles())
    add(controller, controller.plan_topic("taken.name"))
    with pytest.raises(error):
        controller.plan_topic(name)


def test_counts_and_settings_that_cannot_be_had() -> None:
    """Partitions, replicas, and all bad settings together."""
    controller = started(MemoryFiles())
    for count in (0, -2):
        with pytest.raises(room.InvalidPartitionsError):
            controller.plan_topic("a", partition_count=count)
    with pytest.raises(room.TooManyPartitionsError):
        controller.plan_topic("a", partition_count=room.PARTITIONS_MAX + 1)
    with pytest.raises(room.InvalidReplicationError):
        controller.plan_topic("a", replication_factor=2)
    with pytest.raises(ConfigError) as caught:
        controller.plan_topic("a", configs={"segment.bytes": "x", "nonsense": "1"})
    assert len(caught.value.faults) == 2
    with pytest.raises(ConfigError, match="below min"):
        controller.plan_topic(
            "a", configs={"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"}
        )


def test_what_cannot_be_saved_did_not_happen() -> None:
    """The image is as before, in memory and on the disk."""
    files = MemoryFiles()
    controller = started(files)
    topic = controller.plan_topic("planes")
    files.faults.append(DiskFault(operation="write"))
    with pytest.raises(StorageError):
        controller.prepare(topic)
    files.faults.clear()
    controller.next_producer_id()
    assert controller.image.topics == {}
    assert started(files.crash(keep_unsynced=True)).image.topics == {}


def test_a_topic_whose_logs_cannot_be_made_is_taken_back() -> None:
    """Also with the next change if the device refuses; a topic that would grow stays as it was."""
    files = MemoryFiles()
    controller = started(files)
    topic = controller.plan_topic("planes")
    add(controller, topic)
    controller.prepare(controller.plan_partitions(topic, 5))
    controller.withdraw(topic)
    controller.prepare(other := controller.plan_topic("other"))
    fault = DiskFault(operation="write")
    files.faults.append(fault)
    with pytest.raises(StorageError):
        controller.withdraw(other)
    files.faults.clear()
    controller.next_producer_id()
    assert controller.image.topics == started(files.crash()).image.topics == {"planes": topic}


def with_setting(controller: Controller, value: str) -> Topic:
    """The topic `planes` as it would be with a setting."""
    change = ConfigChange(name="retention.ms", operation=ConfigOperation.SET, value=value)
    return controller.plan_configs(controller.image.topics["planes"], [change])


def test_settings_are_planned_before_they_change() -> None:
    """The topic keeps its id and partitions; with `is_replaced` its other settings go."""
    controller = started(MemoryFiles())
    topic = controller.plan_topic("planes", configs={"flush.ms": "5"})
    add(controller, topic)
    planned = with_setting(controller, "7")
    assert controller.image.topics["planes"] == topic
    controller.change(planned)
    assert planned == replace(topic, configs={"flush.ms": "5", "retention.ms": "7"})
    assert controller.plan_configs(planned, [], is_replaced=True) == replace(topic, configs={})
    assert controller.image.topics["planes"] == planned


def test_a_crash_leaves_the_old_settings_or_the_new() -> None:
    """Wherever it comes; and the new ones once the call has returned."""
    seen = set()
    for steps in range(20):
        files = MemoryFiles()
        controller = started(files)
        add(controller, controller.plan_topic("planes", configs={"retention.ms": "1"}))
        planned = with_setting(controller, "2")
        files.stop_at = len(files.operations) + steps
        try:
            controller.change(planned)
        except ProcessKilledError:
            has_returned = False
        else:
            has_returned = True
        for seed in range(8):
            for keep_unsynced in (False, True):
                # Each look is at a copy of the disk as the crash left it.
                disk = files.crash(keep_unsynced=keep_unsynced, chance=random.Random(seed))
                found = started(disk).image.topics["planes"].configs
                assert found in ({"retention.ms": "1"}, {"retention.ms": "2"})
                assert not has_returned or found == planned.configs
                seen.add((has_returned, found["retention.ms"]))
    assert seen == {(False, "1"), (False, "2"), (True, "2")}


def test_a_device_that_refuses_leaves_the_settings() -> None:
    """The old settings stay in memory and on the disk."""
    files = MemoryFiles()
    controller = started(files)
    topic = controller.plan_topic("planes")
    add(controller, topic)
    files.faults.append(DiskFault(operation="rename"))
    with pytest.raises(StorageError):
        controller.change(with_setting(controller, "2"))
    assert controller.image.topics == {"planes": topic}
    assert started(files.crash(keep_unsynced=True)).image.topics == {"planes": topic}


def test_a_producer_id_is_handed_out_once() -> None:
    """Ids are unique, also after a crash, which skips the rest of a block."""
    files = MemoryFiles()
    controller = started(files)
    ids = [controller.next_producer_id() for _ in range(room.PRODUCER_ID_BLOCK + 2)]
    assert ids == list(range(room.PRODUCER_ID_BLOCK + 2))
    assert started(files.crash()).next_producer_id() == 2 * room.PRODUCER_ID_BLOCK


def test_ids_that_logs_know_or_kafka_may_give_are_skipped() -> None:
    """The controller skips such ids, also after a crash; a counter that is higher already stays."""
    files = MemoryFiles()
    controller = started(files)
    controller.skip_producer_ids(-1)
    assert controller.next_producer_id() == room.FIRST_PRODUCER_ID
    known = room.FIRST_PRODUCER_ID + 5 * room.PRODUCER_ID_BLOCK
    files = files.crash()
    controller = started(files)
    controller.skip_producer_ids(known)
    assert controller.next_producer_id() == known + 1
    controller = started(files.crash())
    controller.skip_producer_ids(known)
    assert controller.next_producer_id() == known + 1 + room.PRODUCER_ID_BLOCK


def test_folders_without_a_topic_are_adopted() -> None:
    """With the id they carry, keeping all they have; known topics get the partitions they lack."""
    controller = started(MemoryFiles())
    controller.adopt(
        {TopicPartition("b", 2): ID, TopicPartition("b", 0): ID, TopicPartition("a", 0): None}
    )
    topics = controller.image.topics
    assert (topics["b"].partitions, topics["b"].topic_id) == ((0, 2), ID)
    assert topics["a"].topic_id.version == 4
    config = log_config(topics["a"].configs)
    assert (config.retention_ms, config.retention_bytes, config.is_compacted) == (-1, -1, False)


def test_an_adopted_internal_topic_has_no_gaps() -> None:
    """The partitions between those with a folder are added, up to the most of a topic."""
    controller = started(MemoryFiles())
    too_many = TopicPartition("__transaction_state", room.PARTITIONS_MAX)
    controller.adopt({TopicPartition("__consumer_offsets", 3): ID, too_many: None})
    topics = controller.image.topics
    assert topics["__consumer_offsets"].partitions == (0, 1, 2, 3)
    assert topics["__transaction_state"].partitions == (room.PARTITIONS_MAX,)


GOOD = {"name": "a", "id": "EjRWeBI0QjSCNBI0Vniavw", "partitions": [0], "configs": {}}


BAD_TOPICS: tuple[object, ...] = (
    5, [5], ["x"], [{}], [GOOD, GOOD], [{**GOOD, "name": "../../etc"}],
    [{**GOOD, "name": 5}], [{**GOOD, "id": "x"}], [{**GOOD, "partitions": [-1]}],
    [{**GOOD, "partitions": [0, 0]}], [{**GOOD, "partitions": [2**31]}],
    [{**GOOD, "partitions": [1e400]}], [{**GOOD, "configs": []}],
    [{**GOOD, "configs": {"a": 1}}],
)  # fmt: skip

EMPTY = {"version": 1, "next_producer_id": 0, "deleted_topics": [], "topics": []}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"version": 2}', b'{"version": 1}',
        *(
            json.dumps(EMPTY | {"topics": topics}).encode()
            for topics in BAD_TOPICS
        ),
        b'{"version": 1, "next_producer_id": -1, "deleted_topics": [], "topics": []}',
        b'{"version": 1, "next_producer_id": 1e400, "deleted_topics": [], "topics": []}',
    ],
)  # fmt: skip
def test_an_image_that_cannot_be_is_refused(content: bytes) -> None:
    """In one line that names the file, and the file stays."""
    files = MemoryFiles()
    files.make_directory("data")
    files.open(PATH, create=True)
    files.overwrite(PATH, content)
    with pytest.raises(DirectoryError, match="tailrace-cluster") as caught:
        started(files)
    assert "\n" not in str(caught.value)
    assert files.content(PATH) == content


def test_an_image_that_cannot_be_read_is_refused() -> None:
    """The start is refused if, for example, a directory is in the image's place."""
    files = MemoryFiles()
    files.make_directory(PATH)
    with pytest.raises(DirectoryError):
        started(files)
