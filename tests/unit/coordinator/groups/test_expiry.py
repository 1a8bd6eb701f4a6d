"""Offsets expire some time after nobody consumes for their group any more (KIP-211)."""

from tailrace.coordinator.groups.classic_group import ClassicState
from tailrace.coordinator.groups.expiry import EXPIRED_MAX
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import TransactionalProducer
from tailrace.model import ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.records import GroupMetadataKey
from tests.unit.coordinator.groups.stage import (
    GROUP,
    Broker,
    Member,
    commit,
    on_stage,
    stable,
)

PLANES = TopicPartition("planes", 2)
PRODUCER = TransactionalProducer(ProducerId(7), ProducerEpoch(0))
CHECK = 600.0
DAY = 86_400.0
WEEK = 7 * DAY


async def beat(member: Member, seconds: float) -> None:
    """Let time pass in which a member is heard of."""
    member.session_timeout_ms = 1_800_000
    for _ in range(round(seconds / 600)):
        await member.broker.passes(600)
        await member.heartbeat()


@on_stage()
async def test_offsets_of_a_simple_group_expire_after_their_commit(broker: Broker) -> None:
    """Each by its own time, and the group with the last of them."""
    await commit(broker, 5)
    await broker.passes(DAY)
    await commit(broker, 6, PLANES)
    await broker.passes(WEEK - DAY - 1)
    assert await broker.offset() == 5
    await broker.passes(CHECK + 2)
    assert (await broker.offset(), await broker.offset(PLANES)) == (None, 6)
    await broker.passes(DAY)
    assert GROUP not in broker.machine.groups.by_id
    await broker.restart()
    assert GROUP not in broker.machine.groups.by_id


@on_stage()
async def test_offsets_of_a_group_expire_after_its_last_member(broker: Broker) -> None:
    """However long ago they were committed; a restart does not move the time."""
    [member] = await stable(broker, "member", session_timeout_ms=1_800_000)
    await member.commit(5)
    await beat(member, WEEK + DAY)
    assert await broker.offset() == 5
    await member.leave()
    await broker.passes(WEEK - DAY)
    await broker.restart()
    await broker.passes(DAY - 2)
    assert await broker.offset() == 5
    await broker.passes(CHECK + 3)
    assert await broker.offset() is None
    assert GROUP not in broker.machine.groups.by_id


@on_stage()
async def test_offsets_of_topics_that_members_do_not_want_expire(broker: Broker) -> None:
    """While others consume; those of topics with a subscription stay."""
    [member] = await stable(broker, "member", session_timeout_ms=1_800_000)
    await member.commit(5)
    await member.commit(6, PLANES)
    await beat(member, WEEK - DAY)
    assert await broker.offset(PLANES) == 6
    await beat(member, DAY + CHECK)
    assert (await broker.offset(), await broker.offset(PLANES)) == (5, None)


@on_stage()
async def test_nothing_expires_for_members_whose_topics_are_not_known(broker: Broker) -> None:
    """Their protocol is not a consumer's, or their metadata cannot be read."""
    for told in ({"protocol_type": "connect"}, {"protocols": {"mine": b"?"}}):
        [member] = await stable(broker, "member", session_timeout_ms=1_800_000, **told)
        await member.commit(5, PLANES)
        await beat(member, WEEK + DAY)
        assert await broker.offset(PLANES) == 5
        await member.leave()


@on_stage(GroupSettings(retention_ms=1))
async def test_nothing_expires_in_a_rebalance(broker: Broker) -> None:
    """Nobody knows yet what the members will want."""
    long = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 1_800_000}
    [member] = await stable(broker, "member", **long)
    await member.commit(5, PLANES)
    Member(broker, "second").join()
    await beat(member, CHECK + 1)
    assert broker.state is ClassicState.PREPARING_REBALANCE
    assert await broker.offset(PLANES) == 5


@on_stage()
async def test_a_time_that_the_client_gave_counts(broker: Broker) -> None:
    """Earlier than the broker's, or later."""
    await commit(broker, 5, version=2, retention_ms=1_000)
    await commit(broker, 6, PLANES, version=2, retention_ms=round(2 * WEEK * 1000))
    await broker.passes(CHECK + 1)
    assert (await broker.offset(), await broker.offset(PLANES)) == (None, 6)
    await broker.passes(WEEK + DAY)
    assert await broker.offset(PLANES) == 6
    await broker.passes(WEEK)
    assert await broker.offset(PLANES) is None


@on_stage()
async def test_offsets_with_an_open_transaction_stay(broker: Broker) -> None:
    """And their group with them, even if nothing else is left of it."""
    await commit(broker, 5)
    await commit(broker, 6, producer=PRODUCER)
    await commit(broker, 7, group_id="pending", producer=PRODUCER)
    await broker.passes(WEEK + CHECK)
    assert await broker.offset() == 5
    assert set(broker.machine.groups.by_id) == {GROUP, "pending"}
    await broker.end_transaction(PRODUCER, is_commit=False)
    await broker.passes(CHECK)
    assert broker.machine.groups.by_id == {}


@on_stage()
async def test_an_empty_group_without_offsets_goes_at_the_next_check(broker: Broker) -> None:
    """It has nothing to keep; one whose first member is about to join is not empty yet."""
    [member] = await stable(broker, "member")
    await member.leave()
    pending = Member(broker, group_id="pending", session_timeout_ms=1_800_000)
    await pending.join_once()
    await broker.passes(CHECK + 1)
    assert list(broker.machine.groups.by_id) == ["pending"]
    tombstones = [each.key for each in broker.records() if each.value is None]
    assert tombstones == [GroupMetadataKey(group=GROUP)]


@on_stage()
async def test_many_offsets_expire_in_several_batches(broker: Broker) -> None:
    """Each fits into the topic's largest batch, and none waits for the next check."""
    for number in range(2 * EXPIRED_MAX + 1):
        await commit(broker, 5, TopicPartition("flights", number))
    batches = len(broker.log.content)
    await broker.passes(WEEK + CHECK)
    assert len(broker.log.content) == batches + 3
    assert broker.machine.groups.by_id == {}
