"""Placement of the replicas of new partitions, in stripes as by Kafka (KIP-36).

    racks        A: 1 2 3   B: 4 5   C: 6
    partition 0  1 4 6      one broker of each rack, the leader's rack first
    partition 1  5 6 2      the next rack leads, and each rack continues with its next broker
    partition 2  6 3 4

A broker that serves comes before one that is fenced, which never leads. After as many partitions as
brokers serve, racks and brokers are shuffled, so that the same brokers do not meet for ever.

Invariant: the replicas of a partition are different brokers, and the first one serves.
"""

import random
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from tailrace.cluster.topic_rules import InvalidReplicationError

T = TypeVar("T")

NOBODY: Final = -1


class UsableBroker(NamedTuple):
    """A broker that may get replicas."""

    broker_id: int
    rack: str | None
    is_fenced: bool


class _Ring:
    """Brokers in turn, from a place that moves on by one with each partition."""

    def __init__(self, brokers: Iterable[int], chance: random.Random) -> None:
        self.brokers = sorted(brokers)
        # By chance: small topics that all began with the first broker would fill it.
        self._first = chance.randrange(len(self.brokers)) if self.brokers else 0
        self._given = 0
        self._round = 0

    def next(self, turn: int) -> int:
        """The next broker for the partition of this turn; -1: each one was given for it."""
        if self._round != turn and self.brokers:
            self._round, self._given = turn, 0
            self._first = (self._first + 1) % len(self.brokers)
        if self._given == len(self.brokers):
            return NOBODY
        found = self.brokers[(self._first + self._given) % len(self.brokers)]
        self._given += 1
        return found


class _Rack:
    def __init__(self, brokers: Sequence[UsableBroker], chance: random.Random) -> None:
        self.fenced = _Ring((each.broker_id for each in brokers if each.is_fenced), chance)
        self.serving = _Ring((each.broker_id for each in brokers if not each.is_fenced), chance)

    def next(self, turn: int) -> int:
        found = self.serving.next(turn)
        return self.fenced.next(turn) if found == NOBODY else found


def place(
    brokers: Iterable[UsableBroker],
    *,
    partition_count: int,
    replication_factor: int,
    chance: random.Random,
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the leader first.

    Raises:
        InvalidReplicationError: the factor is below 1 or above the number of brokers, or none
            serves.
    """
    usable = list(brokers)
    serving_count = sum(not each.is_fenced for each in usable)
    _check(replication_factor, len(usable), serving_count)
    return _Stripes(usable, serving_count, chance).place(partition_count, replication_factor)


def _check(replication_factor: int, broker_count: int, serving_count: int) -> None:
    if replication_factor <= 0:
        raise InvalidReplicationError(
            f"Invalid replication factor {replication_factor}: the replication factor must be "
            "positive."
        )
    if serving_count == 0:
        raise InvalidReplicationError(
            "All brokers are currently fenced, or have all their log directories cordoned."
        )
    if replication_factor > broker_count:
        raise InvalidReplicationError(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{broker_count} broker(s) are registered or some brokers have all their log "
            "directories cordoned."
        )


class _Stripes:
    def __init__(
        self, usable: Sequence[UsableBroker], serving_count: int, chance: random.Random
    ) -> None:
        # Brokers without a rack are one: they come first.
        names = sorted({each.rack for each in usable}, key=lambda name: (name is not None, name))
        self._racks = [
            _Rack([each for each in usable if each.rack == name], chance) for name in names
        ]
        self._serving_count = serving_count
        self._chance = chance
        self._first = chance.randrange(len(self._racks))
        self._turn = 0

    def place(self, partition_count: int, replication_factor: int) -> list[tuple[int, ...]]:
        return [self._place(replication_factor) for _ in range(partition_count)]

    def _place(self, replication_factor: int) -> tuple[int, ...]:
        # With one broker that serves, a new first turn would be the old one, which has given it.
        if self._turn == self._serving_count > 1:
            self._shuffle()
            self._turn = 0
        first = self._first % len(self._racks)
        leading, leader = self._leader(first)
        found = [leader]
        place: int = first
        skipped: int | None = leading
        while len(found) < replication_factor:
            # The leader's rack has had its turn.
            if place == skipped:
                skipped = None
            else:
                broker_id = self._racks[place].next(self._turn)
                if broker_id != NOBODY:
                    found.append(broker_id)
            place = (place + 1) % len(self._racks)
        self._turn += 1
        self._first = first + 1
        return tuple(found)

    def _leader(self, first: int) -> tuple[int, int]:
        """The first rack from `first` on with a broker that serves, and the broker."""
        place = first
        while True:
            broker_id = self._racks[place].serving.next(self._turn)
            if broker_id != NOBODY:
                return place, broker_id
            place = (place + 1) % len(self._racks)

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._chance)
        for rack in self._racks:
            _shuffle(rack.fenced.brokers, self._chance)
            _shuffle(rack.serving.brokers, self._chance)


def _shuffle(items: list[T], chance: random.Random) -> None:
    # Java's shuffle with its questions, not Python's: the same numbers give Kafka's placement.
    for limit in range(len(items), 1, -1):
        other = chance.randrange(limit)
        items[limit - 1], items[other] = items[other], items[limit - 1]
