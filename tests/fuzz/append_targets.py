"""Fuzz targets: appends by a producer, a coordinator or a leader.

A batch that the log accepts has the records that were sent, under rising offsets.
"""

import struct
import zlib
from functools import partial

from tailrace.cluster.metadata.batches import BatchPlace, control_batch
from tailrace.config.settings import INT64_MAX
from tailrace.errors import (
    CorruptionError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    UnsupportedCodecError,
)
from tailrace.kernels import REFUSED_WIDTH, list_refused
from tailrace.model import AppendOrigin, Codec, LeaderEpoch, Offset, TimestampType
from tailrace.protocol.metadata_records import LeaderChangeMessage, Voter
from tailrace.records import layout
from tailrace.records.batch import Batch, stamp
from tailrace.records.builder import Record, records_of
from tailrace.records.checks import REFUSED_LISTED_MAX, check_records
from tailrace.records.checks import list_refused as list_refused_of
from tailrace.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_marker,
    end_transaction_marker_or_none,
)
from tailrace.records.legacy import read_all_batches
from tailrace.replication.follower_log import (
    EarlyBatchError,
    FetchedPartition,
    UnfoundedCutError,
    append_fetched,
    cut_diverged,
    position_of,
    settle_range,
)
from tailrace.storage.appends import (
    UnexpectedAppendOffsetError,
    UnreadableRecordsError,
    apply_stamps,
    plan_append,
    plan_follower_append,
)
from tailrace.storage.config import LogConfig
from tailrace.storage.epochs import EpochEnd
from tailrace.storage.shrink import take_steps
from tailrace.testing import MemoryFiles
from tests.fuzz.engine import FuzzTarget
from tests.fuzz.mending import is_mended, with_crcs, with_length_and_crc
from tests.fuzz.records_targets import seed_batch, seed_legacy
from tests.kernels.plain import ENGINES, engine
from tests.unit.storage.builders import NOW, batch, open_at, settings

NEXT_OFFSET = 170

REFUSALS = (
    CorruptionError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    UnreadableRecordsError,
    UnsupportedCodecError,
)

FOLLOWER_REFUSALS = (
    CorruptionError,
    InvalidRecordError,
    RecordTooLargeError,
    UnexpectedAppendOffsetError,
    UnsupportedCodecError,
)

_CONFIGS = (
    settings(segment_bytes=1 << 20),
    settings(segment_bytes=1 << 20, cleanup_policy="compact"),
    settings(segment_bytes=1 << 20, message_timestamp_type="LogAppendTime"),
    *(
        settings(segment_bytes=1 << 20, compression_type=name)
        for name in ("gzip", "snappy", "lz4", "zstd", "uncompressed")
    ),
    settings(segment_bytes=400, max_message_bytes=300),
)


def plan(data: bytes, *, config: LogConfig, origin: AppendOrigin) -> Batch:
    """Plan, stamp and read back; the records are those that were sent."""
    sent = with_length_and_crc(data) if is_mended(data) else bytearray(data)
    given = bytes(sent)
    planned = plan_append(
        memoryview(sent),
        config=config,
        next_offset=Offset(NEXT_OFFSET),
        leader_epoch=LeaderEpoch(3),
        now_ms=NOW,
        origin=origin,
    )
    assert bytes(sent) == given, "to plan changed the producer's bytes"
    before = list(records_of(Batch(memoryview(given))))
    stored = Batch(apply_stamps(planned))
    stored.check()
    assert check_records(stored).records == stored.record_count == len(before)
    assert (stored.base_offset, stored.leader_epoch) == (NEXT_OFFSET, 3)
    assert stored.last_offset == planned.last_offset == NEXT_OFFSET + len(before) - 1
    after = list(records_of(stored))
    assert [each.offset for each in after] == list(range(NEXT_OFFSET, planned.last_offset + 1))
    assert [_content(each) for each in after] == [_content(each) for each in before]
    assert planned.max_timestamp == stored.max_timestamp
    if config.timestamp_type is TimestampType.LOG_APPEND_TIME:
        assert {each.timestamp for each in after} == {NOW}
    elif Batch(memoryview(given)).timestamp_type is TimestampType.CREATE_TIME:
        # As in Kafka, a batch that claims LogAppendTime for itself is not asked for its records'.
        assert planned.max_timestamp == max(each.timestamp for each in after)
        assert [each.timestamp for each in after] == [each.timestamp for each in before]
    return stored


def _content(record: Record) -> object:
    return record.key, record.value, record.headers


def plan_following(data: bytes) -> int:
    """Plan a follower's append; what comes of it are whole batches whose offsets rise."""
    sent = bytes(with_crcs(data)) if is_mended(data) else data
    planned = plan_follower_append(memoryview(sent), log_end=5, log_start=0)
    taken = [each for _, each in read_all_batches(planned.data)]
    assert sum(each.size for each in taken) == len(planned.data)
    assert sent.startswith(bytes(planned.data))
    end = 5
    for number, each in enumerate(taken):
        each.check()
        first = each.last_offset if each.legacy and not number else each.base_offset
        assert end <= first <= each.last_offset < INT64_MAX
        end = each.last_offset + 1
    assert {each.base_offset for each in planned.noted} <= {each.base_offset for each in taken}
    if taken:
        assert planned.first_offset == taken[0].base_offset == planned.noted[0].base_offset
        assert planned.last_offset == end - 1
        largest = max(each.max_timestamp for each in taken)
        assert planned.max_timestamp == max(largest, -1)
    return len(taken)


def follow(data: bytes) -> int:
    """Append to a log as a follower does, read it back, and open what is there once more."""
    sent = bytes(with_crcs(data)) if is_mended(data) else data
    files = MemoryFiles()
    # Where nothing is compacted, a gap between two segments is a tail that was lost.
    config = settings(segment_bytes=2000, cleanup_policy="compact")
    log = open_at(files, config=config)
    log.append_as_follower(memoryview(batch(b"first", b"second")), now_ms=NOW)
    try:
        end = log.append_as_follower(memoryview(sent), now_ms=NOW)
    except FOLLOWER_REFUSALS:
        assert log.end_offset == 2
        assert log.size == len(batch(b"first", b"second"))
        raise
    stored = [bytes(each.view) for each in log.batches(0)]
    log.close()
    again = open_at(files, config=config)
    assert [bytes(each.view) for each in again.batches(0)] == stored
    assert again.end_offset == end
    again.close()
    return end


_ANSWER = struct.Struct(">BbbqqqH")
"""Kind, epochs of the leader and of the diverging one, three offsets, size of the log's tail."""


def answer_follower(data: bytes) -> int:
    """Give a follower any answer; the log is what it was, a prefix of it, or that and records."""
    if len(data) < _ANSWER.size:
        return 0
    kind, epoch, diverging, first, second, third, held = _ANSWER.unpack_from(data)
    records = data[_ANSWER.size :]
    sent = bytes(with_crcs(records)) if is_mended(records) else records
    files = MemoryFiles()
    config = settings(segment_bytes=2000, cleanup_policy="compact")
    log = open_at(files, config=config)
    for number in range(5):
        log.append_as_follower(
            memoryview(bytearray(_stamped(bytes(batch(b"known")), number, number // 2))), now_ms=NOW
        )
    log.advance_high_watermark(held % 6)
    before = [bytes(each.view) for each in log.batches(0)]
    asked = position_of(log)
    is_cut = kind % 3 > 0
    try:
        if kind % 3 == 0:
            fetched = FetchedPartition(memoryview(sent), first, second)
            append_fetched(log, fetched, asked=asked, epoch=LeaderEpoch(abs(epoch)), now_ms=NOW)
        elif kind % 3 == 1:
            end = EpochEnd(LeaderEpoch(diverging), Offset(first))
            take_steps(cut_diverged(log, end, asked=asked, fallback=Offset(held % 6)))
        else:
            # `Following` takes no other offsets from an answer to ListOffsets.
            start, last = sorted((abs(second) % INT64_MAX, abs(third) % INT64_MAX))
            steps = settle_range(log, leader_start=start, leader_end=last, asked=asked)
            if steps is not None:
                take_steps(steps)
    except FOLLOWER_REFUSALS:
        assert [bytes(each.view) for each in log.batches(0)] == before
        raise
    log.positions.check()
    stored = [bytes(each.view) for each in log.batches(0)]
    assert len(stored) <= len(before) + len(sent) // layout.HEADER_SIZE
    if is_cut:
        assert stored == before[: len(stored)]
    else:
        assert stored[: len(before)] == before
    log.close()
    again = open_at(files, config=config)
    assert [bytes(each.view) for each in again.batches(0)] == stored
    again.close()
    return len(stored)


def refuse(data: bytes) -> int:
    """List what a log may not take of records that need not be sound; both lists agree."""
    if not data:
        return 0
    count, payload = data[0] % 9, data[1:]
    totals, found = bytearray(16), bytearray(8 * REFUSED_WIDTH * 3 + 40)
    room = memoryview(found)[:-40].cast("q")
    for name in ENGINES:
        listed = engine(name, list_refused)(
            payload, 0, len(payload), count, 1, NOW, 1, NOW - 5, NOW + 5,
            memoryview(totals).cast("q"), room,
        )  # fmt: skip
        assert listed <= 3
    assert found[-40:] == bytes(40)
    header = Batch(memoryview(with_length_and_crc(bytes(batch(b"x"))[:61] + payload)))
    header.record_count = count
    totalled = check_records(header)
    assert totalled.records == count
    refused = list_refused_of(header, header.payload, needs_keys=True, allowed=(NOW - 5, NOW + 5))
    assert len(refused.listed) == min(refused.count, REFUSED_LISTED_MAX) <= count
    return refused.count


def read_control(data: bytes) -> object:
    """Read the marker of a control batch whose checksum holds."""
    whole = with_length_and_crc(data)
    if len(whole) < layout.HEADER_SIZE:
        return None
    control = Batch(memoryview(whole))
    control.check()
    marker = end_transaction_marker_or_none(control)
    if marker is not None:
        assert marker.type in {ControlType.COMMIT, ControlType.ABORT}
        assert (
            EndTransactionMarker(type=marker.type, coordinator_epoch=marker.coordinator_epoch)
            == marker
        )
    return marker


def _stamped(data: bytes, offset: int, epoch: int = 1) -> bytes:
    stored = bytearray(data)
    stamp(memoryview(stored), base_offset=offset, leader_epoch=epoch)
    return bytes(stored)


def _legacy_at(magic: int, codec: Codec, offset: int) -> bytes:
    """Entries of an older format, moved behind `offset`; the CRC does not cover it."""
    data = bytearray(seed_legacy(magic, codec))
    position = 0
    while position < len(data):
        stored, length = layout.BASE_OFFSET.unpack_from(data, position)[0], 0
        layout.BASE_OFFSET.pack_into(data, position, stored + offset)
        (length,) = layout.LENGTH.unpack_from(data, position + layout.LENGTH_POSITION)
        position += length + layout.LOG_OVERHEAD
    return bytes(data)


_PRODUCED: dict[str, object] = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 3}
_IN_TIME = (NOW, NOW + 1, NOW - 2)
_SENT = tuple(
    bytes(batch(b"a", b"b" * 90, b"", codec=codec, timestamps=_IN_TIME, **options))  # type: ignore[arg-type]
    for codec in Codec
    for options in (dict[str, object](), _PRODUCED, {**_PRODUCED, "is_transactional": True})
)
_MARKER = bytes(build_end_marker(7, 1, is_commit=False, coordinator_epoch=2, timestamp=NOW))
_CHANGE = LeaderChangeMessage(leader_id=1, voters=(Voter(voter_id=300),))
_CHANGED = control_batch([(ControlType.LEADER_CHANGE, _CHANGE)], BatchPlace(0, 3, NOW))

_LED = (
    _stamped(_SENT[0], 5) + _stamped(_SENT[2], 8, 2) + _stamped(_MARKER, 11, 2),
    _stamped(_CHANGED, 5) + _stamped(_SENT[-1], 9),
    b"".join(_legacy_at(magic, Codec.NONE, 5 + 2 * magic) for magic in (0, 1))
    + _stamped(_SENT[1], 20),
    _legacy_at(1, Codec.GZIP, 8) + _stamped(_SENT[0], 40),
)

_ANSWERS = (
    *(_ANSWER.pack(0, 4, 0, 7, 0, 0, 3) + each for each in _LED),
    *(
        _ANSWER.pack(kind, 4, epoch, first, second, 9, 5)
        for kind, epoch, first, second in (
            (1, 1, 3, 0), (1, 0, 1, 0), (1, -1, -1, 0), (1, -1, 2, 0), (2, 0, 0, 2), (2, 0, 0, 8),
        )
    ),
)  # fmt: skip

_PAYLOADS = tuple(
    bytes([3]) + each[layout.RECORDS_POSITION :] for each in (_SENT[0], seed_batch(Codec.NONE))
)


def _run_any_config(data: bytes, *, origin: AppendOrigin) -> Batch:
    config = _CONFIGS[zlib.adler32(data) % len(_CONFIGS)]
    return plan(data, config=config, origin=origin)


TARGETS: tuple[FuzzTarget, ...] = (
    *(
        FuzzTarget(
            name=f"plan an append of a {origin.name.lower()}",
            seeds=seeds,
            run=partial(_run_any_config, origin=origin),
            refusals=REFUSALS,
        )
        for origin, seeds in (
            (AppendOrigin.CLIENT, _SENT),
            (AppendOrigin.COORDINATOR, (*_SENT, _MARKER, _MARKER, _CHANGED)),
        )
    ),
    FuzzTarget(
        name="plan a follower's append",
        seeds=_LED,
        run=plan_following,
        refusals=FOLLOWER_REFUSALS,
    ),
    FuzzTarget(
        name="append as a follower",
        seeds=_LED,
        run=follow,
        refusals=FOLLOWER_REFUSALS,
        share=0.25,
    ),
    FuzzTarget(
        name="answer a follower",
        seeds=_ANSWERS,
        run=answer_follower,
        refusals=(*FOLLOWER_REFUSALS, EarlyBatchError, UnfoundedCutError),
        share=0.25,
    ),
    FuzzTarget(
        name="list refused records", seeds=_PAYLOADS, run=refuse, refusals=(CorruptionError,)
    ),
    FuzzTarget(
        name="read control batches",
        seeds=(_MARKER, _CHANGED, _MARKER),
        run=read_control,
        refusals=(CorruptionError, UnsupportedCodecError),
    ),
)
