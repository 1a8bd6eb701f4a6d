"""Consumer groups as ConsumerGroupDescribe and ListGroups show them."""

from tailrace.coordinator.groups.classic_group import ClassicGroup
from tailrace.coordinator.groups.views import describe_consumer_group, list_groups
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.list_groups import ListedGroup
from tests.unit.coordinator.groups_consumer.group_shard import (
    Coordinator,
    MemoryTopics,
    beating,
    joining,
    new_machine,
)
from tests.unit.coordinator.groups_consumer.test_consumer_heartbeat import run, two_members


def test_a_group_is_described_with_what_members_have_and_are_to_have() -> None:
    """While a second member waits for its part."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", instance_id="i1", rack_id="r"))
        await coordinator.outside.pass_time(2)
        await coordinator.send(joining("m2", server_assignor="range"))
        found = describe_consumer_group(coordinator.machine, "g")
        assert (found.error_code, found.group_id, found.group_state) == (0, "g", "Reconciling")
        assert (found.group_epoch, found.assignment_epoch) == (3, 3)
        assert found.assignor_name == "range"
        first, second = found.members
        assert (first.member_id, first.instance_id, first.rack_id) == ("m1", "i1", "r")
        assert (first.member_epoch, first.member_type) == (2, 1)
        assert (first.client_id, first.client_host) == ("client", "/127.0.0.1")
        assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (("a",), None)
        [has] = first.assignment.topic_partitions
        assert (has.topic_name, has.partitions) == ("a", (0, 1, 2, 3, 4, 5))
        [wants] = first.target_assignment.topic_partitions
        assert wants.partitions == (0, 1, 2)
        assert second.assignment.topic_partitions == ()
        assert len(second.target_assignment.topic_partitions) == 1

    run(scenario)


def test_topics_that_are_deleted_are_left_out() -> None:
    """Their names are not known any more."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", "ab"))
        coordinator.topics.remove("a")
        found = describe_consumer_group(coordinator.machine, "g")
        [member] = found.members
        assert [each.topic_name for each in member.assignment.topic_partitions] == ["b"]
        assert found.assignor_name == "uniform"

    run(scenario)


def test_groups_that_are_not_there_or_are_others_say_so() -> None:
    """With the id, so that a tool can name it."""
    machine = new_machine(MemoryTopics())
    missing = describe_consumer_group(machine, "g")
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert missing.error_message == "Group g not found."
    machine.groups.by_id["g"] = ClassicGroup("g", 0)
    assert describe_consumer_group(machine, "g").error_message == "Group g is not a consumer group."
    assert describe_consumer_group(machine, "").error_code == ErrorCode.INVALID_GROUP_ID


def test_a_group_is_listed_with_its_state_and_type() -> None:
    """It is described as a consumer group, stable or empty."""

    async def scenario(coordinator: Coordinator) -> None:
        await two_members(coordinator)
        for state in ("Stable", "Empty"):
            assert list_groups(coordinator.machine) == [
                ListedGroup(
                    group_id="g",
                    protocol_type="consumer",
                    group_state=state,
                    group_type="consumer",
                )
            ]
            for member_id in tuple(coordinator.group.members):
                await coordinator.send(beating(member_id, -1))

    run(scenario, MemoryTopics(a=6))
