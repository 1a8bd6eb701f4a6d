"""Groups and transactions in one directory, which Kafka and our broker serve in turn.

1  Kafka: groups of both protocols commit, a transaction is committed, one is aborted, one is open
2  our broker finds all of them; the groups go on, the open transaction is ended, another is opened
3  Kafka finds what our broker left, and ends the open one
4  our broker finds what Kafka left
"""

import re
import signal
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupListing

from compat import clients, ours
from compat.clients import WAIT_SECONDS
from compat.kafka import Kafka
from compat.report import Report
from compat.topics import SMALL, create_topics
from tailrace.errors import FatalError

TOPIC = "interchanged"
PARTITION_COUNT = 4
OPEN_ID = "left-open"
GROUPS: Mapping[str, Mapping[str, str]] = {
    "classic": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "static": {"group.instance.id": "static"},
    "modern": {"group.protocol": "consumer"},
    "modern-static": {"group.protocol": "consumer", "group.instance.id": "static"},
}
"""Groups and the settings of their members."""
SIMPLE = "simple"
"""A group without members, whose offsets a client commits."""
EAGER = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1",
         "transaction.state.log.num.partitions": "1"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The groups and transactions of a broker, as its clients are told."""

    groups: Mapping[str, str]
    """The state of each group."""
    offsets: Mapping[str, str]
    """Committed offset, leader epoch and metadata by group and partition."""
    transactions: Mapping[str, str]
    """State by transactional id."""
    committed: frozenset[bytes]
    """The values that a reader of committed records gets."""

    def differences(self, other: "Found") -> Iterator[str]:
        """Differences between this and what another broker tells."""
        for name in ("groups", "offsets", "transactions"):
            mine, theirs = getattr(self, name), getattr(other, name)
            for key in sorted(mine.keys() | theirs.keys()):
                if mine.get(key) != theirs.get(key):
                    yield f"{name} {key}: {mine.get(key)} is {theirs.get(key)}"
        for value in sorted(self.committed ^ other.committed):
            yield f"{value!r} is committed for one of them only"


def check(report: Report, kafka: Kafka) -> None:
    """The whole way, with `kafka` on a directory of its own, which is new."""
    with kafka:
        create_topics(kafka.bootstrap_servers, {TOPIC: SMALL}, partition_count=PARTITION_COUNT)
        opened = _work(kafka.bootstrap_servers)
        written = _find(kafka, kafka.bootstrap_servers)
        kafka.kill()
    _expect_all_kinds(written)
    del opened
    with ours.serving(kafka.logs, settings=EAGER, ending=signal.SIGKILL) as servers:
        found = _find(kafka, servers)
        report.check(
            "our broker finds Kafka's groups, offsets, transactions and committed records",
            [*written.differences(found)],
        )
        _end_open(servers)
        report.check("our broker ends the transaction that Kafka left open", [*_held_back(servers)])
        opened = _work(servers)
        written = _find(kafka, servers)
    _expect_all_kinds(written)
    del opened
    with kafka:
        servers = kafka.bootstrap_servers
        found = _find(kafka, servers)
        report.check(
            "Kafka finds our groups, offsets, transactions and committed records, after a kill",
            [*written.differences(found)],
        )
        _end_open(servers)
        report.check("Kafka ends the transaction that our broker left open", [*_held_back(servers)])
        _work(servers)
        _end_open(servers)
        written = _find(kafka, servers)
    with ours.serving(kafka.logs, settings=EAGER) as servers:
        found = _find(kafka, servers)
        report.check("and our broker finds what Kafka went on with", [*written.differences(found)])
    report.check("and the directory passes verify", ours.verify(kafka.logs))


def _work(servers: str) -> Producer:
    """Let each group go on, end some transactions, and return the producer of an open one."""
    producer = _producer(servers, "ended")
    for ended in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(40):
            value = f"{ended.__name__} {number} {uuid.uuid4()}"
            producer.produce(TOPIC, value, partition=number % PARTITION_COUNT)
        ended(WAIT_SECONDS)
    for group, settings in GROUPS.items():
        _consume(servers, group, settings)
    consumer = Consumer(_reader(servers, SIMPLE))
    consumer.commit(
        offsets=[TopicPartition(TOPIC, 1, 7, metadata="with metadata", leader_epoch=0)],
        asynchronous=False,
    )
    consumer.close()
    opened = _producer(servers, OPEN_ID)
    opened.begin_transaction()
    opened.produce(TOPIC, "never decided", partition=0)
    opened.flush(WAIT_SECONDS)
    return opened


def _consume(servers: str, group: str, settings: Mapping[str, str]) -> None:
    """Read a little as a member of the group, commit, and leave."""
    consumer = Consumer(_reader(servers, group) | dict(settings))
    consumer.subscribe([TOPIC])
    message = consumer.poll(WAIT_SECONDS)
    if message is None or message.error():
        raise FatalError(f"{group} has got no record: {message and message.error()}")
    consumer.commit(message, asynchronous=False)
    consumer.close()


def _find(kafka: Kafka, servers: str) -> Found:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    listed = _groups(admin)
    offsets = {}
    for group in listed:
        asked = [ConsumerGroupTopicPartitions(group.group_id)]
        for told in admin.list_consumer_group_offsets(asked).values():
            for each in told.result().topic_partitions:
                offsets[f"{group.group_id} {each.topic}-{each.partition}"] = (
                    f"{each.offset} {each.leader_epoch} {each.metadata}"
                )
    places = [(TOPIC, number) for number in range(PARTITION_COUNT)]
    read = clients.read_partitions(servers, places, is_committed=True)
    return Found(
        groups={each.group_id: f"{each.state.name} {each.type.name}" for each in listed},
        offsets=offsets,
        transactions=_transactions(kafka, servers),
        committed=frozenset(each.value or b"" for one in read.values() for each in one.records),
    )


def _groups(admin: AdminClient) -> list[ConsumerGroupListing]:
    """The groups of a broker, when it has loaded them.

    Raises:
        FatalError: that takes too long.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        told = admin.list_consumer_groups().result()
        found = [each for each in told.valid if each.group_id != "compat"]
        if found and not told.errors:
            return found
        if time.monotonic() > deadline:
            raise FatalError(f"the broker tells of no groups: {told.errors}")
        time.sleep(0.2)


def _transactions(kafka: Kafka, servers: str) -> dict[str, str]:
    """State by transactional id, as Kafka's own tool tells."""
    printed = kafka.run_tool("TransactionsCommand", "--bootstrap-server", servers, "list")
    return {
        found["id"]: found["state"]
        for found in re.finditer(r"(?m)^(?P<id>\S+)\s+\d+\s+\d+\s+(?P<state>\w+)\s*$", printed)
    }


def _end_open(servers: str) -> None:
    """Abort what another producer of the same id has left open."""
    _producer(servers, OPEN_ID)


def _held_back(servers: str) -> Iterator[str]:
    """Partitions whose committed records end before the log does."""
    for number in range(PARTITION_COUNT):
        ends = [
            clients.read_back(servers, TOPIC, is_committed=each, partition=number).end
            for each in (False, True)
        ]
        if ends[0] != ends[1]:
            yield f"{TOPIC}-{number}: committed records end at {ends[1]}, the log at {ends[0]}"


def _expect_all_kinds(written: Found) -> None:
    states = set(written.transactions.values())
    if written.groups.keys() != {*GROUPS, SIMPLE} or "Ongoing" not in states:
        raise FatalError(f"not everything is there that is to be found: {written}")


def _reader(servers: str, group: str) -> dict[str, str | bool | int]:
    return {
        "bootstrap.servers": servers,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "log_level": 0,
    }


def _producer(servers: str, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 600_000,
            "error_cb": lambda _: None,
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_SECONDS)
    return producer
