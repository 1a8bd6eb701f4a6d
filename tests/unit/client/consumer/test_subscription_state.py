"""`SubscriptionState`: which partitions are read, and how each gets and loses its position."""

import re
from collections.abc import Callable

import pytest

from tailrace.client.cluster_metadata import NOBODY, Leader
from tailrace.client.consumer.errors import SubscriptionError
from tailrace.client.consumer.fetched import FetchedPart
from tailrace.client.consumer.subscription import (
    EARLIEST,
    LATEST,
    NO_RESET,
    Assigned,
    Kind,
    Phase,
    Position,
    ResetPolicy,
    SubscriptionState,
)
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.model import TopicPartition
from tests.unit.client.consumer.stage import T0, T1

U0 = TopicPartition("u", 0)
OLD = Leader(1, 5)
NEW = Leader(2, 6)
ANY = re.compile(".*")


def state(*assigned: TopicPartition) -> SubscriptionState:
    """A consumer that reads these partitions by `assign`."""
    found = SubscriptionState(EARLIEST)
    if assigned:
        found.assign(assigned)
    return found


def at(position: Position) -> Assigned:
    """An assigned partition that reads on at a valid position."""
    found = Assigned(T0)
    found.seek(position)
    return found


WAYS: dict[Kind, Callable[[SubscriptionState], None]] = {
    Kind.TOPICS: lambda each: each.subscribe(frozenset({"t"})),
    Kind.PATTERN: lambda each: each.subscribe_pattern(ANY),
    Kind.PARTITIONS: lambda each: each.assign([T0]),
}


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", WAYS)
def test_a_consumer_chooses_partitions_in_one_way(first: Kind, second: Kind) -> None:
    """Another way is refused with both names, and possible after `unsubscribe`."""
    found = state()
    WAYS[first](found)
    if first is not second:
        with pytest.raises(SubscriptionError, match=re.escape(f"by {first.value}; call unsub")):
            WAYS[second](found)
        assert found.kind is first
        found.unsubscribe()
    WAYS[second](found)
    assert found.kind is second


def test_assign_replaces_the_partitions() -> None:
    """Partitions that stay keep their position, new ones have none, the others are gone."""
    found = state(T0, T1)
    found.of(T0).seek(Position(3))
    found.assign([T0, U0])
    assert set(found.assigned) == {T0, U0}
    assert found.of(T0).position == Position(3)
    assert found.of(U0).phase is Phase.INITIALIZING
    assert found.topics_in_use() == {"t", "u"}


@pytest.mark.parametrize("kind", [Kind.TOPICS, Kind.PATTERN])
def test_only_the_group_changes_partitions_of_a_subscription(kind: Kind) -> None:
    """A new subscription leaves the assignment as it is until the group has decided."""
    found = state()
    WAYS[kind](found)
    assert not found.assigned
    found.take_over([T0])
    if kind is Kind.TOPICS:
        found.subscribe(frozenset({"u"}))
    else:
        found.subscribe_pattern(re.compile("u.*"))
    assert set(found.assigned) == {T0}
    found.take_over([U0])
    assert set(found.assigned) == {U0}
    assert not found.of(U0).is_fetchable


def test_a_partition_that_comes_back_begins_anew() -> None:
    """After another member had it, it has neither the old position nor its records."""
    found = state()
    found.subscribe(frozenset({"t"}))
    found.take_over([T0])
    before = found.of(T0)
    before.seek(Position(7))
    before.parts.append(FetchedPart(T0, offset=7, size=100))
    version = before.version
    found.take_over([])
    assert not before.parts
    found.take_over([T0])
    found.of(T0).await_reset(EARLIEST)
    assert found.current(T0, version) is None
    found.take_over([])
    found.take_over([T0])
    assert (found.of(T0).phase, found.of(T0).position) == (Phase.INITIALIZING, None)


def test_unsubscribe_forgets_everything() -> None:
    """Neither topics, nor a pattern, nor partitions are left."""
    for way in WAYS.values():
        found = state()
        way(found)
        found.take_over([T0])
        found.unsubscribe()
        assert (found.kind, found.topics, found.pattern) == (Kind.NONE, frozenset(), None)
        assert not found.assigned
        assert not found.topics_in_use()


def test_a_partition_that_is_not_assigned_has_no_position() -> None:
    """Its position cannot be changed, and the error names those that are assigned."""
    with pytest.raises(SubscriptionError, match="assigned: none"):
        state().of(T0)
    with pytest.raises(SubscriptionError, match=r"t-1 is not assigned .*assigned: t-0"):
        state(T0).of(T1)
    assert state(T0).current(T1, 0) is None


def test_pausing_takes_all_or_none() -> None:
    """A paused partition is not read; one that is not assigned leaves the others as they were."""
    found = state(T0)
    found.of(T0).seek(Position(3))
    found.set_paused([T0], is_paused=True)
    assert not found.of(T0).is_fetchable
    found.set_paused([T0], is_paused=False)
    assert found.of(T0).is_fetchable
    with pytest.raises(SubscriptionError):
        found.set_paused([T0, T1], is_paused=True)
    assert found.of(T0).is_fetchable


def test_a_partition_that_is_given_back_is_not_read() -> None:
    """Neither a fetch nor a poll takes it, though the user has not paused it."""
    found = at(Position(3))
    found.is_revoking = True
    assert (found.is_fetchable, found.is_paused, found.has_position) == (False, False, True)


def test_a_reset_loses_the_position_and_a_seek_ends_it() -> None:
    """While a reset is awaited nothing is fetched; a seek makes it void."""
    found = at(Position(5))
    found.await_reset(LATEST)
    assert (found.phase, found.position, found.reset) == (Phase.AWAIT_RESET, None, LATEST)
    assert not found.is_fetchable
    found.seek(Position(0))
    assert (found.phase, found.reset, found.is_fetchable) == (Phase.FETCHING, None, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda each: each.seek(Position(20)),
        lambda each: each.await_reset(EARLIEST),
        lambda each: each.await_validation(NEW),
    ],
    ids=["seek", "reset", "validation"],
)
def test_an_answer_to_an_earlier_question_is_told(change: Callable[[Assigned], None]) -> None:
    """After each change of the position the state is not the one that was asked about."""
    found = state(T0)
    each = found.of(T0)
    each.seek_unvalidated(Position(10, 4, OLD))
    asked = each.version
    assert found.current(T0, asked) is each
    change(each)
    assert found.current(T0, asked) is None


@pytest.mark.parametrize(
    ("position", "leader", "phase"),
    [
        (Position(0, -1, OLD), NEW, Phase.FETCHING),
        (Position(0, 2, Leader(1, -1)), Leader(2, -1), Phase.FETCHING),
        (Position(0, 2, OLD), NEW, Phase.AWAIT_VALIDATION),
    ],
    ids=["no epoch of a record", "no epoch of a leader", "both"],
)
def test_a_new_leader_confirms_a_position_with_an_epoch(
    position: Position, leader: Leader, phase: Phase
) -> None:
    """Without one of both epochs there is nothing to compare, so reading goes on (KIP-320)."""
    found = at(position)
    found.await_validation(leader)
    assert (found.phase, found.position) == (phase, position._replace(leader=leader))
    assert found.is_fetchable == (phase is Phase.FETCHING)


def test_a_seek_with_an_epoch_is_validated_before_it_is_read() -> None:
    """One without an epoch is read at once, also while another is being validated."""
    found = Assigned(T0)
    found.seek_unvalidated(Position(10, 2, OLD))
    assert (found.phase, found.is_fetchable) == (Phase.AWAIT_VALIDATION, False)
    assert found.position == Position(10, 2, OLD)
    found.seek_unvalidated(Position(8, -1, OLD))
    assert (found.phase, found.position) == (Phase.FETCHING, Position(8, -1, OLD))
    found.seek_unvalidated(Position(10, 2, NOBODY))
    assert found.phase is Phase.FETCHING


def test_validation_ends_with_its_answer_a_seek_or_a_reset() -> None:
    """Each of the three leaves AWAIT_VALIDATION, and only the first keeps the position."""
    for end, phase, position in (
        (Assigned.validated, Phase.FETCHING, Position(10, 2, OLD)),
        (lambda each: each.seek(Position(8, 1, OLD)), Phase.FETCHING, Position(8, 1, OLD)),
        (lambda each: each.await_reset(EARLIEST), Phase.AWAIT_RESET, None),
    ):
        found = Assigned(T0)
        found.seek_unvalidated(Position(10, 2, OLD))
        end(found)
        assert (found.phase, found.position) == (phase, position)


def test_a_leader_without_an_epoch_ends_a_validation() -> None:
    """The next leader that is found may be of a broker without epochs: reading goes on."""
    found = Assigned(T0)
    found.seek_unvalidated(Position(10, 2, OLD))
    found.await_validation(NEW)
    phases = [found.phase]
    found.await_validation(Leader(2, -1))
    assert [*phases, found.phase] == [Phase.AWAIT_VALIDATION, Phase.FETCHING]


def test_a_new_leader_is_read_itself() -> None:
    """The follower that the old leader has named is not fetched from any more."""
    for position in (Position(10, 2, OLD), Position(10, -1, OLD)):
        found = at(position)
        found.preferred_replica = 3
        found.await_validation(NEW)
        assert found.preferred_replica == -1


def test_reading_on_keeps_the_last_known_epoch() -> None:
    """A batch without an epoch leaves that of the position; the leader stays as well."""
    found = at(Position(10, 4, OLD))
    found.read_to(12, -1)
    assert found.position == Position(12, 4, OLD)
    found.read_to(15, 5)
    assert found.position == Position(15, 5, OLD)


def test_positions_are_committed_with_their_epochs() -> None:
    """Partitions without a position are left out."""
    found = state(T0, T1)
    found.of(T0).seek(Position(5, 3))
    assert found.consumed() == {T0: OffsetAndMetadata(5, 3)}


def test_what_was_fetched_is_fetched_again_after_it_was_dropped() -> None:
    """The next fetch is at the position, not behind the records that are gone."""
    found = at(Position(5))
    found.parts.append(FetchedPart(T0, offset=5, size=10))
    found.fetch_offset = 50
    found.drop_parts()
    assert (len(found.parts), found.fetch_offset) == (0, 5)


def test_a_duration_goes_back_from_now() -> None:
    """`by_duration` asks for a time, never one before 1970; the others for an end of the log."""
    assert ResetPolicy("by_duration", 1000).timestamp(5000) == 4000
    assert ResetPolicy("by_duration", 9000).timestamp(5000) == 0
    assert EARLIEST.timestamp(5000) == -2
    assert LATEST.timestamp(5000) == -1
    assert NO_RESET.name == "none"
