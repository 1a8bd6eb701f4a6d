"""ConsumerGroupHeartbeat (KIP-848), versions 0 and 1: members join, report, move on and leave.

One heartbeat does three things, and its records are one batch:

    1. the member's subscription is updated; the group epoch grows if it matters to others
    2. a new target is computed if the group epoch is ahead of it, at most once in a second
    3. the member takes a step towards its target (`reconciliation`)

A member that is silent for the session timeout, or that does not give up partitions within its
rebalance timeout, is fenced: removed, and the group epoch grows.

Not here: authorization, which `handlers` does, and members of the classic protocol, which
`classic_members` serves.
"""

import base64
import logging
import random
import uuid
from collections.abc import Callable
from functools import partial
from typing import Final

from tailrace.coordinator.groups.assigning import Assigning
from tailrace.coordinator.groups.consumer_group import (
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    CurrentAssignment,
)
from tailrace.coordinator.groups.consumer_groups import ConsumerGroups
from tailrace.coordinator.groups.consumer_records import current_record
from tailrace.coordinator.groups.consumer_settings import ConsumerSettings
from tailrace.coordinator.groups.heartbeat_plan import (
    Heartbeat,
    PlannedHeartbeat,
    plan_heartbeat,
)
from tailrace.coordinator.groups.heartbeat_request import (
    check_request,
    is_full,
    is_leaving,
    reported_partitions,
    updated_metadata,
)
from tailrace.coordinator.groups.membership import find_leaving, find_member
from tailrace.coordinator.groups.migration import Migration, Room
from tailrace.coordinator.groups.refusal import RefusedError
from tailrace.coordinator.groups.regexes import Regexes
from tailrace.coordinator.groups.removal import Removals
from tailrace.coordinator.groups.topics import Topics
from tailrace.coordinator.machine import Client, Decision, Propose
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tailrace.values import replace

Reply = Decision[ConsumerGroupHeartbeatResponse]

logger = logging.getLogger(__name__)

NEW_GROUP_EPOCH: Final = 1
"""Before its first member: this one gets epoch 2, as in Kafka."""


class ConsumerHeartbeats:
    """Decides the heartbeats of one shard."""

    def __init__(
        self,
        groups: ConsumerGroups,
        topics: Topics,
        *,
        settings: Callable[[str], ConsumerSettings],
        removals: Removals,
        migration: Migration,
        assigning: Assigning,
        chance: random.Random,
    ) -> None:
        """`settings` gives those of a group."""
        self._groups = groups
        self._topics = topics
        self._settings = settings
        self._removals = removals
        self._sessions = removals.sessions
        self._migration = migration
        self._assigning = assigning
        self._chance = chance
        self._regexes = Regexes(groups, topics, settings=settings)
        self._propose: Propose | None = None

    def heartbeat(
        self, client: Client, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> Reply:
        """The member's epoch, and its assignment if that has changed or the member says all."""
        settings = self._settings(request.group_id)
        try:
            check_request(request, client.version, settings.assignors)
            if is_leaving(request):
                return self._leave(request, now_ms)
            return self._beat(client, request, now_ms)
        except RefusedError as error:
            return Decision(
                reply=ConsumerGroupHeartbeatResponse(
                    error_code=error.code, error_message=str(error)
                )
            )

    def start(self, propose: Propose) -> None:
        """Begin the sessions of all members, and the rebalance timeouts that were running."""
        self._propose = propose
        for group in self._groups.by_id.values():
            for member in group.members.values():
                self._sessions.resume(group.group_id, member)

    def _leave(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Reply:
        group = self._group(request.group_id)
        member = find_leaving(group, request)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            # Its partitions stay with it until its session ends.
            left = replace(member.current, epoch=LEAVE_STATIC_EPOCH, revoking={})
            records = (current_record(group.group_id, member.member_id, left),)
            removal = Decision(reply=None, records=records)
        else:
            removal = self._removals.remove(group, [member], now_ms)
        logger.info(
            "member_left group=%s member=%s epoch=%d",
            group.group_id, member.member_id, request.member_epoch,
        )  # fmt: skip
        reply = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )
        return Decision(reply=reply, records=removal.records, undo=removal.undo)

    def _beat(self, client: Client, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Reply:
        group_id = request.group_id
        known = self._groups.by_id.get(group_id)
        room = self._make_room_for(request) if known is None else Room(group=known)
        group = room.group or ConsumerGroup(group_id, epoch=NEW_GROUP_EPOCH)
        if not request.member_id:
            request = replace(request, member_id=self._new_id())
        settings = self._settings(group_id)
        if len(group.members) >= settings.size_max and request.member_id not in group.members:
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The consumer group has reached its maximum capacity of "
                f"{settings.size_max} members.",
            )
        beating = find_member(group, request)
        metadata = updated_metadata(beating.member.metadata, request, client)
        self._regexes.check(group, metadata.subscribed_topic_regex or "")
        planned = plan_heartbeat(
            Heartbeat(
                group=group,
                beating=beating,
                metadata=metadata,
                reported=reported_partitions(request),
                is_new_group=room.group is None,
                topics=self._topics,
                settings=settings,
                now_ms=now_ms,
            )
        )
        group.topics_version = self._topics.version
        if known is None:
            for member in group.members.values():
                self._sessions.renew(group_id, member)
        self._after(group, beating.member.current, planned, now_ms=now_ms)
        reply = ConsumerGroupHeartbeatResponse(
            member_id=planned.member.member_id,
            member_epoch=planned.member.epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
        )
        if is_full(request) or _has_moved(beating.member.current, planned.member.current):
            reply = replace(reply, assignment=_told(planned.member.current))
        undo = partial(self._undo, group)
        return Decision(reply=reply, records=(*room.records, *planned.records), undo=undo)

    def _undo(self, group: ConsumerGroup, _: Exception) -> None:
        group.topics_version = None
        for member in group.members.values():
            self._sessions.expect_revocation(group.group_id, member)

    def _after(
        self,
        group: ConsumerGroup,
        before: CurrentAssignment,
        planned: PlannedHeartbeat,
        *,
        now_ms: int,
    ) -> None:
        """Set the deadlines of a member that was heard of, and have its topics looked for."""
        member = planned.member
        if planned.epoch != group.epoch:
            logger.info("group_epoch_grew group=%s epoch=%d", group.group_id, planned.epoch)
        self._sessions.renew(group.group_id, member)
        if before != member.current:
            self._sessions.expect_revocation(group.group_id, member)
        if planned.is_target_due:
            self._assigning.ask(group.group_id)
        if self._propose is not None:
            self._regexes.resolve_later(group, planned.subscriptions, self._propose, now_ms=now_ms)

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._groups.by_id.get(group_id)
        if group is None:
            raise RefusedError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found."
            )
        return group

    def _make_room_for(self, request: ConsumerGroupHeartbeatRequest) -> Room:
        if request.member_epoch != 0:
            raise RefusedError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found."
            )
        return self._migration.make_room(request.group_id)

    def _new_id(self) -> str:
        """A UUID as Kafka prints it; one that begins with a dash is an option to its tools."""
        while True:
            made = uuid.UUID(int=self._chance.getrandbits(128), version=4)
            text = base64.urlsafe_b64encode(made.bytes).decode().rstrip("=")
            if not text.startswith("-"):
                return text


def _has_moved(before: CurrentAssignment, after: CurrentAssignment) -> bool:
    """Whether a member has other partitions than it was told of."""
    old, new = before.assigned, after.assigned
    return old.keys() != new.keys() or any(old[each].keys() != new[each].keys() for each in new)


def _told(current: CurrentAssignment) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
            for topic_id, partitions in current.assigned.items()
        )
    )
