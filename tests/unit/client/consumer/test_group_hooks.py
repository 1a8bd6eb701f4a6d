"""Hooks of a rebalance, and calls that end in the middle of one."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tailrace.client.consumer import AsyncConsumer
from tailrace.client.consumer.errors import (
    ClosedConsumerError,
    ConcurrentCallError,
    ConsumerTimeoutError,
)
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tailrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tailrace.testing import Outside
from tests.unit.broker.brokers import connect
from tests.unit.client.consumer.stage import T0, T1, Stage, on_stage, read, values
from tests.unit.client.consumer.test_groups import BOTH, QUICK, member


def failing(calls: list[str], name: str) -> Callable[[list[TopicPartition]], None]:
    """A hook that notes its call and raises at the first one."""

    def hook(_: list[TopicPartition]) -> None:
        calls.append(name)
        if calls.count(name) == 1:
            raise ZeroDivisionError(name)

    return hook


@BOTH
async def test_partitions_are_read_although_on_assigned_has_raised(
    outside: Outside, protocol: str
) -> None:
    """The poll raises what the hook has raised; the next one reads."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        calls: list[str] = []
        async with member(stage, protocol) as consumer:
            consumer.subscribe("t", on_assigned=failing(calls, "assigned"))
            with pytest.raises(ZeroDivisionError, match="assigned"):
                await read(consumer, 3)
            assert consumer.assignment() == {T0}
            assert values(await read(consumer, 3)) == [0, 1, 2]
        assert calls == ["assigned"]


@BOTH
@pytest.mark.parametrize("call", ["poll", "unsubscribe"])
async def test_a_hook_cannot_do_what_waits_for_it(
    outside: Outside, protocol: str, call: str
) -> None:
    """It is called once and gets an error; the partitions are read all the same."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        calls: list[list[TopicPartition]] = []

        async def assigned(partitions: list[TopicPartition]) -> None:
            calls.append(partitions)
            await getattr(consumer, call)()

        async with member(stage, protocol) as consumer:
            consumer.subscribe("t", on_assigned=assigned)
            with pytest.raises(ConcurrentCallError, match="seek, pause, commit and close"):
                await read(consumer, 3)
            assert values(await read(consumer, 3)) == [0, 1, 2]
            assert calls == [[T0]]


@BOTH
async def test_a_hook_may_close_the_consumer(outside: Outside, protocol: str) -> None:
    """The poll that runs it closes: each hook is called once, and others get the partitions."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        calls: list[str] = []
        consumer, other = member(stage, protocol), member(stage, protocol)

        async def assigned(_: list[TopicPartition]) -> None:
            calls.append("assigned")
            await consumer.close()

        consumer.subscribe("t", on_assigned=assigned, on_revoked=lambda _: calls.append("revoked"))
        with pytest.raises(ClosedConsumerError):
            await consumer.poll(60)
        assert calls == ["assigned", "revoked"]
        other.subscribe("t")
        start = outside.loop.time()
        while not other.assignment():
            await other.poll(0.5)
        # Sooner than a session would have ended.
        assert outside.loop.time() - start < 15
        await other.close()


@BOTH
async def test_a_close_waits_for_a_hook_of_another_task(outside: Outside, protocol: str) -> None:
    """It does not run the hook of the same step once more."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        calls: list[str] = []
        goes_on = asyncio.Event()

        async def assigned(_: list[TopicPartition]) -> None:
            calls.append("assigned")
            await goes_on.wait()
            calls.append("done")

        consumer = member(stage, protocol)
        consumer.subscribe("t", on_assigned=assigned, on_revoked=lambda _: calls.append("revoked"))
        poll = asyncio.create_task(consumer.poll(None))
        while not calls:
            await outside.pass_time(0.1)
        closing = asyncio.create_task(consumer.close())
        await outside.pass_time(1)
        assert not closing.done()
        goes_on.set()
        await closing
        with pytest.raises(ClosedConsumerError):
            await poll
        assert calls == ["assigned", "done", "revoked"]


@BOTH
async def test_partitions_go_although_on_revoked_has_raised(
    outside: Outside, protocol: str
) -> None:
    """`unsubscribe` raises what the hook has raised, and another member gets the partitions."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        calls: list[str] = []
        consumer, other = member(stage, protocol), member(stage, protocol)
        consumer.subscribe("t", on_revoked=failing(calls, "revoked"))
        await read(consumer, 3)
        with pytest.raises(ZeroDivisionError, match="revoked"):
            await consumer.unsubscribe()
        assert not consumer.assignment()
        assert not consumer.subscription()
        other.subscribe("t")
        while not other.assignment():
            await other.poll(0.5)
        await other.close()
        # It reads nothing, and may choose another way.
        consumer.assign(T0)
        assert await consumer.position(T0) == 3
        await consumer.close()


@BOTH
async def test_a_member_leaves_although_on_revoked_has_raised(
    outside: Outside, protocol: str
) -> None:
    """`close` raises what the hook has raised; others need not wait until the session ends."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        calls: list[str] = []
        consumer, other = member(stage, protocol), member(stage, protocol)
        consumer.subscribe("t", on_revoked=failing(calls, "revoked"))
        await read(consumer, 3)
        with pytest.raises(ZeroDivisionError, match="revoked"):
            await consumer.close()
        start = outside.loop.time()
        other.subscribe("t")
        while not other.assignment():
            await other.poll(0.5)
        assert outside.loop.time() - start < 15
        await other.close()


@BOTH
async def test_lost_partitions_are_gone_although_on_lost_has_raised(
    outside: Outside, protocol: str
) -> None:
    """The next poll joins again and reads on."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        calls: list[str] = []
        async with member(stage, protocol, max_poll_interval_ms=10_000) as consumer:
            consumer.subscribe("t", on_lost=failing(calls, "lost"))
            await read(consumer, 3)
            await consumer.commit()
            await outside.pass_time(30)
            with pytest.raises(ZeroDivisionError, match="lost"):
                await consumer.poll(5)
            await stage.fill(2, start=3)
            assert values(await read(consumer, 2)) == [3, 4]


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
async def test_the_first_error_of_a_rebalance_is_raised(outside: Outside, protocol: str) -> None:
    """Partitions go and others come although both hooks have raised; the next poll raises none."""
    settings: dict[str, Any] = {"protocol": protocol}
    if protocol == "cooperative":
        strategy = "cooperative-sticky"
        settings = {"protocol": "classic", "partition_assignment_strategy": strategy}
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.topic("u")
        await stage.fill(2, topic="u")
        calls: list[str] = []
        assigned, revoked = failing(calls, "assigned"), failing(calls, "revoked")
        async with member(stage, metadata_max_age_ms=1000, **settings) as consumer:
            consumer.subscribe("t", on_assigned=lambda _: None)
            while not consumer.assignment():
                await consumer.poll(0.5)
            consumer.subscribe("u", on_assigned=assigned, on_revoked=revoked)
            found: list[int] = []
            raised: list[str] = []
            while len(found) < 2:
                try:
                    found += values(await consumer.poll(5))
                except ZeroDivisionError as error:
                    raised.append(str(error))
            assert raised[0] == "revoked"
            assert found == [0, 1]
            assert consumer.assignment() == {TopicPartition("u", 0)}
        assert calls[:2] == ["revoked", "assigned"]


async def expel(stage: Stage, consumer: AsyncConsumer, protocol: str) -> None:
    """Have the coordinator forget a member, which does not know."""
    peer = connect(stage.outside, stage.broker)
    member_id = consumer.group_metadata().member_id
    if protocol == "consumer":
        leaving = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=-1)
        left = await peer.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, leaving, ConsumerGroupHeartbeatResponse
        )
        assert left.error_code == 0
    else:
        request = LeaveGroupRequest(
            group_id="g", members=(MemberIdentity(member_id=member_id, group_instance_id=None),)
        )
        answer = await peer.ask(ApiKey.LEAVE_GROUP, request, LeaveGroupResponse)
        assert answer.error_code == 0


@BOTH
async def test_partitions_go_although_their_commit_is_refused(
    outside: Outside, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The refusal is logged, the hook is called, and the partitions are given back."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        gone: list[TopicPartition] = []
        consumer = member(stage, protocol, auto_commit_interval_ms=3_600_000)
        consumer.subscribe("t", on_revoked=gone.extend, on_lost=gone.extend)
        await read(consumer, 3)
        await expel(stage, consumer, protocol)
        await consumer.unsubscribe()
        assert gone == [T0]
        assert consumer.assignment() == set()
        assert "commit_failed group=g" in caplog.text
        assert await consumer.committed(T0) == {T0: None}
        await consumer.close()


@BOTH
async def test_partitions_go_although_their_commit_has_no_answer(
    outside: Outside, protocol: str
) -> None:
    """The hook is called after `request.timeout.ms`, and not later."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        times: list[float] = []
        consumer = member(stage, protocol, request_timeout_ms=2000)
        consumer.subscribe("t", on_revoked=lambda _: times.append(outside.loop.time()))
        await read(consumer, 3)
        outside.network.delay_s = 1000
        start = outside.loop.time()
        with suppress(ConsumerTimeoutError):
            await consumer.unsubscribe(10)
        [called] = times
        assert called - start == pytest.approx(2, abs=0.1)
        assert consumer.assignment() == set()
        await consumer.close(0)
        outside.network.delay_s = 0


async def test_a_commit_that_is_refused_in_the_background_is_logged(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """No call has the error of an automatic commit: here of one without membership in a group."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic(partitions=2)
        await stage.fill(2)
        async with member(stage, "classic") as other:
            other.subscribe("t")
            while not other.assignment():
                await other.poll(0.5)
            async with member(stage, "classic", auto_commit_interval_ms=1000) as consumer:
                consumer.assign(T0)
                assert values(await read(consumer, 2)) == [0, 1]
                assert await consumer.poll(2) == []
                assert "commit_failed group=g reason=group 'g': nothing was" in caplog.text


@BOTH
async def test_nothing_is_committed_before_partitions_go_if_that_is_off(
    outside: Outside, protocol: str
) -> None:
    """With `enable.auto.commit=false` only the program commits, also in a rebalance and a close."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        consumer = member(stage, protocol, enable_auto_commit=False)
        consumer.subscribe("t")
        await read(consumer, 3)
        await consumer.unsubscribe()
        assert await consumer.committed(T0) == {T0: None}
        consumer.subscribe("t")
        await read(consumer, 3)
        await consumer.close()
        async with member(stage, protocol) as other:
            assert await other.committed(T0) == {T0: None}


@BOTH
async def test_what_was_returned_is_committed_before_partitions_go(
    outside: Outside, protocol: str
) -> None:
    """Under `enable.auto.commit` the hook that takes partitions away finds their offsets stored."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        stored: list[Any] = []
        consumer = member(stage, protocol, auto_commit_interval_ms=3_600_000)

        async def revoked(_: list[TopicPartition]) -> None:
            stored.append(await consumer.committed(T0))

        consumer.subscribe("t", on_revoked=revoked)
        await read(consumer, 3)
        await consumer.unsubscribe()
        assert stored == [{T0: OffsetAndMetadata(3, 0)}]
        await consumer.close()


@BOTH
async def test_polls_that_are_cancelled_do_not_hinder_the_join(
    outside: Outside, protocol: str
) -> None:
    """Whichever request is under way when a poll ends, the member joins once and reads."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        assigned: list[list[TopicPartition]] = []
        async with member(stage, protocol) as consumer:
            consumer.subscribe("t", on_assigned=assigned.append)
            while not consumer.assignment():
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await consumer.poll(60)
            consumer.seek(T0, 0)
            assert values(await read(consumer, 3)) == [0, 1, 2]
        assert assigned == [[T0]]


@BOTH
async def test_a_hook_that_is_cancelled_does_not_hinder_the_assignment(
    outside: Outside, protocol: str
) -> None:
    """The partitions are there, and the next poll reads them."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        begun: list[list[TopicPartition]] = []

        async def assigned(partitions: list[TopicPartition]) -> None:
            begun.append(partitions)
            await asyncio.Event().wait()

        async with member(stage, protocol) as consumer:
            consumer.subscribe("t", on_assigned=assigned)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(20):
                    await consumer.poll(60)
            assert begun == [[T0]]
            assert consumer.assignment() == {T0}
            assert values(await read(consumer, 3)) == [0, 1, 2]


async def test_a_partition_that_comes_back_begins_at_its_new_committed_offset(
    outside: Outside,
) -> None:
    """The answer that there was none came during a hook, which sought there: it is forgotten."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.topic("u")
        await stage.fill(10)
        calls: list[list[TopicPartition]] = []

        async def assigned(partitions: list[TopicPartition]) -> None:
            calls.append(partitions)
            if len(calls) == 1:
                # The group is asked for "u" before it is asked for the offset in "t".
                consumer.subscribe(["t", "u"], on_assigned=assigned)
                await outside.pass_time(0.01)
            elif len(calls) == 2:
                # The answer about the offset comes while this hook runs.
                await outside.pass_time(3)
                consumer.seek(T0, 3)

        async with member(stage, "consumer", enable_auto_commit=False) as consumer:
            for topic in ("t", "u"):
                await consumer.partitions_for(topic)
            outside.network.delay_s = 0.5
            consumer.subscribe("t", on_assigned=assigned)
            assert values(await read(consumer, 7)) == [3, 4, 5, 6, 7, 8, 9]
            assert calls == [[T0], [TopicPartition("u", 0)]]
            await consumer.commit({T0: 5})
            consumer.subscribe("u")
            while T0 in consumer.assignment():
                await consumer.poll(0.5)
            consumer.subscribe(["t", "u"])
            while T0 not in consumer.assignment():
                await consumer.poll(0.5)
            assert await consumer.position(T0) == 5


@BOTH
async def test_partitions_are_not_read_before_on_assigned_has_ended(
    outside: Outside, protocol: str
) -> None:
    """While the hook waits, no position is looked up and nothing is fetched."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        async with member(stage, protocol) as consumer:
            seen: list[object] = []

            async def assigned(_: list[TopicPartition]) -> None:
                await outside.pass_time(3)
                [partition] = consumer.statistics().partitions.values()
                seen.append((partition.position, consumer.metrics()["fetch-total"]))

            consumer.subscribe("t", on_assigned=assigned)
            assert values(await read(consumer, 3)) == [0, 1, 2]
            assert seen == [(None, 0)]


@BOTH
async def test_nothing_is_fetched_while_partitions_are_given_back(
    outside: Outside, protocol: str
) -> None:
    """A hook that waits has no request sent for what goes, and nothing of it is returned later."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        counts: list[float] = []
        async with member(stage, protocol) as consumer:

            async def revoked(_: list[TopicPartition]) -> None:
                await outside.pass_time(1)
                counts.append(consumer.metrics()["fetch-total"])
                await stage.fill(2, start=3)
                await outside.pass_time(3)
                counts.append(consumer.metrics()["fetch-total"])

            consumer.subscribe("t", on_revoked=revoked)
            await read(consumer, 3)
            await consumer.unsubscribe()
            assert counts[0] == counts[1]
            assert consumer.statistics().partitions == {}


@pytest.mark.parametrize(
    "settings",
    [
        {"protocol": "classic", "partition_assignment_strategy": "cooperative-sticky"},
        {"protocol": "consumer"},
    ],
    ids=["cooperative", "consumer"],
)
async def test_a_cooperative_member_reads_on_while_the_group_rebalances(
    outside: Outside, settings: dict[str, Any]
) -> None:
    """The partition that stays is neither revoked nor read twice, and gives records meanwhile."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic(partitions=2)
        gone: list[TopicPartition] = []
        first, second = member(stage, **settings), member(stage, **settings)
        first.subscribe("t", on_revoked=gone.extend, on_lost=gone.extend)
        while len(first.assignment()) < 2:
            await first.poll(0.2)
        second.subscribe("t")
        found: dict[TopicPartition, list[int]] = {T0: [], T1: []}
        written = 0
        while not second.assignment() or len(first.assignment()) > 1:
            for each in (T0, T1):
                await stage.fill(1, partition=each.partition, start=written)
            written += 1
            for record in await first.poll(0.2):
                found[record.topic_partition].append(int(record.value))
            await second.poll(0.1)
        [stays] = first.assignment()
        assert gone == [each for each in (T0, T1) if each != stays]
        while len(found[stays]) < written:
            for record in await first.poll(5):
                found[record.topic_partition].append(int(record.value))
        assert found[stays] == list(range(written))
        await first.close()
        await second.close()


@BOTH
@pytest.mark.parametrize("seconds", [0, 3])
async def test_close_ends_in_time_without_a_coordinator(
    outside: Outside, protocol: str, seconds: int
) -> None:
    """Neither a commit nor LeaveGroup that is not answered holds it longer than it was given."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        consumer = member(stage, protocol)
        consumer.subscribe("t")
        await read(consumer, 3)
        outside.network.delay_s = 1000
        start = outside.loop.time()
        await consumer.close(seconds)
        assert outside.loop.time() - start <= seconds + 0.1
        outside.network.delay_s = 0
