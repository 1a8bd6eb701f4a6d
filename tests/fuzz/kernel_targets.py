"""Fuzz targets of the kernels that read bytes from peers and files.

The compiled kernel comes to the same as its source run as plain Python. Its input lies right before
a page that ends the process when it is touched, its outputs between bytes that must stay. The first
bytes of an input are not read by the kernel: they choose its other arguments.
"""

import random
from collections.abc import Callable
from functools import partial
from struct import pack
from typing import Any

from tailrace import kernels
from tailrace.kernels import GROUP_SIZE, BatchRow, MapState, Payload, Taking, Total
from tailrace.kernels.commits import NAME_WIDTH, STATE_SIZE, CommitColumn, CommitState, take_commits
from tailrace.kernels.index_entries import check_offset_entries, check_time_entries
from tailrace.kernels.records import record_at, varint_at
from tailrace.kernels.rows import take_records
from tailrace.kernels.showing import (
    PRINTABLE_CODES,
    BoundIndex,
    Cursor,
    Form,
    show_records,
)
from tailrace.model import Codec
from tailrace.protocol.coordinator_records import encode_key, encode_value
from tailrace.protocol.records import OffsetCommitKey, OffsetCommitValue
from tailrace.records import layout
from tailrace.records.builder import BatchBuilder
from tests.fuzz.engine import FuzzTarget
from tests.fuzz.mending import is_mended, with_crcs
from tests.fuzz.records_targets import seed_batch, stamped
from tests.kernels.guards import Code, Output, attempt
from tests.kernels.plain import ENGINES, engine
from tests.kernels.test_produces_kernels import ALLOWED, ANSWER, HEAD, TAIL
from tests.kernels.test_produces_kernels import batch as produced_batch
from tests.kernels.test_produces_kernels import frame as produced_frame
from tests.kernels.test_showing_kernels import ENDS, ESCAPES, LITERALS
from tests.naive import NaiveRecord, write_records

CHOICE = 2
"""Bytes of an input that choose the other arguments."""

FAR = (-(2**63), -(2**62), -1, 0, 1, 2**31, 2**62, 2**63 - 1)

Arguments = Callable[[random.Random, bytes], list[Any]]


def run_both(data: bytes, *, kernel: Callable[..., Any], arguments: Arguments) -> object:
    """The outcome of both engines, which is one."""
    chosen = arguments(random.Random(data[:CHOICE]), data[CHOICE:])
    compiled, plain = (attempt(engine(name, kernel), chosen) for name in ENGINES)
    assert compiled == plain, (compiled, plain)
    return compiled


def zeros(code: Code, size: int) -> Output:
    """An output with so much room."""
    return Output(code, [0] * size)


def room(chance: random.Random, code: Code, size: int) -> Output:
    """An output with so much room, or seldom with less."""
    return zeros(code, chance.randint(0, size) if chance.randrange(8) == 0 else size)


def number(chance: random.Random) -> int:
    """Any int64, often one at the edge."""
    return chance.choice((*FAR, chance.randint(-300, 300), chance.randint(-(2**63), 2**63 - 1)))


def part(chance: random.Random, data: bytes) -> list[int]:
    """Position, limit and count of records."""
    if chance.randrange(8) == 0:
        return [number(chance) for _ in range(3)]
    return [0, len(data), chance.randint(0, 4)]


def payload_row(chance: random.Random, data: bytes) -> Output:
    """The row of a batch for `decode_records`."""
    row = [0] * len(Payload)
    row[:3] = part(chance, data)
    row[Payload.BASE_OFFSET], row[Payload.BASE_TIMESTAMP] = number(chance), number(chance)
    row[Payload.KEEPS_DELTAS] = chance.randrange(2)
    return Output("q", row)


def _walk(chance: random.Random, data: bytes) -> list[Any]:
    return [data, *part(chance, data), room(chance, "q", len(Total))]


def _walk_run(chance: random.Random, data: bytes) -> list[Any]:
    return [data, chance.choice((9, 9, 9, 3, -1, 2**62, -(2**62)))]


def _list_payloads(chance: random.Random, data: bytes) -> list[Any]:
    return [data, chance.randint(0, 4), room(chance, "q", 3 * len(Payload))]


def _refuse(chance: random.Random, data: bytes) -> list[Any]:
    rules = [chance.randrange(2), number(chance), chance.randrange(2), number(chance)]
    return [
        data, *part(chance, data), *rules, number(chance), room(chance, "q", 2),
        room(chance, "q", 9),
    ]  # fmt: skip


def _window(chance: random.Random) -> list[int]:
    every = [-(2**63), 2**63 - 1]
    return chance.choice((every, every, [number(chance), number(chance)]))


def _decode(chance: random.Random, data: bytes) -> list[Any]:
    row, size = payload_row(chance, data), len(data) + 4
    return [
        data, row, max(row.items[Payload.RECORD_COUNT], 0), *_window(chance),
        chance.choice((15, 15, chance.randrange(16))), zeros("q", 4), room(chance, "q", 4),
        room(chance, "q", 4), room(chance, "i", 5), room(chance, "B", 4), room(chance, "B", size),
        room(chance, "i", 5), room(chance, "B", 4), room(chance, "B", size),
    ]  # fmt: skip


def _decode_headers(chance: random.Random, data: bytes) -> list[Any]:
    size = len(data) // 2 + 4
    return [
        data, *part(chance, data), number(chance), *_window(chance), zeros("q", 4),
        room(chance, "i", 5), room(chance, "B", 4), room(chance, "i", size + 1),
        room(chance, "B", 2 * size), room(chance, "i", size + 1), room(chance, "B", size),
        room(chance, "B", 2 * size),
    ]  # fmt: skip


def _find(chance: random.Random, data: bytes) -> list[Any]:
    wanted = [number(chance), number(chance), chance.randrange(2), number(chance), number(chance)]
    return [data, *part(chance, data), *wanted, room(chance, "q", 2)]


def _place_at(chance: random.Random, data: bytes) -> list[Any]:
    return [data, *part(chance, data)[:2]]


def _take_records(chance: random.Random, data: bytes) -> list[Any]:
    rows = [payload_row(chance, data) for _ in range(chance.choice((1, 1, 2, 3)))]
    state = [0, 0, 0] if chance.randrange(4) else [number(chance) for _ in range(3)]
    place = chance.choice(((), ("t", 0)))
    return [
        data, Output("q", [item for row in rows for item in row.items]), Output("q", state),
        chance.choice((-(2**63), number(chance))), chance.choice((9, 9, 1, 2, number(chance))),
        tuple, place, (1, 0), [],
    ]  # fmt: skip


def _clean(chance: random.Random, data: bytes, *, is_put: bool) -> list[Any]:
    row = [0] * kernels.BATCH_ROW_SIZE
    row[:3] = part(chance, data)
    row[BatchRow.BASE_OFFSET], row[BatchRow.LATEST_OFFSET] = number(chance), number(chance)
    row[BatchRow.KEEPS_TOMBSTONES] = chance.randrange(2)
    slots = chance.choice((2, 3, 8))
    state = [0] * kernels.STATE_SIZE
    state[MapState.KEYS_MAX] = slots - 1
    state[MapState.HASH_SECRET :] = number(chance), number(chance)
    buffers = [
        zeros("q", 2 * slots), room(chance, "B", 90), Output("q", state), zeros("q", GROUP_SIZE)
    ]  # fmt: skip
    if is_put:
        return [data, number(chance), Output("q", row), *buffers]
    return [data, Output("q", row), *buffers, room(chance, "B", 4)]


def _copy(chance: random.Random, data: bytes) -> list[Any]:
    row = [0] * kernels.BATCH_ROW_SIZE
    row[:3] = part(chance, data)
    row[BatchRow.IS_COPIED], row[BatchRow.TIMESTAMP_SHIFT] = 1, chance.choice((0, number(chance)))
    keeps = bytes(chance.randrange(2) for _ in range(4))
    size = len(data) + 4 * kernels.RECORD_GROWTH_MAX + 3
    return [data, Output("q", row), keeps, chance.choice((0, 3)), room(chance, "B", size)]


def _commit(chance: random.Random, data: bytes) -> list[Any]:
    state = [0] * STATE_SIZE
    state[CommitState.GENERATION] = 1
    state[CommitState.HASH_SECRET :] = number(chance), number(chance)
    return [
        bytes(with_crcs(data)) if is_mended(data) else data, 8, Output("q", state),
        zeros("q", 8 * len(CommitColumn)), zeros("q", 16), room(chance, "q", 24 * NAME_WIDTH),
        zeros("q", 32), room(chance, "B", 600),
    ]  # fmt: skip


def _produce(chance: random.Random, data: bytes) -> list[Any]:
    known = {
        **ALLOWED,
        "NEEDS_KEYS": chance.randrange(2),
        "PRODUCER_ID": chance.choice((5, 5, 5, -1)),
    }
    state = [known.get(place.name, 0) for place in Taking]
    return [
        data, 0, len(data), HEAD, TAIL, chance.choice((ANSWER, ANSWER, b"")), Output("q", state),
        room(chance, "B", 500), room(chance, "B", 150), room(chance, "q", 5),
        room(chance, "q", 8), 5,
    ]  # fmt: skip


def _entries(chance: random.Random, data: bytes, *, sound: tuple[int, ...]) -> list[Any]:
    """The first byte is the size of the entries, which stand behind the batches."""
    cut = max(len(data) - data[0] if data else 0, 1)
    state = list(sound)
    if chance.randrange(3) == 0:
        state[chance.randrange(len(state))] = number(chance)
    count = chance.choice((*3 * (cut // len(_BATCH),), 1, number(chance)))
    return [data[1:cut], count, data[cut:], Output("q", state)]


def _show(chance: random.Random, data: bytes) -> list[Any]:
    bounds = [0] * len(BoundIndex)
    bounds[BoundIndex.START_OFFSET], bounds[BoundIndex.LIMIT_OFFSET] = _window(chance)
    bounds[BoundIndex.EARLIEST], bounds[BoundIndex.LATEST] = _window(chance)
    bounds[BoundIndex.KEYS] = chance.choice((0, 0, 1))
    cursors = [0] * len(Cursor)
    cursors[Cursor.LEFT] = 9
    return [
        data, chance.randint(0, 4), number(chance), number(chance), chance.randrange(2),
        Output("q", bounds), b"key", chance.choice(tuple(Form)), LITERALS, Output("q", list(ENDS)),
        ESCAPES, _PRINTABLE, Output("q", cursors), room(chance, "B", 9 * len(data) + 400),
    ]  # fmt: skip


_PRINTABLE = bytes(code % 3 for code in range(PRINTABLE_CODES))

_RECORDS = (
    [NaiveRecord(place, place, b"key", "wört\n".encode() * place) for place in range(4)],
    [
        NaiveRecord(2**63 - 1, 0, b"", None),
        NaiveRecord(-(2**63), 2**31 - 1, None, b"\xf0\x9f\x98\x80"),
    ],
    [NaiveRecord(-1, 0, b"long" * 70, b"v", ((b"h", None), (b"", b"x"), (b"h", b"y" * 70)))],
)
_PAYLOADS = (
    *map(write_records, _RECORDS),
    seed_batch(Codec.NONE)[layout.RECORDS_POSITION :],
)
_BATCH = seed_batch(Codec.NONE)
_RUNS = (stamped(_BATCH, 0), stamped(_BATCH, 0) + stamped(_BATCH, 3), stamped(_BATCH, 5) * 3)


def _commit_batches() -> tuple[bytes, ...]:
    content = []
    for version in range(5):
        builder = BatchBuilder()
        for partition in range(2):
            key = encode_key(OffsetCommitKey(group="grüppe", topic="t", partition=partition))
            value = OffsetCommitValue(offset=7, metadata="meta", commit_timestamp=version)
            builder.append(key, encode_value(value, version), timestamp=1)
            builder.append(key, None, timestamp=1)
        content.append(stamped(builder.build(), 9))
    return (*content, content[0] + content[4])


_FRAMES = (
    produced_frame(1, produced_batch(0, [b"a", b"b"])),
    produced_frame(1, produced_batch(0, [b"a"]))
    + produced_frame(2, produced_batch(1, [b"c" * 90])),
)
_NEWEST = 1_700_000_100_000
_INDEXED = (
    ((_RUNS[0], [(2, 0)]), (_RUNS[1], [(2, 0), (5, len(_BATCH))]), (_RUNS[1], [(5, 0)])),
    ((_RUNS[0], [(_NEWEST, 2)]), (_RUNS[1], [(_NEWEST, 1)])),
)
"""Runs of one batch or two, each with entries of the offset index and of the time index."""


def _with_entries(run: bytes, entries: list[tuple[int, int]], code: str) -> bytes:
    packed = b"".join(pack(f">{code}", *each) for each in entries)
    return bytes([len(packed)]) + run + packed


_CHOICES = tuple(bytes([number, 7]) for number in range(16))


def _target(
    name: str, kernel: Callable[..., Any], make: Arguments, data: tuple[bytes, ...]
) -> FuzzTarget:
    return FuzzTarget(
        name=f"kernel: {name}",
        seeds=tuple(choice + each for choice in _CHOICES for each in data),
        run=partial(run_both, kernel=kernel, arguments=make),
        refusals=(),
    )


TARGETS: tuple[FuzzTarget, ...] = (
    _target("walk records", kernels.walk_records, _walk, _PAYLOADS),
    _target("walk a run", kernels.walk_run, _walk_run, _RUNS),
    _target("list payloads", kernels.list_payloads, _list_payloads, _RUNS),
    _target("list refused records", kernels.list_refused, _refuse, _PAYLOADS),
    _target("decode records", kernels.decode_records, _decode, _PAYLOADS),
    _target("decode headers", kernels.decode_headers, _decode_headers, _PAYLOADS),
    _target("find a timestamp", kernels.find_timestamp, _find, _PAYLOADS),
    _target("places of a record", record_at, _place_at, _PAYLOADS),
    _target("a varint", varint_at, _place_at, _PAYLOADS),
    _target("take records", take_records, _take_records, _PAYLOADS),
    _target("put keys", kernels.put_keys, partial(_clean, is_put=True), _PAYLOADS),
    _target("choose records", kernels.choose_records, partial(_clean, is_put=False), _PAYLOADS),
    _target("copy records", kernels.copy_records, _copy, _PAYLOADS),
    _target("take commits", take_commits, _commit, _commit_batches()),
    _target("take produces", kernels.take_produces, _produce, _FRAMES),
    _target(
        "check offset entries",
        check_offset_entries,
        partial(_entries, sound=(0, 0, 0, 1, -1, -1, -1, -1)),
        tuple(_with_entries(run, entries, "ii") for run, entries in _INDEXED[0]),
    ),
    _target(
        "check time entries",
        check_time_entries,
        partial(_entries, sound=(0, 0, 1, -1, -1, -1, -1, 1)),
        tuple(_with_entries(run, entries, "qi") for run, entries in _INDEXED[1]),
    ),
    _target("show records", show_records, _show, _PAYLOADS),
)  # fmt: skip
