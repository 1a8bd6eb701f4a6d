"""The answers of ListGroups and DescribeGroups."""

from collections.abc import Collection

from tailrace.coordinator.groups.views import describe_classic_group, list_groups
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from tailrace.protocol.messages.list_groups import ListedGroup
from tests.unit.coordinator.groups.stage import (
    MOMENT,
    Broker,
    Member,
    commit,
    on_stage,
    stable,
    stable_static,
    subscription,
)


@on_stage()
async def test_groups_are_listed_with_type_and_state(broker: Broker) -> None:
    """A simple group has no protocol type, and is classic like the others."""
    await stable(broker, "member")
    await commit(broker, 5, group_id="simple")
    assert list_groups(broker.machine) == [
        ListedGroup(
            group_id="g", protocol_type="consumer", group_state="Stable", group_type="classic"
        ),
        ListedGroup(group_id="simple", protocol_type="", group_state="Empty", group_type="classic"),
    ]


@on_stage()
async def test_a_list_can_be_filtered(broker: Broker) -> None:
    """By states and types, in upper and lower case; an unknown one has no groups."""
    await stable(broker, "member")
    await commit(broker, 5, group_id="simple")

    def listed(states: Collection[str] = (), types: Collection[str] = ()) -> list[str]:
        found = list_groups(broker.machine, states=states, types=types)
        return [each.group_id for each in found]

    assert listed(["stable"]) == listed([" STABLE ", "Dead"]) == ["g"]
    assert listed(["Empty", "Stable"]) == ["g", "simple"]
    assert listed(["PreparingRebalance"]) == listed(["nonsense"]) == []
    assert listed(types=["Classic"]) == listed(types=["share", "classic"]) == ["g", "simple"]
    assert listed(types=["consumer"]) == listed(types=["nonsense"]) == []
    assert listed(["empty"], ["classic"]) == ["simple"]


@on_stage()
async def test_a_stable_group_is_described_with_its_assignments(broker: Broker) -> None:
    """Assignor, metadata of its members, and who they are."""
    [member] = await stable_static(broker, "one")
    assert describe_classic_group(broker.machine, "g", version=6) == DescribedGroup(
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id="one",
                client_id="one",
                client_host="/127.0.0.1",
                member_metadata=subscription("flights"),
                member_assignment=member.member_id.encode(),
            ),
        ),
    )


@on_stage()
async def test_a_group_in_a_rebalance_is_described_without_assignments(broker: Broker) -> None:
    """They do not count any more."""
    await stable(broker, "member")
    Member(broker, "second").join()
    await broker.passes(MOMENT)
    found = describe_classic_group(broker.machine, "g", version=6)
    assert (found.group_state, found.protocol_data) == ("PreparingRebalance", "")
    assert [each.client_id for each in found.members] == ["member", "second"]
    assert {(each.member_metadata, each.member_assignment) for each in found.members} == {
        (b"", b"")
    }


@on_stage()
async def test_a_group_that_is_not_known_is_dead(broker: Broker) -> None:
    """Since version 6 it is an error, with a message."""
    old = describe_classic_group(broker.machine, "g", version=5)
    assert old == DescribedGroup(group_id="g", group_state="Dead")
    new = describe_classic_group(broker.machine, "g", version=6)
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert new.error_message == "Group g not found."
