"""The assignor `range`: Kafka's scenarios, and what holds for any group."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.coordinator.groups.assignors import assign_range
from tests.unit.coordinator.groups_consumer.assigning import (
    check_is_valid,
    problem,
    targets,
    text,
)


def assigned(counts: dict[str, int], members: dict[str, str], **static: str) -> dict[str, str]:
    """Targets as text."""
    given_ = problem(counts, members, static=static)
    found = assign_range(given_)
    check_is_valid(given_, found)
    return {each: text(target) for each, target in found.items()}


def test_a_member_without_topics_gets_nothing() -> None:
    """Also one whose topics do not exist, and a group without members."""
    assert assigned({"a": 3}, {"m1": ""}) == {"m1": ""}
    assert assigned({"a": 3}, {"m1": "x"}) == {"m1": ""}
    assert assigned({"a": 3}, {}) == {}


def test_first_assignment_of_two_members_and_two_topics() -> None:
    """Equal subscriptions: the first member has the one more of each topic."""
    assert assigned({"a": 3, "b": 2}, {"m1": "ab", "m2": "ab"}) == {
        "m1": "a0 a1 b0", "m2": "a2 b1",
    }  # fmt: skip


def test_only_subscribers_of_a_topic_share_it() -> None:
    """Three members with three topics and different subscriptions."""
    found = assigned({"a": 3, "b": 3, "c": 2}, {"m1": "ab", "m2": "c", "m3": "bc"})
    assert found == {"m1": "a0 a1 a2 b0 b1", "m2": "c0", "m3": "b2 c1"}


def test_members_without_a_partition_are_the_last() -> None:
    """More members than partitions."""
    found = assigned({"a": 2, "b": 2}, dict.fromkeys(("m1", "m2", "m3"), "ab"))
    assert found == {"m1": "a0 b0", "m2": "a1 b1", "m3": ""}


def test_partitions_follow_from_members_and_topics_alone() -> None:
    """A member or a partition that is added, or removed, gives what a first assignment gives."""
    counts, members = {"a": 3, "b": 3}, {"m1": "ab", "m2": "ab"}
    grown = {"a": 4, "b": 3}
    before = targets(m1="a2 b1", m2="a0 b0")
    for now, subscribed in (
        (counts, members),
        (grown, members),
        (counts, {**members, "m3": "ab"}),
        (grown, {**members, "m3": "ab"}),
        (counts, {"m2": "ab"}),
        (counts, {"m1": "b", "m2": "ab"}),
    ):
        fresh = assign_range(problem(now, subscribed))
        assert assign_range(problem(now, subscribed, before=before)) == fresh
        assert assign_range(problem(now, subscribed, before=fresh)) == fresh


def test_static_members_are_ranked_by_instance_id() -> None:
    """One that comes back with another member id gets the same partitions."""
    counts = {"a": 3}
    first = assigned(counts, {"zz": "a", "yy": "a", "xx": "a"}, zz="i1", yy="i2", xx="i3")
    assert first == {"zz": "a0", "yy": "a1", "xx": "a2"}
    again = assigned(counts, {"new": "a", "yy": "a", "xx": "a"}, new="i1", yy="i2", xx="i3")
    assert again == {"new": "a0", "yy": "a1", "xx": "a2"}


def test_static_members_come_before_dynamic_ones() -> None:
    """A dynamic member's random id does not move the partitions of static ones."""
    found = assigned({"a": 3}, {"aa": "a", "zz": "a", "bb": "a"}, zz="i9")
    assert found == {"zz": "a0", "aa": "a1", "bb": "a2"}


@given(
    counts=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 12), min_size=1),
    subscriptions=st.lists(st.text("abcde", max_size=5), max_size=8),
)
def test_subscribers_of_a_topic_differ_by_at_most_one_partition(
    counts: dict[str, int], subscriptions: list[str]
) -> None:
    """In each topic, and the partitions of each are neighbours."""
    members = {f"m{index}": each for index, each in enumerate(subscriptions)}
    given_ = problem(counts, members)
    found = assign_range(given_)
    check_is_valid(given_, found)
    for each in given_.partition_counts:
        shares = [
            sorted(found[member_id].get(each, ()))
            for member_id, member in given_.members.items()
            if each in member.topic_ids
        ]
        assert max(map(len, shares), default=0) - min(map(len, shares), default=0) <= 1
        for share in shares:
            assert not share or share == list(range(share[0], share[-1] + 1))
