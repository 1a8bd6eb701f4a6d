"""ConsumerGroupHeartbeat: joins, epochs, reconciliation, timeouts and leaving."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tailrace.coordinator.errors import CoordinatorNotAvailableError
from tailrace.coordinator.groups.consumer_group import ConsumerState, MemberState
from tailrace.coordinator.groups.consumer_records import epoch_record
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tailrace.protocol.records import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from tailrace.testing.outside import virtual_runtime
from tests.unit.coordinator.groups_consumer.assigning import text, topic_id
from tests.unit.coordinator.groups_consumer.group_shard import (
    GROUP,
    TIMEOUT_MS,
    Coordinator,
    MemoryTopics,
    beating,
    joining,
    told,
)

Scenario = Callable[[Coordinator], Awaitable[None]]


def run(scenario: Scenario, topics: MemoryTopics | None = None, **settings: Any) -> None:
    """Run a scenario on virtual time; topics `a` and `b` have six and three partitions."""
    with virtual_runtime() as outside:

        async def main() -> None:
            given = MemoryTopics(a=6, b=3) if topics is None else topics
            coordinator = Coordinator(outside, given, **settings)
            await coordinator.restart()
            await scenario(coordinator)

        outside.run(main())


async def refused(coordinator: Coordinator, request: Any, *, version: int = 1) -> ErrorCode:
    """The code of a refusal, which has no member id, no epoch, and changes nothing."""
    before = len(coordinator.log.content)
    response = await coordinator.send(request, version=version)
    assert response.error_code != 0
    assert response == ConsumerGroupHeartbeatResponse(
        error_code=response.error_code, error_message=response.error_message
    )
    assert response.error_message
    assert len(coordinator.log.content) == before
    return ErrorCode(response.error_code)


async def two_members(coordinator: Coordinator) -> None:
    """Members `m1` and `m2`, stable at epoch 3 with three partitions each."""
    await coordinator.send(joining("m1"))
    await coordinator.outside.pass_time(2)
    await coordinator.send(joining("m2"))
    await coordinator.send(beating("m1", 2))
    await coordinator.send(beating("m1", 2, "a0 a1 a2"))
    await coordinator.send(beating("m2", 3))
    assert coordinator.state() is ConsumerState.STABLE
    coordinator.new_types()


# Joining


def test_the_first_member_has_epoch_2_and_everything() -> None:
    """Its records are one batch: member, group, target, epoch of the target, what it has."""

    async def scenario(coordinator: Coordinator) -> None:
        response = await coordinator.send(joining("m1", "ab"))
        assert (response.member_id, response.member_epoch) == ("m1", 2)
        assert response.heartbeat_interval_ms == 5_000
        assert told(response) == "a0 a1 a2 a3 a4 a5 b0 b1 b2"
        assert coordinator.new_types() == [[5, 3, 7, 6, 8]]
        member = coordinator.group.members["m1"]
        assert member.metadata.client_host == "/127.0.0.1"
        assert member.metadata.subscribed_topic_names == ("a", "b")
        assert (member.current.epoch, member.current.previous_epoch) == (2, 0)
        assert coordinator.assignment_epochs("m1") == {2}

    run(scenario)


def test_version_0_may_leave_the_member_id_to_the_broker() -> None:
    """It gets a UUID in base64; from version 1 on that is an error."""

    async def scenario(coordinator: Coordinator) -> None:
        response = await coordinator.send(joining(""), version=0)
        assert response.member_id is not None
        assert len(response.member_id) == 22
        assert response.member_id in coordinator.group.members
        assert await refused(coordinator, joining("")) is ErrorCode.INVALID_REQUEST

    run(scenario)


def test_a_member_that_joins_within_the_assignment_interval_gets_nothing_yet() -> None:
    """It has the old target's epoch; the next heartbeat after the interval makes a new target."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1"))
        response = await coordinator.send(joining("m2"))
        assert (response.member_epoch, told(response)) == (2, "")
        assert (coordinator.group.epoch, coordinator.group.target_epoch) == (3, 2)
        assert coordinator.state() is ConsumerState.ASSIGNING
        await coordinator.outside.pass_time(0.999)
        await coordinator.send(beating("m2", 2))
        assert coordinator.group.target_epoch == 2
        await coordinator.outside.pass_time(0.001)
        response = await coordinator.send(beating("m2", 2))
        assert (response.member_epoch, told(response)) == (3, None)
        assert coordinator.state() is ConsumerState.RECONCILING

    run(scenario)


def test_an_assignment_interval_of_0_does_not_wait() -> None:
    """A group's own setting."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1"))
        await coordinator.send(joining("m2"))
        assert coordinator.group.target_epoch == 3

    run(scenario, assignment_interval_ms=0)


def test_partitions_move_when_their_owner_has_given_them_up() -> None:
    """The new member waits; the old one is asked, reports, and only then the new one gets them."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1"))
        await coordinator.outside.pass_time(2)
        response = await coordinator.send(joining("m2"))
        assert (response.member_epoch, told(response)) == (3, "")
        response = await coordinator.send(beating("m1", 2))
        assert (response.member_epoch, told(response)) == (2, "a0 a1 a2")
        assert told(await coordinator.send(beating("m2", 3))) is None
        assert told(await coordinator.send(beating("m1", 2))) is None
        response = await coordinator.send(beating("m1", 2, "a0 a1 a2"))
        assert (response.member_epoch, told(response)) == (3, None)
        assert told(await coordinator.send(beating("m2", 3))) == "a3 a4 a5"
        assert coordinator.state() is ConsumerState.STABLE
        assert coordinator.assignment_epochs("m2") == {3}

    run(scenario)


def test_the_assignment_is_told_when_it_changes_or_when_the_member_says_everything() -> None:
    """A plain heartbeat gets none, and writes nothing."""

    async def scenario(coordinator: Coordinator) -> None:
        await two_members(coordinator)
        assert told(await coordinator.send(beating("m1", 3))) is None
        full = beating(
            "m1", 3, "a0 a1 a2", rebalance_timeout_ms=TIMEOUT_MS, subscribed_topic_names=("a",)
        )
        assert told(await coordinator.send(full)) == "a0 a1 a2"
        assert coordinator.new_types() == []

    run(scenario)


def test_a_member_that_changes_its_topics_changes_the_group_epoch() -> None:
    """It gives up a topic at once, also before there is a new target."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", "ab"))
        changed = beating("m1", 2, subscribed_topic_names=("b",))
        response = await coordinator.send(changed)
        assert (response.member_epoch, told(response)) == (2, "b0 b1 b2")
        assert (coordinator.group.epoch, coordinator.group.target_epoch) == (3, 2)
        await coordinator.outside.pass_time(1)
        response = await coordinator.send(beating("m1", 2, "b0 b1 b2"))
        assert (response.member_epoch, told(response)) == (3, None)
        assert coordinator.state() is ConsumerState.STABLE

    run(scenario)


def test_other_changes_of_a_member_are_kept_and_do_not_count() -> None:
    """Rack, rebalance timeout and assignor are stored, and the group epoch stays."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1"))
        coordinator.new_types()
        changed = beating("m1", 2, rack_id="r", rebalance_timeout_ms=7, server_assignor="range")
        await coordinator.send(changed)
        assert coordinator.new_types() == [[5]]
        metadata = coordinator.group.members["m1"].metadata
        assert (metadata.rack_id, metadata.rebalance_timeout_ms) == ("r", 7)
        assert metadata.server_assignor == "range"
        assert coordinator.group.epoch == 2

    run(scenario)


def test_most_members_choose_the_assignor() -> None:
    """Two of three ask for `range`, which gives neighbours of each topic."""

    async def scenario(coordinator: Coordinator) -> None:
        for member_id, assignor in (("m1", "range"), ("m2", "uniform"), ("m3", "range")):
            await coordinator.outside.pass_time(1)
            await coordinator.send(joining(member_id, server_assignor=assignor))
        target = coordinator.group.target
        assert {each: text(target[each]) for each in target} == {
            "m1": "a0 a1", "m2": "a2 a3", "m3": "a4 a5",
        }  # fmt: skip

    run(scenario)


def test_topics_that_grow_or_appear_are_assigned_at_the_next_heartbeat() -> None:
    """The group epoch grows by one for each change, and not for topics of others."""

    async def scenario(coordinator: Coordinator) -> None:
        topics = coordinator.topics
        await coordinator.send(joining("m1", "bc"))
        for letter, count, expected in (
            ("b", 4, "b0 b1 b2 b3"),
            ("c", 1, "b0 b1 b2 b3 c0"),
            ("c", 0, "b0 b1 b2 b3"),
        ):
            await coordinator.outside.pass_time(1)
            if count:
                topics.put(letter, count)
            else:
                topics.remove(letter)
            epoch = coordinator.group.epoch
            assert told(await coordinator.send(beating("m1", epoch))) == expected
            assert coordinator.group.epoch == epoch + 1
            if coordinator.group.members["m1"].current.state is not MemberState.STABLE:
                await coordinator.send(beating("m1", epoch, expected))
        topics.put("a", 9)
        assert told(await coordinator.send(beating("m1", 5))) is None
        assert coordinator.group.epoch == 5

    run(scenario)


def test_replicas_in_other_racks_change_the_group_epoch() -> None:
    """An assignor may go by racks, so that there is a new target, if only an equal one."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1"))
        await coordinator.outside.pass_time(1)
        coordinator.topics.put("a", 6, rack="east")
        response = await coordinator.send(beating("m1", 2))
        assert (response.member_epoch, coordinator.group.epoch) == (3, 3)
        coordinator.topics.put("b", 3, rack="east")
        assert (await coordinator.send(beating("m1", 3))).member_epoch == 3

    run(scenario)


def test_topics_that_an_older_kafka_has_stored_give_way_to_their_hash() -> None:
    """The next heartbeat deletes the record, and writes an epoch with the hash, once."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1"))
        await coordinator.outside.pass_time(1)
        coordinator.store(
            CoordinatorRecord(
                ConsumerGroupPartitionMetadataKey(group_id=GROUP),
                ConsumerGroupPartitionMetadataValue(),
            ),
            epoch_record(GROUP, 2, 0),
        )
        await coordinator.restart()
        coordinator.new_types()
        await coordinator.send(beating("m1", 2))
        assert coordinator.new_types()[0][:2] == [-4, 3]
        assert coordinator.group.metadata_hash != 0
        assert not coordinator.group.has_topic_records
        await coordinator.send(beating("m1", 3))
        assert coordinator.new_types() == []

    run(scenario)


def test_a_topic_that_does_not_exist_gives_nothing() -> None:
    """The member is stable without partitions."""

    async def scenario(coordinator: Coordinator) -> None:
        response = await coordinator.send(joining("m1", "x"))
        assert (response.member_epoch, told(response)) == (2, "")
        assert coordinator.group.metadata_hash == 0
        assert coordinator.state() is ConsumerState.STABLE

    run(scenario)


# Refusals


@pytest.mark.parametrize(
    "changes",
    [
        {"group_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": beating("m1", 1, "a0").topic_partitions},
        {"subscribed_topic_names": None},
        {"member_epoch": -3},
        {"member_epoch": -2},
    ],
    ids=str,
)
def test_a_request_that_makes_no_sense_is_invalid(changes: dict[str, Any]) -> None:
    """Before any group is looked at."""

    async def scenario(coordinator: Coordinator) -> None:
        request = replace(joining("m1"), **changes)
        assert await refused(coordinator, request) is ErrorCode.INVALID_REQUEST
        assert coordinator.machine.groups.by_id == {}

    run(scenario)


def test_an_unknown_assignor_is_refused() -> None:
    """The message says which ones there are."""

    async def scenario(coordinator: Coordinator) -> None:
        request = joining("m1", server_assignor="custom")
        assert await refused(coordinator, request) is ErrorCode.UNSUPPORTED_ASSIGNOR
        response = await coordinator.send(request)
        assert response.error_message == (
            "ServerAssignor custom is not supported. Supported assignors: uniform, range."
        )

    run(scenario)


def test_unknown_groups_and_members_are_told_apart() -> None:
    """GROUP_ID_NOT_FOUND and UNKNOWN_MEMBER_ID; a heartbeat and a leave are refused alike."""

    async def scenario(coordinator: Coordinator) -> None:
        for epoch in (1, -1):
            request = beating("m1", epoch)
            assert await refused(coordinator, request) is ErrorCode.GROUP_ID_NOT_FOUND
        await coordinator.send(joining("m2"))
        for epoch in (1, -1):
            request = beating("m1", epoch)
            assert await refused(coordinator, request) is ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario)


def test_a_full_group_takes_no_more_members() -> None:
    """Members that are in it go on."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1"))
        code = await refused(coordinator, joining("m2"))
        assert code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert told(await coordinator.send(joining("m1"))) == "a0 a1 a2 a3 a4 a5"

    run(scenario, size_max=1)


def test_epochs_that_are_not_the_members_are_fenced() -> None:
    """A greater one, and a smaller one, unless the reply with the new epoch was lost."""

    async def scenario(coordinator: Coordinator) -> None:
        await two_members(coordinator)
        for request in (
            beating("m1", 4),
            beating("m1", 1),
            beating("m1", 2),
            beating("m1", 2, "a0 a1 a2 a3"),
        ):
            assert await refused(coordinator, request) is ErrorCode.FENCED_MEMBER_EPOCH
        response = await coordinator.send(beating("m1", 2, "a0 a1"))
        assert response.member_epoch == 3

    run(scenario)


def test_epochs_that_are_not_a_static_members_are_fenced() -> None:
    """Its instance id makes no difference."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", instance_id="i1"))
        await coordinator.outside.pass_time(2)
        coordinator.topics.put("a", 7)
        await coordinator.send(beating("m1", 2, instance_id="i1"))
        for epoch, has in ((4, None), (1, None), (2, None), (2, "a9")):
            request = beating("m1", epoch, has, instance_id="i1")
            assert await refused(coordinator, request) is ErrorCode.FENCED_MEMBER_EPOCH
        response = await coordinator.send(beating("m1", 2, "a0 a1", instance_id="i1"))
        assert response.member_epoch == 3

    run(scenario)


def test_a_new_static_member_changes_the_group_epoch() -> None:
    """It joins as any other, and there is a new target."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", instance_id="i1"))
        coordinator.new_types()
        response = await coordinator.send(joining("m2", instance_id="i2"))
        assert (response.member_epoch, told(response)) == (3, "")
        assert coordinator.new_types() == [[5, 3, 7, 7, 6, 8]]
        assert coordinator.group.epoch == coordinator.group.target_epoch == 3

    run(scenario, assignment_interval_ms=0)


def test_topics_that_have_changed_while_a_group_was_loaded_are_found() -> None:
    """The first heartbeat after a restart compares them with those that the log knows."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1"))
        await coordinator.outside.pass_time(2)
        await coordinator.restart()
        assert (await coordinator.send(beating("m1", 2))).member_epoch == 2
        coordinator.topics.put("a", 7)
        await coordinator.restart()
        response = await coordinator.send(beating("m1", 2))
        assert (response.member_epoch, told(response)) == (3, "a0 a1 a2 a3 a4 a5 a6")

    run(scenario)


def test_a_member_that_begins_anew_keeps_its_place() -> None:
    """Epoch 0 of a known member is accepted at any time, and gets everything it is to have."""

    async def scenario(coordinator: Coordinator) -> None:
        await two_members(coordinator)
        response = await coordinator.send(joining("m1"))
        assert (response.member_epoch, told(response)) == (3, "a0 a1 a2")
        assert coordinator.new_types() == []

    run(scenario)


def test_a_member_in_a_state_of_a_newer_kafka_has_to_begin_anew() -> None:
    """It is fenced while it has partitions."""

    async def scenario(coordinator: Coordinator) -> None:
        await two_members(coordinator)
        member = coordinator.group.members["m1"]
        unknown = replace(member.current, state=MemberState.UNKNOWN)
        coordinator.group.put(replace(member, current=unknown))
        request = beating("m1", 3)
        response = await coordinator.machine_reply(request)
        assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        response = await coordinator.machine_reply(joining("m1"))
        assert told(response) == "a0 a1 a2"

    run(scenario)


# Leaving and timeouts


def test_a_member_that_leaves_is_removed_and_the_epoch_grows() -> None:
    """Its partitions are free at once."""

    async def scenario(coordinator: Coordinator) -> None:
        await two_members(coordinator)
        response = await coordinator.send(beating("m2", -1))
        assert response == ConsumerGroupHeartbeatResponse(member_id="m2", member_epoch=-1)
        assert coordinator.new_types() == [[-8, -7, -5, 3]]
        assert coordinator.group.epoch == 4
        await coordinator.outside.pass_time(1)
        assert told(await coordinator.send(beating("m1", 3))) == "a0 a1 a2 a3 a4 a5"
        await coordinator.send(beating("m1", -1))
        assert coordinator.state() is ConsumerState.EMPTY
        deadlines = coordinator.machine.groups.deadlines
        assert "expiry" in deadlines
        assert len(deadlines) == 1

    run(scenario)


def test_a_silent_member_is_fenced_when_its_session_ends() -> None:
    """Each heartbeat begins the session anew."""

    async def scenario(coordinator: Coordinator) -> None:
        await two_members(coordinator)
        await coordinator.outside.pass_time(44)
        await coordinator.send(beating("m1", 3))
        await coordinator.outside.pass_time(2)
        assert coordinator.new_types() == [[-8, -7, -5, 3]]
        assert list(coordinator.group.members) == ["m1"]
        assert await refused(coordinator, beating("m2", 3)) is ErrorCode.UNKNOWN_MEMBER_ID
        coordinator.check_restart()

    run(scenario)


def test_sessions_begin_anew_after_a_restart() -> None:
    """Members have a whole session to find the new coordinator."""

    async def scenario(coordinator: Coordinator) -> None:
        await two_members(coordinator)
        await coordinator.outside.pass_time(44)
        await coordinator.restart()
        await coordinator.outside.pass_time(44)
        assert sorted(coordinator.group.members) == ["m1", "m2"]
        await coordinator.outside.pass_time(2)
        assert coordinator.state() is ConsumerState.EMPTY

    run(scenario)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_member_that_does_not_give_up_its_partitions_is_fenced(*, is_restarted: bool) -> None:
    """After its rebalance timeout, though it sends heartbeats; also where the broker restarts."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1"))
        await coordinator.outside.pass_time(2)
        await coordinator.send(joining("m2"))
        await coordinator.send(beating("m1", 2))
        if is_restarted:
            await coordinator.restart()
        await coordinator.outside.pass_time(TIMEOUT_MS / 1000 - 1)
        await coordinator.send(beating("m1", 2, "a0 a1 a2 a3"))
        await coordinator.send(beating("m2", 3))
        await coordinator.outside.pass_time(2)
        assert list(coordinator.group.members) == ["m2"]
        await coordinator.send(beating("m2", 3))
        assert coordinator.has("m2") == "a0 a1 a2 a3 a4 a5"

    run(scenario)


def test_a_member_that_gives_up_its_partitions_in_time_stays() -> None:
    """Its rebalance timeout ends with its report."""

    async def scenario(coordinator: Coordinator) -> None:
        await two_members(coordinator)
        for _ in range(4):
            await coordinator.outside.pass_time(TIMEOUT_MS / 2000)
            await coordinator.send(beating("m1", 3))
            await coordinator.send(beating("m2", 3))
        assert sorted(coordinator.group.members) == ["m1", "m2"]

    run(scenario)


# Static members


def test_a_heartbeat_may_be_repeated_while_a_member_gives_up_partitions() -> None:
    """The answer was lost, in which it is asked for more by a newer target; nobody is fenced."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1"))
        await coordinator.outside.pass_time(2)
        await coordinator.send(joining("m2"))
        await coordinator.send(beating("m1", 2))
        await coordinator.outside.pass_time(2)
        await coordinator.send(joining("m3"))
        given_up = beating(
            "m1", 2, "a0 a1 a2", rebalance_timeout_ms=TIMEOUT_MS, subscribed_topic_names=("a",)
        )
        first = await coordinator.send(given_up)
        assert told(first) == "a0 a1"
        assert await coordinator.send(given_up) == first

    run(scenario)


def test_a_topic_that_is_named_twice_counts_with_all_its_partitions() -> None:
    """A member that has them all has given up none, and nobody else gets one."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1"))
        await coordinator.outside.pass_time(2)
        await coordinator.send(joining("m2"))
        await coordinator.send(beating("m1", 2))
        parts = tuple(
            TopicPartitions(topic_id=topic_id("a"), partitions=each)
            for each in ((3, 4, 5), (0, 1, 2))
        )
        await coordinator.send(replace(beating("m1", 2), topic_partitions=parts))
        assert told(await coordinator.send(beating("m2", 3))) is None
        assert coordinator.group.members["m1"].current.state is MemberState.UNREVOKED_PARTITIONS

    run(scenario)


def test_a_member_may_come_back_under_another_instance_id() -> None:
    """The one that it had is free then, also after it has left."""

    async def scenario(coordinator: Coordinator) -> None:
        for instance_id in ("x", "y"):
            answer = await coordinator.send(joining("m1", instance_id=instance_id))
            assert answer.error_code == ErrorCode.NONE
        await coordinator.send(beating("m1", -1, instance_id="y"))
        answer = await coordinator.send(joining("m2", instance_id="x"))
        assert answer.error_code == ErrorCode.NONE

    run(scenario)


def test_a_static_member_that_is_away_has_nothing_to_give_up() -> None:
    """It was asked to before it left; it has its session to come back in, and no less."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", instance_id="i"))
        await coordinator.outside.pass_time(2)
        await coordinator.send(joining("m2"))
        await coordinator.send(beating("m1", 2))
        assert coordinator.group.members["m1"].current.state is MemberState.UNREVOKED_PARTITIONS
        await coordinator.outside.pass_time(5)
        await coordinator.send(replace(beating("m1", -2), instance_id="i"))
        # After its rebalance timeout, and before the end of its session.
        await coordinator.outside.pass_time(27)
        assert "m1" in coordinator.group.members

    run(scenario)


def test_a_static_member_that_comes_back_takes_over_its_partitions() -> None:
    """With a new member id; the group epoch stays, and the others notice nothing."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", instance_id="i1"))
        coordinator.new_types()
        response = await coordinator.send(beating("m1", -2, instance_id="i1"))
        assert response == ConsumerGroupHeartbeatResponse(member_id="m1", member_epoch=-2)
        assert coordinator.new_types() == [[8]]
        assert coordinator.has("m1") == "a0 a1 a2 a3 a4 a5"
        response = await coordinator.send(joining("m9", instance_id="i1"))
        assert (response.member_epoch, told(response)) == (2, "a0 a1 a2 a3 a4 a5")
        assert coordinator.new_types() == [[-8, -7, -5, 5, 7, 8, 8]]
        assert coordinator.group.epoch == 2
        assert list(coordinator.group.members) == ["m9"]
        assert coordinator.group.static_members == {"i1": "m9"}

    run(scenario)


def test_a_static_member_that_comes_back_with_other_topics_changes_the_epoch() -> None:
    """It takes over what it still wants."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", "ab", instance_id="i1"))
        await coordinator.send(beating("m1", -2, instance_id="i1"))
        await coordinator.outside.pass_time(1)
        response = await coordinator.send(joining("m9", "b", instance_id="i1"))
        assert (response.member_epoch, told(response)) == (3, "b0 b1 b2")

    run(scenario)


def test_a_static_member_that_has_left_for_a_while_comes_back_with_its_id() -> None:
    """It need not make a new one."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", instance_id="i1"))
        await coordinator.send(beating("m1", -2, instance_id="i1"))
        response = await coordinator.send(joining("m1", instance_id="i1"))
        assert (response.member_epoch, told(response)) == (2, "a0 a1 a2 a3 a4 a5")

    run(scenario)


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    """When its session ends."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", instance_id="i1"))
        await coordinator.send(beating("m1", -2, instance_id="i1"))
        await coordinator.outside.pass_time(46)
        assert coordinator.state() is ConsumerState.EMPTY
        assert coordinator.group.static_members == {}

    run(scenario)


def test_a_static_member_that_leaves_for_good_is_removed() -> None:
    """It is treated as any other member."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", instance_id="i1"))
        response = await coordinator.send(beating("m1", -1, instance_id="i1"))
        assert response.member_epoch == -1
        assert coordinator.group.members == {}

    run(scenario)


def test_an_instance_id_belongs_to_one_member() -> None:
    """In use: UNRELEASED_INSTANCE_ID; another member's: FENCED_INSTANCE_ID; nobody's: unknown."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", instance_id="i1"))
        assert told(await coordinator.send(joining("m1", instance_id="i1")))
        for request, expected in (
            (joining("m2", instance_id="i1"), ErrorCode.UNRELEASED_INSTANCE_ID),
            (beating("m2", 2, instance_id="i1"), ErrorCode.FENCED_INSTANCE_ID),
            (beating("m2", -1, instance_id="i1"), ErrorCode.FENCED_INSTANCE_ID),
            (beating("m1", 2, instance_id="i2"), ErrorCode.UNKNOWN_MEMBER_ID),
            (beating("m1", -1, instance_id="i2"), ErrorCode.UNKNOWN_MEMBER_ID),
            (beating("m1", -2, instance_id="i2"), ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            assert await refused(coordinator, request) is expected

    run(scenario)


# Faults


def test_a_heartbeat_that_cannot_be_written_changes_nothing() -> None:
    """The member asks again, and gets what it would have got."""

    async def scenario(coordinator: Coordinator) -> None:
        coordinator.log.refusal = OSError(28, "no space left on device")
        with pytest.raises(CoordinatorNotAvailableError):
            await coordinator.send(joining("m1"))
        coordinator.log.refusal = None
        assert coordinator.machine.groups.by_id == {}
        assert (await coordinator.send(joining("m1"))).member_epoch == 2
        coordinator.topics.put("a", 7)
        await coordinator.outside.pass_time(1)
        coordinator.log.refusal = OSError(28, "no space left on device")
        with pytest.raises(CoordinatorNotAvailableError):
            await coordinator.send(beating("m1", 2))
        coordinator.log.refusal = None
        assert (await coordinator.send(beating("m1", 2))).member_epoch == 3

    run(scenario)


def test_a_member_that_could_not_be_removed_is_removed_later() -> None:
    """At once when it can be written, as in Kafka; after a leave when the next session ends."""

    async def scenario(coordinator: Coordinator) -> None:
        await two_members(coordinator)
        coordinator.log.refusal = OSError(28, "no space left on device")
        with pytest.raises(CoordinatorNotAvailableError):
            await coordinator.send(beating("m2", -1))
        await coordinator.outside.pass_time(40)
        coordinator.log.refusal = None
        await coordinator.send(beating("m1", 3))
        coordinator.log.refusal = OSError(28, "no space left on device")
        await coordinator.outside.pass_time(60)
        assert sorted(coordinator.group.members) == ["m1", "m2"]
        coordinator.log.refusal = None
        await coordinator.outside.pass_time(1)
        assert coordinator.group.members == {}

    run(scenario)


def test_groups_have_their_own_settings() -> None:
    """The heartbeat interval and session timeout of one group, which can change while it lives."""

    async def scenario(coordinator: Coordinator) -> None:
        changed = replace(
            coordinator.settings["*"], heartbeat_interval_ms=6_000, session_timeout_ms=50_000
        )
        await coordinator.send(joining("m1"))
        coordinator.settings[GROUP] = changed
        assert (await coordinator.send(beating("m1", 2))).heartbeat_interval_ms == 6_000
        await coordinator.outside.pass_time(49)
        assert list(coordinator.group.members) == ["m1"]
        await coordinator.outside.pass_time(2)
        assert coordinator.group.members == {}

    run(scenario)
