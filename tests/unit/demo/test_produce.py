"""Producing through confluent-kafka into librdkafka's stand-in for a cluster."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tailrace.demo.flights import TopicRecords
from tailrace.demo.produce import end_offsets, produce
from tailrace.errors import FatalError, TailraceError

pytestmark = pytest.mark.wire


def some_records(*, count: int, partition_count: int = 4) -> TopicRecords:
    """Records with and without keys, each with a value of its own."""
    return TopicRecords(
        topic="flights",
        partition_count=partition_count,
        keys=[None if number % 7 == 0 else b"N%d" % (number % 50) for number in range(count)],
        values=[b"value %d" % number for number in range(count)],
        # librdkafka takes 0 for the current time.
        timestamps_ms=list(range(1, count + 1)),
    )


def read_all(cluster: str, *, count: int) -> dict[int, list[tuple[bytes | None, bytes, int]]]:
    """Key, value and timestamp of `count` records of `flights`, by partition, in their order."""
    consumer = Consumer({"bootstrap.servers": cluster, "group.id": "reader"})
    consumer.assign([TopicPartition("flights", number, 0) for number in range(4)])
    found: dict[int, list[tuple[bytes | None, bytes, int]]] = {n: [] for n in range(4)}
    for message in consumer.consume(count, timeout=60):
        assert message.error() is None
        record = (message.key(), message.value(), message.timestamp()[1])
        found[message.partition()].append(record)
    consumer.close()
    return found


def expected_by_partition(
    records: TopicRecords,
) -> dict[int, list[tuple[bytes | None, bytes, int]]]:
    """Return the records that each partition has to hold, in order."""
    expected: dict[int, list[tuple[bytes | None, bytes, int]]] = {n: [] for n in range(4)}
    rows = zip(records.keys, records.values, records.timestamps_ms, strict=True)
    for partition, row in zip(records.partitions(), rows, strict=True):
        expected[partition].append(row)
    return expected


def test_every_record_arrives_in_order(cluster: str) -> None:
    """All records are acknowledged, shown, and read back in the order of each partition."""
    records = some_records(count=2500)
    shown: list[int] = []
    made = produce(records, bootstrap_servers=cluster, present=[0] * 4, progress=shown.append)
    assert (made.records, made.records_kept, sum(shown)) == (2500, 0, 2500)
    assert made.bytes == records.size()
    assert read_all(cluster, count=2500) == expected_by_partition(records)


def test_an_interrupted_run_is_continued_without_doubles(cluster: str) -> None:
    """From any prefix of each partition, the second run adds exactly what is missing."""
    records = some_records(count=300)
    expected = expected_by_partition(records)
    first = Producer({"bootstrap.servers": cluster})
    for partition, kept in enumerate((0, 1, 20, len(expected[3]))):
        for key, value, timestamp in expected[partition][:kept]:
            first.produce("flights", value, key, partition=partition, timestamp=timestamp)
    assert first.flush(60) == 0

    present = end_offsets(records, bootstrap_servers=cluster)
    assert present == [0, 1, 20, len(expected[3])]
    made = produce(records, bootstrap_servers=cluster, present=present, progress=len_of)
    assert made.records == 300 - sum(present)
    assert read_all(cluster, count=300) == expected


def len_of(count: int) -> int:
    """A progress that shows nothing."""
    return count


def test_a_complete_topic_gets_nothing(cluster: str) -> None:
    """A second run on a full topic produces no record."""
    records = some_records(count=100)
    produce(records, bootstrap_servers=cluster, present=[0] * 4, progress=len_of)
    present = end_offsets(records, bootstrap_servers=cluster)
    made = produce(records, bootstrap_servers=cluster, present=present, progress=len_of)
    assert (made.records, made.records_kept, made.bytes) == (0, 100, 0)


def test_foreign_records_are_refused(cluster: str) -> None:
    """A partition with more records than the demo has for it stops the run."""
    with pytest.raises(FatalError, match="5 records that are not the demo's"):
        produce(
            some_records(count=0), bootstrap_servers=cluster, present=[5, 0, 0, 0], progress=len_of
        )


def test_a_refused_record_stops_the_run(cluster: str) -> None:
    """A record for a partition that does not exist ends in an error that says so."""
    records = some_records(count=200, partition_count=8)
    with pytest.raises(TailraceError, match=r"[Pp]artition"):
        produce(records, bootstrap_servers=cluster, present=[0] * 8, progress=len_of)


def test_another_partition_count_is_refused(cluster: str) -> None:
    """A topic that somebody made with other partitions is not used."""
    with pytest.raises(FatalError, match="has 4 partitions, the demo needs 8"):
        end_offsets(some_records(count=1, partition_count=8), bootstrap_servers=cluster)


def test_partitions_are_those_of_librdkafka(cluster: str) -> None:
    """A client of librdkafka that leaves the choice to its partitioner agrees with ours."""
    records = some_records(count=50)
    chosen: dict[bytes, int] = {}
    producer = Producer({"bootstrap.servers": cluster})
    for key in filter(None, records.keys):
        producer.produce(
            "flights",
            b"",
            key,
            on_delivery=lambda _error, message: chosen.update({message.key(): message.partition()}),
        )
    assert producer.flush(60) == 0
    ours = zip(records.keys, records.partitions(), strict=True)
    assert chosen == {key: partition for key, partition in ours if key}
