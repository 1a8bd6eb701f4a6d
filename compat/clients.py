"""What is produced and read over the wire, with librdkafka: the same calls against both brokers.

Every record says its number, so a missing or doubled one shows. The chance is seeded: each run
produces the same records, though not always in the same batches.
"""

import random
from collections.abc import Iterator
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
    """All that a consumer gets of a partition."""

    records: tuple[Seen, ...]
    end: int
    """Where it was told that nothing more is to be had."""


def produce_codecs(bootstrap_servers: str) -> None:
    """Several segments for each codec, with headers, nulls and timestamps that go up and down."""
    for codec in CODECS:
        producer = _producer(bootstrap_servers, codec=codec)
        _produce(producer, f"codec-{codec}", _records(600))
    for topic in ("stamped", "torn", "deleted"):
        _produce(_producer(bootstrap_servers), topic, _records(400))
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


def produce_transactions(bootstrap_servers: str, topic: str, *, ends_open: bool) -> list[Producer]:
    """Three producers in turn: transactions committed, aborted, and at the end one left open.

    Returns who has it open: it is aborted when the producer goes.
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


def read_back(bootstrap_servers: str, topic: str, *, is_committed: bool) -> ReadBack:
    """Everything that a consumer of this isolation level gets.

    Raises:
        KafkaException: it got an error, or nothing for a long time.
    """
    level = "read_committed" if is_committed else "read_uncommitted"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "compat",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": level,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        records: list[Seen] = []
        while True:
            message = consumer.poll(WAIT_SECONDS)
            if message is None:
                raise KafkaException(f"{topic}: nothing came for {WAIT_SECONDS} s")
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return ReadBack(tuple(records), message.offset())
            if error is not None:
                raise KafkaException(error)
            records.append(_seen(message))
    finally:
        consumer.close()


def produce_more(bootstrap_servers: str, topic: str) -> None:
    """A few records behind what is there; each has a key, which compacted topics insist on."""
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
) -> Producer:
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "compression.type": codec,
        "enable.idempotence": is_idempotent or transactional_id is not None,
        "linger.ms": 0 if transactional_id else 20,
        "batch.num.messages": 25,
        "log_level": 0,
    }
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
    return Producer(settings)


def _records(count: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(count)  # noqa: S311 - the same in every run
    for number in range(count):
        filler = bytes(chance.choices(b"abcdefgh", k=chance.randrange(200)))
        yield {
            "value": None if number % 19 == 0 else b"%d %s" % (number, filler),
            "key": None if number % 5 == 0 else b"key %d" % (number % KEYS),
            "timestamp": START_MS + number * 10 - chance.randrange(500),
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
