"""A partition of a coordinator with a record that cannot be read: it coordinates nothing."""

import logging

import pytest

from tailrace.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, AppendOrigin, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tailrace.records.builder import BatchBuilder
from tailrace.testing import MemoryFiles, Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import connect, running
from tests.unit.broker.test_groups import commit, join
from tests.unit.broker.transactional import GROUP, NOW, Client, begin, find, group_offset

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "log.index.size.max.bytes": "1000",
}
KEYS = {
    OFFSETS_TOPIC: b"\0\1" + b"\0\1g" + b"\0\1d" + bytes(4),
    TRANSACTIONS_TOPIC: b"\0\0" + b"\0\1t",
}
VALUES = {
    "a flipped bit": b"\0\1" + bytes(90),
    "a newer version": b"\0\x63" + bytes(90),
    "a cut value": b"\0\1\0",
}
REFUSED = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def damaged(topic: str, damage: str) -> tuple[MemoryFiles, int]:
    """A disk after an orderly stop, and the offset of the record there that cannot be read."""
    partition = TopicPartition(topic, 0)

    async def scenario(outside: Outside) -> tuple[str, int]:
        async with running(outside, SETTINGS) as broker:
            client = await begin(outside, broker, knows_epochs=True)
            assert await client.commit_offset(5) is ErrorCode.NONE
            assert await client.end() is ErrorCode.NONE
            await outside.pass_time(1)
            builder = BatchBuilder()
            builder.append(KEYS[topic], VALUES[damage], timestamp=NOW)
            found = broker.replicas.find(partition)
            appended = found.append(
                memoryview(bytearray(builder.build())),
                now_ms=NOW,
                origin=AppendOrigin.COORDINATOR,
            )
            return found.log.segments.active.log.path, appended.base_offset

    with virtual_runtime() as outside:
        path, offset = outside.run(scenario(outside))
        disk = outside.files.crash(keep_unsynced=True)
    if damage == "a flipped bit":
        content = bytearray(disk.content(path))
        content[-1] ^= 1
        disk.overwrite(path, bytes(content))
    return disk, offset


async def ask_groups(peer: Peer) -> list[ErrorCode]:
    """The answers to a fetch and a commit of offsets, in a transaction too, and to a new member."""
    client = Client(peer, knows_epochs=True)
    assert await client.init() is ErrorCode.NONE
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=GROUP, topics=None),))
    fetched = await peer.ask(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, version=9)
    assert fetched.groups[0].topics == ()
    return [
        ErrorCode(fetched.groups[0].error_code),
        await commit(peer, 7, topic="d"),
        await client.commit_offset(8),
        ErrorCode((await join(peer)).error_code),
    ]


async def ask_transactions(peer: Peer) -> list[ErrorCode]:
    """The answers to each request of a producer."""
    assert await group_offset(peer) == 5
    client = Client(peer, producer_id=0, epoch=1)
    return [
        await client.init(),
        *await client.add(0),
        await client.add_offsets(),
        await client.end(),
    ]


@pytest.mark.parametrize("damage", VALUES)
@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_a_partition_that_cannot_be_read_coordinates_nothing(
    topic: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients look for another coordinator; the operator is told file, offset, and what to do.

    The broker's statistics tell of it, too.
    """

    async def scenario(outside: Outside) -> None:
        async with running(outside, SETTINGS) as broker:
            await outside.pass_time(1)
            peer = connect(outside, broker)
            for kind in (0, 1):
                await find(peer, kind)
            ask = ask_groups if topic == OFFSETS_TOPIC else ask_transactions
            assert set(await ask(peer)) <= REFUSED
            told = broker.statistics().coordinators
            groups, transactions = told.group_partitions, told.transaction_partitions
            failed, other = groups, transactions
            if topic == TRANSACTIONS_TOPIC:
                failed, other = transactions, groups
            assert (failed.failed_count, failed.load_failure_count, failed.load_count) == (1, 1, 0)
            assert (other.failed_count, other.load_failure_count, other.load_count) == (0, 0, 1)

    disk, offset = damaged(topic, damage)
    with virtual_runtime(files=disk) as outside, caplog.at_level(logging.ERROR):
        outside.run(scenario(outside))
    [told] = [each for each in caplog.messages if each.startswith("coordinator_load_failed")]
    assert f"partition={topic}-0" in told
    assert f"{topic}-0/00000000000000000000.log, offset {offset}: " in told
    assert "tailrace log repair" in told
