"""Large groups: their targets are computed on a thread, while the group goes on."""

import pytest

from tailrace.coordinator.errors import CoordinatorNotAvailableError
from tests.unit.coordinator.groups.stage import Calls
from tests.unit.coordinator.groups_consumer.mixed_stage import (
    TOPIC,
    ConsumerClient,
    MixedBroker,
    classic_group,
    on_mixed_stage,
)

LARGE = 400
"""Partitions of a topic that is not assigned in one turn of the event loop."""


async def grown(broker: MixedBroker, *names: str) -> list[ConsumerClient]:
    """Members of a group with a large topic, which have joined and not been given anything."""
    broker.topics.put(TOPIC, LARGE)
    clients = [ConsumerClient(broker, each) for each in names]
    for each in clients:
        await each.beat()
    return clients


@on_mixed_stage()
async def test_a_large_group_is_assigned_between_two_heartbeats(broker: MixedBroker) -> None:
    """The answer does not wait for the target, and the next one has it."""
    [one] = await grown(broker, "one")
    assert one.owned == frozenset()
    assert broker.consumers.state.value == "Assigning"
    await broker.passes(1)
    await one.beat()
    assert one.owned == frozenset(range(LARGE))
    assert broker.consumers.state.value == "Stable"
    before = broker.consumers
    await broker.restart()
    assert broker.consumers == before


@on_mixed_stage()
async def test_a_heartbeat_that_waits_for_a_target_looks_at_no_other_member(
    broker: MixedBroker,
) -> None:
    """Not at their topics either, though each has a topic of its own."""
    counts = []
    for first, limit in ((0, 200), (200, 800)):
        names = [f"member-{number}" for number in range(first, limit)]
        clients = [ConsumerClient(broker, each, topics=(TOPIC, each)) for each in names]
        for each in clients:
            await each.beat()
        with Calls() as calls:
            await clients[0].beat()
        assert broker.consumers.state.value == "Assigning"
        counts.append(calls.count)
    assert counts[1] < 2 * counts[0]


@on_mixed_stage()
async def test_targets_are_stored_a_hundred_at_a_time(broker: MixedBroker) -> None:
    """With many members the last batch has the epoch."""
    clients = await grown(broker, *(f"member-{number}" for number in range(250)))
    await broker.passes(1)
    for _ in range(3):
        for each in clients:
            await each.beat()
        await broker.passes(1)
    assert sorted(number for each in clients for number in each.owned) == list(range(LARGE))
    assert broker.consumers.state.value == "Stable"


@on_mixed_stage()
async def test_a_group_that_changes_meanwhile_is_assigned_again(broker: MixedBroker) -> None:
    """A result for other members is dropped; the next heartbeat asks for another."""
    threads = broker._outside.runtime.threads
    threads.seconds_per_run = 5  # type: ignore[attr-defined]
    [one] = await grown(broker, "one")
    await broker.passes(1)
    two = ConsumerClient(broker, "two")
    await two.beat()
    await broker.passes(6)
    assert broker.consumers.target_epoch < broker.consumers.epoch
    for _ in range(4):
        await one.beat()
        await two.beat()
        await broker.passes(6)
    assert len(one.owned) == len(two.owned) == LARGE // 2
    assert not one.owned & two.owned


@on_mixed_stage()
async def test_a_target_that_cannot_be_stored_is_asked_for_again(broker: MixedBroker) -> None:
    """A heartbeat after the device has recovered."""
    threads = broker._outside.runtime.threads
    threads.seconds_per_run = 5  # type: ignore[attr-defined]
    [one] = await grown(broker, "one")
    broker.log.refusal = OSError(28, "no space left on device")
    await broker.passes(6)
    with pytest.raises(CoordinatorNotAvailableError):
        await ConsumerClient(broker, "two").beat()
    broker.log.refusal = None
    await one.beat()
    assert one.owned == frozenset()
    await broker.passes(6)
    await one.beat()
    assert one.owned == frozenset(range(LARGE))


@on_mixed_stage()
async def test_a_large_classic_group_is_upgraded(broker: MixedBroker) -> None:
    """Its members keep what they have until there is a target."""
    broker.topics.put(TOPIC, LARGE)
    [one] = await classic_group(broker, "one")
    two = ConsumerClient(broker, "two")
    await two.beat()
    await broker.passes(1)
    for _ in range(4):
        if await one.heartbeat():
            await one.follow()
        await two.beat()
        await broker.passes(1)
    assert len(one.owned) == len(two.owned) == LARGE // 2
    assert not one.owned & two.owned


@on_mixed_stage()
async def test_a_static_member_that_restarts_meanwhile_is_assigned(broker: MixedBroker) -> None:
    """The group epoch is the same, and the member has another id."""
    threads = broker._outside.runtime.threads
    broker.topics.put(TOPIC, LARGE)
    one = ConsumerClient(broker, "one", instance_id="i")
    threads.seconds_per_run = 5  # type: ignore[attr-defined]
    await one.beat()
    await one.leave(-2)
    again = ConsumerClient(broker, "again", instance_id="i")
    for _ in range(4):
        await again.beat()
        await broker.passes(6)
    assert again.owned == frozenset(range(LARGE))
    assert set(broker.consumers.target) == {"again"}
