"""ConsumerGroupHeartbeat by itself: what is refused, and what it says of a member.

member epoch   > 0   the member is there
                 0   joins, or begins anew without partitions
                -1   leaves
                -2   leaves, and comes back as the same static member
"""

from collections.abc import Iterable
from typing import Final

from tailrace.coordinator.groups.consumer_group import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Partitions,
)
from tailrace.coordinator.groups.refusal import RefusedError
from tailrace.coordinator.machine import Client
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from tailrace.protocol.records import (
    ConsumerGroupMemberMetadataValue,
)
from tailrace.values import replace

CLIENT_IDS_SINCE: Final = 1
"""From this version on the consumer makes its member id (KIP-1082)."""


def check_request(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Iterable[str]
) -> None:
    """Check a request by itself.

    Raises:
        RefusedError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
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


def is_leaving(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member goes, for good or for a while."""
    return request.member_epoch in {LEAVE_EPOCH, LEAVE_STATIC_EPOCH}


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says all of itself, as when it joins or has lost a reply."""
    has_subscription = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return request.member_epoch == 0 or (
        request.rebalance_timeout_ms != -1
        and has_subscription
        and request.topic_partitions is not None
    )


def reported_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """The partitions that the member says it has; None: as before."""
    return None if request.topic_partitions is None else _partitions(request.topic_partitions)


def updated_metadata(
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


def _partitions(stated: Iterable[TopicPartitions]) -> Partitions:
    return {each.topic_id: frozenset(each.partitions) for each in stated if each.partitions}


def _refuse_if(is_wrong: bool, message: str) -> None:  # noqa: FBT001 - it reads as a sentence
    if is_wrong:
        raise RefusedError(ErrorCode.INVALID_REQUEST, message)
