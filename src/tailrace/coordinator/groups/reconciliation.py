"""The way of one member to its target: what it gives up, then what it gets.

    STABLE ----- has something to give up ---------> UNREVOKED
    UNREVOKED -- reports that it has given it up --> STABLE, or UNRELEASED if others have its part
    UNRELEASED - others have given it up ----------> STABLE

Invariant: a member gets a partition only when no member has it, and comes to the target's epoch
only when it has given up everything that is not in its target.
"""

from collections.abc import Callable
from uuid import UUID

from tailrace.coordinator.errors import RefusedError
from tailrace.coordinator.groups.consumer_group import (
    Assigned,
    CurrentAssignment,
    MemberState,
    Partitions,
)
from tailrace.protocol.errors import ErrorCode
from tailrace.values import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The target of a member, and the partitions that it reports."""

    epoch: int
    """The epoch of the target."""
    target: Partitions
    topic_ids: frozenset[UUID]
    """The topics that the member subscribes to; it gives up all others at once."""
    is_owned: Callable[[UUID, int], bool]
    """Whether any member has a partition."""
    reported: Partitions | None
    """The partitions that the member reports; None: unchanged."""
    has_subscription_changed: bool = False


def reconcile(current: CurrentAssignment, goal: Goal) -> CurrentAssignment:
    """The next step of a member; `current` itself if there is none.

    Raises:
        RefusedError: the state is that of a newer Kafka, and the member has to join again.
    """
    match current.state:
        case MemberState.STABLE if current.epoch == goal.epoch:
            return _give_up_unsubscribed(current, goal)
        case MemberState.UNREVOKED_PARTITIONS:
            # It is not given anything before it has reported: what it has not given up it may still
            # consume, and another member would read the same records.
            if _has_any(goal.reported, current.revoking):
                return _give_up_unsubscribed(current, goal)
            # In its epoch, also if it is asked for more: the answer may be lost, and it would be
            # fenced with the same heartbeat.
            return _next(current, goal, current.epoch)
        case MemberState.UNKNOWN:
            # Only a member that reports no partitions at all can be taken further safely.
            if goal.reported is None or goal.reported:
                raise RefusedError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The member is in a state that this broker does not know. It must abandon all "
                    "its partitions and rejoin.",
                )
            return _next(current, goal, goal.epoch)
    return _next(current, goal, current.epoch)


def _next(current: CurrentAssignment, goal: Goal, epoch: int) -> CurrentAssignment:
    assigned: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        target = _target(goal, topic_id)
        kept = {each: since for each, since in epochs.items() if each in target}
        given_up = {each: since for each, since in epochs.items() if each not in target}
        if kept:
            assigned[topic_id] = kept
        if given_up:
            revoking[topic_id] = given_up
    if _has_any(goal.reported, revoking):
        # It keeps its epoch until it has given them up: an epoch says which target is reached.
        return CurrentAssignment(
            epoch=epoch,
            previous_epoch=current.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=assigned,
            revoking=revoking,
        )
    # It gets at once what is free, and comes to the target's epoch although it waits for the rest:
    # what it has is all of its target by then.
    is_waiting = False
    for topic_id in goal.target:
        missing = _target(goal, topic_id) - assigned.get(topic_id, {}).keys()
        # What the member has just given up is still its own, so nobody else has it.
        own = current.revoking.get(topic_id, {})
        free = [each for each in missing if each in own or not goal.is_owned(topic_id, each)]
        is_waiting |= len(free) < len(missing)
        if free:
            assigned.setdefault(topic_id, {}).update(dict.fromkeys(free, goal.epoch))
    return CurrentAssignment(
        epoch=goal.epoch,
        previous_epoch=current.epoch,
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        assigned=assigned,
    )


def _give_up_unsubscribed(current: CurrentAssignment, goal: Goal) -> CurrentAssignment:
    """Ask for the partitions of topics that the member has unsubscribed."""
    # A new target may be some time away (`group.consumer.assignment.interval.ms`), and until then
    # the member would be assigned topics that it does not want.
    gone = current.assigned.keys() - goal.topic_ids if goal.has_subscription_changed else ()
    if not gone:
        return current
    assigned = {each: epochs for each, epochs in current.assigned.items() if each not in gone}
    given_up = {each: epochs for each, epochs in current.assigned.items() if each in gone}
    if not _has_any(goal.reported, given_up):
        # It unsubscribes and gives them up in one heartbeat.
        return replace(current, assigned=assigned)
    revoking = {each: dict(epochs) for each, epochs in current.revoking.items()}
    for topic_id, epochs in given_up.items():
        revoking.setdefault(topic_id, {}).update(epochs)
    return replace(
        current,
        previous_epoch=current.epoch,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned=assigned,
        revoking=revoking,
    )


def _target(goal: Goal, topic_id: UUID) -> frozenset[int]:
    if topic_id not in goal.topic_ids:
        return frozenset()
    return goal.target.get(topic_id, frozenset())


def _has_any(reported: Partitions | None, asked_back: Assigned) -> bool:
    """Whether a member has partitions that it was to give up; True if it does not say."""
    if not asked_back:
        return False
    if reported is None:
        return True
    return any(
        not reported.get(each, frozenset()).isdisjoint(epochs)
        for each, epochs in asked_back.items()
    )
