"""The producer against a real broker over real sockets: what it sends is what others read."""

import asyncio
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka
import confluent_kafka.admin
import pyarrow as pa
import pytest

from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.errors import ClosedProducerError, RejectedRecordError
from tailrace.client.producer.outcome import RecordMetadata
from tailrace.client.producer.plugins import ProducerInterceptor, ProducerRecord
from tailrace.client.producer.producer import Producer
from tests.wire.clients import CLIENTS, TIMEOUT_S, Sent

with warnings.catch_warnings():
    # kafka-python asks for resources in a way that newer Pythons warn of.
    warnings.simplefilter("ignore")
    import kafka

if TYPE_CHECKING:
    from tailrace.client.producer.results import BatchReceipt

pytestmark = pytest.mark.wire

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP = 1_600_000_000_000
PARTITIONS = 8
KEYS = [b"key %d" % number for number in range(300)] + [b"", b"\x00\xff", "日本".encode()]
RECORDS = [
    Sent(
        key=None if number % 7 == 0 else b"key %d" % number,
        value=None if number % 11 == 0 else b"value %d " % number * 10,
        timestamp=FIRST_TIMESTAMP + 1000 * number,
        headers=(("number", b"%d" % number), ("none", None)) if number % 3 == 0 else (),
    )
    for number in range(300)
]


def send_blocking(address: str, topic: str, **settings: object) -> list[RecordMetadata]:
    """Have `Producer` send `RECORDS`; returns their places."""
    with Producer(settings, bootstrap_servers=address) as producer:
        receipts = [
            producer.send(
                topic, each.value, each.key, headers=each.headers, timestamp=each.timestamp
            )
            for each in RECORDS
        ]
        return [each.result() for each in receipts]


def send_async(address: str, topic: str, **settings: object) -> list[RecordMetadata]:
    """Have `AsyncProducer` send `RECORDS`; returns their places."""

    async def run() -> list[RecordMetadata]:
        async with AsyncProducer(settings, bootstrap_servers=address) as producer:
            receipts = [
                producer.send(
                    topic, each.value, each.key, headers=each.headers, timestamp=each.timestamp
                )
                for each in RECORDS
            ]
            return [await each for each in receipts]

    return asyncio.run(run())


PRODUCERS: dict[str, Callable[..., list[RecordMetadata]]] = {
    "Producer": send_blocking,
    "AsyncProducer": send_async,
}


def send_many_async(address: str, topic: str, rows: object) -> int:
    """Have `AsyncProducer` send rows; returns how many were written."""

    async def run() -> int:
        async with AsyncProducer(bootstrap_servers=address) as producer:
            summary = await producer.send_many(topic, rows)
            summary.raise_errors()
            return summary.acknowledged_count

    return asyncio.run(run())


def send_many_blocking(address: str, topic: str, rows: object) -> int:
    """Have `Producer` send rows; returns how many were written."""
    with Producer(bootstrap_servers=address) as producer:
        summary = producer.send_many(topic, rows)
        summary.raise_errors()
        return summary.acknowledged_count


SEND_MANY = {"Producer": send_many_blocking, "AsyncProducer": send_many_async}


def make_topic(address: str, topic: str) -> None:
    """A topic with several partitions."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
    new = confluent_kafka.admin.NewTopic(topic, PARTITIONS, 1)
    for future in admin.create_topics([new]).values():
        future.result(TIMEOUT_S)


def read(address: str, topic: str, count: int) -> list[Sent]:
    """The first records of partition 0."""
    return CLIENTS["confluent-kafka"].read(address, topic, 0, count=count)


def values_by_partition(address: str, topic: str, count: int) -> dict[int, list[bytes]]:
    """`count` records of all partitions together, by partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "none"})
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    )
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    while sum(map(len, found.values())) < count:
        messages = consumer.consume(count, 1)
        for message in messages:
            assert message.error() is None, message.error()
            found[message.partition()].append(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", PRODUCERS)
def test_librdkafka_reads_what_was_sent(address: str, kind: str, codec: str) -> None:
    """Keys, values, nulls, headers and timestamps come back whole, at the offsets that were told.

    Batches are small, so that there are several.
    """
    topic = f"sent.{kind}.{codec}"
    places = PRODUCERS[kind](address, topic, compression_type=codec, batch_size=4000)
    assert [each.offset for each in places] == list(range(len(RECORDS)))
    assert [each.timestamp for each in places] == [each.timestamp for each in RECORDS]
    assert read(address, topic, len(RECORDS)) == RECORDS


@pytest.mark.parametrize("settings", [{"acks": "1"}, {"acks": "0"}, {"linger.ms": 0}], ids=str)
@pytest.mark.parametrize("kind", PRODUCERS)
def test_other_settings_send_the_same(
    address: str, kind: str, settings: Mapping[str, object]
) -> None:
    """With fewer acknowledgements or no lingering the records are the same and in order."""
    topic = f"settings.{kind}.{next(iter(settings))}.{next(iter(settings.values()))}"
    PRODUCERS[kind](address, topic, **settings)
    assert read(address, topic, len(RECORDS)) == RECORDS


def test_keys_go_where_other_clients_send_them(address: str) -> None:
    """A key has the same partition from us, from librdkafka's `murmur2_random` and kafka-python."""
    topic = "placed-by-key"
    make_topic(address, topic)
    with Producer(bootstrap_servers=address) as producer:
        receipts = [producer.send(topic, b"", key) for key in KEYS]
    theirs: dict[bytes, int] = {}
    rdkafka = confluent_kafka.Producer(
        {"bootstrap.servers": address, "partitioner": "murmur2_random"}
    )
    for key in KEYS:
        rdkafka.produce(
            topic, b"", key,
            on_delivery=lambda _, message: theirs.update({message.key(): message.partition()}),
        )  # fmt: skip
    assert rdkafka.flush(TIMEOUT_S) == 0
    python = kafka.KafkaProducer(bootstrap_servers=address)
    futures = [python.send(topic, b"", key) for key in KEYS]
    ours = [each.result().partition for each in receipts]
    assert ours == [future.get(TIMEOUT_S).partition for future in futures]
    # librdkafka takes an empty key for none.
    assert all(place == theirs[key] for key, place in zip(KEYS, ours, strict=True) if key)
    assert len(set(ours)) == PARTITIONS
    python.close()


def test_a_record_goes_to_the_partition_that_it_names(address: str) -> None:
    """A partition that is given is the one that is used, whatever the key."""
    topic = "placed-by-number"
    make_topic(address, topic)
    with Producer(bootstrap_servers=address) as producer:
        for number in range(5 * PARTITIONS):
            producer.send(topic, b"%d" % number, b"key", partition=number % PARTITIONS)
    found = values_by_partition(address, topic, 5 * PARTITIONS)
    assert found == {
        place: [b"%d" % number for number in range(place, 5 * PARTITIONS, PARTITIONS)]
        for place in range(PARTITIONS)
    }


class Row(NamedTuple):
    """A row by the names of a record's fields."""

    value: bytes
    key: bytes


ROWS = [(f"k{number}", f"value {number}") for number in range(5000)]
SHAPES: dict[str, Callable[[], object]] = {
    "table": lambda: pa.table({"key": [k for k, _ in ROWS], "value": [v for _, v in ROWS]}),
    "reader": lambda: pa.table(
        {"key": [k for k, _ in ROWS], "value": [v.encode() for _, v in ROWS]}
    ).to_reader(max_chunksize=700),
    "columns": lambda: {"key": [k for k, _ in ROWS], "value": [v for _, v in ROWS]},
    "pairs": lambda: iter(ROWS),
    "named tuples": lambda: (Row(v.encode(), k.encode()) for k, v in ROWS),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", SEND_MANY)
def test_rows_are_read_as_records(address: str, kind: str, shape: str) -> None:
    """Rows of a table, of columns and of an iterable are records with these keys and values."""
    topic = f"rows.{kind}.{shape.replace(' ', '-')}"
    assert SEND_MANY[kind](address, topic, SHAPES[shape]()) == len(ROWS)
    found = [(each.key, each.value) for each in read(address, topic, len(ROWS))]
    assert found == [(key.encode(), value.encode()) for key, value in ROWS]


@pytest.mark.parametrize("kind", SEND_MANY)
def test_a_row_has_all_that_a_record_has(address: str, kind: str) -> None:
    """Columns of partitions, headers and timestamps are the records' own."""
    topic = f"whole-rows.{kind}"
    make_topic(address, topic)
    rows = {
        "value": [each.value for each in RECORDS],
        "key": [each.key for each in RECORDS],
        "headers": [each.headers for each in RECORDS],
        "timestamp": [each.timestamp for each in RECORDS],
        "partition": [0] * len(RECORDS),
    }
    assert SEND_MANY[kind](address, topic, rows) == len(RECORDS)
    assert read(address, topic, len(RECORDS)) == RECORDS


def test_rows_and_single_records_keep_their_order(address: str) -> None:
    """Single records before and rows after them are in the log in the order of the calls."""
    topic = "mixed"
    with Producer(bootstrap_servers=address) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
        producer.send_many(topic, [b"%d" % number for number in range(10, 20)])
        producer.send(topic, b"20")
    assert [each.value for each in read(address, topic, 21)] == [b"%d" % n for n in range(21)]


@pytest.mark.parametrize("codec", CODECS)
def test_filled_batches_are_read_as_records(address: str, codec: str) -> None:
    """Records of batches that the program fills come back whole, where their receipts say."""
    topic, receipts = f"filled.{codec}", []
    settings = {"compression.type": codec, "batch.size": 4000}
    with Producer(settings, bootstrap_servers=address) as producer:
        batch = producer.create_batch(topic)
        for each in RECORDS:
            fields: dict[str, Any] = {"headers": each.headers, "timestamp": each.timestamp}
            if not batch.append(each.value, each.key, **fields):
                receipts.append(producer.send_batch(batch, partition=0))
                batch = producer.create_batch(topic)
                assert batch.append(each.value, each.key, **fields)
        receipts.append(producer.send_batch(batch, partition=0))
        places = [place for receipt in receipts for place in receipt.result(TIMEOUT_S)]
    assert len(receipts) > 3
    assert [each.offset for each in places] == list(range(len(RECORDS)))
    assert [each.timestamp for each in places] == [each.timestamp for each in RECORDS]
    assert read(address, topic, len(RECORDS)) == RECORDS


def test_threads_send_filled_batches_at_once(address: str) -> None:
    """Batches of several threads, with little memory, arrive whole and once each."""
    count = 40

    def work(thread: int) -> None:
        for number in range(count):
            batch = producer.create_batch("filled-at-once")
            while batch.append(b"%d %d" % (thread, number)):
                pass
            receipts.append(producer.send_batch(batch, partition=0))

    receipts: list[BatchReceipt] = []
    settings = {"batch.size": 2000, "buffer.memory": 40_000}
    with Producer(settings, bootstrap_servers=address) as producer:
        threads = [threading.Thread(target=work, args=(each,)) for each in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(TIMEOUT_S)
        producer.flush(TIMEOUT_S)
        places = [(each.offset, each) for receipt in receipts for each in receipt.result(0)]
        assert sorted(offset for offset, _ in places) == list(range(len(places)))
    values = [each.value for each in read(address, "filled-at-once", len(places))]
    firsts = [receipt.result()[0].offset for receipt in receipts]
    for first, receipt in zip(firsts, receipts, strict=True):
        assert len(set(values[first : first + receipt.record_count])) == 1
    assert len(receipts) == 3 * count


def test_callbacks_hear_of_each_record_in_order(address: str) -> None:
    """Each is called once, with where its record went, before `close` returns."""
    heard: list[tuple[RecordMetadata, Exception | None]] = []
    with Producer(bootstrap_servers=address) as producer:
        for number in range(1000):
            producer.send(
                "callbacks", b"%d" % number, on_delivery=lambda *outcome: heard.append(outcome)
            )
    assert [place.offset for place, _ in heard] == list(range(1000))
    assert all(error is None for _, error in heard)


def test_a_callback_may_send(address: str) -> None:
    """A record sent by a callback is written like any other."""
    with Producer(bootstrap_servers=address) as producer:
        sent: list[Any] = []
        is_heard = threading.Event()

        def again(_: RecordMetadata, error: Exception | None) -> None:
            assert error is None
            sent.append(producer.send("from-callbacks", b"second"))
            is_heard.set()

        producer.send("from-callbacks", b"first", on_delivery=again)
        assert is_heard.wait(TIMEOUT_S)
        assert sent[0].result().offset == 1


def test_interceptors_see_records_and_outcomes(address: str) -> None:
    """The broker gets the records that an interceptor returns, and it is told their results."""

    class Stamp(ProducerInterceptor):
        def __init__(self) -> None:
            self.heard: list[int] = []

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(headers=(*record.headers, ("by", b"us")))

        def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
            assert error is None
            self.heard.append(metadata.offset)

    stamp = Stamp()
    with Producer(bootstrap_servers=address, interceptors=[stamp]) as producer:
        for number in range(100):
            producer.send("intercepted", b"%d" % number)
    assert stamp.heard == list(range(100))
    assert {each.headers for each in read(address, "intercepted", 100)} == {(("by", b"us"),)}


def test_a_record_that_is_too_large_harms_no_other(address: str) -> None:
    """Its receipt has the error, by the client's limit or the broker's; the others are written."""
    topic = "too-large"
    with Producer(bootstrap_servers=address, max_request_size=4_000_000) as producer:
        first = producer.send(topic, b"first")
        over_ours = producer.send(topic, bytes(5_000_000))
        over_theirs = producer.send(topic, bytes(2_000_000))
        last = producer.send(topic, b"last")
    assert isinstance(over_ours.exception(), RejectedRecordError)
    assert isinstance(over_theirs.exception(), RejectedRecordError)
    assert (first.offset, last.offset) == (0, 1)


def test_flush_waits_for_all_that_was_sent(address: str) -> None:
    """After `flush` every receipt has its outcome, however long records may linger."""
    with Producer(bootstrap_servers=address, linger_ms=60_000) as producer:
        receipts = [producer.send("flushed", b"%d" % number) for number in range(100)]
        producer.flush()
        assert all(each.done() for each in receipts)


def test_a_closed_producer_takes_nothing(address: str) -> None:
    """The end of a `with` block waits for every record; after it `send` is refused."""
    with Producer(bootstrap_servers=address, linger_ms=60_000) as producer:
        receipts = [producer.send("closed", b"%d" % number) for number in range(100)]
    assert [each.offset for each in receipts] == list(range(100))
    with pytest.raises(ClosedProducerError):
        producer.send("closed", b"late")
    producer.close()


def test_a_dropped_producer_warns_and_delivers(address: str) -> None:
    """A producer that is collected with records gives a warning, and sends them all the same."""
    producer = Producer(bootstrap_servers=address, linger_ms=60_000)
    receipt = producer.send("dropped", b"kept")
    holder = [producer]
    del producer
    with pytest.warns(ResourceWarning, match="collected with 1 records"):
        holder.clear()
    assert read(address, "dropped", 1)[0].value == b"kept"
    assert receipt.result(TIMEOUT_S).offset == 0


def numbered(lines: Sequence[bytes], thread: int) -> Iterator[int]:
    """The numbers that one thread gave its records."""
    return (int(line.split()[1]) for line in lines if int(line.split()[0]) == thread)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Do the work in as many threads at once, each with its number, and wait for all."""
    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(count)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()


@pytest.mark.parametrize("batch_size", [500, 16384])
def test_threads_share_a_producer(address: str, batch_size: int) -> None:
    """Eight threads send and wait now and then; all is there, each thread's records in order."""
    topic, threads, count = f"threads.{batch_size}", 8, 2000
    make_topic(address, topic)

    def work(thread: int) -> None:
        for number in range(count):
            receipt = producer.send(
                topic, b"%d %d" % (thread, number), partition=number % PARTITIONS
            )
            if number % 500 == 499:
                receipt.result()

    with Producer(bootstrap_servers=address, batch_size=batch_size) as producer:
        in_threads(threads, work)
    found = values_by_partition(address, topic, threads * count)
    for place, lines in found.items():
        for thread in range(threads):
            assert list(numbered(lines, thread)) == list(range(place, count, PARTITIONS))


def test_threads_without_partitions_keep_their_order(address: str) -> None:
    """Without keys each thread's records stand in order within every partition."""
    topic, threads, count = "threads-anywhere", 8, 5000
    make_topic(address, topic)

    def work(thread: int) -> None:
        for number in range(count):
            producer.send(topic, b"%d %d" % (thread, number), receipt=False)

    with Producer(bootstrap_servers=address, buffer_memory=200_000) as producer:
        in_threads(threads, work)
    found = values_by_partition(address, topic, threads * count)
    for thread in range(threads):
        orders = [list(numbered(lines, thread)) for lines in found.values()]
        assert sorted(number for each in orders for number in each) == list(range(count))
        assert all(first < second for each in orders for first, second in pairwise(each))
