"""`FetchedPart`: the records of one partition from one answer to Fetch, on their way to the caller.

    bytes -> pieces (batches whose CRC holds, without aborted transactions) -> rows or columns

The bytes are cut into pieces when they arrive, so that the next fetch is known; the records are
decoded when the caller wants them.

Invariant: each batch of `pieces` has passed `Batch.check`. What follows a damaged batch is not
read: `error` tells it once everything before it was returned.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tailrace.client.consumer.errors import DamagedRecordsError
from tailrace.client.tailer import committed_pieces
from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.model import NO_LEADER_EPOCH, OFFSET_MAX, Offset, TopicPartition
from tailrace.protocol.messages.fetch import AbortedTransaction
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.records.codecs import DecompressedTooLargeError
from tailrace.records.runs import BatchRun, Field, Piece, read_runs

if TYPE_CHECKING:
    from tailrace.client.consumer.rows import RowSource

DECODE_FAULTS: Final = (
    CorruptionError,
    UnsupportedCodecError,
    DecompressedTooLargeError,
    OverflowError,
)
"""Errors of batches whose CRC holds, when their records are decoded."""


class FetchedPart:
    """Records of one partition; `offset` and what follows moves on as they are returned."""

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
