"""`cat` while a broker exchanges or deletes the files under it, between any two of its calls."""

import json
from collections.abc import Callable

import pytest

from tailrace.errors import OffsetsDeletedError
from tailrace.kernels.showing import Form
from tailrace.model import IsolationLevel
from tailrace.offline.cat import Choice, show_records
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import ChangingFiles, MemoryFiles
from tests.unit.storage.beside import (
    Change,
    Rows,
    check_rows,
    cleaning,
    cleaning_transactions,
    deletion,
    every_moment,
)
from tests.unit.storage.builders import FOLDER, PARTITION, filled


def shown(files: ChangingFiles, choice: Choice) -> tuple[Rows, OffsetsDeletedError | None]:
    """Offsets and values of what is shown, and what ended it early."""
    rows: Rows = []
    try:
        for page in show_records(files, {PARTITION: FOLDER}, choice, form=Form.JSON):
            for line in page.splitlines():
                record = json.loads(line)
                if "control" not in record:
                    rows.append((record["offset"], record["value"].encode()))
    except OffsetsDeletedError as error:
        return rows, error
    return rows, None


@pytest.mark.parametrize("change", [cleaning, deletion])
def test_cat_beside_a_broker_shows_what_is_left(change: Callable[[], Change]) -> None:
    """A sound log has no damage, and deleted records are reported as deleted."""
    known = change()

    def once(files: ChangingFiles) -> None:
        rows, error = shown(files, Choice())
        check_rows(known, rows, error)

    for _ in every_moment(known, once):
        pass


@pytest.mark.parametrize("change", [cleaning, deletion])
def test_cat_from_a_time_shows_what_is_left(change: Callable[[], Change]) -> None:
    """The time indexes are exchanged with their segments, and all records have the same age."""
    known = change()

    def once(files: ChangingFiles) -> None:
        rows, error = shown(files, Choice(from_time_ms=0))
        check_rows(known, rows, error)

    for _ in every_moment(known, once):
        pass


def test_cat_shows_no_aborted_record_beside_the_cleaner() -> None:
    """The transaction index of a segment in exchange is found under the name that it has."""
    change = cleaning_transactions()
    assert change.aborted

    def once(files: ChangingFiles) -> None:
        rows, error = shown(files, Choice(isolation=IsolationLevel.READ_COMMITTED))
        assert error is None
        offsets = {offset for offset, _ in rows}
        assert not offsets & change.aborted
        assert offsets >= {offset for offset, _ in change.after} - change.aborted

    for _ in every_moment(change, once):
        pass


def test_cat_beside_a_malformed_checkpoint_begins_where_the_log_does() -> None:
    """The log's own leader epochs tell, as they do for a broker."""
    files = MemoryFiles()
    log = filled(files, 5)
    raise_log_start(log, 3)
    log.epochs.save()
    files.open("data/log-start-offset-checkpoint", create=True)
    files.overwrite("data/log-start-offset-checkpoint", b"0\n7\n")
    pages = show_records(files, {PARTITION: FOLDER}, Choice(), form=Form.JSON)
    lines = b"".join(pages).splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [3, 4]
