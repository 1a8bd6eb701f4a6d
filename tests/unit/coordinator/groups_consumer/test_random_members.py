"""Consumer groups under random members, topics and restarts of the broker, from a seed.

At any time no partition is with two members, as far as they were told or have not given it up, and
epochs never fall. When it becomes quiet, each partition has one owner and all members are stable.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from tailrace.coordinator.groups.consumer_group import ConsumerState
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tailrace.testing.outside import virtual_runtime
from tests.unit.coordinator.groups_consumer.group_shard import (
    Coordinator,
    MemoryTopics,
    beating,
    joining,
)

Owned = set[tuple[UUID, int]]
STEPS = 120
LETTERS = "abc"


@dataclass
class Consumer:
    """A member that does what a consumer does."""

    member_id: str
    topics: str
    assignor: str
    instance_id: str | None = None
    epoch: int = 0
    has: Owned = field(default_factory=set)
    wanted: Owned = field(default_factory=set)
    """The partitions that it was told to have."""
    has_lost_reply: bool = False
    has_reported: Owned | None = None

    def take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Take a reply: an epoch and partitions, or the news that it is no member."""
        if response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            return
        if response.error_code != ErrorCode.NONE:
            assert response.error_code in {
                ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID,
            }  # fmt: skip
            self.epoch, self.has_reported = 0, None
            self.has, self.wanted = set(), set()
            return
        assert response.member_epoch >= self.epoch
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.wanted = {
                (each.topic_id, number)
                for each in response.assignment.topic_partitions
                for number in each.partitions
            }

    def reconcile(self) -> None:
        """Give up what it was asked for, and take what it was given."""
        self.has = set(self.wanted)

    def report(self) -> str | None:
        """Its partitions, as text; None: as in its last request, whose reply it has."""
        if self.has == self.has_reported and not self.has_lost_reply:
            return None
        self.has_reported = set(self.has)
        return " ".join(f"{chr(each.int)}{number}" for each, number in sorted(self.has))


class World:
    """A coordinator, its topics, and consumers that come and go."""

    def __init__(self, coordinator: Coordinator, chance: random.Random) -> None:
        self.coordinator = coordinator
        self.chance = chance
        self.consumers: list[Consumer] = []
        self.away: list[str] = []
        """Instance ids of static members that are gone for now."""
        self.counts = dict.fromkeys(LETTERS, 3)
        self.epoch = 0
        self._made = 0

    async def step(self) -> None:
        """One thing that happens, then a heartbeat of each member, and some time."""
        action = self.chance.choices(
            [
                self.join,
                self.leave,
                self.crash,
                self.change,
                self.grow,
                self.restart,
                self.come_back,
            ],
            [4, 2, 1, 2, 1, 1, 3],
        )[0]
        await action()
        await self.beat_all()
        await self.coordinator.outside.pass_time(self.chance.choice([0.2, 1, 3]))
        self.check()

    async def beat_all(self) -> None:
        """A heartbeat of each member in any order; some replies are lost, some are slow."""
        for consumer in self.chance.sample(self.consumers, len(self.consumers)):
            await self.beat(consumer)
            if self.chance.random() < 0.7:
                consumer.reconcile()

    async def beat(self, consumer: Consumer, *, may_lose: bool = True) -> None:
        """One heartbeat."""
        if consumer.epoch == 0:
            request = joining(
                consumer.member_id,
                consumer.topics,
                instance_id=consumer.instance_id,
                server_assignor=consumer.assignor,
            )
        else:
            full = {}
            if consumer.has_lost_reply:
                full = {
                    "rebalance_timeout_ms": 30_000,
                    "subscribed_topic_names": tuple(consumer.topics),
                }
            request = beating(
                consumer.member_id,
                consumer.epoch,
                consumer.report(),
                instance_id=consumer.instance_id,
                **full,
            )
        response = await self.coordinator.machine_reply(request)
        consumer.has_lost_reply = may_lose and self.chance.random() < 0.1
        if not consumer.has_lost_reply:
            consumer.take(response)
        self.check()

    async def join(self) -> None:
        """A new member, static or not."""
        if len(self.consumers) < 6:
            self._made += 1
            is_static = self.chance.random() < 0.4
            self._add(f"i{self._made}" if is_static else None)

    async def come_back(self) -> None:
        """A static member that was away, under another member id."""
        if self.away:
            self._made += 1
            self._add(self.away.pop())

    def _add(self, instance_id: str | None) -> None:
        self.consumers.append(
            Consumer(
                member_id=f"m{self._made}",
                topics="".join(self.chance.sample(LETTERS, self.chance.choice([1, 3, 3]))),
                assignor=self.chance.choice(["uniform", "range"]),
                instance_id=instance_id,
            )
        )

    async def leave(self) -> None:
        """A member closes: for good, or for a while if it is static."""
        if not self.consumers:
            return
        consumer = self.consumers.pop(self.chance.randrange(len(self.consumers)))
        if consumer.epoch == 0:
            return
        epoch = -1
        if consumer.instance_id is not None and self.chance.random() < 0.7:
            epoch = -2
            self.away.append(consumer.instance_id)
        request = beating(consumer.member_id, epoch, instance_id=consumer.instance_id)
        await self.coordinator.machine_reply(request)

    async def crash(self) -> None:
        """A member is gone without a word; a static one may come back."""
        if self.consumers:
            consumer = self.consumers.pop(self.chance.randrange(len(self.consumers)))
            if consumer.instance_id is not None:
                self.away.append(consumer.instance_id)

    async def change(self) -> None:
        """A member subscribes to other topics; it repeats that until it has a reply."""
        if self.consumers:
            consumer = self.chance.choice(self.consumers)
            consumer.topics = self.chance.choice(["a", "ab", "abc", "c"])
            consumer.has_lost_reply = True

    async def grow(self) -> None:
        """A topic gets partitions."""
        letter = self.chance.choice(LETTERS)
        if self.counts[letter] < 8:
            self.counts[letter] += 1
            self.coordinator.topics.put(letter, self.counts[letter])

    async def restart(self) -> None:
        """The broker restarts, and finds what it had."""
        self.coordinator.check_restart()
        await self.coordinator.restart()

    def check(self) -> None:
        """Check the rules that hold at any time."""
        owned = Counter(each for one in self.consumers for each in one.has | one.wanted)
        assert [each for each, count in owned.items() if count > 1] == []
        group = self.coordinator.machine.groups.consumer("g")
        if group is not None:
            assert group.target_epoch <= group.epoch
            assert group.epoch >= self.epoch
            self.epoch = group.epoch

    async def settle(self) -> None:
        """Let it become quiet."""
        for _ in range(40):
            for consumer in self.consumers:
                await self.beat(consumer, may_lose=False)
                consumer.reconcile()
            await self.coordinator.outside.pass_time(3)

    def check_quiet(self) -> None:
        """Check the rules that hold when nothing has happened for two minutes."""
        group = self.coordinator.group
        assert sorted(group.members) == sorted(each.member_id for each in self.consumers)
        assert group.state is (ConsumerState.STABLE if self.consumers else ConsumerState.EMPTY)
        wanted = {letter for one in self.consumers for letter in one.topics}
        owned = Counter(each for one in self.consumers for each in one.has)
        assert owned == Counter(
            (UUID(int=ord(letter)), number)
            for letter in wanted
            for number in range(self.counts[letter])
        )
        for one in self.consumers:
            assert one.epoch == group.epoch
            assert {chr(each.int) for each, _ in one.has} <= set(one.topics)
        self.coordinator.check_restart()


@pytest.mark.parametrize("seed", range(12))
def test_members_that_come_and_go_share_all_partitions(seed: int) -> None:
    """With crashes, lost replies, topics that grow, and a broker that restarts."""
    with virtual_runtime() as outside:

        async def main() -> None:
            topics = MemoryTopics(**dict.fromkeys(LETTERS, 3))
            coordinator = Coordinator(outside, topics)
            await coordinator.restart()
            world = World(coordinator, random.Random(seed))
            await world.join()
            for _ in range(STEPS):
                await world.step()
            await world.settle()
            world.check_quiet()

        outside.run(main())
