"""The block of records that come one by one, compiled and plain, against the naive encoder."""

import sys
import threading
from array import array

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.kernels.record_block import NO_ROOM, RecordBlock
from tailrace.records.builder import BatchBuilder
from tailrace.records.layout import HEADER_SIZE, TRANSACTIONAL_FLAG
from tests.examples import examples
from tests.kernels.plain import BLOCKS
from tests.kernels.strategies import CONTENT, HEADERS, INT64
from tests.kernels.test_encoding_kernels import header_bytes
from tests.naive import NaiveRecord, write_record

CANARY = b"\xa5"
START = 3
ROWS = st.lists(
    st.tuples(CONTENT, CONTENT, HEADERS, INT64 | st.integers(-300, 300)), min_size=1, max_size=6
)
Row = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]], int]

many = settings(max_examples=examples(200), deadline=None, database=None)
both_blocks = pytest.mark.parametrize("kind", BLOCKS.values(), ids=BLOCKS)


def append(block: RecordBlock, row: Row) -> int:
    """Append a row."""
    key, value, headers, timestamp = row
    encoded = header_bytes((key, value, headers, 0)) if headers else b""
    return block.append(value, key, encoded, timestamp)


def state_of(block: RecordBlock) -> tuple[object, ...]:
    """Everything that a caller sees of it."""
    return (
        bytes(block.block), list(block.times), block.position, block.limit, block.record_count,
        block.base_timestamp, block.max_timestamp,
    )  # fmt: skip


def naive_block(rows: list[Row], limit: int) -> tuple[bytes, list[int], list[int]]:
    """The bytes, the timestamps and the answers that these rows are due."""
    content, times, answers = b"", list[int](), list[int]()
    for key, value, headers, timestamp in rows:
        delta = timestamp - (times[0] if times else timestamp)
        encoded = b""
        if -(2**63) <= delta < 2**63:
            record = NaiveRecord(delta, len(times), key, value, tuple(headers))
            encoded = write_record(record)
        if not encoded or START + len(content) + len(encoded) > limit:
            answers.append(NO_ROOM)
            continue
        answers.append(len(times))
        times.append(timestamp)
        content += encoded
    return content, times, answers


def far_apart(first: int, second: int) -> list[Row]:
    """Two rows of 7 and 16 bytes, whose timestamps need the longest delta."""
    return [(None, None, [], first), (None, None, [], second)]


@many
@given(ROWS, st.integers(0, 300), st.integers(0, 7))
@example(far_apart(0, -(2**63)), 23, 2)
@example(far_apart(1, 1 - 2**63), 23, 2)
@example(far_apart(1, -(2**63)), 23, 2)
@example(far_apart(-1, 2**63 - 2), 23, 2)
@example(far_apart(-1, 2**63 - 1), 23, 2)
def test_records_are_those_of_the_naive_encoder(rows: list[Row], room: int, count: int) -> None:
    """Both write what fits, up to the limit and nothing behind it, whatever the timestamps are."""
    limit = START + room
    content, times, answers = naive_block(rows, limit)
    states = []
    for kind in BLOCKS.values():
        block = kind(bytearray(CANARY * (limit + 60)), kernels.int64s(count), START, limit)
        found = [append(block, row) for row in rows]
        assert block.block[block.position :] == CANARY * (limit + 60 - block.position)
        assert block.block[:START] == CANARY * START
        if len(times) <= count:
            assert found == answers
            assert block.block[START : block.position] == content
            assert list(block.times[: block.record_count]) == times
            if times:
                assert (block.base_timestamp, block.max_timestamp) == (times[0], max(times))
        else:
            assert block.record_count == count
        states.append((found, state_of(block)))
    assert states[0] == states[1]


@both_blocks
def test_a_record_that_does_not_fit_changes_nothing(kind: type[RecordBlock]) -> None:
    """Neither for want of bytes, nor of timestamps, nor with a delta beyond 64 bits."""
    block = kind(bytearray(CANARY * 60), kernels.int64s(2), START, 50)
    assert block.append(b"value", None, b"", -(2**63)) == 0
    before = state_of(block)
    assert block.append(b"", b"", b"", 0) == NO_ROOM
    assert block.append(b"v" * 50, None, b"", -(2**63)) == NO_ROOM
    assert state_of(block) == before
    assert block.append(b"", b"", b"", -1) == 1
    before = state_of(block)
    assert block.append(b"", b"", b"", -1) == NO_ROOM
    assert state_of(block) == before


@both_blocks
def test_a_block_goes_on_in_another_one(kind: type[RecordBlock]) -> None:
    """Records that are there stay, the next one is written behind them, and none after the end."""
    block = kind(bytearray(20), kernels.int64s(1), START, 20)
    assert block.append(b"first", b"k", b"", 5) == 0
    assert block.append(b"second", b"k", b"", 7) == NO_ROOM
    larger = bytearray(60)
    block.set_room(larger, kernels.int64s(3), 60)
    assert block.append(b"second", b"k", b"", 7) == 1
    assert larger[START : block.position] == b"".join(
        write_record(NaiveRecord(delta, index, b"k", value))
        for index, (delta, value) in enumerate([(0, b"first"), (2, b"second")])
    )
    assert list(block.times[:2]) == [5, 7]
    block.close()
    assert block.append(b"", None, b"", 7) == NO_ROOM


@both_blocks
@pytest.mark.parametrize(
    ("size", "start", "limit"),
    [(9, 0, 10), (9, 8, 7), (9, -1, 9), (9, 2**62, 2**62 + 1), (9, 0, -1), (0, 0, 1)],
)
def test_a_block_is_as_large_as_it_says(
    kind: type[RecordBlock], size: int, start: int, limit: int
) -> None:
    """A place outside of the block is refused before anything is written."""
    with pytest.raises(ValueError, match="no room"):
        kind(bytearray(size), kernels.int64s(1), start, limit)


@both_blocks
def test_a_smaller_room_is_refused_and_the_old_one_stays(kind: type[RecordBlock]) -> None:
    """Neither bytes nor timestamps that are there may be lost."""
    block = kind(bytearray(50), kernels.int64s(2), 0, 50)
    block.append(b"value", None, b"", 1)
    before = state_of(block)
    for size, count in ((block.position - 1, 2), (50, 0)):
        with pytest.raises(ValueError, match="no room"):
            block.set_room(bytearray(size), kernels.int64s(count), size)
        assert state_of(block) == before


def test_the_memory_of_a_block_stays_where_it_is() -> None:
    """No one can make the block smaller while records are written to it."""
    memory, times = bytearray(50), kernels.int64s(2)
    block = RecordBlock(memory, times, 0, 50)
    for buffer in (memory, times):
        with pytest.raises(BufferError):
            buffer.pop()
    block.append(b"value", None, b"", 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("text", b"", b"", 0),
        (bytearray(1), b"", b"", 0),
        (b"", "text", b"", 0),
        (b"", b"", "text", 0),
        (b"", b"", None, 0),
        (b"", b"", b"", None),
        (b"", b"", b"", "1"),
    ],
)
def test_what_is_no_record_is_refused(arguments: tuple[object, ...]) -> None:
    """A wrong argument is an exception, and the block is as it was."""
    block = RecordBlock(bytearray(50), kernels.int64s(2), 0, 50)
    before = state_of(block)
    with pytest.raises(TypeError):
        block.append(*arguments)  # type: ignore[arg-type]
    assert state_of(block) == before


def test_a_timestamp_beyond_int64_is_refused() -> None:
    """It is an exception, and the block is as it was."""
    block = RecordBlock(bytearray(50), kernels.int64s(2), 0, 50)
    before = state_of(block)
    for time in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            block.append(b"", b"", b"", time)
    assert state_of(block) == before


def test_a_block_that_was_not_begun_takes_nothing() -> None:
    """Nothing is written through an object without memory."""
    block = RecordBlock.__new__(RecordBlock)
    assert block.append(b"value", None, b"", 1) == NO_ROOM


def test_threads_append_one_after_the_other() -> None:
    """Each record is there as a whole, whichever thread it comes from."""
    count, threads = 2000, 4
    block = RecordBlock(
        bytearray(80 * count * threads), kernels.int64s(count * threads), 0, 80 * count * threads
    )
    interval = sys.getswitchinterval()

    def run(number: int) -> None:
        for _ in range(count):
            assert block.append(bytes([number]) * 20, None, b"", number) >= 0

    sys.setswitchinterval(1e-6)
    try:
        started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
        for each in started:
            each.start()
        for each in started:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    totals = array("q", bytes(8 * len(kernels.Total)))
    status = kernels.walk_records(block.block, 0, block.position, count * threads, totals)
    assert status == 0
    assert totals[kernels.Total.IS_CONSECUTIVE] == 1
    assert sorted(block.times) == sorted([*range(threads)] * count)


@many
@given(
    st.lists(st.tuples(CONTENT, CONTENT), min_size=1, max_size=4),
    INT64.filter(lambda timestamp: timestamp > -(2**63)),
    st.sampled_from([(5, 2, 7), (-1, -1, -1)]),
)
def test_a_block_with_a_header_is_the_batch_of_a_builder(
    records: list[tuple[bytes | None, bytes | None]], timestamp: int, producer: tuple[int, int, int]
) -> None:
    """Both engines write the header and the checksum of the records that were appended."""
    is_transactional = producer[0] >= 0
    builder = BatchBuilder(
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=is_transactional,
    )
    for key, value in records:
        builder.append(key, value, timestamp=timestamp)
    expected = builder.build()
    for kind in BLOCKS.values():
        memory = bytearray(len(expected) + 9)
        block = kind(memory, kernels.int64s(len(records)), HEADER_SIZE, len(memory))
        for key, value in records:
            block.append(value, key, b"", timestamp)
        assert block.write_header(TRANSACTIONAL_FLAG * is_transactional, *producer) == len(expected)
        assert bytes(memory) == expected + bytes(9)


@both_blocks
def test_a_block_without_records_or_room_for_a_header_gets_none(
    kind: type[RecordBlock],
) -> None:
    """Nothing is written then."""
    memory = bytearray(CANARY * 200)
    empty = kind(memory, kernels.int64s(1), HEADER_SIZE, len(memory))
    small = kind(memory, kernels.int64s(1), START, len(memory))
    small.append(None, None, b"", 0)
    before = bytes(memory)
    assert (empty.write_header(0, -1, -1, -1), small.write_header(0, -1, -1, -1)) == (
        NO_ROOM,
        NO_ROOM,
    )
    assert bytes(memory) == before
