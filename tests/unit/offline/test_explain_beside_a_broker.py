"""`explain` while a broker exchanges or deletes the files under it, between any two calls."""

from collections.abc import Callable

import pytest

from tailrace.offline.explain import explain_partition
from tailrace.testing import ChangingFiles
from tests.unit.storage.beside import Change, cleaning, deletion, every_moment
from tests.unit.storage.builders import FOLDER, NOW, PARTITION, settings


@pytest.mark.parametrize("change", [cleaning, deletion])
def test_segments_beside_a_broker_are_those_of_one_moment(change: Callable[[], Change]) -> None:
    """None is counted that is gone, and the log ends where it does."""
    known = change()
    config = settings(cleanup_policy="compact,delete")
    ends = {known.before[-1][0] + 1}

    def once(files: ChangingFiles) -> None:
        told = explain_partition(files, "data", PARTITION, folder=FOLDER, config=config, now_ms=NOW)
        assert told.log_end_offset in ends
        bases = [each.base_offset for each in told.segments]
        assert bases == sorted(set(bases))

    for _ in every_moment(known, once):
        pass
