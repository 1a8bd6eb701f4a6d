"""The kernel that takes repeated produce requests, compiled and plain; and its checksum."""

from random import Random

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.kernels import ENTRY_WIDTH, Taking
from tailrace.records.builder import BatchBuilder
from tailrace.records.layout import ATTRIBUTES_POSITION, CRC, CRC_POSITION
from tests.examples import examples
from tests.kernels.plain import ENGINES, PLAIN, engine

HEAD, TAIL = b"\0\0\0\x09____client, topic, partition", b"\0\0\0"
ANSWER = bytes(range(40))
OFFSET_AT = 20
ALLOWED = {
    "IS_FLEXIBLE": 1, "OFFSET_AT": OFFSET_AT, "FRAME_BYTES_MAX": 1000, "BATCH_BYTES_MAX": 400,
    "EARLIEST": 0, "LATEST": 2000, "NEEDS_KEYS": 1, "LEADER_EPOCH": 3, "PRODUCER_ID": 5,
    "PRODUCER_EPOCH": 0, "SEQUENCE": 0, "INDEX_INTERVAL_BYTES": 100, "BYTES_BEFORE_ENTRY": 300,
    "NEXT_OFFSET": 2**40 - 2,
}  # fmt: skip
EDITS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 255), st.booleans()), max_size=2
)  # fmt: skip
"""Position, what is changed there, and whether the checksum is set anew."""


def uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    low, high = value & 127, value >> 7
    return bytes([low | 128]) + uvarint(high) if high else bytes([low])


def frame(number: int, records: bytes) -> bytes:
    """A request with these records."""
    head = HEAD.replace(b"____", number.to_bytes(4, "big"))
    body = head + uvarint(len(records) + 1) + records + TAIL
    return len(body).to_bytes(4, "big") + body


def batch(sequence: int, values: list[bytes], *, timestamp: int = 1000) -> bytes:
    """A batch of producer 5."""
    builder = BatchBuilder(producer_id=5, producer_epoch=0, base_sequence=sequence)
    for value in values:
        builder.append(b"k", value, timestamp=timestamp)
    return builder.build()


@st.composite
def received(draw: st.DrawFn) -> bytes:
    """Up to four requests that follow each other, a few bytes of which may be changed."""
    data, sequence = b"", 0
    for number in range(draw(st.integers(1, 4))):
        values = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=3))
        records = bytearray(batch(sequence, values, timestamp=draw(st.integers(-2, 2100))))
        sequence += len(values)
        for position, change, is_sealed in draw(EDITS):
            if position < len(records):
                records[position] ^= change
                if is_sealed:
                    CRC.pack_into(records, CRC_POSITION, crc32c(records[ATTRIBUTES_POSITION:]))
        data += frame(number, bytes(records))
    changed = bytearray(data)
    for position, change, _ in draw(EDITS | st.just([])):
        if position < len(changed):
            changed[position] ^= change
    return bytes(changed[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 50]))])


def taken(
    data: bytes, engine_name: str = "compiled", **allowed: int
) -> tuple[int, list[int], bytes, bytes, list[int]]:
    """Number of frames, the state, the batches, the answers and the index entries."""
    state, starts = kernels.int64s(len(Taking)), kernels.int64s(10)
    entries = kernels.int64s(2 * ENTRY_WIDTH)
    for name, value in {**ALLOWED, **allowed}.items():
        state[Taking[name]] = value
    batches, answers = bytearray(allowed.get("BATCH_BYTES_MAX", 500)), bytearray(150)
    run = engine(engine_name, kernels.take_produces)
    count = run(
        data, 0, len(data), HEAD, TAIL, ANSWER, state, batches, answers, starts, entries, 10
    )
    sizes = state[Taking.BATCHES_SIZE], state[Taking.ANSWERS_SIZE]
    due = list(entries[: state[Taking.ENTRY_COUNT] * ENTRY_WIDTH])
    return count, list(state), bytes(batches[: sizes[0]]), bytes(answers[: sizes[1]]), due


@settings(max_examples=examples(300), deadline=None, database=None)
@given(received())
def test_requests_are_taken_alike_compiled_and_plain(data: bytes) -> None:
    """The same number of them, with the same batches and answers."""
    compiled, plain = (taken(data, name) for name in ENGINES)
    assert compiled == plain


def test_requests_are_taken_with_offsets_and_correlation_ids() -> None:
    """Each batch and each answer gets the next offset, and each answer the id of its request."""
    records = [batch(0, [b"a", b"b"]), batch(2, [b"c"])]
    data = frame(70, records[0]) + frame(80, records[1])
    count, state, batches, answers, _ = taken(data)
    first, second = answers[: len(ANSWER)], answers[len(ANSWER) :]
    assert count == 2
    assert state[Taking.POSITION] == len(data)
    assert state[Taking.NEXT_OFFSET] == 2**40 + 1
    assert batches == b"".join(
        offset.to_bytes(8, "big") + each[8:12] + bytes([0, 0, 0, 3]) + each[16:]
        for offset, each in zip((2**40 - 2, 2**40), records, strict=True)
    )
    assert [int.from_bytes(each[4:8], "big") for each in (first, second)] == [70, 80]
    assert [int.from_bytes(each[OFFSET_AT : OFFSET_AT + 8], "big") for each in (first, second)] == [
        2**40 - 2,
        2**40,
    ]


def test_an_index_entry_is_due_before_each_batch_behind_the_bytes_of_an_interval() -> None:
    """It has the batch's position and last offset, and the largest timestamp up to the batch."""
    times = (1000, 1200, 1100)
    batches = [batch(at, [b""], timestamp=time) for at, time in enumerate(times)]
    size, first = len(batches[0]), ALLOWED["NEXT_OFFSET"]
    data = b"".join(frame(at, each) for at, each in enumerate(batches))

    def due(interval: int, before: int) -> tuple[int, int, list[int]]:
        count, state, _, _, entries = taken(
            data, INDEX_INTERVAL_BYTES=interval, BYTES_BEFORE_ENTRY=before
        )
        return count, state[Taking.BYTES_BEFORE_ENTRY], entries

    second = [size, first + 1, 1200, first + 1]
    third = [2 * size, first + 2, 1200, first + 1]
    assert due(1000, 3 * size) == (3, 0, [])
    assert due(1000, size) == (3, 1000 - size, third)
    assert due(1000, size - 1) == (3, 1000 - 2 * size, second)
    assert due(1000, -1) == (3, 1000 - 3 * size, [0, first, 1000, first])
    assert due(0, size - 1) == (3, -size, [*second, *third])


def test_nothing_is_taken_for_which_an_index_entry_has_no_room() -> None:
    """There is room for two entries."""
    data = b"".join(frame(at, batch(at, [b""])) for at in range(4))
    count, _, _, _, entries = taken(data, INDEX_INTERVAL_BYTES=0, BYTES_BEFORE_ENTRY=-1)
    assert (count, len(entries)) == (2, 2 * ENTRY_WIDTH)


@given(st.binary(max_size=50))
def test_the_plain_checksum_is_crc32c(data: bytes) -> None:
    """The checksum of any bytes is the one of the package."""
    assert PLAIN["tailrace.kernels.checksums"].crc32c(memoryview(data), 0, len(data)) == crc32c(
        data
    )


@pytest.mark.parametrize("size", [*range(40), 1400, 1500, 1535, 1536, 1600, 3100, 16_000])
def test_the_checksum_of_a_batch_of_any_size_is_crc32c(size: int) -> None:
    """It is taken with that of the package, and not with another."""
    records = bytearray(batch(0, [Random(size).randbytes(size)]))
    room = {"FRAME_BYTES_MAX": 20_000, "BATCH_BYTES_MAX": 20_000}
    assert taken(frame(1, bytes(records)), "compiled", **room)[0] == 1
    records[CRC_POSITION + 3] ^= 1
    assert taken(frame(1, bytes(records)), "compiled", **room)[0] == 0
