"""Any sequence of changes of a cluster, with restarts and crashes, gives what dictionaries give."""

import contextlib
import random
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster import bootstrap, records
from tailrace.cluster.beginning import Beginning
from tailrace.cluster.config_changes import ConfigChange
from tailrace.cluster.controller import Controller
from tailrace.cluster.image import Topic, image_on_node
from tailrace.cluster.metadata.proof import prove_metadata
from tailrace.cluster.metadata.snapshot import Snapshot, read_snapshot, write_snapshot
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.errors import StorageError
from tailrace.model import ProducerId, TopicPartition
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.testing import DiskFault, MemoryFiles, ProcessKilledError
from tests.examples import examples
from tests.unit.cluster import metadata_logs

DIRECTORY_ID = uuid.UUID(int=500)
NODE = records.Node(node_id=1, directories={metadata_logs.DIRECTORY: DIRECTORY_ID})
DEFAULTS = TopicDefaults(partition_count=1, replication_factor=1, given={})
SMALL = {"segment_bytes": 3000, "snapshot_bytes": 300, "retention_bytes": 1500}
"""Settings with which a few changes lead to segments, snapshots and trims."""

KINDS = st.sampled_from(["stop", "kill", "power loss", "torn"])
TOPICS = ("a", "b", "c.d")
NAMES = st.sampled_from(TOPICS)
SETTINGS = st.dictionaries(
    st.sampled_from(["retention.ms", "flush.ms", "segment.ms"]), st.sampled_from(["7", "8"])
)
CHANGE = st.one_of(
    st.tuples(st.just("create"), NAMES, st.tuples(st.integers(1, 3), SETTINGS)),
    st.tuples(st.just("create together"), st.none(), st.tuples(st.integers(1, 3), SETTINGS)),
    st.tuples(st.just("grow"), NAMES, st.integers(1, 3)),
    st.tuples(st.just("configure"), NAMES, SETTINGS),
    st.tuples(st.just("delete"), NAMES, st.none()),
    st.tuples(st.just("group"), NAMES, SETTINGS),
    st.tuples(st.just("ids"), st.none(), st.sampled_from([1, 700])),
)
REST = st.one_of(
    st.tuples(st.just("snapshot"), st.none(), st.none()),
    st.tuples(st.just("tidy"), st.none(), st.integers(0, 4000)),
    st.tuples(st.just("tidy"), st.none(), st.just(60)),
    st.tuples(st.just("restart"), KINDS, st.one_of(st.none(), st.integers(0, 30))),
)
Fault = DiskFault | tuple[int, int]
FAULT: st.SearchStrategy[Fault | None] = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        DiskFault,
        operation=st.sampled_from(["write", "sync", "rename", "open", "resize"]),
        after=st.integers(0, 2),
        partial_bytes=st.integers(0, 200),
    ),
    st.tuples(st.integers(0, 12), st.integers(0, 200)),
)
"""During an operation: nothing, a device that refuses, or the death of the process after so many of
its calls, of which the last may have written some bytes."""


@dataclass(frozen=True, slots=True)
class State:
    """The oracle: what a cluster has."""

    topics: dict[str, Topic] = field(default_factory=dict)
    groups: dict[str, dict[str, str]] = field(default_factory=dict)

    def with_topic(self, topic: Topic) -> "State":
        """The state with a topic, new or changed."""
        return State({**self.topics, topic.name: topic}, self.groups)

    def without(self, name: str) -> "State":
        """The state without a topic."""
        return State({key: self.topics[key] for key in self.topics if key != name}, self.groups)

    def with_group(self, group: str, configs: dict[str, str]) -> "State":
        """The state with the settings of a group; none for an empty dictionary."""
        others = {key: self.groups[key] for key in self.groups if key != group}
        return State(self.topics, {**others, group: configs} if configs else others)


class Model:
    """A controller on a disk, and the oracle it is held against."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.files = MemoryFiles()
        self.state = State()
        """Every acknowledged change; it is on the device."""
        self.attempted: list[State] = []
        """States of changes that were refused since then: each may be on the device."""
        self.topic_ids: set[uuid.UUID] = set()
        self.removed_ids: set[uuid.UUID] = set()
        self.producer_ids: set[ProducerId] = set()
        self.start()

    # -- starts -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start on what is on the disk, and hold it against the oracle."""
        self.node = metadata_logs.Node(self.files, **SMALL)
        log = self.node.open()
        self.controller = Controller(log, NODE, chance=self.chance, defaults=DEFAULTS)
        image = image_on_node(log.image, NODE.node_id)
        found = State(
            dict(image.topics), {key: dict(of) for key, of in image.group_configs.items()}
        )
        assert found in (self.state, *self.attempted)
        assert set(log.removed_topics) <= self.removed_ids
        self.state = found
        self.attempted.clear()
        beginning = Beginning(
            log, NODE, first=bootstrap.new_image, defaults={}, new_id=self.controller.new_id
        )
        self.controller.image = beginning.image
        logs = {
            TopicPartition(topic.name, number): records.FoundLog(0, DIRECTORY_ID)
            for topic in found.topics.values()
            for number in topic.partitions
        }
        was_clean = self.chance.random() < 0.5
        self.controller.settle(beginning.records(logs, was_clean=was_clean, largest_producer_id=-1))
        self.controller.register({"PLAINTEXT": records.Endpoint("localhost", 9092)})

    def restart(self, kind: str, die_after: int | None = None) -> None:
        """Stop in some way and start again; a start that dies is followed by one that does not."""
        before, is_sure = self.controller.log.image, not self.attempted
        if kind == "stop":
            with contextlib.suppress(StorageError, ProcessKilledError):
                self.controller.close()
        else:
            self.controller.log.abandon()
        self.files = self.after(kind)
        if is_sure:
            told: list[str] = []
            proof = prove_metadata(self.files, metadata_logs.FOLDER, report=told.append)
            assert proof.replay.image == before
            assert not told
        self.files.stop_at = die_after
        try:
            self.start()
        except ProcessKilledError:
            self.files = self.after(kind)
            self.start()
        self.files.stop_at = None

    def after(self, kind: str) -> MemoryFiles:
        """The disk after the end of a process or of a machine."""
        chance = self.chance if kind == "torn" else None
        return self.files.crash(keep_unsynced=kind in {"stop", "kill"}, chance=chance)

    # -- changes ------------------------------------------------------------------------------

    def attempt(self, after: State, change: Callable[[], object]) -> bool:
        """Make a change that leads to a state; returns whether it was acknowledged."""
        end_offset = self.controller.log.end_offset
        try:
            change()
        except StorageError:
            self.attempted.append(after)
            return False
        except ProcessKilledError:
            self.attempted.append(after)
            self.restart(self.chance.choice(["kill", "power loss", "torn"]))
            return False
        self.state = after
        if self.controller.log.end_offset > end_offset:
            self.attempted.clear()
        return True

    def plan(self, name: str, count: int, configs: dict[str, str]) -> Topic | None:
        """A new topic, with an id that no other has had; None if there is one of this name."""
        if name in self.state.topics:
            return None
        topic = self.controller.plan_topic(name, partition_count=count, configs=configs)
        assert topic.topic_id not in self.topic_ids
        self.topic_ids.add(topic.topic_id)
        return topic

    def create(self, names: Iterable[str], count: int, configs: dict[str, str]) -> None:
        """Create topics together, those that there are not yet."""
        planned = [self.plan(name, count, configs) for name in names]
        topics = [topic for topic in planned if topic is not None]
        after = self.state
        for topic in topics:
            after = after.with_topic(topic)
        if topics and self.attempt(after, lambda: self.controller.prepare(topics)):
            self.controller.publish(*(topic.name for topic in topics))

    def change(self, name: str, plan: Callable[[Topic], Topic]) -> None:
        """Change a topic that clients see."""
        topic = self.controller.image.topics.get(name)
        if topic is not None:
            planned = plan(topic)
            self.attempt(self.state.with_topic(planned), lambda: self.controller.change(planned))

    def configure(self, name: str, configs: dict[str, str]) -> None:
        """Give a topic other settings."""
        changes = [
            ConfigChange(name=key, operation=ConfigOperation.SET, value=value)
            for key, value in configs.items()
        ]
        self.change(
            name, lambda topic: self.controller.plan_configs(topic, changes, is_replaced=True)
        )

    def delete(self, name: str) -> None:
        """Delete a topic that clients see."""
        topic = self.controller.image.topics.get(name)
        if topic is not None:
            self.removed_ids.add(topic.topic_id)
            self.attempt(self.state.without(name), lambda: self.controller.remove(topic))

    def configure_group(self, group: str, configs: dict[str, str]) -> None:
        """Give a group other settings."""
        self.attempt(
            self.state.with_group(group, configs),
            lambda: self.controller.configure_group(group, configs),
        )

    def take_ids(self, count: int) -> None:
        """Take producer ids, each of which nobody has had."""
        for _ in range(count):

            def take() -> None:
                found = self.controller.next_producer_id()
                assert found not in self.producer_ids
                self.producer_ids.add(found)

            self.attempt(self.state, take)

    def tidy(self, seconds: int) -> None:
        """Let time pass; snapshots are written, and what is too old goes."""
        self.node.clock.pause(seconds)

        def work() -> None:
            self.controller.tidy()
            self.node.removals.remove_due(self.node.clock.now_ms())

        self.keep(work)

    def snapshot(self) -> None:
        """Write a snapshot, and read the state from it."""
        image = self.controller.log.image
        stored = write_snapshot(Snapshot(image=image, log_timestamp=0), epoch=1, timestamp=0)
        assert read_snapshot(memoryview(stored)).image == image
        self.keep(self.controller.log.write_snapshot)

    def keep(self, work: Callable[[], object]) -> None:
        """Do something that changes no state, whatever comes of it."""
        try:
            work()
        except (StorageError, OSError):
            pass
        except ProcessKilledError:
            self.restart(self.chance.choice(["kill", "power loss", "torn"]))

    def check(self) -> None:
        """Clients see the state of the oracle."""
        image = self.controller.image
        assert image.topics == self.state.topics
        assert image.group_configs == self.state.groups


def work(model: Model, operation: tuple[object, object, object]) -> None:
    """Do one operation on the cluster and on the dictionaries."""
    match operation:
        case ("create", str(name), (int(count), dict(configs))):
            model.create([name], count, configs)
        case ("create together", _, (int(count), dict(configs))):
            model.create(TOPICS, count, configs)
        case ("grow", str(name), int(count)):
            model.change(
                name, lambda t: model.controller.plan_partitions(t, t.partition_count + count)
            )
        case ("configure", str(name), dict(configs)):
            model.configure(name, configs)
        case ("delete", str(name), _):
            model.delete(name)
        case ("group", str(name), dict(configs)):
            model.configure_group(name, configs)
        case ("ids", _, int(count)):
            model.take_ids(count)
        case ("snapshot", _, _):
            model.snapshot()
        case ("tidy", _, int(seconds)):
            model.tidy(seconds)
        case ("restart", str(kind), int() | None as die_after):
            model.restart(kind, die_after)
        case _:
            raise AssertionError(operation)
    model.check()


@settings(max_examples=examples(100))
@given(
    st.integers(0, 1 << 32),
    st.lists(st.tuples(st.one_of(CHANGE, CHANGE, REST), FAULT), min_size=15, max_size=60),
)
def test_a_cluster_is_dictionaries(
    seed: int, operations: list[tuple[tuple[object, object, object], Fault | None]]
) -> None:
    """Each start finds all that was acknowledged, and at most a change that was interrupted."""
    model = Model(seed)
    for operation, fault in operations:
        files = model.files
        match fault:
            case DiskFault():
                files.faults.append(fault)
            case (int(steps), int(partial)):
                files.stop_at, files.stop_partial_bytes = len(files.operations) + steps, partial
        work(model, operation)
        files.faults.clear()
        files.stop_at = None
    model.restart("stop")
    model.check()
