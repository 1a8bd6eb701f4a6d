"""Coordinators of a cluster: they move with the leaders of their partitions."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tailrace.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from tailrace.coordinator.machine import Client
from tailrace.coordinator.transactions.markers import Marker, MarkerFencedError
from tailrace.coordinator.transactions.state import TransactionStatus
from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tailrace.records.control import ControlType, end_transaction_marker_or_none
from tailrace.testing.outside import virtual_runtime
from tests.unit.broker.cluster_producer import Producer, commit, committed
from tests.unit.broker.homes import DATA, GROUPS, TRANSACTIONS, Home, Homes


def play(scenario: Callable[[Homes], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario on three brokers, of which the first leads everything."""
    with virtual_runtime() as outside:

        async def main() -> None:
            homes = Homes(outside)
            homes.start()
            await homes.settle(2)
            await scenario(homes)
            await homes.stop()

        outside.run(main())


def test_a_group_moves_with_the_leader_of_its_partition() -> None:
    """Each leader has what the ones before have acknowledged; the others send clients away."""

    async def scenario(homes: Homes) -> None:
        for number, leader in enumerate((1, 2, 3, 2, 2, 1)):
            if number:
                homes.elect(GROUPS, leader)
                await homes.settle(2)
            assert await committed(homes.by_id[leader], "g") == number - 1
            assert await commit(homes.by_id[leader], "g", number) is ErrorCode.NONE
            for other in {1, 2, 3} - {leader}:
                with pytest.raises(NotCoordinatorError):
                    await committed(homes.by_id[other], "g")

    play(scenario)


def test_a_commit_is_acknowledged_when_the_followers_have_it() -> None:
    """And what somebody reads meanwhile waits as well: it might be lost."""

    async def scenario(homes: Homes) -> None:
        homes.trouble.stopped = {3}
        first = homes.by_id[1]
        writing = asyncio.ensure_future(commit(first, "g", 7))
        reading = asyncio.ensure_future(committed(first, "g"))
        await homes.outside.pass_time(1)
        assert not writing.done()
        assert not reading.done()
        homes.trouble.stopped = set()
        assert await writing is ErrorCode.NONE
        assert await reading == 7

    play(scenario)


def test_a_commit_that_the_followers_do_not_get_in_time_is_tried_again() -> None:
    """Its client gets COORDINATOR_NOT_AVAILABLE, and the record counts when they have it."""

    async def scenario(homes: Homes) -> None:
        homes.trouble.stopped = {2, 3}
        first = homes.by_id[1]
        with pytest.raises(CoordinatorNotAvailableError, match="not committed within 2000 ms"):
            await commit(first, "g", 7)
        homes.trouble.stopped = set()
        assert await committed(first, "g") == 7

    play(scenario)


def test_an_append_needs_enough_replicas_in_sync() -> None:
    """Else nothing is appended, and the client hears so at once; the offsets can be read."""

    async def scenario(homes: Homes) -> None:
        first = homes.by_id[1]
        await commit(first, "g", 7)
        homes.shrink(GROUPS, isr=(1,))
        await homes.settle(2)
        with pytest.raises(CoordinatorNotAvailableError, match=r"min\.insync\.replicas"):
            await commit(first, "g", 8)
        assert await committed(first, "g") == 7

    play(scenario)


def test_a_commit_of_a_leader_that_has_lost_its_place_is_not_acknowledged() -> None:
    """Its client is sent to the new leader, which does not have it; the old one cuts its log."""

    async def scenario(homes: Homes) -> None:
        first = homes.by_id[1]
        assert await commit(first, "g", 1) is ErrorCode.NONE
        homes.trouble.stopped = {2, 3}
        lost = asyncio.ensure_future(commit(first, "g", 2))
        await homes.outside.pass_time(0.5)
        homes.elect(GROUPS, 2)
        with pytest.raises(NotCoordinatorError):
            await lost
        await homes.settle(2)
        assert await committed(homes.by_id[2], "g") == 1
        homes.elect(GROUPS, 1)
        await homes.settle(2)
        assert await committed(first, "g") == 1

    play(scenario)


def test_a_leader_that_has_not_heard_of_its_successor_acknowledges_nothing() -> None:
    """Its followers fetch from the new one, so that its records stay above the high watermark."""

    async def scenario(homes: Homes) -> None:
        homes.trouble.blind = {1}
        homes.elect(GROUPS, 2)
        homes.shrink(GROUPS, isr=(2, 3))
        await homes.outside.pass_time(2)
        with pytest.raises(CoordinatorNotAvailableError):
            await commit(homes.by_id[1], "g", 5)
        assert await commit(homes.by_id[2], "g", 6) is ErrorCode.NONE
        homes.trouble.blind = set()
        await homes.settle(2)
        assert await committed(homes.by_id[2], "g") == 6

    play(scenario)


def test_a_leader_that_leads_again_at_once_loads_once_more() -> None:
    """Also where the first load is under way; what it has read then is not used."""

    async def scenario(homes: Homes) -> None:
        await commit(homes.by_id[1], "g", 4)
        second = homes.by_id[2]
        homes.outside.threads.seconds_per_run = 3
        homes.elect(GROUPS, 2)
        await homes.outside.pass_time(1)
        with pytest.raises(CoordinatorLoadInProgressError):
            await committed(second, "g")
        homes.elect(GROUPS, 3)
        await homes.outside.pass_time(1)
        with pytest.raises(NotCoordinatorError):
            await committed(second, "g")
        homes.elect(GROUPS, 2)
        # The first load ends in between.
        await homes.outside.pass_time(2)
        with pytest.raises(CoordinatorLoadInProgressError):
            await committed(second, "g")
        await homes.settle(5)
        assert await committed(second, "g") == 4

    play(scenario)


def test_a_topic_that_is_made_again_begins_empty() -> None:
    """Its leader epoch may be lower than that of the topic before."""

    async def scenario(homes: Homes) -> None:
        first = homes.by_id[1]
        homes.elect(GROUPS, 1)
        homes.elect(GROUPS, 1)
        await homes.settle(2)
        await commit(first, "g", 4)
        state = homes.states[GROUPS]
        homes.delete(GROUPS)
        for home in homes.by_id.values():
            home.replicas.close(GROUPS, unique_id="1")()
        with pytest.raises(NotCoordinatorError):
            await committed(first, "g")
        homes.restore(GROUPS, state, leader_epoch=0)
        await homes.settle(2)
        assert await committed(first, "g") == -1
        assert await commit(first, "g", 1) is ErrorCode.NONE

    play(scenario)


async def begun(homes: Homes, *partitions: TopicPartition, name: str = "t") -> Producer:
    """A producer whose open transaction has a record in each of these partitions."""
    producer = Producer(homes, name)
    assert await producer.begin() is ErrorCode.NONE
    for each in partitions:
        assert await producer.send(each, b"value") is ErrorCode.NONE
    return producer


def ends(homes: Homes, partition: TopicPartition) -> list[bool]:
    """The markers of a partition on its leader: whether each commits."""
    markers = [
        end_transaction_marker_or_none(each)
        for each in homes.leader(partition).batches(partition)
        if each.is_control
    ]
    return [each.type is ControlType.COMMIT for each in markers if each is not None]


def status(homes: Homes) -> TransactionStatus:
    """The status of the only transaction, at its coordinator."""
    [machine] = homes.leader(TRANSACTIONS).coordinators.transactions.machines()
    [transaction] = machine
    return transaction.status


def test_a_transaction_spans_brokers() -> None:
    """Its coordinator, its two partitions and its group have a leader each."""

    async def scenario(homes: Homes) -> None:
        for name, leader in ((TRANSACTIONS, 1), (DATA[0], 2), (DATA[1], 3), (GROUPS, 2)):
            homes.elect(name, leader)
        await homes.settle(2)
        for is_commit in (True, False):
            producer = await begun(homes, *DATA)
            assert await producer.send_offset("g", 5 + is_commit) is ErrorCode.NONE
            assert await producer.end(is_commit=is_commit) is ErrorCode.NONE
            await homes.settle(2)
            assert await committed(homes.leader(GROUPS), "g") == 6
        assert [ends(homes, each) for each in DATA] == [[True, False]] * 2

    play(scenario)


def test_a_new_coordinator_carries_out_a_prepared_end() -> None:
    """The first one has lost its partition before a marker could be written."""

    async def scenario(homes: Homes) -> None:
        homes.elect(DATA[0], 2)
        await homes.settle(2)
        producer = await begun(homes, DATA[0])
        homes.trouble.loss = 1.0
        assert await producer.end(is_commit=True) is ErrorCode.NONE
        await homes.outside.pass_time(1)
        assert status(homes) is TransactionStatus.PREPARE_COMMIT
        homes.elect(TRANSACTIONS, 3)
        await homes.settle(5)
        assert ends(homes, DATA[0]) == [True]
        assert status(homes) is TransactionStatus.COMPLETE_COMMIT

    play(scenario)


def test_markers_wait_for_a_leader() -> None:
    """A partition has none for a while; then they go to the new one."""

    async def scenario(homes: Homes) -> None:
        producer = await begun(homes, *DATA)
        homes.elect(DATA[0], -1)
        await homes.settle(1)
        assert await producer.end(is_commit=False) is ErrorCode.NONE
        await homes.settle(60)
        assert ends(homes, DATA[1]) == [False]
        assert status(homes) is TransactionStatus.PREPARE_ABORT
        homes.elect(DATA[0], 3)
        # A second until it is tried again, and some to hear of the leader and to replicate.
        await homes.settle(1.5)
        assert ends(homes, DATA[0]) == [False]
        assert status(homes) is TransactionStatus.COMPLETE_ABORT

    play(scenario)


def test_a_deleted_partition_holds_up_no_transaction() -> None:
    """Its marker is left out."""

    async def scenario(homes: Homes) -> None:
        producer = await begun(homes, *DATA)
        homes.delete(DATA[1])
        await homes.settle(1)
        assert await producer.end(is_commit=True) is ErrorCode.NONE
        await homes.settle(10)
        assert status(homes) is TransactionStatus.COMPLETE_COMMIT
        assert ends(homes, DATA[0]) == [True]

    play(scenario)


def test_a_marker_that_followers_do_not_get_in_time_is_sent_again() -> None:
    """The leader answers REQUEST_TIMED_OUT after 30 seconds; a second marker changes nothing."""

    async def scenario(homes: Homes) -> None:
        homes.elect(DATA[0], 2)
        await homes.settle(2)
        producer = await begun(homes, DATA[0])
        homes.trouble.held = {DATA[0]}
        assert await producer.end(is_commit=True) is ErrorCode.NONE
        await homes.outside.pass_time(45)
        assert status(homes) is TransactionStatus.PREPARE_COMMIT
        await homes.settle(5)
        assert set(ends(homes, DATA[0])) == {True}
        assert status(homes) is TransactionStatus.COMPLETE_COMMIT

    play(scenario)


def test_a_marker_of_an_older_coordinator_is_refused() -> None:
    """Its partition has a marker of a newer coordinator epoch: the older one gives up."""

    async def scenario(homes: Homes) -> None:
        homes.elect(TRANSACTIONS, 2)
        homes.elect(DATA[0], 3)
        await homes.settle(2)
        producer = await begun(homes, DATA[0])
        assert await producer.end(is_commit=True) is ErrorCode.NONE
        await homes.settle(2)
        old = Marker(
            producer_id=producer.now.producer_id,
            producer_epoch=producer.now.producer_epoch,
            is_commit=False,
            coordinator_epoch=LeaderEpoch(0),
            transaction_version=2,
        )
        peers = homes.by_id[1].peers
        with pytest.raises(MarkerFencedError, match="TRANSACTION_COORDINATOR_FENCED"):
            await peers.markers.write(3, DATA[0], old)
        assert ends(homes, DATA[0]) == [True]

    play(scenario)


def test_a_first_batch_is_verified_where_its_coordinator_is() -> None:
    """A transaction that is not there is refused; without a coordinator the producer asks again."""

    async def scenario(homes: Homes) -> None:
        homes.elect(DATA[0], 2)
        await homes.settle(2)
        producer = await begun(homes)
        second = homes.by_id[2]
        assert await producer.admitted(second, DATA[0]) is ErrorCode.NONE
        homes.trouble.loss = 1.0
        assert await producer.admitted(second, DATA[0]) is ErrorCode.NETWORK_EXCEPTION
        homes.trouble.loss = 0.0
        homes.elect(TRANSACTIONS, -1)
        await homes.settle(1)
        assert await producer.admitted(second, DATA[0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        # The leader of the batch has not heard of the new coordinator: the old one says so.
        homes.elect(TRANSACTIONS, 1)
        await homes.settle(1)
        homes.trouble.blind = {2}
        homes.elect(TRANSACTIONS, 3)
        await homes.outside.pass_time(2)
        assert await producer.admitted(second, DATA[0]) is ErrorCode.NOT_COORDINATOR
        homes.trouble.blind = set()
        await homes.settle(2)
        assert await producer.admitted(second, DATA[0]) is ErrorCode.NONE
        stranger = Producer(homes, "stranger")
        assert await stranger.admitted(second, DATA[0]) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    play(scenario)


async def join(home: Home) -> JoinGroupResponse:
    """Join group j as a member of the classic protocol; the first answer takes three seconds."""
    request = JoinGroupRequest(
        group_id="j",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    client = Client("client", "/127.0.0.1", 3)
    return await home.coordinators.groups.shard_of("j").run(
        lambda groups, now_ms: groups.join(client, request, now_ms)
    )


def test_a_member_that_waits_is_sent_to_the_new_coordinator() -> None:
    """A newer epoch of the same leader lets it wait on."""

    async def scenario(homes: Homes) -> None:
        first = homes.by_id[1]
        waiting = asyncio.ensure_future(join(first))
        homes.elect(GROUPS, 1)
        await homes.settle(1)
        assert not waiting.done()
        homes.elect(GROUPS, 2)
        await homes.settle(1)
        with pytest.raises(NotCoordinatorError):
            await waiting
        joined = await join(homes.by_id[2])
        assert (ErrorCode(joined.error_code), joined.generation_id) == (ErrorCode.NONE, 1)

    play(scenario)
