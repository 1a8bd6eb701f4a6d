"""Calls with swapped arguments, which mypy refuses; nothing runs them.

Each error is ignored under its code, and `warn_unused_ignores` (part of `strict`) reports an ignore
without an error. So `make check` fails as soon as mypy no longer tells one of these mistakes.
"""

from tailrace.model import LeaderEpoch, Offset, Position
from tailrace.records.batch import Batch
from tailrace.storage.epochs import EpochEntry, LeaderEpochs
from tailrace.storage.index.offset import OffsetIndex, OffsetPosition
from tailrace.storage.index.time import TimeIndex
from tailrace.storage.records_file import RecordsFile
from tailrace.storage.segment import Segment


def position_as_offset(segment: Segment, entry: OffsetPosition) -> None:
    """A byte position where an offset is due."""
    segment.find(entry.position)  # type: ignore[arg-type]
    segment.truncate_to(segment.size)  # type: ignore[arg-type]
    segment.position_near(entry.position)  # type: ignore[arg-type]


def offset_as_position(log: RecordsFile, batch: Batch) -> None:
    """An offset where a byte position is due."""
    log.offsets_at(batch.base_offset)  # type: ignore[arg-type]
    log.truncate(batch.next_offset)  # type: ignore[arg-type]


def offset_and_position_swapped(index: OffsetIndex, offset: Offset, position: Position) -> None:
    """An entry of the offset index with its fields exchanged."""
    index.append(position, offset)  # type: ignore[arg-type]


def timestamp_and_offset_swapped(index: TimeIndex, batch: Batch) -> None:
    """An entry of the time index with its fields exchanged."""
    index.maybe_append(batch.last_offset, batch.max_timestamp)  # type: ignore[arg-type]


def epoch_and_offset_swapped(epochs: LeaderEpochs, batch: Batch) -> EpochEntry:
    """A leader epoch and its first offset exchanged."""
    epochs.assign(batch.base_offset, batch.leader_epoch)  # type: ignore[arg-type]
    epochs.at(batch.leader_epoch)  # type: ignore[arg-type]
    return EpochEntry(batch.base_offset, LeaderEpoch(0))  # type: ignore[arg-type]


def producer_epoch_as_leader_epoch(epochs: LeaderEpochs, batch: Batch) -> None:
    """The epoch of a producer where that of a leader is due."""
    epochs.assign(batch.producer_epoch, batch.base_offset)  # type: ignore[arg-type]
