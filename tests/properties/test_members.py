"""Groups of our own members of both protocols, on our coordinator behind a shaky network."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.model import TopicPartition
from tailrace.testing.outside import Outside, virtual_runtime
from tests.examples import IS_EVERY_CHANGE
from tests.properties.living_consumer import Kind, LivingConsumer, ShakyMixedBroker, Witness
from tests.properties.shaky_broker import FAULTS_OF_BROKERS, Step, steps_of
from tests.properties.test_groups import QUIET
from tests.unit.coordinator.groups.stage import GROUP
from tests.unit.coordinator.groups_consumer.mixed_stage import COUNT, TOPIC

CLIENTS = 5
STATIC = (None, None, None, "one", "two")
"""The instance id of each client."""
SEEDS = 4 if IS_EVERY_CHANGE else settings().max_examples // 2
"""Seeds for each kind of group, so few that the tests of every change stay short."""

GROUPS: dict[str, tuple[tuple[str, ...] | None, ...]] = {
    "range": (("range", "cooperative-sticky"),),
    "sticky": (("sticky", "roundrobin"),),
    "cooperative": (("cooperative-sticky",),),
    "consumer": (None,),
    "mixed": (None, ("range",), ("cooperative-sticky", "range")),
}
"""The kinds of members in each kind of group."""


class Stage:
    """Consumers, a broker and what has been seen."""

    def __init__(self, outside: Outside, kinds: tuple[tuple[str, ...] | None, ...]) -> None:
        self.broker = ShakyMixedBroker(outside, GroupSettings())
        self.witness = Witness()
        self.consumers: dict[int, LivingConsumer] = {}
        self._kinds = kinds
        self._committed: dict[TopicPartition, int] = {}
        self._started = 0
        self._has_returned = False
        """Whether a client with an instance id has started again."""

    async def act(self, step: Step) -> None:
        """Let something happen."""
        match step:
            case ("start", number):
                self._has_returned |= number in self.consumers and STATIC[number] is not None
                await self._stop(number, has_left=False)
                self._start(number)
            case ("crash", number):
                self._has_returned |= STATIC[number] is not None
                await self._stop(number, has_left=False)
            case ("leave", number):
                await self._stop(number, has_left=True)
            case ("slow", number) if number in self.consumers:
                consumer = self.consumers[number]
                consumer.busy_until = asyncio.get_running_loop().time() + 7 * (number + 1)
            case ("topic", number):
                self.broker.topics.put("b", number + 1)
            case ("broker", _):
                await self.broker.restart()
            case _:
                await self.broker.suffer(step)
        self.check()

    def _start(self, number: int) -> None:
        self._started += 1
        assignors = self._kinds[(number + self._started) % len(self._kinds)]
        has_pattern = assignors is None and number == 1
        kind = Kind(
            assignors=assignors,
            topics=frozenset({TOPIC, "b"} if number == 2 else {TOPIC}),
            pattern="a.*" if has_pattern else None,
            instance_id=STATIC[number],
        )
        self.consumers[number] = LivingConsumer(self.broker, self.witness, kind, seed=self._started)

    async def _stop(self, number: int, *, has_left: bool) -> None:
        consumer = self.consumers.pop(number, None)
        if consumer is not None:
            await (consumer.leave() if has_left else consumer.crash())

    def check(self) -> None:
        """Check owners and commits."""
        owners = Counter(
            partition
            for consumer in self.consumers.values()
            if self._is_present(consumer)
            for partition in consumer.membership.assignment
        )
        assert not [each for each, count in owners.items() if count > 1]
        for partition, each in self.broker.machine.groups.offsets.of_group(GROUP).items():
            assert each.offset >= self._committed.get(partition, 0)
            self._committed[partition] = each.offset
        for partition, offset in self.witness.acknowledged.items():
            assert self._committed[partition] >= offset

    def _is_present(self, consumer: LivingConsumer) -> bool:
        """Whether the coordinator would take a commit of the consumer."""
        member_id, generation = consumer.membership.identity[1:3]
        machine = self.broker.machine
        consumer_group, group = machine.groups.consumer(GROUP), machine.groups.classic(GROUP)
        if consumer_group is not None:
            member = consumer_group.members.get(member_id)
            return member is not None and member.current.epoch == generation
        return group is not None and member_id in group.members and group.generation == generation

    async def settle(self) -> None:
        """Let nothing happen any more; all clients must share all partitions then."""
        self.broker.requests_lost = self.broker.replies_lost = 0
        await self.broker.passes(QUIET)
        self.check()
        running = [each for each in self.consumers.values() if each.is_running]
        if not running:
            return
        if self._has_returned:
            # A static leader that returns between the two rounds of a cooperative rebalance is
            # given what the first one left it, and nobody begins the second (KIP-345, KIP-429).
            now = asyncio.get_running_loop().time()
            running[0].membership.request_rejoin("the second round", now)
            await self.broker.passes(QUIET)
            self.check()
        assert [each for each in running if not each.membership.is_settled] == []
        owned = sorted(p for each in running for p in each.membership.assignment)
        wanted = [TopicPartition(TOPIC, number) for number in range(COUNT)]
        b = self.broker.topics.by_name("b")
        if b is not None and any("b" in each.kind.topics for each in running):
            wanted += [TopicPartition("b", number) for number in range(b.partition_count)]
        assert owned == wanted
        assert {p for each in running for p in each.positions} == set(owned)


FAULTS = ("crash", "leave", "slow", "topic", *FAULTS_OF_BROKERS)


@pytest.mark.parametrize("name", GROUPS)
@settings(max_examples=SEEDS)
@given(seed=st.integers(0, 2**64 - 1))
def test_a_group_of_our_members_comes_to_rest(name: str, seed: int) -> None:
    """Whatever happens before, they share all partitions in the end, and read from them.

    At no time does a partition belong to two members whose commits the coordinator would take, and
    no committed offset ever goes back.
    """
    play(name, seed)


def play(name: str, seed: int) -> None:
    """Play one group from a seed."""

    async def scenario(outside: Outside) -> None:
        stage = Stage(outside, GROUPS[name])
        await stage.broker.start()
        for step in steps_of(seed, starts=("start",), clients=CLIENTS, faults=FAULTS):
            await stage.act(step)
        await stage.settle()
        await asyncio.gather(*[each.crash() for each in stage.consumers.values()])
        stage.broker.stop()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
