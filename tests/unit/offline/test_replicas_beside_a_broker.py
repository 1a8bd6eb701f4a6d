"""`compare_logs` while a broker exchanges or deletes the files of one replica under it."""

from collections.abc import Callable
from functools import partial

import pytest

from tailrace.offline.replicas import DifferenceKind, compare_logs
from tailrace.reading.reader import FolderGoneError
from tailrace.testing import ChangingFiles, MemoryFiles
from tests.unit.storage.beside import Change, cleaning, deletion, every_moment, removal
from tests.unit.storage.builders import FOLDER, filled, path, stop_cleanly


@pytest.mark.parametrize("change", [cleaning, deletion])
def test_no_replica_is_called_damaged_beside_a_broker(change: Callable[[], Change]) -> None:
    """The log against itself: what is cleaned or deleted meanwhile may differ, and nothing else."""
    known = change()
    left = {offset for offset, _ in known.after}

    def once(files: ChangingFiles) -> None:
        found = compare_logs(files, FOLDER, FOLDER)
        for each in found.differences:
            assert each.kind is not DifferenceKind.UNREADABLE, str(each)
            assert "damaged" not in each.sentence
            if each.kind is DifferenceKind.CONTENT and each.batches == 1:
                assert each.offset not in left, str(each)

    for _ in every_moment(known, once):
        pass


OTHER = "other/flights-0"


def replicas() -> MemoryFiles:
    """Two directories with the same log of one segment."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 5))
    files.make_directory(OTHER)
    copy = path(0, ".log").replace(FOLDER, OTHER)
    files.open(copy, create=True)
    files.overwrite(copy, files.content(path(0, ".log")))
    return files


def rename_after_listing(files: MemoryFiles, operation: str, name: str) -> None:
    """The log file has another base offset as soon as its size has been asked."""
    if operation == "size" and name.startswith(FOLDER):
        base_offset = int(name.rpartition("/")[2].removesuffix(".log"))
        files.rename(name, path(base_offset + 1, ".log"))


def overwrite_before_reading(files: MemoryFiles, operation: str, name: str) -> None:
    """The log file is shorter at each read of it, and no log."""
    if operation == "read" and name.endswith(".log") and name.startswith(FOLDER):
        files.overwrite(name, b"\xff" * (len(files.content(name)) - 1))


@pytest.mark.parametrize("change", [rename_after_listing, overwrite_before_reading])
def test_files_that_are_exchanged_at_each_try_are_not_called_damaged(
    change: Callable[[MemoryFiles, str, str], None],
) -> None:
    """The error names the exchanges, and neither the missing file nor the bytes that were found."""
    files = replicas()
    files.on_read = partial(change, files)
    [found] = compare_logs(files, FOLDER, OTHER).differences
    assert found.kind is DifferenceKind.UNREADABLE
    assert found.sentence == (
        f"the first cannot be read: {FOLDER}: log files were exchanged or deleted at each of 10 "
        "tries to read it; try again when the broker compacts and deletes less"
    )


def test_damage_that_no_exchange_explains_is_damage() -> None:
    """The same bytes in a file that keeps its size are reported with the rule that they break."""
    files = replicas()
    files.overwrite(path(0, ".log"), b"\xff" * len(files.content(path(0, ".log"))))
    [found] = compare_logs(files, FOLDER, OTHER).differences
    assert found.kind is DifferenceKind.UNREADABLE
    assert "exchanged" not in found.sentence


def test_a_partition_that_is_deleted_meanwhile_is_said_to_be_gone() -> None:
    """Once the comparison has begun, its report says so; before, an error does."""
    known = removal()
    count = ChangingFiles(known.states, at=10**9, to=0)
    compare_logs(count, FOLDER, FOLDER)
    last = len(known.states) - 1
    for at in range(count.calls):
        files = ChangingFiles(known.states, at=at, to=last)
        try:
            differences = compare_logs(files, FOLDER, FOLDER).differences
        except FolderGoneError:
            continue
        for each in differences:
            assert each.kind is DifferenceKind.UNREADABLE
            assert "is gone" in each.sentence
