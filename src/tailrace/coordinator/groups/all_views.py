"""Views of groups of both protocols for operators: ListGroups, DescribeGroups and its successor."""

from collections.abc import Collection

from tailrace.coordinator.groups.all_groups import AllGroupsMachine
from tailrace.coordinator.groups.consumer_describe import (
    described_group,
    listed_group,
    not_described,
)
from tailrace.coordinator.groups.views import describe_group, list_groups
from tailrace.protocol.messages import consumer_group_describe
from tailrace.protocol.messages.describe_groups import DescribedGroup
from tailrace.protocol.messages.list_groups import ListedGroup

_CONSUMER = "consumer"


def list_all_groups(
    machine: AllGroupsMachine, *, states: Collection[str] = (), types: Collection[str] = ()
) -> list[ListedGroup]:
    """The groups of a shard in one of these states and of one of these types; none given: all."""
    listed = list_groups(machine.classic, states=states, types=types)
    if types and _CONSUMER not in {each.lower() for each in types}:
        return listed
    wanted = {each.strip().lower() for each in states}
    found = map(listed_group, machine.consumers.by_id.values())
    return listed + [each for each in found if not wanted or each.group_state.lower() in wanted]


def describe_classic_group(
    machine: AllGroupsMachine, group_id: str, *, version: int
) -> DescribedGroup:
    """A group as DescribeGroups answers; one of the consumer protocol is not known to it."""
    is_consumer = group_id in machine.consumers.by_id
    reason = "is not a classic group" if is_consumer else "not found"
    return describe_group(machine.classic, group_id, version=version, missing=reason)


def describe_consumer_group(
    machine: AllGroupsMachine, group_id: str
) -> consumer_group_describe.DescribedGroup:
    """A group as ConsumerGroupDescribe answers; a classic one is not known to it."""
    group = machine.consumers.by_id.get(group_id)
    if group is None or not group_id:
        return not_described(group_id, is_known=group_id in machine.classic.groups)
    return described_group(group, machine.topics, machine.consumer_settings(group_id))
