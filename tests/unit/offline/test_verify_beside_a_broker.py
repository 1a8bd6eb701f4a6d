"""`verify` while a broker exchanges or deletes the files under it, between any two of its calls."""

from collections.abc import Callable

import pytest

from tailrace.offline.findings import Rule, Severity
from tailrace.offline.verify import verify
from tailrace.reading.directory import find_partitions
from tailrace.testing import ChangingFiles
from tests.unit.storage.beside import (
    Change,
    cleaning,
    cleaning_transactions,
    deletion,
    every_moment,
    removal,
)


@pytest.mark.parametrize("change", [cleaning, cleaning_transactions, deletion])
def test_a_sound_log_is_not_called_damaged_beside_a_broker(change: Callable[[], Change]) -> None:
    """Only unfinished operations are reported, and only while they last."""

    def once(files: ChangingFiles) -> None:
        for each in verify(files, find_partitions(files, "data")):
            is_half_done = each.rule is Rule.LEFTOVER and each.severity is Severity.WARNING
            assert is_half_done or each.severity is Severity.INFO, str(each)

    for _ in every_moment(change(), once):
        pass


def test_a_partition_that_is_deleted_meanwhile_is_left_out() -> None:
    """It was in the listing of the directory, and may be gone at any call after that."""
    known = removal()
    listed = find_partitions(known.states[0], "data")
    count = ChangingFiles(known.states, at=10**9, to=0)
    assert not list(verify(count, listed))
    for at in range(count.calls):
        for to in range(1, len(known.states)):
            for each in verify(ChangingFiles(known.states, at=at, to=to), listed):
                assert each.severity is Severity.INFO, str(each)
