"""The clients of a simulated cluster, and what they were told.

    produce          numbered records to every partition, idempotently
    transact         transactions over all partitions, with aborts, offsets and lost producers
    read             a reader of everything, which never goes back
    read_committed   a member of a group, which commits, dies and comes back
    commit_offsets   increasing offsets for a group, and looks at what it has
    watch_ends       the ends of the partitions, as consumers may see them

Each notes only what it knows: an answer that was lost says nothing.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from tailrace.client.consumer.aio import AsyncConsumer
from tailrace.client.consumer.errors import LogTruncationError
from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.errors import (
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
    TransactionTimeoutError,
)
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.runtime.system import Runtime
from tailrace.testing.machines import NodeNetwork

PARTITIONS: Final = tuple(TopicPartition("t", number) for number in range(2))
TX_GROUP: Final = "of-transactions"
"""The group whose offsets are committed in transactions."""
CLERK: Final = "of-the-clerk"
"""The group of `commit_offsets`."""
PAUSE_S: Final = 0.2
"""Time until a client tries again after an error."""


class Outcome(Enum):
    """The end of a transaction, as its producer knows it."""

    COMMITTED = "all of it is visible"
    ABORTED = "none of it is visible"
    UNKNOWN = "either"


@dataclass(slots=True)
class Told:
    """The knowledge of clients."""

    acknowledged: dict[TopicPartition, list[tuple[int, bytes]]] = field(
        default_factory=lambda: {each: [] for each in PARTITIONS}
    )
    """Offsets and values whose sends have succeeded."""
    transactions: dict[int, Outcome] = field(default_factory=dict)
    """Outcomes by the number of the transaction."""
    read: dict[TopicPartition, list[tuple[int, bytes]]] = field(
        default_factory=lambda: {each: [] for each in PARTITIONS}
    )
    """Offsets and values that the reader has got."""
    committed_read: dict[TopicPartition, dict[int, bytes]] = field(
        default_factory=lambda: {each: {} for each in PARTITIONS}
    )
    """Values by offset that the reader of committed records has got, from all of its lives."""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """Offsets of the group of that reader whose commit was acknowledged."""
    clerk: int = 0
    """The largest offset of the clerk whose commit was acknowledged."""


@dataclass(frozen=True, slots=True)
class Clients:
    """The things that all clients share."""

    runtime: Callable[[], Runtime]
    """The seams of a new process; its network is a `NodeNetwork`."""
    bootstrap: str
    chance: random.Random
    told: Told
    until_s: float
    """When producers end."""
    note: Callable[[str], None]
    """Adds to the story."""
    pass_time: Callable[[float], Awaitable[None]]
    """Lets virtual seconds pass."""
    may_lose_read: bool = False
    """Leaders may lose power, and with it what they have shown and not acknowledged yet."""

    @property
    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self.until_s

    def producer(self, runtime: Runtime, **settings: Any) -> AsyncProducer:
        """A producer that gives nothing up."""
        return AsyncProducer(
            bootstrap_servers=self.bootstrap,
            runtime=runtime,
            linger_ms=0,
            request_timeout_ms=2000,
            delivery_timeout_ms=600_000,
            retry_backoff_ms=50,
            **settings,
        )

    def consumer(self, runtime: Runtime, **settings: Any) -> AsyncConsumer:
        """A consumer with short waits."""
        return AsyncConsumer(
            bootstrap_servers=self.bootstrap,
            runtime=runtime,
            request_timeout_ms=2000,
            fetch_max_wait_ms=200,
            **settings,
        )


@asynccontextmanager
async def _process(
    clients: Clients, make: Callable[..., Any], **settings: object
) -> AsyncIterator[Any]:
    """A client in a process of its own; an error in the block kills the process."""
    runtime = clients.runtime()
    client = make(runtime, **settings)
    try:
        yield client
    except BaseException:
        assert isinstance(runtime.network, NodeNetwork)
        runtime.network.go()
        await client.close(0)
        raise
    await client.close()


class KilledError(Exception):
    """The process of a client ends at once."""


# -- producers --------------------------------------------------------------------------------


async def produce(clients: Clients) -> None:
    """Send numbered records to every partition, and note which were acknowledged."""
    number = 0
    async with clients.producer(clients.runtime()) as producer:

        async def send(name: TopicPartition, value: bytes) -> None:
            receipt = await producer.send(name.topic, value, partition=name.partition)
            clients.told.acknowledged[name].append((receipt.offset, value))

        sends = []
        while not clients.is_over:
            for name in PARTITIONS:
                number += 1
                sends.append(asyncio.ensure_future(send(name, b"p%d" % number)))
            await clients.pass_time(clients.chance.choice([0.01, 0.05, 0.2]))
        await asyncio.gather(*sends)


async def transact(clients: Clients) -> None:
    """Run transactions, with a new producer of the same id after each that was lost."""
    is_over = False
    while not is_over:
        is_over = clients.is_over
        try:
            async with _process(
                clients, clients.producer, transactional_id="x", max_block_ms=3000
            ) as producer:
                await producer.init_transactions()
                # The last one only aborts what the one before has left open.
                while not is_over and not clients.is_over:
                    await _transaction(clients, producer)
        except (TailraceError, KilledError) as error:
            clients.note(f"transactional producer: {error!r}")
            is_over = is_over and not isinstance(error, TransactionTimeoutError)
            await clients.pass_time(PAUSE_S)


async def _transaction(clients: Clients, producer: AsyncProducer) -> None:
    told, chance = clients.told, clients.chance
    number = len(told.transactions) + 1
    # Whatever ends it before it is asked to commit: nobody may see it.
    told.transactions[number] = Outcome.ABORTED
    try:
        await producer.begin_transaction()
        for name in PARTITIONS:
            producer.send(name.topic, b"x%d" % number, partition=name.partition)
        await producer.send_offsets_to_transaction({PARTITIONS[0]: number}, TX_GROUP)
        await clients.pass_time(chance.choice([0.0, 0.05, 0.3]))
        end = chance.choice(["commit", "commit", "commit", "abort", "die"])
        if end == "die":
            raise KilledError
        if end == "abort":
            await producer.abort_transaction()
        else:
            await _commit(clients, producer, number)
    except (TransactionAbortableError, TransactionTimeoutError):
        if told.transactions[number] is Outcome.UNKNOWN:
            raise
        await producer.abort_transaction()


async def _commit(clients: Clients, producer: AsyncProducer, number: int) -> None:
    told = clients.told
    told.transactions[number] = Outcome.UNKNOWN
    try:
        await producer.commit_transaction()
    except TransactionOutcomeUnknownError:
        if clients.chance.random() < 0.3:
            raise KilledError from None
        while True:
            try:
                await producer.finish_transaction()
                break
            except TransactionOutcomeUnknownError as error:
                if error.is_final:
                    raise
            except TransactionAbortableError:
                told.transactions[number] = Outcome.ABORTED
                return
    except TransactionAbortableError:
        told.transactions[number] = Outcome.ABORTED
        raise
    told.transactions[number] = Outcome.COMMITTED


# -- consumers --------------------------------------------------------------------------------


async def read(clients: Clients) -> None:
    """Read every partition from its beginning, until cancelled."""
    async with clients.consumer(clients.runtime(), auto_offset_reset="none") as consumer:
        consumer.assign(PARTITIONS)
        for each in PARTITIONS:
            consumer.seek(each, 0)
        # Whatever happens to brokers, it waits: an error ends the life, and is a fault.
        while True:
            try:
                async for record in consumer:
                    name = TopicPartition(record.topic, record.partition)
                    clients.told.read[name].append((record.offset, record.value or b""))
            except LogTruncationError as error:
                if not clients.may_lose_read:
                    raise
                _go_back(clients, consumer, error)


def _go_back(clients: Clients, consumer: AsyncConsumer, error: LogTruncationError) -> None:
    """Forget what was read and is gone; that none of it was acknowledged is checked at the end."""
    for name in error.offsets:
        place = error.divergent[name]
        assert place is not None, f"{name}: nobody knows from where on it is gone"
        clients.note(f"the reader of {name} goes back from {error.offsets[name]} to {place[0]}")
        consumer.seek(name, place[0])
        read = clients.told.read[name]
        clients.told.read[name] = [each for each in read if each[0] < place[0]]


async def read_committed(clients: Clients, *, protocol: str) -> None:
    """Read committed records as a member of a group, in one life after the other."""
    told = clients.told
    while True:
        started = dict(told.offsets)
        first: set[TopicPartition] = set()
        try:
            async with _process(
                clients,
                clients.consumer,
                group_id="readers",
                group_protocol=protocol,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **({} if protocol == "consumer" else {"session_timeout_ms": 6000}),
            ) as consumer:
                consumer.subscribe(["t"])
                while True:
                    records = await consumer.poll(1.0)
                    for record in records:
                        name = TopicPartition(record.topic, record.partition)
                        if name not in first:
                            first.add(name)
                            assert record.offset >= started.get(name, 0), (
                                f"{name}: the group began at {record.offset}, before its committed "
                                f"offset {started[name]}"
                            )
                        value = record.value or b""
                        known = told.committed_read[name].setdefault(record.offset, value)
                        assert known == value, f"{name}: another record at {record.offset}"
                    if not records:
                        continue
                    if clients.chance.random() < 0.1 and not clients.is_over:
                        raise KilledError
                    ends = {
                        TopicPartition(each.topic, each.partition): each.offset + 1
                        for each in records
                    }
                    await consumer.commit(ends)
                    told.offsets.update(ends)
        except (TailraceError, KilledError) as error:
            clients.note(f"member of a group: {error!r}")
            await clients.pass_time(PAUSE_S)


async def commit_offsets(clients: Clients) -> None:
    """Commit increasing offsets of a group; none that was acknowledged is ever forgotten."""
    name, told, tried = PARTITIONS[0], clients.told, 0
    async with clients.consumer(
        clients.runtime(), group_id=CLERK, enable_auto_commit=False
    ) as consumer:
        consumer.assign(PARTITIONS)
        while not clients.is_over:
            try:
                tried += 1
                await consumer.commit({name: tried})
                told.clerk = tried
                if tried % 3 == 0:
                    found = (await consumer.committed([name]))[name]
                    assert found is not None, "the group has no offset"
                    assert told.clerk <= found.offset <= tried, (
                        f"the group's offset is {found.offset}, {told.clerk} was committed"
                    )
            except TailraceError as error:
                clients.note(f"clerk: {error!r}")
            await clients.pass_time(clients.chance.choice([0.02, 0.1]))


async def committed_offset(clients: Clients, group: str) -> int:
    """The offset that a group has for the first partition; 0: none."""
    async with clients.consumer(
        clients.runtime(), group_id=group, enable_auto_commit=False
    ) as consumer:
        found = (await consumer.committed([PARTITIONS[0]], timeout=60))[PARTITIONS[0]]
        return 0 if found is None else found.offset


async def watch_ends(clients: Clients) -> None:
    """Ask for the ends of the partitions again and again: they never go back."""
    ends = dict.fromkeys(PARTITIONS, 0)
    async with clients.consumer(clients.runtime()) as consumer:
        while not clients.is_over:
            try:
                found = await consumer.end_offsets(PARTITIONS)
            except TailraceError as error:
                clients.note(f"watcher of ends: {error!r}")
            else:
                for name, end in found.items():
                    assert end >= ends[name], (
                        f"{name}: the end went back from {ends[name]} to {end}"
                    )
                    ends[name] = end
            await clients.pass_time(0.1)
