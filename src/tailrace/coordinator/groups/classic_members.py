"""Members of the classic protocol in a group of the consumer protocol, while it is upgraded.

The broker assigns partitions to them as to all others, and they learn of it in their own way:

    JoinGroup    is the heartbeat of such a member: it reports what it owns, and takes a step; there
                 is no leader, and the generation is the member epoch
    SyncGroup    tells it what it has
    Heartbeat    tells it to join again, if there is a next step (REBALANCE_IN_PROGRESS)
"""

from tailrace.coordinator.errors import RefusedError
from tailrace.coordinator.groups.classic_group import CONSUMER
from tailrace.coordinator.groups.classic_groups import KNOWN_ID_SINCE, left
from tailrace.coordinator.groups.consumer_group import (
    NO_METADATA,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    common_protocols,
)
from tailrace.coordinator.groups.heartbeat_plan import (
    Heartbeat,
    PlannedHeartbeat,
    Sender,
    is_target_due,
    plan_heartbeat,
    replace_static,
)
from tailrace.coordinator.groups.migration import Migration, assignment_of, owned_partitions
from tailrace.coordinator.groups.sessions import Sessions
from tailrace.coordinator.groups.settings import ConsumerSettings
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.groups.target_assignment import Assigning
from tailrace.coordinator.machine import Client, Decision
from tailrace.protocol.errors import ErrorCode, MalformedMessageError
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tailrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tailrace.protocol.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
)
from tailrace.values import replace

DISABLED = "disabled"


class ClassicMembers:
    """Decides the requests of classic members of the consumer groups of one shard."""

    def __init__(
        self, groups: Groups, *, sessions: Sessions, migration: Migration, assigning: Assigning
    ) -> None:
        self._groups = groups
        self._sessions = sessions
        self._migration = migration
        self._assigning = assigning

    def join(
        self, client: Client, request: JoinGroupRequest, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        """Take a member a step further; the reply waits for no other member."""
        try:
            return self._join(self._group(request.group_id), client, request, now_ms=now_ms)
        except RefusedError as error:
            is_full = error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
            member_id = "" if is_full else request.member_id
            return Decision(reply=JoinGroupResponse(member_id=member_id, error_code=error.code))

    def sync(self, request: SyncGroupRequest, _: int) -> Decision[SyncGroupResponse]:
        group = self._group(request.group_id)
        member = _find(group, request.member_id, request.group_instance_id)
        if isinstance(member, ErrorCode):
            return Decision(reply=SyncGroupResponse(error_code=member))
        code = ErrorCode.NONE
        if request.generation_id != member.epoch:
            code = ErrorCode.ILLEGAL_GENERATION
        elif not _is_of_member(member, request):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif group.target_epoch > member.epoch and not _has_to_revoke(member):
            # There is a newer target already: it joins again before it consumes by the old one.
            self._sessions.expect_join(group.group_id, member)
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code is not ErrorCode.NONE:
            return Decision(reply=SyncGroupResponse(error_code=code))
        self._sessions.has_synced(group.group_id, member)
        return Decision(
            reply=SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=assignment_of(member, self._groups.topics),
            )
        )

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Decision[HeartbeatResponse]:
        """Begin a new session of a member, and ask it to join again if there is a next step."""
        group = self._group(request.group_id)
        member = _find(group, request.member_id, request.group_instance_id)
        if isinstance(member, ErrorCode):
            return Decision(reply=HeartbeatResponse(error_code=member))
        if request.generation_id != member.epoch:
            return Decision(reply=HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
        self._sessions.renew(group.group_id, member)
        settings = self._groups.consumer_settings(group.group_id)
        if not (
            member.epoch < group.target_epoch
            # In a group of classic members nobody else computes a target that is due.
            or is_target_due(group, group.epoch, settings=settings, now_ms=now_ms)
            or _has_to_revoke(member)
            or _can_continue(group, member)
        ):
            return Decision(reply=HeartbeatResponse())
        self._sessions.expect_join(group.group_id, member)
        return Decision(reply=HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        """Remove classic members that go, and static ones of both protocols for an operator."""
        group = self._group(request.group_id)
        results, gone = [], {}
        for each in request.members:
            found, code = _named_member(group, each), ErrorCode.NONE
            if isinstance(found, ConsumerMember):
                gone[found.member_id] = found
            else:
                code = found
            results.append(left(each, code))
        reply = LeaveGroupResponse(members=tuple(results))
        if not gone:
            return Decision(reply=reply)
        removal = self._sessions.remove(group, gone.values(), now_ms)
        return Decision(reply=reply, records=removal.records, undo=removal.undo)

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._groups.consumer(group_id)
        assert group is not None  # By the protocol of the group the machine has come here.
        return group

    def _join(
        self, group: ConsumerGroup, client: Client, request: JoinGroupRequest, *, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        # The records of a heartbeat and those of a join are planned by one function: a classic
        # member differs only in how it learns what it has.
        settings = self._groups.consumer_settings(group.group_id)
        self._check_join(group, request, settings)
        is_dynamic = request.group_instance_id is None
        member_id = request.member_id or self._groups.new_member_id()
        if is_dynamic and not request.member_id and client.version >= KNOWN_ID_SINCE:
            required = ErrorCode.MEMBER_ID_REQUIRED
            return Decision(reply=JoinGroupResponse(member_id=member_id, error_code=required))
        sender = _sender(group, request, member_id)
        planned = self._plan(group, client, request, sender=sender, now_ms=now_ms)
        member, group_id = planned.member, group.group_id
        reply = JoinGroupResponse(
            member_id=member.member_id,
            generation_id=member.epoch,
            protocol_type=CONSUMER,
            protocol_name=request.protocols[0].name,
        )
        stays = self._left_after_replacement(group, sender, member)
        if stays is not None:
            # In a stable classic group nobody asks again for partitions that it has waited for.
            is_stale = planned.epoch > group.target_epoch or any(
                not each.current.is_reconciled(group.target_epoch)
                for member_id, each in group.members.items()
                if member_id != sender.replaced_id
            )
            reason = "its last member of the consumer protocol has another one"
            records = self._migration.downgrade(
                group, stays, now_ms=now_ms, reason=reason if is_stale else None
            )
            # The classic group has deadlines of its own for its members.
            for each in group.members:
                self._sessions.forget(group_id, each)

            def undo(_: Exception) -> None:
                self._migration.cancel(group_id)
                for each in group.members.values():
                    self._sessions.resume(group_id, each)

            reply = replace(reply, generation_id=group.epoch)
            return Decision(reply=reply, records=records, undo=undo)
        if planned.is_target_due:
            self._assigning.ask(group_id)
        self._sessions.has_joined(group_id, member)
        self._sessions.expect_revocation(group_id, member)
        return Decision(reply=reply, records=planned.records)

    def _check_join(
        self, group: ConsumerGroup, request: JoinGroupRequest, settings: ConsumerSettings
    ) -> None:
        """Check what can be checked before the member is known.

        Raises:
            RefusedError: the member cannot join.
        """
        low, high = (
            self._groups.settings.session_timeout_ms_min,
            self._groups.settings.session_timeout_ms_max,
        )
        names = {each.name for each in request.protocols}
        code = ErrorCode.NONE
        if not low <= request.session_timeout_ms <= high:
            code = ErrorCode.INVALID_SESSION_TIMEOUT
        elif settings.migration_policy == DISABLED:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif len(group.members) >= settings.size_max and request.member_id not in group.members:
            code = ErrorCode.GROUP_MAX_SIZE_REACHED
        elif request.protocol_type != CONSUMER or not names:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        else:
            # The group may become a classic one, which needs a protocol that all support.
            common = common_protocols(group.members.values())
            if common is not None and not names & common:
                code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code is not ErrorCode.NONE:
            raise RefusedError(code, f"a member cannot join group {group.group_id}")

    def _plan(
        self,
        group: ConsumerGroup,
        client: Client,
        request: JoinGroupRequest,
        *,
        sender: Sender,
        now_ms: int,
    ) -> PlannedHeartbeat:
        try:
            topics, rack_id, owned = owned_partitions(
                bytes(request.protocols[0].metadata), self._groups.topics
            )
        except MalformedMessageError as error:
            # Kafka answers UNKNOWN_SERVER_ERROR, which helps no client.
            raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
        known = sender.member.metadata
        # Version 0 has no rebalance timeout.
        timeout_ms = (
            request.session_timeout_ms if client.version == 0 else request.rebalance_timeout_ms
        )
        metadata = replace(
            known,
            instance_id=request.group_instance_id or known.instance_id,
            rack_id=rack_id or known.rack_id,
            client_id=client.client_id,
            client_host=f"/{client.host}",
            subscribed_topic_names=tuple(sorted(set(topics))),
            subscribed_topic_regex="",
            rebalance_timeout_ms=timeout_ms,
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=request.session_timeout_ms,
                supported_protocols=tuple(
                    ClassicProtocol(name=each.name, metadata=bytes(each.metadata))
                    for each in request.protocols
                ),
            ),
        )
        return plan_heartbeat(
            Heartbeat(
                group=group,
                sender=sender,
                metadata=metadata,
                reported=owned,
                is_new_group=False,
                topics=self._groups.topics,
                settings=self._groups.consumer_settings(group.group_id),
                now_ms=now_ms,
            )
        )

    def _left_after_replacement(
        self, group: ConsumerGroup, sender: Sender, member: ConsumerMember
    ) -> dict[str, ConsumerMember] | None:
        """The members of the classic group that this one becomes, by the ids of their targets.

        None if it stays a consumer group: only a static member of the consumer protocol that comes
        back with the classic one can be its last.
        """
        old_id = sender.replaced_id
        if old_id is None or group.members[old_id].is_classic:
            return None
        stays = {**group.members, old_id: member}
        return stays if self._migration.can_downgrade(group, stays) else None


def _sender(group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> Sender:
    """The member that joins, as it was before.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    instance_id = request.group_instance_id
    if instance_id is None:
        known = group.members.get(member_id)
        return Sender(member=known or ConsumerMember(member_id, NO_METADATA))
    owner = group.static_member(instance_id)
    if request.member_id:
        fault = ErrorCode.NONE
        if owner is None:
            fault = ErrorCode.UNKNOWN_MEMBER_ID
        elif owner.member_id != request.member_id:
            fault = ErrorCode.FENCED_INSTANCE_ID
        if owner is None or fault is not ErrorCode.NONE:
            raise RefusedError(fault, f"{request.member_id} is not the member of {instance_id}")
        return Sender(member=owner)
    if owner is None:
        return Sender(member=ConsumerMember(member_id, NO_METADATA))
    return replace_static(group, owner, member_id)


def _find(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember | ErrorCode:
    found = _find_any(group, member_id, instance_id)
    if not isinstance(found, ErrorCode) and not found.is_classic:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return found


def _find_any(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember | ErrorCode:
    member = group.members.get(member_id)
    if instance_id is not None:
        owner = group.static_member(instance_id)
        if owner is not None and owner.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        member = owner
    return ErrorCode.UNKNOWN_MEMBER_ID if member is None else member


def _named_member(group: ConsumerGroup, named: MemberIdentity) -> ConsumerMember | ErrorCode:
    if named.group_instance_id is not None and not named.member_id:
        return group.static_member(named.group_instance_id) or ErrorCode.UNKNOWN_MEMBER_ID
    # Also one of the consumer protocol, which leaves with its heartbeat: an operator removes it so.
    return _find_any(group, named.member_id, named.group_instance_id)


def _is_of_member(member: ConsumerMember, request: SyncGroupRequest) -> bool:
    classic = member.metadata.classic_member_metadata
    assert classic is not None
    return request.protocol_type in {None, CONSUMER} and (
        request.protocol_name in {None, classic.supported_protocols[0].name}
    )


def _has_to_revoke(member: ConsumerMember) -> bool:
    return member.current.state is MemberState.UNREVOKED_PARTITIONS


def _can_continue(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether all partitions are free that a member has waited for."""
    if member.current.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    assigned = member.current.assigned
    return not any(
        number not in assigned.get(topic_id, {}) and group.is_owned(topic_id, number)
        for topic_id, numbers in group.target_of(member).items()
        for number in numbers
    )
