"""Produces and reads over the wire with librdkafka: the same calls against both brokers.

Every record says its number, so a missing or doubled one shows. The chance is seeded: each run
produces the same records, though not always in the same batches.
"""

import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from compat.topics import CODECS

START_MS = 1_750_000_000_000
HOUR_MS = 60 * 60 * 1000
WAIT_SECONDS = 30
KEYS = 40


class Seen(NamedTuple):
    """A record as a reader has it."""

    offset: int
    is_create_time: bool
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class ReadBack(NamedTuple):
    """The records that a consumer gets of a partition, and its end."""

    records: tuple[Seen, ...]
    end: int
    """The offset at which the broker reported the end of the partition."""


class Acknowledged(NamedTuple):
    """A record that a broker has acknowledged."""

    topic: str
    partition: int
    offset: int
    value: bytes


class Sender:
    """An idempotent producer that keeps the outcome of each record; all values are different.

    Each instance that sends gets its own producer id from the broker.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        codec: str = "none",
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.refused: list[str] = []
        """Errors of the other records; they may be in the log all the same."""
        self._producer = _producer(
            bootstrap_servers, codec=codec, is_idempotent=True, more=settings
        )

    def send(self, topic: str, value: bytes, *, partition: int = 0) -> None:
        """Send a record some time soon."""
        self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)

    def poll(self) -> None:
        """Poll for delivery reports for a moment."""
        self._producer.poll(0.01)

    def flush(self) -> None:
        """Return when everything is acknowledged or refused.

        Raises:
            KafkaException: it takes too long.
        """
        _flush(self._producer)

    def give_up(self) -> None:
        """Poll for delivery reports that have arrived, and send nothing more."""
        self._producer.purge()
        _flush(self._producer)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:  # noqa: ANN401
        if error is not None:
            self.refused.append(str(error))
        else:
            topic, partition = message.topic(), message.partition()
            self.acknowledged.append(
                Acknowledged(topic, partition, message.offset(), message.value())
            )


def lost(acknowledged: Iterable[Acknowledged], read: ReadBack) -> Iterator[str]:
    """Acknowledged records of one partition that a reader did not find at their offsets."""
    values = {each.offset: each.value for each in read.records}
    for each in acknowledged:
        found = values.get(each.offset)
        if found != each.value:
            yield f"{each.topic}: {found!r} at offset {each.offset}, which {each.value!r} was given"


def produce_codecs(bootstrap_servers: str) -> None:
    """Produce several segments for each codec, with headers, nulls and unsorted timestamps."""
    for codec in CODECS:
        producer = _producer(bootstrap_servers, codec=codec)
        _produce(producer, f"codec-{codec}", _records(600))
    for topic in ("stamped", "torn", "deleted"):
        _produce(_producer(bootstrap_servers), topic, _records(400))
    _produce(_producer(bootstrap_servers), "aged", _records(400, step_ms=HOUR_MS))
    producer = _producer(bootstrap_servers, is_idempotent=True)
    _produce(producer, "idempotent", _records(400))


def produce_keys(bootstrap_servers: str, topic: str, *, count: int = 900) -> None:
    """Few keys, many values, and one tombstone in six."""
    chance = random.Random(7)  # noqa: S311 - the same in every run
    producer = _producer(bootstrap_servers)
    for number in range(count):
        value = None if chance.random() < 0.17 else b"value %d" % number
        key = b"key %d" % chance.randrange(KEYS)
        producer.produce(topic, value, key, timestamp=START_MS + number)
        if number % 7 == 0:
            _flush(producer)
    _flush(producer)


def produce_keyed(bootstrap_servers: str, topic: str, keys: Iterable[bytes]) -> None:
    """Send a record for each key, in order."""
    records = (
        {"key": key, "value": b"value %d" % number, "timestamp": START_MS + number}
        for number, key in enumerate(keys)
    )
    _produce(_producer(bootstrap_servers), topic, records)


def produce_transactions(bootstrap_servers: str, topic: str, *, ends_open: bool) -> list[Producer]:
    """Three producers in turn: transactions committed, aborted, and at the end one left open.

    Returns the producer of the open one, which is aborted when that producer is collected.
    """
    chance = random.Random(11)  # noqa: S311 - the same in every run
    producers = []
    for number in range(3):
        producer = _producer(bootstrap_servers, transactional_id=f"{topic}-{number}")
        producer.init_transactions(WAIT_SECONDS)
        producers.append(producer)
    for turn in range(24):
        for producer in producers:
            producer.begin_transaction()
        for step in range(8):
            for which, producer in enumerate(producers):
                key = b"key %d" % chance.randrange(KEYS)
                producer.produce(
                    topic, b"turn %d step %d" % (turn, step), key, timestamp=START_MS + turn
                )
                if which != step % 3:
                    _flush(producer)
        for which, producer in enumerate(producers):
            if (turn + which) % 3 == 0:
                producer.abort_transaction(WAIT_SECONDS)
            else:
                producer.commit_transaction(WAIT_SECONDS)
    if ends_open:
        producers[0].begin_transaction()
        producers[0].produce(topic, b"never decided", b"open")
        _flush(producers[0])
        _produce(_producer(bootstrap_servers), topic, _records(20))
    return producers


def delete_records(bootstrap_servers: str, topic: str, *, before: int) -> None:
    """Have a partition start at an offset.

    Raises:
        KafkaException: it refused.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result()


def read_back(
    bootstrap_servers: str, topic: str, *, is_committed: bool, partition: int = 0
) -> ReadBack:
    """Consume one partition at this isolation level.

    Raises:
        KafkaException: it got an error, or nothing for a long time.
    """
    place = topic, partition
    return read_partitions(bootstrap_servers, [place], is_committed=is_committed)[place]


def read_partitions(
    bootstrap_servers: str, places: Collection[tuple[str, int]], *, is_committed: bool
) -> dict[tuple[str, int], ReadBack]:
    """Consume partitions with one consumer of this isolation level; return the records of each.

    Raises:
        KafkaException: it got an error, or nothing for a long time.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "compat",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 20,
            "isolation.level": "read_committed" if is_committed else "read_uncommitted",
            "log_level": 0,
        }
    )
    records: dict[tuple[str, int], list[Seen]] = {place: [] for place in places}
    ends: dict[tuple[str, int], int] = {}
    try:
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
        while len(ends) < len(records):
            message = consumer.poll(WAIT_SECONDS)
            if message is None:
                missing = sorted(records.keys() - ends.keys())
                raise KafkaException(f"{missing[0]}: nothing came for {WAIT_SECONDS} s")
            place, error = (message.topic(), message.partition()), message.error()
            if error is None:
                records[place].append(_seen(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[place] = message.offset()
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return {place: ReadBack(tuple(records[place]), end) for place, end in ends.items()}


def read_topics(
    bootstrap_servers: str, topics: Collection[str]
) -> dict[tuple[str, bool], ReadBack]:
    """Consume partition 0 of each topic; return the records by topic and whether committed only.

    Raises:
        KafkaException: it got an error, or nothing for a long time.
    """
    places = [(topic, 0) for topic in topics]
    return {
        (topic, is_committed): read
        for is_committed in (False, True)
        for (topic, _), read in read_partitions(
            bootstrap_servers, places, is_committed=is_committed
        ).items()
    }


def produce_more(bootstrap_servers: str, topic: str) -> None:
    """Append a few records; each has a key, because compacted topics require one."""
    records = ({**record, "key": record["key"] or b"key 0"} for record in _records(10))
    _produce(_producer(bootstrap_servers), topic, records)


def _seen(message: Any) -> Seen:  # noqa: ANN401 - confluent-kafka has no types
    kind, timestamp = message.timestamp()
    return Seen(
        message.offset(),
        kind == TIMESTAMP_CREATE_TIME,
        timestamp,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


def _producer(
    bootstrap_servers: str,
    *,
    codec: str = "none",
    is_idempotent: bool = False,
    transactional_id: str | None = None,
    more: Mapping[str, object] = MappingProxyType({}),
) -> Producer:
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "compression.type": codec,
        "enable.idempotence": is_idempotent or transactional_id is not None,
        "linger.ms": 0 if transactional_id else 20,
        # An error that ends a producer is told by each of its records.
        "error_cb": lambda _: None,
        "batch.num.messages": 25,
        "log_level": 0,
        **more,
    }
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
        # An open one must not be aborted between what is read of it and a kill.
        settings["transaction.timeout.ms"] = 600_000
    return Producer(settings)


def _records(count: int, *, step_ms: int = 10) -> Iterator[dict[str, Any]]:
    chance = random.Random(count)  # noqa: S311 - the same in every run
    for number in range(count):
        filler = bytes(chance.choices(b"abcdefgh", k=chance.randrange(200)))
        yield {
            "value": None if number % 19 == 0 else b"%d %s" % (number, filler),
            "key": None if number % 5 == 0 else b"key %d" % (number % KEYS),
            "timestamp": START_MS + number * step_ms - chance.randrange(500),
            "headers": [("n", b"%d" % number), ("nothing", None)] if number % 4 == 0 else [],
        }


def _produce(producer: Producer, topic: str, records: Iterator[dict[str, Any]]) -> None:
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    for record in records:
        producer.produce(topic, on_delivery=delivered, **record)
    _flush(producer)
    if failures:
        raise KafkaException(failures[0])


def _flush(producer: Producer) -> None:
    if producer.flush(WAIT_SECONDS):
        raise KafkaException(f"not delivered in {WAIT_SECONDS} s")
