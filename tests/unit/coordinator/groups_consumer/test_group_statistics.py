"""Groups and their offsets in numbers."""

import pytest

from tailrace.coordinator.errors import CoordinatorNotAvailableError
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import TransactionalProducer
from tailrace.errors import RetriableError
from tailrace.model import ProducerEpoch, ProducerId, TopicPartition
from tests.unit.coordinator.groups.stage import FLIGHTS, GROUP, Member, commit
from tests.unit.coordinator.groups_consumer.assigning import topic_id
from tests.unit.coordinator.groups_consumer.mixed_stage import (
    ConsumerClient,
    MixedBroker,
    classic_group,
    on_mixed_stage,
    settle,
)

PLANES = TopicPartition("planes", 0)
PRODUCER = TransactionalProducer(ProducerId(7), ProducerEpoch(0))
PLANES_ID = topic_id("p")
WEEK = 7 * 86_400.0
CHECK = 600.0


class FullLogError(RetriableError):
    """An error of a log."""


async def offset_counts(broker: MixedBroker) -> tuple[int, int, int, int]:
    """Offsets now; and those that were committed, expired and deleted."""
    found = broker.statistics()
    return (
        found.offset_count,
        found.offset_commit_count,
        found.offset_expiration_count,
        found.offset_deletion_count,
    )


@on_mixed_stage()
async def test_groups_count_by_their_protocol_and_state(broker: MixedBroker) -> None:
    """A restart finds the same; a group that goes is counted no more."""
    await commit(broker, 5, group_id="simple")
    await commit(broker, 5, group_id="other")
    member = Member(broker, "member", group_id="classic")
    joining = member.join()
    await broker.passes(1)
    found = broker.statistics()
    assert found.classic_by_state == {"Empty": 2, "PreparingRebalance": 1}
    assert found.consumer_by_state == {}
    first, second = ConsumerClient(broker, "first"), ConsumerClient(broker, "second")
    await settle(broker, first)
    assert broker.statistics().consumer_by_state == {"Stable": 1}
    await second.beat()
    assert broker.statistics().consumer_by_state == {"Reconciling": 1}
    await joining
    await settle(broker, first, second)
    await broker.run(lambda machine, _: machine.delete_group("other"))
    await first.leave()
    await second.leave()
    expected = {"Empty": 1, "CompletingRebalance": 1}, {"Empty": 1}
    found = broker.statistics()
    assert (found.classic_by_state, found.consumer_by_state) == expected
    await member.sync({member.member_id: b"all"})
    for _ in range(2):
        found = broker.statistics()
        assert found.classic_by_state == {"Empty": 1, "Stable": 1}
        assert found.consumer_by_state == {"Empty": 1}
        await broker.restart()


@on_mixed_stage(assignment_interval_ms=1000)
async def test_a_consumer_group_whose_target_is_late_is_assigning(broker: MixedBroker) -> None:
    """It has a new epoch, and no target for it yet."""
    await ConsumerClient(broker, "first").beat()
    await ConsumerClient(broker, "second").beat()
    assert broker.statistics().consumer_by_state == {"Assigning": 1}


@on_mixed_stage()
async def test_a_completed_rebalance_of_a_classic_group_counts(broker: MixedBroker) -> None:
    """When the assignment of its leader is stored, and not when it is replayed."""
    [member] = await classic_group(broker, "member")
    assert broker.statistics().classic_rebalance_count == 1
    broker.log.refusal = FullLogError("full")
    with pytest.raises(CoordinatorNotAvailableError):
        await member.follow()
    assert broker.statistics().classic_rebalance_count == 1
    broker.log.refusal = None
    await broker.restart()
    assert broker.statistics().classic_rebalance_count == 1


@on_mixed_stage()
async def test_a_rebalance_of_a_consumer_group_counts(broker: MixedBroker) -> None:
    """With each group epoch, and not when it is replayed or heartbeats follow it."""
    first, second = ConsumerClient(broker, "first"), ConsumerClient(broker, "second")
    await first.beat()
    assert broker.statistics().consumer_rebalance_count == 1
    await settle(broker, first)
    assert broker.statistics().consumer_rebalance_count == 1
    await second.beat()
    await settle(broker, first, second)
    assert broker.statistics().consumer_rebalance_count == 2
    await broker.restart()
    assert broker.statistics().consumer_rebalance_count == 2
    await second.leave()
    assert broker.statistics().consumer_rebalance_count == 3


@on_mixed_stage()
async def test_committed_offsets_count_each_time(broker: MixedBroker) -> None:
    """An offset that is replaced is one; those of a transaction are there when it commits."""
    await commit(broker, 5)
    await commit(broker, 6)
    assert await offset_counts(broker) == (1, 2, 0, 0)
    await commit(broker, 7, PLANES, producer=PRODUCER)
    assert await offset_counts(broker) == (1, 3, 0, 0)
    await broker.end_transaction(PRODUCER, is_commit=True)
    assert await offset_counts(broker) == (2, 3, 0, 0)
    await broker.restart()
    assert await offset_counts(broker) == (2, 3, 0, 0)


@on_mixed_stage()
async def test_offsets_that_could_not_be_stored_do_not_count(broker: MixedBroker) -> None:
    """Neither commits nor deletions nor those whose time has come."""
    await commit(broker, 5)
    broker.log.refusal = FullLogError("full")
    with pytest.raises(CoordinatorNotAvailableError):
        await commit(broker, 6)
    with pytest.raises(CoordinatorNotAvailableError):
        await broker.run(lambda machine, _: machine.delete_group(GROUP))
    await broker.passes(WEEK + CHECK)
    assert await offset_counts(broker) == (1, 1, 0, 0)


@on_mixed_stage()
async def test_deleted_offsets_count(broker: MixedBroker) -> None:
    """Offsets that a client deletes, and offsets that go with their group or topic."""
    for group_id in (GROUP, "other"):
        for partition in (FLIGHTS, PLANES):
            await commit(broker, 5, partition, group_id=group_id)
    await broker.run(lambda machine, _: machine.delete_offsets(GROUP, [FLIGHTS]))
    assert await offset_counts(broker) == (3, 4, 0, 1)
    await broker.run(lambda machine, _: machine.forget_offsets(GROUP, [PLANES], topic_id=PLANES_ID))
    assert await offset_counts(broker) == (2, 4, 0, 2)
    await broker.run(lambda machine, _: machine.delete_group("other"))
    assert await offset_counts(broker) == (0, 4, 0, 4)


@on_mixed_stage()
async def test_deleted_offsets_of_a_consumer_group_count(broker: MixedBroker) -> None:
    """Offsets of topics that nobody subscribes to, and the rest with the group."""
    for partition in (FLIGHTS, PLANES):
        await commit(broker, 5, partition)
    consumer = ConsumerClient(broker, "member")
    await consumer.beat()
    await broker.run(lambda machine, _: machine.delete_offsets(GROUP, [FLIGHTS]))
    assert await offset_counts(broker) == (1, 2, 0, 1)
    await consumer.leave()
    await broker.run(lambda machine, _: machine.delete_group(GROUP))
    assert await offset_counts(broker) == (0, 2, 0, 2)


@on_mixed_stage()
async def test_expired_offsets_count(broker: MixedBroker) -> None:
    """Offsets of groups of both protocols, and they do not count as deleted."""
    await commit(broker, 5, group_id="simple")
    await commit(broker, 5)
    consumer = ConsumerClient(broker, "member")
    await consumer.beat()
    await consumer.leave()
    await broker.passes(WEEK + 2 * CHECK)
    assert await offset_counts(broker) == (0, 2, 2, 0)


@on_mixed_stage(GroupSettings(expiry_interval_ms=60_000))
async def test_a_search_that_cannot_be_stored_comes_again_after_its_interval(
    broker: MixedBroker,
) -> None:
    """Not earlier, and as often as it fails."""
    await commit(broker, 5, retention_ms=1)
    await broker.restart()
    broker.log.refusal = FullLogError("full")
    await broker.passes(60.5)
    broker.log.refusal = None
    await broker.passes(59)
    assert await offset_counts(broker) == (1, 1, 0, 0)
    broker.log.refusal = FullLogError("full")
    await broker.passes(1)
    broker.log.refusal = None
    await broker.passes(59)
    assert await offset_counts(broker) == (1, 1, 0, 0)
    await broker.passes(1)
    assert await offset_counts(broker) == (0, 1, 1, 0)
