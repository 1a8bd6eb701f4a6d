"""A program's log while a broker exchanges or deletes the files under it, between any two calls."""

from collections.abc import Callable

import pytest

from tailrace.errors import OffsetsDeletedError
from tailrace.testing import ChangingFiles
from tests.unit.reading.logs import FORMATS, Rows, a_log, offsets_in, rows_of
from tests.unit.storage.beside import (
    Change,
    check_rows,
    cleaning,
    cleaning_transactions,
    deletion,
    every_moment,
)


@pytest.mark.parametrize("on_damage", ["raise", "skip"])
@pytest.mark.parametrize("change", [cleaning, cleaning_transactions, deletion])
def test_what_is_left_is_read_beside_a_broker(change: Callable[[], Change], on_damage: str) -> None:
    """Never damage, never a record twice or out of order; what is deleted is told as that."""
    known = change()

    def once(files: ChangingFiles) -> None:
        log = a_log(files, on_damage=on_damage)
        rows: Rows = []
        error = None
        try:
            rows.extend((record.offset, record.value) for record in log.records())
        except OffsetsDeletedError as found:
            error = found
        check_rows(known, rows, error)
        assert not log.skipped

    for _ in every_moment(known, once):
        pass


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_gives_the_same_beside_the_cleaner(form: str) -> None:
    """Batches of transactions aside, the offsets are those that are there before or after."""
    known = cleaning()
    before = {offset for offset, _ in known.before}

    def once(files: ChangingFiles) -> None:
        found = list(offsets_in(form, a_log(files)))
        assert found == sorted(set(found))
        assert form == "batches" or set(found) <= before
        assert form == "batches" or set(found) >= {offset for offset, _ in known.after}

    for _ in every_moment(known, once):
        pass


def test_no_aborted_record_is_given_beside_the_cleaner() -> None:
    """A read_committed reader gets no aborted record at any moment of an exchange."""
    known = cleaning_transactions()

    def once(files: ChangingFiles) -> None:
        offsets = {offset for offset, _ in rows_of(a_log(files, isolation="read_committed"))}
        assert not offsets & known.aborted
        assert offsets >= {offset for offset, _ in known.after} - known.aborted

    for _ in every_moment(known, once):
        pass


@pytest.mark.parametrize("change", [cleaning, deletion])
def test_a_range_of_time_is_read_beside_a_broker(change: Callable[[], Change]) -> None:
    """The time indexes are exchanged with their segments, and all records have the same age."""
    known = change()

    def once(files: ChangingFiles) -> None:
        rows: Rows = []
        error = None
        log = a_log(files)
        start = log.offset_at(0)
        assert start in {offset for offset, _ in known.before}
        try:
            rows.extend((each.offset, each.value) for each in log.records(start_time=0))
        except OffsetsDeletedError as found:
            error = found
        if error is None:
            assert set(rows) >= set(known.after)
        assert set(rows) <= set(known.before)

    for _ in every_moment(known, once):
        pass
