"""Spark's reading of directories while a broker exchanges or deletes the files under it."""

from collections.abc import Callable

import pytest

from tailrace.errors import FatalError
from tailrace.model import IsolationLevel
from tailrace.reading.listing import list_segment_files
from tailrace.reading.located import split_batches
from tailrace.reading.opening import NamedDirectory
from tailrace.records.builder import records_of
from tailrace.spark.directories import DirectoryStore
from tailrace.spark.losses import LOST
from tailrace.spark.planning import OffsetRange
from tailrace.spark.stores import measure_ranges
from tailrace.testing import ChangingFiles
from tests.unit.storage.beside import (
    Change,
    Rows,
    check_rows,
    cleaning,
    cleaning_transactions,
    deletion,
    every_moment,
)
from tests.unit.storage.builders import FOLDER, PARTITION


def store(
    files: ChangingFiles, monkeypatch: pytest.MonkeyPatch, **options: object
) -> DirectoryStore:
    """A place on a disk that changes."""
    directory = NamedDirectory(files, "data", "data")
    monkeypatch.setattr("tailrace.spark.directories.open_directory", lambda _: directory)
    return DirectoryStore("data", **options)  # type: ignore[arg-type]


def plan(at: DirectoryStore) -> OffsetRange:
    """Plan the whole log as a driver does."""
    extent = at.extents([PARTITION])[PARTITION]
    [wanted] = measure_ranges(at, {PARTITION: (extent.start, extent.end)})
    return wanted


def rows_of(at: DirectoryStore, wanted: OffsetRange, *, fails: bool) -> Rows:
    """Read a range as a task does."""
    found: Rows = []
    for located in at.pieces(wanted, fails_on_data_loss=fails):
        for batch, _, _ in split_batches(located, wanted):
            if not batch.is_control:
                found += [(record.offset, record.value) for record in records_of(batch)]
    return found


@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize("change", [cleaning, cleaning_transactions, deletion])
def test_what_is_left_is_read_where_loss_is_no_failure(
    change: Callable[[], Change], monkeypatch: pytest.MonkeyPatch, *, skips: bool
) -> None:
    """Planned and read with the change in between; nothing sound is left out as damaged."""
    known = change()

    def once(files: ChangingFiles) -> None:
        at = store(files, monkeypatch, skips_damage=skips)
        rows = rows_of(at, plan(at), fails=False)
        if known.start:
            assert set(rows) >= set(known.after)
            assert set(rows) <= set(known.before)
        else:
            check_rows(known, rows, None)
        assert not at.skipped

    for _ in every_moment(known, once):
        pass


@pytest.mark.parametrize("change", [cleaning, deletion])
def test_a_task_reads_all_that_was_planned_or_says_what_has_become_of_it(
    change: Callable[[], Change], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With failOnDataLoss the error is Spark's for lost data, and never one of damage."""
    known = change()
    lost = []

    def once(files: ChangingFiles) -> None:
        at = store(files, monkeypatch)
        wanted = plan(at)
        is_planned_before = not files.has_changed
        try:
            rows = rows_of(at, wanted, fails=True)
        except FatalError as error:
            if LOST not in str(error):
                raise
            lost.append(str(error))
        else:
            if is_planned_before:
                assert rows == known.before
            assert set(rows) <= set(known.before)
            assert set(rows) >= set(known.after)

    for _ in every_moment(known, once):
        pass
    assert lost


@pytest.mark.parametrize("change", [cleaning, cleaning_transactions])
def test_a_range_that_ends_inside_of_a_segment_is_whole_or_an_error(
    change: Callable[[], Change], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task with a reader of its own, which opens files after the compaction of some of them."""
    known = change()
    driver = store(ChangingFiles(known.states, at=10**9, to=0), monkeypatch)
    for segment in list_segment_files(known.states[0], FOLDER)[0][1:]:
        limit = segment.base_offset + 1
        [wanted] = measure_ranges(driver, {PARTITION: (0, limit)})
        planned = [row for row in known.before if row[0] < limit]

        def once(
            files: ChangingFiles, wanted: OffsetRange = wanted, planned: Rows = planned
        ) -> None:
            try:
                rows = rows_of(store(files, monkeypatch), wanted, fails=True)
            except FatalError as error:
                if LOST not in str(error):
                    raise
            else:
                assert rows == planned

        for _ in every_moment(known, once):
            pass


def test_no_aborted_record_is_read_beside_the_cleaner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read_committed task gets no aborted record at any moment of an exchange."""
    change = cleaning_transactions()

    def once(files: ChangingFiles) -> None:
        at = store(files, monkeypatch, isolation=IsolationLevel.READ_COMMITTED)
        rows = rows_of(at, plan(at), fails=False)
        offsets = {offset for offset, _ in rows}
        assert not offsets & change.aborted
        assert offsets >= {offset for offset, _ in change.after} - change.aborted

    for _ in every_moment(change, once):
        pass


def test_a_time_is_found_beside_retention_and_the_cleaner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is the start of what there is, whatever is deleted meanwhile."""
    for change in (cleaning(), deletion()):

        def once(files: ChangingFiles) -> None:
            found = store(files, monkeypatch).offset_at(PARTITION, 0)
            assert found in {offset for offset, _ in change.before}  # noqa: B023 - called at once

        for _ in every_moment(change, once):
            pass
