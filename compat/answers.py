"""Sends the same requests to Kafka and to our broker, on copies of one directory; compares answers.

    ListOffsets      the ends, the largest timestamp, and the first record from a time on
    DescribeConfigs  every setting of a topic that we have
    DeleteRecords    and the log start offsets that both note when they stop
    any request      for Kafka's metadata log, as if it were a topic
    retention        by size and by age: the segments that are left

Not asked about the topic with an open transaction, which Kafka's coordinator aborts meanwhile.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from compat import clients, ours
from compat.bytewise import copy_directory
from compat.clients import HOUR_MS, START_MS, ReadBack
from compat.kafka import Kafka
from compat.report import Report
from compat.topics import TOPICS, configure
from tailrace.model import METADATA_TOPIC
from tailrace.records.batch import read_batches
from tailrace.runtime.clock import SystemClock
from tailrace.runtime.files import DiskFiles
from tailrace.storage import names
from tailrace.storage.checkpoints import read_offset_checkpoint

ASKED = tuple(topic for topic in TOPICS if topic != "transactions")
EARLIEST = dict.fromkeys(ASKED, OffsetSpec.earliest())
DELETED = {"deleted": 300, "codec-gzip": 250, "codec-lz4": -1}
"""New log start offsets for DeleteRecords; -1 for the end of the log."""

RETAINED: Mapping[str, Mapping[str, str]] = {
    "codec-none": {"retention.bytes": "40000"},
    "aged": {"retention.ms": str(SystemClock().now_ms() - START_MS - 200 * HOUR_MS)},
}
EAGER = {"log.initial.task.delay.ms": "500", "log.retention.check.interval.ms": "500"}
SETTLE_SECONDS_MAX = 20
MOMENT_COUNT = 8

_SET_OTHERWISE = ("segment.bytes", "min.insync.replicas")
"""Kafka has small segments under the name `internal.segment.bytes` only. Since it has eligible
leader replicas, it sets the other one for the whole cluster, which nothing here can."""


def check(report: Report, kafka: Kafka, scratch: Path) -> None:
    """Serve two copies of what `kafka` has written, and ask both brokers."""
    theirs = kafka.moved_to(copy_directory(kafka.directory, scratch / "asked"))
    theirs.settings |= EAGER
    mine = copy_directory(theirs.logs, scratch / "asked-ours")
    # A broker that meets the topics first knows nothing of their own retention.
    settings = {**EAGER, "log.retention.ms": "-1"}
    with theirs, ours.serving(mine, settings=settings) as servers:
        configure(servers, TOPICS)
        kafka_says, we_say = (
            AdminClient({"bootstrap.servers": each, "log_level": 0})
            for each in (theirs.bootstrap_servers, servers)
        )
        _check_offsets(report, theirs, kafka_says, we_say)
        found = (_configs(admin) for admin in (kafka_says, we_say))
        report.check(
            "DescribeConfigs answers for topics as Kafka does",
            list(_config_differences(*found)),
            explained="settings that we have not, Kafka has alone",
        )
        found_answers = (_metadata_answers(admin) for admin in (kafka_says, we_say))
        report.check(
            f"requests for {METADATA_TOPIC} are answered as Kafka answers them",
            list(_answer_differences(*found_answers)),
        )
        for each in (theirs.bootstrap_servers, servers):
            for topic, before in DELETED.items():
                clients.delete_records(each, topic, before=before)
        starts = [_offsets(admin, EARLIEST) for admin in (kafka_says, we_say)]
        report.check(
            "DeleteRecords has logs start where Kafka has them start",
            list(_answer_differences(*starts)),
        )
        for each in (theirs.bootstrap_servers, servers):
            configure(each, RETAINED)
        _wait_until(lambda: all(_has_let_go(each, starts[0]) for each in (kafka_says, we_say)))
    for topic in (*DELETED, *RETAINED):
        report.check(
            f"{topic} is left with the segments that Kafka leaves, by retention or DeleteRecords",
            list(_segment_differences(topic, theirs.logs, mine)),
        )
    noted = [
        read_offset_checkpoint(DiskFiles(), str(logs / names.LOG_START_OFFSETS))
        for logs in (theirs.logs, mine)
    ]
    report.check(
        f"our {names.LOG_START_OFFSETS} says what Kafka's says after DeleteRecords",
        list(_answer_differences(*noted)),
    )


def _check_offsets(
    report: Report, kafka: Kafka, kafka_says: AdminClient, we_say: AdminClient
) -> None:
    for name, level in product(("earliest", "latest", "max_timestamp"), IsolationLevel):
        answers = [
            _offsets(admin, dict.fromkeys(ASKED, getattr(OffsetSpec, name)()), level)
            for admin in (kafka_says, we_say)
        ]
        report.check(
            f"ListOffsets ({level.name.lower()}) answers {name} for each topic as Kafka does",
            list(_answer_differences(*answers)),
        )
    places = [(topic, 0) for topic in ASKED]
    reads = clients.read_partitions(kafka.bootstrap_servers, places, is_committed=False)
    moments = {topic: _moments(read) for (topic, _), read in reads.items()}
    for number, level in product(range(MOMENT_COUNT), IsolationLevel):
        specs = {topic: OffsetSpec.for_timestamp(moments[topic][number]) for topic in ASKED}
        due, found = (_offsets(admin, specs, level) for admin in (kafka_says, we_say))
        for topic in ASKED:
            folder = kafka.logs / f"{topic}-0"
            if _has_empty_segment(folder):
                due[topic] = _first_from(folder, moments[topic][number])
        report.check(
            f"ListOffsets ({level.name.lower()}) answers time {number + 1} for each topic as Kafka",
            list(_answer_differences(due, found)),
            explained="but where cleaning has left an empty segment, in which Kafka stops looking",
        )


def _has_empty_segment(folder: Path) -> bool:
    """Whether there is an empty segment; in Kafka its age is that of its file, so it is kept."""
    return any(not each.stat().st_size for each in folder.glob("*.log"))


def _first_from(folder: Path, timestamp: int) -> tuple[int, int]:
    """Offset and timestamp of the first record from a time on, markers included."""
    for path in sorted(folder.glob("*.log")):
        for _, batch in read_batches(memoryview(path.read_bytes())):
            for each in ours.seen_in(batch):
                if each.timestamp >= timestamp:
                    return each.offset, each.timestamp
    return -1, -1


def _moments(read: ReadBack) -> list[int]:
    """Timestamps before, equal to, between and after those of the records."""
    times = sorted(each.timestamp for each in read.records)
    middle = times[len(times) // 2]
    found = [0, times[0], times[0] + 1, middle - 1, middle, middle + 1, times[-1], times[-1] + 1]
    assert len(found) == MOMENT_COUNT
    return found


def _offsets(
    admin: AdminClient,
    specs: Mapping[str, OffsetSpec],
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[str, tuple[int, int]]:
    """Offset and timestamp by topic."""
    wanted = {TopicPartition(topic, 0): spec for topic, spec in specs.items()}
    answers = admin.list_offsets(wanted, isolation_level=level)
    results = {place.topic: future.result() for place, future in answers.items()}
    return {topic: (each.offset, each.timestamp) for topic, each in results.items()}


def _configs(admin: AdminClient) -> dict[tuple[str, str], tuple[object, ...]]:
    """The described value of each setting, by topic and name."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in TOPICS]
    return {
        (resource.name, entry.name): (
            entry.value, entry.source, entry.is_default, entry.is_read_only, entry.is_sensitive,
        )
        for resource, future in admin.describe_configs(resources).items()
        for entry in future.result().values()
        if entry.name not in _SET_OTHERWISE
    }  # fmt: skip


def _metadata_answers(admin: AdminClient) -> dict[str, str]:
    """The answers to requests for Kafka's metadata log as if it were a topic."""
    name = METADATA_TOPIC
    resource = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[
            ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    futures = {
        "create": admin.create_topics([NewTopic(name, num_partitions=1)]),
        "try to create": admin.create_topics([NewTopic(name)], validate_only=True),
        "delete": admin.delete_topics([name]),
        "describe": admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]),
        "alter": admin.incremental_alter_configs([resource]),
        "delete records": admin.delete_records([TopicPartition(name, 0, 1)]),
    }
    answers = {"metadata": str(admin.list_topics(name).topics[name].error)}
    answers["all topics"] = str(name in admin.list_topics().topics)
    for what, (future,) in ((what, each.values()) for what, each in futures.items()):
        error = future.exception()
        told = error.args[0] if error is not None else future.result()
        answers[what] = told.name() if isinstance(told, KafkaError) else str(told)
    return answers


def _config_differences(
    theirs: Mapping[tuple[str, str], tuple[object, ...]],
    mine: Mapping[tuple[str, str], tuple[object, ...]],
) -> Iterator[str]:
    for place, answer in mine.items():
        if theirs.get(place) != answer:
            yield f"{place}: {theirs.get(place)} from Kafka, {answer} from us"


def _answer_differences(theirs: Mapping[Any, object], mine: Mapping[Any, object]) -> Iterator[str]:
    for place in sorted(theirs.keys() | mine.keys()):
        if theirs.get(place) != mine.get(place):
            yield f"{place}: {theirs.get(place)} from Kafka, {mine.get(place)} from us"


def _has_let_go(admin: AdminClient, before: Mapping[str, tuple[int, int]]) -> bool:
    now = _offsets(admin, EARLIEST)
    return all(now[topic][0] > before[topic][0] for topic in RETAINED)


def _segment_differences(topic: str, theirs: Path, mine: Path) -> Iterator[str]:
    first, second = (
        sorted(each.name for each in (logs / f"{topic}-0").glob("*.log")) for logs in (theirs, mine)
    )
    if first != second:
        yield f"{first} for Kafka, {second} for us"


def _wait_until(is_true: Callable[[], bool]) -> None:
    """Wait until a condition is true; after a time limit return, since a check will report it."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while not is_true() and time.monotonic() < deadline:
        time.sleep(0.1)
