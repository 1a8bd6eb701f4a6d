"""Heartbeats that say everything again: after a lost reply, and by a member that begins anew."""

from typing import Any

from tailrace.coordinator.groups.consumer_group import MemberState
from tests.unit.coordinator.groups_consumer.group_shard import (
    TIMEOUT_MS,
    Coordinator,
    beating,
    joining,
    told,
)
from tests.unit.coordinator.groups_consumer.test_consumer_heartbeat import run, two_members

STABLE, UNREVOKED, UNRELEASED, _ = MemberState


def full(member_id: str, epoch: int, has: str) -> Any:
    """A heartbeat that leaves nothing out."""
    return beating(
        member_id,
        epoch,
        has,
        rebalance_timeout_ms=TIMEOUT_MS,
        subscribed_topic_names=("a",),
        server_assignor="uniform",
    )


def state(coordinator: Coordinator, member_id: str) -> MemberState:
    """The state of a member."""
    return coordinator.group.members[member_id].current.state


async def asked_to_give_up(coordinator: Coordinator) -> None:
    """Member `m1` at epoch 2 has to give up half of topic `a`, for which `m2` waits at epoch 3."""
    await coordinator.send(joining("m1", server_assignor="uniform"))
    await coordinator.outside.pass_time(2)
    await coordinator.send(joining("m2", server_assignor="uniform"))
    assert told(await coordinator.send(beating("m1", 2))) == "a0 a1 a2"
    assert (state(coordinator, "m1"), state(coordinator, "m2")) == (UNREVOKED, UNRELEASED)
    coordinator.new_types()


async def check_same_twice(
    coordinator: Coordinator, request: Any, *, epoch: int, assigned: str
) -> None:
    """The request is answered alike again, and writes nothing the second time."""
    response = await coordinator.send(request)
    assert (response.member_epoch, told(response)) == (epoch, assigned)
    before = state(coordinator, request.member_id)
    coordinator.new_types()
    assert await coordinator.send(request) == response
    assert coordinator.new_types() == []
    assert state(coordinator, request.member_id) is before


def test_a_member_begins_anew_while_it_is_to_give_up_partitions() -> None:
    """It has none any more, so they are free, and it comes to the target."""

    async def scenario(coordinator: Coordinator) -> None:
        await asked_to_give_up(coordinator)
        response = await coordinator.send(joining("m1", server_assignor="uniform"))
        assert (response.member_epoch, told(response)) == (3, "a0 a1 a2")
        assert state(coordinator, "m1") is STABLE
        assert told(await coordinator.send(beating("m2", 3))) == "a3 a4 a5"

    run(scenario)


def test_a_member_begins_anew_while_it_waits_for_partitions() -> None:
    """It is told what it has, and gets what has become free."""

    async def scenario(coordinator: Coordinator) -> None:
        await asked_to_give_up(coordinator)
        response = await coordinator.send(joining("m2", server_assignor="uniform"))
        assert (response.member_epoch, told(response)) == (3, "")
        await coordinator.send(beating("m1", 2, "a0 a1 a2"))
        response = await coordinator.send(joining("m2", server_assignor="uniform"))
        assert (response.member_epoch, told(response)) == (3, "a3 a4 a5")
        assert state(coordinator, "m2") is STABLE

    run(scenario)


def test_a_stable_member_may_say_everything_twice() -> None:
    """It is told its assignment each time."""

    async def scenario(coordinator: Coordinator) -> None:
        await two_members(coordinator)
        await coordinator.send(full("m1", 3, "a0 a1 a2"))
        await check_same_twice(coordinator, full("m1", 3, "a0 a1 a2"), epoch=3, assigned="a0 a1 a2")

    run(scenario)


def test_a_member_that_has_not_given_up_yet_may_say_everything_twice() -> None:
    """It is told each time what it may keep."""

    async def scenario(coordinator: Coordinator) -> None:
        await asked_to_give_up(coordinator)
        await check_same_twice(
            coordinator, full("m1", 2, "a0 a1 a2 a3 a4 a5"), epoch=2, assigned="a0 a1 a2"
        )
        assert state(coordinator, "m1") is UNREVOKED

    run(scenario)


def test_a_member_may_say_twice_that_it_has_given_up() -> None:
    """With its old epoch, since it has not heard of the new one."""

    async def scenario(coordinator: Coordinator) -> None:
        await asked_to_give_up(coordinator)
        await check_same_twice(coordinator, full("m1", 2, "a0 a1 a2"), epoch=3, assigned="a0 a1 a2")
        assert state(coordinator, "m1") is STABLE

    run(scenario)


def test_a_member_that_waits_may_say_everything_twice() -> None:
    """It is told each time what it has so far."""

    async def scenario(coordinator: Coordinator) -> None:
        await asked_to_give_up(coordinator)
        await check_same_twice(coordinator, full("m2", 3, ""), epoch=3, assigned="")
        assert state(coordinator, "m2") is UNRELEASED

    run(scenario)
