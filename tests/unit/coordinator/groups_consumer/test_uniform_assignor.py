"""The assignor `uniform`: Kafka's scenarios, and what holds for any group."""

import random

from hypothesis import given
from hypothesis import strategies as st

from tailrace.coordinator.groups.assignors import AssignedMember, Problem, assign_uniform
from tailrace.coordinator.groups.consumer_group import Partitions
from tests.unit.coordinator.groups_consumer.assigning import (
    check_is_valid,
    moved,
    problem,
    sizes,
    targets,
    topic_id,
)


def assigned(given_: Problem) -> dict[str, Partitions]:
    """A valid assignment."""
    found = assign_uniform(given_)
    check_is_valid(given_, found)
    return found


# Equal subscriptions


def test_members_without_topics_get_nothing() -> None:
    """Also where the topics do not exist, and a group without members."""
    assert assigned(problem({"a": 3}, {"m1": ""})) == {"m1": {}}
    assert assigned(problem({"a": 3}, {"m1": "x"})) == {"m1": {}}
    assert assigned(problem({"a": 3}, {})) == {}


def test_first_assignment_is_even() -> None:
    """Two members and two topics; five partitions are three and two."""
    assert sizes(assigned(problem({"a": 3, "b": 2}, {"m1": "ab", "m2": "ab"}))) == [2, 3]


def test_more_members_than_partitions_have_one_or_none() -> None:
    """Two partitions and three members."""
    found = assigned(problem({"a": 2}, dict.fromkeys(("m1", "m2", "m3"), "a")))
    assert sizes(found) == [0, 1, 1]


def test_large_groups_are_valid_and_balanced() -> None:
    """Fifty members and hundreds of partitions."""
    counts = dict.fromkeys("abcdefghij", 37)
    found = assigned(problem(counts, {f"m{index}": "abcdefghij" for index in range(50)}))
    assert sizes(found) == [7] * 30 + [8] * 20


def test_an_even_assignment_is_kept() -> None:
    """Nothing moves without a need, in whichever order members come."""
    before = targets(m1="a0 a2 b1", m2="a1 b0 b2")
    for members in ({"m1": "ab", "m2": "ab"}, {"m2": "ab", "m1": "ab"}):
        assert assigned(problem({"a": 3, "b": 3}, members, before=before)) == before


def test_an_extra_partition_stays_where_it_is() -> None:
    """The last member has it, and earlier members do not take it."""
    before = targets(m1="a0", m2="a1", m3="a2 a3")
    members = dict.fromkeys(("m1", "m2", "m3"), "a")
    assert assigned(problem({"a": 4}, members, before=before)) == before


def test_an_uneven_assignment_becomes_even_and_moves_no_more_than_it_must() -> None:
    """Two members and two topics, of which one has nearly all."""
    before = targets(m1="a0 a1 a2 b0 b1", m2="b2")
    found = assigned(problem({"a": 3, "b": 3}, {"m1": "ab", "m2": "ab"}, before=before))
    assert sizes(found) == [3, 3]
    assert moved(before, found) == 2


def test_new_partitions_go_to_members_and_old_ones_stay() -> None:
    """Two topics grow."""
    before = targets(m1="a0 a2 b0", m2="a1 b1 b2")
    found = assigned(problem({"a": 5, "b": 5}, {"m1": "ab", "m2": "ab"}, before=before))
    assert sizes(found) == [5, 5]
    assert moved(before, found) == 0


def test_a_new_member_gets_its_share_and_no_more_moves() -> None:
    """Two members become three."""
    before = targets(m1="a0 a2 b0", m2="a1 b1 b2")
    members = dict.fromkeys(("m1", "m2", "m3"), "ab")
    found = assigned(problem({"a": 3, "b": 3}, members, before=before))
    assert sizes(found) == [2, 2, 2]
    assert moved(before, found) == 2


def test_what_a_gone_member_had_goes_to_the_others() -> None:
    """Three members become two."""
    before = targets(m1="a0 b0", m2="a1 b1", m3="a2 b2")
    found = assigned(problem({"a": 3, "b": 3}, {"m1": "ab", "m2": "ab"}, before=before))
    assert sizes(found) == [3, 3]
    assert moved({each: before[each] for each in ("m1", "m2")}, found) == 0


def test_topics_that_nobody_subscribes_to_any_more_are_given_up() -> None:
    """Also partitions of a topic that has been made anew with fewer."""
    before = targets(m1="a0 a1 b0", m2="a2 b1 b2")
    found = assigned(problem({"a": 3, "b": 3}, {"m1": "b", "m2": "b"}, before=before))
    assert sizes(found) == [1, 2]
    assert topic_id("a") not in found["m1"].keys() | found["m2"].keys()
    found = assigned(problem({"a": 1, "b": 3}, {"m1": "ab", "m2": "ab"}, before=before))
    assert sizes(found) == [2, 2]


# Mixed subscriptions


def test_a_member_without_a_subscription_gets_nothing_of_the_others() -> None:
    """Nor one whose topic does not exist."""
    found = assigned(problem({"a": 3}, {"m1": "a", "m2": ""}))
    assert sizes(found) == [0, 3]
    found = assigned(problem({"a": 3, "b": 1}, {"m1": "ab", "m2": "x"}))
    assert sizes(found) == [0, 4]


def test_mixed_subscriptions_share_as_evenly_as_they_can() -> None:
    """The member that alone wants a topic gets less of the shared one."""
    found = assigned(problem({"a": 3, "b": 3, "c": 3}, {"m1": "abc", "m2": "bc", "m3": "c"}))
    assert sizes(found) == [3, 3, 3]
    assert found["m1"] == targets(m="a0 a1 a2")["m"]


def test_more_members_than_partitions_with_mixed_subscriptions() -> None:
    """Nobody has two while another has none."""
    found = assigned(problem({"a": 2, "b": 1}, {"m1": "a", "m2": "ab", "m3": "a", "m4": "b"}))
    assert max(sizes(found)) == 1


def test_a_balanced_mixed_assignment_is_kept() -> None:
    """Nothing moves without a need."""
    before = targets(m1="a0 a1 a2", m2="b0 b1 b2", m3="c0 c1 c2")
    members = {"m1": "abc", "m2": "bc", "m3": "c"}
    assert assigned(problem({"a": 3, "b": 3, "c": 3}, members, before=before)) == before


def test_an_unbalanced_mixed_assignment_is_balanced() -> None:
    """One member has nearly all of what two want."""
    before = targets(m1="a0 a1 a2 b0 b1 b2 c0", m2="c1 c2")
    counts = {"a": 4, "b": 3, "c": 3}
    found = assigned(problem(counts, {"m1": "ab", "m2": "abc"}, before=before))
    assert sizes(found) == [5, 5]
    assert moved(before, found) == 2


def test_new_partitions_and_members_with_mixed_subscriptions() -> None:
    """Old partitions move only to a member that has too few."""
    before = targets(m1="a0 a1 a2", m2="b0 b1 b2")
    counts = {"a": 6, "b": 5}
    found = assigned(problem(counts, {"m1": "a", "m2": "ab"}, before=before))
    assert (sizes(found), moved(before, found)) == ([5, 6], 0)
    found = assigned(problem(counts, {"m1": "a", "m2": "ab", "m3": "ab"}, before=before))
    assert max(sizes(found)) - min(sizes(found)) <= 1


def test_what_a_gone_member_had_goes_to_others_that_want_it() -> None:
    """Three members with three topics become two."""
    before = targets(m1="a0 a1", m2="b0 b1", m3="c0 c1")
    found = assigned(problem({"a": 2, "b": 2, "c": 2}, {"m1": "ac", "m2": "bc"}, before=before))
    assert sizes(found) == [3, 3]
    assert moved({each: before[each] for each in ("m1", "m2")}, found) == 0


def test_a_member_gives_up_a_topic_that_it_has_unsubscribed() -> None:
    """The other takes all of it."""
    before = targets(m1="a0 a2 b0", m2="a1 b1 b2")
    found = assigned(problem({"a": 3, "b": 3}, {"m1": "a", "m2": "ab"}, before=before))
    assert found == targets(m1="a0 a1 a2", m2="b0 b1 b2")


def test_members_keep_nothing_where_topics_have_run_out() -> None:
    """Three members want two partitions; none is lost and none is given twice."""
    before = targets(m1="a0", m2="a1")
    found = assigned(problem({"a": 2, "b": 0}, {"m1": "a", "m2": "a", "m3": "ab"}, before=before))
    assert sizes(found) == [0, 1, 1]
    assert moved(before, found) == 0


@given(
    counts=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 12), min_size=1),
    subscriptions=st.lists(st.text("abcde", max_size=5), min_size=1, max_size=8),
    chance=st.randoms(use_true_random=False),
)
def test_any_assignment_is_valid_balanced_and_kept(
    counts: dict[str, int], subscriptions: list[str], chance: random.Random
) -> None:
    """After any targets before it: stale, doubled, of topics that are gone."""
    members = {f"m{index}": each for index, each in enumerate(subscriptions)}
    before = {
        member_id: {
            topic_id(each): frozenset(chance.sample(range(15), chance.randint(1, 6)))
            for each in chance.sample("abcdef", chance.randint(0, 4))
        }
        for member_id in members
    }
    given_ = problem(counts, members, before=before)
    found = assigned(given_)
    if given_.is_homogeneous:
        assert max(sizes(found)) - min(sizes(found)) <= 1
    loads = {each: sum(map(len, target.values())) for each, target in found.items()}
    for source, target in found.items():
        for topic in target:
            for other, member in given_.members.items():
                if topic in member.topic_ids:
                    assert loads[source] - loads[other] <= 1
    again = Problem(
        members={
            each: AssignedMember(topic_ids=member.topic_ids, target=found[each])
            for each, member in given_.members.items()
        },
        partition_counts=given_.partition_counts,
    )
    assert assigned(again) == found
