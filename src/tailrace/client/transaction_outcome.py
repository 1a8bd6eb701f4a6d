"""`find_outcome`: whether a transaction was committed, read from a log that it has written to.

Its coordinator only knows the last transaction of a transactional id; the log keeps the outcome of
each as long as its records.
"""

from collections.abc import Sequence

from tailrace.client.errors import raise_for
from tailrace.client.reader import ClusterReader
from tailrace.client.tailer import BY_NAME, checked_pieces, fetch_request_for, parts_of
from tailrace.errors import FatalError
from tailrace.model import IsolationLevel, Offset, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import received_records
from tailrace.protocol.messages.fetch import FetchResponse
from tailrace.records.runs import Piece, batches_of


class ForgottenTransactionError(FatalError, LookupError):
    """A log does not have the record any more by which it could tell a transaction's outcome."""


def find_outcome(
    cluster: ClusterReader, partition: TopicPartition, *, offset: int, producer_id: int
) -> bool | None:
    """Whether the transaction of the record at `offset`, by this producer, was committed.

    None: the partition's last stable offset is not after the record, because this transaction or
    an older one of somebody else is open; then the broker takes half a second to say so. Reads one
    batch at most. Retriable errors are retried, a bounded number of times in a row.

    Raises:
        ForgottenTransactionError: retention, compaction or another topic of that name has taken
            the record's place.
        CorruptionError: the batch is damaged.
        UnreachableBrokerError, RemoteRetriableError: also after the last attempt.
        RemoteFatalError: the broker refuses.
    """
    request = fetch_request_for(
        {partition: offset}, size_max=1, isolation=IsolationLevel.READ_COMMITTED
    )

    def ask() -> bool | None:
        leader = cluster.leader(partition)
        answer = leader.request(request, FetchResponse, version_max=BY_NAME)
        data = parts_of(answer, [partition])[partition]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise ForgottenTransactionError(f"{partition} does not have offset {offset} any more")
        raise_for(data.error_code, about=f"records of {partition} at {leader.address}")
        # It does not pass an open transaction.
        if data.last_stable_offset <= offset:
            return None
        pieces = checked_pieces(
            received_records(data.records), offset=offset, place=f"{leader.address}, {partition}"
        )
        # After a topic was made again, the offset may be another producer's.
        if _producer_of(pieces, offset) != producer_id:
            raise ForgottenTransactionError(
                f"{partition} has another record at offset {offset} than that of producer "
                f"{producer_id}: it was compacted, or the topic was made again"
            )
        return not any(
            each.producer_id == producer_id and each.first_offset <= offset
            for each in data.aborted_transactions or ()
        )

    return cluster.retrying(ask)


def _producer_of(pieces: Sequence[Piece], offset: int) -> int | None:
    """The producer of the batch at an offset; None if there is no such batch."""
    for piece in pieces:
        for _, batch in batches_of(piece, Offset(offset), Offset(offset + 1)):
            if batch.base_offset <= offset < batch.next_offset:
                return int(batch.producer_id)
    return None
