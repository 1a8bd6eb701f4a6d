"""Views of groups for operators: ListGroups and DescribeGroups for classic groups."""

from collections.abc import Collection, Iterator

from tailrace.coordinator.groups.classic_group import ClassicGroup, ClassicState
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from tailrace.protocol.messages.list_groups import ListedGroup

CLASSIC = "classic"
"""The type of these groups; those of KIP-848 are of the type `consumer`."""

GONE = "Dead"
"""The state of a group that is not known."""

NOT_FOUND_ERROR_SINCE = 6
"""From this version of DescribeGroups on, a group that is not known is an error."""


def list_groups(
    machine: GroupMachine, *, states: Collection[str] = (), types: Collection[str] = ()
) -> list[ListedGroup]:
    """The groups of a shard in one of these states and of one of these types; none given: all.

    Upper and lower case are the same, and a type that is not known has no groups.
    """
    wanted_states = {each.strip().lower() for each in states}
    wanted_types = {each.lower() for each in types}
    if wanted_types and CLASSIC not in wanted_types:
        return []
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=CLASSIC,
        )
        for group in machine.groups.values()
        if not wanted_states or group.state.value.lower() in wanted_states
    ]


def describe_group(
    machine: GroupMachine, group_id: str, *, version: int, missing: str = "not found"
) -> DescribedGroup:
    """A group as DescribeGroups of this version answers, without the authorized operations.

    Its assignor, and the metadata and assignments of its members, are known only while it is
    stable. `missing` says why the group is not there.
    """
    group = machine.groups.get(group_id)
    if group is not None:
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if group.state is ClassicState.STABLE else "",
            members=tuple(_described_members(group)),
        )
    if version < NOT_FOUND_ERROR_SINCE:
        return DescribedGroup(group_id=group_id, group_state=GONE)
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {missing}.",
        group_id=group_id,
        group_state=GONE,
    )


def _described_members(group: ClassicGroup) -> Iterator[DescribedGroupMember]:
    is_stable = group.state is ClassicState.STABLE
    for each in group.members.values():
        yield DescribedGroupMember(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            member_metadata=each.metadata(group.protocol) if is_stable else b"",
            member_assignment=each.assignment if is_stable else b"",
        )
