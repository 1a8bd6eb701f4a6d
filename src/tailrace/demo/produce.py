"""Topics and records into a broker, over a real socket to whatever listens there.

How a run continues an interrupted one. The producer is idempotent and waits for `acks=all`, so
each partition holds an unbroken prefix of the records meant for it, in their order: no gap, no
double. The records and their partitions are the same in every run. So if a partition's end
offset is n, its first n records are there, and production continues with the next:

    meant for partition 2    r1  r5  r6  r9  r12
    offsets in the log        0   1   2              end offset 3: continue with r9

Invariant: `produce` returns only when every record was acknowledged, and the broker's own end
offsets say so.
"""

from collections.abc import Callable
from contextlib import closing

from tailrace.client import ClusterReader
from tailrace.client.admin import create_topic
from tailrace.client.producer import Producer
from tailrace.demo.flights import TopicRecords
from tailrace.errors import FatalError
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.values import dataclass

WAIT_MS_MAX = 30_000
"""For any answer of a broker on this machine; it usually comes within a millisecond."""

SETTINGS = {
    "compression.type": "lz4",
    "batch.size": 100_000,
    "max.block.ms": WAIT_MS_MAX,
    "request.timeout.ms": WAIT_MS_MAX,
    "delivery.timeout.ms": 2 * WAIT_MS_MAX,
}
"""Settings of the producer that differ from Kafka's defaults. Smaller batches than possible keep
the progress bar moving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """Counts of one call of `produce`."""

    topic: str
    records: int
    """Acknowledged in this run."""
    records_kept: int
    """Records that were in the topic before this run."""
    bytes: int
    """Keys and values acknowledged in this run, before compression."""


def end_offsets(records: TopicRecords, *, bootstrap_servers: str) -> list[int]:
    """End offset of each partition of the topic, which is created if it does not exist.

    Raises:
        TailraceError: the broker does not answer, refuses, or has the topic with another number
            of partitions.
    """
    topic, count = records.topic, records.partition_count
    with closing(ClusterReader(bootstrap_servers, timeout_ms=WAIT_MS_MAX)) as cluster:
        known = cluster.partitions([topic]).get(topic)
        if known is None:
            # By the first record it would get the broker's default number of partitions.
            create_topic(bootstrap_servers, topic, partition_count=count, settings=records.settings)
            return [0] * count
        if len(known) != count:
            raise FatalError(
                f"topic {topic} has {len(known)} partitions, the demo needs {count}. "
                "Run the demo without --keep"
            )
        latest = {TopicPartition(topic, each): int(SpecialTimestamp.LATEST) for each in known}
        offsets = cluster.list_offsets(latest)
    return [offsets[each] for each in latest]


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
        TailraceError: a record was not acknowledged, or a partition holds more or less than the
            demo's records.
    """
    partitions = records.partitions()
    missing = _missing(records, partitions=partitions, present=present)
    columns = {
        "key": [records.keys[index] for index in missing],
        "value": [records.values[index] for index in missing],
        "timestamp": [records.timestamps_ms[index] for index in missing],
        # Not the producer's choice: every run has to put a record where an earlier one did.
        "partition": [partitions[index] for index in missing],
    }
    with Producer(SETTINGS, bootstrap_servers=bootstrap_servers) as producer:
        # `send_many` only reports records that failed; here one of them has to end the run.
        producer.send_many(records.topic, columns, progress=progress).raise_errors()
    _require_all(records, partitions=partitions, bootstrap_servers=bootstrap_servers)
    return Produced(
        topic=records.topic,
        records=len(missing),
        records_kept=sum(present),
        bytes=sum(len(records.values[n]) + len(records.keys[n] or b"") for n in missing),
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
    # What a partition has is a prefix of its records, so the first ones are those to leave out.
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
