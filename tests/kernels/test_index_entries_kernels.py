"""The kernels of index entries find the same as a look at one entry after the other."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.kernels import RunFact
from tailrace.kernels.index_entries import (
    OffsetState,
    TimeState,
    check_offset_entries,
    check_time_entries,
)
from tailrace.model import NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerEpoch
from tailrace.offline.findings import Finding
from tailrace.offline.indexes import (
    BatchTimes,
    IndexEntries,
    OffsetIndexCheck,
    TimeIndexCheck,
    offset_entries_rise,
    time_entries_rise,
)
from tailrace.records.layout import HEADER, HEADER_SIZE, LOG_APPEND_TIME_FLAG, LOG_OVERHEAD
from tailrace.records.runs import BatchRun, Field, Header, last_offset
from tailrace.storage.index.offset import ENTRY as OFFSET_ENTRY
from tailrace.storage.index.time import ENTRY as TIME_ENTRY
from tailrace.testing import MemoryFiles
from tests.examples import examples
from tests.kernels.plain import ENGINES, engine

Check = TypeVar("Check", OffsetIndexCheck, TimeIndexCheck)
Batches = list[tuple[int, int, int, bool]]
"""Offsets that are missing before the batch, last offset delta, largest timestamp, CreateTime."""
Changes = list[tuple[int, int, int]]
"""Number of an entry, number of a field, and what is added to it."""

BASE = 1000
many = settings(max_examples=examples(200), deadline=None, database=None)
BATCHES: st.SearchStrategy[Batches] = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(-1, 8), st.booleans()),
    min_size=1,
    max_size=8,
)
CHANGES: st.SearchStrategy[Changes] = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 1), st.sampled_from([-100, -61, -1, 1, 61, 100])),
    max_size=2,
)


def headers_of(batches: Batches) -> list[Header]:
    """Batches of a header only, one behind the other."""
    headers: list[Header] = []
    offset = BASE
    for missing, delta, largest, is_create_time in batches:
        attributes = 0 if is_create_time else LOG_APPEND_TIME_FLAG
        length = HEADER_SIZE - LOG_OVERHEAD
        offset += missing
        headers.append(
            (
                Offset(offset), length, LeaderEpoch(0), 2, 0, attributes, delta, 0, largest,
                NO_PRODUCER_ID, ProducerEpoch(-1), -1, 0,
            )
        )  # fmt: skip
        offset += delta + 1
    return headers


def offset_entries(headers: list[Header], appended: int) -> list[tuple[int, int]]:
    """An entry for each append of some batches."""
    return [
        (last_offset(headers[min(first + appended, len(headers)) - 1]) - BASE, first * HEADER_SIZE)
        for first in range(0, len(headers), appended)
    ]


def time_entries(headers: list[Header]) -> list[tuple[int, int]]:
    """An entry for each batch that is younger than all before it."""
    entries: list[tuple[int, int]] = []
    newest = -1
    for header in headers:
        if header[Field.MAX_TIMESTAMP] > newest:
            newest = header[Field.MAX_TIMESTAMP]
            entries.append((newest, last_offset(header) - BASE))
    return entries


def changed(entries: list[tuple[int, int]], changes: Changes) -> list[tuple[int, int]]:
    """Entries with some fields changed."""
    fields = [list(each) for each in entries]
    for number, field, added in changes:
        if fields:
            fields[number % len(fields)][field] += added
    return [(first, second) for first, second in fields]


def run_of(headers: list[Header]) -> BatchRun:
    """These batches as a run."""
    facts = kernels.int64s(len(RunFact))
    facts[RunFact.BATCHES], facts[RunFact.LAST_OFFSET] = len(headers), last_offset(headers[-1])
    return BatchRun(memoryview(b"".join(HEADER.pack(*each) for each in headers)), facts)


def both_ways(
    make: Callable[[], Check],
    headers: list[Header],
    cut: int,
    *,
    by_run: Callable[[Check, int, BatchRun], Iterator[Finding]],
    by_batch: Callable[[Check, int, Header], Iterator[Finding]],
    finish: Callable[[Check], Iterator[Finding]],
) -> tuple[list[Finding], list[Finding]]:
    """The findings of two runs, the second of which begins with batch `cut`, and of each batch."""
    in_runs, one_by_one = make(), make()
    found: tuple[list[Finding], list[Finding]] = ([], [])
    for first, part in ((0, headers[:cut]), (cut, headers[cut:])):
        if part:
            found[0].extend(by_run(in_runs, first * HEADER_SIZE, run_of(part)))
    for number, header in enumerate(headers):
        found[1].extend(by_batch(one_by_one, number * HEADER_SIZE, header))
    found[0].extend(finish(in_runs))
    found[1].extend(finish(one_by_one))
    return found


@many
@given(BATCHES, st.integers(1, 3), CHANGES, st.integers(0, 8))
@example([(0, 0, 5, True)] * 4, 2, [], 1)
def test_the_offset_index_is_judged_in_runs_as_batch_by_batch(
    batches: Batches, appended: int, changes: Changes, cut: int
) -> None:
    """Sound or not, the findings are the same, and a sound index has none."""
    headers = headers_of(batches)
    entries = changed(offset_entries(headers, appended), changes)
    files = MemoryFiles()
    file = files.open("index", create=True)
    file.write(0, b"".join(OFFSET_ENTRY.pack(*each) for each in entries))

    def make() -> OffsetIndexCheck:
        read = IndexEntries(file, OFFSET_ENTRY, rises=offset_entries_rise)
        return OffsetIndexCheck("index", BASE, read)

    in_runs, one_by_one = both_ways(
        make,
        headers,
        cut,
        by_run=lambda check, position, run: check.see_run(position, run),
        by_batch=lambda check, position, header: check.see(position, last_offset(header)),
        finish=lambda check: check.finish(len(headers) * HEADER_SIZE, is_active=False),
    )
    assert in_runs == one_by_one
    assert changes or not in_runs


@many
@given(BATCHES, CHANGES, st.integers(0, 8))
def test_the_time_index_is_judged_in_runs_as_batch_by_batch(
    batches: Batches, changes: Changes, cut: int
) -> None:
    """Sound or not, the findings are the same, and a sound index has none."""
    headers = headers_of(batches)
    entries = changed(time_entries(headers), changes)
    files = MemoryFiles()
    file = files.open("index", create=True)
    file.write(0, b"".join(TIME_ENTRY.pack(*each) for each in entries))

    def make() -> TimeIndexCheck:
        read = IndexEntries(file, TIME_ENTRY, rises=time_entries_rise)
        return TimeIndexCheck("index", BASE, read)

    def times(header: Header) -> BatchTimes:
        is_create_time = not header[Field.ATTRIBUTES] & LOG_APPEND_TIME_FLAG
        return BatchTimes(
            header[Field.BASE_OFFSET],
            last_offset(header),
            header[Field.MAX_TIMESTAMP],
            is_create_time,
        )

    in_runs, one_by_one = both_ways(
        make,
        headers,
        cut,
        by_run=lambda check, _, run: check.see_run(run),
        by_batch=lambda check, _, header: check.see(times(header)),
        finish=lambda check: check.finish(is_active=False),
    )
    assert in_runs == one_by_one
    assert changes or not in_runs


@many
@given(
    BATCHES,
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=3),
    st.binary(max_size=40),
    st.lists(st.integers(-2, 70), min_size=8, max_size=8),
    st.integers(-2, 70) | st.sampled_from([-(2**63), -(2**62), 2**62, 2**63 - 1]),
)
@example([(0, 0, 5, True)], [], b"", [0, 0, 0, 1, -1, -1, -1, -1], -(2**63))
def test_any_bytes_get_the_same_answer_compiled_and_plain(
    batches: Batches, flips: list[tuple[int, int]], entries: bytes, known: list[int], entry: int
) -> None:
    """The answer and the state behind it are equal, and a refusal leaves the state as it was."""
    data = bytearray(run_of(headers_of(batches)).view)
    for place, byte in flips:
        data[place % len(data)] = byte
    for check, entry_place, places in (
        (check_offset_entries, OffsetState.ENTRY, len(OffsetState)),
        (check_time_entries, TimeState.ENTRY, len(TimeState)),
    ):
        before = known[:places]
        before[entry_place] = entry
        answers = []
        for name in ENGINES:
            state = kernels.int64s(places)
            for place, value in enumerate(before):
                state[place] = value
            answer = engine(name, check)(data, len(batches), entries, state)
            assert answer == 1 or list(state) == before
            answers.append((answer, list(state)))
        assert answers[0] == answers[1]
