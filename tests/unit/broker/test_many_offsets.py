"""Groups that commit for many partitions: each turn of the loop, and each batch, is bounded."""

from dataclasses import replace

from tailrace.broker.broker import RunningBroker
from tailrace.coordinator.groups.offsets import CommittedOffset, offset_record
from tailrace.coordinator.groups.record_codec import GroupRecordCodec
from tailrace.model import OFFSETS_TOPIC, AppendOrigin, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tailrace.records.builder import BatchBuilder
from tailrace.testing import Outside, Peer, Watchdog
from tests.unit.broker.brokers import connect, create_topic, running
from tests.unit.broker.test_consumer_groups import delete
from tests.unit.broker.test_groups import NAMED, find

COUNT = 350
PER_BATCH = 100
PER_STORED_BATCH = 1_000
SETTINGS = {"offsets.topic.num.partitions": "1"}


def store_offsets(outside: Outside, broker: RunningBroker, name: str, count: int) -> None:
    """Append commits of the group for partitions of a topic to the log, as requests would."""
    partition = broker.replicas.find(TopicPartition(OFFSETS_TOPIC, 0))
    topic_id = broker.controller.image.topics[name].topic_id
    codec, now_ms = GroupRecordCodec(), outside.clock.now_ms()
    for start in range(0, count, PER_STORED_BATCH):
        builder = BatchBuilder()
        for number in range(start, start + PER_STORED_BATCH):
            offset = CommittedOffset(
                offset=7,
                leader_epoch=-1,
                metadata="",
                commit_ms=now_ms,
                expire_ms=-1,
                topic_id=topic_id,
                record_offset=-1,
            )
            record = offset_record("g", TopicPartition(name, number), offset)
            key, value = codec.encode(record)
            builder.append(key, value, timestamp=now_ms)
        partition.append(
            memoryview(bytearray(builder.build())), now_ms=now_ms, origin=AppendOrigin.COORDINATOR
        )


async def prepared(outside: Outside, peer: Peer) -> None:
    """The topics exist, and the group has committed for every partition of both."""
    await find(peer)
    for name in ("t", "other"):
        await create_topic(peer, name, partitions=COUNT)
    for name in ("t", "other"):
        answer = await commit(peer, name)
        assert set(answer) == {ErrorCode.NONE}
    await outside.pass_time(1)


async def commit(peer: Peer, name: str) -> list[ErrorCode]:
    """Commit the offset 7 for every partition of a topic, and one that does not exist."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=(
            OffsetCommitRequestTopic(
                name=name,
                partitions=tuple(replace(partition, partition_index=each) for each in range(COUNT)),
            ),
        ),
    )
    answer = await peer.ask(ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, version=NAMED)
    return [ErrorCode(each.error_code) for each in answer.topics[0].partitions]


async def fetched(peer: Peer, *names: str) -> dict[str, list[int]]:
    """The partitions with an offset of each topic; of all topics if none is named."""
    topics = tuple(
        OffsetFetchRequestTopics(name=each, partition_indexes=tuple(range(COUNT))) for each in names
    )
    request = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id="g", topics=topics or None),)
    )
    answer = await peer.ask(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, version=NAMED)
    return {
        topic.name: [
            each.partition_index for each in topic.partitions if each.committed_offset == 7
        ]
        for topic in answer.groups[0].topics
    }


async def test_many_offsets_are_several_batches(outside: Outside) -> None:
    """No batch has more than a hundred records; a fetch, of all or of those named, finds all."""
    async with running(outside, SETTINGS) as broker:
        peer = connect(outside, broker)
        await prepared(outside, peer)
        log = broker.replicas.find(TopicPartition(OFFSETS_TOPIC, 0)).log
        counts = [each.record_count for each in log.batches(0)]
        assert sum(counts) == 2 * COUNT
        assert max(counts) == PER_BATCH
        expected = list(range(COUNT))
        assert await fetched(peer) == {"other": expected, "t": expected}
        assert await fetched(peer, "t") == {"t": expected}


async def test_a_group_with_many_offsets_is_deleted_in_several_batches(outside: Outside) -> None:
    """Its last batch deletes the group itself."""
    async with running(outside, SETTINGS) as broker:
        peer = connect(outside, broker)
        await prepared(outside, peer)
        log = broker.replicas.find(TopicPartition(OFFSETS_TOPIC, 0)).log
        before = log.end_offset
        answer = await peer.ask(
            ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=("g",)), DeleteGroupsResponse
        )
        assert answer.results[0].error_code == ErrorCode.NONE
        counts = [each.record_count for each in log.batches(before)]
        assert sum(counts) == 2 * COUNT + 1
        assert max(counts) <= PER_BATCH + 1
        assert await fetched(peer) == {}


async def test_many_offsets_are_deleted_by_name(outside: Outside) -> None:
    """OffsetDelete answers for each partition, and deletes in several batches."""
    async with running(outside, SETTINGS) as broker:
        peer = connect(outside, broker)
        await prepared(outside, peer)
        partitions = tuple(
            OffsetDeleteRequestPartition(partition_index=each) for each in range(COUNT + 1)
        )
        request = OffsetDeleteRequest(
            group_id="g", topics=(OffsetDeleteRequestTopic(name="t", partitions=partitions),)
        )
        answer = await peer.ask(ApiKey.OFFSET_DELETE, request, OffsetDeleteResponse)
        codes = [each.error_code for each in answer.topics[0].partitions]
        assert codes == [ErrorCode.NONE] * COUNT + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert list(await fetched(peer)) == ["other"]


async def test_a_topic_takes_its_offsets_with_it(outside: Outside) -> None:
    """When it is deleted; those of other topics stay, and a new topic of its name has none."""
    async with running(outside, SETTINGS) as broker:
        peer = connect(outside, broker)
        await prepared(outside, peer)
        await delete(peer, "t")
        assert list(await fetched(peer)) == ["other"]
        await create_topic(peer, "t", partitions=COUNT)
        assert await fetched(peer, "t") == {"t": []}
        log = broker.replicas.find(TopicPartition(OFFSETS_TOPIC, 0)).log
        assert max(each.record_count for each in log.batches(0)) == PER_BATCH


async def test_a_group_with_very_many_offsets_takes_turns(outside: Outside) -> None:
    """When it is looked at for expired offsets, and when a topic goes, its own or another."""
    async with running(outside, SETTINGS) as broker:
        peer = connect(outside, broker)
        for name in ("t", "large", "other", "first"):
            await create_topic(peer, name)
        await find(peer)
        await outside.pass_time(1)
        store_offsets(outside, broker, "large", 100_000)
        store_offsets(outside, broker, "t", 1_000)
    async with running(outside, SETTINGS) as broker:
        peer = connect(outside, broker)
        await delete(peer, "first")
        await outside.pass_time(1)
        # A turn of 100 tombstones takes up to 3 ms, and twice that where processors are shared; all
        # of the offsets in one turn took 80.
        with Watchdog(outside, budget_s=0.02) as watchdog:
            await outside.pass_time(700)
            peer = connect(outside, broker)
            await delete(peer, "other")
        assert len((await fetched(peer, "t"))["t"]) == COUNT
        with watchdog:
            await delete(peer, "t")
        assert watchdog.findings == []
        assert await fetched(peer, "t", "large") == {"t": [], "large": list(range(COUNT))}
