"""Queries of a directory while its files are compacted, deleted or made again between two calls.

Each change has its turn before the calls of a batch query and of a stream. An open file keeps its
content, as on a disk, or has what stands under its name now, as in an object store.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from tailrace.reading.opening import NamedDirectory
from tailrace.storage.names import PARTITION_METADATA
from tailrace.testing import ChangingFiles, MemoryFiles
from tests.unit.spark.changing import Logs, Outcome, check, run_batch, run_stream, steps
from tests.unit.storage.beside import (
    Change,
    cleaning,
    cleaning_large,
    cleaning_transactions,
    deletion,
    deletion_large,
    making_longer,
    making_shorter,
    removal,
)
from tests.unit.storage.builders import FOLDER

CHANGES: list[Callable[[], Change]] = [
    cleaning,
    cleaning_large,
    cleaning_transactions,
    deletion,
    deletion_large,
    removal,
    making_shorter,
    making_longer,
]
MADE_AGAIN = {making_shorter, making_longer}


def without_ids(states: tuple[MemoryFiles, ...]) -> tuple[MemoryFiles, ...]:
    """The same disks as Kafka wrote them before topics had ids."""
    copies = tuple(each.crash(keep_unsynced=True) for each in states)
    for each in copies:
        if each.exists(f"{FOLDER}/{PARTITION_METADATA}"):
            each.remove(f"{FOLDER}/{PARTITION_METADATA}")
    return copies


class Way(NamedTuple):
    """A way to read, and one of keeping files."""

    fails: bool
    """`failOnDataLoss`"""
    skips: bool
    """`onCorruption=skip`"""
    is_in_place: bool
    """Whether open files change too."""


WAYS = [Way(*each) for each in product((True, False), repeat=3)]


def run(path: Path, files: ChangingFiles, way: Way, *, is_stream: bool) -> Outcome:
    """Run a query over a disk that changes; the directory `path` is for reports of damage."""
    given = {"path": "data", "subscribe": "flights", "failOnDataLoss": str(way.fails).lower()}
    if way.skips:
        given |= {"onCorruption": "skip", "corruptionReport": str(path / "report")}
    directory = NamedDirectory(files, "data", "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tailrace.spark.directories.open_directory", lambda _: directory)
        if is_stream:
            given |= {"maxOffsetsPerTrigger": "7"}
            return run_stream(given, has_changed=lambda: files.has_changed)
        return run_batch(given)


def prove(
    path: Path, change: Callable[[], Change], *, is_stream: bool, is_every: bool, way_count: int
) -> None:
    """Have the change at each step, in so many ways in turn."""
    known = change()
    logs = Logs(frozenset(known.before), frozenset(known.after))
    states = {True: known.states, False: without_ids(known.states)}
    last = len(known.states) - 1
    still = ChangingFiles(known.states, at=0, to=0)
    assert frozenset(run(path, still, WAYS[0], is_stream=is_stream).rows) == logs.before
    for number, at in enumerate(steps(still.calls, is_every=is_every)):
        places = ((True, last), (change not in MADE_AGAIN, 1 + 2 * at % last))
        for turn, (has_ids, to) in product(range(way_count), places):
            way = WAYS[(number * way_count + turn) % len(WAYS)]
            files = ChangingFiles(states[has_ids], at=at, to=to, is_in_place=way.is_in_place)
            outcome = run(path, files, way, is_stream=is_stream)
            check(logs, outcome, fails=way.fails)
            assert not (path / "report").exists()
            if is_stream and has_ids and to == last and not way.fails and not outcome.error:
                assert set(outcome.rows) >= logs.after, f"a record is missing, step {at}"


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_query_beside_a_change_is_right_or_tells_the_loss(
    tmp_path: Path, change: Callable[[], Change], *, is_stream: bool
) -> None:
    """No row is wrong, none comes twice, none is missing that stayed, and nothing is damage."""
    prove(tmp_path, change, is_stream=is_stream, is_every=False, way_count=1)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("is_stream", "way_count"), [(False, len(WAYS)), (True, 2)])
def test_a_query_beside_a_change_at_any_call_is_right_or_tells_the_loss(
    tmp_path: Path, change: Callable[[], Change], *, is_stream: bool, way_count: int
) -> None:
    """The same with the change at each call."""
    prove(tmp_path, change, is_stream=is_stream, is_every=True, way_count=way_count)
