"""`compare_logs` while a broker exchanges or deletes the files of one replica under it."""

from collections.abc import Callable

import pytest

from tailrace.offline.replicas import DifferenceKind, compare_logs
from tailrace.testing import ChangingFiles
from tests.unit.storage.beside import Change, cleaning, deletion, every_moment
from tests.unit.storage.builders import FOLDER


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
