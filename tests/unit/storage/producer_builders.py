"""Batches, markers and logs for tests of what a log knows of its producers."""

from tailrace.model import AppendOrigin, Offset, ProducerEpoch, ProducerId
from tailrace.records.batch import Batch, stamp
from tailrace.records.builder import BatchBuilder
from tailrace.records.control import ControlType, build_end_marker
from tailrace.storage.index.transaction import AbortedTxn
from tailrace.storage.producers import (
    CompletedTransaction,
    KnownBatch,
    KnownProducer,
    OpenTransaction,
    ProducerStates,
)
from tailrace.storage.segment import Segment, SegmentAppend, open_segment
from tailrace.storage.segments import Segments
from tailrace.storage.snapshots import list_snapshots
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import FOLDER, NOW, batch, settings

LAST = 2**31 - 1
"""The largest sequence number."""

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def folder() -> MemoryFiles:
    """A disk with an empty partition folder."""
    files = MemoryFiles()
    files.make_directory(FOLDER)
    return files


def aborted_txn(producer_id: int, first: int, last: int, stable: int) -> AbortedTxn:
    """An aborted transaction, from plain numbers."""
    return AbortedTxn(ProducerId(producer_id), Offset(first), Offset(last), Offset(stable))


def completed_transaction(
    producer_id: int, first: int, last: int, *, is_aborted: bool
) -> CompletedTransaction:
    """A transaction that was ended, from plain numbers."""
    return CompletedTransaction(
        ProducerId(producer_id), Offset(first), Offset(last), is_aborted=is_aborted
    )


def open_transaction(producer_id: int, first: int, timestamp: int) -> OpenTransaction:
    """A transaction that is open, from plain numbers."""
    return OpenTransaction(ProducerId(producer_id), Offset(first), timestamp)


def known_batch(
    last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
) -> KnownBatch:
    """A batch of a producer, from plain numbers."""
    return KnownBatch(last_sequence, Offset(last_offset), offset_delta, timestamp)


def known_producer(
    epoch: int,
    batches: tuple[KnownBatch, ...],
    timestamp: int,
    coordinator_epoch: int = -1,
    transaction_start: int = -1,
) -> KnownProducer:
    """The state of a producer, from plain numbers."""
    return KnownProducer(
        ProducerEpoch(epoch), batches, timestamp, coordinator_epoch, Offset(transaction_start)
    )


def known_producers(producers: dict[int, KnownProducer]) -> dict[ProducerId, KnownProducer]:
    """The producers of a snapshot, from plain ids."""
    return {ProducerId(producer_id): each for producer_id, each in producers.items()}


def states(files: MemoryFiles | None = None) -> ProducerStates:
    """Producer states of a new log."""
    return ProducerStates(files or folder(), FOLDER)


def sent(
    sequence: int,
    *,
    count: int = 1,
    epoch: int = 0,
    producer_id: int = 7,
    is_transactional: bool = False,
) -> Batch:
    """A batch as a producer sends it."""
    data = batch(
        *[b"v"] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return Batch(memoryview(data))


def marker(
    kind: ControlType = COMMIT,
    *,
    epoch: int = 0,
    producer_id: int = 7,
    coordinator_epoch: int = 0,
) -> Batch:
    """The end of a transaction, as its coordinator writes it."""
    data = build_end_marker(
        producer_id,
        epoch,
        is_commit=kind is COMMIT,
        coordinator_epoch=coordinator_epoch,
        timestamp=NOW,
    )
    return Batch(memoryview(data))


def control(
    key: bytes | None, value: bytes | None, *, epoch: int = 0, producer_id: int = 7
) -> Batch:
    """A control batch with any record."""
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, is_transactional=True, is_control=True
    )
    builder.append(key, value, timestamp=NOW)
    return Batch(memoryview(bytearray(builder.build())))


def note(
    known: ProducerStates,
    *batches: Batch,
    offset: int = 0,
    timestamp: int = NOW,
    now_ms: int = NOW,
) -> int:
    """Note batches as if they were appended from an offset on; returns the next offset."""
    for each in batches:
        last = offset + each.last_offset_delta
        completed = known.note(
            each,
            base_offset=Offset(offset),
            last_offset=Offset(last),
            timestamp=timestamp,
            now_ms=now_ms,
        )
        if completed is not None:
            known.complete(completed)
        offset = last + 1
    return offset


def append(
    known: ProducerStates,
    each: Batch,
    offset: int,
    *,
    origin: AppendOrigin | None = None,
    timestamp: int = NOW,
) -> CompletedTransaction | None:
    """Check a batch, which must be none that was sent before, and note it at an offset."""
    if origin is None:
        origin = AppendOrigin.COORDINATOR if each.is_control else AppendOrigin.CLIENT
    assert known.check(each, origin=origin) is None
    completed = known.note(
        each,
        base_offset=Offset(offset),
        last_offset=Offset(offset + each.last_offset_delta),
        timestamp=timestamp,
        now_ms=timestamp,
    )
    if completed is not None:
        known.complete(completed)
    return completed


def producer(known: ProducerStates, producer_id: int = 7) -> KnownProducer:
    """Return a producer that is not forgotten."""
    found = known.get(ProducerId(producer_id))
    assert found is not None
    return found


def unstable(known: ProducerStates) -> Offset | None:
    """The first unstable offset; by a call, as it changes between two assertions."""
    return known.first_unstable_offset


def segments(files: MemoryFiles, *base_offsets: int) -> Segments:
    """Empty segments, at 0 unless said otherwise."""
    return Segments(
        [
            open_segment(files, FOLDER, base_offset=Offset(each), config=settings(), create=True)
            for each in base_offsets or (0,)
        ]
    )


def write(segment: Segment, *batches: Batch, offset: int) -> int:
    """Put batches into a segment from an offset on; returns the next offset."""
    for each in batches:
        data = memoryview(bytearray(each.view))
        stamp(data, base_offset=offset, leader_epoch=0)
        last = offset + each.last_offset_delta
        segment.append(
            SegmentAppend(
                data=data,
                last_offset=Offset(last),
                max_timestamp=each.max_timestamp,
                max_timestamp_offset=Offset(last),
            )
        )
        offset = last + 1
    return offset


def reload(known: ProducerStates, found: Segments, *, log_end: int, log_start: int = 0) -> None:
    """Rebuild the state at the log end, from plain numbers."""
    known.reload(found, log_start=Offset(log_start), log_end=Offset(log_end))


def reloaded(
    files: MemoryFiles, *base_offsets: int, log_end: int, log_start: int = 0
) -> ProducerStates:
    """The state of a second start, from the snapshots alone: the segments are empty."""
    known = states(files)
    reload(known, segments(files, *base_offsets), log_start=log_start, log_end=log_end)
    known.snapshots.sync_removals()
    return known


def snapshots(files: MemoryFiles) -> list[Offset]:
    """Offsets of the snapshots in the folder."""
    return list_snapshots(files, FOLDER)
