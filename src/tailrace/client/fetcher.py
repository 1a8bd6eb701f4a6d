"""`fetch_pieces`: the batches of one partition between two offsets, from the broker that leads it.

    caller    | decodes answer 1 | decodes answer 2 | ...
    broker    fetch 1 | fetch 2 ........ | fetch 3 ........

While the caller decodes one answer, the next fetch of the range is under way, never more than one;
its answer waits in the kernel's buffer. There are no fetch sessions: they only pay off for readers
of many partitions.

Not here: which offsets to read, and decoding. Control batches are returned like all others; the
decoder skips them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from tailrace.client.config import BrokerAddress
from tailrace.client.errors import RemoteRetriableError, raise_for
from tailrace.client.reader import ClusterReader, PendingRequest, RemoteBroker
from tailrace.errors import CorruptionError, FatalError, OffsetOutOfRangeError
from tailrace.model import IsolationLevel, Offset, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, received_records
from tailrace.protocol.frames import FRAME_BYTES_MAX
from tailrace.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tailrace.records.batch import Batch
from tailrace.records.control import ControlType, end_transaction_marker_or_none
from tailrace.records.runs import Piece, batches_of, read_runs

FETCH_BYTES = 4 * 1024 * 1024
"""Largest answer in bytes; large enough that the round trip costs little."""

FETCH_WAIT_MS = 500
"""Longest time that the broker waits for the first byte (Kafka: fetch.max.wait.ms)."""

BY_NAME: Final = 12
"""The last version that names topics; later ones have their ids (KIP-516)."""


def fetch_pieces(
    cluster: ClusterReader,
    partition: TopicPartition,
    *,
    start_offset: int,
    limit_offset: int,
    topic_id: UUID | None = None,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[Piece]:
    """Every batch that has an offset from `start_offset` up to below `limit_offset`, in runs.

    With `topic_id` none comes from another topic of that name, if the cluster was made with
    `has_topic_ids` and the broker takes ids (since Kafka 3.1).

    Each has passed `Batch.check`; the last run may reach beyond the limit. With READ_COMMITTED,
    batches of aborted transactions are left out, and so is everything from the last stable offset
    on. Retriable errors are retried, a bounded number of times in a row.

    Raises:
        OffsetOutOfRangeError: the log does not have the offset any more, or not yet.
        CorruptionError: a batch is damaged; its path is the broker's address and the partition.
        UnreachableBrokerError: the leader does not answer, also after the last attempt.
        RemoteRetriableError: no leader, no records, or no such topic, also after the last attempt.
        RemoteFatalError: the broker refuses.
        FatalError: a batch is larger than a frame may be.
    """
    fetches = _Fetches(
        cluster, partition, topic_id=topic_id, isolation=isolation, fetch_bytes=fetch_bytes
    )
    offset = start_offset
    while offset < limit_offset:
        pieces, offset = cluster.retrying(lambda: fetches.take(offset))  # noqa: B023 - called before `offset` changes
        if offset < limit_offset:
            fetches.send_ahead(offset)
        for piece in pieces:
            if piece.base_offset >= limit_offset:
                return
            yield piece


def fetch_batches(
    cluster: ClusterReader,
    partition: TopicPartition,
    *,
    start_offset: int,
    limit_offset: int,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[Batch]:
    """The batches of `fetch_pieces` one by one; raises the same errors."""
    start, limit = Offset(start_offset), Offset(limit_offset)
    for piece in fetch_pieces(
        cluster,
        partition,
        start_offset=start_offset,
        limit_offset=limit_offset,
        isolation=isolation,
        fetch_bytes=fetch_bytes,
    ):
        for _, batch in batches_of(piece, start, limit):
            yield batch


class _Fetches:
    """The fetches of one partition, one after the other; `send_ahead` sends the next one early."""

    def __init__(
        self,
        cluster: ClusterReader,
        partition: TopicPartition,
        *,
        topic_id: UUID | None,
        isolation: IsolationLevel,
        fetch_bytes: int,
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._topic_id = topic_id or NO_UUID
        self._version_max = BY_NAME if topic_id is None else None
        self._isolation = isolation
        self._fetch_bytes = fetch_bytes
        self._leader: RemoteBroker | None = None
        self._ahead: PendingRequest | None = None

    def send_ahead(self, offset: int) -> None:
        """Send the fetch for the next `take`, if it can be sent without waiting."""
        assert self._leader is not None, "nothing was taken yet"
        self._ahead = self._leader.send_nowait(
            self._request(offset, size=self._fetch_bytes), version_max=self._version_max
        )

    def take(self, offset: int) -> tuple[list[Piece], int]:
        """The batches of an answer that reaches `offset`, and the offset after them."""
        pending, self._ahead = self._ahead, None
        if pending is None or self._leader is None:
            self._leader = self._cluster.leader(self._partition)
        leader, size = self._leader, self._fetch_bytes
        while True:
            if pending is None:
                answer = leader.request(
                    self._request(offset, size=size), FetchResponse, version_max=self._version_max
                )
            else:
                answer = pending.result(FetchResponse)
            found = self._read(answer, leader, offset=offset)
            if found is not None:
                return found
            # Old brokers cut off even the first batch (before KIP-74); ask for more of it.
            if size == FRAME_BYTES_MAX:
                raise FatalError(
                    f"{leader.address}: the batch at offset {offset} of {self._partition} has more "
                    f"than {FRAME_BYTES_MAX} bytes, the most that is fetched at once"
                )
            pending, size = None, min(size * 2, FRAME_BYTES_MAX)

    def _request(self, offset: int, *, size: int) -> FetchRequest:
        return fetch_request_for(
            {self._partition: offset},
            topic_id=self._topic_id,
            size_max=size,
            isolation=self._isolation,
        )

    def _read(
        self, answer: FetchResponse, leader: RemoteBroker, *, offset: int
    ) -> tuple[list[Piece], int] | None:
        """The checked batches of an answer, and the offset after them; None if none is whole."""
        partition, address = self._partition, leader.address
        data = partition_data(answer, partition, topic_id=self._topic_id)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start, end = self._cluster.log_range(partition, isolation=self._isolation)
            raise OffsetOutOfRangeError(offset, log_start_offset=start, log_end_offset=end)
        raise_for(data.error_code, about=f"records of {partition} at {address}")
        records = received_records(data.records)
        pieces = checked_pieces(records, offset=offset, address=address, partition=partition)
        if not records:
            # The log was truncated meanwhile, or the broker is slow to make records visible.
            raise RemoteRetriableError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                about=f"{address} has no record of {partition} from offset {offset} on",
            )
        if not pieces:
            return None
        next_offset = pieces[-1].next_offset
        if self._isolation is IsolationLevel.READ_COMMITTED:
            try:
                pieces = committed_pieces(pieces, data.aborted_transactions or ())
            except CorruptionError as error:
                raise error.located(path=f"{address}, {partition}") from error
        return pieces, next_offset


def fetch_request_for(
    offsets: Mapping[TopicPartition, int],
    *,
    size_max: int,
    isolation: IsolationLevel,
    topic_id: UUID = NO_UUID,
) -> FetchRequest:
    """A request for records of several partitions of one leader, each from its offset on.

    A broker fills its answer in the order of the partitions. Without `topic_id`, which is that of
    all of them, no later version than `BY_NAME` can carry the request.
    """
    return FetchRequest(
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=size_max,
        isolation_level=isolation,
        topics=tuple(
            FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=(
                    FetchPartition(
                        partition=number, fetch_offset=offset, partition_max_bytes=size_max
                    ),
                ),
            )
            for (topic, number), offset in offsets.items()
        ),
    )


def partition_data(
    answer: FetchResponse, partition: TopicPartition, *, topic_id: UUID = NO_UUID
) -> PartitionData:
    """The part of an answer about one partition, whose topic it names or tells by its id.

    Raises:
        RemoteRetriableError: the answer lacks the partition, or has a temporary top-level error.
        RemoteFatalError: the answer has a permanent top-level error.
    """
    raise_for(answer.error_code, about=f"records of {partition}")
    for topic in answer.responses:
        is_meant = topic.topic == partition.topic or topic.topic_id == topic_id != NO_UUID
        for data in topic.partitions:
            if is_meant and data.partition_index == partition.partition:
                return data
    raise RemoteRetriableError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about=str(partition))


def checked_pieces(
    records: memoryview, *, offset: int, address: BrokerAddress, partition: TopicPartition
) -> list[Piece]:
    """The whole batches of an answer that reach `offset`; a partial one at the end is left out.

    Raises:
        CorruptionError: a batch is damaged; with the broker's address and the partition as path.
    """
    place = f"{address}, {partition}"
    pieces: list[Piece] = []
    position = 0
    try:
        for position, piece in read_runs(records):  # noqa: B007 - the error handler reports it
            # A broker answers from the start of the batch that has the offset.
            if piece.last_offset < offset:
                continue
            if isinstance(piece, Batch):
                piece.check()
                pieces.append(piece)
            else:
                pieces.append(piece.since(Offset(offset)))
    except CorruptionError as error:
        raise error.located(path=place, position=error.position or position) from error
    return pieces


def committed_pieces(pieces: Sequence[Piece], aborted: Sequence[AbortedTransaction]) -> list[Piece]:
    """The pieces without batches of aborted transactions; `aborted` comes from the same answer.

    As in Kafka's consumer, a producer's batches are left out from the first offset of its aborted
    transaction up to its abort marker. A transaction whose marker lies beyond this answer is left
    out to the answer's end; the next answer names it again.

    Raises:
        CorruptionError: a marker cannot be read.
    """
    coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    producers: set[int] = set()
    found: list[Piece] = []
    for piece in pieces:
        while coming and coming[-1].first_offset <= piece.last_offset:
            producers.add(coming.pop().producer_id)
        if isinstance(piece, Batch):
            if piece.is_control:
                marker = end_transaction_marker_or_none(piece)
                if marker is not None and marker.type is ControlType.ABORT:
                    producers.discard(piece.producer_id)
            elif piece.is_transactional and piece.producer_id in producers:
                continue
        found.append(piece)
    return found
