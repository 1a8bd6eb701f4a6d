"""Fuzz targets of compaction: payloads under its kernels, and wrappers of older formats.

The kernels run in both engines, which agree, and nothing is written outside of the room given.
"""

import random
import zlib
from itertools import compress as those_with

from tailrace import kernels
from tailrace.errors import CorruptionError
from tailrace.kernels import BATCH_ROW_SIZE, GROUP_SIZE, BatchRow, MapState
from tailrace.model import Codec
from tailrace.records import layout
from tailrace.records.builder import records_of
from tailrace.records.codecs import compress
from tailrace.records.legacy import converted
from tailrace.storage.cleaner.batches import is_foreign_inside, legacy_with_chosen
from tests.fuzz.engine import FuzzTarget
from tests.fuzz.mending import with_crcs
from tests.fuzz.records_targets import seed_batch
from tests.kernels.plain import ENGINES, engine
from tests.naive import LegacyMessage, NaiveRecord, write_all_legacy, write_legacy, write_records

CANARY = 0xA5
_CANARIES = bytes([CANARY]) * 40
_SLOTS = 8


class _Buffers:
    """Buffers that the kernels write to, with bytes behind each that must stay."""

    def __init__(self, count: int) -> None:
        self.memory = [
            bytearray(size) + _CANARIES
            for size in (
                16 * _SLOTS,
                90,
                8 * len(MapState),
                count,
                8 * GROUP_SIZE,
                8 * BATCH_ROW_SIZE,
            )
        ]
        slots, self.arena, state, self.keeps, group, row = (
            memoryview(each)[:-40] for each in self.memory
        )
        self.slots, self.state = slots.cast("q"), state.cast("q")
        self.group, self.row = group.cast("q"), row.cast("q")
        self.state[MapState.KEYS_MAX] = _SLOTS - 1

    def content(self) -> list[bytes]:
        """All of it, once the canaries have been looked at."""
        assert all(each.endswith(_CANARIES) for each in self.memory)
        return [bytes(each) for each in self.memory]


def clean_payload(data: bytes) -> int:
    """Put keys, choose and copy, by plain and by compiled code; they come to the same."""
    if len(data) < 2:
        return 0
    count, shift, payload = data[0] % 9, (data[1] - 128) << (data[1] % 50), data[2:]
    if data[1] == 0:
        count = 2**31 - 1 - count
    outcomes = []
    for name in ENGINES:
        put, choose, copy = (
            engine(name, each)
            for each in (kernels.put_keys, kernels.choose_records, kernels.copy_records)
        )
        found = _Buffers(min(count, 9))
        row = found.row
        row[BatchRow.LIMIT], row[BatchRow.RECORDS] = len(payload), count
        row[BatchRow.BASE_OFFSET], row[BatchRow.LATEST_OFFSET] = 1000, 1002
        row[BatchRow.KEEPS_TOMBSTONES] = data[1] & 1
        row[BatchRow.IS_COPIED], row[BatchRow.TIMESTAMP_SHIFT] = 1, shift
        buffers = found.slots, found.arena, found.state, found.group
        walked = put(payload, 1001, row, *buffers)
        status = choose(payload, row, *buffers, found.keeps)
        kept = row[BatchRow.KEPT] if status == 0 else status
        room = row[BatchRow.SIZE] + kernels.RECORD_GROWTH_MAX * max(kept, 0)
        output = bytearray(max(room, 0)) + _CANARIES
        written = copy(payload, row, found.keeps, 0, memoryview(output)[:-40])
        assert output.endswith(_CANARIES)
        if kept >= 0:
            assert 0 <= written <= room
        outcomes.append((walked, kept, written, found.content(), bytes(output)))
    assert outcomes[0] == outcomes[1]
    return 0


def rewrite_wrapper(data: bytes) -> int:
    """Convert a wrapper around these entries, and write it anew with some of its records."""
    if not data:
        return 0
    chance = random.Random(zlib.crc32(data))
    magic, codec = data[0] & 1, (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)[data[0] % 3]
    inner = bytes(with_crcs(data[1:]))
    value = bytes(compress(codec, inner))
    batch = converted(memoryview(write_legacy(LegacyMessage(magic, 9, None, value, 17, codec))))
    assert batch.legacy is not None
    is_foreign_inside(batch.legacy)
    before = list(records_of(batch))
    keeps = bytearray(chance.randrange(2) for _ in before)
    keeps[chance.randrange(len(before))] = 1
    again = converted(memoryview(legacy_with_chosen(batch, keeps)))
    kept = list(those_with(before, keeps))
    # Format v0 has no timestamps; those of newer entries inside of its wrappers are lost.
    untimed = [each._replace(timestamp=-1) for each in kept]
    assert list(records_of(again)) == (kept if magic else untimed)
    return len(kept)


_ROWS = (
    [NaiveRecord(place, place, b"k%d" % (place % 2), b"v" * place) for place in range(4)],
    [
        NaiveRecord(0, 0, b"", None),
        NaiveRecord(-5, 1, None, b""),
        NaiveRecord(9, 7, b"x" * 70, b""),
    ],
    [NaiveRecord(0, 0, b"long" * 70, b"v", ((b"h", None), (b"", b"x")))],
)
_PAYLOADS = (
    *(bytes([len(rows), shift]) + write_records(rows) for rows in _ROWS for shift in (0, 128, 140)),
    bytes([3, 128]) + seed_batch(Codec.NONE)[layout.RECORDS_POSITION :],
)

_INNER = tuple(
    bytes([magic | codec << 1])
    + write_all_legacy(
        [
            LegacyMessage(magic, 3, b"key", b"value" * 9, 1_600_000_000_000 * magic - (not magic)),
            LegacyMessage(magic, 4, None, None, 17 * magic - (not magic)),
            LegacyMessage(magic, 7, b"", b"x", 18 * magic - (not magic)),
        ]
    )
    for magic in (0, 1)
    for codec in range(3)
)

TARGETS: tuple[FuzzTarget, ...] = (
    FuzzTarget(
        name="clean records",
        seeds=_PAYLOADS,
        run=clean_payload,
        refusals=(),
    ),
    FuzzTarget(
        name="rewrite wrappers", seeds=_INNER, run=rewrite_wrapper, refusals=(CorruptionError,)
    ),
)
