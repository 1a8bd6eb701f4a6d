"""Consumers and the replicas that they read from: followers, racks, and leaders that have moved."""

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchResponse
from tailrace.testing import Outside
from tailrace.values import replace
from tests.unit.handlers.replica_broker import (
    FIRST,
    ME,
    NEWEST,
    SECOND,
    THIRD,
    Broker,
    fetch_request,
    on_virtual_time,
)
from tests.unit.storage.builders import batch

SIZE = len(batch(b"x"))
TOOL = -2

# -- at a follower ----------------------------------------------------------------------------


async def following(outside: Outside, *, watermark: int = 2) -> Broker:
    """A broker that follows in epoch 1, with three records of which two are committed."""
    broker = Broker(outside)
    await broker.assign(SECOND)
    for number in range(3):
        broker.follow_records(b"x", epoch=1, watermark=min(watermark, number + 1))
    return broker


@pytest.mark.parametrize("version", [4, 7, 10, 11, 12, 18])
async def test_a_follower_serves_consumers_from_version_11_on(
    outside: Outside, version: int
) -> None:
    """Up to its high watermark; older ones have to go to the leader."""
    broker = await following(outside)
    found = await broker.fetch(0, version=version)
    if version < 11:
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not found.records
    else:
        assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, 2)
        assert len(found.records or b"") == 2 * SIZE


@pytest.mark.parametrize(
    ("offset", "code"),
    [
        (2, ErrorCode.NONE),
        (3, ErrorCode.NONE),
        (4, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
async def test_a_follower_has_nothing_above_its_watermark(
    outside: Outside, offset: int, code: ErrorCode
) -> None:
    """Up to its log end it may have the records soon; further, only the leader can say."""
    broker = await following(outside)
    found = await broker.fetch(offset)
    assert (found.error_code, found.records) == (code, b"")


async def test_a_tool_reads_any_replica_as_a_consumer_does(outside: Outside) -> None:
    """One that compares replicas, Kafka's debugging consumer, gets what is committed."""
    broker = await following(outside)
    for version in (12, NEWEST):
        found = await broker.fetch(0, replica=TOOL, version=version)
        assert len(found.records or b"") == 2 * SIZE
    old = await broker.fetch(0, replica=TOOL, version=4)
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_leaves_it_to_the_leader_to_tell_of_truncation(outside: Outside) -> None:
    """It may have nothing yet of the epoch of the consumer's last record, which is not lost."""
    broker = await following(outside)
    await broker.assign(SECOND, epoch=7)
    found = await broker.fetch(3, last_fetched_epoch=7)
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert found.diverging_epoch.epoch == -1
    found = await broker.fetch(2, last_fetched_epoch=1)
    assert (found.error_code, found.diverging_epoch.epoch) == (ErrorCode.NONE, -1)


def test_a_consumer_waits_at_a_follower_for_its_watermark() -> None:
    """Records alone are not enough."""

    async def scenario(outside: Outside) -> None:
        broker = await following(outside)
        waiting = asyncio.ensure_future(broker.fetch(2, max_wait_ms=60_000))
        await outside.pass_time(0.1)
        broker.follow_records(b"x", epoch=1, watermark=2)
        await outside.pass_time(0.1)
        assert not waiting.done()
        broker.follow_records(b"x", epoch=1, watermark=4)
        assert len((await waiting).records or b"") == 2 * SIZE

    assert on_virtual_time(scenario) < 1


# -- racks ------------------------------------------------------------------------------------


async def leading(outside: Outside, *, sends_to_nearest: bool = True) -> Broker:
    """A leader in rack a with followers in racks b and c, which both have all records."""
    broker = Broker(outside, sends_to_nearest=sends_to_nearest)
    await broker.assign()
    for _ in range(3):
        broker.append(b"x")
    for follower in (SECOND, THIRD):
        await broker.fetch(3, replica=follower)
    return broker


@pytest.mark.parametrize("version", [11, 12, 18])
async def test_a_consumer_is_sent_to_a_follower_in_its_rack(outside: Outside, version: int) -> None:
    """At once and without records, although there are some and the request may wait."""
    broker = await leading(outside)
    for rack, replica in (("b", SECOND), ("c", THIRD)):
        found = await broker.fetch(1, version=version, rack_id=rack, max_wait_ms=60_000)
        assert (found.error_code, found.preferred_read_replica) == (ErrorCode.NONE, replica)
        assert (found.records, found.high_watermark, found.log_start_offset) == (b"", 3, 0)


@pytest.mark.parametrize("rack", ["", "a", "nowhere"])
async def test_other_consumers_read_from_the_leader(outside: Outside, rack: str) -> None:
    """In its own rack, without one, or in one without replicas."""
    broker = await leading(outside)
    found = await broker.fetch(1, rack_id=rack)
    assert (found.preferred_read_replica, len(found.records or b"")) == (-1, 2 * SIZE)


async def test_without_a_selector_nobody_is_sent_away(outside: Outside) -> None:
    """The default, as in Kafka."""
    broker = await leading(outside, sends_to_nearest=False)
    found = await broker.fetch(1, rack_id="b")
    assert (found.preferred_read_replica, len(found.records or b"")) == (-1, 2 * SIZE)


async def test_followers_send_nobody_away(outside: Outside) -> None:
    """Neither a follower that is asked, nor a follower that asks its leader."""
    broker = await leading(outside)
    found = await broker.fetch(1, replica=SECOND, rack_id="c")
    assert (found.preferred_read_replica, len(found.records or b"")) == (-1, 2 * SIZE)
    await broker.assign(SECOND)
    found = await broker.fetch(1, rack_id="c")
    assert (found.preferred_read_replica, len(found.records or b"")) == (-1, 2 * SIZE)


async def test_the_epoch_counts_before_the_rack(outside: Outside) -> None:
    """A consumer with old metadata refreshes it first."""
    broker = await leading(outside)
    await broker.assign()
    found = await broker.fetch(1, rack_id="b", current_leader_epoch=1)
    assert found.error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("reason", ["fenced", "out of sync", "does not reach"])
async def test_a_follower_that_is_not_fit_is_not_preferred(outside: Outside, reason: str) -> None:
    """Its consumers come back to the leader, or stay there."""
    broker = await leading(outside)
    offset = 1
    if reason == "fenced":
        broker.register(SECOND, fenced=True)
    elif reason == "out of sync":
        await broker.assign(isr=(ME, THIRD), epoch=1)
    else:
        broker.append(b"x")
        offset = 4
    found = await broker.fetch(offset, rack_id="b")
    assert (found.error_code, found.preferred_read_replica) == (ErrorCode.NONE, -1)


def test_a_waiting_consumer_is_sent_away_when_its_rack_has_the_offset() -> None:
    """The follower was not in sync yet when the request came."""

    async def scenario(outside: Outside) -> None:
        broker = Broker(outside, sends_to_nearest=True)
        await broker.assign(isr=(ME,))
        waiting = asyncio.ensure_future(
            broker.fetch(0, rack_id="b", max_wait_ms=60_000, min_bytes=100_000)
        )
        await outside.pass_time(0.1)
        await broker.fetch(0, replica=SECOND)
        await broker.assign(isr=(ME, SECOND), epoch=1)
        broker.append(b"x")
        assert (await waiting).preferred_read_replica == SECOND

    assert on_virtual_time(scenario) < 1


# -- leaders that have moved --------------------------------------------------------------------


async def whole_answer(broker: Broker, version: int, **changes: Any) -> FetchResponse:
    request = fetch_request(0, version=version, **changes)
    return await broker.ask(ApiKey.FETCH, request, FetchResponse, version=version)


@pytest.mark.parametrize("version", [12, 15, 16, 18])
async def test_a_refusal_names_the_leader(outside: Outside, version: int) -> None:
    """From version 16 on (KIP-951): its id, epoch, address and rack, once for all partitions."""
    broker = Broker(outside)
    await broker.assign()
    await broker.assign(SECOND, epoch=5)
    answers = [
        await whole_answer(broker, version, current_leader_epoch=1),
        await whole_answer(broker, version, current_leader_epoch=5, replica=THIRD),
    ]
    codes = [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    for answer, code in zip(answers, codes, strict=True):
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == code
        leader = (partition.current_leader.leader_id, partition.current_leader.leader_epoch)
        assert leader == ((SECOND, 5) if version >= 16 else (-1, -1))
    # A follower knows the brokers from the image.
    assert answers[1].node_endpoints == ()
    found = [(each.node_id, each.host, each.port, each.rack) for each in answers[0].node_endpoints]
    assert found == ([(SECOND, "b2", 9092, "b")] if version >= 16 else [])


async def test_a_leader_of_many_partitions_is_named_once(outside: Outside) -> None:
    """Each partition has its id, the response its address."""
    broker = Broker(outside)
    names = [FIRST._replace(partition=number) for number in range(3)]
    await broker.assign(SECOND, epoch=5)
    request = fetch_request(0, current_leader_epoch=1)
    (topic,) = request.topics
    await broker.assign(SECOND, name=names[1], epoch=5)
    await broker.assign(THIRD, name=names[2], epoch=5)
    partitions = tuple(
        replace(topic.partitions[0], partition=number, current_leader_epoch=1)
        for number in range(3)
    )
    request = replace(request, topics=(replace(topic, partitions=partitions),))
    found = await broker.ask(ApiKey.FETCH, request, FetchResponse, version=NEWEST)
    leaders = [each.current_leader.leader_id for each in found.responses[0].partitions]
    assert leaders == [SECOND, SECOND, THIRD]
    assert [each.node_id for each in found.node_endpoints] == [SECOND, THIRD]


@pytest.mark.parametrize("leader", [-1, SECOND])
async def test_a_leader_that_is_none_or_away_has_no_address(outside: Outside, leader: int) -> None:
    """A client then refreshes its metadata."""
    broker = Broker(outside)
    await broker.assign(leader, epoch=5)
    broker.register(SECOND, fenced=True)
    answer = await whole_answer(broker, NEWEST, current_leader_epoch=1)
    (partition,) = answer.responses[0].partitions
    assert (partition.current_leader.leader_id, answer.node_endpoints) == (leader, ())


# -- state with a name that comes again -----------------------------------------------------------


async def learned(broker: Broker, *, version: int) -> None:
    """Have the broker remember a consumer's request, and show that it does."""
    for _ in range(2):
        await broker.fetch(0, version=version, max_wait_ms=500)
    frame = broker.frame(
        ApiKey.FETCH, fetch_request(1, version=version, max_wait_ms=500), version=version
    )
    assert broker.take(frame, version=version) is not None


@pytest.mark.parametrize("version", [7, 10, 11, 12, 18])
async def test_a_remembered_request_is_answered_by_the_role_of_now(
    outside: Outside, version: int
) -> None:
    """Leader, follower and leader again: an old consumer is refused by the follower in between."""
    broker = Broker(outside)
    await broker.assign()
    broker.append(b"x")
    broker.append(b"x")
    for follower in (SECOND, THIRD):
        await broker.fetch(2, replica=follower)
    await learned(broker, version=version)

    def taken(offset: int) -> int | None:
        request = fetch_request(offset, version=version, max_wait_ms=500)
        found = broker.take(broker.frame(ApiKey.FETCH, request, version=version), version=version)
        return None if found is None else len(found.records or b"")

    await broker.assign(SECOND)
    is_any = version >= 11
    assert taken(0) == (2 * SIZE if is_any else None)
    assert taken(2) is None
    await broker.assign(ME)
    broker.append(b"x")
    assert taken(0) == 2 * SIZE
    # The third record is not committed yet.
    assert taken(2) is None
    for follower in (SECOND, THIRD):
        await broker.fetch(3, replica=follower)
    assert taken(2) == SIZE


@pytest.mark.parametrize("version", [12, 18])
async def test_a_remembered_request_does_not_find_another_topic_of_the_name(
    outside: Outside, version: int
) -> None:
    """By id it is refused; by name it gets the new topic's records, and none of the old one's."""
    broker = Broker(outside)
    await broker.assign(replicas=(ME,), isr=(ME,))
    broker.append(b"old")
    broker.append(b"old")
    await learned(broker, version=version)
    broker.delete()
    await broker.assign(topic_id=UUID(int=11), replicas=(ME,), isr=(ME,))
    request = fetch_request(0, version=version, max_wait_ms=500)

    def taken() -> bytes | None:
        found = broker.take(broker.frame(ApiKey.FETCH, request, version=version), version=version)
        return None if found is None else bytes(cast("memoryview", found.records))

    assert taken() is None
    broker.append(b"new")
    records = taken()
    if version == 18:
        assert records is None
    else:
        assert records is not None
        assert b"new" in records
        assert b"old" not in records


async def test_a_consumer_with_a_rack_is_decided_each_time(outside: Outside) -> None:
    """Its request is not remembered, or it would stay at the leader when its rack can serve it."""
    broker = Broker(outside, sends_to_nearest=True)
    await broker.assign(isr=(ME,))
    broker.append(b"x")
    for _ in range(3):
        assert (await broker.fetch(0, rack_id="b")).records
    frame = broker.frame(ApiKey.FETCH, fetch_request(0, rack_id="b"), version=NEWEST)
    assert broker.take(frame, version=NEWEST) is None


@pytest.mark.parametrize("version", [7, 11, 12, 18])
async def test_a_session_is_served_by_the_role_of_now(outside: Outside, version: int) -> None:
    """It knows names and offsets only: each answer is of the leader or follower of that moment."""
    broker = Broker(outside)
    await broker.assign()
    broker.append(b"x")
    request = fetch_request(0, version=version, session_epoch=0)
    begun = await broker.ask(ApiKey.FETCH, request, FetchResponse, version=version)
    epoch = 0

    async def next_answer() -> tuple[int, int] | None:
        nonlocal epoch
        epoch += 1
        rest = replace(request, topics=(), session_id=begun.session_id, session_epoch=epoch)
        found = await broker.ask(ApiKey.FETCH, rest, FetchResponse, version=version)
        assert found.error_code == 0
        if not found.responses:
            return None
        (partition,) = found.responses[0].partitions
        return partition.error_code, len(partition.records or b"")

    assert await next_answer() is None
    await broker.assign(SECOND)
    refused = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), 0)
    assert await next_answer() == (refused if version < 11 else None)
    await broker.assign(ME, isr=(ME,))
    assert await next_answer() == (0, SIZE)
    broker.delete()
    broker.publish()
    assert await next_answer() == (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0)
    await broker.assign(topic_id=UUID(int=11), replicas=(ME,), isr=(ME,))
    inconsistent = (int(ErrorCode.INCONSISTENT_TOPIC_ID), 0)
    assert await next_answer() == (inconsistent if version >= 13 else (0, 0))
