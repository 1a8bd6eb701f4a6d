"""Reads the topics of a broker without Spark."""

from contextlib import closing

from tailrace.client import ClusterReader, fetch_batches
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.records.batch import Batch
from tailrace.records.builder import Record, records_of


def batches(bootstrap: str, topic: str) -> dict[int, list[Batch]]:
    """All batches of a topic, by partition."""
    found = {}
    with closing(ClusterReader(bootstrap)) as cluster:
        for number in cluster.partitions([topic])[topic]:
            partition = TopicPartition(topic, number)
            start, limit = cluster.log_range(partition)
            found[number] = list(
                fetch_batches(cluster, partition, start_offset=start, limit_offset=limit)
            )
    return found


def records(bootstrap: str, topic: str) -> list[Record]:
    """All records of a topic, partition after partition."""
    return [
        record
        for found in batches(bootstrap, topic).values()
        for batch in found
        for record in records_of(batch)
    ]


def values(bootstrap: str, topic: str) -> list[str]:
    """The values of a topic as text, sorted."""
    return sorted((record.value or b"").decode() for record in records(bootstrap, topic))


def committed(bootstrap: str, topic: str) -> list[Record]:
    """The records that readers of committed ones see, who wait for no open transaction."""
    isolation = IsolationLevel.READ_COMMITTED
    found: list[Record] = []
    with closing(ClusterReader(bootstrap)) as cluster:
        for number in cluster.partitions([topic])[topic]:
            partition = TopicPartition(topic, number)
            start, end = cluster.log_range(partition, isolation=isolation)
            assert end == cluster.log_range(partition)[1], f"{partition}: a transaction is open"
            for batch in fetch_batches(
                cluster, partition, start_offset=start, limit_offset=end, isolation=isolation
            ):
                if not batch.is_control:
                    found += records_of(batch)
    return found
