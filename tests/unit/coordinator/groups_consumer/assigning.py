"""Short ways to state an assignment: topics are letters, members are named."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from tailrace.coordinator.groups.assignors import AssignedMember, Problem
from tailrace.coordinator.groups.consumer_group import Partitions


def topic_id(letter: str) -> UUID:
    """The id of a topic."""
    return UUID(int=ord(letter))


def partitions(text: str) -> Partitions:
    """Partitions as in `a0 a1 b2`."""
    found: dict[UUID, set[int]] = {}
    for each in text.split():
        found.setdefault(topic_id(each[0]), set()).add(int(each[1:]))
    return {each: frozenset(numbers) for each, numbers in found.items()}


def text(assigned: Partitions) -> str:
    """The reverse of `partitions`, in order."""
    return " ".join(
        f"{chr(each.int)}{number}" for each in sorted(assigned) for number in sorted(assigned[each])
    )


def problem(
    counts: Mapping[str, int],
    members: Mapping[str, str],
    *,
    before: Mapping[str, Partitions] | None = None,
    static: Mapping[str, str] | None = None,
) -> Problem:
    """Topics with their partition counts, and members with the letters of their topics.

    Topics without a count do not exist; `before` are targets, `static` instance ids.
    """
    return Problem(
        members={
            member_id: AssignedMember(
                topic_ids=frozenset(topic_id(each) for each in letters if each in counts),
                target=(before or {}).get(member_id, {}),
                instance_id=(static or {}).get(member_id),
            )
            for member_id, letters in members.items()
        },
        partition_counts={topic_id(each): count for each, count in counts.items()},
    )


def targets(**members: str) -> dict[str, Partitions]:
    """Targets as text, by member."""
    return {each: partitions(target) for each, target in members.items()}


def sizes(assigned: Mapping[str, Partitions]) -> list[int]:
    """Numbers of partitions of the members, rising."""
    return sorted(sum(map(len, each.values())) for each in assigned.values())


def check_is_valid(given: Problem, assigned: Mapping[str, Partitions]) -> None:
    """Each partition of each subscribed topic has one owner, who subscribes to it."""
    assert assigned.keys() == given.members.keys()
    owned: dict[UUID, list[int]] = {}
    for member_id, target in assigned.items():
        assert target.keys() <= given.members[member_id].topic_ids
        for each, numbers in target.items():
            assert numbers
            owned.setdefault(each, []).extend(numbers)
    wanted: Iterable[UUID] = frozenset().union(*(each.topic_ids for each in given.members.values()))
    for each in wanted:
        assert sorted(owned.pop(each, [])) == list(range(given.partition_counts[each]))
    assert owned == {}


def moved(before: Mapping[str, Partitions], after: Mapping[str, Partitions]) -> int:
    """Number of partitions that members had and have lost."""
    return sum(
        len(numbers - after.get(member_id, {}).get(each, frozenset()))
        for member_id, target in before.items()
        for each, numbers in target.items()
    )
