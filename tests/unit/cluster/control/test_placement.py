"""Placement of new replicas, with the numbers of Kafka's StripedReplicaPlacerTest."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

from tailrace.cluster.control.placement import UsableBroker, place
from tailrace.cluster.topic_rules import InvalidReplicationError

_MASK: Final = (1 << 64) - 1


class JavaChance(random.Random):
    """Kafka's MockRandom: a generator with a fixed course, asked as java.util.Random is."""

    def __init__(self) -> None:
        super().__init__(0)
        self._state = 17

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """A number below `start`."""
        del stop, step
        if start & (start - 1) == 0:
            return start * self._next() >> 31
        while (found := self._next()) - found % start + start > 1 << 31:
            pass
        return found % start

    def _next(self) -> int:
        self._state = (self._state * 2862933555777941757 + 3037000493) & _MASK
        return self._state >> 33


def serving(*broker_ids: int, rack: str | None = None) -> list[UsableBroker]:
    """Brokers that are not fenced."""
    return [UsableBroker(each, rack, is_fenced=False) for each in broker_ids]


def fenced(*broker_ids: int, rack: str | None = None) -> list[UsableBroker]:
    """Brokers that are fenced."""
    return [UsableBroker(each, rack, is_fenced=True) for each in broker_ids]


def placed(brokers: Iterable[UsableBroker], count: int, factor: int) -> list[list[int]]:
    """The replicas that Kafka's generator leads to."""
    found = place(brokers, partition_count=count, replication_factor=factor, chance=JavaChance())
    return [[*each] for each in found]


def test_a_fenced_broker_is_avoided() -> None:
    """It gets nothing while others are left (testAvoidFencedReplicaIfPossibleOnSingleRack)."""
    brokers = [*serving(3), *fenced(1), *serving(0, 4, 2)]
    assert placed(brokers, 5, 4) == [
        [3, 4, 0, 2], [4, 0, 2, 3], [0, 2, 3, 4], [2, 3, 4, 0], [0, 4, 3, 2],
    ]  # fmt: skip


def test_one_broker_that_serves_has_all_partitions() -> None:
    """None goes to one that is fenced (testMultiPartitionTopicPlacementOnSingleUnfencedBroker)."""
    assert placed([*serving(0), *fenced(1)], 3, 1) == [[0], [0], [0]]


def test_a_fenced_broker_follows_where_it_has_to() -> None:
    """It never leads (testPlacementOnFencedReplicaOnSingleRack)."""
    brokers = [*serving(3), *fenced(1), *serving(2)]
    assert placed(brokers, 4, 3) == [[3, 2, 1], [2, 3, 1], [3, 2, 1], [2, 3, 1]]


def test_racks_take_turns() -> None:
    """Different racks lead, and each has a replica (testRackListWithMultipleRacks)."""
    brokers = [
        *serving(11, 10, rack="1"), *serving(30, 31, rack="3"), *serving(21, rack="2"),
        *fenced(20, rack="2"),
    ]  # fmt: skip
    assert placed(brokers, 3, 4) == [[11, 21, 31, 10], [21, 30, 10, 20], [31, 11, 21, 30]]


def test_racks_without_a_broker_that_serves_do_not_lead() -> None:
    """They have followers only (testRackListWithInvalidRacks)."""
    brokers = [
        *serving(11, 10, rack="1"), *fenced(30, 31, rack="3"), *fenced(20, 21, rack="2"),
        *serving(41, rack="4"), *fenced(40, rack="4"),
    ]  # fmt: skip
    assert placed(brokers, 3, 4) == [[41, 11, 21, 30], [10, 20, 31, 41], [41, 21, 30, 11]]


def test_leaders_and_followers_are_spread() -> None:
    """All pairs of four brokers, about equally (testSuccessfulPlacement, testEvenDistribution)."""
    assert placed(serving(0, 3, 2, 1), 5, 3) == [
        [2, 3, 0], [3, 0, 1], [0, 1, 2], [1, 2, 3], [1, 0, 2],
    ]  # fmt: skip
    counts = Counter(tuple(each) for each in placed(serving(0, 1, 2, 3), 200, 2))
    assert counts == {
        (0, 1): 14, (0, 2): 22, (0, 3): 14, (1, 0): 17, (1, 2): 17, (1, 3): 16, (2, 0): 13,
        (2, 1): 17, (2, 3): 20, (3, 0): 20, (3, 1): 19, (3, 2): 11,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("brokers", "factor", "reason"),
    [
        (fenced(11, 10, rack="1"), 1, "currently fenced"),
        (serving(11, 10, rack="1"), 3, "only 2 broker"),
        (serving(11, 10, rack="1"), 0, "must be positive"),
        (serving(11, 10, rack="1"), -1, "must be positive"),
        ([], 1, "currently fenced"),
    ],
)
def test_a_factor_that_is_not_possible(
    brokers: list[UsableBroker], factor: int, reason: str
) -> None:
    """Too large, too small, or no broker serves.

    Upstream: testAllBrokersFenced, testNotEnoughBrokers, testNonPositiveReplicationFactor, and
    those of RackList with the same ends.
    """
    with pytest.raises(InvalidReplicationError, match=reason):
        placed(brokers, 1, factor)
