"""`Tailer`: reads many partitions at once, each in its order; `fetch_pieces`: one range of one.

    tailer = Tailer(cluster, {TopicPartition("flights", 0): 120})
    while not tailer.is_over:
        for partition, pieces in tailer.poll(0.5):
            ...

    caller    | decodes answer 1 | decodes answer 2 | ...
    broker    fetch 1 | fetch 2 ........ | fetch 3 ........

Each leader has one fetch under way for all of its partitions, never more; the next is sent before
the caller gets the answer, so the broker works while the caller does. A partition that has sent
records goes to the end of the next request, because brokers fill their answers from the front.

Not here: which offsets to read, and decoding. Control batches are returned like all others; the
decoder skips them. There is no thread, and there are no fetch sessions: those only pay off for
readers of partitions that have few records.

Invariant: the pieces of a partition are handed out in the order of their offsets, each once, and
`positions` says where the next ones begin.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from tailrace.client.errors import RemoteRetriableError, UnsupportedBrokerError, raise_for
from tailrace.client.routes import leader as leader_of
from tailrace.errors import (
    CorruptionError,
    FatalError,
    OffsetOutOfRangeError,
    RetriableError,
)
from tailrace.model import (
    IsolationLevel,
    Offset,
    SpecialTimestamp,
    TimestampType,
    TopicPartition,
)
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
from tailrace.records.builder import Record, records_of
from tailrace.records.checks import check_records
from tailrace.records.control import ControlType, end_transaction_marker_or_none
from tailrace.records.runs import Piece, batches_of, read_runs

if TYPE_CHECKING:
    # A consumer takes functions of this module, and does without readers.
    from tailrace.client.reader import ClusterReader, PendingRequest, RemoteBroker

FETCH_BYTES = 4 * 1024 * 1024
"""Largest answer in bytes; large enough that the round trip costs little."""

FETCH_WAIT_MS = 500
"""Longest time that the broker waits for the first byte (Kafka: fetch.max.wait.ms)."""

PAUSE_S: Final = 0.5
"""Between two attempts at a partition while others are read."""

RETRY_S: Final = 5.0
"""Time until the error of such a partition is raised; more than an election takes."""

BY_NAME: Final = 12
"""The last version that names topics; later ones have their ids (KIP-516)."""


Failures = dict[TopicPartition, RetriableError]
"""Partitions that could not be read, and why."""


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
    """The position after them."""

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


class Tailer:
    """Reads partitions from given positions on; not for more than one thread at a time."""

    def __init__(
        self,
        cluster: "ClusterReader",
        positions: Mapping[TopicPartition, int],
        *,
        limits: Mapping[TopicPartition, int] | None = None,
        topic_id: UUID | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        """A partition with an offset in `limits` is over when all before that was read.

        With READ_COMMITTED, batches of aborted transactions are left out, and nothing is read from
        the last stable offset on. With `topic_id`, that of all the partitions, no record comes from
        another topic of that name, if the cluster was made with `has_topic_ids` and the brokers
        take ids (since Kafka 3.1).
        """
        self._cluster = cluster
        self._limits = dict(limits or {})
        self._topic_id = topic_id or NO_UUID
        self._version_max = BY_NAME if topic_id is None else None
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
        self._connecting: dict[RemoteBroker, Callable[[], bool]] = {}
        """Leaders that cannot be asked yet; the call says whether one can, or raises."""
        self._tried_since: dict[TopicPartition, float] = {}
        """Since when partitions have had no answer but errors."""
        self._retry_at: dict[TopicPartition, float] = {}
        self._error: RetriableError | None = None
        """The error of the next poll."""

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

        Retriable errors are retried, a bounded number of times in a row; if other partitions are
        read meanwhile, for `RETRY_S`. The positions stay right after any error, so that `poll` can
        be called again.

        Raises:
            OffsetOutOfRangeError: a log does not have the offset any more, or not yet.
            CorruptionError: a batch is damaged; its path is the broker's address and the partition.
            UnreachableBrokerError: a leader does not answer, also after the last attempt.
            RemoteRetriableError: a partition has no leader, also after the last attempt.
            RemoteFatalError: a broker refuses.
            FatalError: a batch is larger than a frame may be.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._cluster.retrying(lambda: self._step(seconds))

    def next(self) -> list[Fetched]:
        """The next records, of partitions whose logs have them; raises the errors of `poll`.

        Raises:
            RemoteRetriableError: a leader has no record before the limit, also after the last
                attempt.
        """
        return self._cluster.retrying(lambda: self._step(inf, must_have=True))

    def _step(self, seconds: float, *, must_have: bool = False) -> list[Fetched]:
        deadline = self._cluster.clock() + seconds
        found: list[Fetched] = []
        is_answered = False
        try:
            while not is_answered:
                failed: Failures = {}
                self._send(failed)
                until = min([deadline, *self._retry_at.values()])
                # Also where nothing is under way: all partitions wait for their next attempts.
                if self._under_way or self._connecting or not failed:
                    wait_s = max(0.0, until - self._cluster.clock())
                    self._cluster.wait_until(self._has_news, wait_s)
                for leader, (asked, pending) in list(self._under_way.items()):
                    if pending.is_done:
                        is_answered = True
                        del self._under_way[leader]
                        still = self._still(asked, found)
                        found += self._answered(
                            leader, still, pending, failed=failed, must_have=must_have
                        )
                self._end_connecting(failed)
                if failed:
                    self._postpone(failed, is_alone=not found and not self._under_way)
                is_answered = is_answered or self._cluster.clock() >= deadline
            for each in found:
                self._advance(each)
            # Before the records are handed out: the broker answers while the caller decodes.
            self._send({}, only_ready=True)
        except BaseException:
            # An answer that was dropped here is asked for again from the same position.
            self._under_way.clear()
            self._connecting.clear()
            raise
        return found

    def _send(self, failed: "Failures", *, only_ready: bool = False) -> None:
        """Have a fetch under way at each leader that has none, or a connection to it begun."""
        now = self._cluster.clock()
        wanted: dict[RemoteBroker, dict[TopicPartition, int]] = {}
        unknown: dict[str, RetriableError] = {}
        for partition, offset in self._positions.items():
            if self._retry_at.get(partition, now) > now:
                continue
            self._retry_at.pop(partition, None)
            # One question for a topic: it has many partitions that may have lost their leaders.
            error = unknown.get(partition.topic)
            if error is not None and self._cluster.routes.known(leader_of(partition)) is None:
                failed[partition] = error
                continue
            try:
                wanted.setdefault(self._cluster.leader(partition), {})[partition] = offset
            except RetriableError as found:
                failed[partition] = unknown[partition.topic] = found
        for leader, offsets in wanted.items():
            # One for each leader: a second would take records that the first is about to bring.
            if leader in self._under_way or leader in self._connecting:
                continue
            request = fetch_request_for(
                offsets, size_max=self._size, isolation=self._isolation, topic_id=self._topic_id
            )
            pending = leader.send_nowait(request, version_max=self._version_max)
            if pending is not None:
                self._under_way[leader] = offsets, pending
            elif not only_ready:
                self._connecting[leader] = self._cluster.connecting(leader.node)
                for each in offsets:
                    self._tried_since.setdefault(each, now)

    def _still(
        self, asked: Mapping[TopicPartition, int], found: Iterable[Fetched]
    ) -> dict[TopicPartition, int]:
        """The partitions of a request whose position is the one that was asked for.

        One whose leader has moved may be asked of both, so that it does not wait for a broker that
        hangs. The answer that comes second has what was given out already.
        """
        taken = {each.partition for each in found}
        return {
            each: offset
            for each, offset in asked.items()
            if each not in taken and self._positions.get(each) == offset
        }

    def _has_news(self) -> bool:
        """Whether an answer has come, a leader can be asked, or it is clear that it cannot."""
        return any(each.is_done for _, each in self._under_way.values()) or any(
            map(_is_settled, self._connecting.values())
        )

    def _end_connecting(self, failed: "Failures") -> None:
        """Forget the attempts to connect that have ended."""
        for leader, is_ready in list(self._connecting.items()):
            try:
                if is_ready():
                    del self._connecting[leader]
            except RetriableError as error:
                del self._connecting[leader]
                for each in self._positions:
                    if self._cluster.routes.known(leader_of(each)) == leader.node:
                        failed[each] = error

    def _answered(
        self,
        leader: "RemoteBroker",
        asked: Mapping[TopicPartition, int],
        pending: "PendingRequest",
        *,
        failed: "Failures",
        must_have: bool,
    ) -> list[Fetched]:
        try:
            answer = pending.result(FetchResponse)
            found = [*self._take(leader, asked, answer, failed=failed, must_have=must_have)]
        except RetriableError as error:
            failed.update(dict.fromkeys(asked, error))
            return []
        for each in asked.keys() - failed.keys():
            self._tried_since.pop(each, None)
        return found

    def _postpone(self, failed: "Failures", *, is_alone: bool) -> None:
        """Have partitions wait for their next attempt, at the leader of that time.

        Raises:
            RetriableError: nothing else is under way (`is_alone`).
        """
        for partition, error in failed.items():
            if is_alone:
                raise error
            now = self._cluster.clock()
            if now - self._tried_since.setdefault(partition, now) >= RETRY_S:
                self._error = error
                self._tried_since[partition] = now
            self._retry_at[partition] = now + PAUSE_S
        self._cluster.routes.forget(map(leader_of, failed))

    def _take(
        self,
        leader: "RemoteBroker",
        asked: Mapping[TopicPartition, int],
        answer: FetchResponse,
        *,
        failed: "Failures",
        must_have: bool,
    ) -> Iterator[Fetched]:
        parts = parts_of(answer, asked, topic_id=self._topic_id)
        # A broker that throttles answers without records (KIP-219).
        is_empty = not answer.throttle_time_ms and not any(
            received_records(part.records) for part in parts.values()
        )
        is_cut = False
        for partition, part in parts.items():
            offset, limit = asked[partition], self._limits.get(partition)
            place = f"{leader.address}, {partition}"
            try:
                self._check(part, partition, leader, offset=offset)
            except RetriableError as error:
                failed[partition] = error
                continue
            records = received_records(part.records)
            pieces = checked_pieces(records, offset=offset, place=place)
            if pieces:
                next_offset = pieces[-1].next_offset
                yield Fetched(
                    partition,
                    self._visible(pieces, part, place=place),
                    offset,
                    # The last piece may reach beyond the limit, since a broker answers with whole
                    # batches.
                    next_offset if limit is None else min(limit, next_offset),
                    next_offset,
                )
            elif records:
                is_cut = True
            elif is_empty and limit is not None and self._end_of(part) >= limit:
                if self._is_local(partition, offset):
                    # Compaction has removed all records from here to the end.
                    self._positions.pop(partition, None)
                else:
                    failed[partition] = RemoteRetriableError(
                        ErrorCode.OFFSET_NOT_AVAILABLE,
                        about=f"{leader.address} has not had {partition} from offset {offset} on "
                        "from its remote storage in time (remote.fetch.max.wait.ms)",
                    )
            elif must_have:
                # The log was truncated meanwhile, or the broker is slow to make records visible.
                failed[partition] = RemoteRetriableError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    about=f"{leader.address} has no record of {partition} from offset {offset} on",
                )
        if is_cut:
            self._grow(leader)
        else:
            self._size = self._fetch_bytes

    def _check(
        self, part: PartitionData, partition: TopicPartition, leader: "RemoteBroker", *, offset: int
    ) -> None:
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # For the message: which offsets there are.
            start, end = self._cluster.log_range(partition, isolation=self._isolation)
            raise OffsetOutOfRangeError(
                offset, log_start_offset=start, log_end_offset=end, log=str(partition)
            )
        raise_for(part.error_code, about=f"records of {partition} at {leader.address}")

    def _is_local(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a broker has on its own disks what its log has from an offset on.

        Else an answer without records says nothing: a broker of Kafka with tiered storage sends
        one when the remote storage is slow, or its quota used up (KIP-405).
        """
        try:
            found = self._cluster.list_offsets({partition: SpecialTimestamp.EARLIEST_LOCAL})
        except UnsupportedBrokerError:
            # Before tiered storage there was no such question.
            return True
        return found[partition] <= offset

    def _visible(self, pieces: list[Piece], part: PartitionData, *, place: str) -> list[Piece]:
        if self._isolation is not IsolationLevel.READ_COMMITTED:
            return pieces
        try:
            return committed_pieces(pieces, part.aborted_transactions or ())
        except CorruptionError as error:
            raise error.located(path=place) from error

    def _grow(self, leader: "RemoteBroker") -> None:
        """Ask for more the next time: old brokers cut off even the first batch (before KIP-74)."""
        if self._size == FRAME_BYTES_MAX:
            raise FatalError(
                f"{leader.address}: a batch has more than {FRAME_BYTES_MAX} bytes, the most that "
                "is fetched at once"
            )
        self._size = min(self._size * 2, FRAME_BYTES_MAX)

    def _advance(self, fetched: Fetched) -> None:
        # At the end of the dictionary, so that the next request names this partition last.
        del self._positions[fetched.partition]
        limit = self._limits.get(fetched.partition)
        if limit is None or fetched.next_offset < limit:
            self._positions[fetched.partition] = fetched.next_offset

    def _end_of(self, part: PartitionData) -> int:
        if self._isolation is IsolationLevel.READ_COMMITTED:
            return part.last_stable_offset
        return part.high_watermark


def _is_settled(is_ready: Callable[[], bool]) -> bool:
    """Whether an attempt to connect has ended, well or not."""
    try:
        return is_ready()
    except RetriableError:
        return True


def fetch_pieces(
    cluster: "ClusterReader",
    partition: TopicPartition,
    *,
    start_offset: int,
    limit_offset: int,
    topic_id: UUID | None = None,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[Piece]:
    """Every batch that has an offset from `start_offset` up to below `limit_offset`, in runs.

    Each has passed `Batch.check`; the last run may reach beyond the limit. `topic_id` and
    `isolation` are as for `Tailer`. Retriable errors are retried, a bounded number of times in a
    row.

    Raises:
        OffsetOutOfRangeError: the log does not have the offset any more, or not yet.
        CorruptionError: a batch is damaged; its path is the broker's address and the partition.
        UnreachableBrokerError: the leader does not answer, also after the last attempt.
        RemoteRetriableError: no leader, no records, or no such topic, also after the last attempt.
        RemoteFatalError: the broker refuses.
        FatalError: a batch is larger than a frame may be.
    """
    tailer = Tailer(
        cluster,
        {partition: start_offset},
        limits={partition: limit_offset},
        topic_id=topic_id,
        isolation=isolation,
        fetch_bytes=fetch_bytes,
    )
    while not tailer.is_over:
        for fetched in tailer.next():
            for piece in fetched.pieces:
                if piece.base_offset >= limit_offset:
                    return
                yield piece


def fetch_batches(
    cluster: "ClusterReader",
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
        # Whatever there is: a reader of a range wants no more than that.
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


def parts_of(
    answer: FetchResponse,
    partitions: Iterable[TopicPartition],
    *,
    topic_id: UUID = NO_UUID,
) -> dict[TopicPartition, PartitionData]:
    """The part of an answer about each partition, whose topic has a name or `topic_id` in it.

    Raises:
        RemoteRetriableError: the answer lacks a partition, or has a temporary top-level error.
        RemoteFatalError: the answer has a permanent top-level error.
    """
    wanted = list(partitions)
    raise_for(answer.error_code, about=f"records of {', '.join(map(str, wanted))}")
    named: dict[tuple[str | UUID, int], PartitionData] = {}
    for topic in answer.responses:
        for part in topic.partitions:
            # By both, as versions up to 12 have names and later ones ids.
            named[topic.topic, part.partition_index] = part
            named[topic.topic_id, part.partition_index] = part
    found = {}
    for each in wanted:
        part_or_none = named.get((each.topic, each.partition))
        if part_or_none is None and topic_id != NO_UUID:
            part_or_none = named.get((topic_id, each.partition))
        if part_or_none is None:
            raise RemoteRetriableError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about=str(each))
        found[each] = part_or_none
    return found


def checked_pieces(records: memoryview, *, offset: int, place: str) -> list[Piece]:
    """The whole batches of an answer that reach `offset`; a partial one at the end is left out.

    Raises:
        CorruptionError: a batch is damaged; its path is `place`, the broker and the partition.
    """
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
    # In falling order, so that the next one is popped from the end.
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
                    # What the producer writes after the marker belongs to its next transaction.
                    producers.discard(piece.producer_id)
            elif piece.is_transactional and piece.producer_id in producers:
                continue
        found.append(piece)
    return found
