"""Calls with swapped arguments, which mypy refuses; nothing runs them.

Each error is ignored under its code, and `warn_unused_ignores` (part of `strict`) reports an ignore
without an error. So `make check` fails as soon as mypy no longer tells one of these mistakes.
"""

from dataclasses import replace

from tailrace.client.producer.intake.columns import Binaries
from tailrace.coordinator.machine import Machine, TransactionalProducer
from tailrace.coordinator.transactions.markers import Marker
from tailrace.coordinator.transactions.state import Transaction
from tailrace.kernels.arrays import Int64s, UInt8s
from tailrace.model import LeaderEpoch, Offset, Position, ProducerEpoch
from tailrace.reading.lookup import position_near
from tailrace.reading.reader import LogReader, StoredBatch
from tailrace.reading.view import LogView, Span
from tailrace.records.batch import Batch
from tailrace.records.builder import Record
from tailrace.records.column_buffers import HeaderBuffers
from tailrace.records.runs import BatchRun
from tailrace.replication.partition import Partition
from tailrace.runtime.files import File, Files
from tailrace.spark.jobs.sketches import DistinctCount
from tailrace.storage.appends import PlannedAppend, placed
from tailrace.storage.epochs import EpochEntry, LeaderEpochs
from tailrace.storage.index.offset import OffsetIndex, OffsetPosition
from tailrace.storage.index.time import TimeIndex
from tailrace.storage.index.transaction import AbortedTxn, TransactionIndex
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit
from tailrace.storage.producers import CompletedTransaction, OpenTransaction, ProducerStates
from tailrace.storage.records_file import RecordsFile
from tailrace.storage.segment import Segment
from tailrace.storage.snapshots import KnownBatch, KnownProducer, encode_snapshot


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


def producer_and_first_offset_swapped(batch: Batch) -> AbortedTxn:
    """The first two fields of a transaction exchanged."""
    producer_id, first, last = batch.producer_id, batch.base_offset, batch.last_offset
    CompletedTransaction(first, producer_id, last, is_aborted=True)  # type: ignore[arg-type]
    OpenTransaction(first, producer_id, batch.max_timestamp)  # type: ignore[arg-type]
    return AbortedTxn(first, producer_id, last, last)  # type: ignore[arg-type]


def producer_and_epoch_swapped(states: ProducerStates, batch: Batch) -> None:
    """A producer id and its epoch exchanged."""
    states.begin_verification(
        batch.producer_epoch,  # type: ignore[arg-type]
        epoch=batch.producer_id,  # type: ignore[arg-type]
        sequence=batch.base_sequence,
        now_ms=0,
    )
    states.get(batch.producer_epoch)  # type: ignore[arg-type]


def offset_and_timestamp_swapped(states: ProducerStates, batch: Batch) -> None:
    """The largest timestamp of a batch where its last offset is due."""
    states.note(
        batch,
        base_offset=batch.base_offset,
        last_offset=batch.max_timestamp,  # type: ignore[arg-type]
        timestamp=batch.last_offset,
    )


def sequence_and_offset_swapped(batch: Batch) -> KnownBatch:
    """The last sequence of a batch where its last offset is due."""
    return KnownBatch(batch.last_offset, batch.last_sequence, 0, 0)  # type: ignore[arg-type]


def coordinator_epoch_as_producer_epoch(coordinator_epoch: int) -> KnownProducer:
    """The epoch of a coordinator where that of a producer is due."""
    return KnownProducer(coordinator_epoch, (), 0)  # type: ignore[arg-type]


def timestamp_as_offset_of_snapshot(states: ProducerStates, now_ms: int) -> None:
    """A time where the offset of a snapshot, a marker or a log is due."""
    states.write_snapshot(now_ms)  # type: ignore[arg-type]
    states.advance_high_watermark(now_ms)  # type: ignore[arg-type]
    states.truncate_fully(now_ms)  # type: ignore[arg-type]


def position_in_transaction_index(index: TransactionIndex, position: Position) -> None:
    """A byte position where the transaction index wants an offset."""
    index.collect(Offset(0), position)  # type: ignore[arg-type]
    index.truncate_to(position)  # type: ignore[arg-type]


def epoch_and_offset_of_append_swapped(planned: PlannedAppend) -> PlannedAppend:
    """The leader epoch of an append and its offset exchanged."""
    return placed(
        planned,
        next_offset=planned.leader_epoch,  # type: ignore[arg-type]
        leader_epoch=planned.base_offset,  # type: ignore[arg-type]
        now_ms=0,
    )


def timestamp_as_leader_epoch(log: Log, records: memoryview, *, now_ms: int) -> None:
    """The time of an append where the leader epoch is due."""
    log.append(records, leader_epoch=now_ms, now_ms=now_ms)  # type: ignore[arg-type]


def size_and_offset_swapped(partition: Partition, batch: Batch) -> None:
    """The size of a fetch where its offset is due."""
    partition.read(
        batch.size,  # type: ignore[arg-type]
        bytes_max=batch.base_offset,
        is_first_whole=True,
        limit=ReadLimit.LOG_END,
    )


def epoch_and_offset_of_partition_swapped(partition: Partition, batch: Batch) -> None:
    """A leader epoch where an offset is due, and the other way round."""
    partition.delete_records(batch.leader_epoch)  # type: ignore[arg-type]
    partition.check_epoch(batch.base_offset)  # type: ignore[arg-type]


def position_as_offset_in_readers(view: LogView, reader: LogReader, stored: StoredBatch) -> Span:
    """The position of a stored batch where its offset is due."""
    view.offset_at(0, start=stored.position)  # type: ignore[arg-type]
    view.find_aborted(stored.position)  # type: ignore[arg-type]
    reader.batches(stored.position, reader.end_offset)  # type: ignore[arg-type]
    return Span(view.partition, stored.position, reader.end_offset)  # type: ignore[arg-type]


def offset_as_position_of_stored_batch(files: Files, file: File, reader: LogReader) -> StoredBatch:
    """An offset where the position of a stored batch is due, and a position where it is not."""
    segment = reader.segments[0]
    near = position_near(files, segment, file, offset=reader.end_offset)
    position_near(files, segment, file, offset=near)  # type: ignore[arg-type]
    batch = next(reader.batches(reader.start_offset, reader.end_offset))
    return StoredBatch(batch, segment.path, batch.base_offset)  # type: ignore[arg-type]


def position_as_offset_in_a_run(run: BatchRun, position: Position) -> None:
    """A byte position where a run of batches wants an offset."""
    run.since(position)  # type: ignore[arg-type]
    run.batches(run.base_offset, position)  # type: ignore[arg-type]


def producer_epoch_as_producer_id(epoch: ProducerEpoch, known: KnownProducer) -> None:
    """The epoch of a producer as the key of its state."""
    encode_snapshot({epoch: known})  # type: ignore[dict-item]


def bytes_and_ends_swapped(data: UInt8s, ends: Int64s) -> Binaries:
    """The bytes of a column and the ends of its rows exchanged."""
    return Binaries(ends, data)  # type: ignore[arg-type]


def bytes_and_payloads_swapped(buffers: HeaderBuffers, source: UInt8s, payloads: Int64s) -> int:
    """The bytes of batches and the places of their payloads exchanged."""
    return buffers.decode(payloads, source, start=0, limit=1)  # type: ignore[arg-type]


def lengths_as_hashes(distinct: DistinctCount, lengths: Int64s) -> None:
    """The lengths of values where their hashes are due."""
    distinct.add(lengths)  # type: ignore[arg-type]


def offset_and_timestamp_of_record_swapped(record: Record) -> Record:
    """A record with its first two fields exchanged."""
    return Record(record.timestamp, record.offset, None, None)  # type: ignore[arg-type]


def marker_of_swapped_producer(marker: Marker) -> TransactionalProducer:
    """Producer id and epochs of a transaction exchanged."""
    replace(marker, producer_id=marker.producer_epoch)  # type: ignore[arg-type]
    replace(marker, coordinator_epoch=marker.producer_epoch)  # type: ignore[arg-type]
    return TransactionalProducer(marker.producer_epoch, marker.producer_id)  # type: ignore[arg-type]


def transaction_with_swapped_ids(current: Transaction) -> Transaction:
    """Epochs and producer ids of the coordinator's state exchanged."""
    replace(current, producer_id=current.producer_epoch)  # type: ignore[arg-type]
    return replace(current, last_epoch=current.previous_producer_id)  # type: ignore[arg-type]


def marker_by_its_epoch(machine: Machine, producer: TransactionalProducer) -> None:
    """The epoch of a producer where its id is due."""
    machine.replay_marker(producer.producer_epoch, is_commit=True)  # type: ignore[arg-type]
