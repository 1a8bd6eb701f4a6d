"""Fetched records of one partition, from the bytes of an answer to objects for the caller.

    bytes -> pieces (batches whose CRC holds, without aborted transactions): `FetchedPart`
    pieces -> source: the payloads of several batches, in one buffer
    source -> records, some hundred at a time

The bytes are cut into pieces when they arrive, so that the next fetch is known; the records are
decoded when the caller wants them, by `take_rows` or as `columns`. One call of a kernel makes the
records that a poll returns, so there is no line of Python for a single record, unless a
deserializer is one, and each byte of a key or value is copied once.

Invariant: each batch of `pieces` has passed `Batch.check`, and records are in the order of their
offsets. What follows a damaged batch is not read: `error` tells it once everything before it was
returned.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from tailrace.client.consumer.errors import DamagedRecordsError, RecordDeserializationError
from tailrace.client.consumer.records import ConsumerRecord
from tailrace.client.tailer import committed_pieces
from tailrace.client.user_code import function_for
from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.kernels import PAYLOAD_WIDTH, Payload, RecordFault, int64s
from tailrace.kernels.rows import (
    KEY_INDEX,
    ROW_CURSOR_SIZE,
    RowCursor,
    deserialize_records,
    take_records,
)
from tailrace.model import NO_LEADER_EPOCH, OFFSET_MAX, Offset, TimestampType, TopicPartition
from tailrace.protocol.messages.fetch import AbortedTransaction
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.records.checks import check_records
from tailrace.records.codecs import DecompressedTooLargeError
from tailrace.records.payloads import payload_of, payloads_of, readable_view
from tailrace.records.runs import BatchRun, Field, Piece, read_runs

DECODE_FAULTS: Final = (
    CorruptionError,
    UnsupportedCodecError,
    DecompressedTooLargeError,
    OverflowError,
)
"""Errors of batches whose CRC holds, when their records are decoded."""


class TopicDeserializer(Protocol):
    """A deserializer that is called with the topic, as those of `tailrace.schemas`."""

    def deserialize(self, topic: str, data: bytes, /) -> Any:  # noqa: ANN401 - any value
        """The value of the bytes of a key or value of this topic."""
        ...


Deserializer = Callable[[bytes], Any] | TopicDeserializer
"""Turns the bytes of a key or value into what a program works with; not called for null."""

BLOCK_BYTES: Final = 1 << 20
"""Batches are decompressed ahead until they have this many bytes: a few ms of work at a time."""

_TYPES: Final = (TimestampType.LOG_APPEND_TIME, TimestampType.CREATE_TIME)


class FetchedPart:
    """Records of one partition; pieces leave it as they are returned."""

    __slots__ = (
        "end_epoch",
        "end_offset",
        "error",
        "node_id",
        "partition",
        "pieces",
        "size",
        "source",
    )

    def __init__(
        self,
        partition: TopicPartition,
        *,
        offset: int,
        node_id: int = -1,
        size: int = 0,
        error: Exception | None = None,
    ) -> None:
        self.partition = partition
        self.pieces: deque[Piece] = deque()
        self.end_offset = offset
        """The offset after all records, also those that are left out."""
        self.end_epoch: int = NO_LEADER_EPOCH
        """Leader epoch of the last batch."""
        self.error = error
        """Raised, or acted upon, when the position is at the end of the pieces."""
        self.node_id = node_id
        """The broker that sent them."""
        self.size = size
        """Bytes that are kept in memory."""
        self.source: RowSource | None = None
        """The first pieces, if some of their records are taken and others are left."""

    def release(self) -> None:
        self.pieces.clear()
        self.source = None
        self.size = 0

    def passed(self, offset: int) -> None:
        """Forget the pieces before this offset."""
        while self.pieces and self.pieces[0].next_offset <= offset:
            self.pieces.popleft()

    def split_first(self) -> None:
        """Put the batches of the first run in its place, to find the one that is damaged."""
        piece = self.pieces.popleft()
        assert isinstance(piece, BatchRun), "a batch cannot be split"
        batches = [batch for _, batch in piece.batches(Offset(0), OFFSET_MAX)]
        self.pieces.extendleft(reversed(batches))


def cut_records(
    part: FetchedPart,
    records: memoryview,
    *,
    place: str,
    aborted: Sequence[AbortedTransaction] | None,
) -> None:
    """Fill a part with the batches of an answer that reach its offset.

    With `aborted`, the batches of these transactions are left out. A batch that is cut off at the
    end is left out; it is fetched again.
    """
    offset = part.end_offset
    pieces: list[Piece] = []
    reader = read_runs(records)
    position = 0
    try:
        for position, piece in reader:  # noqa: B007 - the error handler reports it
            # A broker answers from the start of the batch that has the offset.
            if piece.last_offset < offset:
                continue
            if isinstance(piece, Batch):
                piece.check()
            else:
                piece = piece.since(Offset(offset))  # noqa: PLW2901
            # Records would be returned twice, or the position would go back.
            if pieces and piece.base_offset < pieces[-1].next_offset:
                raise CorruptionError(
                    f"the batch begins at offset {piece.base_offset}, before the end of the one "
                    "in front of it"
                )
            if piece.last_offset >= OFFSET_MAX:
                raise CorruptionError(f"the batch ends at offset {piece.last_offset}")
            pieces.append(piece)
    except CorruptionError as error:
        # The sound batches before the damage are returned; the error waits after them.
        begin = pieces[-1].next_offset if pieces else offset
        part.error = damaged(
            error,
            part.partition,
            place=place,
            position=position,
            offset=begin,
            next_offset=_offset_after(records, position, begin),
        )
    if pieces:
        part.end_offset, part.end_epoch = pieces[-1].next_offset, epoch_of(pieces[-1])
    # Aborted transactions are left out here, by their ranges and markers (KIP-98).
    if aborted is not None:
        try:
            pieces = committed_pieces(pieces, aborted)
        except DECODE_FAULTS as error:
            # Without its marker nobody knows which records are aborted: none of them is returned.
            part.end_offset, pieces = offset, []
            part.error = damaged(
                error, part.partition, place=place, position=None, offset=offset, next_offset=None
            )
    # Markers are no records, and the position passes them.
    part.pieces.extend(each for each in pieces if not (isinstance(each, Batch) and each.is_control))


def epoch_of(piece: Piece) -> int:
    if isinstance(piece, Batch):
        return piece.leader_epoch
    return piece.last_header[Field.LEADER_EPOCH]


def damaged(
    error: Exception,
    partition: TopicPartition,
    *,
    place: str,
    position: int | None,
    offset: int,
    next_offset: int | None,
) -> DamagedRecordsError:
    """The error for the caller: where the damage is, and where to read on."""
    found = DamagedRecordsError(
        error.rule if isinstance(error, CorruptionError) else str(error),
        path=place,
        position=position,
        offset=offset,
        partition=partition,
        next_offset=next_offset,
    )
    found.__cause__ = error
    return found


def _offset_after(records: memoryview, position: int, offset: int) -> int:
    """The offset after a damaged batch by its header, or the next offset if that makes no sense."""
    if len(records) - position >= layout.HEADER_SIZE:
        header = layout.HEADER.unpack_from(records, position)
        after: int = header[Field.BASE_OFFSET] + header[Field.LAST_OFFSET_DELTA] + 1
        # The header may be the damaged part: a batch has no more records than bytes.
        size = header[Field.LENGTH] + layout.LOG_OVERHEAD
        if size <= len(records) - position and offset < after <= offset + size:
            return after
    return offset + 1


class Rows(NamedTuple):
    """Neighbouring records of one partition."""

    records: list[ConsumerRecord]
    next_offset: int
    """The offset to read on from."""


class RowSource:
    """The records of neighbouring batches, which are taken bit by bit."""

    __slots__ = ("_batches", "_cursor", "_octets", "_payloads", "_place", "_start", "next_offset")

    def __init__(
        self,
        partition: TopicPartition,
        batches: BatchRun | list[Batch],
        *,
        octets: memoryview,
        payloads: "array[int]",
        start: int,
        next_offset: int,
    ) -> None:
        """Records from the offset `start` on; `payloads` are the places of the batches in `octets`.

        `next_offset` is the one after the batches.
        """
        self._place = tuple(partition)
        self._octets = octets
        self._payloads = payloads
        self._batches = batches
        self._start = start
        self._cursor = int64s(ROW_CURSOR_SIZE)
        self.next_offset = next_offset

    @property
    def batch(self) -> Batch:
        index = self._cursor[RowCursor.BATCH]
        if not isinstance(self._batches, BatchRun):
            return self._batches[index]
        at = PAYLOAD_WIDTH * index
        start, limit = self._payloads[at + Payload.POSITION], self._payloads[at + Payload.LIMIT]
        return Batch(self._octets[start - layout.HEADER_SIZE : limit])

    def take(self, count_max: int) -> Rows | None:
        """The next `count_max` records or fewer; None if there are no more.

        Raises:
            CorruptRecordError: a record of `batch` breaks a rule of the format.
        """
        found: list[ConsumerRecord] = []
        # One call for all records of a poll: a line of Python for each would cost more than the
        # rest.
        status = take_records(
            self._octets, self._payloads, self._cursor, self._start, count_max,
            ConsumerRecord, self._place, _TYPES, found,
        )  # fmt: skip
        if status < 0:
            # The kernel says only that a rule is broken; the walk in Python finds which, and where.
            check_records(self.batch)
            raise AssertionError(f"a batch has {RecordFault(-status)!r}, and the walk found none")
        if not found:
            return None
        # After the last record of a batch there may be a gap: compaction has removed records.
        is_over = PAYLOAD_WIDTH * self._cursor[RowCursor.BATCH] == len(self._payloads)
        return Rows(found, self.next_offset if is_over else found[-1].offset + 1)


def take_rows(part: FetchedPart, position: int, count_max: int) -> Rows | None:
    """The next records of a part from `position` on, `count_max` or fewer; None if it has no more.

    Raises:
        DamagedRecordsError: the next batch is damaged; `next_offset` is after it.
    """
    assert count_max > 0, "no records are all records, or none"
    while part.pieces:
        try:
            if part.source is None:
                part.source = _source(part, position)
            source = part.source
            rows = source.take(count_max)
        except DECODE_FAULTS as error:
            batch = part.pieces[0] if part.source is None else part.source.batch
            raise damaged(
                error,
                part.partition,
                place=str(part.partition),
                position=None,
                offset=batch.base_offset,
                next_offset=batch.next_offset,
            ) from error
        if rows is not None:
            return rows
        part.passed(source.next_offset)
        position = max(position, source.next_offset)
        # It may have begun in the middle of a batch; the next one begins a source of its own.
        part.source = None
    return None


def deserialized(
    records: list[ConsumerRecord], key: Deserializer | None, value: Deserializer | None
) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
    """The records with deserialized keys and values.

    They end before the first that a deserializer has failed on, and its error comes with them.
    """
    # Records of one fetched part, so of one topic.
    topic = records[0].topic if records else ""
    made, part, error = deserialize_records(
        ConsumerRecord,
        records,
        function_for(key, topic, method="deserialize"),
        function_for(value, topic, method="deserialize"),
    )
    if error is None:
        return made, None
    failed = records[len(made)]
    found = RecordDeserializationError(
        failed.topic_partition,
        failed.offset,
        part="key" if part == KEY_INDEX else "value",
        reason=f"{type(error).__name__}: {error}",
    )
    found.__cause__ = error
    return made, found


def _source(part: FetchedPart, start: int) -> RowSource:
    """The first run of a part, or the first batches that are not in a run."""
    first = part.pieces[0]
    if not isinstance(first, BatchRun):
        return _source_of_batches(part.partition, part.pieces, start)
    return RowSource(
        part.partition,
        first,
        octets=first.view,
        payloads=payloads_of(first),
        start=start,
        next_offset=first.next_offset,
    )


def _source_of_batches(partition: TopicPartition, pieces: Iterable[Piece], start: int) -> RowSource:
    """The first batch, and those that follow it before a run, until there are `BLOCK_BYTES`.

    Raises:
        CorruptRecordError, CorruptCompressionError, UnsupportedCodecError, OverflowError: the first
            batch cannot be read; as `readable_view`.
    """
    views: list[memoryview] = []
    payloads = array("q")
    batches: list[Batch] = []
    size = 0
    for each in pieces:
        if isinstance(each, BatchRun) or size >= BLOCK_BYTES:
            break
        try:
            view = readable_view(each, collected=size)
        except DECODE_FAULTS:
            # The batches before a damaged one are returned first.
            if not batches:
                raise
            break
        # Payloads lie one after the other in one buffer, for which this is the list of places.
        payloads.extend(payload_of(each, size, len(view)))
        views.append(view)
        batches.append(each)
        size += len(view)
    return RowSource(
        partition,
        batches,
        octets=views[0] if len(views) == 1 else memoryview(b"".join(views)),
        payloads=payloads,
        start=start,
        next_offset=batches[-1].next_offset,
    )
