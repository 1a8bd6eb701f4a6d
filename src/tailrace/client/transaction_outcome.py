"""`find_outcome`: whether a transaction was committed, read from a log that it has written to.

Its coordinator only knows the last transaction of a transactional id; the log keeps the outcome of
each as long as its records.
"""

from tailrace.client.errors import raise_for
from tailrace.client.fetcher import fetch_request, partition_data
from tailrace.client.metadata import ClusterReader
from tailrace.errors import OffsetOutOfRangeError
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchResponse


def find_outcome(
    cluster: ClusterReader, partition: TopicPartition, *, offset: int, producer_id: int
) -> bool | None:
    """Whether the transaction of the record at `offset`, by this producer, was committed.

    None: the partition's last stable offset is not behind the record, because this transaction or
    an older one of somebody else is open; then the broker takes half a second to say so. Reads one
    batch at most. Retriable errors are retried, a bounded number of times in a row.

    Raises:
        OffsetOutOfRangeError: the log does not have the record any more.
        UnreachableBrokerError, RemoteRetriableError: also after the last attempt.
        RemoteFatalError: the broker refuses.
    """
    request = fetch_request(
        partition, offset=offset, size_max=1, isolation=IsolationLevel.READ_COMMITTED
    )

    def ask() -> bool | None:
        leader = cluster.leader(partition)
        data = partition_data(leader.request(request, FetchResponse), partition)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start, end = cluster.log_range(partition)
            raise OffsetOutOfRangeError(offset, log_start_offset=start, log_end_offset=end)
        raise_for(data.error_code, about=f"records of {partition} at {leader.address}")
        if data.last_stable_offset <= offset:
            return None
        return not any(
            each.producer_id == producer_id and each.first_offset <= offset
            for each in data.aborted_transactions or ()
        )

    return cluster.retrying(ask)
