"""`explain` while a broker exchanges or deletes the files under it, between any two calls."""

from collections.abc import Callable

import pytest

from tailrace.offline.explain import explain_partition
from tailrace.reading.listing import list_segment_files
from tailrace.testing import ChangingFiles
from tests.unit.storage.beside import Change, cleaning, deletion, every_moment
from tests.unit.storage.builders import FOLDER, NOW, PARTITION, settings


@pytest.mark.parametrize("change", [cleaning, deletion])
def test_segments_beside_a_broker_are_those_of_one_moment(change: Callable[[], Change]) -> None:
    """Their base offsets and sizes are those of one listing of the folder."""
    known = change()
    config = settings(cleanup_policy="compact,delete")
    moments = [
        [(each.base_offset, each.size) for each in list_segment_files(state, FOLDER)[0]]
        for state in known.states
    ]
    ends = {known.before[-1][0] + 1}

    def once(files: ChangingFiles) -> None:
        told = explain_partition(files, "data", PARTITION, folder=FOLDER, config=config, now_ms=NOW)
        assert told.log_end_offset in ends
        assert [(each.base_offset, each.size_bytes) for each in told.segments] in moments

    for _ in every_moment(known, once):
        pass
