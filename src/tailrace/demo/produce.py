"""Topics and records into a broker, through confluent-kafka: somebody else's client.

Nothing here knows Tailrace; the bytes cross a real socket to whatever listens there.

How a run continues an interrupted one. The producer is idempotent and waits for `acks=all`, so
each partition holds an unbroken prefix of the records meant for it, in their order: no gap, no
double. The records and their partitions are the same in every run. So if a partition's end
offset is n, its first n records are there, and production goes on with the next:

    meant for partition 2    r1  r5  r6  r9  r12
    offsets in the log        0   1   2              end offset 3: continue with r9

Invariant: `produce` returns only when every record was acknowledged, and the broker's own end
offsets say so.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tailrace.demo.flights import TopicRecords
from tailrace.errors import FatalError

WAIT_SECONDS_MAX = 30
"""For any answer of a broker on this machine; it usually comes within a millisecond."""

POLL_EVERY = 1000
"""Records between two looks at errors: often enough for a smooth bar, rare enough to be free."""

SETTINGS = {
    "enable.idempotence": True,
    "acks": "all",
    "compression.type": "lz4",
    "linger.ms": 20,
    "queue.buffering.max.messages": 200_000,
    "message.timeout.ms": WAIT_SECONDS_MAX * 1000,
    "delivery.report.only.error": True,
}
"""Of the producer, by librdkafka's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """What one call of `produce` did."""

    topic: str
    records: int
    """Acknowledged in this run."""
    records_kept: int
    """In the topic before this run."""
    bytes: int
    """Keys and values acknowledged in this run, before compression."""
    seconds: float


def end_offsets(records: TopicRecords, *, bootstrap_servers: str) -> list[int]:
    """End offset of each partition of the topic, which is created if it does not exist.

    Raises:
        FatalError: the broker does not answer, refuses, or has the topic with another number
            of partitions.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topic = records.topic
    try:
        known = admin.list_topics(timeout=WAIT_SECONDS_MAX).topics
        if topic not in known:
            new = NewTopic(topic, records.partition_count, 1, config=records.settings)
            admin.create_topics([new], request_timeout=WAIT_SECONDS_MAX)[topic].result()
            return [0] * records.partition_count
        count = len(known[topic].partitions)
        if count != records.partition_count:
            raise FatalError(
                f"topic {topic} has {count} partitions, the demo needs "
                f"{records.partition_count}. Run the demo without --keep"
            )
        latest = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(count)}
        answers = admin.list_offsets(latest, request_timeout=WAIT_SECONDS_MAX)
        offsets = {place.partition: answer.result().offset for place, answer in answers.items()}
    except KafkaException as error:
        raise FatalError(f"topic {topic} at {bootstrap_servers}: {error}") from error
    return [offsets[number] for number in range(count)]


def produce(
    records: TopicRecords,
    *,
    bootstrap_servers: str,
    present: list[int],
    progress: Callable[[int], object],
) -> Produced:
    """Send every record beyond the first `present[p]` of each partition p.

    `progress` is called with the number of records acknowledged since the last call.

    Raises:
        FatalError: a record was not acknowledged, or a partition holds more or less than the
            demo's records.
    """
    started = time.monotonic()
    topic = records.topic
    partitions = records.partitions()
    missing = _missing(records, partitions=partitions, present=present)
    errors: list[KafkaError] = []
    # No Python code runs for a record that went well: a Ctrl-C inside of such a callback comes
    # out of confluent-kafka 2.16 as a SystemError.
    producer = Producer(
        SETTINGS
        | {
            "bootstrap.servers": bootstrap_servers,
            "on_delivery": lambda error, _message: errors.append(error),
        }
    )
    shown = 0
    try:
        for sent, index in enumerate(missing, start=1):
            _send(
                producer,
                topic,
                key=records.keys[index],
                value=records.values[index],
                partition=partitions[index],
                timestamp=records.timestamps_ms[index],
            )
            if sent % POLL_EVERY == 0:
                producer.poll(0)
                shown += _show(sent - len(producer), shown=shown, progress=progress)
                _require_no_errors(topic, errors)
        while waiting := producer.flush(0.1):
            shown += _show(len(missing) - waiting, shown=shown, progress=progress)
            _require_no_errors(topic, errors)
        _require_no_errors(topic, errors)
    finally:
        # After an error or Ctrl-C the queue would be sent on while the broker goes away.
        producer.purge()
        producer.flush(1)
    _show(len(missing), shown=shown, progress=progress)
    _require_all(records, partitions=partitions, bootstrap_servers=bootstrap_servers)
    return Produced(
        topic=topic,
        records=len(missing),
        records_kept=sum(present),
        bytes=sum(len(records.values[n]) + len(records.keys[n] or b"") for n in missing),
        seconds=time.monotonic() - started,
    )


def _show(done: int, *, shown: int, progress: Callable[[int], object]) -> int:
    """Tell `progress` how many records are done beyond those shown, and return that number."""
    # Requests on their way count as outstanding too, so the figure can dip below the last one.
    new = max(done - shown, 0)
    progress(new)
    return new


def _require_no_errors(topic: str, errors: list[KafkaError]) -> None:
    """Raises FatalError if any record was refused."""
    if errors:
        raise FatalError(
            f"topic {topic}: a record was not taken: {errors[0]} ({len(errors)} errors so far)"
        )


def _require_all(records: TopicRecords, *, partitions: list[int], bootstrap_servers: str) -> None:
    """Ask the broker, not the client, how much there is.

    Raises:
        FatalError: a partition holds another number of records than the demo has for it.
    """
    found = end_offsets(records, bootstrap_servers=bootstrap_servers)
    expected = [partitions.count(number) for number in range(records.partition_count)]
    if found != expected:
        raise FatalError(
            f"topic {records.topic} holds {found} records in its partitions after production, "
            f"not {expected}"
        )


def _missing(records: TopicRecords, *, partitions: list[int], present: list[int]) -> list[int]:
    """Indexes of the records that come after the first `present[p]` of each partition p.

    Raises:
        FatalError: a partition holds more records than the demo has for it.
    """
    ahead = list(present)
    missing = []
    for index, partition in enumerate(partitions):
        if ahead[partition]:
            ahead[partition] -= 1
        else:
            missing.append(index)
    if any(ahead):
        raise FatalError(
            f"topic {records.topic} has {sum(ahead)} records that are not the demo's. "
            "Run the demo without --keep"
        )
    return missing


def _send(producer: Producer, topic: str, **message: object) -> None:
    """Queue one record; where the queue is full, wait until the broker has taken some.

    Raises:
        FatalError: the client itself refuses the record.
    """
    while True:
        try:
            producer.produce(topic, **message)
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            raise FatalError(f"topic {topic}: a record was not taken: {error}") from error
        else:
            return
