"""Rewrite a batch without the records that compaction removes.

    batch                         its new bytes
    v2, some records kept         header, with the same offsets, producer, sequence, epoch and type;
                                  the kept records, in the same codec
    v2, no record kept            61 bytes of header, which keeps producer state and offsets
    v0 or v1                      a single record stays as it is; a wrapper becomes a wrapper of the
                                  same format with the kept records

A record's offset never changes. Neither do the first and the last offset of a v2 batch, because its
last sequence number is computed from them. A delete horizon (KIP-534) replaces the base timestamp,
so records are then written with new deltas; their timestamps stay.

Invariant: a batch built here passes `Batch.check`, and has exactly the kept records.
"""

import zlib
from collections.abc import Iterator, Sequence
from itertools import compress as those_with
from struct import Struct
from typing import Final, NamedTuple

from tailrace import kernels
from tailrace.kernels import BATCH_ROW_SIZE, BatchRow
from tailrace.kernels.records import wrapping_sum
from tailrace.model import NO_TIMESTAMP, Codec, TimestampType
from tailrace.records import layout, packages
from tailrace.records.batch import Batch, LegacyEntry
from tailrace.records.builder import Record, records_of
from tailrace.records.codecs import compress
from tailrace.records.legacy import entries_of
from tailrace.runtime.files import Buffer
from tailrace.storage.cleaner.passes import RetainedRecords, Run

_FRAME: Final = Struct(">qiI")
_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")


class RewrittenBatch(NamedTuple):
    """A v2 batch to rewrite with its kept records, at least one, and its new header fields."""

    batch: Batch
    place: int
    """Index of the batch in its run."""
    choice: RetainedRecords
    attributes: int
    base_timestamp: int
    max_timestamp: int

    @property
    def kept(self) -> int:
        """Number of kept records."""
        return self.choice.kept


def change_of(
    batch: Batch, place: int, choice: RetainedRecords, *, horizon_ms: int | None
) -> RewrittenBatch:
    """The new header fields of a batch of a run.

    `horizon_ms` is its new delete horizon; None keeps the old one, if any. The base timestamp is
    the delete horizon, or without one the timestamp of the first kept record, as in Kafka.
    """
    assert choice.kept > 0
    attributes = batch.attributes
    base_timestamp, max_timestamp = batch.base_timestamp, batch.max_timestamp
    if not attributes & layout.LOG_APPEND_TIME_FLAG:
        max_timestamp = wrapping_sum(base_timestamp, choice.timestamp_delta_max)
        if not attributes & layout.DELETE_HORIZON_FLAG:
            base_timestamp = wrapping_sum(base_timestamp, choice.timestamp_delta_first)
    if horizon_ms is not None:
        attributes |= layout.DELETE_HORIZON_FLAG
        base_timestamp = horizon_ms
    return RewrittenBatch(batch, place, choice, attributes, base_timestamp, max_timestamp)


def rewritten(run: Run, changes: Sequence[RewrittenBatch]) -> Iterator[Buffer]:
    """The bytes of the changed batches of a run, in order; call it after `KeyMap.choose`."""
    room = 0
    for batch, place, choice, attributes, base_timestamp, _ in changes:
        # With LogAppendTime readers ignore the timestamp deltas.
        is_append_time = attributes & layout.LOG_APPEND_TIME_FLAG
        shift = 0 if is_append_time else wrapping_sum(batch.base_timestamp, -base_timestamp)
        row = BATCH_ROW_SIZE * place
        run.rows[row + BatchRow.IS_COPIED] = 1
        run.rows[row + BatchRow.TIMESTAMP_SHIFT] = shift
        # A varint of a shifted timestamp may be longer, and with it the size of its record.
        growth = kernels.RECORD_GROWTH_MAX * choice.kept if shift else 0
        room += layout.HEADER_SIZE + choice.size + growth
    # One allocation and one kernel call for all changed batches of a run, with room for each header
    # before its records.
    output = memoryview(bytearray(room))
    written = kernels.copy_records(run.data(), run.rows, run.keeps, layout.HEADER_SIZE, output)
    assert written >= 0
    for batch, place, choice, attributes, base_timestamp, max_timestamp in changes:
        row = BATCH_ROW_SIZE * place
        start, end = run.rows[row + BatchRow.START], run.rows[row + BatchRow.END]
        data = output[start - layout.HEADER_SIZE : end]
        if attributes & layout.CODEC_MASK:
            payload = compress(batch.codec, output[start:end])
            data = memoryview(bytearray(layout.HEADER_SIZE) + payload)
        _write_header(
            data,
            batch,
            attributes=attributes,
            timestamps=(base_timestamp, max_timestamp),
            record_count=choice.kept,
        )
        yield data


def header_only(batch: Batch) -> bytearray:
    """A v2 batch without records: the header of `batch`, without codec and delete horizon."""
    data = bytearray(layout.HEADER_SIZE)
    _write_header(
        memoryview(data),
        batch,
        attributes=batch.attributes & ~(layout.CODEC_MASK | layout.DELETE_HORIZON_FLAG),
        # The largest timestamp stays: the time index may name this batch.
        timestamps=(NO_TIMESTAMP, batch.max_timestamp),
        record_count=0,
    )
    return data


def is_foreign_inside(entry: LegacyEntry) -> bool:
    """Whether a wrapper has entries of another format than its own.

    Cleaners of Kafka 0.10 wrote such wrappers (KAFKA-4298); the wrapper's format then decides how
    inner offsets count. The entry must have been converted without an error before.
    """
    return any(inner.magic != entry.magic for inner in entries_of(entry))


def legacy_with_chosen(batch: Batch, keeps: bytearray) -> bytes:
    """The wrapper that `batch` was made from, of its own format, with the chosen records.

    Raises:
        CorruptRecordError: a record breaks a rule of the format.
    """
    wrapper = batch.legacy
    assert wrapper is not None
    assert wrapper.codec_number
    records = list(those_with(records_of(batch), keeps))
    is_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    # Format v0 has no timestamps.
    flags = layout.LOG_APPEND_TIME_FLAG if wrapper.magic and is_append_time else 0
    # Format v0 counts offsets from 0 everywhere; v1 counts those inside from the first one inside.
    base_offset = records[0].offset if wrapper.magic else 0
    inside = b"".join(
        _entry(record, magic=wrapper.magic, attributes=flags, base_offset=base_offset)
        for record in records
    )
    outside = Record(
        offset=records[-1].offset,
        timestamp=max(record.timestamp for record in records),
        key=None,
        value=bytes(compress(Codec(wrapper.codec_number), inside)),
    )
    return _entry(outside, magic=wrapper.magic, attributes=flags | wrapper.codec_number)


def _entry(record: Record, *, magic: int, attributes: int, base_offset: int = 0) -> bytes:
    """A record as an entry of format v0 or v1; `tailrace.records.legacy` has the drawing."""
    fields = [bytes((magic, attributes))]
    if magic:
        fields.append(_INT64.pack(record.timestamp))
    for content in (record.key, record.value):
        fields.append(_INT32.pack(-1 if content is None else len(content)))
        fields.append(content or b"")
    body = b"".join(fields)
    offset = record.offset - base_offset
    # The length counts from the CRC on.
    return _FRAME.pack(offset, len(body) + 4, zlib.crc32(body)) + body


def _write_header(
    data: memoryview,
    batch: Batch,
    *,
    attributes: int,
    timestamps: tuple[int, int],
    record_count: int,
) -> None:
    layout.HEADER.pack_into(
        data,
        0,
        batch.base_offset,
        len(data) - layout.LOG_OVERHEAD,
        batch.leader_epoch,
        layout.MAGIC,
        0,
        attributes,
        batch.last_offset_delta,
        *timestamps,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        record_count,
    )
    crc = packages.crc32c.crc32c(data[layout.ATTRIBUTES_POSITION :])
    layout.CRC.pack_into(data, layout.CRC_POSITION, crc)
