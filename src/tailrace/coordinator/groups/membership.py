"""Which member a heartbeat comes from: known, new, or a static one that has restarted (KIP-345)."""

from tailrace.coordinator.groups.consumer_group import (
    LEAVE_STATIC_EPOCH,
    NO_METADATA,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
)
from tailrace.coordinator.groups.consumer_records import (
    current_record,
    member_record,
    member_tombstones,
    target_record,
)
from tailrace.coordinator.groups.heartbeat_request import reported_partitions
from tailrace.coordinator.groups.refusal import RefusedError
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tailrace.values import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Beating:
    """The member that a heartbeat comes from."""

    member: ConsumerMember
    replaced_id: str | None = None
    """The id that it had before, if it is a static one that has restarted."""
    records: tuple[CoordinatorRecord, ...] = ()
    """The records that replace the old id by the new one."""


def find_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Beating:
    """The member as it was before the request.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID or
            FENCED_INSTANCE_ID.
    """
    if request.instance_id is not None:
        return _find_static(group, request)
    return Beating(member=_find_by_id(group, request))


def find_leaving(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """The member that wants to leave.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    if request.instance_id is not None:
        return _static_member(group, request.instance_id, request.member_id)
    member = group.members.get(request.member_id)
    if member is None:
        raise _unknown(group, request.member_id)
    return member


def _find_by_id(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    member = group.members.get(request.member_id)
    if member is None:
        if request.member_epoch != 0:
            raise _unknown(group, request.member_id)
        return ConsumerMember(request.member_id, NO_METADATA)
    _check_epoch(member, request)
    return member


def _find_static(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Beating:
    assert request.instance_id is not None
    if request.member_epoch != 0:
        member = _static_member(group, request.instance_id, request.member_id)
        _check_epoch(member, request)
        return Beating(member=member)
    known = group.static_member(request.instance_id)
    if known is None:
        return Beating(member=_find_by_id(group, request))
    has_left = known.epoch == LEAVE_STATIC_EPOCH
    if known.member_id == request.member_id and not has_left:
        return Beating(member=known)
    if not (has_left or known.is_classic):
        raise RefusedError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} cannot join "
            f"the group because the instance id is owned by {known.member_id} member.",
        )
    return replace_static(group, known, request.member_id)


def replace_static(group: ConsumerGroup, known: ConsumerMember, member_id: str) -> Beating:
    """A static member that has restarted, under its new id."""
    group_id = group.group_id
    member = ConsumerMember(
        member_id, known.metadata, replace(known.current, epoch=0, previous_epoch=0)
    )
    records = (
        *member_tombstones(group_id, known.member_id),
        member_record(group_id, member),
        target_record(group_id, member_id, group.target_of(known)),
        current_record(group_id, member_id, member.current),
    )
    return Beating(member=member, replaced_id=known.member_id, records=records)


def _static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    member = group.static_member(instance_id)
    if member is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise RefusedError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    received, known = request.member_epoch, member.epoch
    if received in {0, known}:
        return
    if (
        received < known
        and received == member.current.previous_epoch
        and _is_within(reported_partitions(request), member)
    ):
        return  # The reply with the new epoch was lost.
    relation = "greater" if received > known else "smaller"
    raise RefusedError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({received}) than the one known "
        f"by the group coordinator ({known}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _is_within(reported: Partitions | None, member: ConsumerMember) -> bool:
    if reported is None:
        return False
    assigned = member.current.assigned
    return all(assigned.get(each, {}).keys() >= partitions for each, partitions in reported.items())


def _unknown(group: ConsumerGroup, member_id: str) -> RefusedError:
    return RefusedError(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {member_id} is not a member of group {group.group_id}.",
    )
