"""Any log, cleaned in any number of rounds, is what a naive reading of the rules leaves of it."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model import Codec
from tailrace.records.builder import Record
from tests.examples import examples
from tests.unit.records.batches import record_at
from tests.unit.storage.cleaner.shelves import LATER, NOW, Shelf, read_back

KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"d", b"long" * 20, b"k" * 400])
VALUES = st.none() | st.sampled_from([b"", b"value"]) | st.binary(max_size=30)
RECORDS = st.lists(
    st.tuples(st.none() | KEYS, VALUES) | st.tuples(KEYS, VALUES), min_size=1, max_size=6
)
PRODUCERS = st.sampled_from([1, 2])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), RECORDS, st.sampled_from(Codec)),
        st.tuples(st.just("append"), RECORDS, st.sampled_from(Codec)),
        st.tuples(st.just("produce"), RECORDS, PRODUCERS),
        st.tuples(st.just("transact"), RECORDS, PRODUCERS),
        st.tuples(st.just("abort"), st.none(), PRODUCERS),
        st.tuples(st.just("commit"), st.none(), PRODUCERS),
        st.tuples(st.just("gap"), st.none(), st.integers(1, 50)),
        st.tuples(st.just("roll"), st.none(), st.just(0)),
    ),
    min_size=3,
    max_size=25,
)
MAP_BYTES = st.sampled_from([64, 128, 300, 1 << 16])


@dataclass(slots=True)
class Model:
    """A log, and what a list of its records says that has to stay."""

    shelf: Shelf = field(default_factory=lambda: Shelf(segment_bytes=2000))
    records: list[Record] = field(default_factory=list)
    """Every record of a producer, by offset."""
    aborted: set[int] = field(default_factory=set)
    """Offsets of records of aborted transactions."""
    open: dict[int, list[int]] = field(default_factory=dict)
    """Offsets of the records of open transactions."""

    def do(self, name: str, rows: list[tuple[bytes | None, bytes | None]], number: int) -> None:
        """One step of the script."""
        shelf = self.shelf
        match name:
            case "append":
                self._append(rows, codec=Codec(number))
            case "produce":
                # A producer with an open transaction writes nothing outside of it.
                if number not in self.open:
                    self._append(rows, producer_id=number)
            case "transact":
                first = shelf.end
                self._append(rows, producer_id=number, is_transactional=True)
                self.open.setdefault(number, []).extend(range(first, shelf.end))
            case "abort":
                self.aborted |= set(self.open.pop(number, []))
                shelf.abort(number)
            case "commit":
                self.open.pop(number, None)
                shelf.commit(number)
            case "gap":
                shelf.end += number
            case "roll":
                self.roll()

    def roll(self) -> None:
        """Closes the active segment if it has anything."""
        if self.shelf.segments[-1].size:
            self.shelf.roll()

    def _append(self, rows: list[tuple[bytes | None, bytes | None]], **options: object) -> None:
        first = self.shelf.end
        self.shelf.append(*rows, **options)  # type: ignore[arg-type]
        self.records += [
            record_at(first + place, NOW + place, key, value)
            for place, (key, value) in enumerate(rows)
        ]

    def surviving(self, *, map_bytes: int) -> list[Record]:
        """Return the records that must be left after all rounds, if no tombstone was due."""
        alive = [record for record in self.records if record.offset not in self.aborted]
        newest = {record.key: record.offset for record in alive}
        return [
            record
            for record in alive
            if record.key is not None
            and (newest[record.key] == record.offset or _is_too_large(record.key, map_bytes))
        ]


def _is_too_large(key: bytes, map_bytes: int) -> bool:
    """Whether no map of this size can hold the key; half of it is for keys."""
    arena = map_bytes - map_bytes // 2 // 16 * 16
    return len(key) + (1 if len(key) < 255 else 5) > arena


def cleaned_in_rounds(shelf: Shelf, *, map_bytes: int, now_ms: int = NOW, dirty: int = 0) -> None:
    """Round after round until the log is clean; each makes headway."""
    while dirty < shelf.segments[-1].base_offset:
        end = shelf.clean(dirty, map_bytes=map_bytes, now_ms=now_ms).end
        assert end > dirty
        dirty = end


def played(script: list[tuple[str, list[tuple[bytes | None, bytes | None]], int]]) -> Model:
    """A log after a script; transactions are committed, and everything is cleanable."""
    model = Model()
    for name, rows, number in script:
        model.do(name, rows, number)
    for producer_id in list(model.open):
        model.do("commit", [], producer_id)
    model.roll()
    return model


@settings(max_examples=examples(150))
@given(OPERATIONS, MAP_BYTES)
def test_what_stays_is_what_a_naive_reading_says(
    script: list[tuple[str, list[tuple[bytes | None, bytes | None]], int]], map_bytes: int
) -> None:
    """Records, offsets and timestamps; a reader of the files agrees, and every batch is sound."""
    model = played(script)
    shelf = model.shelf
    cleaned_in_rounds(shelf, map_bytes=map_bytes)
    expected = model.surviving(map_bytes=map_bytes)
    assert shelf.records() == expected
    assert read_back(shelf.files) == expected
    offsets = [(batch.base_offset, batch.last_offset) for batch in shelf.batches()]
    flat = [offset for pair in offsets for offset in pair]
    assert flat == sorted(flat)
    for segment in shelf.segments:
        for _, batch in segment.log.batches():
            _, found = next(segment.batches(batch.last_offset))
            assert found.base_offset == batch.base_offset


@settings(max_examples=examples(80))
@given(OPERATIONS, MAP_BYTES)
def test_a_second_cleaning_finds_nothing_new(
    script: list[tuple[str, list[tuple[bytes | None, bytes | None]], int]], map_bytes: int
) -> None:
    """Once horizons are set, cleaning again before they pass leaves every record as it is."""
    model = played(script)
    shelf = model.shelf
    for _ in range(2):
        cleaned_in_rounds(shelf, map_bytes=map_bytes)
    before = shelf.records()
    horizons = {batch.base_offset: batch.delete_horizon_or_none for batch in shelf.batches()}
    cleaned_in_rounds(shelf, map_bytes=map_bytes, now_ms=LATER - 1)
    assert shelf.records() == before
    for batch in shelf.batches():
        if horizons[batch.base_offset] is not None:
            assert batch.delete_horizon_or_none in (horizons[batch.base_offset], None)


@settings(max_examples=examples(80))
@given(OPERATIONS, MAP_BYTES)
def test_tombstones_are_gone_once_their_horizon_has_passed(
    script: list[tuple[str, list[tuple[bytes | None, bytes | None]], int]], map_bytes: int
) -> None:
    """A deleted key leaves nothing, unless its older values could not be given up either."""
    model = played(script)
    shelf = model.shelf
    cleaned_in_rounds(shelf, map_bytes=map_bytes)
    cleaned_in_rounds(shelf, map_bytes=map_bytes, now_ms=LATER)
    expected = model.surviving(map_bytes=map_bytes)
    assert shelf.records() == [
        record
        for record in expected
        if record.value is not None or _is_too_large(record.key or b"", map_bytes)
    ]
