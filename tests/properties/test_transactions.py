"""Whole transactions of random producers, on a whole broker that is killed and loses answers."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model import IsolationLevel, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tailrace.testing import MemoryFiles, Outside, Peer, virtual_runtime
from tests.examples import IS_EVERY_CHANGE
from tests.unit.broker.brokers import connect, create_topic, fetch, running
from tests.unit.broker.transactional import Client, find, group_offset, values_of

PARTITIONS = 2
SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "log.index.size.max.bytes": "1000",
}
LIVES = 3
"""Starts of the broker, all but the last one ended by a kill."""
STEPS = 12
"""Transactions of each producer in one life, if no kill comes before."""
SEEDS = 8 if IS_EVERY_CHANGE else settings().max_examples
"""A seed takes 0.2 s, so the tests of every change play few."""
RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


class KilledError(Exception):
    """The broker is gone: no more answers come."""


class AbortError(Exception):
    """The producer gives up this transaction: a request was refused."""


@dataclass
class Transaction:
    """The records of a producer's transaction, and what the producer knows of its end."""

    values: list[tuple[int, bytes]] = field(default_factory=list)
    """Partition and value of each acknowledged record."""
    offset: int | None = None
    """The offset that was committed for the group."""
    outcome: bool | None = None
    """Whether it is committed, as the coordinator has answered; None: nobody knows."""
    is_ending: bool = False
    """Whether its producer has asked for a commit."""


@dataclass
class Producer:
    """A producer that goes on with each new broker: it begins with InitProducerId."""

    transactional_id: str
    knows_epochs: bool
    chance: random.Random
    done: list[Transaction] = field(default_factory=list)
    number: int = 0
    sequences: dict[tuple[int, int], dict[int, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )
    """The next sequence of each partition, which begin anew with each epoch."""

    async def live(self, peer: Peer, trouble: "Trouble") -> None:
        """Some transactions, one behind the other; the broker may die before each request."""
        client = Client(peer, self.transactional_id, knows_epochs=self.knows_epochs)
        await self._until(client.init, trouble)
        for _ in range(STEPS):
            transaction = Transaction()
            self.done.append(transaction)
            try:
                await self._write(client, transaction, trouble)
                await self._end(client, transaction, trouble)
            except AbortError:
                transaction.outcome = False if not transaction.is_ending else None
                await self._until(client.init, trouble)

    async def _write(self, client: Client, transaction: Transaction, trouble: "Trouble") -> None:
        sequences = self.sequences[client.producer_id, client.epoch]
        for partition in self.chance.sample(range(PARTITIONS), self.chance.randint(1, PARTITIONS)):
            if not self.knows_epochs:
                await self._until(partial(_add, client, partition), trouble)
            self.number += 1
            value = b"%s.%d" % (self.transactional_id.encode(), self.number)
            sequence = sequences[partition]

            async def send(
                number: int = partition, value: bytes = value, sequence: int = sequence
            ) -> ErrorCode:
                answer = await client.send(value, partition=number, sequence=sequence)
                return ErrorCode(answer.error_code)

            await self._until(send, trouble)
            if self.chance.random() < 0.2:
                await self._until(send, trouble)  # The answer was lost: it is sent again.
            sequences[partition] = sequence + 1
            transaction.values.append((partition, value))
        if self.chance.random() < 0.4:
            if not self.knows_epochs:
                await self._until(client.add_offsets, trouble)
            offset = self.number
            await self._until(lambda: client.commit_offset(offset), trouble)
            transaction.offset = offset

    async def _end(self, client: Client, transaction: Transaction, trouble: "Trouble") -> None:
        is_commit = self.chance.random() < 0.7
        transaction.is_ending = is_commit
        producer = client.producer_id, client.epoch
        await self._until(lambda: client.end(is_commit=is_commit), trouble)
        transaction.outcome = is_commit
        if self.chance.random() < 0.3:
            # The answer was lost: asked again under the old epoch, the end is the same.
            again = Client(
                client.peer,
                self.transactional_id,
                knows_epochs=self.knows_epochs,
                producer_id=producer[0],
                epoch=producer[1],
            )
            await self._until(lambda: again.end(is_commit=is_commit), trouble)
            assert (again.producer_id, again.epoch) == (client.producer_id, client.epoch)

    async def _until(self, ask: Callable[[], Awaitable[ErrorCode]], trouble: "Trouble") -> None:
        """Ask until the answer is no error that is tried again."""
        while True:
            trouble.tick()
            error = await ask()
            trouble.check()
            if error is ErrorCode.NONE:
                return
            if error not in RETRIED:
                raise AbortError(error.name)
            await trouble.outside.pass_time(0.05)


async def _add(client: Client, partition: int) -> ErrorCode:
    [code] = await client.add(partition)
    return code


@dataclass
class Trouble:
    """Kills the broker, or takes its machine's power, before one of the requests."""

    outside: Outside
    requests_left: int
    is_power_loss: bool = False
    disk: MemoryFiles | None = None

    def tick(self) -> None:
        """Count a request.

        Raises:
            KilledError: the broker is dead; `disk` has what it has left.
        """
        self.requests_left -= 1
        if self.requests_left <= 0 and self.disk is None:
            self.disk = self.outside.files.crash(keep_unsynced=not self.is_power_loss)
        self.check()

    def check(self) -> None:
        """An answer of a dead broker did not come.

        Raises:
            KilledError: the broker is dead.
        """
        if self.disk is not None:
            raise KilledError


async def life(
    outside: Outside, producers: list[Producer], *, requests: int, is_power_loss: bool
) -> MemoryFiles | None:
    """A start of the broker, up to a crash; the disk that it leaves, or None."""
    trouble = Trouble(outside, requests, is_power_loss=is_power_loss)
    durability = "sync" if is_power_loss else "page-cache"
    async with running(outside, SETTINGS | {"tailrace.durability": durability}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "d", partitions=PARTITIONS)
        for kind in (0, 1):
            await find(peer, kind)
        ends = await asyncio.gather(
            *(each.live(connect(outside, broker), trouble) for each in producers),
            return_exceptions=True,
        )
        for end in ends:
            if end is not None and not isinstance(end, KilledError):
                raise end
        return trouble.disk


async def check(outside: Outside, producers: list[Producer]) -> None:
    """All transactions are there whole, or not at all, as their producers were told."""
    async with running(outside, SETTINGS) as broker:
        await outside.pass_time(1)
        peer = connect(outside, broker)
        for each in producers:
            # The last transaction may be open: the next producer ends it.
            client = Client(peer, each.transactional_id)
            while await client.init() is not ErrorCode.NONE:
                await outside.pass_time(0.1)
        await outside.pass_time(1)
        found = [await read(peer, number) for number in range(PARTITIONS)]
        for number, values in enumerate(found):
            assert len(set(values)) == len(values), "a record is there twice"
            log = broker.replicas.find(TopicPartition("d", number)).log
            assert log.positions.last_stable == log.end_offset, "a transaction hangs"
        there = [set(values) for values in found]
        for transaction in (each for producer in producers for each in producer.done):
            are_there = {value in there[number] for number, value in transaction.values}
            assert len(are_there) <= 1, "a transaction is there in part"
            outcome = transaction.outcome if transaction.is_ending else False
            if transaction.values and outcome is not None:
                assert are_there == {outcome}, "it has not ended as answered"
        await check_offsets(peer, producers)


async def check_offsets(peer: Peer, producers: list[Producer]) -> None:
    """The group has an offset of a transaction that was committed, or may be; none is pending."""
    committed = await group_offset(peer)
    assert not isinstance(committed, ErrorCode), "an offset is pending"
    offsets = {
        each.offset: each.outcome
        for producer in producers
        for each in producer.done
        if each.offset is not None
    }
    if True in offsets.values() or committed != -1:
        assert committed in offsets
        assert offsets[committed] is not False


async def read(peer: Peer, partition: int) -> list[bytes]:
    """The values of a partition for a read_committed consumer."""
    wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=2**24)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=IsolationLevel.READ_COMMITTED,
        topics=(FetchTopic(topic="d", partitions=(wanted,)),),
    )
    return values_of(await fetch(peer, request))


def play(seed: int, *, is_power_loss: bool = False) -> list[Producer]:
    """Some lives of a broker from a seed, then the check.

    With `is_power_loss` the device has only what was flushed, and `tailrace.durability` is `sync`.
    """
    chance = random.Random(seed)
    producers = [
        Producer(name, knows_epochs, random.Random(chance.random()), number=1000 * index)
        for index, (name, knows_epochs) in enumerate((("a", False), ("b", True)))
    ]
    files: MemoryFiles | None = None
    for _ in range(LIVES):
        with virtual_runtime(files=files) as outside:
            requests = chance.randint(1, 120)
            files = outside.run(
                life(outside, producers, requests=requests, is_power_loss=is_power_loss)
            )
            files = files or outside.files.crash(keep_unsynced=not is_power_loss)
    with virtual_runtime(files=files) as outside:
        outside.run(check(outside, producers))
    return producers


@given(seed=st.integers(0, 2**32), is_power_loss=st.booleans())
@settings(max_examples=SEEDS)
def test_transactions_end_whole_and_as_answered(
    seed: int,
    is_power_loss: bool,  # noqa: FBT001
) -> None:
    """Through crashes, lost answers and both transaction versions: nothing twice or in part."""
    play(seed, is_power_loss=is_power_loss)


def test_the_lives_of_a_seed_commit_and_abort() -> None:
    """The events are worth their time: transactions of both kinds come to each end."""
    done = [each for seed in range(5) for producer in play(seed) for each in producer.done]
    outcomes = [each.outcome for each in done if each.values]
    assert outcomes.count(True) > 20
    assert outcomes.count(False) > 10
    assert outcomes.count(None) > 0
    assert sum(each.offset is not None and each.outcome is True for each in done) > 5
