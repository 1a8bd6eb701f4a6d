"""A broker with groups of both protocols, and their clients, on virtual time."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tailrace.coordinator.groups.consumer_group import ConsumerGroup
from tailrace.coordinator.groups.embedded_protocol import read_assignment, write_assignment
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import Client
from tailrace.coordinator.statistics import (
    GroupsStatistics,
    groups_statistics,
)
from tailrace.protocol.codec import encode
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tailrace.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tailrace.protocol.messages.join_group import JoinGroupResponse
from tailrace.testing.outside import Outside, virtual_runtime
from tests.unit.coordinator.groups.stage import GROUP, MOMENT, Broker, Member
from tests.unit.coordinator.groups_consumer.assigning import topic_id
from tests.unit.coordinator.groups_consumer.group_shard import kinds

TOPIC = "a"
COUNT = 4
"""Partitions of the topic."""


class MixedBroker(Broker):
    """Leads a partition of `__consumer_offsets` with groups of both protocols."""

    def __init__(self, outside: Outside, settings: GroupSettings, **consumer: Any) -> None:
        super().__init__(outside, settings, **{"assignment_interval_ms": 0, **consumer})

    def statistics(self) -> GroupsStatistics:
        """The groups in numbers; totals are kept over restarts, as over a move of the partition."""
        return groups_statistics([self.machine], self.counts)

    @property
    def consumers(self) -> ConsumerGroup:
        """The group, which is one of the consumer protocol."""
        group = self.machine.groups.consumer(GROUP)
        assert group is not None
        return group

    @property
    def type(self) -> str | None:
        """The protocol of the group."""
        return kinds(self.machine).get(GROUP)


def subscription(*topics: str, owned: frozenset[int] = frozenset(), version: int = 1) -> bytes:
    """The metadata of a consumer that owns these partitions of the topic."""
    out = bytearray(version.to_bytes(2, "big"))
    owns = (TopicPartition(topic=TOPIC, partitions=tuple(sorted(owned))),) if owned else ()
    encode(ConsumerProtocolSubscription(topics=topics, owned_partitions=owns), version, out)
    return bytes(out)


@dataclass
class ClassicClient(Member):
    """A consumer of the classic protocol, which keeps its partitions while it joins."""

    owned: frozenset[int] = frozenset()
    protocols: dict[str, bytes] = field(default_factory=lambda: {"range": subscription(TOPIC)})

    def report(self) -> None:
        """Say in the next JoinGroup what it owns."""
        self.protocols = {each: subscription(TOPIC, owned=self.owned) for each in self.protocols}

    async def follow(self) -> int:
        """Join and ask for its assignment, as it is told to; a leader shares equally."""
        self.report()
        joined = await self._join()
        if joined.error_code != ErrorCode.NONE:
            return joined.error_code
        return await self.take(joined)

    async def take(self, joined: JoinGroupResponse) -> int:
        """Ask for the assignment of a generation; returns the error code."""
        ids = [each.member_id for each in joined.members]
        shares = {
            member_id: write_assignment(
                {TOPIC: range(index, COUNT, len(ids))}, for_metadata=subscription()
            )
            for index, member_id in enumerate(ids)
        }
        synced = await self._sync(
            shares,
            {"protocol_type": self.protocol_type, "protocol_name": next(iter(self.protocols))},
        )
        if synced.error_code == ErrorCode.NONE:
            assigned = read_assignment(bytes(synced.assignment)).assigned_partitions
            self.owned = frozenset(number for each in assigned for number in each.partitions)
        return synced.error_code


@dataclass
class ConsumerClient:
    """A consumer of the consumer protocol."""

    broker: Any
    member_id: str
    instance_id: str | None = None
    topics: tuple[str, ...] | None = (TOPIC,)
    regex: str | None = None
    epoch: int = 0
    owned: frozenset[int] = frozenset()
    is_unsure: bool = False
    """Whether the last answer was lost; the next request says all then, and is told all."""

    async def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat with what it owns, and take what the answer says."""
        is_full = self.epoch == 0 or self.is_unsure
        self.is_unsure = True
        owned = (
            (TopicPartitions(topic_id=topic_id(TOPIC), partitions=tuple(sorted(self.owned))),)
            if self.owned
            else ()
        )
        told: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "member_epoch": self.epoch,
            "rebalance_timeout_ms": 20_000 if is_full else -1,
            "subscribed_topic_names": self.topics if is_full else None,
            "subscribed_topic_regex": self.regex if is_full else None,
            "topic_partitions": () if self.epoch == 0 else owned,
        }
        request = ConsumerGroupHeartbeatRequest(**told | fields)
        client = Client("client", "127.0.0.1", 1)
        answer: ConsumerGroupHeartbeatResponse = await self.broker.run(
            lambda machine, now: machine.consumer_heartbeat(client, request, now)
        )
        self.is_unsure = False
        if answer.error_code == ErrorCode.NONE and answer.member_epoch >= 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = frozenset(
                    number
                    for each in answer.assignment.topic_partitions
                    for number in each.partitions
                )
        return answer

    async def leave(self, epoch: int = -1) -> ErrorCode:
        """Leave the group; returns the error code."""
        return ErrorCode((await self.beat(member_epoch=epoch)).error_code)


async def settle(broker: MixedBroker, *clients: ClassicClient | ConsumerClient) -> None:
    """Let clients do what they are told, until nobody is told anything."""
    for _ in range(20):
        is_quiet = True
        for each in clients:
            if isinstance(each, ConsumerClient):
                before = each.epoch, each.owned
                assert (await each.beat()).error_code == ErrorCode.NONE
                is_quiet &= before == (each.epoch, each.owned)
            elif each.generation < 0 or await each.heartbeat() != ErrorCode.NONE:
                is_quiet = False
                if await each.follow() == ErrorCode.UNKNOWN_MEMBER_ID:
                    each.member_id = ""
        await broker.passes(1)
        if is_quiet:
            return
    raise AssertionError("the group does not come to rest")


async def classic_group(broker: MixedBroker, *names: str, **told: Any) -> list[ClassicClient]:
    """A stable classic group; its partitions are shared."""
    made = [ClassicClient(broker, name, **told) for name in names]
    tasks = [broker.send(each.follow()) for each in made]
    await broker.passes(7)
    assert [await each for each in tasks] == [0] * len(made)
    assert broker.group().state.value == "Stable"
    return made


def shares(*clients: ClassicClient | ConsumerClient) -> list[int]:
    """The number of partitions of each client, rising; no partition belongs to two."""
    owned = [number for each in clients for number in each.owned]
    assert len(owned) == len(set(owned))
    return sorted(len(each.owned) for each in clients)


Scenario = Callable[[MixedBroker], Awaitable[None]]


def on_mixed_stage(
    settings: GroupSettings | None = None, **consumer: Any
) -> Callable[[Scenario], Callable[[], None]]:
    """Play a scenario with a broker that has loaded its groups."""

    def decorate(scenario: Scenario) -> Callable[[], None]:
        async def play(outside: Outside) -> None:
            broker = MixedBroker(outside, settings or GroupSettings(), **consumer)
            await broker.start()
            await scenario(broker)
            broker.stop()
            await broker.passes(MOMENT)
            assert [each for each in broker.requests if not each.done()] == []

        def test() -> None:
            random.seed(0)
            with virtual_runtime() as outside:
                outside.run(play(outside))

        test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
        return test

    return decorate
