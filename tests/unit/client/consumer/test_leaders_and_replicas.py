"""The broker to read from: leaders that change (KIP-320, KIP-951), followers nearby (KIP-392)."""

from typing import Any
from uuid import UUID

import pytest

from tailrace.client.consumer import AsyncConsumer
from tailrace.client.consumer.errors import LogTruncationError, TopicAuthorizationError
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchRequest, LeaderIdAndEpoch, PartitionData
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
)
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
)
from tailrace.testing import Outside
from tailrace.testing.script import FaultKind
from tests.unit.client.consumer.leaders import Leaders, offsets, read
from tests.unit.client.consumer.stage import T0, T1

EPOCHS = ApiKey.OFFSET_FOR_LEADER_EPOCH
UNKNOWN = EpochEndOffset()
"""The leader has no epoch that is as old as the one that was asked for."""


def unclean(cluster: Leaders, *, kept: int, lost: int = 0) -> None:
    """Node 2 leads after node 1, and has only the first records; it writes two of its own."""
    log = cluster.logs[T0]
    log.truncate(kept)
    cluster.move(T0, 2)
    log.epoch = cluster.partitions[T0].epoch
    log.write(2 + lost)


async def behind(cluster: Leaders, count: int, **settings: object) -> AsyncConsumer:
    """A consumer that has read so many records of epoch 0, one in each batch."""
    for _ in range(count):
        cluster.logs[T0].write(1)
    consumer = cluster.consumer(metadata_max_age_ms=1000, **settings)
    consumer.assign(T0)
    await read(consumer, count)
    return consumer


# -- KIP-320 --------------------------------------------------------------------------------------


async def test_a_position_that_a_new_leader_has_is_read_on(outside: Outside) -> None:
    """The new leader is asked for the end of the last record's epoch before it is fetched from."""
    cluster = Leaders(outside, nodes=2)
    consumer = await behind(cluster, 5)
    unclean(cluster, kept=5)
    assert offsets(await read(consumer, 2)) == [5, 6]
    [asked] = cluster.requests(OffsetForLeaderEpochRequest)
    [part] = asked.body.topics[0].partitions
    assert (asked.node, part.leader_epoch, part.current_leader_epoch) == (2, 0, 1)
    assert asked.body.replica_id == -1
    before = cluster.asked[: cluster.asked.index(asked)]
    assert {each.node for each in before if isinstance(each.body, FetchRequest)} == {1}
    await consumer.close()


async def test_a_log_that_was_truncated_is_read_from_where_it_diverges(outside: Outside) -> None:
    """With a reset policy the records that the new leader wrote in their place are returned."""
    cluster = Leaders(outside, nodes=2)
    consumer = await behind(cluster, 5)
    unclean(cluster, kept=3, lost=4)
    assert offsets(await read(consumer, 6)) == [3, 4, 5, 6, 7, 8]
    await consumer.close()


async def test_a_truncated_log_is_an_error_without_a_reset_policy(outside: Outside) -> None:
    """Each poll names position and divergent offset, until a seek; nothing is fetched meanwhile."""
    cluster = Leaders(outside, nodes=2)
    cluster.committed[T0] = (0, -1)
    consumer = await behind(cluster, 5, auto_offset_reset="none", group_id="g")
    unclean(cluster, kept=3)
    before = len([each for each in cluster.fetched() if each[0] == 2])
    for _ in range(2):
        with pytest.raises(LogTruncationError) as caught:
            await consumer.poll(60)
        assert caught.value.offsets == {T0: 5}
        assert caught.value.divergent == {T0: (3, 0)}
    assert len([each for each in cluster.fetched() if each[0] == 2]) == before
    consumer.seek(T0, 3)
    assert offsets(await read(consumer, 2)) == [3, 4]
    await consumer.close()


async def test_a_truncation_is_told_once_however_long_the_program_works(outside: Outside) -> None:
    """A seek ends it, though the leader was asked again and again before the error was raised."""
    cluster = Leaders(outside, nodes=2)
    cluster.committed[T0] = (0, -1)
    settings: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
    consumer = await behind(cluster, 5, auto_offset_reset="none", **settings)
    unclean(cluster, kept=3)
    await outside.pass_time(10)
    with pytest.raises(LogTruncationError):
        await consumer.poll(60)
    await outside.pass_time(1)
    consumer.seek(T0, 3)
    assert offsets(await read(consumer, 2)) == [3, 4]
    await consumer.close()


@pytest.mark.parametrize("answer", [UNKNOWN, EpochEndOffset(end_offset=9)])
async def test_an_epoch_that_the_leader_does_not_know_resets(
    outside: Outside, answer: EpochEndOffset
) -> None:
    """Neither an offset without an epoch nor none at all says where to read on."""
    cluster = Leaders(outside, nodes=2)
    consumer = await behind(cluster, 3)
    cluster.queue(EPOCHS, T0, answer)
    cluster.move(T0, 2)
    assert offsets(await read(consumer, 3)) == [0, 1, 2]
    await consumer.close()


async def test_an_unknown_epoch_is_an_error_without_a_reset_policy(outside: Outside) -> None:
    """The error has the position, and no divergent offset."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(3)
    cluster.queue(EPOCHS, T0, UNKNOWN, EpochEndOffset(leader_epoch=2))
    async with cluster.consumer(auto_offset_reset="none") as consumer:
        consumer.assign(T0)
        consumer.seek(T0, OffsetAndMetadata(2, 0))
        for _ in range(2):
            with pytest.raises(LogTruncationError) as caught:
                await consumer.poll(60)
            assert caught.value.offsets == {T0: 2}
            assert caught.value.divergent == {T0: None}
        assert offsets(await read(consumer, 1)) == [2]


async def test_a_committed_offset_is_validated(outside: Outside) -> None:
    """An offset that the group has stored with an epoch may be of records that are lost."""
    cluster = Leaders(outside)
    log = cluster.logs[T0]
    log.write(3)
    cluster.move(T0, 1)
    log.epoch = 1
    log.write(4)
    cluster.committed[T0] = (5, 0)
    async with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign(T0)
        assert offsets(await read(consumer, 4)) == [3, 4, 5, 6]
    [asked] = cluster.requests(OffsetForLeaderEpochRequest)
    assert asked.body.topics[0].partitions[0].leader_epoch == 0


async def test_a_position_from_a_later_epoch_waits_for_newer_metadata(outside: Outside) -> None:
    """A leader of an earlier epoch than the position's may be deposed: it is not asked."""
    cluster = Leaders(outside, nodes=2)
    log = cluster.logs[T0]
    log.write(3)
    log.epoch = 1
    log.write(2)
    cluster.committed[T0] = (4, 1)
    outside.loop.call_later(1.0, cluster.move, T0, 2)
    async with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign(T0)
        records = await read(consumer, 1)
        assert (records[0].offset, records[0].leader_epoch) == (4, 1)
        assert outside.loop.time() >= 1.0
    assert {each.node for each in cluster.requests(OffsetForLeaderEpochRequest)} == {2}


async def test_positions_of_one_leader_are_validated_in_one_request(outside: Outside) -> None:
    """A request for each leader has all its partitions."""
    cluster = Leaders(outside, nodes=2, partitions=4)
    places = [TopicPartition("t", number) for number in range(4)]
    for each in places:
        cluster.logs[each].write(3)
    async with cluster.consumer() as consumer:
        consumer.assign(places)
        await read(consumer, 12)
        for each in places:
            consumer.seek(each, OffsetAndMetadata(1, 0))
        await read(consumer, 8)
    asked = cluster.requests(OffsetForLeaderEpochRequest)
    found = sorted(
        (each.node, [p.partition for p in each.body.topics[0].partitions]) for each in asked
    )
    assert found == [(1, [0, 2]), (2, [1, 3])]


@pytest.mark.parametrize("last", [-1, 2])
async def test_a_broker_that_cannot_validate_is_read_on(outside: Outside, last: int) -> None:
    """Before v3 only brokers may ask for epochs, so a consumer goes on as if it was valid."""
    cluster = Leaders(outside)
    cluster.versions[EPOCHS] = last
    cluster.queue(EPOCHS, T0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    cluster.logs[T0].write(3)
    async with cluster.consumer() as consumer:
        consumer.assign(T0)
        consumer.seek(T0, OffsetAndMetadata(1, 0))
        assert offsets(await read(consumer, 2)) == [1, 2]
    assert not cluster.requests(OffsetForLeaderEpochRequest)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
    ids=lambda each: each.name,
)
async def test_a_refused_validation_is_asked_again_with_new_metadata(
    outside: Outside, code: ErrorCode
) -> None:
    """The position stays, and nothing is fetched until its leader has confirmed it."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(3)
    cluster.queue(EPOCHS, T0, code)
    async with cluster.consumer() as consumer:
        consumer.assign(T0)
        consumer.seek(T0, OffsetAndMetadata(1, 0))
        metadata = len(cluster.requests(MetadataRequest))
        assert offsets(await read(consumer, 2)) == [1, 2]
        assert len(cluster.requests(MetadataRequest)) > metadata
    assert len(cluster.requests(OffsetForLeaderEpochRequest)) == 2


async def test_a_validation_that_is_not_allowed_is_an_error(outside: Outside) -> None:
    """TOPIC_AUTHORIZATION_FAILED is raised with the topic, and asked again later."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(3)
    cluster.queue(EPOCHS, T0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with cluster.consumer() as consumer:
        consumer.assign(T0)
        consumer.seek(T0, OffsetAndMetadata(1, 0))
        with pytest.raises(TopicAuthorizationError) as caught:
            await consumer.poll(60)
        assert caught.value.topics == {"t"}
        assert offsets(await read(consumer, 2)) == [1, 2]


async def test_a_seek_makes_a_validation_void(outside: Outside) -> None:
    """The answer about the earlier position, which says truncated, changes nothing."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(5)
    cluster.queue(EPOCHS, T0, EpochEndOffset(leader_epoch=0, end_offset=0))
    async with cluster.consumer() as consumer:
        consumer.assign(T0)
        await consumer.position(T0)
        consumer.seek(T0, OffsetAndMetadata(4, 0))
        while not cluster.requests(OffsetForLeaderEpochRequest):
            assert await consumer.poll(0.001) == []
        consumer.seek(T0, 2)
        assert offsets(await read(consumer, 3)) == [2, 3, 4]


async def test_a_validation_that_lost_its_connection_is_asked_again(outside: Outside) -> None:
    """The position is valid after the second answer."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(3)
    cluster.script.add(EPOCHS, FaultKind.CUT)
    async with cluster.consumer() as consumer:
        consumer.assign(T0)
        consumer.seek(T0, OffsetAndMetadata(1, 0))
        assert offsets(await read(consumer, 2)) == [1, 2]
    assert cluster.count(EPOCHS) == 2


async def test_requests_have_the_epoch_of_the_leader(outside: Outside) -> None:
    """Fetch and ListOffsets say which leader the consumer takes the broker for."""
    cluster = Leaders(outside)
    cluster.move(T0, 1)
    cluster.logs[T0].write(1)
    async with cluster.consumer() as consumer:
        consumer.assign(T0)
        await read(consumer, 1)
    for kind in (FetchRequest, ListOffsetsRequest):
        epochs = {
            part.current_leader_epoch
            for each in cluster.requests(kind)
            for topic in each.body.topics
            for part in topic.partitions
        }
        assert epochs == {1}


async def test_a_newer_epoch_in_an_offset_makes_older_metadata_void(outside: Outside) -> None:
    """A leader that ListOffsets shows to be deposed is not read from until Metadata is newer."""
    cluster = Leaders(outside, nodes=2)
    cluster.logs[T0].write(3)
    part = ListOffsetsPartitionResponse(partition_index=0, offset=1, leader_epoch=2)
    cluster.queue(ApiKey.LIST_OFFSETS, T0, part)
    outside.loop.call_later(1.0, cluster.move, T0, 2)
    outside.loop.call_later(2.0, cluster.move, T0, 2)
    async with cluster.consumer() as consumer:
        consumer.assign(T0)
        before = len(cluster.requests(MetadataRequest))
        assert offsets(await read(consumer, 2)) == [1, 2]
        assert outside.loop.time() >= 2.0
        assert len(cluster.requests(MetadataRequest)) > before
    assert {node for node, _, _ in cluster.fetched()} == {2}


async def test_an_epoch_in_an_offset_counts_only_beside_epochs_of_metadata(
    outside: Outside,
) -> None:
    """If Metadata has none, that of ListOffsets changes nothing and asks for nothing."""
    cluster = Leaders(outside)
    cluster.versions[ApiKey.METADATA] = 8
    cluster.logs[T0].write(3)
    part = ListOffsetsPartitionResponse(partition_index=0, offset=1, leader_epoch=2)
    cluster.queue(ApiKey.LIST_OFFSETS, T0, part)
    async with cluster.consumer() as consumer:
        consumer.assign(T0)
        assert offsets(await read(consumer, 2)) == [1, 2]
        before = len(cluster.requests(MetadataRequest))
        await consumer.poll(10)
        assert len(cluster.requests(MetadataRequest)) == before


async def test_metadata_without_epochs_has_them_left_out(outside: Outside) -> None:
    """Before v9 the epochs of Metadata are not reliable, so no request has one."""
    cluster = Leaders(outside)
    cluster.versions[ApiKey.METADATA] = 8
    cluster.move(T0, 1)
    cluster.logs[T0].write(2)
    async with cluster.consumer() as consumer:
        consumer.assign(T0)
        consumer.seek(T0, OffsetAndMetadata(1, 0))
        await read(consumer, 1)
    [part] = cluster.requests(FetchRequest)[0].body.topics[0].partitions
    assert part.current_leader_epoch == -1
    assert not cluster.requests(OffsetForLeaderEpochRequest)


# -- KIP-951 --------------------------------------------------------------------------------------

LEADERSHIP = pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH],
    ids=lambda each: each.name,
)


@LEADERSHIP
async def test_the_leader_that_a_refusal_names_is_read_at_once(
    outside: Outside, code: ErrorCode
) -> None:
    """Its address is in the answer too, so no Metadata is needed; the position is validated."""
    cluster = Leaders(outside, nodes=2)
    cluster.ids["t"] = UUID(int=5)
    consumer = await behind(cluster, 3)
    metadata = len(cluster.requests(MetadataRequest))
    cluster.move(T0, 2)
    cluster.logs[T0].epoch = 1
    cluster.logs[T0].write(1)
    cluster.queue(ApiKey.FETCH, T0, code)
    start = outside.loop.time()
    assert offsets(await read(consumer, 1)) == [3]
    assert outside.loop.time() - start < 0.1
    assert len(cluster.requests(MetadataRequest)) == metadata
    assert [each.node for each in cluster.requests(OffsetForLeaderEpochRequest)] == [2]
    await consumer.close()


@LEADERSHIP
async def test_a_refusal_without_a_leader_asks_for_metadata(
    outside: Outside, code: ErrorCode
) -> None:
    """The partition is read from the leader that Metadata names."""
    cluster = Leaders(outside, nodes=2)
    cluster.gives_hints = False
    consumer = await behind(cluster, 3)
    metadata = len(cluster.requests(MetadataRequest))
    cluster.move(T0, 2)
    cluster.logs[T0].write(1)
    cluster.queue(ApiKey.FETCH, T0, code)
    assert offsets(await read(consumer, 1)) == [3]
    assert len(cluster.requests(MetadataRequest)) > metadata
    await consumer.close()


async def test_a_named_leader_with_an_older_epoch_is_not_believed(outside: Outside) -> None:
    """A broker that is behind sends the consumer nowhere; Metadata is asked for instead."""
    cluster = Leaders(outside, nodes=2)
    cluster.move(T0, 1)
    cluster.move(T0, 1)
    consumer = await behind(cluster, 3)
    stale = PartitionData(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=1),
    )
    cluster.queue(ApiKey.FETCH, T0, stale)
    cluster.logs[T0].write(1)
    assert offsets(await read(consumer, 1)) == [3]
    assert {node for node, *_ in cluster.fetched()} == {1}
    await consumer.close()


# -- KIP-392 --------------------------------------------------------------------------------------


def redirect(node_id: int) -> PartitionData:
    """The answer of a leader that names a follower."""
    return PartitionData(
        high_watermark=5, last_stable_offset=5, log_start_offset=0, preferred_read_replica=node_id
    )


async def nearby(cluster: Leaders, **settings: object) -> AsyncConsumer:
    """A consumer that reads `t-0`, which node 1 leads, from its follower 2."""
    cluster.followers[T0].add(2)
    cluster.queue(ApiKey.FETCH, T0, redirect(2))
    cluster.logs[T0].write(3)
    consumer = cluster.consumer(client_rack="b", **settings)
    consumer.assign(T0)
    assert offsets(await read(consumer, 3)) == [0, 1, 2]
    assert consumer.statistics().partitions[T0].preferred_replica == 2
    return consumer


async def test_a_follower_that_the_leader_names_is_read_from(outside: Outside) -> None:
    """Requests have the consumer's rack; after the leader's word only the follower is asked."""
    cluster = Leaders(outside, nodes=2)
    consumer = await nearby(cluster)
    assert cluster.requests(FetchRequest)[0].body.rack_id == "b"
    assert [node for node, *_ in cluster.fetched()][:2] == [1, 2]
    assert 1 not in [node for node, *_ in cluster.fetched()][1:]
    assert await consumer.lag() == {T0: 0}
    await consumer.close()


async def test_the_leader_is_asked_again_after_a_while(outside: Outside) -> None:
    """A follower is read from for metadata.max.age.ms; then the leader may name another one."""
    cluster = Leaders(outside, nodes=2)
    consumer = await nearby(cluster, metadata_max_age_ms=5000)
    asked = len(cluster.fetched())
    assert await consumer.poll(4) == []
    assert {node for node, *_ in cluster.fetched()[asked:]} == {2}
    await consumer.poll(2)
    assert 1 in {node for node, *_ in cluster.fetched()[asked:]}
    await consumer.close()


async def test_a_follower_that_breaks_off_is_left(outside: Outside) -> None:
    """The next fetch goes to the leader."""
    cluster = Leaders(outside, nodes=2)
    consumer = await nearby(cluster)
    cluster.nodes[2].kill()
    cluster.logs[T0].write(1)
    assert offsets(await read(consumer, 1)) == [3]
    assert cluster.fetched()[-1][0] == 1
    await consumer.close()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
    ids=lambda each: each.name,
)
async def test_a_follower_that_refuses_is_left(outside: Outside, code: ErrorCode) -> None:
    """The leader gets the next fetch."""
    cluster = Leaders(outside, nodes=2)
    consumer = await nearby(cluster)
    cluster.logs[T0].write(1)
    asked = len(cluster.fetched())
    cluster.queue(ApiKey.FETCH, T0, code)
    assert offsets(await read(consumer, 1)) == [3]
    assert 1 in [node for node, *_ in cluster.fetched()[asked:]]
    assert consumer.statistics().partitions[T0].preferred_replica is None
    await consumer.close()


async def test_a_follower_that_is_behind_does_not_reset_the_position(outside: Outside) -> None:
    """OFFSET_OUT_OF_RANGE of a follower sends the consumer to the leader, which decides."""
    cluster = Leaders(outside, nodes=2)
    consumer = await nearby(cluster)
    cluster.logs[T0].write(2)
    cluster.queue(ApiKey.FETCH, T0, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert offsets(await read(consumer, 2)) == [3, 4]
    assert len(cluster.requests(ListOffsetsRequest)) == 1
    await consumer.close()


async def test_a_former_follower_does_not_reset_the_position(outside: Outside) -> None:
    """Its OFFSET_OUT_OF_RANGE comes when another leader is known, which has not named it."""
    cluster = Leaders(outside, nodes=3)
    # Without epochs the new leader is not asked whether its log has the position.
    cluster.versions[ApiKey.METADATA] = 8
    consumer = await nearby(cluster, metadata_max_age_ms=1000)
    cluster.queue(ApiKey.FETCH, T0, ErrorCode.OFFSET_OUT_OF_RANGE)
    cluster.script.add(ApiKey.FETCH, FaultKind.DELAY, delay_s=3)
    await outside.pass_time(0.1)
    cluster.move(T0, 3)
    await outside.pass_time(5)
    assert {node for node, *_ in cluster.fetched()} == {1, 2, 3}
    assert await consumer.position(T0) == 3
    cluster.logs[T0].write(2)
    assert offsets(await read(consumer, 2)) == [3, 4]
    await consumer.close()


async def test_a_follower_that_is_offline_is_not_read_from(outside: Outside) -> None:
    """Metadata that calls the replica offline, or does not know it, leaves the leader."""
    cluster = Leaders(outside, nodes=2)
    cluster.offline[T0] = (2,)
    cluster.followers[T0].add(2)
    cluster.logs[T0].write(3)
    cluster.queue(ApiKey.FETCH, T0, redirect(2), redirect(9))
    async with cluster.consumer(client_rack="b") as consumer:
        consumer.assign(T0)
        assert offsets(await read(consumer, 3)) == [0, 1, 2]
    assert {node for node, *_ in cluster.fetched()} == {1}


async def test_other_partitions_keep_their_follower(outside: Outside) -> None:
    """A broken connection counts only for partitions that are still assigned."""
    cluster = Leaders(outside, nodes=2, partitions=2)
    consumer = await nearby(cluster)
    consumer.assign([T0, T1])
    consumer.assign(T1)
    cluster.script.add(ApiKey.FETCH, FaultKind.CUT)
    cluster.logs[T1].write(1)
    assert offsets(await read(consumer, 1)) == [0]
    await consumer.close()
