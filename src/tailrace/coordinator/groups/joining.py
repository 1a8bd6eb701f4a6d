"""JoinGroup for classic groups: new, known and static members (KIP-394, KIP-345, KIP-814)."""

import asyncio
import random
import uuid
from typing import Final

from tailrace.coordinator.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from tailrace.coordinator.groups.rebalancing import Rebalances
from tailrace.coordinator.groups.records import group_record
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import Client, Decision
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tailrace.values import dataclass

KNOWN_ID_SINCE: Final = 4
"""From this version on a dynamic member gets its id first, and joins with it (KIP-394)."""

SKIPS_ASSIGNMENT_SINCE: Final = 9
"""From this version on a leader can be told not to assign (KIP-814)."""

JoinDecision = Decision[JoinGroupResponse]


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup, and the group that it is for."""

    client: Client
    request: JoinGroupRequest
    group: ClassicGroup
    now_ms: int

    @property
    def protocols(self) -> tuple[tuple[str, bytes], ...]:
        """The assignors of the member, each once, and its metadata for them."""
        named: dict[str, bytes] = {}
        for each in self.request.protocols:
            named.setdefault(each.name, bytes(each.metadata))
        return tuple(named.items())

    @property
    def rebalance_timeout_ms(self) -> int:
        """Milliseconds that the member may take to join again; in version 0 its session timeout."""
        given = self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms if self.client.version == 0 else given

    def refused(self, code: ErrorCode) -> JoinDecision:
        """The answer to a member that is not taken."""
        member_id = "" if code is ErrorCode.GROUP_MAX_SIZE_REACHED else self.request.member_id
        return Decision(reply=JoinGroupResponse(member_id=member_id, error_code=code))


class Joining:
    """Decides the JoinGroup requests of one shard."""

    def __init__(
        self, settings: GroupSettings, rebalances: Rebalances, *, chance: random.Random
    ) -> None:
        self._settings = settings
        self._rebalances = rebalances
        self._chance = chance

    def join(self, join: Join) -> JoinDecision:
        """Take a member into its group; the reply may have to wait for the other members."""
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
            if member is not None and member.joining:
                return True
            waiting = sum(each.joining is not None for each in group.members.values())
            return waiting < self._settings.size_max
        return member is not None or len(group.members) < self._settings.size_max

    def _join_unknown(self, join: Join) -> JoinDecision:
        group, instance_id = join.group, join.request.group_instance_id
        if instance_id is not None:
            member_id = self._new_id(instance_id)
            known = group.static_members.get(instance_id)
            return self._add(join, member_id) if known is None else self._replace(join, member_id)
        member_id = self._new_id(join.client.client_id)
        if join.client.version < KNOWN_ID_SINCE:
            return self._add(join, member_id)
        self._rebalances.keep_id(group, member_id, join.request.session_timeout_ms)
        required = ErrorCode.MEMBER_ID_REQUIRED
        return Decision(reply=JoinGroupResponse(member_id=member_id, error_code=required))

    def _join_known(self, join: Join) -> JoinDecision:
        group, request = join.group, join.request
        # Only dynamic members get an id before they join.
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
        return self._join_again(join, member, "leads and asks" if is_leader else "has changed")

    def _add(self, join: Join, member_id: str) -> JoinDecision:
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
            joining=_parked(),
            is_new=True,
        )
        group.add(member, join.request.protocol_type)
        self._rebalances.wait_for_first_join(group, member)
        return self._parked(join, member, "joins")

    def _join_again(self, join: Join, member: ClassicMember, why: str) -> JoinDecision:
        _update(join, member)
        return self._parked(join, member, why)

    def _replace(self, join: Join, new_id: str) -> JoinDecision:
        """Give a static member that has restarted a new id (KIP-345)."""
        group = join.group
        old_id = group.static_members[join.request.group_instance_id or ""]
        old_leader_id = group.leader_id
        member = group.replace_static(old_id, new_id)
        self._rebalances.renew(group, member)
        before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        _update(join, member)
        if group.state is ClassicState.COMPLETING_REBALANCE:
            parked = member.joining
            assert parked is not None
            records = self._rebalances.prepare(group, _why(member, "has restarted"), join.now_ms)
            return Decision(reply=parked, records=records)
        if group.state is not ClassicState.STABLE or group.select_protocol() != group.protocol:
            return self._parked(join, member, "has restarted with other assignors")
        # The others keep what they have: only the new id is stored.
        member.joining = None
        is_leader = group.leader_id == new_id
        if join.client.version >= SKIPS_ASSIGNMENT_SINCE:
            reply = group.joined(new_id, shows_members=is_leader, skips_assignment=is_leader)
        else:
            # It would assign anew if it saw itself as the leader.
            reply = group.joined(new_id, shows_members=False, leader_id=old_leader_id)

        def undo(_: Exception) -> None:
            member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
            group.replace_static(new_id, old_id)
            self._rebalances.renew(group, member)

        return Decision(reply=reply, records=(group_record(group),), undo=undo)

    def _parked(self, join: Join, member: ClassicMember, why: str) -> JoinDecision:
        parked = member.joining
        assert parked is not None
        reason = _why(member, why, join.request.reason)
        return Decision(
            reply=parked, records=self._rebalances.begin(join.group, reason, join.now_ms)
        )

    def _new_id(self, stem: str) -> str:
        return f"{stem}-{uuid.UUID(int=self._chance.getrandbits(128), version=4)}"


def _parked() -> "asyncio.Future[JoinGroupResponse]":
    return asyncio.get_running_loop().create_future()


def _update(join: Join, member: ClassicMember) -> None:
    """Take what a known member says of itself now, and park its request."""
    member.protocols = join.protocols
    member.rebalance_timeout_ms = join.rebalance_timeout_ms
    member.session_timeout_ms = join.request.session_timeout_ms
    # A client that asks again gets the same answer; the one that asked before may be gone.
    member.joining = member.joining or _parked()


def _why(member: ClassicMember, why: str, reason: str | None = None) -> str:
    return f"{member.member_id} {why}" + (f": {reason}" if reason else "")
