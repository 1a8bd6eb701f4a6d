"""Produce and DeleteRecords where the leader has followers: what their answers wait for."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from tailrace.handlers.delete_records import handle_delete_records
from tailrace.model import Acks, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tailrace.records.builder import BatchBuilder
from tailrace.testing import Outside
from tests.unit.handlers.replica_broker import ME, SECOND, THIRD, Broker, partition_answers
from tests.unit.storage.builders import NOW

if TYPE_CHECKING:
    from tailrace.protocol.messages.produce import ProduceResponse


def produce_later(
    broker: Broker, *numbers: int, timeout_ms: int = 1000
) -> "asyncio.Task[ProduceResponse]":
    return asyncio.ensure_future(broker.produce(*numbers, timeout_ms=timeout_ms))


async def test_acks_all_waits_for_every_replica_in_sync(outside: Outside) -> None:
    """The answer comes with the fetch that moves the high watermark past the record."""
    broker = Broker(outside)
    await broker.assign()
    answer = produce_later(broker)
    await outside.pass_time(0.1)
    broker.note_fetch(SECOND, 1)
    await outside.pass_time(0.1)
    assert not answer.done()
    broker.note_fetch(THIRD, 1)
    [produced] = partition_answers(await answer)
    assert (produced.error_code, produced.base_offset) == (0, 0)


async def test_acks_of_the_leader_wait_for_nobody(outside: Outside) -> None:
    """Also where too few replicas are in sync."""
    broker = Broker(outside, min_insync_replicas=3)
    partition = await broker.assign(isr=[ME])
    [produced] = partition_answers(await broker.produce(acks=Acks.LEADER))
    assert (produced.error_code, produced.base_offset) == (0, 0)
    assert partition.log.positions.high_watermark == 0


async def test_the_only_replica_answers_at_once(outside: Outside) -> None:
    """A minimum above the number of replicas asks for no more than there are."""
    broker = Broker(outside, min_insync_replicas=2)
    await broker.assign(isr=[ME], replicas=[ME])
    [produced] = partition_answers(await broker.produce())
    assert (produced.error_code, produced.base_offset) == (0, 0)


async def test_the_timeout_of_the_request_ends_the_wait(outside: Outside) -> None:
    """REQUEST_TIMED_OUT for those that are not there yet; the records stay in the log."""
    broker = Broker(outside)
    for number in (0, 1):
        await broker.assign(name=TopicPartition("t", number))
    answer = produce_later(broker, 0, 1, timeout_ms=500)
    await outside.pass_time(0.1)
    for follower in (SECOND, THIRD):
        broker.note_fetch(follower, 1, name=TopicPartition("t", 1))
    await outside.pass_time(0.3)
    assert not answer.done()
    await outside.pass_time(0.2)
    assert answer.done()
    late, produced = partition_answers(await answer)
    assert (late.error_code, late.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert late.error_message is not None
    assert "500 ms" in late.error_message
    assert (produced.error_code, produced.base_offset) == (0, 0)
    assert broker.replicas.find(TopicPartition("t", 0)).log.end_offset == 1


async def test_too_few_in_sync_refuse_before_the_append(outside: Outside) -> None:
    """NOT_ENOUGH_REPLICAS, and the log is as it was."""
    broker = Broker(outside, min_insync_replicas=2)
    partition = await broker.assign(isr=[ME])
    [refused] = partition_answers(await broker.produce())
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.end_offset == 0


async def test_a_long_batch_is_refused_and_acknowledged_alike(outside: Outside) -> None:
    """A batch that is checked on a thread meets the same rules."""
    broker = Broker(outside, min_insync_replicas=2, compression_type="gzip")
    partition = await broker.assign(isr=[ME])
    value = bytes(200_000)
    builder = BatchBuilder()
    builder.append(None, value, timestamp=NOW)
    records = builder.build()
    [refused] = partition_answers(await broker.produce(records=records))
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.end_offset == 0
    await broker.assign(isr=[ME, SECOND], epoch=1)
    answer = asyncio.ensure_future(broker.produce(records=records))
    await outside.pass_time(0.1)
    assert not answer.done()
    broker.note_fetch(SECOND, 1)
    [produced] = partition_answers(await answer)
    assert produced.error_code == 0


async def test_the_end_of_leadership_answers_what_waits(outside: Outside) -> None:
    """The producer learns of the new leader, with its address, and sends there (KIP-951)."""
    broker = Broker(outside)
    await broker.assign()
    answer = produce_later(broker, timeout_ms=60_000)
    await outside.pass_time(0.1)
    await broker.assign(leader=SECOND, epoch=2)
    response = await answer
    [refused] = partition_answers(response)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = refused.current_leader
    assert (leader.leader_id, leader.leader_epoch) == (SECOND, 2)
    [endpoint] = response.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (2, "b2", 9092, "b")


@pytest.mark.parametrize("acks", list(Acks)[1:])
async def test_a_follower_takes_no_records(outside: Outside, acks: int) -> None:
    """Its answer names the leader, from the version on that can; without one, none."""
    broker = Broker(outside)
    partition = await broker.assign(leader=THIRD, epoch=4)
    for version, known in [(9, (-1, -1)), (10, (THIRD, 4))]:
        response = await broker.produce(acks=acks, version=version)
        [refused] = partition_answers(response)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == known
    await broker.assign(leader=-1, epoch=5)
    response = await broker.produce(acks=acks)
    [refused] = partition_answers(response)
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (-1, 5)
    assert not response.node_endpoints
    assert partition.log.end_offset == 0


async def test_a_partition_of_other_brokers_has_a_leader(outside: Outside) -> None:
    """A producer with old metadata is sent to the leader; an unknown partition is unknown."""
    broker = Broker(outside)
    await broker.assign()
    broker.replicas.close(TopicPartition("t", 0), unique_id="0" * 32)()
    moved, unknown = partition_answers(await broker.produce(0, 1))
    assert moved.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert moved.current_leader.leader_id == ME
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_flush_and_the_followers_are_waited_for_together(outside: Outside) -> None:
    """With durability=sync the leader's own device counts too."""
    broker = Broker(outside, is_durable=True)
    await broker.assign(isr=[ME, SECOND])
    answer = produce_later(broker)
    # One turn: the batch is appended, and the flush has not begun.
    await outside.pass_time(0)
    device = outside.hang(".log")
    await outside.pass_time(0.1)
    broker.note_fetch(SECOND, 1)
    await outside.pass_time(0.1)
    assert not answer.done()
    device.release()
    [produced] = partition_answers(await answer)
    assert produced.error_code == 0


async def test_a_request_that_is_given_up_leaves_nothing(outside: Outside) -> None:
    """The client has gone: the record is committed all the same, and others are answered."""
    broker = Broker(outside)
    partition = await broker.assign(isr=[ME, SECOND])
    gone, other = produce_later(broker), produce_later(broker)
    await outside.pass_time(0.1)
    gone.cancel()
    await outside.pass_time(0.1)
    broker.note_fetch(SECOND, 2)
    [produced] = partition_answers(await other)
    assert produced.base_offset == 1
    assert partition.log.positions.high_watermark == 2


def delete_later(
    broker: Broker, offset: int, *, timeout_ms: int = 1000
) -> "asyncio.Task[DeleteRecordsPartitionResult]":
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name="t", partitions=(partition,)),), timeout_ms=timeout_ms
    )

    async def delete() -> DeleteRecordsPartitionResult:
        header = RequestHeader(ApiKey.DELETE_RECORDS, 2, 1, "client")
        response = await handle_delete_records(broker.services, header, request)
        return response.topics[0].partitions[0]

    return asyncio.ensure_future(delete())


async def filled(broker: Broker) -> None:
    """Three records that every replica has."""
    await broker.assign()
    for _ in range(3):
        await broker.produce(acks=Acks.LEADER)
    for follower in (SECOND, THIRD):
        broker.note_fetch(follower, 3)


async def test_records_are_deleted_on_all_replicas(outside: Outside) -> None:
    """The answer waits until each follower that is alive has raised its log start (KIP-107)."""
    broker = Broker(outside)
    await filled(broker)
    answer = delete_later(broker, 2)
    await outside.pass_time(0.1)
    broker.note_fetch(SECOND, 3, log_start=2)
    await outside.pass_time(0.1)
    assert not answer.done()
    broker.note_fetch(THIRD, 3, log_start=3)
    result = await answer
    assert (result.error_code, result.low_watermark) == (0, 2)


async def test_a_follower_that_does_not_delete_lets_the_request_time_out(outside: Outside) -> None:
    """The low watermark says how far the replicas have got."""
    broker = Broker(outside)
    await filled(broker)
    broker.note_fetch(SECOND, 3, log_start=1)
    broker.note_fetch(THIRD, 3, log_start=1)
    answer = delete_later(broker, -1, timeout_ms=500)
    await outside.pass_time(0.6)
    result = await answer
    assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 1)
    assert broker.replicas.find(TopicPartition("t", 0)).log.start_offset == 3


async def test_the_end_of_leadership_ends_a_deletion(outside: Outside) -> None:
    """The new leader may not have the new log start, so nothing is promised."""
    broker = Broker(outside)
    await filled(broker)
    answer = delete_later(broker, 2)
    await outside.pass_time(0.1)
    await broker.assign(leader=SECOND, epoch=2)
    result = await answer
    assert (result.error_code, result.low_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_a_follower_deletes_nothing(outside: Outside) -> None:
    """DeleteRecords is the leader's."""
    broker = Broker(outside)
    await broker.assign(leader=SECOND)
    result = await delete_later(broker, -1)
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
