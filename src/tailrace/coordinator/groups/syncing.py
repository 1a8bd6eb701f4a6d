"""SyncGroup, Heartbeat and LeaveGroup for classic groups."""

import asyncio

from tailrace.coordinator.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from tailrace.coordinator.groups.rebalancing import Rebalances
from tailrace.coordinator.groups.records import group_record
from tailrace.coordinator.groups.statistics import GroupCounts
from tailrace.coordinator.machine import Decision
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SyncDecision = Decision[SyncGroupResponse]


class Syncing:
    """Decides the requests of members between two joins."""

    def __init__(self, rebalances: Rebalances, counts: GroupCounts) -> None:
        self._rebalances = rebalances
        self._counts = counts

    def sync(self, group: ClassicGroup, request: SyncGroupRequest, now_ms: int) -> SyncDecision:
        """Give a member its assignment, when the leader has sent all of them."""
        fault = _sync_fault(group, request)
        if fault is not ErrorCode.NONE:
            return Decision(reply=SyncGroupResponse(error_code=fault))
        member = group.members[request.member_id]
        self._rebalances.renew(group, member)
        self._rebalances.has_synced(group, member.member_id)
        if group.state is ClassicState.STABLE:
            return Decision(reply=group.synced(member))
        # A client that asks again gets the same answer; the one that asked before may be gone.
        parked = member.syncing = member.syncing or asyncio.get_running_loop().create_future()
        if group.leader_id != member.member_id:
            return Decision(reply=parked)
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        for each in group.members.values():
            each.assignment = given.get(each.member_id, b"")

        def undo(_: Exception) -> None:
            self._rebalances.refuse_syncs(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._rebalances.begin(group, "the assignment could not be written", now_ms)

        return Decision(reply=parked, records=(group_record(group),), undo=undo)

    def stored(self, group: ClassicGroup, now_ms: int) -> None:
        """The assignment of a generation is in the log: the group is stable."""
        if group.state is ClassicState.COMPLETING_REBALANCE:
            group.move_to(ClassicState.STABLE, now_ms)
            self._rebalances.assign(group)
            self._counts.classic_rebalances += 1

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest) -> HeartbeatResponse:
        """Begin the session of a member anew, and tell it of a rebalance."""
        fault = group.check_member(request.member_id, request.group_instance_id)
        if fault is ErrorCode.NONE and request.generation_id != group.generation:
            fault = ErrorCode.ILLEGAL_GENERATION
        if fault is ErrorCode.NONE:
            self._rebalances.renew(group, group.members[request.member_id])
            if group.state is ClassicState.PREPARING_REBALANCE:
                fault = ErrorCode.REBALANCE_IN_PROGRESS
        return HeartbeatResponse(error_code=fault)

    def leave(
        self, group: ClassicGroup, request: LeaveGroupRequest, now_ms: int
    ) -> Decision[LeaveGroupResponse]:
        """Remove members that go, or that an operator removes by their instance id."""
        results = tuple([self._leave(group, each) for each in request.members])
        gone = sum(each.error_code == ErrorCode.NONE for each in results)
        reply = LeaveGroupResponse(members=results)
        if not gone or group.state is ClassicState.EMPTY:
            return Decision(reply=reply)
        records = self._rebalances.begin(group, f"{gone} members have left", now_ms)
        return Decision(reply=reply, records=records)

    def _leave(self, group: ClassicGroup, going: MemberIdentity) -> MemberResponse:
        code = ErrorCode.NONE
        member = self._going(group, going)
        if isinstance(member, ClassicMember):
            self._rebalances.remove(group, member)
        elif going.member_id in group.pending_ids:
            self._rebalances.forget_id(group, going.member_id)
        else:
            code = member
        return left(going, code)

    def _going(self, group: ClassicGroup, going: MemberIdentity) -> ClassicMember | ErrorCode:
        if not going.member_id:
            known = group.static_members.get(going.group_instance_id or "")
            return ErrorCode.UNKNOWN_MEMBER_ID if known is None else group.members[known]
        fault = group.check_member(going.member_id, going.group_instance_id)
        return group.members[going.member_id] if fault is ErrorCode.NONE else fault


def left(going: MemberIdentity, code: ErrorCode) -> MemberResponse:
    """The result for a member that leaves."""
    return MemberResponse(
        member_id=going.member_id,
        group_instance_id=going.group_instance_id,
        error_code=code,
    )


def _sync_fault(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    fault = group.check_member(request.member_id, request.group_instance_id)
    if fault is not ErrorCode.NONE:
        return fault
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    told = request.protocol_type, request.protocol_name
    for said, known in zip(told, (group.protocol_type, group.protocol), strict=True):
        if said is not None and said != known:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
