"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup for classic groups; the replay of their record.

    JoinGroup    new, known and static members (KIP-394, KIP-345, KIP-814); parked until all have
                 joined
    SyncGroup    parked until the leader's brings the assignments, and these are in the log

`rebalancing` has the phases that lie between them, and their deadlines.
"""

import asyncio
from functools import partial
from typing import Final

from tailrace.coordinator.groups.classic_group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    Protocols,
    empty_group_record,
    group_record,
    loaded_group,
)
from tailrace.coordinator.groups.consumer_records import consumer_group_tombstones
from tailrace.coordinator.groups.rebalancing import Rebalances
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.machine import Client, Decision, Propose
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tailrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tailrace.protocol.records import GroupMetadataValue
from tailrace.runtime.ids import random_uuid
from tailrace.values import dataclass

KNOWN_ID_SINCE: Final = 4
"""From this version on a dynamic member gets its id first, and joins with it (KIP-394)."""

SKIPS_ASSIGNMENT_SINCE: Final = 9
"""From this version on a leader can be asked not to assign (KIP-814)."""

JoinDecision = Decision[JoinGroupResponse]


@dataclass(frozen=True, slots=True)
class _Join:
    """A JoinGroup, and the group that it is for."""

    client: Client
    request: JoinGroupRequest
    group: ClassicGroup
    now_ms: int

    @property
    def protocols(self) -> Protocols:
        """The assignors of the member, each once, and its metadata for them."""
        named: dict[str, bytes] = {}
        for each in self.request.protocols:
            named.setdefault(each.name, bytes(each.metadata))
        return tuple(named.items())

    @property
    def rebalance_timeout_ms(self) -> int:
        """Milliseconds that the member may take to join again."""
        # Version 0 has no such field: its session timeout counts.
        given = self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms if self.client.version == 0 else given

    def refused(self, code: ErrorCode) -> JoinDecision:
        member_id = "" if code is ErrorCode.GROUP_MAX_SIZE_REACHED else self.request.member_id
        return Decision(reply=JoinGroupResponse(member_id=member_id, error_code=code))


class ClassicGroups:
    """Decides the requests of members of the classic groups of one shard."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._settings = groups.settings
        self.rebalances = Rebalances(groups.settings, groups.deadlines)
        self._expected: dict[str, tuple[ClassicGroup, str | None]] = {}

    def join(
        self, client: Client, request: JoinGroupRequest, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        """Take a member into its group; the reply may have to wait for the other members.

        A group that is not there is made, and replaces a consumer group without members.
        """
        group_id, timeout_ms = request.group_id, request.session_timeout_ms
        settings, group = self._settings, self._groups.classic(group_id)
        fault = ErrorCode.NONE
        if not group_id:
            fault = ErrorCode.INVALID_GROUP_ID
        elif not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
            fault = ErrorCode.INVALID_SESSION_TIMEOUT
        elif group is None and request.member_id:
            fault = ErrorCode.UNKNOWN_MEMBER_ID
        if fault is not ErrorCode.NONE:
            reply = JoinGroupResponse(member_id=request.member_id, error_code=fault)
            return Decision(reply=reply)
        if group is not None:
            return self._join(_Join(client, request, group, now_ms))
        # The group is there at once, though its record is not: the next request, in its own turn,
        # has to find the member. `undo` takes it back if the record cannot be written.
        empty = self._groups.consumer(group_id)
        made = self._groups.by_id[group_id] = ClassicGroup(group_id, now_ms)
        decision = self._join(_Join(client, request, made, now_ms))

        def undo(_: Exception) -> None:
            self._forget(made)
            if empty is not None:
                self._groups.by_id[group_id] = empty

        ended = () if empty is None else consumer_group_tombstones(empty)
        return Decision(reply=decision.reply, records=(*ended, empty_group_record(made)), undo=undo)

    def sync(self, request: SyncGroupRequest, now_ms: int) -> Decision[SyncGroupResponse]:
        """Give a member its assignment, when the leader has sent all of them."""
        group = self._group_or_error(request.group_id)
        fault = group if isinstance(group, ErrorCode) else _sync_fault(group, request)
        if isinstance(group, ErrorCode) or fault is not ErrorCode.NONE:
            return Decision(reply=SyncGroupResponse(error_code=fault))
        member = group.members[request.member_id]
        self.rebalances.renew(group, member)
        self.rebalances.has_synced(group, member.member_id)
        # A member that comes late, or asks again, gets what is stored.
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
            self.rebalances.refuse_syncs(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.rebalances.begin(group, "the assignment could not be written", now_ms)

        # The group is stable when this record is replayed, and the parked replies leave when it is
        # committed: no member may consume by an assignment that a new coordinator does not know.
        return Decision(reply=parked, records=(group_record(group),), undo=undo)

    def heartbeat(self, request: HeartbeatRequest, _: int) -> Decision[HeartbeatResponse]:
        """Begin a new session of a member, and answer whether the group rebalances."""
        group = self._group_or_error(request.group_id)
        if isinstance(group, ErrorCode):
            return Decision(reply=HeartbeatResponse(error_code=group))
        fault = group.check_member(request.member_id, request.group_instance_id)
        if fault is ErrorCode.NONE and request.generation_id != group.generation:
            fault = ErrorCode.ILLEGAL_GENERATION
        if fault is ErrorCode.NONE:
            self.rebalances.renew(group, group.members[request.member_id])
            if group.state is ClassicState.PREPARING_REBALANCE:
                fault = ErrorCode.REBALANCE_IN_PROGRESS
        return Decision(reply=HeartbeatResponse(error_code=fault))

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        """Remove members that go, or that an operator removes by their instance id."""
        group = self._group_or_error(request.group_id)
        if group is ErrorCode.INVALID_GROUP_ID:
            return Decision(reply=LeaveGroupResponse(error_code=group))
        if isinstance(group, ErrorCode):
            missing = tuple(left(each, group) for each in request.members)
            return Decision(reply=LeaveGroupResponse(members=missing))
        results = tuple([left(each, self._leave(group, each)) for each in request.members])
        gone = sum(each.error_code == ErrorCode.NONE for each in results)
        reply = LeaveGroupResponse(members=results)
        # Ids that were given out may leave an empty group, which has nothing to rebalance.
        if not gone or group.state is ClassicState.EMPTY:
            return Decision(reply=reply)
        records = self.rebalances.begin(group, f"{gone} members have left", now_ms)
        return Decision(reply=reply, records=records)

    def expect(self, group: ClassicGroup, rebalance_reason: str | None) -> None:
        """Take over a group that was one of the consumer protocol, when its record is stored.

        It rebalances then, if a reason is given.
        """
        self._expected[group.group_id] = group, rebalance_reason

    def clear_expected(self, group_id: str) -> None:
        """The record of an expected group could not be stored."""
        self._expected.pop(group_id, None)

    def replay(self, group_id: str, value: GroupMetadataValue | None) -> None:
        known = self._groups.by_id.get(group_id)
        if known is not None and not isinstance(known, ClassicGroup):
            # What is left in a log that was compacted halfway: the consumer group is newer.
            return
        if value is None:
            if known is not None:
                self._forget(known)
        elif group_id in self._expected:
            self._take_over(*self._expected.pop(group_id))
        elif self._groups.propose is not None and known is not None:
            # The request has changed the group already, but for what needs the record.
            if known.state is ClassicState.COMPLETING_REBALANCE:
                known.move_to(ClassicState.STABLE, value.current_state_timestamp)
                self.rebalances.assign(known)
                self._groups.counts.classic_rebalances += 1
        else:
            self._groups.by_id[group_id] = loaded_group(group_id, value)

    def start(self, group: ClassicGroup, propose: Propose) -> None:
        """Begin the sessions of the members of a group that was loaded."""
        for member in group.members.values():
            self.rebalances.renew(group, member)
        if len(group.members) > self._settings.size_max:
            # The operator has lowered the limit: all join again, and the last are refused.
            reason = f"more than {self._settings.size_max} members after a restart"
            propose(partial(self._rebalance, group, reason))

    def stop(self, group: ClassicGroup, error: Exception) -> None:
        for member in group.members.values():
            for parked in (member.joining, member.syncing):
                if parked is not None and not parked.done():
                    parked.set_exception(error)
                    parked.exception()  # Nobody may be waiting: the client may have gone.

    def _take_over(self, group: ClassicGroup, rebalance_reason: str | None) -> None:
        self._groups.by_id[group.group_id] = group
        for member in group.members.values():
            self.rebalances.renew(group, member)
        if rebalance_reason is not None:
            # Nobody has joined yet, so nothing ends and nothing is written.
            records = self.rebalances.prepare(group, rebalance_reason, group.state_since_ms)
            assert not records

    def _forget(self, group: ClassicGroup) -> None:
        self.rebalances.forget(group)
        # It has members if it becomes a group of the consumer protocol: they join that one.
        code = ErrorCode.REBALANCE_IN_PROGRESS
        for member in group.members.values():
            member.answer_join(JoinGroupResponse(member_id=member.member_id, error_code=code))
            member.answer_sync(SyncGroupResponse(error_code=code))
        del self._groups.by_id[group.group_id]

    def _rebalance(self, group: ClassicGroup, reason: str, now_ms: int) -> Decision[None]:
        return Decision(reply=None, records=self.rebalances.begin(group, reason, now_ms))

    def _group_or_error(self, group_id: str) -> ClassicGroup | ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        return self._groups.classic(group_id) or ErrorCode.UNKNOWN_MEMBER_ID

    def _leave(self, group: ClassicGroup, going: MemberIdentity) -> ErrorCode:
        member_id = going.member_id
        if not member_id:
            # An operator names a static member by its instance id alone.
            known = group.static_members.get(going.group_instance_id or "")
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = known
        else:
            fault = group.check_member(member_id, going.group_instance_id)
            if fault is not ErrorCode.NONE:
                if member_id not in group.pending_ids:
                    return fault
                self.rebalances.forget_id(group, member_id)
                return ErrorCode.NONE
        self.rebalances.remove(group, group.members[member_id])
        return ErrorCode.NONE

    def _join(self, join: _Join) -> JoinDecision:
        group, request = join.group, join.request
        # Kafka refuses a static member that has restarted here, though it takes no other place.
        known = group.static_members.get(request.group_instance_id or "", "")
        if not self._has_room(group, request.member_id or known):
            group.remove(request.member_id)
            return join.refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
        names = {each.name for each in request.protocols}
        if not group.supports(request.protocol_type, names):
            return join.refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return self._join_known(join) if request.member_id else self._join_unknown(join)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        member = group.members.get(member_id)
        if group.state is ClassicState.EMPTY:
            return True
        if group.state is ClassicState.PREPARING_REBALANCE:
            # Members that do not join again will be dropped, so only those that have joined count:
            # one by one where there are more members than there may be.
            if (member is not None and member.joining) or (
                len(group.members) < self._settings.size_max
            ):
                return True
            waiting = sum(each.joining is not None for each in group.members.values())
            return waiting < self._settings.size_max
        return member is not None or len(group.members) < self._settings.size_max

    def _join_unknown(self, join: _Join) -> JoinDecision:
        group, instance_id = join.group, join.request.group_instance_id
        if instance_id is not None:
            member_id = self._new_id(instance_id)
            known = group.static_members.get(instance_id)
            return self._add(join, member_id) if known is None else self._replace(join, member_id)
        member_id = self._new_id(join.client.client_id)
        if join.client.version < KNOWN_ID_SINCE:
            return self._add(join, member_id)
        # A client whose first join times out tries again. If that made a member each time, the
        # group would wait for all of them; an id costs nothing (KIP-394).
        self.rebalances.keep_id(group, member_id, join.request.session_timeout_ms)
        required = ErrorCode.MEMBER_ID_REQUIRED
        return Decision(reply=JoinGroupResponse(member_id=member_id, error_code=required))

    def _join_known(self, join: _Join) -> JoinDecision:
        group, request = join.group, join.request
        # Only dynamic members get an id before they join: otherwise a client could take an id that
        # was given to another, and make two members of one instance id.
        if request.member_id in group.pending_ids and request.group_instance_id is None:
            return self._add(join, request.member_id)
        fault = group.check_member(request.member_id, request.group_instance_id)
        if fault is not ErrorCode.NONE:
            return join.refused(fault)
        member = group.members[request.member_id]
        is_leader = group.leader_id == member.member_id
        is_changed = member.protocols != join.protocols
        match group.state:
            case ClassicState.PREPARING_REBALANCE:
                return self._join_again(join, member, "joins during a rebalance")
            case ClassicState.COMPLETING_REBALANCE if not is_changed:
                # The answer to its last request was lost.
                reply = group.joined(member.member_id, shows_members=is_leader)
                return Decision(reply=reply)
            case ClassicState.STABLE if not (is_leader or is_changed):
                return Decision(reply=group.joined(member.member_id, shows_members=False))
            case ClassicState.EMPTY:
                return join.refused(ErrorCode.UNKNOWN_MEMBER_ID)
        # A leader asks for a rebalance by joining: it has seen that its topics have changed.
        return self._join_again(join, member, "leads and asks" if is_leader else "has changed")

    def _add(self, join: _Join, member_id: str) -> JoinDecision:
        group = join.group
        if group.state is ClassicState.PREPARING_REBALANCE and (
            group.previous_state is ClassicState.EMPTY
        ):
            group.is_joined_meanwhile = True
        member = ClassicMember(
            member_id=member_id,
            instance_id=join.request.group_instance_id,
            client_id=join.client.client_id,
            client_host=f"/{join.client.host}",
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=join.request.session_timeout_ms,
            protocols=join.protocols,
            joining=_new_future(),
            is_new=True,
        )
        group.add(member, join.request.protocol_type)
        self.rebalances.wait_for_first_join(group, member)
        return self._parked(join, member, "joins")

    def _join_again(self, join: _Join, member: ClassicMember, why: str) -> JoinDecision:
        _update(join, member)
        return self._parked(join, member, why)

    def _replace(self, join: _Join, new_id: str) -> JoinDecision:
        group = join.group
        old_id = group.static_members[join.request.group_instance_id or ""]
        old_leader_id = group.leader_id
        member = group.replace_static(old_id, new_id)
        self.rebalances.renew(group, member)
        protocols = member.protocols
        timeouts = member.rebalance_timeout_ms, member.session_timeout_ms
        _update(join, member)
        if group.state is ClassicState.COMPLETING_REBALANCE:
            # The leader has seen the old id, and its assignment would be for that.
            parked = member.joining
            assert parked is not None
            records = self.rebalances.prepare(group, _why(member, "has restarted"), join.now_ms)
            return Decision(reply=parked, records=records)
        # Its vote may have changed the assignor: then the others need other assignments.
        if group.state is not ClassicState.STABLE or group.select_protocol() != group.protocol:
            return self._parked(join, member, "has restarted with other assignors")
        # The others keep what they have: only the new id is stored.
        member.joining = None
        is_leader = group.leader_id == new_id
        if join.client.version >= SKIPS_ASSIGNMENT_SINCE:
            reply = group.joined(new_id, shows_members=is_leader, skips_assignment=is_leader)
        else:
            # It would assign again if it saw itself as the leader.
            reply = group.joined(new_id, shows_members=False, leader_id=old_leader_id)

        def undo(_: Exception) -> None:
            group.take_protocols(member, protocols)
            member.rebalance_timeout_ms, member.session_timeout_ms = timeouts
            group.replace_static(new_id, old_id)
            self.rebalances.renew(group, member)

        return Decision(reply=reply, records=(group_record(group),), undo=undo)

    def _parked(self, join: _Join, member: ClassicMember, why: str) -> JoinDecision:
        parked = member.joining
        assert parked is not None
        reason = _why(member, why, join.request.reason)
        return Decision(
            reply=parked, records=self.rebalances.begin(join.group, reason, join.now_ms)
        )

    def _new_id(self, stem: str) -> str:
        return f"{stem}-{random_uuid(self._groups.chance)}"


def left(going: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=going.member_id,
        group_instance_id=going.group_instance_id,
        error_code=code,
    )


def _new_future() -> "asyncio.Future[JoinGroupResponse]":
    return asyncio.get_running_loop().create_future()


def _update(join: _Join, member: ClassicMember) -> None:
    """Take what a known member says of itself now, and park its request."""
    join.group.take_protocols(member, join.protocols)
    member.rebalance_timeout_ms = join.rebalance_timeout_ms
    member.session_timeout_ms = join.request.session_timeout_ms
    # A client that asks again gets the same answer; the one that asked before may be gone.
    member.joining = member.joining or _new_future()


def _why(member: ClassicMember, why: str, reason: str | None = None) -> str:
    return f"{member.member_id} {why}" + (f": {reason}" if reason else "")


def _sync_fault(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    fault = group.check_member(request.member_id, request.group_instance_id)
    if fault is not ErrorCode.NONE:
        return fault
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # KIP-559: clients before it send neither.
    named = request.protocol_type, request.protocol_name
    for given, known in zip(named, (group.protocol_type, group.protocol), strict=True):
        if given is not None and given != known:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
