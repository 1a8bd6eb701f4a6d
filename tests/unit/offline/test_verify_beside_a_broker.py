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
