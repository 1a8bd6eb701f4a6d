"""One member's way to its target, by Kafka's own scenarios."""

from typing import TYPE_CHECKING, Any

import pytest

from tailrace.coordinator.errors import RefusedError
from tailrace.coordinator.groups.consumer_group import (
    Assigned,
    CurrentAssignment,
    MemberState,
    Partitions,
)
from tailrace.coordinator.groups.reconciliation import Goal, reconcile
from tests.unit.coordinator.groups_consumer.assigning import partitions, topic_id

if TYPE_CHECKING:
    from uuid import UUID

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState


def assigned(text: str, epoch: int = 10) -> Assigned:
    """Partitions that were assigned in an epoch."""
    return {each: dict.fromkeys(numbers, epoch) for each, numbers in partitions(text).items()}


def merged(*parts: Assigned) -> Assigned:
    """Partitions of several epochs."""
    found: dict[UUID, dict[int, int]] = {}
    for part in parts:
        for each, epochs in part.items():
            found.setdefault(each, {}).update(epochs)
    return found


def member(
    state: MemberState, has: str, *, revoking: str = "", epoch: int = 10
) -> CurrentAssignment:
    """A member at an epoch."""
    return CurrentAssignment(
        epoch=epoch,
        previous_epoch=epoch,
        state=state,
        assigned=assigned(has),
        revoking=assigned(revoking),
    )


def goal(target: str, *, epoch: int = 11, taken: str = "", **fields: Any) -> Goal:
    """A target; `taken` is what other members have."""
    others = partitions(taken)
    given: dict[str, Any] = {
        "epoch": epoch,
        "target": partitions(target),
        "topic_ids": frozenset(map(topic_id, "ab")),
        "is_owned": lambda each, number: number in others.get(each, ()),
        "reported": None,
        **fields,
    }
    return Goal(**given)


def reporting(text: str) -> Partitions:
    """The partitions that a member reports."""
    return partitions(text)


def test_a_stable_member_at_the_target_stays() -> None:
    """Whatever it reports."""
    current = member(STABLE, "a1 b2")
    for reported in (None, reporting(""), reporting("a1")):
        assert reconcile(current, goal("a1 b2", epoch=10, reported=reported)) is current


def test_a_stable_member_comes_to_a_target_that_is_the_same() -> None:
    """Its epoch alone changes."""
    found = reconcile(member(STABLE, "a1 b2"), goal("a1 b2"))
    assert (found.epoch, found.previous_epoch, found.state) == (11, 10, STABLE)
    assert found.assigned == assigned("a1 b2")


def test_a_stable_member_gets_what_is_free() -> None:
    """At once, in the epoch of the target; what it had keeps its own."""
    found = reconcile(member(STABLE, "a1"), goal("a1 a2 b1"))
    assert (found.epoch, found.state) == (11, STABLE)
    assert found.assigned == merged(assigned("a1"), assigned("a2 b1", 11))


def test_a_stable_member_is_asked_to_give_up_first() -> None:
    """It stays in its epoch, has what it keeps, and gets nothing new."""
    found = reconcile(member(STABLE, "a1 a2 b1"), goal("a2 a3 b1"))
    assert found == CurrentAssignment(
        epoch=10, previous_epoch=10, state=UNREVOKED,
        assigned=assigned("a2 b1"), revoking=assigned("a1"),
    )  # fmt: skip


def test_a_stable_member_that_has_given_up_already_moves_on() -> None:
    """It reports what it has in the same heartbeat."""
    found = reconcile(member(STABLE, "a1 a2"), goal("a2 a3", reported=reporting("a2")))
    assert (found.epoch, found.state) == (11, STABLE)
    assert found.assigned == merged(assigned("a2"), assigned("a3", 11))


def test_a_stable_member_waits_for_what_others_have() -> None:
    """It is in the target's epoch, with what is free."""
    found = reconcile(member(STABLE, "a1"), goal("a1 a2 a3", taken="a3"))
    assert (found.epoch, found.state) == (11, UNRELEASED)
    assert found.assigned == merged(assigned("a1"), assigned("a2", 11))
    found = reconcile(member(STABLE, "a1"), goal("a1 a3", taken="a3"))
    assert (found.epoch, found.state, found.assigned) == (11, UNRELEASED, assigned("a1"))


def test_a_stable_member_that_has_given_up_already_may_have_to_wait() -> None:
    """It reports that it has nothing, and another member has what it is to get."""
    found = reconcile(member(STABLE, "a1 b4"), goal("a1 b5", taken="b5", reported=reporting("")))
    assert found == CurrentAssignment(
        epoch=11, previous_epoch=10, state=UNRELEASED, assigned=assigned("a1")
    )


@pytest.mark.parametrize("reported", [None, "a1", "a1 a2", "a1 b9"])
def test_a_member_that_still_has_what_it_was_asked_for_stays(reported: str | None) -> None:
    """Also if it does not say."""
    current = member(UNREVOKED, "a2", revoking="a1")
    stated = None if reported is None else reporting(reported)
    assert reconcile(current, goal("a2 a3", reported=stated)) is current


def test_a_member_that_has_given_up_comes_to_the_target() -> None:
    """And gets what is free, or waits for it."""
    current = member(UNREVOKED, "a2", revoking="a1")
    found = reconcile(current, goal("a2 a3", reported=reporting("a2")))
    assert (found.epoch, found.state, found.revoking) == (11, STABLE, {})
    assert found.assigned == merged(assigned("a2"), assigned("a3", 11))
    found = reconcile(current, goal("a2 a3", taken="a3", reported=reporting("a2")))
    assert (found.epoch, found.state, found.assigned) == (11, UNRELEASED, assigned("a2"))


def test_a_member_that_has_given_up_may_be_asked_for_more() -> None:
    """By a newer target: it stays in its epoch, and may say the same again after a lost answer."""
    current = member(UNREVOKED, "a2 a3", revoking="a1")
    found = reconcile(current, goal("a3", epoch=13, reported=reporting("a2 a3")))
    assert found == CurrentAssignment(
        epoch=10, previous_epoch=10, state=UNREVOKED,
        assigned=assigned("a3"), revoking=assigned("a2"),
    )  # fmt: skip


def test_a_member_gets_back_what_it_has_given_up() -> None:
    """Its target has changed meanwhile; nobody else has the partition, so it need not wait."""
    current = member(UNREVOKED, "a2 b5", revoking="a4")
    back = goal("a2 a4 b5 b7", epoch=12, taken="a2 a4 b5", reported=reporting("a2 b5"))
    found = reconcile(current, back)
    assert (found.epoch, found.state, found.revoking) == (12, STABLE, {})
    assert found.assigned == merged(assigned("a2 b5"), assigned("a4 b7", 12))


def test_a_waiting_member_gets_what_becomes_free() -> None:
    """Part of it, then all of it; the epoch is that of the target."""
    current = member(UNRELEASED, "a1", epoch=11)
    found = reconcile(current, goal("a1 a2 a3", taken="a2 a3"))
    assert (found.state, found.assigned) == (UNRELEASED, assigned("a1"))
    found = reconcile(current, goal("a1 a2 a3", taken="a3"))
    assert (found.state, found.epoch) == (UNRELEASED, 11)
    found = reconcile(current, goal("a1 a2 a3"))
    assert (found.state, found.epoch) == (STABLE, 11)
    assert found.assigned == merged(assigned("a1"), assigned("a2 a3", 11))


def test_a_waiting_member_follows_a_newer_target() -> None:
    """Up or down, also while it still waits."""
    current = member(UNRELEASED, "a1 a2", epoch=11)
    found = reconcile(current, goal("a1 b1", epoch=12))
    assert (found.epoch, found.state, found.revoking) == (11, UNREVOKED, assigned("a2"))
    found = reconcile(current, goal("a1 a2 b1", epoch=12, taken="b1"))
    assert (found.epoch, found.state) == (12, UNRELEASED)


def test_topics_that_are_unsubscribed_are_given_up_at_once() -> None:
    """Before there is a new target; the epoch stays when they are given up."""
    changed: dict[str, Any] = {"epoch": 10, "topic_ids": frozenset({topic_id("a")})}
    current = member(STABLE, "a1 b1")
    first = reconcile(current, goal("a1 b1", has_subscription_changed=True, **changed))
    assert (first.epoch, first.state, first.revoking) == (10, UNREVOKED, assigned("b1"))
    assert first.assigned == assigned("a1")
    second = reconcile(first, goal("a1 b1", reported=reporting("a1"), **changed))
    assert (second.epoch, second.state, second.assigned) == (10, STABLE, assigned("a1"))
    at_once = reconcile(
        current, goal("a1 b1", has_subscription_changed=True, reported=reporting("a1"), **changed)
    )
    assert (at_once.state, at_once.assigned) == (STABLE, assigned("a1"))


def test_a_member_that_is_asked_already_gives_up_unsubscribed_topics_too() -> None:
    """Both are asked for together."""
    current = member(UNREVOKED, "a2 b1", revoking="a1")
    found = reconcile(
        current,
        goal("a2 b1", topic_ids=frozenset({topic_id("a")}), has_subscription_changed=True),
    )
    assert found.revoking == merged(assigned("a1"), assigned("b1"))
    assert found.assigned == assigned("a2")


def test_a_member_in_an_unknown_state_begins_without_partitions() -> None:
    """Else it is fenced."""
    current = member(UNKNOWN, "a1")
    for reported in (None, reporting("a1")):
        with pytest.raises(RefusedError, match="must abandon all its partitions"):
            reconcile(current, goal("a1 a2", reported=reported))
    found = reconcile(current, goal("a1 a2", reported=reporting("")))
    assert (found.epoch, found.state) == (11, STABLE)
