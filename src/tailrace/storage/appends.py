"""Plan an append: decide whether batches may enter the log and what has to change in them. Pure.

`plan_append` is for a leader. It checks in Kafka's order (`UnifiedLog.append`, `LogValidator`),
because the order decides which error a client sees when several apply: shape and size of the batch,
its CRC, its header against the rules for clients, its records, and the sizes again if the topic's
codec has changed them. A kernel walks the records once; a second walk lists the refused records and
the reasons, only if there are any.

`plan_built` is for a batch that a coordinator of this broker has built: its sizes are checked.

`plan_follower_append` is for a follower. It checks only checksums and offsets, and keeps the
leader's bytes.

Planning does not change the given bytes. `apply_stamps` writes the base offset and the leader epoch
into the 61-byte header in place; the CRC does not cover them. With LogAppendTime it also writes the
timestamp, and then the CRC. A batch that is recompressed for the topic gets new memory: only size,
codec and CRC of its header change, and the records stay the producer's.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.errors import (
    CorruptionError,
    FatalError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordError,
    RecordTooLargeError,
)
from tailrace.kernels import Refusal
from tailrace.model import (
    NO_TIMESTAMP,
    AppendOrigin,
    Codec,
    LeaderEpoch,
    Offset,
    TimestampType,
)
from tailrace.records import layout, packages
from tailrace.records.batch import (
    Batch,
    UnsupportedMagicError,
    read_batches,
    stamp,
    stamp_append_time,
    stamp_max_timestamp,
)
from tailrace.records.checks import (
    CorruptRecordError,
    RecordTotals,
    RefusedRecord,
    check_decompressed,
    list_refused,
)
from tailrace.records.codecs import CorruptCompressionError, check_framing, compress
from tailrace.records.runs import BatchRun, Field, Header, read_undecoded_runs
from tailrace.runtime.clock import iso_time
from tailrace.storage.config import LogConfig
from tailrace.storage.producers import BATCHES_KEPT
from tailrace.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

# An empty range of timestamps: the first is above the last.
_NOTHING_ALLOWED = (1, 0)

# A member of an enum takes 0.1 us to look up in Python 3.11, and every append needs these.
_CLIENT: Final = AppendOrigin.CLIENT
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


class UnexpectedAppendOffsetError(FatalError, ValueError):
    """Replicated batches start below the end of the log.

    If the log is empty, the caller may restart it at `first_offset`: a leader's log start can lie
    inside a batch.
    """

    def __init__(
        self, first_offset: int, last_offset: int, *, log_start_offset: int, log_end_offset: int
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        super().__init__(
            f"offsets {first_offset} to {last_offset} do not follow the log, which starts at "
            f"{log_start_offset} and ends before {log_end_offset}"
        )


class UnreadableRecordsError(FatalError, ValueError):
    """The checksum of a client's batch is right, and Kafka's readers cannot decompress its records.

    Not a corruption, which a client takes for damage on the way and sends again: it has sent
    exactly these bytes. As Kafka does, a broker answers UNKNOWN_SERVER_ERROR.
    """


class PlannedAppend(NamedTuple):
    """A batch that may be appended, and the header fields it gets."""

    batch: Batch
    """The batch to write; a new one if the records were recompressed."""
    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    max_timestamp: int
    """Largest record timestamp in milliseconds, or -1."""
    is_append_time: bool
    """Whether that is the broker's timestamp, which every record gets (LogAppendTime)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerAppend:
    """Batches of a leader that may be appended unchanged."""

    first_offset: Offset
    """Base offset of the first batch; -1 without batches."""
    noted: tuple[Batch, ...]
    """The batches that change leader epochs or producers, in offset order; the first one always.
    Entries of formats v0 and v1 are converted to v2 and kept as `legacy`."""
    data: memoryview
    """The leader's bytes, without a partial batch at the end."""
    last_offset: Offset
    """-1 without batches."""
    max_timestamp: int
    """Largest of the batches' timestamps in milliseconds, or -1."""
    max_timestamp_offset: Offset
    """Last offset of the first batch that has it; -1 if none has a timestamp."""


def plan_append(
    records: memoryview,
    *,
    config: LogConfig,
    next_offset: Offset,
    leader_epoch: LeaderEpoch,
    now_ms: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    decompressed_max: int | None = None,
) -> PlannedAppend:
    """Check the records of a produce request for one partition, and plan their append as leader.

    `records` must be exactly one batch of format v2 (since Produce v3, KIP-98). `next_offset` is
    the log end offset. A coordinator may write control batches, may omit the producer's sequence,
    and chooses its timestamps. `decompressed_max`, in bytes, replaces the limit of the process
    (`codecs.limit_decompression`).

    Raises:
        CorruptionError: the CRC is wrong.
        UnreadableRecordsError: the records cannot be decompressed, or not by Kafka's clients.
        RecordTooLargeError: above `max.message.bytes` or `segment.bytes`, as sent or as stored.
        DecompressedTooLargeError: the decompressed records are larger than the limit.
        InvalidRecordError: no batch or several, a control batch of a client, no record, records
            that do not fill the batch as declared, offsets that are not 0, 1, 2, …, or a record
            without a key on a compacted topic.
        InvalidTimestampError: at least one timestamp is outside the topic's limits.
        UnsupportedCodecError: the codec number is undefined.
    """
    batch = _only_batch(records)
    is_client = origin is _CLIENT
    if is_client and batch.base_offset != 0:
        raise InvalidRecordError(f"the batch has base offset {batch.base_offset}; clients send 0")
    # Before the checksum: a batch that is refused anyway costs no CPU.
    _check_size(batch.size, config.max_message_bytes, "max.message.bytes")
    batch.check()
    _check_header(batch, is_client=is_client)
    # Once: the check, the recompression and the search for refused records share it.
    view = _decompressed(batch, decompressed_max)
    try:
        totals = check_decompressed(batch, view)
    except CorruptRecordError as error:
        raise _invalid_structure(error) from error
    is_append_time = config.timestamp_type is _LOG_APPEND_TIME
    allowed = _allowed_timestamps(batch, config, now_ms) if is_client else None
    largest = _check_totals(batch, view, totals, allowed=allowed, config=config)
    max_timestamp = now_ms if is_append_time else largest
    codec = config.codec
    if codec is not None and batch.attributes & layout.CODEC_MASK != codec and not batch.is_control:
        batch = _recompressed(batch, view, codec=codec, config=config)
    # As it will be stored: recompressed it may be larger than it was sent.
    _check_size(batch.size, config.segment_bytes, "segment.bytes")
    return PlannedAppend(
        batch,
        next_offset,
        Offset(next_offset + batch.record_count - 1),
        leader_epoch,
        max_timestamp,
        is_append_time,
    )


def plan_built(
    built: memoryview,
    *,
    config: LogConfig,
    next_offset: Offset,
    leader_epoch: LeaderEpoch,
    now_ms: int,
) -> PlannedAppend:
    """Plan the append of a batch that this process has built itself, as its leader.

    The result is that of `plan_append` with the origin COORDINATOR. The records are sound by the
    invariant of `records.builder` and have keys, so only the sizes are checked.

    Raises:
        RecordTooLargeError: as `plan_append`.
    """
    # A changed batch needs its records; these settings are rare on internal topics.
    if config.codec is not None or config.timestamp_type is _LOG_APPEND_TIME:
        return plan_append(
            built,
            config=config,
            next_offset=next_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
        )
    batch = Batch(built)
    _check_size(batch.size, config.max_message_bytes, "max.message.bytes")
    _check_size(batch.size, config.segment_bytes, "segment.bytes")
    last_offset = Offset(next_offset + batch.last_offset_delta)
    return PlannedAppend(
        batch, next_offset, last_offset, leader_epoch, batch.max_timestamp, is_append_time=False
    )


def placed(
    planned: PlannedAppend, *, next_offset: Offset, leader_epoch: LeaderEpoch, now_ms: int
) -> PlannedAppend:
    """The plan with the current log end offset, leader epoch and time."""
    return planned._replace(
        base_offset=next_offset,
        last_offset=Offset(next_offset + planned.batch.record_count - 1),
        leader_epoch=leader_epoch,
        max_timestamp=now_ms if planned.is_append_time else planned.max_timestamp,
    )


def apply_stamps(planned: PlannedAppend) -> memoryview:
    """Write what the plan decided into the batch's own memory; returns the batch's bytes.

    The memory that was given to `plan_append` must be writable.
    """
    batch, base_offset, _, leader_epoch, max_timestamp, is_append_time = planned
    view = batch.view
    # The CRC covers both fields, so it is computed again only if one of them changes.
    type_flag = layout.LOG_APPEND_TIME_FLAG if is_append_time else 0
    if (
        batch.max_timestamp != max_timestamp
        or batch.attributes & layout.LOG_APPEND_TIME_FLAG != type_flag
    ):
        if is_append_time:
            stamp_append_time(view, max_timestamp)
        else:
            stamp_max_timestamp(view, max_timestamp)
    stamp(view, base_offset=base_offset, leader_epoch=leader_epoch)
    return view


def plan_follower_append(
    records: memoryview, *, log_end: int, log_start: int, epoch_max: int = INT32_MAX
) -> FollowerAppend:
    """Check the bytes from a leader, or from another log, and plan their append as follower.

    Batches from the first one on whose leader epoch is above `epoch_max` are left out: they are of
    a leader that this follower does not know yet, and the one it knows may be about to lose them.

    The leader has checked sizes, timestamps and sequences; they are not checked again. Offsets may
    have gaps, which compaction leaves. A partial batch at the end of `records` is left out; the
    plan is empty if there is no whole batch.

    Raises:
        CorruptionError: a CRC is wrong, or bytes are not the start of a batch.
        InvalidRecordError: offsets that do not rise from one batch to the next, offsets that do
            not fit one segment, or an offset of 2^63 - 1.
        UnexpectedAppendOffsetError: the first batch starts below `log_end`.
    """
    noted: list[Batch] = []
    last_offset, max_timestamp, max_timestamp_offset = Offset(-1), NO_TIMESTAMP, Offset(-1)
    end = 0
    for position, piece in read_undecoded_runs(records):
        taken: Batch | BatchRun | None = piece
        noted_here: Sequence[Batch] = ()
        if isinstance(piece, BatchRun):
            taken, noted_here = _run_up_to(piece, epoch_max)
        elif piece.leader_epoch > epoch_max:
            taken = None
        else:
            if piece.legacy is None:
                # Entries of older formats were checked when they were converted.
                _check_at(piece, position)
            noted_here = (piece,)
        if taken is not None:
            if noted and taken.base_offset <= last_offset:
                raise InvalidRecordError(
                    f"a batch of offset {taken.base_offset} follows one that ends at {last_offset}"
                )
            noted += noted_here
            last_offset = taken.last_offset
            if taken.max_timestamp > max_timestamp:
                max_timestamp = taken.max_timestamp
                max_timestamp_offset = (
                    taken.max_timestamp_offset if isinstance(taken, BatchRun) else last_offset
                )
            end = position + taken.size
        # Batches of a newer leader follow.
        if taken is None or taken.size < piece.size:
            break
    if noted and _first_known_offset(noted[0]) < log_end:
        raise UnexpectedAppendOffsetError(
            noted[0].base_offset,
            last_offset,
            log_start_offset=log_start,
            log_end_offset=log_end,
        )
    is_far = bool(noted) and last_offset - noted[0].base_offset > INT32_MAX
    if is_far or last_offset == INT64_MAX:
        # No checksum covers a base offset, and the indexes of a segment have 31 bits for one.
        raise InvalidRecordError(
            f"offsets {noted[0].base_offset} to {last_offset} do not fit into one segment"
        )
    return FollowerAppend(
        first_offset=noted[0].base_offset if noted else Offset(-1),
        noted=tuple(noted),
        data=records[:end],
        last_offset=last_offset,
        max_timestamp=max_timestamp,
        max_timestamp_offset=max_timestamp_offset,
    )


def _run_up_to(run: BatchRun, epoch_max: int) -> tuple[BatchRun | None, list[Batch]]:
    """The batches of a run before the first of a leader epoch above `epoch_max`, and the noted."""
    first = run.first_header
    if run.is_dense and not run.has_producers:
        # The usual run of many small batches: nothing here for each of them.
        if first[Field.LEADER_EPOCH] > epoch_max:
            return None, []
        return run, [Batch(run.view[: first[Field.LENGTH] + layout.LOG_OVERHEAD])]
    positions, headers = run.positions, run.headers
    count = next(
        (n for n, each in enumerate(headers) if each[Field.LEADER_EPOCH] > epoch_max), len(headers)
    )
    if count < len(headers):
        return (None if not count else run.until(positions[count])), _noted(
            run, positions, headers[:count]
        )
    return run, _noted(run, positions, headers)


def _noted(run: BatchRun, positions: list[int], headers: list[Header]) -> list[Batch]:
    """The batches of a run that begin a leader epoch, and the last ones of each producer."""
    wanted: list[int] = []
    later: dict[tuple[int, int], int] = {}
    for number in range(len(headers) - 1, -1, -1):
        header = headers[number]
        producer = header[Field.PRODUCER_ID], header[Field.PRODUCER_EPOCH]
        begins_epoch = (
            not number or header[Field.LEADER_EPOCH] != headers[number - 1][Field.LEADER_EPOCH]
        )
        is_kept = False
        if producer[0] >= 0:
            # A run has no transactions, and of its other batches a producer's state keeps these.
            later[producer] = later.get(producer, 0) + 1
            is_kept = later[producer] <= BATCHES_KEPT
        if begins_epoch or is_kept:
            wanted.append(number)
    limits = [*positions[1:], run.size]
    return [Batch(run.view[positions[each] : limits[each]]) for each in reversed(wanted)]


def _first_known_offset(batch: Batch) -> int:
    # The offset of a v0 or v1 wrapper is that of its last record, and a leader whose log starts in
    # the middle of one sends it whole.
    return batch.base_offset if batch.legacy is None else batch.last_offset


def _check_at(batch: Batch, position: int) -> None:
    try:
        batch.check()
    except CorruptionError as error:
        error.position = position
        raise


def _only_batch(records: memoryview) -> Batch:
    if len(records) >= layout.HEADER_SIZE:
        batch = Batch(records)
        # The usual case, without a reader.
        if batch.magic == layout.MAGIC and batch.length == len(records) - layout.LOG_OVERHEAD:
            return batch
    # The batch reader raises the error that says what the bytes are.
    try:
        _, batch = next(read_batches(records))
    except UnsupportedMagicError as error:
        raise InvalidRecordError(str(error)) from error
    except StopIteration:
        raise InvalidRecordError(f"no whole batch in {len(records)} bytes") from None
    raise InvalidRecordError(
        f"a batch of {batch.size} bytes in {len(records)}; a request has one per partition"
    )


def _decompressed(batch: Batch, limit: int | None) -> memoryview:
    try:
        if batch.attributes & layout.CODEC_MASK:
            check_framing(batch.codec, batch.payload)
        return batch.records_view(limit)
    except CorruptCompressionError as error:
        raise UnreadableRecordsError(error.rule) from error


def _check_size(size: int, limit: int, setting: str) -> None:
    if size > limit:
        raise RecordTooLargeError(size, limit=limit, setting=setting)


def _check_header(batch: Batch, *, is_client: bool) -> None:
    if batch.record_count < 1 or batch.last_offset_delta != batch.record_count - 1:
        raise InvalidRecordError(
            f"the header counts {batch.record_count} records "
            f"and ends at offset delta {batch.last_offset_delta}"
        )
    # Only coordinators end transactions.
    if is_client and batch.is_control:
        raise InvalidRecordError("clients may not write control batches")
    if is_client and batch.producer_id >= 0 and batch.base_sequence < 0:
        raise InvalidRecordError(
            f"producer {batch.producer_id} sent sequence {batch.base_sequence}"
        )


def _invalid_structure(error: CorruptRecordError) -> InvalidRecordError:
    """An error that is not retriable: the CRC is right, so the client sent exactly these bytes."""
    listed = () if error.index is None else (RecordError(error.index, error.rule),)
    return InvalidRecordError(error.rule, record_errors=listed)


def _allowed_timestamps(batch: Batch, config: LogConfig, now_ms: int) -> tuple[int, int] | None:
    """Earliest and latest timestamp in milliseconds that a client may set; None for any."""
    is_append_time = config.timestamp_type is _LOG_APPEND_TIME
    if batch.attributes & layout.LOG_APPEND_TIME_FLAG and (
        is_append_time or batch.max_timestamp == NO_TIMESTAMP
    ):
        return _NOTHING_ALLOWED
    return None if is_append_time else allowed_timestamps(config, now_ms)


def allowed_timestamps(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Earliest and latest timestamp in milliseconds that a record with CreateTime may have."""
    return (
        max(now_ms - config.timestamp_before_ms_max, -INT64_MAX),
        min(now_ms + config.timestamp_after_ms_max, INT64_MAX),
    )


def _timestamp_range(batch: Batch, totals: RecordTotals) -> tuple[int, int]:
    """Smallest and largest record timestamp, as the client set them."""
    if batch.attributes & layout.LOG_APPEND_TIME_FLAG:
        return batch.max_timestamp, batch.max_timestamp
    return (
        batch.base_timestamp + totals.timestamp_delta_min,
        batch.base_timestamp + totals.timestamp_delta_max,
    )


def _check_totals(
    batch: Batch,
    view: memoryview,
    totals: RecordTotals,
    *,
    allowed: tuple[int, int] | None,
    config: LogConfig,
) -> int:
    """The largest timestamp in milliseconds; raises if a record is refused."""
    smallest, largest = _timestamp_range(batch, totals)
    # A smallest timestamp of -1 means that a record has none, which is allowed. Another record may
    # still break the rule, so the records are listed then.
    has_doubt = allowed is not None and not allowed[0] <= smallest <= largest <= allowed[1]
    if has_doubt or not totals.is_consecutive or (totals.null_keys and config.is_compacted):
        _refuse_records(batch, view, allowed=allowed, needs_keys=config.is_compacted)
    return largest


def _refuse_records(
    batch: Batch, view: memoryview, *, allowed: tuple[int, int] | None, needs_keys: bool
) -> None:
    refused = list_refused(batch, view, needs_keys=needs_keys, allowed=allowed)
    if not refused.count:
        return
    errors = tuple(RecordError(record.index, _fault(record, allowed)) for record in refused.listed)
    rule = (
        f"{refused.count} of {batch.record_count} records are refused; "
        f"record {errors[0].index}: {errors[0].message}"
    )
    if refused.has_timestamps:
        raise InvalidTimestampError(rule, record_errors=errors)
    raise InvalidRecordError(rule, record_errors=errors)


def _fault(record: RefusedRecord, allowed: tuple[int, int] | None) -> str:
    match record.reason:
        case Refusal.OFFSET:
            return f"offset delta {record.detail} instead of {record.index}"
        case Refusal.NO_KEY:
            return "no key, and the topic is compacted"
        case Refusal.TIMESTAMP:
            if allowed is None or allowed == _NOTHING_ALLOWED:
                return "a client may not set LogAppendTime itself"
            # Each of the two machines believes its own clock: the sentence has both sides.
            if record.detail > allowed[1]:
                side, bound, setting = "after", allowed[1], "message.timestamp.after.max.ms"
            else:
                side, bound, setting = "before", allowed[0], "message.timestamp.before.max.ms"
            return (
                f"timestamp {record.detail} ({iso_time(record.detail)}) is {side} "
                f"{iso_time(bound)}, the limit of {setting} by the clock of this broker; compare "
                "the clocks of both machines"
            )


def _recompressed(batch: Batch, view: memoryview, *, codec: Codec, config: LogConfig) -> Batch:
    """The batch with the records in `view` compressed with another codec.

    Sizes are checked before the compressed records are copied.
    """
    payload = compress(codec, view, config.compression_levels.get(codec))
    size = layout.HEADER_SIZE + len(payload)
    _check_size(size, config.max_message_bytes, "max.message.bytes")
    _check_size(size, config.segment_bytes, "segment.bytes")
    data = bytearray(layout.HEADER_SIZE)
    data += payload
    layout.HEADER.pack_into(
        data,
        0,
        batch.base_offset,
        size - layout.LOG_OVERHEAD,
        batch.leader_epoch,
        layout.MAGIC,
        0,
        batch.attributes & ~layout.CODEC_MASK | codec,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )
    written = memoryview(data)
    crc = packages.crc32c.crc32c(written[layout.ATTRIBUTES_POSITION :])
    layout.CRC.pack_into(written, layout.CRC_POSITION, crc)
    return Batch(written)
