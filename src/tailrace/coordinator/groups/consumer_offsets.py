"""Offsets of consumer groups: who may commit, fetch and delete them, and when they expire.

A member that has come to a newer epoch may still commit with the epoch before, for partitions that
it has had since then: its request was under way (KIP-1251).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from tailrace.coordinator.groups.commits import delete_all
from tailrace.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember, ConsumerState
from tailrace.coordinator.groups.consumer_records import consumer_group_tombstones
from tailrace.coordinator.groups.offsets import Offsets, offset_tombstone
from tailrace.coordinator.machine import CoordinatorRecord, Decision
from tailrace.protocol.errors import ErrorCode

EXPIRED_MAX: Final = 100
"""Tombstones in one batch."""

EPOCHS_SINCE: Final = 9
"""From this version of OffsetCommit on a request can carry a member epoch."""


class MemberAtEpoch(NamedTuple):
    """The client that commits or fetches."""

    member_id: str | None
    """None: no member, as an operator."""
    epoch: int
    """Below 0: no member."""


def commit_codes(
    group: ConsumerGroup,
    committer: MemberAtEpoch,
    partitions: Sequence[tuple[UUID, int]],
    *,
    version: int,
    is_transactional: bool,
) -> list[ErrorCode]:
    """A code for each partition, by topic id and number; NONE: its offset may be committed."""
    if committer.epoch < 0 and not group.members:
        return [ErrorCode.NONE] * len(partitions)
    member = group.members.get(committer.member_id or "")
    if member is None:
        return [ErrorCode.UNKNOWN_MEMBER_ID] * len(partitions)
    if not is_transactional and not member.is_classic and version < EPOCHS_SINCE:
        return [ErrorCode.UNSUPPORTED_VERSION] * len(partitions)
    if committer.epoch == member.epoch:
        return [ErrorCode.NONE] * len(partitions)
    stale = _stale(member)
    if committer.epoch > member.epoch:
        return [stale] * len(partitions)
    return [
        ErrorCode.NONE if _has_had(member, partition, committer.epoch) else stale
        for partition in partitions
    ]


def fetch_code(group: ConsumerGroup, fetcher: MemberAtEpoch) -> ErrorCode:
    """NONE if the offsets may be fetched: by a member at its epoch, or by no member."""
    if fetcher.member_id is None and fetcher.epoch < 0:
        return ErrorCode.NONE
    # Kafka answers -1 to an epoch without a member, which tells a client nothing.
    member = group.members.get(fetcher.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if fetcher.epoch == member.epoch else _stale(member)


def delete_code(group: ConsumerGroup, topic: str) -> ErrorCode:
    """NONE if the group's offsets of a topic may be deleted: no member subscribes to it."""
    if group.is_subscribed_to(topic):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE


def delete_group(offsets: Offsets, group: ConsumerGroup) -> Decision[ErrorCode | None]:
    """Delete a group without members, with its offsets; None: some are left, ask again."""
    if group.state is not ConsumerState.EMPTY:
        return Decision(reply=ErrorCode.NON_EMPTY_GROUP)
    return delete_all(offsets, group.group_id, consumer_group_tombstones(group))


def expired_records(
    offsets: Offsets, group: ConsumerGroup, *, retention_ms: int, now_ms: int
) -> tuple[CoordinatorRecord, ...]:
    """Tombstones of expired offsets, and of the group if it is empty and nothing is left of it.

    An offset expires `retention_ms` after its commit, if no member subscribes to its topic then.
    At most `EXPIRED_MAX` of them; with as many there may be more.
    """
    group_id = group.group_id
    known = offsets.of_group(group_id)
    records = []
    for partition, committed in known.items():
        limit_ms = committed.expire_ms
        if limit_ms == -1:
            limit_ms = committed.commit_ms + retention_ms
        is_used = group.is_subscribed_to(partition.topic)
        if now_ms >= limit_ms and not is_used and not offsets.is_pending(group_id, partition):
            records.append(offset_tombstone(group_id, partition))
            if len(records) == EXPIRED_MAX:
                break
    is_left = len(records) < len(known) or offsets.has_pending(group_id)
    if group.state is ConsumerState.EMPTY and not is_left:
        records += consumer_group_tombstones(group)
    return tuple(records)


def _has_had(member: ConsumerMember, partition: tuple[UUID, int], epoch: int) -> bool:
    topic_id, number = partition
    for parts in (member.current.assigned, member.current.revoking):
        since = parts.get(topic_id, {}).get(number)
        if since is not None:
            return epoch >= since
    return False


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
