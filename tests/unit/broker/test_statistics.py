"""The figures of a broker's parts."""

import asyncio

import pytest

from tailrace.broker.broker import BrokerStatistics
from tailrace.broker.coordinators import CoordinatorsStatistics
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.replication.flushes import FlushStatistics
from tailrace.replication.moves import MovesStatistics, MoveStatistics
from tailrace.testing import DiskFault, Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running
from tests.unit.broker.test_create_partitions import grow
from tests.unit.broker.test_groups import commit
from tests.unit.broker.transactional import begin

SYNC = {"tailrace.durability": "sync"}
FLUSH_S = 0.5
"""Virtual seconds that the device takes in these tests."""
SLOW = {"log.dirs": "one,two", "replica.alter.log.dirs.io.max.bytes.per.second": "1"}
"""Two directories, and a move between them that takes a minute and more."""
FEW_PARTITIONS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "3",
}
"""Fewer partitions of the coordinators' topics than by default."""


async def move(peer: Peer, path: str) -> None:
    """Ask for the move of the first partition of `t`."""
    topics = (AlterReplicaLogDirTopic(name="t", partitions=(0,)),)
    request = AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=path, topics=topics),))
    await peer.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, request, AlterReplicaLogDirsResponse)


def test_a_broker_tells_of_all_its_parts_at_once() -> None:
    """One value has connections, partitions, logs and the jobs of every directory."""

    async def scenario(outside: Outside) -> BrokerStatistics:
        async with running(outside, {"log.dirs": "one,two"}) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", partitions=3)
            await produce(peer, "t", batch(b"x"))
            await outside.pass_time(3.5)
            return broker.statistics()

    with virtual_runtime() as outside:
        found = outside.run(scenario(outside))
    assert found.server.connection_count == 1
    assert (found.replicas.partition_count, found.replicas.offline_count) == (3, 0)
    assert (found.logs.log_count, found.logs.log_bytes) == (3, len(batch(b"x")))
    assert found.cleaner.rounds == 0
    assert found.moves == MovesStatistics(moving=(), moved_count=0, failure_count=0)
    assert {path: each.jobs["removal"].run_count for path, each in found.schedules.items()} == {
        "one": 3,
        "two": 3,
    }


def test_flushes_are_counted_and_timed() -> None:
    """One that runs and one log that waits show at once; both count when they have ended."""

    async def scenario(outside: Outside) -> tuple[FlushStatistics, FlushStatistics]:
        async with running(outside, SYNC) as broker:
            peers = [connect(outside, broker) for _ in range(2)]
            await create_topic(peers[0], "t")
            outside.threads.seconds_per_run = FLUSH_S
            first = asyncio.ensure_future(produce(peers[0], "t", batch(b"x")))
            await outside.pass_time(FLUSH_S / 2)
            second = asyncio.ensure_future(produce(peers[1], "t", batch(b"y")))
            await outside.pass_time(FLUSH_S / 4)
            during = broker.statistics().flushes
            await asyncio.gather(first, second)
            outside.threads.seconds_per_run = 0.0
            return during, broker.statistics().flushes

    with virtual_runtime() as outside:
        during, after = outside.run(scenario(outside))
    assert (during.flush_count, during.running_count, during.waiting_count) == (0, 1, 1)
    assert (after.flush_count, after.log_count, after.failure_count) == (2, 2, 0)
    assert (after.running_count, after.waiting_count) == (0, 0)
    assert after.seconds_max == pytest.approx(FLUSH_S, rel=0.1)
    assert after.seconds_total == pytest.approx(2 * FLUSH_S, rel=0.1)


def test_a_flush_that_fails_is_counted() -> None:
    """The log counts among those flushed and among those that could not be."""

    async def scenario(outside: Outside) -> FlushStatistics:
        async with running(outside, {**SYNC, "log.dirs": "one,two"}) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", partitions=2)
            outside.files.faults.append(DiskFault(operation="sync", path_part="two/t-1/"))
            await produce(peer, "t", batch(b"x"), partition=1)
            return broker.statistics().flushes

    with virtual_runtime() as outside:
        found = outside.run(scenario(outside))
    assert (found.log_count, found.failure_count) == (1, 1)


def test_a_move_shows_its_lag_until_it_has_ended() -> None:
    """While it copies, what it has copied and still lacks; afterwards only that it was made."""

    async def scenario(outside: Outside) -> tuple[MovesStatistics, MovesStatistics]:
        async with running(outside, SLOW) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t")
            await produce(peer, "t", batch(b"x"))
            await move(peer, "two")
            await outside.pass_time(1)
            await produce(peer, "t", batch(b"y"))
            during = broker.statistics().moves
            await outside.pass_time(1000)
            return during, broker.statistics().moves

    with virtual_runtime() as outside:
        during, after = outside.run(scenario(outside))
    (found,) = during.moving
    size = len(batch(b"x"))
    assert found == MoveStatistics(
        partition=found.partition, target="two", lag=1, copied_bytes=size
    )
    assert str(found.partition) == "t-0"
    assert after == MovesStatistics(moving=(), moved_count=1, failure_count=0)


def test_a_move_that_fails_is_counted() -> None:
    """The device of the target refuses, and the partition stays where it is."""

    async def scenario(outside: Outside) -> MovesStatistics:
        async with running(outside, {"log.dirs": "one,two"}) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t")
            await produce(peer, "t", batch(b"x"))
            outside.files.faults.append(DiskFault(operation="write", path_part="two/t-0."))
            await move(peer, "two")
            await outside.pass_time(5)
            return broker.statistics().moves

    with virtual_runtime() as outside:
        found = outside.run(scenario(outside))
    assert found == MovesStatistics(moving=(), moved_count=0, failure_count=1)


def test_coordinators_tell_of_groups_and_transactions() -> None:
    """After a restart they tell what the logs have, and totals begin anew."""

    async def before(outside: Outside) -> tuple[CoordinatorsStatistics, ...]:
        async with running(outside, FEW_PARTITIONS) as broker:
            empty = broker.statistics().coordinators
            client = await begin(outside, broker, knows_epochs=True)
            assert await client.commit_offset(5) is ErrorCode.NONE
            during = broker.statistics().coordinators
            assert await client.end() is ErrorCode.NONE
            await outside.pass_time(1)
            return empty, during, broker.statistics().coordinators

    async def after(outside: Outside) -> CoordinatorsStatistics:
        async with running(outside, FEW_PARTITIONS) as broker:
            await outside.pass_time(1)
            return broker.statistics().coordinators

    with virtual_runtime() as outside:
        empty, during, ended = outside.run(before(outside))
        files = outside.files
    with virtual_runtime(files=files) as outside:
        again = outside.run(after(outside))
    assert (empty.group_partitions.active_count, empty.transaction_partitions.active_count) == (
        0,
        0,
    )
    assert (empty.groups.classic_by_state, empty.transactions.by_state) == ({}, {})
    assert (during.groups.offset_count, during.transactions.by_state) == (0, {"Ongoing": 1})
    assert (ended.group_partitions.active_count, ended.transaction_partitions.active_count) == (
        2,
        3,
    )
    for told in (ended, again):
        assert (told.groups.classic_by_state, told.groups.offset_count) == ({"Empty": 1}, 1)
        assert told.transactions.by_state == {"CompleteCommit": 1}
    assert (ended.groups.offset_commit_count, ended.transactions.marker_count) == (1, 1)
    assert (again.groups.offset_commit_count, again.transactions.marker_count) == (0, 0)
    assert (again.group_partitions.load_count, again.transaction_partitions.load_count) == (2, 3)
    # A commit and its marker; an id, its partition, the decision to commit, and the end.
    assert (ended.group_partitions.append_count, ended.transaction_partitions.append_count) == (
        2,
        4,
    )
    assert again.group_partitions.load_byte_count > 0
    assert again.transaction_partitions.load_byte_count > 0


def test_topics_that_come_and_grow_ask_nothing_of_groups() -> None:
    """Only the deletion of a topic does, and then its offsets go."""

    async def scenario(outside: Outside) -> list[tuple[int, int]]:
        async with running(outside, FEW_PARTITIONS) as broker:
            client = await begin(outside, broker)
            assert await commit(client.peer, 5, topic="d") is ErrorCode.NONE
            await create_topic(client.peer, "t")
            assert await grow(client.peer, 3) == ErrorCode.NONE
            found = [broker.statistics().coordinators]
            for name in ("t", "d"):
                request = DeleteTopicsRequest(topics=(DeleteTopicState(name=name),))
                await client.peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
                await outside.pass_time(1)
                found.append(broker.statistics().coordinators)
            return [
                (each.group_partitions.append_count, each.groups.offset_count) for each in found
            ]

    with virtual_runtime() as outside:
        assert outside.run(scenario(outside)) == [(1, 1), (1, 1), (2, 0)]
