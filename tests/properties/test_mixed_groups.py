"""Groups of consumers of both protocols that join, crash and come back, on a shaky broker."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.coordinator.groups.commits import Committer
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.outside import Outside, virtual_runtime
from tests.examples import IS_EVERY_CHANGE
from tests.properties.shaky_broker import (
    FAULTS_OF_BROKERS,
    LostError,
    ShakyBroker,
    Step,
    steps_of,
)
from tests.properties.test_groups import BACKOFF, BEAT, QUIET, FencedError
from tests.unit.coordinator.groups.stage import GROUP, commit
from tests.unit.coordinator.groups_consumer.mixed_stage import (
    COUNT,
    TOPIC,
    ClassicClient,
    ConsumerClient,
    MixedBroker,
)

STATIC = (None, None, None, "one", "two")
"""The instance id of each client."""
SEEDS = 10 if IS_EVERY_CHANGE else settings().max_examples // 2
"""Seeds for each kind of group; one takes 0.1 s, so the tests of every change play few."""
CONSUMER, CLASSIC = "consumer", "classic"


class ShakyMixedBroker(ShakyBroker, MixedBroker):
    """A broker of both protocols behind a network that loses things."""


@dataclass
class Witness:
    """The commits of all clients."""

    sent: int = 0
    """The highest offset that was sent in a commit; each commit sends a higher one."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    """The highest offset of each partition that a client was told is committed."""


class Client:
    """A client as real ones are: it lives until it is stopped, or fenced by another."""

    def __init__(self, broker: ShakyMixedBroker, witness: Witness, number: int, kind: str) -> None:
        self.kind = kind
        self.number = number
        self._broker = broker
        self._witness = witness
        self.consumer = ConsumerClient(
            broker,
            f"{number}-{witness.sent}-{broker.now_ms}",
            instance_id=STATIC[number],
            topics=None if number == 2 else (TOPIC,),
            regex="a.*" if number == 2 else None,
        )
        self.classic = ClassicClient(
            broker, f"client-{number}", instance_id=STATIC[number], rebalance_timeout_ms=20_000
        )
        live = self._live_consumer if kind == CONSUMER else self._live_classic
        self._task = asyncio.ensure_future(self._live(live))

    @property
    def is_running(self) -> bool:
        """Whether it is neither stopped nor fenced."""
        return not self._task.done()

    @property
    def member_id(self) -> str:
        """The id under which it is in the group."""
        return self.consumer.member_id if self.kind == CONSUMER else self.classic.member_id

    @property
    def owned(self) -> frozenset[int]:
        """The partitions that it was given."""
        return self.consumer.owned if self.kind == CONSUMER else self.classic.owned

    async def crash(self) -> None:
        """Stop without a word."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def leave(self) -> None:
        """Stop, and tell the broker once; a static member comes back, maybe."""
        await self.crash()
        with suppress(LostError, TailraceError):
            if self.kind == CLASSIC:
                await self.classic.leave()
            elif self.consumer.epoch > 0:
                await self.consumer.leave(-1 if STATIC[self.number] is None else -2)

    async def _live(self, step: Any) -> None:
        while True:
            try:
                await step()
            except FencedError:
                return
            except (LostError, TailraceError):
                await self._broker.passes(BACKOFF)

    async def _live_consumer(self) -> None:
        answer = await self.consumer.beat()
        match answer.error_code:
            case ErrorCode.NONE:
                await self._commit(Committer(self.consumer.epoch, self.consumer.member_id, None))
                await self._broker.passes(BEAT)
            case ErrorCode.FENCED_INSTANCE_ID:
                raise FencedError
            case _:
                self.consumer.epoch, self.consumer.owned = 0, frozenset()
                await self._broker.passes(BACKOFF)

    async def _live_classic(self) -> None:
        member = self.classic
        code = ErrorCode(
            await member.follow() if member.generation < 0 else await member.heartbeat()
        )
        match code:
            case ErrorCode.NONE:
                committer = Committer(member.generation, member.member_id, member.instance_id)
                await self._commit(committer)
                await self._broker.passes(BEAT)
                return
            case ErrorCode.FENCED_INSTANCE_ID:
                raise FencedError
            case ErrorCode.REBALANCE_IN_PROGRESS:
                pass
            case ErrorCode.UNKNOWN_MEMBER_ID:
                member.member_id, member.owned = "", frozenset()
            case ErrorCode.ILLEGAL_GENERATION:
                member.owned = frozenset()
        member.generation = -1
        await self._broker.passes(BACKOFF)

    async def _commit(self, committer: Committer) -> None:
        for number in sorted(self.owned)[:1]:
            self._witness.sent += 1
            offset = self._witness.sent
            code = await commit(
                self._broker, offset, TopicPartition(TOPIC, number), committer=committer
            )
            if code == ErrorCode.NONE:
                known = self._witness.acknowledged.get(number, 0)
                self._witness.acknowledged[number] = max(known, offset)


class Stage:
    """Clients, a broker and what has been seen."""

    def __init__(self, outside: Outside) -> None:
        self.broker = ShakyMixedBroker(outside, GroupSettings())
        self.witness = Witness()
        self.clients: dict[int, Client] = {}

    async def act(self, step: Step) -> None:
        """Let something happen."""
        match step:
            case ("consumer" | "classic" as kind, number):
                # A client that is there is replaced, as in an upgrade.
                await self._stop(number, has_left=False)
                self.clients[number] = Client(self.broker, self.witness, number, kind)
            case ("crash", number):
                await self._stop(number, has_left=False)
            case ("leave", number):
                await self._stop(number, has_left=True)
            case ("topic", number):
                self.broker.topics.put("b", number + 1)
            case ("broker", _):
                await self.restart()
            case _:
                await self.broker.suffer(step)
        self.check_owners()

    async def _stop(self, number: int, *, has_left: bool) -> None:
        client = self.clients.pop(number, None)
        if client is not None:
            await (client.leave() if has_left else client.crash())

    async def restart(self) -> None:
        """Restart the broker: it must have the same group, and every offset acknowledged."""
        before = self.broker.machine.groups.consumer(GROUP)
        await self.broker.restart()
        assert self.broker.machine.groups.consumer(GROUP) == before
        offsets = self.broker.machine.groups.offsets.of_group(GROUP)
        for number, offset in self.witness.acknowledged.items():
            assert offsets[TopicPartition(TOPIC, number)].offset >= offset

    def check_owners(self) -> None:
        """No partition has two owners in a consumer group."""
        group = self.broker.machine.groups.consumer(GROUP)
        if group is None:
            return
        owned = [
            (topic_id, number)
            for member in group.members.values()
            for parts in (member.current.assigned, member.current.revoking)
            for topic_id, numbers in parts.items()
            for number in numbers
        ]
        assert len(owned) == len(set(owned))

    async def settle(self) -> None:
        """Let nothing happen any more; all clients must share all partitions then."""
        self.broker.requests_lost = self.broker.replies_lost = 0
        await self.broker.passes(QUIET)
        self.check_owners()
        running = [each for each in self.clients.values() if each.is_running]
        machine = self.broker.machine
        if not running:
            return
        kinds = {each.kind for each in running}
        assert self.broker.type == (CONSUMER if CONSUMER in kinds else CLASSIC)
        if self.broker.type == CONSUMER:
            group = machine.groups.consumer(GROUP)
            assert group is not None
            assert group.state.value == "Stable"
            members = set(group.members)
        else:
            assert self.broker.group().state.value == "Stable"
            members = set(self.broker.group().members)
        assert members == {each.member_id for each in running}
        assert sorted(n for each in running for n in each.owned) == list(range(COUNT))


FAULTS = ("crash", "leave", "topic", *FAULTS_OF_BROKERS)


@pytest.mark.parametrize("kinds", [(CONSUMER,), (CONSUMER, CLASSIC)], ids=["consumer", "mixed"])
@settings(max_examples=SEEDS)
@given(seed=st.integers(0, 2**64 - 1))
def test_a_group_of_any_clients_comes_to_rest(kinds: tuple[str, ...], seed: int) -> None:
    """Whatever happens before, they share all partitions in the end.

    No partition has two owners at any time, the group is classic when no consumer of the other
    protocol is in it, a restart finds the same group, and every commit that was acknowledged.
    """
    play(kinds, seed)


def test_members_that_wait_rebalance_when_their_group_becomes_classic() -> None:
    """They have waited for partitions of the member that came back with the other protocol."""
    play((CONSUMER, CLASSIC), 750)


def play(kinds: tuple[str, ...], seed: int) -> None:
    """Play one group from a seed."""

    async def scenario(outside: Outside) -> None:
        stage = Stage(outside)
        await stage.broker.start()
        for step in steps_of(seed, starts=kinds, clients=len(STATIC), faults=FAULTS):
            await stage.act(step)
        await stage.settle()
        await stage.restart()
        await asyncio.gather(*[each.crash() for each in stage.clients.values()])
        stage.broker.stop()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
