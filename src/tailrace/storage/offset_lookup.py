"""The offset of a log that ListOffsets asks for: by a timestamp, or one of its special values."""

from tailrace.model import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, SpecialTimestamp
from tailrace.storage import reads
from tailrace.storage.index.time import TimestampOffset
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit


def find_offset(
    log: Log, timestamp: int, *, limit: ReadLimit = ReadLimit.HIGH_WATERMARK
) -> tuple[TimestampOffset, LeaderEpoch] | None:
    """Timestamp, offset and leader epoch of the record that ListOffsets asks for.

    For a timestamp of 0 or more: the first record with at least this timestamp; None if there
    is none below the limit. `SpecialTimestamp` lists the special timestamps; the results for
    the two ends of the log have timestamp -1.

    Raises:
        CorruptionError: the batch with the result is damaged.
        StorageError: the log has failed.
    """
    log.check_usable()
    match timestamp:
        case SpecialTimestamp.EARLIEST | SpecialTimestamp.EARLIEST_LOCAL:
            start = log.start_offset
            return TimestampOffset(NO_TIMESTAMP, Offset(start)), log.epochs.at(Offset(start))
        case SpecialTimestamp.LATEST:
            end = log.positions.limit(limit)
            return TimestampOffset(NO_TIMESTAMP, end), log.epochs.latest
        case SpecialTimestamp.LATEST_TIERED | SpecialTimestamp.EARLIEST_PENDING_UPLOAD:
            return TimestampOffset(NO_TIMESTAMP, Offset(-1)), NO_LEADER_EPOCH
        case SpecialTimestamp.MAX_TIMESTAMP:
            timestamp = reads.max_timestamp(log.segments, start_offset=Offset(log.start_offset))
            if timestamp == NO_TIMESTAMP:
                return None
    found = reads.first_at_or_after(log.segments, timestamp, start_offset=Offset(log.start_offset))
    if found is None or found.offset >= log.positions.limit(limit):
        return None
    return found, log.epochs.at(found.offset)
