"""The requests of a member of a classic group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from collections.abc import Sequence
from typing import Final

from tailrace.client.consumer.membership.assignors import Assignor
from tailrace.client.consumer.membership.classic_state import Generation
from tailrace.client.consumer.membership.interface import GroupRequest, MembershipSettings
from tailrace.client.consumer.membership.subscriptions import (
    MemberSubscription,
    encode_subscription,
)
from tailrace.client.nodes import Node
from tailrace.model import TopicPartition
from tailrace.protocol.messages.heartbeat import HeartbeatRequest
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PROTOCOL_TYPE: Final = "consumer"

JOIN_LAPSE_MS: Final = 5_000
"""JoinGroup is answered after the rebalance timeout at the latest; this is the time on top."""

REASON_CHARACTERS_MAX: Final = 255

STATIC_JOIN_SINCE: Final = 5
"""First version of JoinGroup with instance ids."""
STATIC_MEMBER_SINCE: Final = 3
"""First version of SyncGroup and Heartbeat with instance ids."""


class ClassicRequests:
    """Makes the requests of one member."""

    def __init__(self, settings: MembershipSettings) -> None:
        self._settings = settings
        self._is_static = settings.group_instance_id is not None

    def join(
        self,
        generation: Generation,
        subscription: frozenset[str],
        owned: frozenset[TopicPartition],
        *,
        assignors: Sequence[Assignor],
        reason: str,
    ) -> JoinGroupRequest:
        """A JoinGroup with the subscription for each assignor, the preferred one first."""
        settings = self._settings
        topics = tuple(subscription)
        return JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=generation.member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(
                JoinGroupRequestProtocol(
                    name=each.name,
                    metadata=encode_subscription(
                        MemberSubscription(
                            topics=topics,
                            user_data=each.user_data(),
                            owned=tuple(owned),
                            generation=generation.id,
                            rack=settings.client_rack,
                        )
                    ),
                )
                for each in assignors
            ),
            reason=reason[:REASON_CHARACTERS_MAX],
        )

    def to_join(self, body: JoinGroupRequest, node: Node) -> GroupRequest:
        """JoinGroup, with the time that the others may take to join."""
        settings = self._settings
        return GroupRequest(
            body,
            timeout_ms=max(
                settings.request_timeout_ms, settings.max_poll_interval_ms + JOIN_LAPSE_MS
            ),
            node=node,
            first_version=STATIC_JOIN_SINCE if self._is_static else 0,
        )

    def sync(
        self, generation: Generation, assignments: tuple[SyncGroupRequestAssignment, ...]
    ) -> SyncGroupRequest:
        """A SyncGroup; followers have no assignments."""
        return SyncGroupRequest(
            group_id=self._settings.group_id,
            generation_id=generation.id,
            member_id=generation.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=generation.protocol,
            assignments=assignments,
        )

    def to_coordinator(
        self, body: SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest, node: Node
    ) -> GroupRequest:
        """One of the other requests."""
        return GroupRequest(
            body,
            timeout_ms=self._settings.request_timeout_ms,
            node=node,
            first_version=STATIC_MEMBER_SINCE if self._is_static else 0,
        )

    def heartbeat(self, generation: Generation) -> HeartbeatRequest:
        """A Heartbeat."""
        return HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=generation.id,
            member_id=generation.member_id,
            group_instance_id=self._settings.group_instance_id,
        )

    def leave(self, generation: Generation, reason: str) -> LeaveGroupRequest:
        """A LeaveGroup in the fields of all versions."""
        return LeaveGroupRequest(
            group_id=self._settings.group_id,
            member_id=generation.member_id,
            members=(
                MemberIdentity(
                    member_id=generation.member_id, reason=reason[:REASON_CHARACTERS_MAX]
                ),
            ),
        )
