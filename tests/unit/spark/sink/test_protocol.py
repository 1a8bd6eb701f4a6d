"""Every way in which the commit of batches can be disturbed, within bounds.

Two batches of two tasks, of which each may be tried twice. At every step to the outside the driver
may die before or after it, the step may fail, its answer may be lost, what is open may expire, and
attempts that Spark does not count may do their work or the rest of it: twins, those of another
attempt of the stage, those of a dead driver. Between batches a week may pass, after which brokers
have forgotten all transactional ids, or notes may be put back. The scheduler of a job may give up
a version that has failed. See `model`.
"""

from collections.abc import Callable, Sequence

import pytest

from tailrace.errors import FatalError
from tailrace.spark.sink.commits import (
    OlderCheckpointError,
    OtherRowsError,
    PartlyCommittedError,
)
from tests.unit.spark.sink.model import (
    Choices,
    World,
    explore,
    rows_in,
    slots,
)

Batch = Callable[[int], Sequence[Sequence[bytes]]]

SAME: list[Batch] = [slots([b"a", b"b"], [b"c"]), slots([b"d"], [b"e"])]
"""A plan that gives each task the same rows each time."""

VERSIONS: list[Batch] = [slots([b"a", b"b"], [b"c"]), slots([b"d"])]
"""Versions of a job: one that may be committed in part, and a later one."""

SHORT: list[Batch] = [slots([b"a"]), slots([b"b"]), slots([b"c"])]
"""Three batches of one task."""

EMPTY: list[Batch] = [slots([], [b"a"]), slots([], [])]
"""Tasks without rows; slot 0 still has offsets of a group to commit."""


def moved(run: int) -> Sequence[Sequence[bytes]]:
    """A batch whose rows change their tasks with every run."""
    return [[b"a"], [b"b"]] if run % 2 else [[b"b"], [b"a"]]


def shrunk(run: int) -> Sequence[Sequence[bytes]]:
    """A batch that has two tasks in the first run and one in the others."""
    return [[b"a"], [b"b"]] if run == 1 else [[b"a", b"b"]]


def finish(batches: Sequence[Batch], choices: Choices) -> World:
    """Run a query to its end; nothing is open then or later, and all is visible once."""
    world = World(choices, batches)
    world.run_to_the_end()
    world.wake_all()
    assert world.cluster.open_ids() == []
    assert sorted(world.cluster.visible()) == sorted(rows_in(batches))
    assert world.cluster.groups == {"g": len(batches)}
    return world


FAULTS = [
    1,
    # Ten seconds each, since there are some 8,000 ways; a fault alone has a hundred.
    pytest.param(2, marks=pytest.mark.spark),
    pytest.param(3, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
]


@pytest.mark.parametrize("faults", FAULTS)
def test_every_row_is_visible_once_whatever_fails_when(faults: int) -> None:
    """The group's position is that of the last batch, and rows keep their order in a task.

    When a batch begins or the query has ended, nothing of other attempts is open, and nothing can
    be opened by those that still run.
    """

    def scenario(choices: Choices) -> None:
        seen = finish(SAME, choices).cluster.visible()
        assert seen.index(b"a") < seen.index(b"b")

    assert explore(scenario, faults=faults) > (1000 if faults > 1 else 100)


@pytest.mark.parametrize("faults", FAULTS)
def test_tasks_without_rows_commit_offsets_all_the_same(faults: int) -> None:
    """A batch may have no row at all."""

    def scenario(choices: Choices) -> None:
        finish(EMPTY, choices)

    assert explore(scenario, faults=faults) > (500 if faults > 1 else 50)


@pytest.mark.parametrize("batch", [moved, shrunk])
@pytest.mark.parametrize("faults", FAULTS)
def test_other_rows_in_a_second_run_are_refused_or_harmless(batch: Batch, faults: int) -> None:
    """The query says so where one part of a batch is committed and another one is lost.

    In all other cases every row is visible once.
    """
    refused = 0

    def scenario(choices: Choices) -> None:
        nonlocal refused
        try:
            finish([batch], choices)
        except OtherRowsError:
            refused += 1
            assert any("expiry" in each or "week" in each for each in choices.names)

    assert explore(scenario, faults=faults) > (500 if faults > 1 else 50)
    assert refused, "some way of failing leads to it"


@pytest.mark.parametrize("faults", FAULTS)
def test_a_version_of_a_job_is_visible_once_or_not_at_all(faults: int) -> None:
    """Not at all only if it was given up; and a version in part keeps later ones away.

    In the end nothing is open, and a version that its scheduler has heard of is there, although the
    log is deleted whenever that happens.
    """
    refused = 0

    def scenario(choices: Choices) -> None:
        nonlocal refused
        world = World(choices, VERSIONS, is_job=True)
        try:
            world.run_to_the_end()
        except PartlyCommittedError:
            refused += 1
        record = world.restart()
        world.wake_all()
        assert world.cluster.open_ids() == []
        seen = world.cluster.visible()
        for number, batch in enumerate(VERSIONS):
            whole = list(rows_in([batch]))
            found = [row in seen for row in whole]
            is_in_part = record is not None and record.batch_id == number and record.lost
            if number in world.given_up:
                assert is_in_part or len(set(found)) == 1
            else:
                assert all(found) or number not in world.done

    assert explore(scenario, faults=faults) > (1000 if faults > 1 else 100)
    # A version in part takes two: one that loses a part, and one that has it given up.
    assert refused or faults == 1


@pytest.mark.parametrize("faults", FAULTS)
def test_notes_that_are_put_back_double_nothing(faults: int) -> None:
    """Alone or with the rest of the checkpoint, at any moment between two batches.

    The query refuses to go on if anything was promised or committed since then, or if that cannot
    be found out because the records are deleted; or all is well. Without such an event it never
    refuses, which the other claims say.
    """
    refused = 0

    def scenario(choices: Choices) -> None:
        nonlocal refused
        world = World(choices, SHORT, has_backups=True)
        try:
            world.run_to_the_end()
        except FatalError:
            refused += 1
        else:
            assert sorted(world.cluster.visible()) == sorted(rows_in(SHORT))
        world.check()

    assert explore(scenario, faults=faults) > (300 if faults > 1 else 100)
    assert refused, "some way of putting them back leads to it"


@pytest.mark.parametrize("faults", FAULTS)
def test_notes_of_a_job_that_are_put_back_double_nothing(faults: int) -> None:
    """So does another directory, which has none."""
    refused = 0

    def scenario(choices: Choices) -> None:
        nonlocal refused
        world = World(choices, SHORT, is_job=True, has_backups=True)
        try:
            world.run_to_the_end()
        except OlderCheckpointError:
            refused += 1
        world.check()

    assert explore(scenario, faults=faults) > (300 if faults > 1 else 100)
    assert refused, "some way of putting them back leads to it"
