"""Whole groups of consumers that join, crash and come back, on a broker that does so too."""

import asyncio
import json
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.coordinator.groups.classic_group import ClassicState
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.records import GroupMetadataKey, GroupMetadataValue
from tailrace.testing.outside import Outside, virtual_runtime
from tests.examples import IS_EVERY_CHANGE
from tests.properties.shaky_broker import (
    FAULTS_OF_BROKERS,
    LostError,
    ShakyBroker,
    Step,
    steps_of,
)
from tests.unit.coordinator.groups.stage import GROUP, Member, subscription

PARTITIONS = 6
SEEDS = 20 if IS_EVERY_CHANGE else settings().max_examples
"""A seed takes 0.1 s, so the tests of every change play few."""
STATIC = (None, None, None, "one", "two")
"""The instance id of each consumer."""
BACKOFF = 0.3
BEAT = 3.0
QUIET = 200.0
"""Seconds after which all is settled: sessions have 10, rebalances 20."""


@dataclass
class Witness:
    """The views of all consumers, which must fit together."""

    names: dict[str, str] = field(default_factory=dict)
    """The consumer of each member id."""
    views: dict[tuple[int, int], tuple[str, str | None]] = field(default_factory=dict)
    """The leader and the assignor of each generation; a start of the broker may repeat a number."""
    tokens: dict[tuple[int, int], int] = field(default_factory=dict)
    """The assignment of each generation, by a number that its leader has chosen."""
    owners: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """For each assignment, the consumer that each partition was given to."""
    sent: int = 0
    """The highest offset that was sent in a commit; each commit sends a higher one."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    """The highest offset for each partition that a consumer was told is committed."""

    def see_view(self, key: tuple[int, int], leader: str, protocol: str | None) -> None:
        """A member was told of a generation."""
        view = self.names.get(leader, leader), protocol
        assert self.views.setdefault(key, view) == view

    def see_assignment(self, key: tuple[int, int], name: str, assignment: bytes) -> list[int]:
        """A member was given its assignment; returns the partitions."""
        if not assignment:
            return []
        token, partitions = json.loads(assignment)
        assert self.tokens.setdefault(key, token) == token
        for each in partitions:
            assert self.owners[token].setdefault(each, name) == name
        return list(partitions)


class FencedError(Exception):
    """Another consumer has taken the instance id."""


class Consumer:
    """A client as real ones are: it joins, syncs, beats and commits, until it is stopped."""

    def __init__(self, broker: ShakyBroker, witness: Witness, number: int) -> None:
        self.name = f"consumer-{number}"
        self._broker = broker
        self._witness = witness
        self.member = Member(
            broker,
            self.name,
            instance_id=STATIC[number],
            rebalance_timeout_ms=20_000,
            version=8 if number % 2 else 9,
        )
        self.partitions: list[int] = []
        self.wants_to_join = False
        self._task = asyncio.ensure_future(self._live())

    @property
    def is_running(self) -> bool:
        """Whether it is neither stopped nor fenced."""
        return not self._task.done()

    async def crash(self) -> None:
        """Stop without a word."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def leave(self) -> None:
        """Stop, and tell the broker once."""
        await self.crash()
        with suppress(LostError, TailraceError):
            await self.member.leave()

    def _key(self) -> tuple[int, int]:
        return self._broker.starts, self.member.generation

    async def _live(self) -> None:
        while True:
            try:
                await self._take_part()
            except FencedError:
                return
            except (LostError, TailraceError):
                await self._broker.passes(BACKOFF)

    async def _take_part(self) -> None:
        member, witness = self.member, self._witness
        self.wants_to_join, self.partitions = False, []
        before = self._key()
        # Not `join`: as a task of its own it would outlive a crash.
        if not self._goes_on((await member._join()).error_code):
            await self._broker.passes(BACKOFF)
            return
        witness.names[member.member_id] = self.name
        if before[0] == self._key()[0]:
            assert member.generation >= before[1]
        witness.see_view(self._key(), member.joined.leader, member.joined.protocol_name)
        assignments = self._assign() if member.joined.members else {}
        if not self._goes_on((await member._sync(assignments, {})).error_code):
            return
        self.partitions = witness.see_assignment(self._key(), self.name, member.assignment)
        while not self.wants_to_join:
            await self._broker.passes(BEAT)
            try:
                await self._commit()
                if not self._goes_on(await member.heartbeat()):
                    return
            except LostError:
                continue

    def _goes_on(self, code: int) -> bool:
        """Whether it stays in its generation after this answer."""
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise FencedError
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member.member_id, self.member.generation = "", -1
        return code == ErrorCode.NONE

    def _assign(self) -> dict[str, bytes]:
        members = [each.member_id for each in self.member.joined.members]
        self._witness.sent += 1
        return {
            member_id: json.dumps(
                [self._witness.sent, list(range(index, PARTITIONS, len(members)))]
            ).encode()
            for index, member_id in enumerate(members)
        }

    async def _commit(self) -> None:
        for each in self.partitions[:1]:
            self._witness.sent += 1
            offset = self._witness.sent
            if await self.member.commit(offset, TopicPartition("flights", each)) == ErrorCode.NONE:
                known = self._witness.acknowledged.get(each, 0)
                self._witness.acknowledged[each] = max(known, offset)


class Stage:
    """Consumers, a broker and what has been seen."""

    def __init__(self, outside: Outside) -> None:
        self.broker = ShakyBroker(outside, GroupSettings(size_max=4))
        self.witness = Witness()
        self.consumers: dict[int, Consumer] = {}

    async def act(self, step: Step) -> None:
        """Let something happen."""
        match step:
            case ("start", number) if number not in self.consumers:
                self.consumers[number] = Consumer(self.broker, self.witness, number)
            case ("crash", number) if number in self.consumers:
                await self.consumers.pop(number).crash()
            case ("leave", number) if number in self.consumers:
                await self.consumers.pop(number).leave()
            case ("again", number) if number in self.consumers:
                await self.consumers.pop(number).crash()
                self.consumers[number] = Consumer(self.broker, self.witness, number)
            case ("change", number) if number in self.consumers:
                consumer = self.consumers[number]
                consumer.member.protocols = {
                    "range": subscription("flights", f"{self.witness.sent}")
                }
                consumer.wants_to_join = True
            case ("broker", _):
                await self.restart()
            case _:
                await self.broker.suffer(step)

    async def restart(self) -> None:
        """Restart the broker: it must have every offset that was acknowledged."""
        await self.broker.restart()
        offsets = self.broker.machine.groups.offsets.of_group(GROUP)
        for number, offset in self.witness.acknowledged.items():
            assert offsets[TopicPartition("flights", number)].offset >= offset

    def check_log(self) -> None:
        """No generation in the log is below an earlier one."""
        generation = 0
        for key, value in self.broker.records():
            if isinstance(value, GroupMetadataValue):
                assert value.generation >= generation
                generation = value.generation
            elif isinstance(key, GroupMetadataKey):
                generation = 0

    async def settle(self) -> None:
        """Let nothing happen any more; all consumers must share all partitions then."""
        self.broker.requests_lost = self.broker.replies_lost = 0
        await self.broker.passes(QUIET)
        running = [each for each in self.consumers.values() if each.is_running]
        group = self.broker.machine.groups.by_id.get(GROUP)
        if not running:
            assert group is None or group.state is ClassicState.EMPTY
            return
        assert group is not None
        assert group.state is ClassicState.STABLE
        inside = [each for each in running if each.member.member_id in group.members]
        assert len(inside) == len(group.members) == min(len(running), 4)
        assert {each.member.generation for each in inside} == {group.generation}
        owned = sorted(partition for each in inside for partition in each.partitions)
        assert owned == list(range(PARTITIONS))


FAULTS = ("crash", "leave", "again", "change", *FAULTS_OF_BROKERS)


@settings(max_examples=SEEDS)
@given(st.integers(0, 2**64 - 1))
def test_a_group_comes_to_rest_and_nobody_was_told_anything_wrong(seed: int) -> None:
    """Whatever happens before.

    In a generation all members see one leader and one assignor, and no partition is given to two
    of them; generations do not fall; a commit that was acknowledged survives every restart.
    """

    async def scenario(outside: Outside) -> None:
        stage = Stage(outside)
        await stage.broker.start()
        for step in steps_of(seed, starts=["start"], clients=len(STATIC), faults=FAULTS):
            await stage.act(step)
        await stage.settle()
        await stage.restart()
        stage.check_log()
        await asyncio.gather(*[each.crash() for each in stage.consumers.values()])
        stage.broker.stop()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
