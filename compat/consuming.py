"""`Consumer` against Apache Kafka: groups of both protocols, patterns, times, isolation, lag.

librdkafka writes and reads the same, and Kafka's kafka-consumer-groups.sh says what is committed.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import confluent_kafka

from compat.clients import (
    START_MS,
    WAIT_SECONDS,
    Seen,
    produce_codecs,
    produce_keyed,
    produce_transactions,
    read_back,
)
from compat.kafka import Kafka
from compat.report import Report
from compat.topics import CODECS, create_topics
from tailrace.client.consumer import Consumer, ConsumerRecord
from tailrace.client.producer.producer import Producer
from tailrace.errors import TailraceError
from tailrace.model import TimestampType, TopicPartition

CODEC_TOPICS = tuple(f"codec-{codec}" for codec in CODECS)
SINGLE = (
    *CODEC_TOPICS, "stamped", "torn", "deleted", "aged", "idempotent", "transactions", "output",
    "odd-times",
)  # fmt: skip
SHARED = {"classic": "shared-classic", "consumer": "shared-consumer"}
PARTITIONS = 4
RECORDS = 400
PROTOCOLS = tuple(SHARED)

Settings = Mapping[str, Any]


class Brokers(Protocol):
    """A Kafka, or a cluster."""

    bootstrap_servers: str

    def run_tool(self, name: str, *arguments: str) -> str:
        """Run one of Kafka's command-line tools and return its output."""
        ...


def check(report: Report, kafka: Kafka) -> None:
    """Have a Kafka read from, on a directory that is new."""
    # The records are older than the time for which Kafka keeps them.
    kafka.settings |= {"log.retention.ms": "-1"}
    with kafka:
        check_at(report, kafka)


def check_at(report: Report, brokers: Brokers) -> None:
    """The same on brokers that run."""
    servers = brokers.bootstrap_servers
    create_topics(servers, {topic: {} for topic in SINGLE})
    create_topics(servers, {topic: {} for topic in SHARED.values()}, partition_count=PARTITIONS)
    produce_codecs(servers)
    # Kept until the end: its last transaction is open while there is this producer.
    producers = produce_transactions(servers, "transactions", ends_open=True)
    for level in ("read_uncommitted", "read_committed"):
        report.check(
            f"Consumer, {level}: the same records as librdkafka, of every codec, and the end",
            _differences(lambda level=level: _isolation(servers, level)),  # type: ignore[misc]
        )
    report.check(
        "Consumer, offsets for times and a seek to a time: those of librdkafka",
        _differences(lambda: _times(servers)),
    )
    report.check(
        "Producer and Consumer: timestamps before 1970, and none, are kept as they were sent",
        _differences(lambda: _odd_times(servers)),
    )
    for protocol in PROTOCOLS:
        for name, differences in (
            ("two members share a topic, one leaves, and every record comes once", _sharing),
            ("a pattern finds a topic that comes later", _pattern),
            ("offsets are committed in a transaction, and not if it aborts", _transaction),
        ):
            report.check(
                f"Consumer, group.protocol={protocol}: {name}",
                _differences(lambda make=differences: make(brokers, protocol)),  # type: ignore[misc]  # noqa: B023
            )
    del producers


def _differences(find: Callable[[], Iterator[str]]) -> list[str]:
    try:
        return [*find()]
    except TailraceError as error:
        return [f"{type(error).__name__}: {error}"]


def _expect(what: str, found: object, expected: object) -> Iterator[str]:
    if found != expected:
        yield f"{what}: {found!r}, and not {expected!r}"


def _isolation(servers: str, level: str) -> Iterator[str]:
    for topic in (*CODEC_TOPICS, "idempotent", "transactions"):
        expected = read_back(servers, topic, is_committed=level == "read_committed")
        place = TopicPartition(topic, 0)
        with Consumer(
            {"isolation.level": level}, bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign(place)
            found = _read(consumer, len(expected.records))
            if found != list(expected.records):
                yield f"{topic}: {len(found)} records, of which some differ"
            consumer.poll(0.5)
            yield from _expect(f"{topic}, position", consumer.position(place), expected.end)
            yield from _expect(f"{topic}, lag", consumer.lag(), {place: 0})
            end = consumer.end_offsets(place)[place]
            yield from _expect(f"{topic}, end", end, expected.end)


def _read(consumer: Consumer, count: int) -> list[Seen]:
    found: list[Seen] = []
    until = time.monotonic() + WAIT_SECONDS
    while len(found) < count and time.monotonic() < until:
        found += map(_seen, consumer.poll(1))
    return found


def _seen(record: ConsumerRecord) -> Seen:
    is_create_time = record.timestamp_type is TimestampType.CREATE_TIME
    return Seen(
        record.offset, is_create_time, record.timestamp, record.key, record.value, record.headers
    )


def _odd_times(servers: str) -> Iterator[str]:
    times = [-1, -5, 0, -86_400_000, START_MS, -(1 << 40), -1]
    with Producer(bootstrap_servers=servers, linger_ms=100) as producer:
        for number, timestamp in enumerate(times):
            producer.send("odd-times", b"%d" % number, partition=0, timestamp=timestamp)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(TopicPartition("odd-times", 0))
        found = [each.timestamp for each in _read(consumer, len(times))]
        yield from _expect("timestamps", found, times)


def _times(servers: str) -> Iterator[str]:
    place = TopicPartition("aged", 0)
    # Its timestamps are an hour apart, less up to half a second, and the log ends after 400 hours.
    times = [0, START_MS, *(START_MS + hours * 3_600_000 for hours in (1, 57, 200, 398, 500))]
    theirs = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "times", "log_level": 0}
    )
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign(place)
        for timestamp in times:
            [told] = theirs.offsets_for_times(
                [confluent_kafka.TopicPartition(*place, timestamp)], timeout=WAIT_SECONDS
            )
            found = consumer.offsets_for_times({place: timestamp})[place]
            # librdkafka says -1, the end, for no record.
            yield from _expect(
                f"time {timestamp}", -1 if found is None else found.offset, told.offset
            )
            consumer.seek_to_time(timestamp)
            if found is not None:
                [record, *_] = consumer.poll(WAIT_SECONDS)
                yield from _expect(f"record at {timestamp}", record.offset, found.offset)
                yield from _expect("its time", record.timestamp, found.timestamp)
    theirs.close()


def _member(servers: str, protocol: str, **more: Any) -> Consumer:  # noqa: ANN401 - settings
    return Consumer(
        {"group.protocol": protocol},
        bootstrap_servers=servers,
        group_id=f"group-{protocol}",
        auto_offset_reset="earliest",
        metadata_max_age_ms=1000,
        **more,
    )


def _sharing(brokers: Brokers, protocol: str) -> Iterator[str]:
    servers, topic = brokers.bootstrap_servers, SHARED[protocol]
    keys = [b"key %d" % (number % 40) for number in range(RECORDS)]
    produce_keyed(servers, topic, keys)
    found: list[tuple[int, int]] = []

    def take(*members: Consumer) -> None:
        for each in members:
            found.extend((record.partition, record.offset) for record in each.poll(0.2))

    first, second = _member(servers, protocol, max_poll_records=7), _member(servers, protocol)
    with first:
        first.subscribe(topic)
        with second:
            second.subscribe(topic)
            _until(
                lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2,
                lambda: take(first, second),
            )
            yield from _expect("assigned", first.assignment() | second.assignment(), _places(topic))
            take(first, second)
        _until(lambda: first.assignment() == _places(topic), lambda: take(first))
        first.commit()
        yield from _expect_lag(brokers, first, protocol)
        _until(lambda: len(found) >= RECORDS, lambda: take(first))
        produce_keyed(servers, topic, keys[:50])
        first.commit()
        # Polled until the lag is known anew, and nothing of what has come is handled yet.
        yield from _expect_lag(brokers, first, protocol, at_least=50)
        _until(lambda: len(found) >= RECORDS + 50, lambda: take(first))
    yield from _expect("records", len(found), RECORDS + 50)
    yield from _expect("different ones", len(set(found)), RECORDS + 50)
    yield from _expect("lag after close", _told_lag(brokers, protocol, topic), dict.fromkeys(
        range(PARTITIONS), 0
    ))  # fmt: skip


def _places(topic: str) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in range(PARTITIONS)}


def _until(is_done: Callable[[], bool], step: Callable[[], None]) -> None:
    until = time.monotonic() + 2 * WAIT_SECONDS
    while not is_done() and time.monotonic() < until:
        step()


def _expect_lag(
    brokers: Brokers, consumer: Consumer, protocol: str, *, at_least: int = 0
) -> Iterator[str]:
    """The lag that our consumer counts from its positions is that of Kafka's tool."""
    topic = SHARED[protocol]
    places = consumer.assignment()
    ends = consumer.end_offsets(places)
    committed = consumer.committed(places)
    mine = {
        each.partition: ends[each] - (0 if stored is None else stored.offset)
        for each, stored in committed.items()
    }
    yield from _expect("lag", mine, _told_lag(brokers, protocol, topic))
    positions = {each.partition: ends[each] - consumer.position(each) for each in places}
    yield from _expect("lag of the positions", positions, mine)
    if sum(mine.values()) < at_least:
        yield f"the lag is {mine}, at least {at_least} together"


def _told_lag(brokers: Brokers, protocol: str, topic: str) -> dict[int, int]:
    """Lag by partition, as kafka-consumer-groups.sh prints it."""
    printed = brokers.run_tool(
        "consumer.group.ConsumerGroupCommand", "--bootstrap-server", brokers.bootstrap_servers,
        "--describe", "--group", f"group-{protocol}",
    )  # fmt: skip
    rows = [line.split() for line in printed.splitlines()]
    heads = [row for row in rows if row[:1] == ["GROUP"]]
    partition, lag = (heads[0].index(name) for name in ("PARTITION", "LAG"))
    return {int(row[partition]): int(row[lag]) for row in rows if topic in row[:2]}


def _pattern(brokers: Brokers, protocol: str) -> Iterator[str]:
    servers = brokers.bootstrap_servers
    topics = [f"matched-{protocol}-{number}" for number in (1, 2)]
    create_topics(servers, {topics[0]: {}, f"unmatched-{protocol}-1": {}})
    found: list[str] = []
    with _member(servers, f"{protocol}") as consumer:
        consumer.subscribe(pattern=f"matched-{protocol}-[0-9]+")

        def take() -> None:
            found.extend(record.topic for record in consumer.poll(0.2))

        for count, topic in enumerate(topics, 1):
            if count > 1:
                create_topics(servers, {topic: {}})
            produce_keyed(servers, topic, [b"key"])
            _until(lambda count=count: len(found) >= count, take)  # type: ignore[misc]
        yield from _expect("records of", found, topics)
        yield from _expect("assigned", {each.topic for each in consumer.assignment()}, set(topics))


def _transaction(brokers: Brokers, protocol: str) -> Iterator[str]:
    servers = brokers.bootstrap_servers
    place = TopicPartition("codec-none", 0)
    with (
        _member(servers, protocol, enable_auto_commit=False) as consumer,
        Producer(bootstrap_servers=servers, transactional_id=f"copies-{protocol}") as producer,
    ):
        consumer.subscribe(place.topic)
        records = _some(consumer)
        with producer.transaction():
            for each in records:
                producer.send("output", each.value)
            producer.send_offsets_to_transaction(
                {place: records[-1].offset + 1}, consumer.group_metadata()
            )
        done = records[-1].offset + 1
        yield from _expect("committed", _committed(consumer, place), done)
        more = _some(consumer)
        try:
            with producer.transaction():
                producer.send_offsets_to_transaction(
                    {place: more[-1].offset + 1}, consumer.group_metadata()
                )
                raise InterruptedError
        except InterruptedError:
            pass
        yield from _expect("after an abort", _committed(consumer, place), done)
        consumer.seek(place, done)
        yield from _expect("read again from", _some(consumer)[0].offset, done)


def _some(consumer: Consumer) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    _until(lambda: bool(found), lambda: found.extend(consumer.poll(0.5)))
    assert found, "no record came"
    return found


def _committed(consumer: Consumer, place: TopicPartition) -> int | None:
    stored = consumer.committed(place)[place]
    return None if stored is None else stored.offset
