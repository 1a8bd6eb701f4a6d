"""Every kernel under arguments that no caller gives: none reads or writes beside its buffers.

Inputs lie right before a page that ends the process when it is touched, outputs between canaries,
and both engines come to the same: a status, an exception, and what was written until then.
"""

from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.kernels import (
    BATCH_ROW_SIZE,
    GROUP_SIZE,
    PAYLOAD_WIDTH,
    BatchRow,
    MapState,
    RecordFault,
    RunFact,
    Taking,
    encoding,
    index_entries,
    records,
    rows,
    showing,
)
from tailrace.kernels.commits import STATE_SIZE, CommitColumn, CommitState, take_commits
from tailrace.records.batch import stamp
from tailrace.records.builder import BatchBuilder
from tailrace.records.layout import ATTRIBUTES_POSITION, CRC, CRC_POSITION, HEADER_SIZE
from tests.examples import examples
from tests.kernels.guards import Code, Output, attempt
from tests.kernels.plain import ENGINES, engine
from tests.kernels.strategies import INT64, SMALL, damaged_payloads, naive_records
from tests.kernels.test_produces_kernels import ALLOWED, ANSWER, HEAD, TAIL, received
from tests.kernels.test_showing_kernels import ENDS, ESCAPES, LITERALS
from tests.naive import NaiveRecord, write_records

Draw = Callable[[st.SearchStrategy[Any]], Any]
Arguments = list[Any]

FAR = [-(2**63), -(2**62), -(2**31) - 1, 2**31, 2**62, 2**63 - 1]
PLACES = st.integers(-3, 300) | st.sampled_from(FAR)
COUNTS = st.integers(-2, 9) | st.sampled_from(FAR[1:])
NUMBERS = SMALL | INT64 | st.sampled_from(FAR)
FLAGS = st.integers(0, 1)
PAYLOADS = damaged_payloads().map(lambda each: each[0]) | naive_records().map(write_records)

many = settings(max_examples=examples(150), deadline=None, database=None)


def output(draw: Draw, code: Code, most: int) -> Output:
    """An output with some room, mostly enough."""
    size = draw(st.sampled_from([most, most, most]) | st.integers(0, most))
    return Output(code, [0] * size)


def part(draw: Draw, data: bytes) -> tuple[int, int, int]:
    """Position, limit and count of records: mostly of all data, else of any place."""
    whole = st.tuples(st.just(0), st.just(len(data)), st.integers(0, 6))
    place: tuple[int, int, int] = draw(whole | whole | st.tuples(PLACES, PLACES, COUNTS))
    return place


def table(draw: Draw, data: bytes) -> Output:
    """Up to three rows for `decode_records`, and perhaps a part of one more."""
    items: list[int] = []
    for _ in range(draw(st.integers(0, 3))):
        items += [*part(draw, data), draw(NUMBERS), draw(NUMBERS), draw(FLAGS), 0, 7]
    assert len(items) % PAYLOAD_WIDTH == 0
    return Output("q", items + [7] * draw(st.sampled_from([0, 0, 1, PAYLOAD_WIDTH - 1])))


def batches(draw: Draw, data: bytes) -> Output:
    """Up to three rows for the kernels of compaction."""
    items: list[int] = []
    for _ in range(draw(st.integers(0, 3))):
        row = [0] * BATCH_ROW_SIZE
        row[:3] = part(draw, data)
        row[BatchRow.BASE_OFFSET], row[BatchRow.LATEST_OFFSET] = draw(NUMBERS), draw(NUMBERS)
        row[BatchRow.KEEPS_TOMBSTONES], row[BatchRow.IS_COPIED] = draw(FLAGS), draw(FLAGS)
        row[BatchRow.TIMESTAMP_SHIFT] = draw(st.just(0) | NUMBERS)
        items += row
    return Output("q", items + [7] * draw(st.sampled_from([0, 0, BATCH_ROW_SIZE - 1])))


def walk_records(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = draw(PAYLOADS)
    return [data, *part(draw, data), output(draw, "q", 7)]


def walk_run(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = bytes(HEADER_SIZE) + draw(PAYLOADS)
    return [data[draw(st.integers(0, 70)) :], draw(COUNTS)]


def scan_run(draw: Draw) -> Arguments:
    """Arguments of the kernel: batches with right checksums, mostly from the first on."""
    data = bytearray()
    for _ in range(draw(st.integers(0, 4))):
        builder = BatchBuilder()
        builder.append(None, b"value", timestamp=0)
        batch = bytearray(builder.build())
        batch[draw(st.sampled_from([16, 22, 23, 26, 43, 57]))] ^= draw(
            st.sampled_from([0, 0, 0, 0, 128])
        )
        CRC.pack_into(batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))
        offsets = st.sampled_from([*range(4), *range(4), *FAR])
        stamp(memoryview(batch), base_offset=draw(offsets), leader_epoch=draw(FLAGS))
        batch[11] ^= draw(st.sampled_from([0, 0, 0, 0, 128]))
        data += batch
    position = draw(st.just(0) | st.just(0) | PLACES)
    single = draw(st.sampled_from((0x37, 0x30, 0)))
    return [bytes(data), position, draw(PLACES), single, output(draw, "q", len(RunFact))]


def list_payloads(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    sizes = draw(st.lists(st.sampled_from([49, 50, 48, 0, -1, -(2**31), 2**31 - 1]), max_size=3))
    data = b"".join(bytes(8) + size.to_bytes(4, "big", signed=True) + bytes(49) for size in sizes)
    return [data, draw(COUNTS), output(draw, "q", 3 * PAYLOAD_WIDTH)]


def list_refused(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = draw(PAYLOADS)
    rules = draw(st.tuples(FLAGS, NUMBERS, FLAGS, NUMBERS, NUMBERS))
    return [data, *part(draw, data), *rules, output(draw, "q", 2), output(draw, "q", 9)]


def window(draw: Draw) -> tuple[int, int]:
    """The first offset and the first one that is not wanted; mostly all are."""
    every = st.just((-(2**63), 2**63 - 1))
    found: tuple[int, int] = draw(every | every | st.tuples(NUMBERS, NUMBERS))
    return found


def cursors(draw: Draw) -> Output:
    """Cursors, one of which may be anywhere."""
    items = [0] * 4
    items[draw(st.integers(0, 3))] = draw(
        st.just(0) | st.integers(-9, 3) | st.sampled_from(FAR[:-1])
    )
    return Output("q", items)


def decode_records(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = draw(PAYLOADS)
    return [
        data, table(draw, data), draw(COUNTS), *window(draw),
        draw(st.sampled_from([15, 15, -1, 0, 1, 2])), cursors(draw),
        output(draw, "q", 6), output(draw, "q", 6),
        output(draw, "i", 7), output(draw, "B", 6), output(draw, "B", 150),
        output(draw, "i", 7), output(draw, "B", 6), output(draw, "B", 150),
    ]  # fmt: skip


def decode_headers(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = draw(PAYLOADS)
    return [
        data, *part(draw, data), draw(NUMBERS), *window(draw), cursors(draw),
        output(draw, "i", 7), output(draw, "B", 6), output(draw, "i", 9), output(draw, "B", 30),
        output(draw, "i", 9), output(draw, "B", 8), output(draw, "B", 30),
    ]  # fmt: skip


def find_timestamp(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = draw(PAYLOADS)
    wanted = draw(st.tuples(NUMBERS, NUMBERS, FLAGS, NUMBERS, NUMBERS))
    return [data, *part(draw, data), *wanted, output(draw, "q", 2)]


def place_at(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = draw(PAYLOADS)
    return [data, *part(draw, data)[:2]]


def take_records(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = draw(PAYLOADS)
    state = draw(st.just([0, 0, 0]) | st.lists(PLACES, max_size=3))
    place = draw(st.sampled_from([(), ("t", 0), ("t", 0), ("t",)]))
    types = draw(st.sampled_from([(1, 0), (1, 0), (1, 0), (1,)]))
    return [
        data, table(draw, data), Output("q", state), draw(st.just(-(2**63)) | NUMBERS),
        draw(st.just(9) | COUNTS), tuple, place, types, [],
    ]  # fmt: skip


def map_of(draw: Draw) -> Arguments:
    """Slots, arena, state and group; the caller of the kernels has to clear these."""
    slots = draw(st.sampled_from([0, 1, 2, 4, 32, 32, 32]))
    state = [0] * draw(st.sampled_from([kernels.STATE_SIZE] * 4 + [0, kernels.STATE_SIZE - 1]))
    state[MapState.HASH_SECRET :] = [draw(PLACES) for _ in state[MapState.HASH_SECRET :]]
    if len(state) > MapState.KEYS_MAX:
        state[MapState.KEYS_MAX] = max(0, slots // 2 - 1)
    group = draw(st.sampled_from([GROUP_SIZE, GROUP_SIZE, GROUP_SIZE - 1, 0]))
    arena = output(draw, "B", 90)
    return [Output("q", [0] * slots), arena, Output("q", state), Output("q", [0] * group)]


def put_keys(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = draw(PAYLOADS)
    return [data, draw(NUMBERS), batches(draw, data), *map_of(draw)]


def choose_records(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = draw(PAYLOADS)
    return [data, batches(draw, data), *map_of(draw), output(draw, "B", 18)]


def copy_records(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = draw(PAYLOADS)
    keeps = bytes(draw(st.lists(FLAGS, max_size=18)))
    return [data, batches(draw, data), keeps, draw(st.just(3) | COUNTS), output(draw, "B", 300)]


def commits(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    count = draw(st.just(3) | COUNTS)
    state = output(draw, "q", STATE_SIZE)
    if state.items:
        secret = [draw(PLACES) for _ in state.items[CommitState.HASH_SECRET :]]
        rest = state.items[1 : CommitState.HASH_SECRET]
        state = state._replace(items=[draw(PLACES), *rest, *secret])
    powers = st.sampled_from([0, 1, 4, 4, 8])
    return [
        draw(PAYLOADS), count, state, output(draw, "q", 3 * len(CommitColumn)),
        Output("q", [0] * draw(powers)), output(draw, "q", 9), Output("q", [0] * draw(powers)),
        output(draw, "B", 40),
    ]  # fmt: skip


def take_produces(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = draw(received())
    whole = st.just((0, len(data)))
    known = {**ALLOWED, **draw(st.dictionaries(st.sampled_from([*ALLOWED]), PLACES, max_size=2))}
    known["NEXT_OFFSET"] = draw(st.integers(0, 2**62))
    state = [known.get(place.name, 0) for place in Taking]
    return [
        data, *draw(whole | whole | st.tuples(PLACES, PLACES)), HEAD, TAIL,
        draw(st.sampled_from([ANSWER, b"", ANSWER[:9]])),
        Output("q", state[: draw(st.sampled_from([len(state)] * 4 + [0, len(state) - 1]))]),
        output(draw, "B", 500), output(draw, "B", 150), output(draw, "q", 5),
        output(draw, "q", 8), draw(COUNTS),
    ]  # fmt: skip


def entries_of(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    data = bytes(8) + (49).to_bytes(4, "big") + bytes(49)
    state = draw(st.lists(PLACES, min_size=8, max_size=8))
    size = draw(st.sampled_from([8, 8, 8, 0, 7]))
    data = data * draw(st.integers(0, 3)) + draw(st.binary(max_size=2))
    return [data, draw(COUNTS), draw(st.binary(max_size=40)), Output("q", state[:size])]


def encode_records(draw: Draw) -> Arguments:
    """The columns are right for three rows; that rows are inside of them is the caller's part."""
    chosen = draw(st.lists(st.integers(0, 2), max_size=4))
    start, count = draw(st.just(0) | COUNTS), draw(COUNTS)
    if not chosen:
        start, count = draw(st.sampled_from([(0, 3), (1, 2), (-1, 1), (0, 0), (3, 0)]))
    return [
        b"onetwo", output_of([0, 3, ~3, 6]), b"k", output_of([]), b"", output_of([]),
        output_of(draw(st.just([]) | st.lists(st.integers(-(2**62), 2**61), max_size=4))),
        draw(st.integers(-(2**61), 2**61)), output_of(chosen), start, count,
        output(draw, "B", 60), draw(st.just(0) | PLACES),
    ]  # fmt: skip


def output_of(items: list[int]) -> Output:
    """A buffer of int64s."""
    return Output("q", items)


def cut_rows(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    some = st.lists(st.integers(0, 5) | st.sampled_from(FAR), max_size=5)
    small = st.lists(st.integers(0, 50), max_size=5)
    return [
        output_of(draw(small)), output_of(draw(st.just([]) | some)), output_of(draw(some)),
        draw(st.integers(-2, 9)), draw(st.integers(0, 99) | st.just(2**63 - 1)),
        output(draw, "q", 6), output(draw, "q", 5),
    ]  # fmt: skip


def choose_partitions(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    given = draw(st.lists(st.integers(-2, 2), max_size=3))
    return [
        b"onetwo", output_of([0, 3, ~3, 6]), draw(st.integers(-2, 5)),
        draw(st.sampled_from([1, 3, 2**31 - 1, 2**63 - 1])), output_of(given),
    ]  # fmt: skip


def show_records(draw: Draw) -> Arguments:
    """Arguments of the kernel."""
    bounds = [draw(NUMBERS) for _ in range(4)] + [draw(st.integers(0, 2))]
    place = [draw(st.just(0) | PLACES), draw(st.just(0) | PLACES), 0, draw(PLACES)]
    size = st.sampled_from([0, 0, 0, 0, 1])
    printable = b"\x01" * showing.PRINTABLE_CODES
    return [
        draw(PAYLOADS), draw(COUNTS), draw(NUMBERS), draw(NUMBERS), draw(FLAGS),
        output_of(bounds[draw(size) :]), b"k", draw(st.sampled_from(showing.Form)), LITERALS,
        output_of(list(ENDS[draw(size) :])), ESCAPES[draw(size) :], printable[draw(size) :],
        output_of(place[draw(size) :]), output(draw, "B", 600),
    ]  # fmt: skip


CASES: dict[Callable[..., Any], Callable[[Draw], Arguments]] = {
    kernels.walk_records: walk_records,
    kernels.walk_run: walk_run,
    kernels.scan_run: scan_run,
    kernels.list_payloads: list_payloads,
    kernels.list_refused: list_refused,
    kernels.decode_records: decode_records,
    kernels.decode_headers: decode_headers,
    kernels.find_timestamp: find_timestamp,
    records.record_at: place_at,
    records.varint_at: place_at,
    rows.take_records: take_records,
    kernels.put_keys: put_keys,
    kernels.choose_records: choose_records,
    kernels.copy_records: copy_records,
    take_commits: commits,
    kernels.take_produces: take_produces,
    index_entries.check_offset_entries: entries_of,
    index_entries.check_time_entries: entries_of,
    encoding.encode_records: encode_records,
    encoding.cut_rows: cut_rows,
    encoding.choose_partitions: choose_partitions,
    showing.show_records: show_records,
}

each_kernel = pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)


@each_kernel
@many
@given(st.data())
def test_both_engines_come_to_the_same_inside_of_their_buffers(
    kernel: Callable[..., Any], data: st.DataObject
) -> None:
    """Statuses, exceptions and outputs are equal, and nothing beside a buffer is touched."""
    arguments = CASES[kernel](data.draw)
    compiled, plain = (attempt(engine(name, kernel), arguments) for name in ENGINES)
    assert compiled == plain


@pytest.mark.parametrize("cursor", [1, 2], ids=["keys", "values"])
@pytest.mark.parametrize("name", ENGINES)
def test_an_end_past_its_buffer_is_refused_before_it_is_repeated(name: str, cursor: int) -> None:
    """A row without key and value repeats it, and it may have no place in 32 bits."""
    data = write_records([NaiveRecord(0, 0, None, None, ())])
    places = [0, len(data), 1, 0, 0, 0, 0]
    begin = [2**31 if each == cursor else 0 for each in range(4)]
    status, written = attempt(
        engine(name, kernels.decode_records),
        [
            data, Output("q", places), 1, 0, 1, 15, Output("q", begin),
            Output("q", [0]), Output("q", [0]),
            Output("i", [0, 7]), Output("B", [7]), Output("B", []),
            Output("i", [0, 7]), Output("B", [7]), Output("B", []),
        ],
    )  # fmt: skip
    assert status == -RecordFault.NO_ROOM
    assert written == [places, begin, [0], [0], [0, 7], [7], [], [0, 7], [7], []]
