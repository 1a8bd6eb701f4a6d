"""ConsumerGroupHeartbeat (KIP-848), versions 0 and 1: members join, report, move on and leave.

One heartbeat does three things, and its records are one batch:

    1. the member's subscription is updated; the group epoch grows if it matters to others
    2. a new target is computed if the group epoch is ahead of it, at most once in a second
    3. the member takes a step towards its target (`reconciliation`)

    member epoch   > 0   the member is there
                     0   joins, or joins again without partitions
                    -1   leaves
                    -2   leaves, and comes back as the same static member

Not here: authorization, which `handlers` does, and members of the classic protocol, which
`classic_members` serves.
"""

import logging
from collections.abc import Iterable
from typing import Final

from tailrace.coordinator.errors import RefusedError
from tailrace.coordinator.groups.consumer_group import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    CurrentAssignment,
)
from tailrace.coordinator.groups.consumer_records import current_record
from tailrace.coordinator.groups.heartbeat_plan import (
    Heartbeat,
    find_leaving,
    find_sender,
    plan_heartbeat,
    reported_partitions,
)
from tailrace.coordinator.groups.migration import Migration, Upgrade
from tailrace.coordinator.groups.sessions import Sessions
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.groups.subscribed_topics import Regexes
from tailrace.coordinator.groups.target_assignment import Assigning
from tailrace.coordinator.machine import Client, Decision
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tailrace.protocol.records import (
    ConsumerGroupMemberMetadataValue,
)
from tailrace.values import replace

Reply = Decision[ConsumerGroupHeartbeatResponse]

logger = logging.getLogger(__name__)

NEW_GROUP_EPOCH: Final = 1
"""Before its first member: this one gets epoch 2, as in Kafka."""

CLIENT_IDS_SINCE: Final = 1
"""From this version on the consumer makes its member id (KIP-1082)."""


class ConsumerHeartbeats:
    """Decides the heartbeats of one shard."""

    def __init__(
        self, groups: Groups, *, sessions: Sessions, migration: Migration, assigning: Assigning
    ) -> None:
        self._groups = groups
        self._sessions = sessions
        self._migration = migration
        self._assigning = assigning
        self._regexes = Regexes(groups)

    def heartbeat(
        self, client: Client, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> Reply:
        """The member's epoch, and its assignment if that has changed or the member says all."""
        settings = self._groups.consumer_settings(request.group_id)
        try:
            _check_request(request, client.version, settings.assignors)
            if request.member_epoch in {LEAVE_EPOCH, LEAVE_STATIC_EPOCH}:
                return self._leave(request, now_ms)
            return self._beat(client, request, now_ms)
        except RefusedError as error:
            return Decision(
                reply=ConsumerGroupHeartbeatResponse(
                    error_code=error.code, error_message=str(error)
                )
            )

    def _leave(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Reply:
        group = self._groups.consumer(request.group_id)
        if group is None:
            raise _not_found(request.group_id)
        member = find_leaving(group, request)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            # Its partitions stay with it until its session ends.
            left = replace(member.current, epoch=LEAVE_STATIC_EPOCH, revoking={})
            records = (current_record(group.group_id, member.member_id, left),)
            # Nor has it to give up any: it has none while it is away.
            self._sessions.forget_revocation(group.group_id, member.member_id)

            def undo(_: Exception) -> None:
                self._sessions.expect_revocation(group.group_id, member)

            removal = Decision(reply=None, records=records, undo=undo)
        else:
            removal = self._sessions.remove(group, [member], now_ms)
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
        known = self._groups.consumer(group_id)
        upgrade = Upgrade(group=known)
        if known is None:
            if request.member_epoch != 0:
                raise _not_found(group_id)
            upgrade = self._migration.upgrade(group_id)
        group = upgrade.group or ConsumerGroup(group_id, epoch=NEW_GROUP_EPOCH)
        if not request.member_id:
            # A client of version 0 gets its id with the first answer (KIP-1082).
            request = replace(request, member_id=self._groups.new_member_id())
        settings = self._groups.consumer_settings(group_id)
        if len(group.members) >= settings.size_max and request.member_id not in group.members:
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The consumer group has reached its maximum capacity of "
                f"{settings.size_max} members.",
            )
        sender = find_sender(group, request)
        metadata = _updated_metadata(sender.member.metadata, request, client)
        self._regexes.check(group, metadata.subscribed_topic_regex or "")
        planned = plan_heartbeat(
            Heartbeat(
                group=group,
                sender=sender,
                metadata=metadata,
                reported=reported_partitions(request),
                is_new_group=upgrade.group is None,
                topics=self._groups.topics,
                settings=settings,
                now_ms=now_ms,
            )
        )
        # Here and not by a record: it only saves the next heartbeats a comparison.
        group.topics_version = self._groups.topics.version
        if known is None:
            # The members of a classic group that becomes this one.
            for member in group.members.values():
                self._sessions.renew(group_id, member)
        if planned.epoch != group.epoch:
            logger.info("group_epoch_grew group=%s epoch=%d", group_id, planned.epoch)
        before, after = sender.member.current, planned.member.current
        self._sessions.renew(group_id, planned.member)
        if before != after:
            self._sessions.expect_revocation(group_id, planned.member)
        if planned.is_target_due:
            self._assigning.ask(group_id)
        self._regexes.resolve_later(
            group, planned.subscriptions, now_ms=now_ms, may_describe=client.may_describe
        )
        reply = ConsumerGroupHeartbeatResponse(
            member_id=planned.member.member_id,
            member_epoch=planned.member.epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
        )
        # Not in each reply: a member of many partitions is answered every few seconds.
        if _is_full(request) or _has_moved(before, after):
            reply = replace(reply, assignment=_assignment(after))

        def undo(_: Exception) -> None:
            group.topics_version = None
            for member in group.members.values():
                self._sessions.expect_revocation(group_id, member)

        return Decision(reply=reply, records=(*upgrade.records, *planned.records), undo=undo)


def _has_moved(before: CurrentAssignment, after: CurrentAssignment) -> bool:
    """Whether a member has other partitions than its last answer had."""
    old, new = before.assigned, after.assigned
    return old.keys() != new.keys() or any(old[each].keys() != new[each].keys() for each in new)


def _assignment(current: CurrentAssignment) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
            for topic_id, partitions in current.assigned.items()
        )
    )


def _not_found(group_id: str) -> RefusedError:
    return RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


def _check_request(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Iterable[str]
) -> None:
    """Check a request by itself.

    Raises:
        RefusedError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    # Worded as in Kafka, or nearly so: clients log these sentences.
    epoch = request.member_epoch
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        _refuse_if(text is not None and not text.strip(), f"{name} can't be empty.")
    _refuse_if(epoch < LEAVE_STATIC_EPOCH, f"MemberEpoch {epoch} is invalid.")
    needs_id = epoch != 0 or version >= CLIENT_IDS_SINCE
    _refuse_if(needs_id and not request.member_id.strip(), "MemberId can't be empty.")
    if epoch == 0:
        _refuse_if(
            request.rebalance_timeout_ms == -1,
            "RebalanceTimeoutMs must be provided in first request.",
        )
        _refuse_if(
            request.topic_partitions != (), "TopicPartitions must be empty when (re-)joining."
        )
        _refuse_if(
            request.subscribed_topic_names is None and request.subscribed_topic_regex is None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be set in first request.",
        )
    elif epoch == LEAVE_STATIC_EPOCH:
        _refuse_if(request.instance_id is None, "InstanceId can't be null.")
    wanted = request.server_assignor
    if wanted is not None and wanted not in assignors:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {wanted} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says everything about itself: it joins, or has lost a reply."""
    has_subscription = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return request.member_epoch == 0 or (
        request.rebalance_timeout_ms != -1
        and has_subscription
        and request.topic_partitions is not None
    )


def _updated_metadata(
    known: ConsumerGroupMemberMetadataValue,
    request: ConsumerGroupHeartbeatRequest,
    client: Client,
) -> ConsumerGroupMemberMetadataValue:
    """The member as its request makes it; None and -1 leave a field as it is."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    return replace(
        known,
        instance_id=_given(request.instance_id, known.instance_id),
        rack_id=_given(request.rack_id, known.rack_id),
        client_id=client.client_id,
        client_host=f"/{client.host}",
        subscribed_topic_names=(
            known.subscribed_topic_names if names is None else tuple(sorted(set(names)))
        ),
        subscribed_topic_regex=_given(request.subscribed_topic_regex, known.subscribed_topic_regex),
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=_given(request.server_assignor, known.server_assignor),
        classic_member_metadata=None,
    )


def _given(given: str | None, known: str | None) -> str | None:
    return known if given is None else given


def _refuse_if(is_wrong: bool, message: str) -> None:  # noqa: FBT001 - it reads as a sentence
    if is_wrong:
        raise RefusedError(ErrorCode.INVALID_REQUEST, message)
