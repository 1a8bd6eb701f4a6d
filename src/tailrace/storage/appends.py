"""Plan an append: decide whether a batch may enter the log and what has to change in it. Pure.

The order of the checks is Kafka's (`UnifiedLog.append`, `LogValidator`), since it decides which
error a client sees when several apply: shape and size of the batch, its CRC, its header against
the rules for clients, its records, the size of a segment.

The plan changes no byte. `apply_stamps` writes the base offset and the leader epoch into the
61-byte header in place, which the CRC does not cover (that is why Kafka put them there), and with
LogAppendTime the timestamp, which it does.
"""

from dataclasses import dataclass

from tailrace.config.settings import INT64_MAX
from tailrace.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
)
from tailrace.model import NO_TIMESTAMP, TimestampType
from tailrace.records.batch import (
    Batch,
    UnsupportedMagicError,
    read_batches,
    stamp,
    stamp_append_time,
    stamp_max_timestamp,
)
from tailrace.records.checks import RecordTotals, check_records
from tailrace.storage.config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAppend:
    """A batch that may enter the log, and the header fields it enters with."""

    batch: Batch
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    """Largest record timestamp in milliseconds, or -1."""
    timestamp_type: TimestampType

    @property
    def log_append_time_or_none(self) -> int | None:
        """The broker's timestamp in milliseconds, if that is what the records get."""
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return self.max_timestamp
        return None


def plan_append(
    records: memoryview, *, config: LogConfig, next_offset: int, leader_epoch: int, now_ms: int
) -> PlannedAppend:
    """What to do with the records that a client sent for one partition.

    `records` is what the produce request carries: exactly one batch of format v2 (KIP-98 allows no
    more since Produce v3). `next_offset` is the log end offset.

    Raises:
        CorruptionError: the CRC does not hold, or the records do not fill the batch as declared.
        RecordTooLargeError: above `max.message.bytes` or `segment.bytes`.
        InvalidRecordError: no batch or several, a control batch, no record, offsets that are not
            0, 1, 2, …, or a record without a key on a compacted topic.
        InvalidTimestampError: outside of what the topic allows.
        UnsupportedCodecError: a codec number that means nothing.
    """
    batch = _only_batch(records)
    if batch.base_offset != 0:
        raise InvalidRecordError(f"the batch has base offset {batch.base_offset}; clients send 0")
    if batch.size > config.max_message_bytes:
        raise RecordTooLargeError(
            batch.size, limit=config.max_message_bytes, setting="max.message.bytes"
        )
    batch.check()
    _check_header(batch)
    totals = check_records(batch)
    _check_keys_and_offsets(totals, config)
    _check_timestamps(batch, totals, config=config, now_ms=now_ms)
    if batch.size > config.segment_bytes:
        raise RecordTooLargeError(batch.size, limit=config.segment_bytes, setting="segment.bytes")
    is_append_time = config.timestamp_type is TimestampType.LOG_APPEND_TIME
    return PlannedAppend(
        batch=batch,
        base_offset=next_offset,
        last_offset=next_offset + batch.record_count - 1,
        leader_epoch=leader_epoch,
        max_timestamp=now_ms if is_append_time else _timestamp_range(batch, totals)[1],
        timestamp_type=config.timestamp_type,
    )


def apply_stamps(planned: PlannedAppend) -> memoryview:
    """Write what the plan decided into the batch's own memory; returns the batch's bytes.

    The memory that was given to `plan_append` must be writable.
    """
    batch = planned.batch
    if planned.timestamp_type is TimestampType.LOG_APPEND_TIME:
        stamp_append_time(batch.view, planned.max_timestamp)
    elif (
        batch.timestamp_type is not planned.timestamp_type
        or batch.max_timestamp != planned.max_timestamp
    ):
        stamp_max_timestamp(batch.view, planned.max_timestamp)
    stamp(batch.view, base_offset=planned.base_offset, leader_epoch=planned.leader_epoch)
    return batch.view


def _only_batch(records: memoryview) -> Batch:
    try:
        _, batch = next(read_batches(records))
    except UnsupportedMagicError as error:
        raise InvalidRecordError(str(error)) from error
    except StopIteration:
        raise InvalidRecordError(f"no whole batch in {len(records)} bytes") from None
    if batch.size != len(records):
        raise InvalidRecordError(
            f"a batch of {batch.size} bytes in {len(records)}; a request has one per partition"
        )
    return batch


def _check_header(batch: Batch) -> None:
    if batch.record_count < 1 or batch.last_offset_delta != batch.record_count - 1:
        raise InvalidRecordError(
            f"the header counts {batch.record_count} records "
            f"and ends at offset delta {batch.last_offset_delta}"
        )
    if batch.is_control:
        raise InvalidRecordError("clients may not write control batches")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise InvalidRecordError(
            f"producer {batch.producer_id} sent sequence {batch.base_sequence}"
        )


def _check_keys_and_offsets(totals: RecordTotals, config: LogConfig) -> None:
    if not totals.is_consecutive:
        raise InvalidRecordError("the offsets in the batch are not 0, 1, 2, …")
    if config.is_compacted and totals.null_keys:
        raise InvalidRecordError(
            f"record {totals.first_null_key} has no key, and the topic is compacted"
        )


def _timestamp_range(batch: Batch, totals: RecordTotals) -> tuple[int, int]:
    """Smallest and largest record timestamp, as the client set them."""
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return batch.max_timestamp, batch.max_timestamp
    return (
        batch.base_timestamp + totals.timestamp_delta_min,
        batch.base_timestamp + totals.timestamp_delta_max,
    )


def _check_timestamps(
    batch: Batch, totals: RecordTotals, *, config: LogConfig, now_ms: int
) -> None:
    smallest, largest = _timestamp_range(batch, totals)
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME and (
        config.timestamp_type is TimestampType.LOG_APPEND_TIME or largest == NO_TIMESTAMP
    ):
        raise InvalidTimestampError("a client may not set LogAppendTime itself")
    if config.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return
    earliest = max(now_ms - config.timestamp_before_ms_max, -INT64_MAX)
    latest = min(now_ms + config.timestamp_after_ms_max, INT64_MAX)
    for timestamp in (smallest, largest):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            raise InvalidTimestampError(
                f"timestamp {timestamp} is outside of {earliest} to {latest} "
                "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)"
            )
