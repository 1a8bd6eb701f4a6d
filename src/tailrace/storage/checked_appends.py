"""Append batches that a kernel has checked and stamped: several at once, with one write.

`plan_checked` says to the kernel (`kernels.take_produces`) what the log allows, and
`append_checked` appends what the kernel took. The log and its files are then the same as if each
batch had come to `Log.append`. Where that needs more than a write (another segment, an error, a
transaction), nothing is appended, and the caller takes that way.
"""

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.config.settings import INT64_MAX
from tailrace.kernels import Taking
from tailrace.model import NO_PRODUCER_ID, Offset, ProducerId, TimestampType
from tailrace.records.batch import Batch, sequence_after
from tailrace.storage.appends import allowed_timestamps
from tailrace.storage.config import LogConfig
from tailrace.storage.log import Log
from tailrace.storage.producers import BATCHES_KEPT
from tailrace.storage.segment import DueEntry, SegmentAppend

if TYPE_CHECKING:
    from array import array

# Far from where the kernel's integers end, whatever the batches hold.
_OFFSET_MAX: Final = 2**62

# The places of the kernel's state from `Taking.BATCH_BYTES_MAX` to `Taking.NEXT_OFFSET`.
_ALLOWED: Final = Struct(f"={Taking.NEXT_OFFSET - Taking.BATCH_BYTES_MAX + 1}q")

_ALLOWED_AT: Final = 8 * Taking.BATCH_BYTES_MAX


class CheckedBatches(NamedTuple):
    """Batches as `kernels.take_produces` leaves them, stamped with their offsets."""

    data: memoryview
    starts: Sequence[int]
    """Positions in `data` at which the batches begin."""
    next_offset: int
    """Offset after the last record."""
    max_timestamp: int
    """Largest of all batches in milliseconds, or -1."""
    max_timestamp_offset: int
    """Last offset of the first batch that has it."""
    producer_id: ProducerId
    due: Sequence[DueEntry]
    """The index entries between the batches."""
    bytes_before_entry: int
    """Bytes from the end of the batches to the next index entry."""


def plan_checked(
    log: Log, state: "array[int]", *, leader_epoch: int, now_ms: int, producer_id: ProducerId
) -> bool:
    """Write into the kernel's `state` what the log allows now; False if it needs its usual way.

    Raises:
        StorageError: the log has failed.
    """
    log.check_usable()
    config, active = log.config, log.segments.active
    next_offset = log.positions.log_end
    if (
        not allows_checked(config)
        or leader_epoch != log.epochs.latest
        or not active.log.size
        or next_offset > _OFFSET_MAX
    ):
        return False
    epoch = sequence = -1
    if producer_id != NO_PRODUCER_ID:
        known = log.producers.get(producer_id)
        if (
            known is None
            or known.last_sequence < 0
            or known.has_open_transaction
            or log.producers.verifications.get(producer_id) is not None
        ):
            return False
        epoch, sequence = known.epoch, sequence_after(known.last_sequence, 1)
    _ALLOWED.pack_into(
        state,
        _ALLOWED_AT,
        min(config.max_message_bytes, config.segment_bytes),
        *allowed_timestamps(config, now_ms),
        config.is_compacted,
        leader_epoch,
        producer_id,
        epoch,
        sequence,
        active.index_interval_bytes,
        active.bytes_before_entry,
        next_offset,
    )
    return True


def allows_checked(config: LogConfig) -> bool:
    """Whether a topic takes batches as they are, and waits for no device."""
    return (
        config.timestamp_type is TimestampType.CREATE_TIME
        and not config.codec
        and config.flush_messages == INT64_MAX
    )


def append_checked(log: Log, batches: CheckedBatches, *, now_ms: int) -> bool:
    """Append batches that were checked for this log as it is; False if a segment must roll.

    Raises:
        OSError: the device is full or failing; the log is unchanged.
    """
    (
        data, starts, next_offset, max_timestamp, max_timestamp_offset, producer_id, due, before
    ) = batches  # fmt: skip
    last_offset, active = Offset(next_offset - 1), log.segments.active
    if log.must_roll(
        len(data), last_offset=last_offset, max_timestamp=max_timestamp, now_ms=now_ms
    ) or (due and len(due) >= active.index_room):
        return False
    active.append_batches(
        SegmentAppend(data, last_offset, max_timestamp, Offset(max_timestamp_offset)),
        due,
        bytes_before_entry=before,
    )
    log.positions.advance_end(Offset(next_offset))
    if producer_id != NO_PRODUCER_ID:
        limits = (*starts[1:], len(data))
        for start, limit in list(zip(starts, limits, strict=True))[-BATCHES_KEPT:]:
            batch = Batch(data[start:limit])
            log.producers.note(
                batch,
                base_offset=batch.base_offset,
                last_offset=batch.last_offset,
                timestamp=batch.max_timestamp,
                now_ms=now_ms,
            )
    return True
