"""The checker of histories finds each planted anomaly, and none in a history that has none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.histories.anomalies import Kind, find_anomalies
from tests.histories.clean import play
from tests.histories.history import (
    Assign,
    Commit,
    EndTransaction,
    Operation,
    Outcome,
    Poll,
    ReadToEnd,
    Record,
    Recorder,
    Send,
    Source,
    read_histories,
)
from tests.histories.planting import PLANTS, History, NoPlaceError

SEEDS = st.integers(min_value=0, max_value=1 << 30)

Plant = Callable[[History, Random], History]


@given(SEEDS)
def test_a_clean_history_has_no_anomaly(seed: int) -> None:
    """The checker blames no broker that does everything right, whatever its clients go through."""
    report = find_anomalies(play(Random(seed)))
    assert report.anomalies == ()
    assert report.figures["unseen"] == 0


def test_every_kind_of_anomaly_is_planted() -> None:
    """No kind is without a plant that proves that it is found."""
    assert {kind for kind, _ in PLANTS} == set(Kind)


@pytest.mark.parametrize(("kind", "plant"), PLANTS, ids=[plant.__name__ for _, plant in PLANTS])
@settings(max_examples=examples(15))
@given(seed=SEEDS)
def test_a_planted_anomaly_is_found(kind: Kind, plant: Plant, seed: int) -> None:
    """One wrong operation among hundreds is reported, with operations as evidence."""
    chance = Random(seed)
    clean = play(chance)
    try:
        history = plant(clean, chance)
    except NoPlaceError:
        reject()
    found = [each for each in find_anomalies(history).anomalies if each.kind is kind]
    assert found
    assert all(operation in history for each in found for operation in each.evidence)


def test_a_record_that_nobody_has_come_to_is_lag() -> None:
    """An acknowledged record behind all that was read is unseen, and not lost."""
    history = [
        operation(1, Send(partition="t-0", value="a", offset=0)),
        operation(2, Poll(records=(Record("t-0", 0, "a"),), is_committed=True)),
        operation(3, Send(partition="t-0", value="b", offset=1)),
    ]
    report = find_anomalies(history)
    assert report.anomalies == ()
    assert report.figures["unseen"] == 1
    end = operation(4, ReadToEnd(partitions=("t-0",), is_committed=True))
    again = operation(5, Poll(records=(Record("t-0", 0, "a"),), is_committed=True))
    (anomaly,) = find_anomalies([*history, end, again]).anomalies
    assert anomaly.kind is Kind.LOST_WRITE


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_record_that_was_read_and_is_not_there_at_the_end_is_lost(*, is_committed: bool) -> None:
    """The last ones of a log have no later offset that would show the loss."""
    records = tuple(Record("t-0", offset, f"v{offset}") for offset in range(2))
    history = [
        *(
            operation(1 + offset, Send(partition="t-0", value=value, offset=offset))
            for _, offset, value in records
        ),
        operation(3, Poll(records=records, is_committed=is_committed)),
        operation(4, ReadToEnd(partitions=("t-0",), is_committed=is_committed)),
    ]
    whole = operation(5, Poll(records=records, is_committed=is_committed))
    assert find_anomalies([*history, whole]).anomalies == ()
    part = operation(5, Poll(records=records[:1], is_committed=is_committed))
    (anomaly,) = find_anomalies([*history, part]).anomalies
    assert anomaly.kind is Kind.LOST_WRITE
    assert "v1 was written at offset 1, and it was read once, and is gone" in anomaly.what


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.INFO])
def test_only_a_certain_commit_forbids_to_begin_before_it(outcome: Outcome) -> None:
    """A consumer may begin at either side of a commit whose outcome nobody knows."""
    records = tuple(Record("t-0", offset, f"v{offset}") for offset in range(2))
    history = [
        *(
            operation(1 + offset, Send(partition="t-0", value=value, offset=offset))
            for _, offset, value in records
        ),
        operation(3, Commit(group="g", offsets={"t-0": 1}), outcome),
        operation(4, Assign(added=("t-0",), group="g")),
        Operation(
            process="q",
            number=1,
            action=Poll(records=records, is_committed=False),
            start_s=4,
            end_s=4.5,
        ),
    ]
    later = operation(5, Poll(records=records[1:], is_committed=False))
    assert find_anomalies([*history, later]).anomalies == ()
    earlier = operation(5, Poll(records=records, is_committed=False))
    kinds = [each.kind for each in find_anomalies([*history, earlier]).anomalies]
    assert kinds == [Kind.READ_AGAIN] * (outcome is Outcome.OK)


@pytest.mark.parametrize("is_rejoined", [False, True])
def test_a_request_of_unknown_outcome_may_be_carried_out_after_a_newer_one(
    *, is_rejoined: bool
) -> None:
    """A commit that was given up on may come late, but not from before another assignment."""
    records = tuple(Record("t-0", offset, f"v{offset}") for offset in range(3))
    history = [
        *(
            operation(1 + offset, Send(partition="t-0", value=value, offset=offset))
            for _, offset, value in records
        ),
        operation(4, Assign(added=("t-0",), group="g")),
        operation(5, Poll(records=records, is_committed=False)),
        operation(6, Commit(group="g", offsets={"t-0": 1}), Outcome.INFO),
        operation(7, Assign(added=("t-0",) if is_rejoined else (), group="g")),
        operation(8, Commit(group="g", offsets={"t-0": 3})),
        operation(9, Assign(added=("t-0",), group="g")),
    ]
    late = operation(10, Poll(records=records[1:], is_committed=False))
    kinds = [each.kind for each in find_anomalies([*history, late]).anomalies]
    assert kinds == [Kind.READ_AGAIN] * is_rejoined
    earlier = operation(10, Poll(records=records, is_committed=False))
    assert [each.kind for each in find_anomalies([*history, earlier]).anomalies] == [
        Kind.READ_AGAIN
    ]


@pytest.mark.parametrize("is_same", [True, False])
def test_a_consumer_may_go_on_where_it_was_before_a_rebalance(*, is_same: bool) -> None:
    """Another one has to begin where the group has committed."""
    history = [
        operation(1, Send(partition="t-0", value="v0", offset=0)),
        operation(2, Send(partition="t-0", value="v1", offset=1)),
        operation(3, Assign(added=("t-0",), group="g")),
        operation(4, Poll(records=(Record("t-0", 0, "v0"),), is_committed=False)),
    ]
    again = [
        operation(5, Assign(removed=("t-0",), added=("t-0",), group="g")),
        operation(6, Poll(records=(Record("t-0", 1, "v1"),), is_committed=False)),
    ]
    if not is_same:
        again = [replace(each, process="q") for each in again]
    kinds = [each.kind for each in find_anomalies(history + again).anomalies]
    assert kinds == [Kind.SKIPPED_RECORD] * (not is_same)


def test_operations_at_the_same_time_may_have_come_in_either_order() -> None:
    """A commit that was on its way when another one began may be lower and come later."""
    commit = Commit(group="g", offsets={"t-0": 5})
    low = Commit(group="g", offsets={"t-0": 4})
    overlapping = [
        Operation(process="a", number=1, action=commit, start_s=1, end_s=3),
        Operation(process="b", number=1, action=low, start_s=2, end_s=4),
    ]
    assert find_anomalies(overlapping).anomalies == ()
    one_by_one = [
        Operation(process="a", number=1, action=commit, start_s=1, end_s=2),
        Operation(process="b", number=1, action=low, start_s=3, end_s=4),
    ]
    assert [each.kind for each in find_anomalies(one_by_one).anomalies] == [Kind.STALE_COMMIT]


def test_an_anomaly_is_told_with_its_evidence() -> None:
    """The report names partition, offsets, values, and operations with process and time."""
    history = [
        operation(1, Send(partition="t-0", value="a", offset=7)),
        operation(2, Poll(records=(Record("t-0", 7, "b"),), is_committed=False)),
        operation(3, Send(partition="t-0", value="b")),
    ]
    told = "\n".join(map(str, find_anomalies(history).anomalies))
    assert "inconsistent offset, t-0: offset 7 has the values a, b" in told
    assert "p/1 1.000-1.500 ok: Send(" in told


def test_a_recorded_history_is_read_back_with_what_a_killed_process_left(tmp_path: Path) -> None:
    """Operations of all processes come back as they were; one without an end is unknown."""
    recorder = Recorder(tmp_path / "p.history")
    source = Source("g", "t-0", 3)
    send = Send(partition="r-0", value="v", transaction="p#1", source=source)
    sent = recorder.begin(send)
    poll = Poll(records=(Record("t-0", 3, "v"),), is_committed=False)
    recorder.note(poll)
    recorder.end(sent, Outcome.OK, offset=0)
    killed = EndTransaction(transaction="p#1", is_commit=True)
    recorder.begin(killed)
    assign = Assign(added=("t-0",), group="g")
    Recorder(tmp_path / "q.history").note(assign)
    read = [(each.process, each.action, each.outcome) for each in read_histories(tmp_path)]
    sent_at_0 = Send(partition="r-0", value="v", offset=0, transaction="p#1", source=source)
    assert read == [
        ("p", sent_at_0, Outcome.OK),
        ("p", poll, Outcome.OK),
        ("p", killed, Outcome.INFO),
        ("q", assign, Outcome.OK),
    ]


def operation(
    number: int,
    action: Send | Poll | Assign | Commit | ReadToEnd,
    outcome: Outcome = Outcome.OK,
) -> Operation:
    """An operation of the process `p`, which does one after the other."""
    return Operation(
        process="p",
        number=number,
        action=action,
        outcome=outcome,
        start_s=number,
        end_s=number + 0.5,
    )
