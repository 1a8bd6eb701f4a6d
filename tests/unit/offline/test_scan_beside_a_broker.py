"""`scan` while a broker exchanges or deletes the files under it, between any two of its calls."""

from collections.abc import Callable

import pytest

from tailrace.errors import DirectoryError
from tailrace.offline.scan import scan_partition
from tailrace.reading.reader import FolderGoneError
from tailrace.testing import ChangingFiles, DiskFault, MemoryFiles
from tests.unit.storage.beside import Change, cleaning, deletion, every_moment, removal
from tests.unit.storage.builders import FOLDER, PARTITION, filled, stop_cleanly


@pytest.mark.parametrize("change", [cleaning, deletion])
def test_a_sound_log_has_no_damage_beside_a_broker(change: Callable[[], Change]) -> None:
    """The scan counts the files of one moment and reports none as damaged."""
    known = change()
    end = known.before[-1][0] + 1

    def once(files: ChangingFiles) -> None:
        found = scan_partition(files, "data", PARTITION, folder=FOLDER)
        assert not found.damage
        assert not found.tail_bytes
        assert found.end_offset == end
        assert len(known.after) <= found.records <= len(known.before)
        assert found.bytes > 0

    for _ in every_moment(known, once):
        pass


def test_a_partition_that_is_deleted_meanwhile_is_gone_and_not_damaged() -> None:
    """The command leaves it out; the error says so to a program."""
    known = removal()
    count = ChangingFiles(known.states, at=10**9, to=0)
    scan_partition(count, "data", PARTITION, folder=FOLDER)
    gone = 0
    for at in range(count.calls):
        files = ChangingFiles(known.states, at=at, to=len(known.states) - 1)
        try:
            assert not scan_partition(files, "data", PARTITION, folder=FOLDER).damage
        except FolderGoneError:
            gone += 1
    assert gone > 5


def test_a_device_that_fails_is_told_in_one_line() -> None:
    """The line names the file, whether a read or an open has failed."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20))
    files.faults.append(DiskFault(operation="read", path_part=".log"))
    with pytest.raises(DirectoryError, match=r"cannot read .*input/output error"):
        scan_partition(files, "data", PARTITION, folder=FOLDER)
