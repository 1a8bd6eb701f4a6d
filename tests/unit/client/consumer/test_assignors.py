"""Assignors assign what Kafka's assignors of the same name assign to the same members."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.consumer.membership.assignors import (
    Assignments,
    Assignor,
    RebalanceProtocol,
    assign_ranges,
    member_order,
)
from tailrace.client.consumer.membership.leading import common_protocol, make_assignors
from tailrace.client.consumer.membership.subscriptions import (
    MemberSubscription,
    OwnedPartitions,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from tailrace.model import TopicPartition
from tailrace.protocol.java_strings import hash_map_order, java_hash
from tests.unit.client.consumer.member_stage import partitions

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
STICKY = ("sticky", "cooperative-sticky")
TOPICS = {"t1": 6, "t2": 7, "t3": 2}
EVEN = (("t1", "t2", "t3"),) * 3
UNEVEN = (*EVEN[:2], ("t1", "t3"))
RACKS = ("a", "b", "c")


def assignor_of(name: str) -> Assignor:
    """A new assignor."""
    [made] = make_assignors((name,))
    return made


def parsed(text: str) -> tuple[TopicPartition, ...]:
    """Partitions from `t1-0 t2-3`."""
    pairs = (each.rsplit("-", 1) for each in text.split())
    return tuple(TopicPartition(topic, int(number)) for topic, number in pairs)


def shown(assignments: Assignments) -> list[str]:
    """The partitions of each member, by member id."""
    return [" ".join(map(str, sorted(assignments[each]))) for each in sorted(assignments)]


def replicas(
    topics: dict[str, int], factor: int, racks: Sequence[str]
) -> dict[str, tuple[frozenset[str], ...]]:
    """Replicas go round the brokers, one of them in each of the racks."""
    placed, start = {}, 0
    for topic, count in topics.items():
        placed[topic] = tuple(
            frozenset(racks[(start + number + each) % len(racks)] for each in range(factor))
            if racks
            else frozenset()
            for number in range(count)
        )
        start += count
    return placed


def assigned(
    name: str,
    topics: dict[str, int],
    subscribed: Sequence[Sequence[str]],
    *,
    owned: Sequence[str] = (),
    factor: int = 3,
    brokers: Sequence[str] = (),
    consumers: Sequence[str | None] = (),
    generation: int = -1,
) -> list[str]:
    """Return the assignments of members `consumer0`, `consumer1`, ..."""
    members = {}
    for index, wanted in enumerate(subscribed):
        has = parsed(owned[index]) if owned else ()
        members[f"consumer{index}"] = MemberSubscription(
            topics=tuple(wanted),
            owned=has if name == "cooperative-sticky" else (),
            user_data=encode_sticky(has, generation) if name == "sticky" and owned else None,
            generation=generation if generation >= 0 else None,
            rack=consumers[index] if consumers else None,
        )
    return shown(assignor_of(name).assign(replicas(topics, factor, brokers), members))


@pytest.mark.parametrize("name", NAMES)
def test_a_member_gets_nothing_of_topics_that_do_not_exist(name: str) -> None:
    """Nor without a subscription."""
    assert assigned(name, {}, [["t1"]]) == [""]
    assert assigned(name, {"t1": 3}, [[]]) == [""]


@pytest.mark.parametrize("name", NAMES)
def test_a_single_member_gets_all_partitions_of_its_topics(name: str) -> None:
    """And none of others."""
    assert assigned(name, {"t1": 3, "t2": 2}, [["t1"]]) == ["t1-0 t1-1 t1-2"]
    assert assigned(name, {"t1": 1, "t2": 2}, [["t1", "t2"]]) == ["t1-0 t2-0 t2-1"]


@pytest.mark.parametrize("name", NAMES)
def test_two_members_share_a_topic(name: str) -> None:
    """With a single partition, the second one gets nothing."""
    assert assigned(name, {"t1": 1}, [["t1"]] * 2) == ["t1-0", ""]
    assert assigned(name, {"t1": 2}, [["t1"]] * 2) == ["t1-0", "t1-1"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("range", ["t1-0", "t1-1 t2-0 t2-1", "t1-2"]),
        ("roundrobin", ["t1-0", "t1-1 t2-0 t2-1", "t1-2"]),
        ("sticky", ["t1-2", "t2-0 t2-1", "t1-0 t1-1"]),
        ("cooperative-sticky", ["t1-2", "t2-0 t2-1", "t1-0 t1-1"]),
    ],
)
def test_only_subscribers_of_a_topic_share_it(name: str, expected: list[str]) -> None:
    """The second of three members subscribes to a second topic."""
    found = assigned(name, {"t1": 3, "t2": 2}, [["t1"], ["t1", "t2"], ["t1"]])
    assert sum(len(each.split()) for each in found) == 5
    if name in STICKY:
        assert sorted(len(each.split()) for each in found) == [1, 2, 2]
        assert "t2-0 t2-1" in found[1]
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("range", ["t1-0 t1-1 t2-0 t2-1", "t1-2 t2-2"]),
        ("roundrobin", ["t1-0 t1-2 t2-1", "t1-1 t2-0 t2-2"]),
        ("sticky", ["t1-0 t1-2 t2-1", "t1-1 t2-0 t2-2"]),
        ("cooperative-sticky", ["t1-0 t1-2 t2-1", "t1-1 t2-0 t2-2"]),
    ],
)
def test_two_members_share_two_topics(name: str, expected: list[str]) -> None:
    """Six partitions."""
    assert assigned(name, {"t1": 3, "t2": 3}, [["t1", "t2"]] * 2) == expected


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_come_first_by_instance_id(name: str) -> None:
    """So their partitions do not depend on member ids, which change."""
    topics = replicas({"t1": 5}, 1, ())
    for ids in (("z", "y", "a"), ("k", "l", "b")):
        members = {
            ids[0]: MemberSubscription(topics=("t1",), instance_id="i1"),
            ids[1]: MemberSubscription(topics=("t1",), instance_id="i2"),
            ids[2]: MemberSubscription(topics=("t1",)),
        }
        assert sorted(members, key=lambda each: member_order(members, each)) == list(ids)
        found = assignor_of(name).assign(topics, members)
        assert [len(found[each]) for each in ids] == [2, 2, 1]
        assert found[ids[0]][0] == TopicPartition("t1", 0)


RANGE_BY_RACK: list[Any] = [
    (TOPICS, EVEN, 1, 3, RACKS, ("t1-0 t1-3 t2-0 t2-3 t2-6|t1-1 t1-4 t2-1 t2-4 t3-0|"
     "t1-2 t1-5 t2-2 t2-5 t3-1")),
    (TOPICS, EVEN, 2, 3, RACKS, ("t1-0 t1-2 t2-0 t2-2 t2-3 t3-1|t1-1 t1-3 t2-1 t2-4 t3-0|"
     "t1-4 t1-5 t2-5 t2-6")),
    (TOPICS, EVEN, 3, 3, RACKS, ("t1-0 t1-1 t2-0 t2-1 t2-2 t3-0|t1-2 t1-3 t2-3 t2-4 t3-1|"
     "t1-4 t1-5 t2-5 t2-6")),
    (TOPICS, EVEN, 3, 0, RACKS, ("t1-0 t1-1 t2-0 t2-1 t2-2 t3-0|t1-2 t1-3 t2-3 t2-4 t3-1|"
     "t1-4 t1-5 t2-5 t2-6")),
    (TOPICS, EVEN, 3, 3, ("d", "e", "f"), ("t1-0 t1-1 t2-0 t2-1 t2-2 t3-0|"
     "t1-2 t1-3 t2-3 t2-4 t3-1|t1-4 t1-5 t2-5 t2-6")),
    (TOPICS, UNEVEN, 1, 3, RACKS, ("t1-0 t1-3 t2-0 t2-2 t2-3 t2-6|t1-1 t1-4 t2-1 t2-4 t2-5 t3-0|"
     "t1-2 t1-5 t3-1")),
    (TOPICS, UNEVEN, 2, 3, RACKS, ("t1-0 t1-2 t2-0 t2-2 t2-3 t2-5 t3-1|"
     "t1-1 t1-3 t2-1 t2-4 t2-6 t3-0|t1-4 t1-5")),
    ({"t1": 5, "t2": 5, "t3": 5}, EVEN, 1, 3, RACKS, ("t1-0 t1-1 t2-0 t2-1 t3-0 t3-1|"
     "t1-2 t1-3 t2-2 t2-3 t3-2 t3-3|t1-4 t2-4 t3-4")),
    ({"t1": 5, "t2": 5, "t3": 5}, UNEVEN, 1, 3, RACKS, ("t1-0 t1-1 t2-0 t2-1 t2-4 t3-0 t3-1|"
     "t1-2 t1-3 t2-2 t2-3 t3-2 t3-3|t1-4 t3-4")),
    ({"t1": 5, "t2": 5, "t3": 5}, UNEVEN, 2, 3, RACKS, ("t1-2 t2-0 t2-1 t2-3 t3-2|"
     "t1-0 t1-3 t2-2 t2-4 t3-0 t3-3|t1-1 t1-4 t3-1 t3-4")),
    ({"t1": 6, "t2": 6, "t3": 2, "t4": 2}, (("t1", "t2"),) * 2 + (("t3", "t4"),) * 2, 1, 2,
     ("a", "b", "b", "a"), ("t1-0 t1-2 t1-4 t2-0 t2-2 t2-4|t1-1 t1-3 t1-5 t2-1 t2-3 t2-5|"
     "t3-1 t4-1|t3-0 t4-0")),
    ({"t1": 6, "t2": 6, "t3": 2, "t4": 2}, (("t1", "t2", "t3", "t4"),) * 4, 1, 3,
     ("a", "b", "b", "a"), ("t1-0 t1-3 t2-0 t2-3 t3-0 t4-0|t1-1 t1-4 t2-1 t2-4 t3-1 t4-1|"
     "t1-2 t2-2|t1-5 t2-5")),
]  # fmt: skip
"""Topics, subscriptions, replication factor, racks of brokers, racks of members; and what each
member gets: results of Kafka's RangeAssignor."""


@pytest.mark.parametrize(
    ("topics", "subscribed", "factor", "racks", "consumers", "expected"), RANGE_BY_RACK
)
def test_ranges_prefer_replicas_in_the_rack_of_a_member(
    topics: dict[str, int],
    subscribed: Any,
    factor: int,
    racks: int,
    consumers: Any,
    expected: str,
) -> None:
    """Shares stay even, and topics with the same partitions stay together (KIP-881)."""
    found = assigned(
        "range",
        topics,
        subscribed,
        factor=factor,
        brokers=RACKS[:racks],
        consumers=consumers,
    )
    assert found == expected.split("|")


STICKY_EVEN = "t1-0 t1-3 t2-0 t2-3 t2-6|t1-1 t1-4 t2-1 t2-4 t3-0|t1-2 t1-5 t2-2 t2-5 t3-1"
STICKY_UNEVEN = "t1-5 t2-0 t2-2 t2-4 t2-6|t1-3 t2-1 t2-3 t2-5 t3-0|t1-0 t1-1 t1-2 t1-4 t3-1"
STICKY_UNEVEN_1 = "t1-3 t2-0 t2-2 t2-3 t2-6|t1-4 t2-1 t2-4 t2-5 t3-0|t1-0 t1-1 t1-2 t1-5 t3-1"
STICKY_UNEVEN_2 = "t1-3 t2-0 t2-2 t2-5 t2-6|t1-0 t2-1 t2-3 t2-4 t3-0|t1-1 t1-2 t1-4 t1-5 t3-1"


@pytest.mark.parametrize("name", STICKY)
@pytest.mark.parametrize(
    ("subscribed", "factor", "racks", "consumers", "expected"),
    [
        (EVEN, 3, 0, RACKS, STICKY_EVEN),
        (EVEN, 3, 3, RACKS, STICKY_EVEN),
        (EVEN, 3, 3, ("d", "e", "f"), STICKY_EVEN),
        (EVEN, 1, 3, RACKS, STICKY_EVEN),
        (EVEN, 2, 3, RACKS, STICKY_EVEN),
        (EVEN, 2, 2, RACKS, STICKY_EVEN),
        (UNEVEN, 3, 0, RACKS, STICKY_UNEVEN),
        (UNEVEN, 3, 3, RACKS, STICKY_UNEVEN),
        (UNEVEN, 1, 3, RACKS, STICKY_UNEVEN_1),
        (UNEVEN, 2, 3, RACKS, STICKY_UNEVEN_2),
    ],
)
def test_sticky_members_without_partitions_get_what_kafka_gives_them(
    name: str, subscribed: Any, factor: int, racks: int, consumers: Any, expected: str
) -> None:
    """With and without racks; and they keep it in the next rebalance."""
    told = {"factor": factor, "brokers": RACKS[:racks], "consumers": consumers}
    first = assigned(name, TOPICS, subscribed, **told)
    assert first == expected.split("|")
    assert assigned(name, TOPICS, subscribed, owned=first, **told) == first


OWNED = ("t1-0 t1-1 t1-2 t1-3 t1-4", "t1-5 t2-0 t2-1 t2-2 t2-3", "t2-4 t2-5 t2-6 t3-0 t3-1")


@pytest.mark.parametrize(
    ("subscribed", "factor", "steps"),
    [
        (EVEN, 1, ["t1-0 t1-3|t2-1|t2-5 t3-1"]),
        (UNEVEN, 1, ["t1-3|t2-1|t3-1", STICKY_UNEVEN_1]),
        (
            UNEVEN,
            3,
            [
                "t1-2 t1-3 t1-4|t2-0 t2-1 t2-2 t2-3|t3-0 t3-1",
                "t1-2 t1-3 t1-4 t2-4 t2-5|t2-0 t2-1 t2-2 t2-3 t2-6|t1-0 t1-1 t1-5 t3-0 t3-1",
            ],
        ),
    ],
)
def test_cooperative_members_give_up_before_others_get(
    subscribed: Any, factor: int, steps: list[str]
) -> None:
    """In the first rebalance a partition that moves is nobody's; in the second it arrives."""
    owned: Sequence[str] = OWNED
    for expected in steps:
        owned = assigned(
            "cooperative-sticky",
            TOPICS,
            subscribed,
            owned=owned,
            factor=factor,
            brokers=RACKS,
            consumers=RACKS,
        )
        assert owned == expected.split("|")


@pytest.mark.parametrize(
    ("subscribed", "factor", "expected"),
    [(EVEN, 1, STICKY_EVEN), (UNEVEN, 1, STICKY_UNEVEN_1), (UNEVEN, 3, STICKY_UNEVEN)],
)
def test_sticky_members_move_for_their_racks(subscribed: Any, factor: int, expected: str) -> None:
    """Without a generation, what they owned counts as old."""
    found = assigned(
        "sticky",
        TOPICS,
        subscribed,
        owned=OWNED,
        factor=factor,
        brokers=RACKS,
        consumers=RACKS,
    )
    assert len({each for share in found for each in share.split()}) == 15
    if factor == 1:
        assert found == expected.split("|")


@pytest.mark.parametrize("name", STICKY)
def test_a_new_member_takes_no_more_than_its_share(name: str) -> None:
    """The others keep all but what they have too much of."""
    owned = ["t1-0 t1-1 t1-2", "t1-3 t1-4 t1-5", ""]
    found = assigned(name, {"t1": 6}, [["t1"]] * 3, owned=owned, generation=1)
    kept = ["t1-0 t1-1", "t1-3 t1-4"]
    assert found[:2] == kept
    assert found[2] == ("t1-2 t1-5" if name == "sticky" else "")


@pytest.mark.parametrize("name", STICKY)
def test_the_partitions_of_a_member_that_left_are_shared(name: str) -> None:
    """Nobody else moves."""
    owned = ["t1-0 t1-1", "t1-2 t1-3"]
    found = assigned(name, {"t1": 6}, [["t1"]] * 2, owned=owned, generation=1)
    assert found == ["t1-0 t1-1 t1-4", "t1-2 t1-3 t1-5"]


@pytest.mark.parametrize("name", STICKY)
@pytest.mark.parametrize("generations", [(1, 2), (2, 1)])
def test_the_newer_generation_has_a_partition_that_two_claim(
    name: str, generations: tuple[int, int]
) -> None:
    """Also the user data of `sticky` names it."""
    members = {
        f"consumer{index}": MemberSubscription(
            topics=("t1",),
            owned=parsed("t1-0 t1-1"),
            user_data=encode_sticky(parsed("t1-0 t1-1"), generation),
            generation=generation,
        )
        for index, generation in enumerate(generations)
    }
    found = shown(assignor_of(name).assign(replicas({"t1": 4}, 1, ()), members))
    winner = generations.index(2)
    assert found[winner] == "t1-0 t1-1"
    assert found[1 - winner] == "t1-2 t1-3"


def test_two_members_of_one_generation_that_claim_a_partition_both_give_it_up() -> None:
    """Cooperative: it is nobody's in the next generation."""
    owned = ["t1-0 t1-1", "t1-0 t1-2"]
    found = assigned("cooperative-sticky", {"t1": 3}, [["t1"]] * 2, owned=owned, generation=1)
    assert found == ["t1-1", "t1-2"]


@pytest.mark.parametrize("name", STICKY)
def test_partitions_that_do_not_exist_are_not_kept(name: str) -> None:
    """The topic was made anew with fewer, or is gone; nothing is assigned twice."""
    owned = ["t1-0 t1-7 t9-0", "t1-1"]
    found = assigned(name, {"t1": 3}, [["t1", "t9"]] * 2, owned=owned, generation=1)
    assert found == ["t1-0 t1-2", "t1-1"]


@pytest.mark.parametrize("name", STICKY)
def test_a_member_is_not_assigned_topics_that_it_does_not_want(name: str) -> None:
    """A member without any topic, and one that has changed its mind."""
    assert assigned(name, {"t1": 4}, [["t1"], []]) == ["t1-0 t1-1 t1-2 t1-3", ""]
    owned = ["t1-0 t1-1", "t2-0 t2-1"]
    found = assigned(name, {"t1": 2, "t2": 2}, [["t2"], ["t1", "t2"]], owned=owned, generation=1)
    assert "t1" not in found[0]


def test_earlier_owners_get_partitions_back() -> None:
    """Sticky members of three generations: what moves goes to the one that had it before."""
    members = {
        "consumer1": (("t1", "t2"), "t1-0 t1-2", 3),
        "consumer2": (("t1", "t2", "t3"), "t1-0 t1-1", 2),
        "consumer3": (("t1",), "t1-1 t1-3", 1),
    }
    subscriptions = {
        name: MemberSubscription(topics=topics, user_data=encode_sticky(parsed(owned), generation))
        for name, (topics, owned, generation) in members.items()
    }
    topics = replicas({"t1": 4, "t2": 1, "t3": 1}, 1, ())
    found = assignor_of("sticky").assign(topics, subscriptions)
    assert sorted(each for share in found.values() for each in share) == sorted(
        parsed("t1-0 t1-1 t1-2 t1-3 t2-0 t3-0")
    )
    assert max(len(each) for each in found.values()) - min(map(len, found.values())) <= 1


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        # t1-0 was claimed in generation 2 by two: the first in the order of a Java map counts.
        ((("t1", "", 3), ("t1", "t1-0", 2), ("t1 t2", "t1-0 t1-1", 2)), "t1-1|t1-0|t2-0"),
        # m2's claim of t1-1 is newer than m0's, and comes after it.
        ((("t1", "t1-1", 1), ("t1", "t1-1", 3), ("t1 t2", "t1-0 t1-1", 2)), "t1-0|t1-1|t2-0 t2-1"),
        # m1's claim of t1-0 is newer than m2's, and comes before it.
        ((("t1", "t1-0 t1-1", 3), ("t1", "t1-0", 2), ("t1 t2", "t1-0 t1-1 t2-0", 1)),
         "t1-1|t1-0|t2-0"),
    ],
    ids=["equal", "newer comes later", "newer comes first"],
)  # fmt: skip
def test_of_earlier_owners_the_newest_gets_a_partition_back(
    members: Sequence[tuple[str, str, int]], expected: str
) -> None:
    """Members of older generations than the newest: the last of them had the partition before."""
    subscriptions = {
        f"m{index}": MemberSubscription(
            topics=tuple(topics.split()), user_data=encode_sticky(parsed(owned), generation)
        )
        for index, (topics, owned, generation) in enumerate(members)
    }
    counts = {"t1": 2, "t2": 2 if "t2-1" in expected else 1}
    found = assignor_of("sticky").assign(replicas(counts, 1, ()), subscriptions)
    assert shown(found) == expected.split("|")


def play_rebalances(name: str, seed: int, *, is_even: bool) -> None:
    """Have members come and go, and check every assignment."""
    chance = random.Random(seed)
    counts = {f"t{number}": chance.randrange(1, 9) for number in range(chance.randrange(1, 6))}
    assignors: dict[str, Assignor] = {}
    owned: dict[str, tuple[TopicPartition, ...]] = {}
    wanted: dict[str, tuple[str, ...]] = {}
    for generation in range(1, 7):
        for number in range(chance.randrange(1, 5)):
            assignors.setdefault(f"m{generation}-{number}", assignor_of(name))
        for gone in chance.sample(sorted(assignors), chance.randrange(len(assignors))):
            del assignors[gone]
            owned.pop(gone, None)
        every = tuple(counts)
        for each in assignors:
            some = tuple(chance.sample(every, chance.randrange(1, len(every) + 1)))
            wanted.setdefault(each, every if is_even else some)
        members = {
            each: MemberSubscription(
                topics=wanted[each],
                owned=owned.get(each, ()) if name == "cooperative-sticky" else (),
                generation=generation - 1,
                user_data=made.user_data(),
            )
            for each, made in assignors.items()
        }
        leader = assignors[chance.choice(sorted(assignors))]
        found = leader.assign(replicas(counts, 1, ()), members)
        check(name, found, members, counts, is_even=is_even)
        for each, made in assignors.items():
            owned[each] = tuple(found[each])
            made.assigned(owned[each], generation)


def check(
    name: str,
    found: Assignments,
    members: dict[str, MemberSubscription],
    counts: dict[str, int],
    *,
    is_even: bool,
) -> None:
    """Check that no partition is assigned twice, unwanted, or to nobody."""
    assert found.keys() == members.keys()
    every = [each for share in found.values() for each in share]
    assert len(every) == len(set(every))
    for member_id, share in found.items():
        assert all(each.topic in members[member_id].topics for each in share)
    held = {each: who for who, member in members.items() for each in member.owned}
    if name == "cooperative-sticky":
        for member_id, share in found.items():
            # What another one owns, it has to revoke first.
            assert all(held.get(each, member_id) == member_id for each in share)
    free = set(held) if name == "cooperative-sticky" else set()
    wanted = {
        TopicPartition(topic, number)
        for topic, count in counts.items()
        for number in range(count)
        if any(topic in member.topics for member in members.values())
    }
    assert wanted - set(every) <= free
    sizes = [len(share) for share in found.values()]
    if is_even and name in {"sticky", "roundrobin"}:
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("is_even", [True, False], ids=["even", "uneven"])
@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**32))
def test_any_group_is_assigned_each_partition_once(name: str, seed: int, *, is_even: bool) -> None:
    """Members come, go and want different topics; shares are even where they can be."""
    play_rebalances(name, seed, is_even=is_even)


@pytest.mark.parametrize("name", STICKY)
@given(st.data())
def test_nobody_moves_when_nothing_has_changed(name: str, data: st.DataObject) -> None:
    """The second rebalance of the same members assigns what they have."""
    counts = data.draw(st.dictionaries(st.sampled_from(["t1", "t2", "t3"]), st.integers(1, 7)))
    topics = st.lists(st.sampled_from(["t1", "t2", "t3"]), unique=True, min_size=1)
    subscribed = data.draw(st.lists(topics, min_size=1, max_size=5))
    first = assigned(name, counts, subscribed)
    assert assigned(name, counts, subscribed, owned=first, generation=1) == first


def test_a_large_group_is_assigned_in_time() -> None:
    """2,000 partitions of 20 topics to 100 members, half of which want only some."""
    counts = {f"t{number}": 100 for number in range(20)}
    some = tuple(list(counts)[:10])
    subscribed = [tuple(counts) if index % 2 else some for index in range(100)]
    found = assigned("cooperative-sticky", counts, subscribed)
    assert sorted({len(each.split()) for each in found}) == [20]


def test_user_data_of_sticky_survives_its_bytes() -> None:
    """Partitions and generation; old ones have none, and others count as nothing owned."""
    assert decode_sticky(encode_sticky(partitions(1, 2), 5)) == (partitions(1, 2), 5)
    old = encode_sticky(partitions(1), 5)[:-4]
    assert decode_sticky(old) == (partitions(1), None)
    assert decode_sticky(b"\x7f\0\0\0") == OwnedPartitions((), -1)
    assert decode_sticky(None) == OwnedPartitions((), None)
    assert decode_sticky(b"") == OwnedPartitions((), None)


def test_user_data_of_cooperative_sticky_survives_its_bytes() -> None:
    """The generation; -1 if it cannot be read."""
    assert decode_generation(encode_generation(7)) == 7
    assert decode_generation(b"\0") == -1
    assert decode_generation(None) is None


def test_the_generation_of_the_subscription_counts_before_user_data() -> None:
    """Cooperative members of Kafka 3.2 and later have it in a field (KIP-792)."""
    members = {
        "consumer0": MemberSubscription(
            topics=("t1",), owned=parsed("t1-0"), generation=2, user_data=encode_generation(1)
        ),
        "consumer1": MemberSubscription(
            topics=("t1",), owned=parsed("t1-0"), generation=1, user_data=encode_generation(9)
        ),
    }
    found = assignor_of("cooperative-sticky").assign(replicas({"t1": 2}, 1, ()), members)
    assert shown(found) == ["t1-0", "t1-1"]


def test_a_sticky_member_tells_its_last_assignment() -> None:
    """Nothing before the first; a cooperative one tells its generation."""
    sticky = assignor_of("sticky")
    assert sticky.user_data() is None
    sticky.assigned(partitions(0), 4)
    assert decode_sticky(sticky.user_data()) == (partitions(0), 4)
    cooperative = assignor_of("cooperative-sticky")
    cooperative.assigned(partitions(0), 4)
    assert decode_generation(cooperative.user_data()) == 4


@pytest.mark.parametrize(
    ("names", "protocol"),
    [
        (("range", "cooperative-sticky"), RebalanceProtocol.EAGER),
        (("cooperative-sticky",), RebalanceProtocol.COOPERATIVE),
        (("roundrobin", "sticky"), RebalanceProtocol.EAGER),
    ],
)
def test_the_protocol_is_the_best_that_all_assignors_know(
    names: tuple[str, ...], protocol: RebalanceProtocol
) -> None:
    """Cooperative only if all of partition.assignment.strategy are."""
    assert common_protocol(make_assignors(names)) is protocol


def test_members_are_taken_in_the_order_of_a_java_map() -> None:
    """Which decides who keeps one partition more."""
    assert hash_map_order(["b", "a", "q"], java_hash) == ["a", "q", "b"]
    assert hash_map_order(["q", "a"], java_hash) == ["q", "a"]


def test_ranges_of_a_topic_without_subscribers_are_nobodys() -> None:
    """The leader may know more topics than the group."""
    members = {"m": MemberSubscription(topics=("t1",))}
    found = assign_ranges(replicas({"t1": 1, "t2": 1}, 1, ()), members)
    assert shown(found) == ["t1-0"]
