"""ListOffsets and OffsetForLeaderEpoch where a partition has several replicas."""

import pytest

from tailrace.model import SpecialTimestamp
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tailrace.testing import Outside
from tests.unit.handlers.replica_broker import CONSUMER, ME, SECOND, THIRD, Broker
from tests.unit.storage.builders import NOW

TOOL = -2
LATEST, EARLIEST = SpecialTimestamp.LATEST, SpecialTimestamp.EARLIEST


async def offset_for(
    broker: Broker,
    timestamp: int,
    *,
    replica: int = CONSUMER,
    current: int = -1,
    version: int = 11,
    isolation: int = 0,
) -> ListOffsetsPartitionResponse:
    """The answer to a ListOffsets request for the first partition."""
    wanted = ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=current
    )
    request = ListOffsetsRequest(
        replica_id=replica,
        isolation_level=isolation,
        topics=(ListOffsetsTopic(name="t", partitions=(wanted,)),),
    )
    found = await broker.ask(ApiKey.LIST_OFFSETS, request, ListOffsetsResponse, version=version)
    return found.topics[0].partitions[0]


async def end_of(broker: Broker, epoch: int, *, current: int = -1, replica: int) -> EpochEndOffset:
    """The answer to an OffsetForLeaderEpoch request for the first partition."""
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=replica, topics=(OffsetForLeaderTopic(topic="t", partitions=(wanted,)),)
    )
    key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    found = await broker.ask(key, request, OffsetForLeaderEpochResponse, version=4)
    return found.topics[0].partitions[0]


async def leading(outside: Outside) -> Broker:
    """A leader with three records, of which one is committed."""
    broker = Broker(outside)
    await broker.assign(epoch=3)
    broker.append(b"x")
    for follower in (SECOND, THIRD):
        await broker.fetch(1, replica=follower)
    broker.append(b"x", b"x")
    return broker


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("version", [2, 4, 6, 11])
async def test_the_latest_offset_is_the_watermark_for_consumers(
    outside: Outside, version: int, isolation: int
) -> None:
    """For followers and tools it is the log end, whatever isolation they name."""
    broker = await leading(outside)
    for replica, expected in ((CONSUMER, 1), (SECOND, 3), (TOOL, 3)):
        found = await offset_for(
            broker, LATEST, replica=replica, version=version, isolation=isolation
        )
        assert (found.error_code, found.offset) == (ErrorCode.NONE, expected)
        assert found.leader_epoch == (3 if version >= 4 else -1)


async def test_a_timestamp_finds_committed_records_for_consumers(outside: Outside) -> None:
    """Above the watermark there are none yet; a follower finds all that the leader has."""
    broker = await leading(outside)
    assert (await offset_for(broker, NOW)).offset == 0
    await broker.assign(replicas=(ME, SECOND), isr=(ME, SECOND))
    found = await offset_for(broker, SpecialTimestamp.MAX_TIMESTAMP, replica=SECOND)
    assert (found.error_code, found.offset) == (ErrorCode.NONE, 0)


async def test_a_follower_answers_tools_only(outside: Outside) -> None:
    """Consumers and followers go to the leader; with an old epoch they learn that first."""
    broker = Broker(outside)
    await broker.assign(SECOND, epoch=3)
    for number in range(3):
        broker.follow_records(b"x", epoch=3, watermark=number)
    for timestamp in (LATEST, EARLIEST, SpecialTimestamp.EARLIEST_LOCAL, NOW):
        for replica in (CONSUMER, THIRD):
            found = await offset_for(broker, timestamp, replica=replica, current=3)
            assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            found = await offset_for(broker, timestamp, replica=replica, current=2)
            assert found.error_code == ErrorCode.FENCED_LEADER_EPOCH
        found = await offset_for(broker, timestamp, replica=TOOL)
        assert (found.error_code, found.offset) == (0, 3 if timestamp == LATEST else 0)


@pytest.mark.parametrize("version", [1, 4, 5, 11])
async def test_a_new_leader_does_not_know_the_latest_offset_yet(
    outside: Outside, version: int
) -> None:
    """Its watermark may be lower than its predecessor's, until all in sync have its epoch's start.

    Else a consumer would see the end of the log go back (KIP-207).
    """
    broker = Broker(outside)
    await broker.assign(SECOND, epoch=3)
    for _ in range(3):
        broker.follow_records(b"x", epoch=3, watermark=1)
    await broker.assign(ME, epoch=4)
    refused = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    assert (await offset_for(broker, LATEST, version=version)).error_code == refused
    # A time after all records: those above the watermark might have it.
    assert (await offset_for(broker, NOW + 1, version=version)).error_code == refused
    found = await offset_for(broker, EARLIEST, version=version)
    assert (found.error_code, found.offset) == (ErrorCode.NONE, 0)
    found = await offset_for(broker, NOW, version=version)
    assert (found.error_code, found.offset) == (ErrorCode.NONE, 0)
    found = await offset_for(broker, LATEST, version=version, replica=SECOND)
    assert (found.error_code, found.offset) == (ErrorCode.NONE, 3)
    for follower in (SECOND, THIRD):
        await broker.fetch(3, replica=follower)
    found = await offset_for(broker, LATEST, version=version)
    assert (found.error_code, found.offset) == (ErrorCode.NONE, 3)
    # Without a record above the epoch's start, and with uncommitted ones, it is known now.
    broker.append(b"x")
    assert (await offset_for(broker, LATEST, version=version)).offset == 3
    found = await offset_for(broker, NOW + 1, version=version)
    assert (found.error_code, found.offset) == (ErrorCode.NONE, -1)


@pytest.mark.parametrize("replica", [CONSUMER, SECOND])
async def test_only_the_leader_says_where_epochs_end(outside: Outside, replica: int) -> None:
    """For consumers as for followers; the epochs of both are checked first."""
    broker = Broker(outside)
    await broker.assign(epoch=1)
    broker.append(b"x")
    await broker.assign(epoch=4)
    for epoch, expected in ((0, (0, 0)), (1, (1, 1)), (3, (1, 1)), (4, (4, 1)), (5, (-1, -1))):
        found = await end_of(broker, epoch, replica=replica, current=4)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, *expected)
    await broker.assign(SECOND, epoch=5)
    for current, code in (
        (5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        found = await end_of(broker, 1, replica=replica, current=current)
        assert (found.error_code, found.end_offset) == (code, -1)
