"""The kernels of compaction, plain and compiled, against a dictionary and the naive encoder."""

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.kernels import BATCH_ROW_SIZE, GROUP_SIZE, BatchRow, MapState, RecordFault
from tests.examples import examples
from tests.kernels.plain import ENGINES, both_engines, engine
from tests.kernels.strategies import INT64, SMALL, damaged_payloads, naive_records
from tests.naive import NaiveRecord, wrapped, write_records

BASE = 1000
CANARY = 0xA5

KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"ab", b"abcd", b"abcde", b"k" * 254])
ROWS = st.lists(
    st.tuples(KEYS | st.binary(max_size=300), st.none() | st.binary(max_size=5)), max_size=12
)


class Map:
    """The buffers of a map, for kernels called by hand."""

    def __init__(
        self,
        slot_count: int = 64,
        arena_size: int = 1 << 14,
        *,
        secret: tuple[int, int] = (123_456_789, 987_654_321),
    ) -> None:
        self.slots = kernels.int64s(2 * slot_count)
        self.arena = bytearray(arena_size)
        self.state = kernels.int64s(kernels.STATE_SIZE)
        self.group = kernels.int64s(GROUP_SIZE)
        self.state[MapState.KEYS_MAX] = slot_count - 1
        self.state[MapState.HASH_SECRET], self.state[MapState.HASH_SECRET + 1] = secret

    def content(self) -> tuple[bytes, bytes, bytes]:
        """Return all buffers that a call may have changed."""
        return self.slots.tobytes(), bytes(self.arena), self.state.tobytes()


def rows(
    *payloads: tuple[bytes, int], base: int = BASE, latest: int = 0, keeps: int = 1
) -> "array[int]":
    """The rows of batches whose payloads stand one behind the other, with their counts."""
    made, start = array("q"), 0
    for payload, count in payloads:
        fields = (start, start + len(payload), count, base, latest, keeps)
        made.extend((*fields, *(0,) * (BATCH_ROW_SIZE - len(fields))))
        start += len(payload)
    return made


def records_with(rows: list[tuple[bytes | None, bytes | None]]) -> list[NaiveRecord]:
    """Records with these keys and values, at consecutive offsets."""
    return [NaiveRecord(place, place, key, value) for place, (key, value) in enumerate(rows)]


@both_engines
@settings(max_examples=examples(150))
@given(ROWS, ROWS, st.integers(-1, 14), st.integers(0, 1))
def test_records_stay_as_a_dictionary_of_keys_says(
    engine_name: str,
    mapped: list[tuple[bytes | None, bytes | None]],
    asked: list[tuple[bytes | None, bytes | None]],
    latest: int,
    keeps_tombstones: int,
) -> None:
    """The newest offset of every key decides, exactly and for keys of every size."""
    found = Map()
    payload = write_records(records_with(mapped))
    put = engine(engine_name, kernels.put_keys)
    status = put(
        payload, BASE + 1, rows((payload, len(mapped))),
        found.slots, found.arena, found.state, found.group,
    )  # fmt: skip
    assert status == 1
    newest = {
        key: BASE + place for place, (key, _) in enumerate(mapped) if key is not None and place
    }
    assert found.state[MapState.KEYS] == len(newest)
    payload = write_records(records_with(asked))
    keeps = bytearray(len(asked))
    batches = rows((payload, len(asked)), latest=BASE + latest, keeps=keeps_tombstones)
    choose = engine(engine_name, kernels.choose_records)
    status = choose(payload, batches, found.slots, found.arena, found.state, found.group, keeps)
    assert status == 0
    expected = [
        place > latest
        or (
            key is not None
            and (value is not None or keeps_tombstones)
            and BASE + place >= newest.get(key, -1)
        )
        for place, (key, value) in enumerate(asked)
    ]
    assert [stays == 1 for stays in keeps] == expected
    staying = [place for place, stays in enumerate(expected) if stays]
    assert batches[BatchRow.KEPT] == len(staying)
    assert batches[BatchRow.UNKEYED] == sum(
        key is None for place, (key, _) in enumerate(asked) if place <= latest
    )
    assert batches[BatchRow.TOMBSTONES] == sum(asked[place][1] is None for place in staying)
    assert batches[BatchRow.TIMESTAMP_DELTA_MAX] == max(staying, default=0)
    assert batches[BatchRow.TIMESTAMP_DELTA_FIRST] == min(staying, default=0)
    assert batches[BatchRow.SIZE] == len(
        write_records([records_with(asked)[place] for place in staying])
    )


@settings(max_examples=examples(200))
@given(
    damaged_payloads(), INT64 | SMALL, INT64 | SMALL, st.sampled_from([1, 3, 64]),
    st.tuples(INT64, INT64),
)  # fmt: skip
def test_both_engines_agree_on_any_bytes(
    payload: tuple[bytes, int],
    base_offset: int,
    bound: int,
    slot_count: int,
    secret: tuple[int, int],
) -> None:
    """Sound or not: same status, same map, same choice, and nothing raises."""
    data, count = payload
    results = []
    for name in ENGINES:
        put, choose = engine(name, kernels.put_keys), engine(name, kernels.choose_records)
        found = Map(slot_count + 1, 200, secret=secret)
        batches = rows((data, count), base=base_offset, latest=bound, keeps=0)
        status = put(data, bound, batches, found.slots, found.arena, found.state, found.group)
        keeps = bytearray(10)
        chosen = choose(data, batches, found.slots, found.arena, found.state, found.group, keeps)
        results.append((status, found.content(), chosen, bytes(keeps), batches.tobytes()))
    assert results[0] == results[1]


@settings(max_examples=examples(200))
@given(
    damaged_payloads(),
    st.lists(st.integers(0, 1), min_size=6, max_size=6),
    st.just(0) | INT64 | SMALL,
    st.integers(0, 400),
)
def test_both_engines_copy_alike_and_stay_inside(
    payload: tuple[bytes, int], keeps: list[int], shift: int, room: int
) -> None:
    """Status and bytes are the same, and nothing is written behind the room that was given."""
    data, count = payload
    results = []
    for name in ENGINES:
        copy = engine(name, kernels.copy_records)
        memory = bytearray([CANARY]) * (room + 40)
        output = memoryview(memory)[:room]
        batches = rows((data, count))
        batches[BatchRow.IS_COPIED], batches[BatchRow.TIMESTAMP_SHIFT] = 1, shift
        status = copy(data, batches, bytearray(keeps), 3, output)
        results.append((status, bytes(memory), batches.tobytes()))
        assert memory[room:] == bytearray([CANARY]) * 40
    assert results[0] == results[1]


@both_engines
@settings(max_examples=examples(200))
@given(naive_records(), st.lists(st.integers(0, 1), min_size=5, max_size=5), INT64 | SMALL)
def test_copied_records_have_the_timestamps_of_before(
    engine_name: str, records: list[NaiveRecord], keeps: list[int], shift: int
) -> None:
    """Each record that stays is as the naive encoder writes it, with the shift in its delta."""
    payload = write_records(records)
    expected = write_records(
        [
            record._replace(timestamp_delta=wrapped(record.timestamp_delta + shift))
            for record, stays in zip(records, keeps, strict=False)
            if stays
        ]
    )
    output = bytearray(len(payload) + kernels.RECORD_GROWTH_MAX * len(records))
    batches = rows((payload, len(records)))
    batches[BatchRow.IS_COPIED], batches[BatchRow.TIMESTAMP_SHIFT] = 1, shift
    copy = engine(engine_name, kernels.copy_records)
    written = copy(payload, batches, bytearray(keeps), 0, output)
    assert written == len(expected)
    assert output[:written] == expected


def test_a_copy_without_room_is_refused() -> None:
    """One byte too few is told, whether the records are copied or written anew."""
    payload = write_records([NaiveRecord(0, 0, b"k", b"v")])
    for shift, size in ((0, len(payload)), (1 << 40, len(payload) + 5)):
        for room in (size - 1, size):
            batches = rows((payload, 1))
            batches[BatchRow.IS_COPIED], batches[BatchRow.TIMESTAMP_SHIFT] = 1, shift
            status = kernels.copy_records(payload, batches, bytearray(b"\x01"), 0, bytearray(room))
            assert status == (size if room == size else -RecordFault.NO_ROOM)


def test_a_map_that_is_full_names_the_first_record_without_room() -> None:
    """The records before it are in the map, and the named record is not."""
    found = Map(slot_count=3)
    payload = write_records(records_with([(b"a", b""), (b"b", b""), (b"a", b""), (b"c", b"")]))
    status = kernels.put_keys(
        payload, 0, rows((payload, 4)), found.slots, found.arena, found.state, found.group
    )
    assert status == 0
    assert found.state[MapState.RECORD] == 3
    assert found.state[MapState.KEYS] == 2
    assert found.state[MapState.LAST_OFFSET] == BASE + 2


def test_an_arena_that_is_full_fills_the_map() -> None:
    """Bytes for keys run out as slots do."""
    found = Map(slot_count=64, arena_size=20)
    payload = write_records(records_with([(b"k" * 11, b""), (b"j" * 8, b"")]))
    status = kernels.put_keys(
        payload, 0, rows((payload, 2)), found.slots, found.arena, found.state, found.group
    )
    assert status == 0
    assert found.state[MapState.RECORD] == 1


@pytest.mark.parametrize(("size", "arena"), [(20, 20), (255, 259)])
def test_a_key_that_no_empty_arena_holds_is_passed_over(size: int, arena: int) -> None:
    """It is counted, and the next key has its place."""
    found = Map(slot_count=64, arena_size=arena)
    payload = write_records(records_with([(b"k" * size, b""), (b"j", b"")]))
    status = kernels.put_keys(
        payload, 0, rows((payload, 2)), found.slots, found.arena, found.state, found.group
    )
    assert status == 1
    assert found.state[MapState.UNMAPPED] == 1
    assert found.state[MapState.KEYS] == 1


@both_engines
@settings(max_examples=examples(30))
@given(st.lists(st.lists(st.integers(0, 400), max_size=300), max_size=4))
def test_many_batches_in_one_call_are_as_many_calls(
    engine_name: str, keys: list[list[int]]
) -> None:
    """For batches of any size the newest record of each key stays, and batches stay separate."""
    batches = [records_with([(b"%d" % key, b"v") for key in row]) for row in keys]
    payloads = [write_records(batch) for batch in batches]
    data, count = b"".join(payloads), sum(map(len, keys))
    found, keeps = Map(slot_count=500), bytearray(count)
    made = rows(*zip(payloads, map(len, keys), strict=True), latest=2 * BASE)
    for row in range(len(keys)):
        made[BATCH_ROW_SIZE * row + BatchRow.BASE_OFFSET] = BASE + 300 * row
        made[BATCH_ROW_SIZE * row + BatchRow.IS_COPIED] = row != 1
    newest = {
        key: (row, place) for row, all_of in enumerate(keys) for place, key in enumerate(all_of)
    }
    put, choose, copy = (
        engine(engine_name, each)
        for each in (kernels.put_keys, kernels.choose_records, kernels.copy_records)
    )
    buffers = found.slots, found.arena, found.state, found.group
    assert put(data, 0, made, *buffers) == 1
    assert choose(data, made, *buffers, keeps) == 0
    staying = [
        [batches[row][place] for place, key in enumerate(all_of) if newest[key] == (row, place)]
        for row, all_of in enumerate(keys)
    ]
    output = bytearray(len(data) + 5 * len(keys))
    written = copy(data, made, keeps, 5, output)
    copied = [write_records(each) for row, each in enumerate(staying) if row != 1]
    assert output[:written] == b"".join(bytes(5) + each for each in copied)
    for row, each in enumerate(staying):
        fields = made[BATCH_ROW_SIZE * row : BATCH_ROW_SIZE * (row + 1)]
        assert fields[BatchRow.KEPT] == len(each)
        if row != 1:
            assert output[fields[BatchRow.START] : fields[BatchRow.END]] == write_records(each)
