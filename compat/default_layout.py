"""Kafka and our broker use a directory in turn; the metadata log lies among the partitions.

1  Kafka makes topics and writes to them, and stops
2  our broker serves the directory: it takes records, compacts, makes a topic and deletes one
3  our broker serves it again and is killed
4  Kafka starts on the same directory, in place, serves everything and makes a topic
5  our broker serves it once more

Each finds the topics that the other has made, and none that the other has deleted.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from compat import clients, ours
from compat.bytewise import copy_directory, folder_differences, read_differences
from compat.clients import ReadBack, Sender
from compat.kafka import Kafka
from compat.kafka_to_us import wait_until_cleaned
from compat.report import Report
from compat.topics import SMALL, TOPICS, configure, create_topics
from tailrace.errors import FatalError
from tailrace.model import METADATA_TOPIC

PLAIN, KEYS, GONE, OURS, LATER = "plain", "compacted", "gone", "ours", "later"
KAFKAS = {PLAIN: SMALL, KEYS: TOPICS[KEYS], GONE: SMALL}
RECORD_COUNT = 300
EAGER = {"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "500"}


def check(report: Report, kafka: Kafka, scratch: Path) -> None:
    """The whole way, with `kafka` on a directory of its own."""
    sent: list[Sender] = []
    with kafka:
        create_topics(kafka.bootstrap_servers, KAFKAS)
        sent.append(_send(kafka.bootstrap_servers, PLAIN, GONE))
        clients.produce_keys(kafka.bootstrap_servers, KEYS)
    if not (kafka.logs / f"{METADATA_TOPIC}-0").is_dir():
        raise FatalError(f"{kafka.logs} has no metadata log, as it would by default")
    report.check("a directory of the default layout passes verify", ours.verify(kafka.logs))
    with ours.serving(kafka.logs, settings=EAGER) as servers:
        listed = _listed(servers)
        configure(servers, KAFKAS)
        sent.append(_send(servers, PLAIN))
        clients.produce_keys(servers, KEYS)
        wait_until_cleaned(kafka.logs, (KEYS,))
        create_topics_here(servers, OURS)
        sent.append(_send(servers, OURS))
        _delete(servers, GONE)
    report.check(
        "our broker lists the topics of a directory of the default layout, without metadata",
        sorted(listed ^ KAFKAS.keys()),
    )
    with ours.serving(kafka.logs, settings=EAGER, ending=signal.SIGKILL) as servers:
        sent.append(_send(servers, PLAIN, OURS))
        expected = clients.read_topics(servers, [PLAIN, KEYS])
    made = copy_directory(kafka.logs / f"{OURS}-0", scratch / "made-by-us")
    with kafka:
        kafka_listed = _listed(kafka.bootstrap_servers)
        read = clients.read_topics(kafka.bootstrap_servers, [PLAIN, KEYS, OURS])
        clients.produce_more(kafka.bootstrap_servers, PLAIN)
        create_topics(kafka.bootstrap_servers, {LATER: SMALL})
        went_on = clients.read_topics(kafka.bootstrap_servers, [PLAIN, KEYS])
    report.check(
        "Kafka starts on it in place and reads what our broker served",
        list(_differences(expected, read)),
    )
    report.check(
        "all that either broker acknowledged is there",
        [
            each
            for topic in (PLAIN, OURS)
            for sender in sent
            for each in clients.lost(
                (one for one in sender.acknowledged if one.topic == topic), read[topic, False]
            )
        ],
    )
    report.check(
        "Kafka has the topic that our broker made, and not the one that it deleted",
        [
            *sorted(kafka_listed ^ {PLAIN, KEYS, OURS}),
            *folder_differences(made, kafka.logs / f"{OURS}-0", suffixes=(".log",)),
            *(path.name for path in kafka.logs.glob("*-stray")),
        ],
    )
    with ours.serving(kafka.logs) as servers:
        listed = _listed(servers)
        served = clients.read_topics(servers, [PLAIN, KEYS])
    report.check(
        "our broker serves it again, with what Kafka has gone on with",
        [*_differences(went_on, served), *sorted(listed ^ {PLAIN, KEYS, LATER, OURS})],
    )
    report.check("and it passes verify in the end", ours.verify(kafka.logs))


def create_topics_here(bootstrap_servers: str, topic: str) -> None:
    """Create a topic in our broker, under the names that it has for its settings."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    wanted = NewTopic(topic, num_partitions=1, replication_factor=1, config=dict(SMALL))
    for future in admin.create_topics([wanted]).values():
        future.result()


def _send(bootstrap_servers: str, *topics: str) -> Sender:
    sender = Sender(bootstrap_servers)
    for number in range(RECORD_COUNT):
        for topic in topics:
            sender.send(topic, b"%s %d %f" % (topic.encode(), number, time.monotonic()))
    sender.flush()
    return sender


def _delete(bootstrap_servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for future in admin.delete_topics([topic]).values():
        future.result()


def _listed(bootstrap_servers: str) -> set[str]:
    """The topics that a broker lists, without Kafka's internal ones."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    internal = {"__consumer_offsets", "__transaction_state", "__share_group_state"}
    return set(admin.list_topics().topics) - internal


def _differences(
    first: dict[tuple[str, bool], ReadBack], second: dict[tuple[str, bool], ReadBack]
) -> Iterator[str]:
    for place, read in first.items():
        for each in read_differences(read, second[place]):
            yield f"{place[0]}: {each}"
