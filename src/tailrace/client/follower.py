"""`Follower`: reads many partitions at once, each in its order, up to an end or for ever.

    follower = Follower(cluster, {TopicPartition("flights", 0): 120})
    while not follower.is_over:
        for partition, pieces in follower.poll(0.5):
            ...

Each leader has one fetch under way for all of its partitions; the next is sent before the caller
gets the answer, so the broker works while the caller does. A partition that has sent records goes
to the end of the next request, because brokers fill their answers from the front.

Not here: which partitions, and where to begin. There are no fetch sessions and no thread.

Invariant: the pieces of a partition are handed out in the order of their offsets, each once, and
`positions` says where the next ones begin.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tailrace.client.errors import RemoteRetriableError, raise_for
from tailrace.client.fetcher import (
    BY_NAME,
    FETCH_BYTES,
    checked_pieces,
    committed_pieces,
    fetch_request_for,
)
from tailrace.client.reader import ClusterReader, PendingRequest, RemoteBroker
from tailrace.errors import CorruptionError, FatalError, OffsetOutOfRangeError
from tailrace.model import IsolationLevel, Offset, TimestampType, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import received_records
from tailrace.protocol.frames import FRAME_BYTES_MAX
from tailrace.protocol.messages.fetch import FetchResponse, PartitionData
from tailrace.records.builder import Record, records_of
from tailrace.records.checks import check_records
from tailrace.records.runs import Piece, batches_of


class Fetched(NamedTuple):
    """Records of one partition."""

    partition: TopicPartition
    pieces: list[Piece]
    """In order; the first may begin before `start_offset`, and the last end after `limit_offset`.

    Empty if all that came was aborted.
    """
    start_offset: int
    """The first offset that belongs to these records."""
    limit_offset: int
    """The offset after the last one that belongs to them."""
    next_offset: int
    """The position behind them."""

    def records(self) -> Iterator[tuple[Record, TimestampType]]:
        """Each record with the type of its timestamp; without the markers of transactions.

        Raises:
            CorruptionError: a record breaks a rule of the format; none of its batch is returned.
            UnsupportedCodecError: a batch has codec 5, 6 or 7.
        """
        for piece in self.pieces:
            for _, batch in batches_of(piece, Offset(self.start_offset), Offset(self.limit_offset)):
                if batch.is_control:
                    continue
                try:
                    check_records(batch)
                except CorruptionError as error:
                    raise error.located(path=str(self.partition)) from error
                for record in records_of(batch):
                    if self.start_offset <= record.offset < self.limit_offset:
                        yield record, batch.timestamp_type


class Follower:
    """Reads partitions from given positions on; not for more than one thread at a time."""

    def __init__(
        self,
        cluster: ClusterReader,
        positions: Mapping[TopicPartition, int],
        *,
        limits: Mapping[TopicPartition, int] | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        """A partition with an offset in `limits` is over when all before that was read.

        With READ_COMMITTED, batches of aborted transactions are left out, and nothing is read from
        the last stable offset on.
        """
        self._cluster = cluster
        self._limits = dict(limits or {})
        self._isolation = isolation
        self._fetch_bytes = fetch_bytes
        self._size = fetch_bytes
        """More than `fetch_bytes` while a batch does not fit in that."""
        self._positions = {
            each: offset
            for each, offset in positions.items()
            if each not in self._limits or offset < self._limits[each]
        }
        self._under_way: dict[RemoteBroker, tuple[dict[TopicPartition, int], PendingRequest]] = {}

    @property
    def is_over(self) -> bool:
        """Whether every partition has been read to its limit."""
        return not self._positions

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition that is not over."""
        return self._positions

    def poll(self, seconds: float) -> list[Fetched]:
        """The records that have come; waits up to `seconds` if there are none yet.

        Retriable errors are retried, a bounded number of times in a row; the positions stay right
        after any error, so that `poll` can be called again.

        Raises:
            OffsetOutOfRangeError: a log does not have the offset any more, or not yet.
            CorruptionError: a batch is damaged; its path is the broker's address and the partition.
            UnreachableBrokerError: a leader does not answer, also after the last attempt.
            RemoteRetriableError: a partition has no leader, also after the last attempt.
            RemoteFatalError: a broker refuses.
            FatalError: a batch is larger than a frame may be.
        """
        return self._cluster.retrying(lambda: self._step(seconds))

    def _step(self, seconds: float) -> list[Fetched]:
        try:
            self._send()
            waited = [each for _, each in self._under_way.values()]
            self._cluster.wait_until(lambda: any(each.is_done for each in waited), seconds)
            found = []
            for leader, (asked, pending) in list(self._under_way.items()):
                if pending.is_done:
                    del self._under_way[leader]
                    found += list(self._take(leader, asked, pending.result(FetchResponse)))
            for each in found:
                self._advance(each)
            self._send(only_ready=True)
        except BaseException:
            # An answer that was dropped here is asked for again from the same position.
            self._under_way.clear()
            raise
        return found

    def _send(self, *, only_ready: bool = False) -> None:
        """Have a fetch under way at each leader that has none."""
        wanted: dict[RemoteBroker, dict[TopicPartition, int]] = {}
        for partition, offset in self._positions.items():
            wanted.setdefault(self._cluster.leader(partition), {})[partition] = offset
        for leader, offsets in wanted.items():
            if leader in self._under_way:
                continue
            request = fetch_request_for(offsets, size_max=self._size, isolation=self._isolation)
            pending = leader.send_nowait(request, version_max=BY_NAME)
            while pending is None and not only_ready:
                self._cluster.connect(leader.node)
                pending = leader.send_nowait(request, version_max=BY_NAME)
            if pending is not None:
                self._under_way[leader] = offsets, pending

    def _take(
        self, leader: RemoteBroker, asked: Mapping[TopicPartition, int], answer: FetchResponse
    ) -> Iterator[Fetched]:
        raise_for(answer.error_code, about=f"records at {leader.address}")
        parts = {
            TopicPartition(topic.topic, part.partition_index): part
            for topic in answer.responses
            for part in topic.partitions
        }
        # A broker that throttles answers without records (KIP-219).
        is_empty = not answer.throttle_time_ms and not any(
            received_records(part.records) for part in parts.values()
        )
        is_cut = False
        for partition, offset in asked.items():
            part = parts.get(partition)
            if part is None:
                raise RemoteRetriableError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about=f"{partition} at {leader.address}"
                )
            self._check(part, partition, leader, offset=offset)
            records = received_records(part.records)
            pieces = checked_pieces(
                records, offset=offset, address=leader.address, partition=partition
            )
            limit = self._limits.get(partition)
            if pieces:
                next_offset = pieces[-1].next_offset
                yield Fetched(
                    partition,
                    self._visible(pieces, part, place=f"{leader.address}, {partition}"),
                    offset,
                    next_offset if limit is None else min(limit, next_offset),
                    next_offset,
                )
            elif records:
                is_cut = True
            elif is_empty and limit is not None and self._end_of(part) >= limit:
                # Compaction has removed all records from here to the end.
                self._positions.pop(partition, None)
        if is_cut:
            self._grow(leader)
        else:
            self._size = self._fetch_bytes

    def _check(
        self, part: PartitionData, partition: TopicPartition, leader: RemoteBroker, *, offset: int
    ) -> None:
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start, end = self._cluster.log_range(partition, isolation=self._isolation)
            raise OffsetOutOfRangeError(
                offset, log_start_offset=start, log_end_offset=end, log=str(partition)
            )
        raise_for(part.error_code, about=f"records of {partition} at {leader.address}")

    def _visible(self, pieces: list[Piece], part: PartitionData, *, place: str) -> list[Piece]:
        if self._isolation is not IsolationLevel.READ_COMMITTED:
            return pieces
        try:
            return committed_pieces(pieces, part.aborted_transactions or ())
        except CorruptionError as error:
            raise error.located(path=place) from error

    def _grow(self, leader: RemoteBroker) -> None:
        """Ask for more the next time: old brokers cut off even the first batch (before KIP-74)."""
        if self._size == FRAME_BYTES_MAX:
            raise FatalError(
                f"{leader.address}: a batch has more than {FRAME_BYTES_MAX} bytes, the most that "
                "is fetched at once"
            )
        self._size = min(self._size * 2, FRAME_BYTES_MAX)

    def _advance(self, fetched: Fetched) -> None:
        # Anew at the end of the dictionary: the next request names this partition last.
        del self._positions[fetched.partition]
        limit = self._limits.get(fetched.partition)
        if limit is None or fetched.next_offset < limit:
            self._positions[fetched.partition] = fetched.next_offset

    def _end_of(self, part: PartitionData) -> int:
        if self._isolation is IsolationLevel.READ_COMMITTED:
            return part.last_stable_offset
        return part.high_watermark
