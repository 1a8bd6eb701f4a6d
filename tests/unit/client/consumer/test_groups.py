"""Members of groups: assignment, commits, hooks, both protocols."""

import asyncio
import re
from typing import Any

import pytest

from tailrace.client.consumer import AsyncConsumer, ConsumerRecord
from tailrace.client.consumer.errors import SubscriptionError
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tailrace.testing import Outside
from tests.unit.broker.brokers import connect
from tests.unit.client.consumer.stage import T0, T1, Stage, on_stage, read, values

BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])

QUICK = {"offsets_topic_num_partitions": "1", "group_initial_rebalance_delay_ms": "0"}


def member(stage: Stage, protocol: str, **settings: Any) -> AsyncConsumer:
    """A member of the group g."""
    return stage.consumer(group_id="g", group_protocol=protocol, **settings)


@BOTH
async def test_a_group_reads_on_where_it_has_committed(outside: Outside, protocol: str) -> None:
    """The next member does not read again up to the offset that was committed."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(10)
        async with member(stage, protocol, max_poll_records=4) as consumer:
            consumer.subscribe("t")
            assert values(await consumer.poll(60)) == [0, 1, 2, 3]
            await consumer.commit()
            assert await consumer.committed(T0) == {T0: OffsetAndMetadata(4, 0)}
        async with member(stage, protocol) as consumer:
            consumer.subscribe(["t"])
            assert values(await read(consumer, 6)) == [4, 5, 6, 7, 8, 9]


@BOTH
async def test_partitions_are_shared_and_taken_over(outside: Outside, protocol: str) -> None:
    """Two members have one partition each, and the one that stays gets both."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic(partitions=2)
        first, second = member(stage, protocol), member(stage, protocol)
        for each in (first, second):
            each.subscribe("t")
        while not (len(first.assignment()) == len(second.assignment()) == 1):
            await asyncio.gather(first.poll(0.5), second.poll(0.5))
        assert first.assignment() | second.assignment() == {T0, T1}
        await second.close()
        while first.assignment() != {T0, T1}:
            await first.poll(0.5)
        await first.close()


@BOTH
async def test_hooks_see_what_comes_and_goes(outside: Outside, protocol: str) -> None:
    """`on_assigned` may seek, and `on_revoked` is called at close; both may be coroutines."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(10)
        calls: list[tuple[str, list[TopicPartition]]] = []
        consumer = member(stage, protocol)

        async def assigned(partitions: list[TopicPartition]) -> None:
            calls.append(("assigned", partitions))
            for each in partitions:
                consumer.seek(each, 7)

        async def revoked(partitions: list[TopicPartition]) -> None:
            calls.append(("revoked", partitions))
            await consumer.commit({T0: 9})

        consumer.subscribe("t", on_assigned=assigned, on_revoked=revoked)
        assert values(await read(consumer, 3)) == [7, 8, 9]
        await consumer.close()
        assert calls == [("assigned", [T0]), ("revoked", [T0])]
        async with member(stage, protocol) as other:
            assert await other.committed(T0) == {T0: OffsetAndMetadata(9)}


@BOTH
async def test_close_commits_what_was_returned(outside: Outside, protocol: str) -> None:
    """With `enable.auto.commit` the next member begins behind what was returned."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(10)
        async with member(stage, protocol, max_poll_records=4) as consumer:
            consumer.subscribe("t")
            assert values(await consumer.poll(60)) == [0, 1, 2, 3]
        async with member(stage, protocol) as consumer:
            consumer.subscribe("t")
            assert values(await read(consumer, 6)) == [4, 5, 6, 7, 8, 9]


async def test_an_exception_leaves_the_last_poll_uncommitted(outside: Outside) -> None:
    """Records whose handling was ended by an exception are read again."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(10)

        async def fail() -> None:
            async with member(stage, "classic", max_poll_records=4) as consumer:
                consumer.subscribe("t")
                assert values(await consumer.poll(60)) == [0, 1, 2, 3]
                assert values(await consumer.poll(60)) == [4, 5, 6, 7]
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        async with member(stage, "classic") as consumer:
            consumer.subscribe("t")
            assert values(await read(consumer, 6)) == [4, 5, 6, 7, 8, 9]


async def test_offsets_are_committed_from_time_to_time(outside: Outside) -> None:
    """Every `auto.commit.interval.ms` a poll commits what earlier polls have returned."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(10)
        consumer = member(stage, "classic", max_poll_records=4)
        consumer.subscribe("t")
        await consumer.poll(60)
        await outside.pass_time(6)
        await consumer.poll(1)
        await outside.pass_time(1)
        assert await consumer.committed(T0) == {T0: OffsetAndMetadata(4, 0)}
        await consumer.close()


@BOTH
async def test_a_consumer_that_does_not_poll_loses_its_partitions(
    outside: Outside, protocol: str
) -> None:
    """After `max.poll.interval.ms` without a poll another member gets the partitions."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        lost: list[TopicPartition] = []
        slow = member(stage, protocol, max_poll_interval_ms=10_000)
        slow.subscribe("t", on_lost=lost.extend)
        await read(slow, 3)
        other = member(stage, protocol)
        other.subscribe("t")
        for _ in range(200):
            await other.poll(0.1)
            if other.assignment():
                break
        assert other.assignment() == {T0}
        assert await slow.poll(0.5) == []
        assert lost == [T0]
        await slow.close()
        await other.close()


@BOTH
async def test_a_pattern_finds_topics_that_come_later(outside: Outside, protocol: str) -> None:
    """A topic that matches is read once it exists; others and internal ones are not."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic("in-1")
        await stage.topic("out-1")
        await stage.fill(1, topic="in-1")
        async with member(stage, protocol, metadata_max_age_ms=1000) as consumer:
            consumer.subscribe(pattern="in-.*")
            await read(consumer, 1)
            await stage.topic("in-2")
            await stage.fill(1, topic="in-2")
            [record] = await read(consumer, 1)
            assert record.topic == "in-2"
            assert {each.topic for each in consumer.assignment()} == {"in-1", "in-2"}


@BOTH
async def test_a_pattern_takes_in_a_topic_that_comes_during_the_join(
    outside: Outside, protocol: str
) -> None:
    """The leader's and a follower's subscriptions both have it, and its partition is read."""
    settings = QUICK | {"group_initial_rebalance_delay_ms": "3000"}
    async with on_stage(outside, **settings) as stage:
        await stage.topic("in-1", partitions=2)
        members = [member(stage, protocol, metadata_max_age_ms=1000) for _ in range(2)]
        for each in members:
            each.subscribe(pattern=re.compile("in-.*"))
        await asyncio.gather(*(each.poll(1.5) for each in members))
        await stage.topic("in-2", partitions=2)
        await stage.fill(1, topic="in-2")
        found: list[ConsumerRecord] = []
        while not found or sum(len(each.assignment()) for each in members) < 4:
            for records in await asyncio.gather(*(each.poll(0.5) for each in members)):
                found += records
        assert [each.topic for each in found] == ["in-2"]
        assert [each.subscription() for each in members] == [{"in-1", "in-2"}] * 2
        for each in members:
            await each.close()


@BOTH
async def test_a_pattern_forgets_a_topic_that_goes_during_the_join(
    outside: Outside, protocol: str
) -> None:
    """The subscription has the other topic alone; the group does not rebalance again after that."""
    settings = QUICK | {"group_initial_rebalance_delay_ms": "3000"}
    async with on_stage(outside, **settings) as stage:
        await stage.topic("in-1")
        await stage.topic("in-2")
        calls: list[list[TopicPartition]] = []
        async with member(stage, protocol, metadata_max_age_ms=1000) as consumer:
            consumer.subscribe(pattern=re.compile("in-.*"), on_assigned=calls.append)
            await consumer.poll(1.5)
            peer = connect(outside, stage.broker)
            request = DeleteTopicsRequest(topic_names=("in-2",), timeout_ms=60_000)
            gone = await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse, version=5)
            assert gone.responses[0].error_code == 0
            await consumer.poll(20)
            assert consumer.subscription() == {"in-1"}
            assert consumer.assignment() == {TopicPartition("in-1", 0)}
            count = len(calls)
            await consumer.poll(20)
            assert len(calls) == count


@BOTH
@pytest.mark.parametrize("is_excluded", [True, False])
async def test_a_pattern_finds_internal_topics_only_where_they_are_included(
    outside: Outside,
    protocol: str,
    is_excluded: bool,  # noqa: FBT001 - a parameter
) -> None:
    """By default it leaves them out; `exclude.internal.topics=false` subscribes to them."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic("in-1")
        settings: dict[str, Any] = {"exclude_internal_topics": is_excluded}
        async with member(stage, protocol, metadata_max_age_ms=1000, **settings) as consumer:
            consumer.subscribe(pattern=re.compile("in-.*|__consumer_offsets"))
            wanted = {"in-1"} if is_excluded else {"in-1", "__consumer_offsets"}
            for _ in range(20):
                await consumer.poll(1)
            assert {each.topic for each in consumer.assignment()} == wanted


@BOTH
async def test_a_pattern_that_matches_nothing_yet_waits_for_its_topic(
    outside: Outside, protocol: str
) -> None:
    """The member has no partition until there is a topic, and reads that one then."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic("out-1")
        calls: list[list[TopicPartition]] = []
        async with member(stage, protocol, metadata_max_age_ms=1000) as consumer:
            consumer.subscribe(pattern="in-.*", on_assigned=calls.append)
            assert await consumer.poll(10) == []
            assert not consumer.assignment()
            await stage.topic("in-1")
            await stage.fill(1, topic="in-1")
            [record] = await read(consumer, 1)
            assert record.topic == "in-1"
            assert calls[-1] == [TopicPartition("in-1", 0)]


async def test_assign_commits_what_was_read_of_partitions_that_it_gives_up(
    outside: Outside,
) -> None:
    """In the background, up to the last record that was handed out; others keep their positions."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic(partitions=2)
        await stage.fill(5)
        settings: dict[str, Any] = {"auto_commit_interval_ms": 3_600_000}
        async with stage.consumer(group_id="g", **settings) as consumer:
            consumer.assign([T0, T1])
            async for record in consumer:
                if record.offset == 2:
                    break
            consumer.assign(T1)
            assert consumer.assignment() == {T1}
            await consumer.poll(1)
            assert await consumer.committed([T0, T1]) == {T0: OffsetAndMetadata(3), T1: None}
            consumer.assign(T0)
            assert values(await read(consumer, 2)) == [3, 4]


@pytest.mark.parametrize(
    "settings", [{"group_id": "g", "enable_auto_commit": False}, {}], ids=["off", "no group"]
)
async def test_assign_commits_nothing_without_auto_commit(
    outside: Outside, settings: dict[str, Any]
) -> None:
    """The program commits, or there is no group."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic(partitions=2)
        await stage.fill(3)
        async with stage.consumer(**settings) as consumer:
            consumer.assign(T0)
            await read(consumer, 3)
            consumer.assign(T1)
            await consumer.poll(1)
        async with stage.consumer(group_id="g") as other:
            assert await other.committed(T0) == {T0: None}


async def test_a_close_waits_for_the_commit_of_partitions_that_were_given_up(
    outside: Outside,
) -> None:
    """`assign` and at once `close`: the next consumer begins behind what was read."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic(partitions=2)
        await stage.fill(3)
        async with stage.consumer(group_id="g") as consumer:
            consumer.assign(T0)
            await read(consumer, 3)
            consumer.assign(T1)
        async with stage.consumer(group_id="g") as other:
            assert await other.committed(T0) == {T0: OffsetAndMetadata(3, 0)}


@BOTH
async def test_a_pattern_can_be_subscribed_again(outside: Outside, protocol: str) -> None:
    """After `unsubscribe` the same pattern with the same topics makes it a member again."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic("in-1")
        async with member(stage, protocol) as consumer:
            for number in range(2):
                consumer.subscribe(pattern=re.compile("in-.*"))
                await stage.fill(1, topic="in-1")
                assert values(await read(consumer, 1)) == [0], f"round {number}"
                await consumer.unsubscribe()
                assert not consumer.assignment()


async def test_assigned_partitions_begin_at_the_committed_offset(outside: Outside) -> None:
    """A consumer that assigns partitions itself commits to its group without being a member."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(5)
        async with stage.consumer(group_id="g", enable_auto_commit=False) as consumer:
            consumer.assign(T0)
            records = await read(consumer, 5)
            await consumer.commit(records[2])
        async with stage.consumer(group_id="g") as consumer:
            consumer.assign(T0)
            assert values(await read(consumer, 2)) == [3, 4]


async def test_offsets_travel_in_a_transaction(outside: Outside) -> None:
    """`group_metadata` fits the producer's transaction, which commits the offsets."""
    async with on_stage(outside, transaction_state_log_num_partitions="1", **QUICK) as stage:
        await stage.topic()
        await stage.topic("copy")
        await stage.fill(5)
        async with (
            member(stage, "classic", enable_auto_commit=False) as consumer,
            stage.producer(transactional_id="x") as producer,
        ):
            consumer.subscribe("t")
            records = await read(consumer, 5)
            async with producer.transaction():
                for each in records:
                    producer.send("copy", each.value)
                await producer.send_offsets_to_transaction(
                    {T0: records[-1].offset + 1}, consumer.group_metadata()
                )
            assert (await consumer.committed(T0))[T0] == OffsetAndMetadata(5)


async def test_aborted_records_are_left_out(outside: Outside) -> None:
    """With `read_committed` only records of committed transactions come, and positions pass all."""
    async with on_stage(outside, transaction_state_log_num_partitions="1") as stage:
        await stage.topic()
        async with stage.producer(transactional_id="x") as producer:
            for number in range(6):
                try:
                    async with producer.transaction():
                        producer.send("t", b"%d" % number)
                        await producer.flush()
                        if number % 2:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    pass
        async with stage.consumer(isolation_level="read_committed") as consumer:
            consumer.assign(T0)
            assert values(await read(consumer, 3)) == [0, 2, 4]
            assert await consumer.poll(1) == []
            assert await consumer.position(T0) == 12


async def test_unsubscribe_leaves_the_group(outside: Outside) -> None:
    """After `unsubscribe` nothing is assigned, and another subscription may begin."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(2)
        revoked: list[TopicPartition] = []
        async with member(stage, "classic") as consumer:
            consumer.subscribe("t", on_revoked=revoked.extend)
            await read(consumer, 2)
            await consumer.unsubscribe()
            assert (consumer.assignment(), revoked) == (set(), [T0])
            with pytest.raises(SubscriptionError):
                await consumer.poll()
            consumer.assign(T0)
            consumer.seek_to_beginning()
            records: list[ConsumerRecord] = await read(consumer, 2)
            assert values(records) == [0, 1]
