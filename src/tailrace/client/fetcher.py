"""`fetch_batches`: the batches of one partition between two offsets, from the broker that leads it.

One request at a time, without a fetch session: a session only pays for readers of many partitions.

Not here: which offsets to read, and decoding. Uncommitted records are read like all others.
"""

from collections.abc import Iterator
from itertools import count

from tailrace.client.connection import BrokerAddress
from tailrace.client.errors import RemoteRetriableError, raise_for
from tailrace.client.metadata import ClusterReader
from tailrace.errors import CorruptionError, FatalError, OffsetOutOfRangeError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import FRAME_BYTES_MAX
from tailrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tailrace.records.batch import Batch
from tailrace.records.legacy import read_all_batches

FETCH_BYTES = 4 * 1024 * 1024
"""Bytes that one answer may have; enough to make the way there and back cheap."""

FETCH_WAIT_MS = 500
"""How long the broker may wait for the first byte (Kafka: fetch.max.wait.ms)."""


def fetch_batches(
    cluster: ClusterReader,
    partition: TopicPartition,
    *,
    start_offset: int,
    limit_offset: int,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[Batch]:
    """Every batch that holds an offset from `start_offset` up to below `limit_offset`.

    Each has passed `Batch.check`; the last one may reach beyond the limit. Errors that may pass
    are tried again, a bounded number of times in a row.

    Raises:
        OffsetOutOfRangeError: the log does not have the offset (any more, or yet).
        CorruptionError: a batch is damaged; its path is the broker's address and the partition.
        UnreachableBrokerError: the leader does not answer, also after the last attempt.
        RemoteRetriableError: no leader, or no records, also after the last attempt.
        RemoteFatalError: the broker refuses.
        FatalError: a batch is larger than a frame may be.
    """
    offset = start_offset
    while offset < limit_offset:
        next_offset = offset
        for batch in cluster.retrying(
            lambda: _fetch_once(cluster, partition, offset=offset, size_max=fetch_bytes)  # noqa: B023 - called before `offset` changes
        ):
            if batch.base_offset >= limit_offset:
                return
            next_offset = batch.next_offset
            yield batch
        offset = next_offset


def _fetch_once(
    cluster: ClusterReader, partition: TopicPartition, *, offset: int, size_max: int
) -> list[Batch]:
    """At least one batch that reaches `offset` or further, from one answer or a larger one."""
    connection = cluster.leader(partition)
    for doublings in count():
        size = min(size_max << doublings, FRAME_BYTES_MAX)
        request = fetch_request(partition, offset=offset, size_max=size)
        data = partition_data(connection.request(request, FetchResponse), partition)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start, end = cluster.log_range(partition)
            raise OffsetOutOfRangeError(offset, log_start_offset=start, log_end_offset=end)
        raise_for(data.error_code, about=f"records of {partition} at {connection.address}")
        records = memoryview(data.records or b"")
        batches = checked_batches(
            records, offset=offset, address=connection.address, partition=partition
        )
        if batches:
            return batches
        if not records:
            # The log was cut behind our back, or the broker is slow to make records visible.
            raise RemoteRetriableError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                about=f"{connection.address} has no record of {partition} from offset {offset} on",
            )
        # Old brokers cut off even the first batch (before KIP-74); ask for more of it.
        if size == FRAME_BYTES_MAX:
            break
    raise FatalError(
        f"{connection.address}: the batch at offset {offset} of {partition} has more than "
        f"{FRAME_BYTES_MAX} bytes, the most that is fetched at once"
    )


def fetch_request(partition: TopicPartition, *, offset: int, size_max: int) -> FetchRequest:
    """A request for one partition's records from `offset` on, outside of any session."""
    wanted = FetchPartition(
        partition=partition.partition, fetch_offset=offset, partition_max_bytes=size_max
    )
    return FetchRequest(
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=size_max,
        topics=(FetchTopic(topic=partition.topic, partitions=(wanted,)),),
    )


def partition_data(answer: FetchResponse, partition: TopicPartition) -> PartitionData:
    """What an answer says about a partition.

    Raises:
        RemoteRetriableError: nothing, or an error for the whole answer that may pass.
        RemoteFatalError: an error for the whole answer that will not.
    """
    raise_for(answer.error_code, about=f"records of {partition}")
    for topic in answer.responses:
        for data in topic.partitions:
            if (topic.topic, data.partition_index) == partition:
                return data
    raise RemoteRetriableError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about=str(partition))


def checked_batches(
    records: memoryview, *, offset: int, address: BrokerAddress, partition: TopicPartition
) -> list[Batch]:
    """The whole batches of an answer that reach `offset`; a partial one at the end is left out.

    Raises:
        CorruptionError: a batch is damaged; with the broker's address and the partition as path.
    """
    place = f"{address}, {partition}"
    batches = []
    position = 0
    try:
        for position, batch in read_all_batches(records):  # noqa: B007 - told when the check fails
            # A broker answers from the start of the batch that has the offset.
            if batch.last_offset >= offset:
                batch.check()
                batches.append(batch)
    except CorruptionError as error:
        raise error.located(path=place, position=error.position or position) from error
    return batches
