"""Transactions of confluent-kafka, kafka-python, aiokafka and our producer on a real broker."""

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace import Broker, Producer
from tailrace.client.producer.errors import BrokerRefusedError, ProducerFencedError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.testing import TestBroker
from tailrace.testing.proxy import Action, Direction, Proxy
from tests.wire.clients import TIMEOUT_S, kafka
from tests.wire.test_serve import serving

pytestmark = pytest.mark.wire

SETTINGS = {
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a broker that looks for transactions that are open for too long often."""
    with Broker(tmp_path_factory.mktemp("transactions") / "data", settings=SETTINGS) as broker:
        yield broker.bootstrap_servers


class AbandonedError(Exception):
    """Raised in a transaction to abort it."""


def confluent(address: str, transactional_id: str, **settings: Any) -> confluent_kafka.Producer:
    """A producer of confluent-kafka that has its producer id."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "transactional.id": transactional_id, **settings}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def write_with_confluent(address: str, topic: str, ends: list[bool]) -> None:
    """One transaction for each of `ends`, which is committed or aborted, of three records."""
    producer = confluent(address, topic)
    for number, is_commit in enumerate(ends):
        producer.begin_transaction()
        for each in range(3):
            producer.produce(topic, b"%d.%d" % (number, each))
        producer.flush(TIMEOUT_S)
        if is_commit:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)


def write_with_kafka_python(address: str, topic: str, ends: list[bool]) -> None:
    """See `write_with_confluent`."""
    producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=topic)
    producer.init_transactions()
    for number, is_commit in enumerate(ends):
        producer.begin_transaction()
        for each in range(3):
            producer.send(topic, b"%d.%d" % (number, each))
        producer.flush()
        if is_commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


def write_with_aiokafka(address: str, topic: str, ends: list[bool]) -> None:
    """See `write_with_confluent`."""

    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic)
        await producer.start()
        for number, is_commit in enumerate(ends):
            with suppress(AbandonedError):
                async with producer.transaction():
                    for each in range(3):
                        await producer.send_and_wait(topic, b"%d.%d" % (number, each))
                    if not is_commit:
                        raise AbandonedError
        await producer.stop()

    asyncio.run(asyncio.wait_for(write(), TIMEOUT_S))


def write_with_tailrace(address: str, topic: str, ends: list[bool]) -> None:
    """See `write_with_confluent`."""
    with Producer(bootstrap_servers=address, transactional_id=topic) as producer:
        for number, is_commit in enumerate(ends):
            with suppress(AbandonedError), producer.transaction():
                for each in range(3):
                    producer.send(topic, b"%d.%d" % (number, each))
                producer.flush()
                if not is_commit:
                    raise AbandonedError


def consumer_of(address: str, group: str, **settings: Any) -> confluent_kafka.Consumer:
    """A read_committed consumer of confluent-kafka that commits nothing by itself."""
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            **settings,
        }
    )


def read_with_confluent(address: str, topic: str) -> list[bytes]:
    """The values of partition 0 of a topic up to its end, for a read_committed consumer."""
    consumer = consumer_of(address, "none", **{"enable.partition.eof": True})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "nothing came"
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            break
        values.append(message.value() or b"")
    consumer.close()
    return values


def read_with_kafka_python(address: str, topic: str) -> list[bytes]:
    """See `read_with_confluent`; reads up to the end that it is told."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    end = consumer.end_offsets([partition])[partition]
    values: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while consumer.position(partition) < end and time.monotonic() < deadline:
        for found in consumer.poll(200).values():
            values += [each.value for each in found]
    consumer.close()
    return values


def read_with_aiokafka(address: str, topic: str) -> list[bytes]:
    """See `read_with_kafka_python`."""

    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address, isolation_level="read_committed"
        )
        partition = aiokafka.TopicPartition(topic, 0)
        await consumer.start()
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        values: list[bytes] = []
        while await consumer.position(partition) < end:
            for found in (await consumer.getmany(timeout_ms=200)).values():
                values += [each.value for each in found]
        await consumer.stop()
        return values

    return asyncio.run(asyncio.wait_for(read(), TIMEOUT_S))


WRITERS = (
    write_with_confluent,
    write_with_kafka_python,
    write_with_aiokafka,
    write_with_tailrace,
)
READERS = (read_with_confluent, read_with_kafka_python, read_with_aiokafka)


def create(address: str, topic: str) -> None:
    """Create a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": address})
    created = admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    created[topic].result(TIMEOUT_S)


def eventually(read: Callable[[], list[bytes]], expected: list[bytes]) -> None:
    """Read until the values are these: markers come after the answer to EndTxn."""
    deadline = time.monotonic() + TIMEOUT_S
    found = read()
    while found != expected and time.monotonic() < deadline:
        found = read()
    assert found == expected


@pytest.mark.parametrize("writer", WRITERS)
def test_every_client_reads_what_every_client_commits(
    address: str, writer: Callable[[str, str, list[bool]], None]
) -> None:
    """A committed, an aborted and a committed transaction: the first and the last are there."""
    topic = f"mixed.{writer.__name__}"
    create(address, topic)
    writer(address, topic, [True, False, True])
    expected = [b"%d.%d" % (number, each) for number in (0, 2) for each in range(3)]
    for reader in READERS:
        eventually(lambda reader=reader: reader(address, topic), expected)  # type: ignore[misc]


def test_a_second_producer_fences_the_first_of_confluent(address: str) -> None:
    """The open transaction of the first is aborted; the first cannot commit any more."""
    create(address, "fenced.confluent")
    first = confluent(address, "fenced.confluent")
    first.begin_transaction()
    first.produce("fenced.confluent", b"lost")
    first.flush(TIMEOUT_S)
    second = confluent(address, "fenced.confluent")
    second.begin_transaction()
    second.produce("fenced.confluent", b"kept")
    second.commit_transaction(TIMEOUT_S)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        first.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
    eventually(lambda: read_with_confluent(address, "fenced.confluent"), [b"kept"])


def test_a_second_producer_fences_the_first_of_ours(address: str) -> None:
    """The same with our producer, whose error says so."""
    create(address, "fenced.own")
    with (
        pytest.raises(ProducerFencedError),
        Producer(bootstrap_servers=address, transactional_id="fenced.own") as first,
        first.transaction(),
    ):
        commit_beside(first, address)
    eventually(lambda: read_with_confluent(address, "fenced.own"), [b"0.0", b"0.1", b"0.2"])


def commit_beside(first: Producer, address: str) -> None:
    """Write in the open transaction of the first, then commit one of a second."""
    first.send("fenced.own", b"lost").result(TIMEOUT_S)
    write_with_tailrace(address, "fenced.own", [True])


def test_a_transaction_that_is_open_for_too_long_is_aborted(address: str) -> None:
    """Readers behind it go on, and its producer cannot commit it; ours says why."""
    create(address, "late")
    own = Producer(
        bootstrap_servers=address, transactional_id="late-own", transaction_timeout_ms=1000
    )
    own.begin_transaction()
    own.send("late", b"lost too").result(TIMEOUT_S)
    producer = confluent(address, "late", **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    producer.produce("late", b"lost")
    producer.flush(TIMEOUT_S)
    with Producer(bootstrap_servers=address) as plain:
        plain.send("late", b"behind").result(TIMEOUT_S)
    eventually(lambda: read_with_confluent(address, "late"), [b"behind"])
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    with pytest.raises(BrokerRefusedError, match=r"longer than transaction\.timeout\.ms \(1000 ms"):
        own.commit_transaction()
    own.close()


def test_librdkafka_dies_of_an_abort_whose_beginning_was_lost(tmp_path: Path) -> None:
    """No AddPartitionsToTxn arrives, EndTxn does: a coordinator has the commit before, as Kafka's.

    librdkafka cannot know which requests arrived, asks to abort what may be there, and takes the
    refusal (Kafka's, by `transaction_answers.tsv`) for fatal. The next producer goes on.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = "{}:{}".format(*free.getsockname())
    with (
        Proxy(own) as proxy,
        Broker(
            tmp_path / "data",
            listen=own,
            settings={**SETTINGS, "advertised.listeners": f"PLAINTEXT://{proxy.address}"},
        ),
    ):
        create(proxy.address, "begun")
        producer = confluent(proxy.address, "begun", log_level=0)
        producer.begin_transaction()
        producer.produce("begun", b"before")
        producer.commit_transaction(TIMEOUT_S)
        proxy.disturb(Direction.REQUEST, Action.CUT, {ApiKey.ADD_PARTITIONS_TO_TXN})
        producer.begin_transaction()
        producer.produce("begun", b"never added")
        assert proxy.wait_for_disturbed(1, timeout_s=TIMEOUT_S)
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            producer.abort_transaction(TIMEOUT_S)
        assert raised.value.args[0].code() == confluent_kafka.KafkaError.INVALID_TXN_STATE
        assert raised.value.args[0].fatal()
        proxy.heal()
        write_with_confluent(proxy.address, "begun", [True])
        expected = [b"before", b"0.0", b"0.1", b"0.2"]
        eventually(lambda: read_with_confluent(proxy.address, "begun"), expected)


def test_librdkafka_is_told_that_it_repeats_what_it_has_aborted() -> None:
    """It reuses a sequence number; without the refusal the record would be committed and lost."""
    with TestBroker() as broker:
        broker.create_topic("t")
        producer = confluent(broker.bootstrap_servers, "reuses")
        producer.begin_transaction()
        producer.produce("t", b"first")
        producer.flush(TIMEOUT_S)
        with broker.drop("Produce", handled=True):
            producer.produce("t", b"aborted")
            while len(broker.log("t").values()) < 2:
                producer.poll(0.01)
            producer.abort_transaction(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("t", b"refused")
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            producer.commit_transaction(TIMEOUT_S)
        assert refused.value.args[0].txn_requires_abort()
        producer.abort_transaction(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("t", b"last")
        producer.commit_transaction(TIMEOUT_S)
        assert broker.log("t").values() == [b"first", b"aborted", b"last"]


def test_consume_transform_produce_is_exactly_once(address: str) -> None:
    """Every second transaction is aborted and done again: each record is there once."""
    create(address, "in")
    create(address, "out")
    with Producer(bootstrap_servers=address) as plain:
        for number in range(20):
            plain.send("in", b"%d" % number)
    consumer = consumer_of(address, "transform")
    consumer.subscribe(["in"])
    producer = confluent(address, "transform")
    transform(consumer, producer, count=20, is_aborted=lambda number: number % 2 == 0)
    consumer.close()
    expected = [b"%d" % number for number in range(20)]
    eventually(lambda: read_with_confluent(address, "out"), expected)


def transform(
    consumer: confluent_kafka.Consumer,
    producer: confluent_kafka.Producer,
    *,
    count: int,
    is_aborted: Callable[[int], bool],
) -> None:
    """Copy records from topic in to topic out, up to four in a transaction, with their offsets."""
    done = turn = 0
    while done < count:
        messages = [each for each in consumer.consume(4, 1.0) if each.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce("out", message.value())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        if is_aborted(turn):
            producer.abort_transaction(TIMEOUT_S)
            for message in messages[:1]:
                consumer.seek(
                    confluent_kafka.TopicPartition("in", message.partition(), message.offset())
                )
        else:
            producer.commit_transaction(TIMEOUT_S)
            done += len(messages)
        turn += 1


def test_transactions_that_follow_at_once_wait_for_the_markers_before(address: str) -> None:
    """Records and offsets of the next one come while those of the last are being completed."""
    create(address, "rapid")
    place = TopicPartition("rapid", 0)
    with Producer(bootstrap_servers=address, transactional_id="rapid", linger_ms=0) as producer:
        receipts = []
        for number in range(60):
            with producer.transaction():
                receipts.append(producer.send("rapid", b"%d" % number, partition=0))
                producer.send_offsets_to_transaction({place: number}, "rapid")
        offsets = [each.offset for each in receipts]
    assert offsets == sorted(set(offsets))
    consumer = consumer_of(address, "rapid")
    [found] = consumer.committed([confluent_kafka.TopicPartition("rapid", 0)], TIMEOUT_S)
    consumer.close()
    assert found.offset == 59


def test_an_abort_may_follow_a_commit_at_once(address: str) -> None:
    """Its EndTxn comes while the markers of the commit are written, and is not refused for that."""
    create(address, "turns")
    due = [b"c%d" % number for number in range(50)]
    with Producer(bootstrap_servers=address, transactional_id="turns") as producer:
        for number, value in enumerate(due):
            producer.begin_transaction()
            producer.send("turns", value)
            producer.commit_transaction()
            producer.begin_transaction()
            producer.send("turns", b"a%d" % number)
            producer.abort_transaction()
    assert read_with_confluent(address, "turns") == due


def test_our_producer_commits_offsets_of_a_group(address: str) -> None:
    """A consumer of the group goes on behind them; those of an aborted transaction do not count."""
    create(address, "offsets")
    place = TopicPartition("offsets", 0)
    with Producer(bootstrap_servers=address, transactional_id="offsets") as producer:
        with producer.transaction():
            producer.send_offsets_to_transaction({place: 7}, "ours")
        with suppress(AbandonedError), producer.transaction():
            producer.send_offsets_to_transaction({place: 9}, "ours")
            raise AbandonedError
    consumer = consumer_of(address, "ours")
    [found] = consumer.committed([confluent_kafka.TopicPartition("offsets", 0)], TIMEOUT_S)
    consumer.close()
    assert found.offset == 7


@contextmanager
def killed(data: Path, port: int) -> Iterator[str]:
    """A broker as a process, which is killed at the end; its address."""
    options = [f"--override={name}={value}" for name, value in SETTINGS.items()]
    with serving(data, f"--listen=127.0.0.1:{port}", *options) as (process, address):
        try:
            yield address
        finally:
            process.send_signal(signal.SIGKILL)


KILLS = ("before anything", "with an open transaction", "after offsets", "after the commit")


@pytest.mark.parametrize("kill", KILLS)
def test_a_killed_broker_loses_no_transaction(tmp_path: Path, kill: str) -> None:
    """The client goes on with the next broker; records and offsets are there once."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = confluent_kafka.TopicPartition("in", 0)
    steps = iter(run_of(f"127.0.0.1:{port}"))
    with killed(tmp_path / "data", port) as address:
        create(address, "in")
        create(address, "out")
        for step in steps:
            if step == kill:
                break
    with killed(tmp_path / "data", port) as address:
        for _ in steps:
            pass
        eventually(lambda: read_with_confluent(address, "out"), [b"a", b"b"])
        for number in (1, 2):
            consumer = consumer_of(address, f"g.{number}")
            [found] = consumer.committed([place], TIMEOUT_S)
            consumer.close()
            assert found.offset == number


def run_of(address: str) -> Iterator[str]:
    """A transaction, step by step; and a second one to see that the client can go on.

    Each is for another group: librdkafka 2.16 waits for ever for a coordinator that it knows from
    before the kill.
    """
    producer = confluent(address, "killed")
    yield "before anything"
    producer.begin_transaction()
    producer.produce("out", b"a")
    producer.flush(TIMEOUT_S)
    yield "with an open transaction"
    send_offset(producer, address, 1)
    yield "after offsets"
    producer.commit_transaction(TIMEOUT_S)
    yield "after the commit"
    producer.begin_transaction()
    producer.produce("out", b"b")
    send_offset(producer, address, 2)
    producer.commit_transaction(TIMEOUT_S)


def send_offset(producer: confluent_kafka.Producer, address: str, number: int) -> None:
    """Commit an offset with the transaction, for a group of its own."""
    consumer = consumer_of(address, f"g.{number}")
    offsets = [confluent_kafka.TopicPartition("in", 0, number)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
    consumer.close()
