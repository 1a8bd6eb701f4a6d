"""Plans of appends, and batches that only a test would send."""

import crc32c

from tailrace.model import AppendOrigin, Codec, LeaderEpoch, Offset
from tailrace.records import layout
from tailrace.records.batch import Batch, read_batches
from tailrace.records.builder import BatchBuilder
from tailrace.records.codecs import compress
from tailrace.records.control import ControlType, EndTransactionMarker
from tailrace.storage.appends import PlannedAppend, apply_stamps, plan_append
from tailrace.storage.config import LogConfig
from tests.naive import NaiveRecord, write_records
from tests.unit.storage.builders import NOW, batch, settings

PLAIN = settings(segment_bytes=10**6)
APPEND_TIME = settings(segment_bytes=10**6, message_timestamp_type="LogAppendTime")
COMPACTED = settings(segment_bytes=10**6, cleanup_policy="delete,compact")
BOUNDED = settings(
    segment_bytes=10**6, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000
)

HELLO = ((b"hello", NOW - 1), (b"there", NOW + 1), (b"beautiful", NOW))
PRODUCER = {
    "producer_id": 1324, "producer_epoch": 10, "base_sequence": 984, "is_transactional": True
}  # fmt: skip
MARKER = EndTransactionMarker(type=ControlType.COMMIT, coordinator_epoch=0)


def plan(
    data: bytes | bytearray,
    config: LogConfig = PLAIN,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> PlannedAppend:
    """A plan at offset 100 under epoch 7."""
    return plan_append(
        memoryview(data),
        config=config,
        next_offset=Offset(100),
        leader_epoch=LeaderEpoch(7),
        now_ms=NOW,
        origin=origin,
    )


def stamped(
    data: bytearray, config: LogConfig = PLAIN, *, origin: AppendOrigin = AppendOrigin.CLIENT
) -> Batch:
    """The batch as it enters the log, checked."""
    [(_, found)] = read_batches(apply_stamps(plan(data, config, origin=origin)))
    found.check()
    return found


def changed(data: bytearray, position: int, value: bytes) -> bytearray:
    """The batch with some header bytes changed and its checksum made right."""
    data[position : position + len(value)] = value
    crc = crc32c.crc32c(memoryview(data)[layout.ATTRIBUTES_POSITION :])
    layout.CRC.pack_into(data, layout.CRC_POSITION, crc)
    return data


def mixed(
    *records: tuple[bytes | None, int], codec: Codec = Codec.NONE, **options: object
) -> bytearray:
    """A batch with a record for each key and timestamp."""
    builder = BatchBuilder(codec=codec, **options)  # type: ignore[arg-type]
    for key, timestamp in records:
        builder.append(key, b"value", timestamp=timestamp)
    return bytearray(builder.build())


def with_offsets(*deltas: int, codec: Codec = Codec.NONE) -> bytearray:
    """A batch whose header is right and whose records have any offset deltas."""
    records = [NaiveRecord(0, delta, b"k", b"v") for delta in deltas]
    data = mixed(*[(b"k", NOW)] * len(deltas), codec=codec)[: layout.HEADER_SIZE]
    data += compress(codec, write_records(records))
    layout.LENGTH.pack_into(data, layout.LENGTH_POSITION, len(data) - layout.LOG_OVERHEAD)
    return changed(data, layout.MAGIC_POSITION, bytes([layout.MAGIC]))


def marker_batch(timestamp: int = NOW) -> bytearray:
    """Return the batch that a transaction coordinator writes at the end of a transaction."""
    builder = BatchBuilder(
        is_control=True, is_transactional=True, producer_id=23423, producer_epoch=5
    )
    builder.append(MARKER.key, MARKER.value, timestamp=timestamp)
    return bytearray(builder.build())


def unnumbered(producer_id: int = 5) -> bytearray:
    """A batch with a producer id and without the sequence that belongs to it."""
    data = batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    return changed(data, layout.BASE_SEQUENCE_POSITION, b"\xff\xff\xff\xff")
