"""The controller: its plans, the records that they become, and what outlasts a crash."""

import random
import uuid
from dataclasses import replace

import pytest

from tailrace.cluster import bootstrap, records
from tailrace.cluster import topic_rules as room
from tailrace.cluster.beginning import FIRST_PRODUCER_ID, Beginning
from tailrace.cluster.config_changes import ConfigChange
from tailrace.cluster.controller import PRODUCER_ID_BLOCK, Controller
from tailrace.cluster.image import Topic
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.errors import ConfigError, StorageError
from tailrace.model import TopicPartition
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.storage.config import log_config
from tailrace.testing import DiskFault, MemoryFiles, ProcessKilledError
from tests.unit.cluster import metadata_logs

DEFAULTS = TopicDefaults(partition_count=3, replication_factor=1, given={})
ID = uuid.UUID("12345678-1234-4234-8234-123456789abc")
DIRECTORY_ID = uuid.UUID("87654321-4321-4321-8321-210987654321")
NODE = records.Node(node_id=1, directories={"data": DIRECTORY_ID})


class Starting:
    """A start on a disk that has not settled yet."""

    def __init__(self, files: MemoryFiles) -> None:
        self.log = metadata_logs.Node(files).open()
        self.controller = Controller(self.log, NODE, chance=random.Random(1), defaults=DEFAULTS)
        self.beginning = Beginning(
            self.log,
            NODE,
            first=bootstrap.new_image,
            defaults={},
            new_id=self.controller.new_id,
        )

    def settle(self, largest: int = -1) -> Controller:
        """The controller, after an orderly stop, with an empty log of each partition."""
        self.controller.image = self.beginning.image
        logs = {
            TopicPartition(topic.name, number): records.FoundLog(0, DIRECTORY_ID)
            for topic in self.beginning.image.topics.values()
            for number in topic.partitions
        }
        self.controller.settle(
            self.beginning.records(logs, was_clean=True, largest_producer_id=largest)
        )
        return self.controller


def started(files: MemoryFiles) -> Controller:
    """A controller on a disk, after its start."""
    return Starting(files).settle()


def add(controller: Controller, topic: Topic) -> None:
    """Add a planned topic; its logs are not of interest here."""
    controller.prepare([topic])
    controller.publish(topic.name)


def test_a_topic_outlasts_a_crash_from_the_moment_it_is_prepared() -> None:
    """With its id, partitions and settings; and is gone once it was removed."""
    files = MemoryFiles()
    controller = started(files)
    topic = controller.plan_topic("planes", configs={"cleanup.policy": "compact"})
    assert (topic.partitions, topic.topic_id.version) == ((0, 1, 2), 4)
    assert not controller.image.topics
    controller.prepare([topic])
    assert not controller.image.topics
    controller.next_producer_id()
    controller.publish(topic.name)
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
        controller.prepare([topic])
    files.faults.clear()
    controller.next_producer_id()
    assert controller.image.topics == {}
    assert started(files.crash(keep_unsynced=True)).image.topics == {}


def test_topics_that_are_prepared_together_are_one_batch() -> None:
    """Their names are taken from then on, and a crash finds all of them."""
    files = MemoryFiles()
    controller = started(files)
    topics = [controller.plan_topic(name, configs={"flush.ms": "5"}) for name in ("a", "b.c")]
    end_offset, writes = controller.log.end_offset, len(files.operations)
    controller.prepare(topics)
    assert [kind for kind, _ in files.operations[writes:]].count("sync") == 1
    assert controller.log.end_offset == end_offset + 2 * (1 + 1 + 3)
    with pytest.raises(room.TopicExistsError):
        controller.plan_topic("a")
    with pytest.raises(room.InvalidTopicNameError):
        controller.plan_topic("b_c")
    controller.publish("a", "b.c")
    expected = {topic.name: topic for topic in topics}
    assert controller.image.topics == started(files.crash()).image.topics == expected


def test_new_partitions_come_with_the_change() -> None:
    """A topic grows in one step, also across a crash."""
    files = MemoryFiles()
    controller = started(files)
    topic = controller.plan_topic("planes")
    add(controller, topic)
    grown = controller.plan_partitions(topic, 5)
    controller.change(grown)
    assert controller.image.topics == started(files.crash()).image.topics == {"planes": grown}


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


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_device_that_refuses_leaves_the_settings(operation: str) -> None:
    """The old settings stay in memory; on the disk too, unless the device has kept all the same."""
    files = MemoryFiles()
    controller = started(files)
    topic = controller.plan_topic("planes")
    add(controller, topic)
    files.faults.append(DiskFault(operation=operation))
    with pytest.raises(StorageError):
        controller.change(with_setting(controller, "2"))
    assert controller.image.topics == {"planes": topic}
    assert started(files.crash()).image.topics == {"planes": topic}


def test_nothing_is_written_behind_a_batch_that_may_be_lost() -> None:
    """When the device has refused to sync, every further change is refused until the next start."""
    files = MemoryFiles()
    controller = started(files)
    add(controller, controller.plan_topic("planes"))
    files.faults.append(DiskFault(operation="sync"))
    with pytest.raises(StorageError):
        controller.change(with_setting(controller, "2"))
    files.faults.clear()
    with pytest.raises(StorageError):
        controller.prepare([controller.plan_topic("other")])
    controller = started(files.crash())
    add(controller, controller.plan_topic("other"))


def test_a_producer_id_is_handed_out_once() -> None:
    """Ids are unique, also after a crash, which skips the rest of a block."""
    files = MemoryFiles()
    controller = started(files)
    ids = [controller.next_producer_id() for _ in range(PRODUCER_ID_BLOCK + 2)]
    assert ids == list(range(PRODUCER_ID_BLOCK + 2))
    assert started(files.crash()).next_producer_id() == 2 * PRODUCER_ID_BLOCK


def test_ids_that_logs_know_are_skipped() -> None:
    """Also after a crash; a counter that is higher already stays."""
    files = MemoryFiles()
    Starting(files).settle(41)
    files = files.crash()
    controller = started(files)
    assert controller.next_producer_id() == 42
    controller = Starting(files.crash()).settle(500)
    assert controller.next_producer_id() == 42 + PRODUCER_ID_BLOCK


def test_ids_of_a_cluster_whose_counter_is_lost_are_skipped() -> None:
    """With topics but without their counter the ids begin where no counter has come to."""
    for largest, expected in ((41, FIRST_PRODUCER_ID), (FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + 1)):
        starting = Starting(MemoryFiles())
        starting.beginning.adopt({TopicPartition("a", 0): ID})
        assert starting.settle(largest).next_producer_id() == expected


def test_folders_without_a_topic_are_adopted() -> None:
    """With the id they carry, keeping all they have; known topics get the partitions they lack."""
    starting = Starting(MemoryFiles())
    starting.beginning.adopt(
        {TopicPartition("b", 2): ID, TopicPartition("b", 0): ID, TopicPartition("a", 0): None}
    )
    topics = starting.settle().image.topics
    assert (topics["b"].partitions, topics["b"].topic_id) == ((0, 2), ID)
    assert topics["a"].topic_id.version == 4
    config = log_config(topics["a"].configs)
    assert (config.retention_ms, config.retention_bytes, config.is_compacted) == (-1, -1, False)


def test_an_adopted_internal_topic_has_no_gaps() -> None:
    """The partitions between those with a folder are added, up to the most of a topic."""
    starting = Starting(MemoryFiles())
    too_many = TopicPartition("__transaction_state", room.PARTITIONS_MAX)
    starting.beginning.adopt({TopicPartition("__consumer_offsets", 3): ID, too_many: None})
    topics = starting.settle().image.topics
    assert topics["__consumer_offsets"].partitions == (0, 1, 2, 3)
    assert topics["__transaction_state"].partitions == (room.PARTITIONS_MAX,)
