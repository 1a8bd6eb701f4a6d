"""A kill or a power loss at every file operation of a whole broker while transactions run.

The broker runs once, with `tailrace.durability=sync`; at each operation its disk is copied in all
ways that a crash may leave it, with what the clients had been told until then.
"""

import copy
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace

from tailrace.broker.broker import RunningBroker
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.testing import MemoryFiles, Outside, Peer, virtual_runtime
from tests.crash.workloads import crash_all_ways
from tests.steps import Steps
from tests.unit.broker.brokers import connect, create_topic, running
from tests.unit.broker.transactional import Client, committed_values, find, group_offset

PARTITIONS = range(2)
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "log.index.size.max.bytes": "1000",
    "tailrace.durability": "sync",
}
TIMEOUT_MS = 5_000
TIMEOUT_AND_CLEANUP_S = 60
"""More than the work takes, the timeout, and the interval in which the broker looks for it."""
PARTIAL_BYTES = 10
"""Bytes that a write leaves in which the process is killed."""


@dataclass
class Transaction:
    """The records of a transaction, one in each partition, and what its producer was told."""

    value: bytes
    offset: int
    """The offset that it commits for the group."""
    is_commit: bool = False
    """Whether its producer has asked for a commit."""
    is_answered: bool = False
    """Whether EndTxn was answered, so that it must have ended as asked."""


@dataclass
class Told:
    """The answers that clients have got, and the end that they have asked for."""

    transactions: list[Transaction] = field(default_factory=list)
    """Transactions whose records and offset were all acknowledged, in their order."""
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The last producer id and epoch of each transactional id."""
    first_operation: int | None = None
    """The first operation behind the creation of the topic for data."""

    def note(self, client: Client) -> None:
        """Note the id and epoch that a client has got."""
        self.producers[client.transactional_id] = client.producer_id, client.epoch


@dataclass(frozen=True)
class Crash:
    """A disk that a crash leaves, and what the clients had been told before it."""

    disk: MemoryFiles
    told: Told


class Crashes:
    """Copies the disk of a running broker at some of its operations; a hook of `MemoryFiles`."""

    def __init__(self, files: MemoryFiles, told: Told, stop_at: Collection[int]) -> None:
        self.found: dict[object, Crash] = {}
        """One of each kind: many operations leave what the one before has left."""
        self._files = files
        self._told = told
        self._stop_at = stop_at
        self._torn: tuple[str, bytes] | None = None
        """The file in which a write is in progress, and its content before."""

    def look(self, operation: str, path: str) -> None:
        """Crash before this operation, and in the write before it."""
        if self._torn is not None:
            self._tear(*self._torn)
            self._torn = None
        number = len(self._files.operations) - 1
        if number in self._stop_at:
            for _, disk in crash_all_ways(self._files, seed=number):
                self._add(disk)
            if operation == "write":
                self._torn = path, self._files.content(path)

    def _tear(self, path: str, before: bytes) -> None:
        """The disk of a process that was killed when a write had added a few bytes."""
        torn = self._files.content(path)[: len(before) + PARTIAL_BYTES]
        if torn.startswith(before):
            disk = self._files.crash(keep_unsynced=True)
            disk.overwrite(path, torn)
            self._add(disk)

    def _add(self, disk: MemoryFiles) -> None:
        told = copy.deepcopy(self._told)
        self.found.setdefault((hash(disk.state()), repr(told)), Crash(disk, told))


async def work(outside: Outside, told: Told) -> None:
    """Commits and aborts of both transaction versions, a fenced producer and a timeout."""
    async with running(outside, SETTINGS) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "d", partitions=len(PARTITIONS))
        told.first_operation = len(outside.files.operations)
        for kind in (0, 1):
            await find(peer, kind)
        old = Client(peer, "old")
        new = Client(peer, "new", knows_epochs=True)
        for client in (old, new):
            await begin(outside, client, told)
            for is_commit in (True, False, True):
                transaction = await write(outside, client, told)
                await end(outside, client, transaction, told, is_commit=is_commit)
        for client in (old, new):
            await write(outside, client, told)
            fenced = replace(client)
            await begin(outside, client, told)
            assert await fenced.end() is ErrorCode.PRODUCER_FENCED
            transaction = await write(outside, client, told)
            await end(outside, client, transaction, told, is_commit=True)
        late = Client(peer, "late")
        await begin(outside, late, told)
        await write(outside, late, told)
        await outside.pass_time(3 * TIMEOUT_MS / 1000 + 1)
        assert await late.end() is ErrorCode.PRODUCER_FENCED
        await write(outside, new, told)


async def begin(outside: Outside, client: Client, told: Told) -> None:
    """Get a producer id and epoch; what is open is aborted."""
    await until_done(outside, lambda: client.init(timeout_ms=TIMEOUT_MS))
    told.note(client)


async def write(outside: Outside, client: Client, told: Told) -> Transaction:
    """Write a record to each partition, and an offset of the group."""
    number = len(told.transactions)
    value = b"%d" % number
    if not client.knows_epochs:

        async def add() -> ErrorCode:
            return max(await client.add(*PARTITIONS))

        await until_done(outside, add)
        await until_done(outside, client.add_offsets)
    sequence = client.sequence
    for partition in PARTITIONS:

        async def send(partition: int = partition) -> ErrorCode:
            answer = await client.send(value, partition=partition, sequence=sequence)
            return ErrorCode(answer.error_code)

        await until_done(outside, send)
    client.sequence = sequence + 1
    await until_done(outside, lambda: client.commit_offset(number))
    transaction = Transaction(value, number)
    told.transactions.append(transaction)
    return transaction


async def end(
    outside: Outside, client: Client, transaction: Transaction, told: Told, *, is_commit: bool
) -> None:
    """End a transaction."""
    transaction.is_commit = is_commit
    await until_done(outside, lambda: client.end(is_commit=is_commit))
    transaction.is_answered = True
    told.note(client)


async def until_done(outside: Outside, ask: Callable[[], Awaitable[ErrorCode]]) -> None:
    """Ask until the markers of the transaction before are written and the coordinator is loaded."""
    while (error := await ask()) is not ErrorCode.NONE:
        assert error in {
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_ENOUGH_REPLICAS,
        }
        await outside.pass_time(0.05)


async def check(outside: Outside, told: Told) -> None:
    """Transactions have ended as answered, everywhere alike, and each producer goes on."""
    async with running(outside, SETTINGS) as broker:
        peer = connect(outside, broker)
        for kind in (0, 1):
            await find(peer, kind)
        await outside.pass_time(TIMEOUT_AND_CLEANUP_S)
        await check_ends(broker, peer, told)
        for transactional_id in ("old", "new", "late", "stranger"):
            before = dict(told.producers)
            client = Client(peer, transactional_id, knows_epochs=transactional_id == "new")
            await begin(outside, client, told)
            producer = client.producer_id, client.epoch
            assert producer > before.pop(transactional_id, (-1, -1)), "an epoch goes back"
            assert client.producer_id not in {each for each, _ in before.values()}
            transaction = await write(outside, client, told)
            await end(outside, client, transaction, told, is_commit=True)
        await outside.pass_time(1)
        await check_ends(broker, peer, told)


async def check_ends(broker: RunningBroker, peer: Peer, told: Told) -> None:
    """No transaction is open, and records and offsets are those of the same transactions."""
    visible = [await committed_values(peer, partition=partition) for partition in PARTITIONS]
    for partition in PARTITIONS:
        log = broker.replicas.find(TopicPartition("d", partition)).log
        assert log.positions.last_stable == log.end_offset, "a transaction is open"
    assert visible[0] == visible[1], "a transaction is there in part"
    for transaction in told.transactions:
        is_visible = transaction.value in visible[0]
        assert transaction.is_commit or not is_visible
        assert is_visible or not (transaction.is_commit and transaction.is_answered)
    committed = [each.offset for each in told.transactions if each.value in visible[0]]
    assert len(committed) == len(visible[0]), "a record that no transaction has, or one twice"
    assert await group_offset(peer) == (committed[-1] if committed else -1)


def crashes(stop_at: Collection[int]) -> tuple[range, list[Crash]]:
    """The operations of the workload, and the disks that crashes at some of them leave."""
    with virtual_runtime() as outside:
        told = Told()
        found = Crashes(outside.files, told, stop_at)
        outside.files.on_call = found.look
        outside.run(work(outside, told))
        assert told.first_operation is not None
        return range(told.first_operation, len(outside.files.operations)), [*found.found.values()]


def test_a_crash_at_any_operation_leaves_transactions_whole_and_ended(steps: Steps) -> None:
    """Answers hold, the rest ends by its timeout, and no producer id or epoch goes back."""
    operations, _ = crashes(())
    assert len(operations) > 400
    _, found = crashes(set(steps(operations)))
    for crash in found:
        with virtual_runtime(files=crash.disk) as outside:
            outside.run(check(outside, crash.told))
