"""Coordinators whose partitions change their leaders at random, while groups and producers work.

    clients      commit offsets, and end transactions over two partitions and a group
    controller   elects another leader of a partition, the same one again, or nobody for a while
    network      loses and delays requests between brokers
    followers    stop and resume; a broker may not hear of new leaders for a while

What was acknowledged is there in the end; offsets never go back; and each transaction has one end
in all of its partitions.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.records.builder import records_of
from tailrace.records.control import ControlType, end_transaction_marker_or_none
from tailrace.testing.outside import virtual_runtime
from tests.examples import examples
from tests.unit.broker.cluster_producer import (
    RETRIED,
    UNAVAILABLE,
    Producer,
    commit,
    committed,
)
from tests.unit.broker.homes import DATA, GROUPS, NODES, TRANSACTIONS, Homes

SECONDS = 20
PAUSE_S = 0.05


@dataclass
class GroupClient:
    """Commits one offset after the other, and reads it again."""

    homes: Homes
    group_id: str
    acknowledged: int = -1
    attempted: int = -1
    epoch: int = -1
    """The newest leader epoch in which it has had an answer: it asks nobody of an older one."""

    async def run(self) -> None:
        while True:
            await self.homes.outside.pass_time(self.homes.chance.random() * 0.2)
            self.attempted += 1
            while await self.ask(self.attempted) is None:
                await self.homes.outside.pass_time(PAUSE_S)
            self.acknowledged = self.attempted
            found = await self.ask(None)
            assert found in {None, self.acknowledged}

    async def ask(self, offset: int | None) -> int | None:
        """Commit an offset or, for None, read it; None: no coordinator has answered."""
        home = self.homes.by_id[self.homes.chance.choice(NODES)]
        if not home.leads(GROUPS) or home.partition(GROUPS).leader_epoch < self.epoch:
            return None
        epoch = home.partition(GROUPS).leader_epoch
        try:
            if offset is None:
                found = await committed(home, self.group_id)
            else:
                assert await commit(home, self.group_id, offset) is ErrorCode.NONE
                found = offset
        except UNAVAILABLE:
            return None
        self.epoch = max(self.epoch, epoch)
        return found


@dataclass
class Ended:
    """A transaction, and the end that its client knows of."""

    values: dict[TopicPartition, bytes] = field(default_factory=dict)
    """Values that are in a log, or may be."""
    is_commit: bool | None = None
    """None: the client does not know."""
    offset: int | None = None
    """The offset that it has committed for its group."""


@dataclass
class ProducerClient:
    """Runs one transaction after the other."""

    homes: Homes
    name: str
    transactions: list[Ended] = field(default_factory=list)

    async def run(self) -> None:
        producer = Producer(self.homes, self.name, timeout_ms=3000)
        count, is_begun = 0, False
        while True:
            await self.homes.outside.pass_time(PAUSE_S)
            try:
                if not is_begun:
                    is_begun = await producer.begin() is ErrorCode.NONE
                    continue
                count += 1
                # Unknown until its end is acknowledged, also where this task ends before.
                ended = Ended()
                self.transactions.append(ended)
                is_begun = await self.transact(producer, ended, count)
            except TailraceError:
                is_begun = False

    async def transact(self, producer: Producer, ended: Ended, count: int) -> bool:
        """Write and end a transaction; whether the producer can go on without InitProducerId."""
        chance = self.homes.chance
        wants_commit = chance.random() < 0.7
        for each in chance.sample(DATA, chance.randint(1, len(DATA))):
            value = b"%s:%d:%d" % (self.name.encode(), count, each.partition)
            ended.values[each] = value
            code = await self.until_known(lambda: producer.send(each, value))  # noqa: B023
            if code is not ErrorCode.NONE:
                del ended.values[each]
                return False
        if chance.random() < 0.5:
            ended.offset = count
            group_id = f"of-{self.name}"
            code = await self.until_known(lambda: producer.send_offset(group_id, count))
            if code is not ErrorCode.NONE:
                ended.offset = None
                return False
        code = await self.until_known(lambda: producer.end(is_commit=wants_commit))
        if code is ErrorCode.NONE:
            ended.is_commit = wants_commit
        return code is ErrorCode.NONE

    async def until_known(self, step: Callable[[], Awaitable[ErrorCode]]) -> ErrorCode:
        """The code of a step that is repeated while it may help; raises what leaves it unknown."""
        code = ErrorCode.NONE
        for _ in range(100):
            code = await step()
            if code not in RETRIED and code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return code
            await self.homes.outside.pass_time(PAUSE_S)
        return code


async def trouble(homes: Homes) -> None:
    """Let leaders change, the network lose requests, and followers stop."""
    chance, state = homes.chance, homes.trouble
    while True:
        await homes.outside.pass_time(chance.random() * 1.5)
        match chance.choice(("elect", "elect", "elect", "nobody", "network", "stop", "blind")):
            case "elect":
                name = chance.choice((GROUPS, TRANSACTIONS, TRANSACTIONS, *DATA))
                homes.elect(name, chance.choice(NODES))
            case "nobody":
                name = chance.choice((GROUPS, *DATA))
                homes.elect(name, -1)
                await homes.outside.pass_time(chance.random())
                homes.elect(name, chance.choice(NODES))
            case "network":
                state.loss = chance.choice((0.0, 0.1, 0.3))
                state.delay_s = chance.choice((0.0, 0.01, 0.5))
            case "stop":
                state.stopped = set(chance.sample(NODES, chance.choice((0, 0, 1))))
            case _:
                state.blind = set(chance.sample(NODES, chance.choice((0, 0, 1))))


def check_logs(homes: Homes) -> dict[bytes, bool]:
    """Each value of the data with whether it is committed; and each marker counts once."""
    outcomes: dict[bytes, bool] = {}
    for name in DATA:
        home = homes.leader(name)
        assert home.partition(name).log.positions.high_watermark == (
            home.partition(name).log.end_offset
        )
        open_values: defaultdict[int, list[bytes]] = defaultdict(list)
        ends: dict[tuple[int, int], bool] = {}
        epochs: defaultdict[int, int] = defaultdict(int)
        for batch in home.batches(name):
            # An older producer, or an older end, never comes after a newer one.
            assert batch.producer_epoch >= epochs[batch.producer_id]
            epochs[batch.producer_id] = batch.producer_epoch
            if not batch.is_control:
                open_values[batch.producer_id] += [
                    bytes(each.value or b"") for each in records_of(batch)
                ]
                continue
            marker = end_transaction_marker_or_none(batch)
            assert marker is not None
            is_commit = marker.type is ControlType.COMMIT
            # A marker may come twice, after a lost answer; then it says the same.
            key = batch.producer_id, batch.producer_epoch
            assert ends.setdefault(key, is_commit) == is_commit
            for value in open_values.pop(batch.producer_id, []):
                assert value not in outcomes
                outcomes[value] = is_commit
        assert not open_values, "a transaction hangs"
    return outcomes


async def scenario(homes: Homes) -> None:
    homes.start()
    await homes.outside.pass_time(1)
    groups = [GroupClient(homes, f"g{each}") for each in range(3)]
    producers = [ProducerClient(homes, f"t{each}") for each in range(4)]
    runs = [each.run() for each in groups] + [each.run() for each in producers]
    clients = [asyncio.ensure_future(each) for each in runs]
    troubles = asyncio.ensure_future(trouble(homes))
    await homes.outside.pass_time(SECONDS)
    troubles.cancel()
    for each in (*clients, troubles):
        if each.done():
            each.result()
        each.cancel()
    for name in homes.states:
        if homes.states[name].leader < 0:
            homes.elect(name, 1)
    # Longer than the longest pause before a marker is tried again, and any transaction is open.
    await homes.settle(30)
    for group in groups:
        last = await committed(homes.leader(GROUPS), group.group_id)
        assert group.acknowledged <= last <= group.attempted
    outcomes = check_logs(homes)
    for client in producers:
        offset = -1
        for ended in client.transactions:
            found = {outcomes[each] for each in ended.values.values() if each in outcomes}
            assert len(found) <= 1, "a transaction is committed in one partition, and not in all"
            if ended.is_commit is not None:
                assert all(each in outcomes for each in ended.values.values())
                assert found <= {ended.is_commit}
                if ended.is_commit and ended.offset is not None:
                    offset = ended.offset
        found_offset = await committed(homes.leader(GROUPS), f"of-{client.name}")
        unknown = {each.offset for each in client.transactions if each.is_commit is None}
        assert found_offset == offset or found_offset in unknown
        assert found_offset >= offset
    await homes.stop()


@given(seed=st.integers(min_value=0, max_value=2**32))
@settings(max_examples=examples(10), deadline=None)
def test_nothing_acknowledged_is_lost_while_coordinators_move(seed: int) -> None:
    """Offsets and ends of transactions, under leaders that change all the time."""
    with virtual_runtime(seed=seed) as outside:
        outside.run(scenario(Homes(outside, seed=seed)))
