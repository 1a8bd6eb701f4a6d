"""Batches with their place, and what of them cannot be read: an error, or a value.

A batch comes from a log file, or from a broker, which tells no place.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeAlias

from tailrace.errors import CorruptionError, FatalError, UnsupportedCodecError
from tailrace.model import Offset, Position, TopicPartition
from tailrace.records.batch import Batch
from tailrace.records.runs import Piece, batches_of

LocatedBatch: TypeAlias = tuple[Batch, str | None, Position | None]
"""A batch with its log file and its position there (bytes), which a broker does not tell."""

LocatedBatches: TypeAlias = tuple[Piece, str | None, Position | None]
"""A batch or a run of them, with its log file and the position of its first byte there."""


class OffsetSpan(Protocol):
    """A range of offsets of one partition."""

    @property
    def partition(self) -> TopicPartition:
        """The partition that has these offsets."""
        ...

    @property
    def start(self) -> Offset: ...

    @property
    def limit(self) -> Offset:
        """The offset after the last."""
        ...


class Skipped(NamedTuple):
    """Offsets of a partition that were left out because they cannot be read."""

    partition: TopicPartition
    file: str
    position: Position
    """Bytes from the start of the file to the damage."""
    first_offset: Offset
    next_offset: Offset | None
    """The first offset that can be read again; None if it is unknown."""
    reason: str
    records: int | None = None
    """Records that are left out, markers of transactions included; None if unknown."""
    size_bytes: int = 0
    """Bytes of the file that are left out."""


OnSkip: TypeAlias = Callable[[Skipped], None]


def split_batches(located: LocatedBatches, wanted: OffsetSpan) -> Iterator[LocatedBatch]:
    """The single batches that hold an offset of the range, each with its own position."""
    piece, path, start = located
    for position, batch in batches_of(piece, wanted.start, wanted.limit):
        yield batch, path, None if start is None else Position(start + position)


def records_between(batch: Batch, first: Offset, limit: Offset) -> int | None:
    """Records of a batch in a range of its offsets; None if only the records could tell."""
    if first <= batch.base_offset and batch.next_offset <= limit:
        return batch.record_count
    # Compaction leaves fewer records than offsets, and only the records say which.
    is_dense = batch.record_count == batch.last_offset_delta + 1
    return max(limit - first, 0) if is_dense else None


@contextmanager
def decoding(located: LocatedBatch, wanted: OffsetSpan, on_skip: OnSkip | None) -> Iterator[None]:
    """A block that decodes a batch with the right checksum; `on_skip` takes a fault in it.

    Raises:
        CorruptionError: a record breaks a rule and `on_skip` is None; with the place of the batch.
        FatalError: the batch is compressed with a codec that Kafka does not have.
    """
    batch, path, position = located
    try:
        yield
    except CorruptionError as error:
        found = error.located(path=path or str(wanted.partition), position=position)
        if on_skip is None:
            raise found from error
        first, limit = max(batch.base_offset, wanted.start), min(batch.next_offset, wanted.limit)
        on_skip(
            Skipped(
                wanted.partition,
                found.path or "",
                Position(found.position or 0),
                first,
                limit,
                found.rule,
                records_between(batch, first, limit),
                batch.size,
            )
        )
    # Not skipped: the bytes are sound, and a newer version of this program may read them.
    except UnsupportedCodecError as error:
        raise FatalError(f"{wanted.partition}, {batch!r}: {error}") from error
