"""The same requests to Kafka's controller and to ours: each answer and each record of their logs.

    script    what brokers, clients and operators ask for, in an order that has all of it
    courses   random requests of four brokers and their operators
    silence   both controllers start again, and fence the brokers of which they hear nothing

Both are processes with a new directory and the settings of a release. The records are read from
their logs. Kafka's dump tool and its metadata shell then read both logs, and snapshots of them.

Not here: the rules under random requests at other levels of features (`partition_changes`).
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any
from uuid import UUID

from compat.artifacts import KAFKA_SHELL, class_path
from compat.brokers import OurController
from compat.kafka import CLUSTER_ID, Kafka, run_java
from compat.metadata_turns import undumped
from compat.plain_answers import ask
from compat.processes import free_ports
from compat.report import Report
from compat.tools import Tools
from tailrace.cluster.metadata.batches import decoded_records
from tailrace.cluster.metadata.proof import METADATA_FOLDER, PARTITION
from tailrace.cluster.metadata.snapshot_files import find_snapshots
from tailrace.errors import FatalError
from tailrace.model import Offset
from tailrace.protocol.apis import APIS, BETWEEN_NODES, ApiKey
from tailrace.protocol.config_resources import ConfigOperation, ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, Message
from tailrace.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tailrace.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from tailrace.protocol.messages.alter_partition import BrokerState
from tailrace.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tailrace.protocol.messages.broker_registration import BrokerRegistrationRequest
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.elect_leaders import ElectLeadersRequest
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tailrace.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tailrace.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tailrace.protocol.metadata_log import VersionedRecord
from tailrace.protocol.metadata_records import (
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from tailrace.reading.view import open_view
from tailrace.runtime.files import DiskFiles
from tailrace.storage.checkpoints import format_topic_id
from tailrace.values import replace
from tests.properties.test_controller import BROKERS, TOPICS, Course, Watched
from tests.unit.cluster.control.controlled import (
    CAUGHT_UP,
    assigned,
    directory,
    features,
    wanted,
)

CONTROLLER = 101
"""Node id of both controllers."""
SETTINGS: Mapping[str, str] = {
    # Silence only where it is wanted: what is asked here may take a while.
    "broker.session.timeout.ms": "600000",
    "default.replication.factor": "3",
    "num.partitions": "2",
    # No record says that nothing happens.
    "metadata.max.idle.interval.ms": "0",
}
PLACED = "placed"
"""Topics with names that begin so have replicas by chance; they go before anything happens."""
_SILENT: Mapping[str, str] = {
    "broker.session.timeout.ms": "1000",
    # A snapshot after each record that comes.
    "metadata.log.max.record.bytes.between.snapshots": "1",
}
COURSES = 3
STEPS = 300
SECONDS_MAX = 90
SHELL_RUNS_MAX = 20
_OWN = frozenset({
    # Around the first records, where they are several batches. Ours are one.
    "BeginTransactionRecord", "EndTransactionRecord",
    # A controller of ours does not register itself: nobody but itself would ask for that.
    "RegisterControllerRecord",
    # After a change of kraft.version to the level that it has.
    "NoOpRecord",
})  # fmt: skip
"""Types of records that only Kafka's controller writes."""
_FEATURES = features(kraft_version=(0, 1))
"""Features of a broker that knows all: the log names the voters."""
_UNEQUAL = re.compile(rf"^\[|^ +offset |ControllerRegistration|^ +{CONTROLLER}:")
"""Lines of the shell with what it logs, the end of the log, and the controller itself."""
_UNCLEAN = 1
"""Kind of an election in a request (KIP-460)."""
_SHELL = "org.apache.kafka.shell.MetadataShell"


class Remote(Watched):
    """A controller in another process; the state is that of the log in its directory."""

    def __init__(self, address: str, logs: Path) -> None:
        super().__init__(seed=0, has_elr=True)
        self.answers: list[str] = []
        self.records: list[str] = []
        self.logs = logs
        self._address = address
        self._offsets: list[int] = []
        """The offset of each record that counts."""
        self._epochs: list[int] = []
        """The epochs of all registrations."""
        self._next = 0
        self.state.image, self.state.next_offset = type(self.state.image)(), 0
        self.read()

    def read(self) -> None:
        """Take what has been written to the log since the last time."""
        view = open_view(DiskFiles(), str(self.logs / METADATA_FOLDER), PARTITION)
        start = max(self._next, view.reader.start_offset)
        for stored in view.batches(Offset(start), view.reader.end_offset):
            if stored.batch.is_control:
                continue
            found = []
            for offset, each in decoded_records(stored.batch):
                if self._counts(each.record):
                    self._offsets.append(offset)
                    if isinstance(each.record, RegisterBrokerRecord):
                        self._epochs.append(each.record.broker_epoch)
                    self.state.replay([each.record])
                    found.append(self._shown(each))
            # Neighbours of one type are about several topics, partitions or settings, which have no
            # order in Kafka; two of one partition have.
            for _, group in groupby(found, lambda each: each.partition("(")[0]):
                self.records += sorted(group, key=lambda each: each.partition(", isr=")[0])
        self._next = view.reader.end_offset

    def _counts(self, record: Message) -> bool:
        if isinstance(record, FeatureLevelRecord):
            # Kafka writes some levels that are there already.
            return self.state.image.features.get(record.name, 0) != record.feature_level
        return type(record).__name__ not in _OWN

    def _shown(self, record: VersionedRecord) -> str:
        topic = self.state.image.topics.get(getattr(record.record, "topic_id", NO_UUID))
        if isinstance(record.record, PartitionRecord) and topic and topic.name.startswith(PLACED):
            replicas = record.record.replicas
            return f"partition {record.record.partition_id} on {len(replicas)} brokers"
        return self.named(f"v{record.version} {record.record}")

    def named(self, text: str) -> str:
        """Words without ids and offsets, which differ by chance."""
        for topic in self.state.image.topics.values():
            text = text.replace(str(topic.topic_id), topic.name)
            text = text.replace(format_topic_id(topic.topic_id), topic.name)
        # Those of topics that are not made, or are gone.
        text = re.sub(r"[0-9a-f-]{13}-4[0-9a-f-]{21}", "ID", text)
        text = re.sub(r" error_message=(None|'[^']*'|\"[^\"]*\"),?", "", text)
        epochs = r"(?:(?<=broker_epoch=)|(?<=, epoch=))\d+"
        text = re.sub(epochs, partial(_numbered, "broker", self._epochs), text)
        return re.sub(
            r"(?<=metadata_offset=)\d+", partial(_numbered, "record", self._offsets), text
        )

    def wait_for_silence(self, *, has_snapshot: bool) -> None:
        """Return when the controller has fenced all brokers, or when a snapshot has that too.

        Raises:
            FatalError: that takes too long.
        """
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            self.read()
            newest = max(find_snapshots(DiskFiles(), str(self.logs / METADATA_FOLDER)))
            is_fenced = all(each.fenced for each in self.state.image.brokers.values())
            if is_fenced and (not has_snapshot or newest.next_offset > self._offsets[-1]):
                return
            if time.monotonic() > deadline:
                raise FatalError(f"not all brokers are fenced and in a snapshot: {newest}")
            time.sleep(0.1)

    def do(self, key: ApiKey, request: Message, *, version: int | None = None) -> Any:  # noqa: ANN401 - that of the API
        """Ask, note the answer, and read what it has written."""
        api = APIS.get(key) or BETWEEN_NODES[key]
        answer = ask(self._address, request, api.last_version if version is None else version)
        self.read()
        # In one order: Kafka's collections have none.
        words = " ".join(sorted(re.split(r"[,() ]+", self.named(str(answer)))))
        self.answers.append(f"{self.named(str(request))}: {words}")
        return answer

    def beat(self, broker_id: int, **fields: Any) -> Any:  # noqa: ANN401 - as `do`
        """A heartbeat; an offset is that of a record that counts."""
        offset = fields.get("current_metadata_offset", CAUGHT_UP)
        if offset < len(self._offsets):
            fields["current_metadata_offset"] = self._offsets[offset]
        return super().beat(broker_id, **fields)

    def registration(self, broker_id: int, **fields: Any) -> BrokerRegistrationRequest:  # noqa: ANN401 - values of fields
        """A registration in this cluster; a new incarnation unless one is given."""
        own = {"cluster_id": CLUSTER_ID, "features": _FEATURES, **fields}
        return super().registration(broker_id, **own)

    def report(self, broker_id: int, places: Sequence[tuple[UUID, UUID, int]]) -> list[ErrorCode]:
        """Nothing where the records of Kafka's controller are others (`partition_changes`).

        It changes a leader that does not serve twice, when a replica is lost with its directory,
        and keeps those eligible whose replicas begin empty.
        """
        topics = self.state.image.topics
        for _, topic_id, number in places:
            topic = topics.get(topic_id)
            state = topic.partitions.get(number) if topic else None
            if state and (_may_lead_later(state) or not self.state.is_active(state.leader)):
                return []
        return super().report(broker_id, places)

    def reassign(self, replicas: Sequence[int] | None, **fields: Any) -> Any:  # noqa: ANN401 - as `do`
        """Nothing where Kafka's controller may keep those eligible that are no replicas any more.

        That takes an ISR below `min.insync.replicas`, which is above 1 where a course changes it.
        """
        topic = self.state.image.topic(fields.get("name", "t"))
        state = topic.partitions.get(fields.get("number", 0)) if topic else None
        if (topic and topic.name == "strict") or (state and _may_lead_later(state)):
            return None
        return super().reassign(replicas, **fields)

    def pass_ms(self, _: int) -> list[int]:
        """Nothing: time passes by itself, and no session is that long."""
        return []

    def balance(self) -> None:
        """Nothing: the controllers do that every five minutes."""

    def elect_unclean(self) -> None:
        """Nothing, as `balance`."""


def _may_lead_later(state: PartitionRecord) -> bool:
    """Whether a replica that is out of sync may lead one day."""
    return bool(state.eligible_leader_replicas or state.last_known_elr)


def _numbered(kind: str, known: list[int], found: re.Match[str]) -> str:
    """A number as the index of one that is known; others are the requests' own."""
    number = int(found[0])
    return f"{kind} {known.index(number)}" if number in known else found[0]


def check(report: Report, tools: Tools, directory: Path) -> None:
    """Ask both controllers, and compare."""
    sides = []
    for make in (_kafkas, _ours):
        address = f"127.0.0.1:{free_ports(1)[0]}"
        with make(tools, directory, address, SETTINGS) as node:
            sides.append(side := Remote(address, node.logs))
            _script(side)
            for seed in range(COURSES):
                _course(side, seed)
            # Which of several is fenced first is left to chance.
            _serve(side)
            for broker_id in [*side.state.image.brokers][1:]:
                side.fence(broker_id)
        with make(tools, directory, address, {**SETTINGS, **_SILENT}) as node:
            # Kafka's is taken of what was there when its last one was finished.
            side.wait_for_silence(has_snapshot=make is _ours)
            node.stop()
    theirs, mine = sides
    report.check(
        f"{len(mine.answers)} requests have the answers of Kafka's controller",
        [*_first_difference(theirs.answers, mine.answers)],
        explained="but for the words of errors",
    )
    report.check(
        f"{len(mine.records)} records in the log are those of Kafka's controller",
        [*_first_difference(theirs.records, mine.records)],
        explained="but for offsets, ids of topics, levels that stay, and the controller's own",
    )
    report.check(
        "Kafka's dump tool reads every record of our log, and its snapshots",
        [*undumped(_kafkas(tools, directory, "", {}), mine.logs)],
    )
    shell = os.pathsep.join([class_path(KAFKA_SHELL, os.environ), tools.jars])

    def shown(side: Remote, suffix: str) -> list[str]:
        """The state that Kafka's shell finds in the newest file of the log."""
        path = max((side.logs / METADATA_FOLDER).glob(f"*{suffix}"))
        printed = ""
        for _ in range(SHELL_RUNS_MAX):
            printed = run_java(
                tools.java, shell, [_SHELL, "--snapshot", str(path), "tree", "image"]
            )
            # Now and then it shows the state of before it has read the file.
            if "BrokerRegistration" in printed:
                break
        else:
            raise FatalError(f"the shell does not show what is in {path}: {printed[-500:]}")
        # In one order: it prints maps as they are.
        lines = (each for each in printed.splitlines() if not _UNEQUAL.search(each))
        return sorted(map(side.named, lines))

    in_log = shown(mine, ".log")
    report.check(
        "Kafka's metadata shell finds the same state in our log and in that of its controller",
        [*_first_difference(shown(theirs, ".log"), in_log)],
    )
    report.check(
        "and in our newest snapshot",
        [*_first_difference(in_log, shown(mine, ".checkpoint"))],
    )


def _kafkas(tools: Tools, directory: Path, address: str, settings: Mapping[str, str]) -> Kafka:
    own = {
        "process.roles": "controller",
        "node.id": str(CONTROLLER),
        "listeners": f"CONTROLLER://{address}",
        "advertised.listeners": f"CONTROLLER://{address}",
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": address,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    return Kafka(
        tools.java, tools.jars, directory / "records-kafka",
        settings={**settings, **own}, format_options=("--standalone",),
    )  # fmt: skip


def _ours(_: Tools, directory: Path, address: str, settings: Mapping[str, str]) -> OurController:
    return OurController(
        CONTROLLER, directory / "records-ours", address=address, cluster_id=CLUSTER_ID,
        settings=settings,
    )  # fmt: skip


def _first_difference(theirs: Sequence[str], mine: Sequence[str]) -> Iterator[str]:
    """The first difference: the next ones may follow from it."""
    for number, (due, found) in enumerate(zip_longest(theirs, mine)):
        if due != found:
            yield f"number {number}: Kafka {due}"
            yield f"number {number}: Tailrace {found}"
            return


def _script(cluster: Remote) -> None:
    _register(cluster)
    _make_topics(cluster)
    _alter(cluster)
    _configure(cluster)
    _move(cluster)
    _elect(cluster)
    _lose_directories(cluster)
    _change_levels(cluster)
    _leave(cluster)


def _register(cluster: Remote) -> None:
    for broker_id, rack in ((1, "a"), (2, "b"), (3, "c"), (4, None)):
        dirs = (directory(broker_id), directory(broker_id, 1))[: 1 + (broker_id == 4)]
        cluster.register(broker_id, rack=rack, log_dirs=dirs)
    # The session of 1 begins with its first heartbeat.
    cluster.beat(1, want_fence=True)
    for broker_id in (1, 2, 3, 4):
        cluster.beat(broker_id, cordoned_log_dirs=())
        cluster.beat(broker_id, cordoned_log_dirs=())
    refused = (
        {"cluster_id": "another"},
        {"features": ()},
        {"features": features()},
        {"features": features(metadata_version=(7, 29), kraft_version=(0, 1))},
        {"features": features(group_version=None, kraft_version=(0, 1))},
        {"log_dirs": ()},
        {"log_dirs": (directory(1),)},
        {"log_dirs": (directory(5), directory(5))},
        {"log_dirs": (UUID(int=3),)},
        {"is_migrating_zk_broker": True},
    )
    for each in refused:
        cluster.register(5, **each)
    # Another process with its id, and the same one again.
    cluster.register(1)
    cluster.incarnations[1] -= 1
    number = (1 << 32) + cluster.incarnations[1]
    cluster.register(1, incarnation_id=UUID(int=number), rack="d")
    cluster.do(ApiKey.ALLOCATE_PRODUCER_IDS, _producer_ids(cluster, 1))
    cluster.do(ApiKey.ALLOCATE_PRODUCER_IDS, _producer_ids(cluster, 2))
    stale = AllocateProducerIdsRequest(broker_id=2, broker_epoch=0)
    cluster.do(ApiKey.ALLOCATE_PRODUCER_IDS, stale)


def _producer_ids(cluster: Remote, broker_id: int) -> AllocateProducerIdsRequest:
    return AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=cluster.epoch(broker_id))


def _make_topics(cluster: Remote) -> None:
    cluster.create(
        assigned("t", (1, 2, 3), (2, 3, 4), (4, 1, 3)),
        assigned("configured", (3, 2, 1), configs={
            "retention_ms": "1000", "cleanup_policy": "compact,delete", "min_insync_replicas": "2",
        }),
        wanted(PLACED, 3, 2),
        wanted(f"{PLACED}.by.default", -1, -1),
    )  # fmt: skip
    cluster.create(wanted("only-tried", 1, 1), validate_only=True)
    cluster.create(
        *(
            wanted(name)
            for name in ("", ".", "bad/name", "x" * 250, "t", f"{PLACED}_by.default", "tw", "tw")
        ),
        wanted("none", 0, 1),
        wanted("less", -2, 1),
        wanted("alone", 1, 0),
        wanted("lonely", 1, -2),
        wanted("too-many", 1, 9),
        wanted("unknown", 1, 1, configs={"no_such_setting": "1"}),
        wanted("wrong", 1, 1, configs={"retention_ms": "x"}),
        wanted("wrong-list", 1, 1, configs={"cleanup_policy": "never"}),
        wanted("out-of-range", 1, 1, configs={"min_insync_replicas": "0"}),
        assigned("nowhere", (1, 9)),
        assigned("twice", (1, 1)),
        assigned("empty", ()),
        assigned("unequal", (1, 2), (3,)),
    )
    grow = CreatePartitionsRequest

    def growth(name: str, count: int, *assignments: Sequence[int]) -> CreatePartitionsTopic:
        given = tuple(CreatePartitionsAssignment(broker_ids=tuple(each)) for each in assignments)
        return CreatePartitionsTopic(name=name, count=count, assignments=given or None)

    for is_tried in (True, False):
        request = grow(
            topics=(
                growth("t", 5, (1, 2, 4), (3, 4, 1)),
                growth("none", 5),
                growth("configured", 1),
                growth(f"{PLACED}.by.default", 3, (1, 2)),
            ),
            timeout_ms=5000,
            validate_only=is_tried,
        )
        cluster.do(ApiKey.CREATE_PARTITIONS, request)
    for each in (
        growth(PLACED, 4), growth("t", 6, (1, 2)), growth("t", 6, (1, 2, 9)),
        growth("t", 6, (1, 2, 3), (2, 3, 1)), growth("t", 6, (1, 1, 2)), growth("t", 6, ()),
    ):  # fmt: skip
        cluster.do(
            ApiKey.CREATE_PARTITIONS, grow(topics=(each,), timeout_ms=5000, validate_only=False)
        )
    _delete(cluster, PLACED, f"{PLACED}.by.default")


def _delete(cluster: Remote, *topics: tuple[str | None, UUID] | str) -> None:
    named = [(each, NO_UUID) if isinstance(each, str) else each for each in topics]
    wanted = tuple(DeleteTopicState(name=name, topic_id=each) for name, each in named)
    cluster.do(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=wanted, timeout_ms=5000))


def _alter(cluster: Remote) -> None:
    def member(broker_id: int, epoch: int | None = None) -> BrokerState:
        own = cluster.epoch(broker_id) if epoch is None else epoch
        return BrokerState(broker_id=broker_id, broker_epoch=own)

    cluster.alter(member(1), member(2))
    cluster.alter(member(1), member(2), member(3))
    for version in (2, 3):
        cluster.alter(1, 3, version=version)
        cluster.alter(1, 3, 2, version=version)
    for fields in (
        {"leader_epoch": 5}, {"partition_epoch": 500}, {"leader_epoch": -1},
        {"partition_epoch": 0}, {"broker_id": 2}, {"number": 77, "broker_id": 1},
        {"topic_id": UUID(int=7)}, {"leader_recovery_state": 1},
    ):  # fmt: skip
        cluster.alter(member(1), member(2), **fields)
    cluster.alter(member(1), member(4))
    cluster.alter(member(2), member(3))
    cluster.alter(member(1), member(1))
    cluster.alter()
    cluster.alter(member(1), member(2, 1))
    with suppress(IndexError):  # The answer has no partitions.
        cluster.alter(member(1), member(2), broker_epoch=1)


def _configure(cluster: Remote) -> None:
    put, delete, append, subtract = ConfigOperation
    topic, broker, logger = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
    metrics, group = ResourceType.CLIENT_METRICS, ResourceType.GROUP
    changes: Sequence[tuple[int, str, tuple[str, int, str | None]]] = (
        (topic, "t", ("retention.ms", put, "5000")),
        (topic, "t", ("retention.ms", put, "5000")),
        (topic, "t", ("cleanup.policy", append, "compact")),
        (topic, "t", ("cleanup.policy", subtract, "delete")),
        (topic, "t", ("cleanup.policy", delete, None)),
        (topic, "t", ("cleanup.policy", delete, "compact")),
        (topic, "t", ("min.insync.replicas", put, "2")),
        (topic, "t", ("retention.ms", put, "x")),
        (topic, "t", ("retention.ms", append, "1")),
        (topic, "t", ("no.such.setting", put, "1")),
        (topic, "t", ("no.such.setting", delete, None)),
        (topic, "t", ("min.insync.replicas", put, "0")),
        (topic, "t", ("compression.type", put, "rar")),
        (topic, "none", ("retention.ms", put, "1")),
        (topic, "", ("retention.ms", put, "1")),
        (topic, "bad/name", ("retention.ms", put, "1")),
        (broker, "", ("log.cleaner.threads", put, "2")),
        (broker, "", ("log.cleaner.threads", put, "2")),
        (broker, "2", ("log.cleaner.threads", put, "3")),
        (broker, "2", ("log.cleaner.threads", delete, None)),
        (broker, "2", ("log.cleaner.threads", delete, None)),
        (broker, "77", ("log.cleaner.threads", put, "3")),
        (broker, "two", ("log.cleaner.threads", put, "3")),
        (broker, "-1", ("log.cleaner.threads", put, "3")),
        (broker, "", ("log.cleanup.policy", append, "compact")),
        (broker, "", ("log.cleanup.policy", subtract, "delete")),
        (broker, "", ("log.cleanup.policy", delete, None)),
        (broker, "", ("log.cleaner.threads", append, "2")),
        (broker, "101", ("log.cleaner.threads", put, "2")),
        (broker, "", ("min.insync.replicas", put, "2")),
        (broker, "", ("min.insync.replicas", delete, None)),
        (broker, "2", ("min.insync.replicas", put, "2")),
        (broker, "", ("min.insync.replicas", put, "1")),
        (metrics, "m", ("interval.ms", put, "60000")),
        (metrics, "m", ("metrics", put, "org.apache.kafka.producer.")),
        (metrics, "m", ("metrics", append, "org.apache.kafka.consumer.")),
        (metrics, "m", ("match", put, "client_id=a.*")),
        (metrics, "m", ("match", put, "nothing=a")),
        (metrics, "m", ("interval.ms", put, "1")),
        (metrics, "m", ("interval.ms", put, "x")),
        (metrics, "m", ("no.such.setting", put, "1")),
        (metrics, "", ("interval.ms", put, "60000")),
        (metrics, "m", ("match", delete, None)),
        (group, "g", ("consumer.session.timeout.ms", put, "50000")),
        (group, "g", ("consumer.heartbeat.interval.ms", put, "6000")),
        (group, "g", ("consumer.session.timeout.ms", put, "1")),
        (group, "g", ("consumer.session.timeout.ms", put, "x")),
        (group, "g", ("consumer.session.timeout.ms", append, "1")),
        (group, "g", ("no.such.setting", put, "1")),
        (group, "", ("consumer.session.timeout.ms", put, "50000")),
        (group, "g", ("consumer.session.timeout.ms", delete, None)),
        (77, "x", ("a", put, "b")),
    )
    for kind, name, change in changes:
        cluster.configure(kind, name, change)
    cluster.configure(topic, "t", ("segment.ms", put, "1000"), ("retention.bytes", put, "5"))
    cluster.configure(topic, "t", ("segment.ms", put, "2000"), ("retention.ms", put, "x"))
    replaced: Sequence[tuple[int, str, Mapping[str, str | None]]] = (
        (topic, "t", {"retention.ms": "7000"}),
        (topic, "t", {"retention.ms": None}),
        (topic, "t", {"retention.ms": "x"}),
        (topic, "t", {}),
        (broker, "2", {"log.cleaner.threads": "2"}),
        (broker, "2", {}),
        (group, "g", {"consumer.session.timeout.ms": "46000"}),
        (metrics, "m", {"interval.ms": "1"}),
        (logger, "101", {"kafka": "INFO"}),
    )
    for kind, name, configs in replaced:
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=tuple(AlterableConfig(name=key, value=each) for key, each in configs.items()),
        )
        for is_tried in (True, False):
            request = AlterConfigsRequest(resources=(resource,), validate_only=is_tried)
            cluster.do(ApiKey.ALTER_CONFIGS, request)


def _move(cluster: Remote) -> None:
    cluster.reassign((4, 2, 3))
    cluster.do(ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest())
    cluster.reassign((4, 2))
    cluster.reassign(None)
    cluster.reassign(None)
    cluster.reassign((4, 2, 3))
    cluster.alter(1, 2, 3, 4)
    cluster.reassign((2, 3))
    cluster.reassign((1, 2, 3), allows_factor=False)
    for target in ((), (2, 2), (9,), (2, 3)):
        cluster.reassign(target)
    cluster.reassign((1,), number=99)
    # Not below `min.insync.replicas`: Kafka then keeps eligible leaders that are no replicas, as
    # `partition_changes` says, and Tailrace does not.
    cluster.reassign((1, 2), name="configured")
    cluster.do(ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest())
    named = ListPartitionReassignmentsTopics(name="configured", partition_indexes=(0, 5))
    cluster.do(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(topics=(named,))
    )
    cluster.reassign(None, name="configured")


def _elect(cluster: Remote) -> None:
    cluster.topic((1, 2), name="careless", unclean_leader_election_enable="true")
    cluster.topic((1, 2), name="careful")
    preferred, unclean = 0, 1
    cluster.fence(1)
    cluster.elect(preferred, 0, 1, 2, 99)
    cluster.fence(2)
    cluster.elect(unclean, 0, name="careful")
    cluster.beat(1)
    cluster.elect(unclean, 0, name="careful")
    cluster.elect(unclean, 0, name="careful")
    cluster.beat(2)
    cluster.elect(preferred, 0, 1, 2, name="t")
    everything = ElectLeadersRequest(election_type=preferred, topic_partitions=None)
    cluster.do(ApiKey.ELECT_LEADERS, everything)
    cluster.do(ApiKey.ELECT_LEADERS, replace(everything, election_type=unclean))
    cluster.do(ApiKey.ELECT_LEADERS, replace(everything, election_type=7))


def _lose_directories(cluster: Remote) -> None:
    first, second = directory(4), directory(4, 1)
    topic = cluster.state.image.topic("t")
    assert topic is not None
    places = [(second, topic.topic_id, 1), (first, topic.topic_id, 2)]
    cluster.report(4, places)
    cluster.report(4, places)
    cluster.report(4, [(directory(9), topic.topic_id, 1), (first, topic.topic_id, 77)])
    cluster.report(1, [(directory(1), topic.topic_id, 1), (directory(1), UUID(int=9), 0)])
    cluster.beat(4, offline_log_dirs=(second,))
    cluster.beat(4, offline_log_dirs=(second,))
    cluster.beat(4, cordoned_log_dirs=(first,))
    cluster.create(wanted("cordoned", 1, 4))
    cluster.beat(4, cordoned_log_dirs=())


def _change_levels(cluster: Remote) -> None:
    up, down, unsafe = 1, 2, 3
    changes: Sequence[Sequence[tuple[str, int, int]]] = (
        [("group.version", 0, down)],
        [("group.version", 1, up)],
        [("group.version", 1, up)],
        [("group.version", 9, up)],
        [("no.such.version", 1, up)],
        [("metadata.version", 30, up)],
        [("metadata.version", 29, up)],
        [("metadata.version", 29, down)],
        [("metadata.version", 29, unsafe)],
        [("metadata.version", 99, up)],
        [("metadata.version", 1, down)],
        [("transaction.version", 1, down), ("no.such.version", 1, up)],
        [("transaction.version", 1, down), ("share.version", 0, down)],
        [("transaction.version", 2, up), ("share.version", 1, up)],
        [("kraft.version", 0, down)],
        [("kraft.version", 1, up)],
        [("eligible.leader.replicas.version", 0, down)],
        [("eligible.leader.replicas.version", 1, up)],
        [("group.version", 0, 9)],
        [],
    )
    for each in changes:
        for is_tried in (True, False):
            request = UpdateFeaturesRequest(
                feature_updates=tuple(
                    FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                    for name, level, kind in each
                ),
                validate_only=is_tried,
            )
            for version in (1, 2):
                cluster.do(ApiKey.UPDATE_FEATURES, request, version=version)


def _leave(cluster: Remote) -> None:
    for each in (
        {"want_shut_down": True}, {}, {"want_shut_down": True, "current_metadata_offset": 1},
        {"want_shut_down": True}, {"broker_epoch": 1}, {"broker_epoch": 1 << 50},
    ):  # fmt: skip
        cluster.beat(3, **each)
    cluster.register(3, previous_broker_epoch=cluster.epoch(3))
    cluster.beat(3)
    cluster.fence(4)
    for broker_id in (4, 4, 77):
        cluster.do(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=broker_id))
    cluster.do(
        ApiKey.BROKER_HEARTBEAT,
        BrokerHeartbeatRequest(
            broker_id=4, broker_epoch=1, current_metadata_offset=1, want_fence=False,
            want_shut_down=False,
        ),
    )  # fmt: skip
    cluster.register(4)
    cluster.beat(4)
    topic = cluster.state.image.topic("careless")
    assert topic is not None
    _delete(
        cluster, "configured", (None, topic.topic_id), "none", (None, UUID(int=5)),
        ("t", topic.topic_id), (None, NO_UUID), "careful", "careful",
    )  # fmt: skip
    by_name = DeleteTopicsRequest(topic_names=("cordoned", "none"), timeout_ms=5000)
    cluster.do(ApiKey.DELETE_TOPICS, by_name, version=5)


def _serve(cluster: Remote) -> None:
    """Unfence all brokers; some may be on their way out."""
    for broker_id in [*cluster.state.image.brokers] * 3:
        cluster.beat(broker_id)


class _Course(Course):
    """A course without a fault of Kafka's controller, which `partition_changes` names."""

    def configure(self) -> None:
        """The size of an ISR changes, unless that clears eligible leaders.

        Kafka's index keeps those, and changes their partitions twice when such a broker goes.
        """
        topic = self.cluster.state.image.topic("strict")
        if topic and not any(map(_may_lead_later, topic.partitions.values())):
            super().configure()


def _course(cluster: Remote, seed: int) -> None:
    """Random requests about the same three topics, which are made again.

    Each partition has a replica in sync when they go. Of one that has none Kafka's controller keeps
    the directories for ever (`replay` of a RemoveTopicRecord), and resigns when one of these fails.
    """
    brokers = cluster.state.image.brokers
    _come_back(cluster, *(each for each in BROKERS if each not in brokers))
    known = [each for each in map(cluster.state.image.topic, TOPICS) if each is not None]
    for topic in known:
        lost = [each.partition_id for each in topic.partitions.values() if not each.isr]
        cluster.elect(_UNCLEAN, *lost, name=topic.name)
    _delete(cluster, *(each.name for each in known))
    # Who wants to stop stays in its controlled shutdown until it registers again.
    brokers = cluster.state.image.brokers
    _come_back(cluster, *(each for each in brokers if brokers[each].in_controlled_shutdown))
    course = _Course(seed, cluster)
    for _ in range(STEPS):
        course.step()


def _come_back(cluster: Remote, *broker_ids: int) -> None:
    """Register these brokers again, and have all brokers serve."""
    for each in broker_ids:
        # Without that the session lasts, which is long here.
        if each in cluster.state.image.brokers:
            request = UnregisterBrokerRequest(broker_id=each)
            cluster.do(ApiKey.UNREGISTER_BROKER, request)
        cluster.register(each, log_dirs=(directory(each), directory(each, 1)))
    _serve(cluster)
