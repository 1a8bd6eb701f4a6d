"""Offsets of consumer groups: who may commit, fetch and delete them.

A member that has come to a newer epoch may still commit with the epoch before, for partitions that
it has had since then: its request was under way (KIP-1251).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from tailrace.coordinator.groups.commits import delete_all
from tailrace.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember, ConsumerState
from tailrace.coordinator.groups.consumer_records import consumer_group_tombstones
from tailrace.coordinator.groups.offsets import Offsets
from tailrace.coordinator.machine import Decision
from tailrace.protocol.errors import ErrorCode

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
    """A code for each partition, by topic id and number; NONE: its offset may be committed.

    As in Kafka, a transaction commits all of its offsets or none when the epoch is not the
    member's, and gets ILLEGAL_GENERATION, which producers know and abort for.
    """
    if committer.epoch < 0 and not group.members:
        return [ErrorCode.NONE] * len(partitions)
    member = group.members.get(committer.member_id or "")
    if member is None:
        return [ErrorCode.UNKNOWN_MEMBER_ID] * len(partitions)
    if not is_transactional and not member.is_classic and version < EPOCHS_SINCE:
        return [ErrorCode.UNSUPPORTED_VERSION] * len(partitions)
    if committer.epoch == member.epoch:
        return [ErrorCode.NONE] * len(partitions)
    stale = ErrorCode.ILLEGAL_GENERATION if is_transactional else _stale(member)
    codes = [
        ErrorCode.NONE
        if committer.epoch < member.epoch and _has_had(member, partition, committer.epoch)
        else stale
        for partition in partitions
    ]
    return [stale] * len(codes) if is_transactional and stale in codes else codes


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


def _has_had(member: ConsumerMember, partition: tuple[UUID, int], epoch: int) -> bool:
    topic_id, number = partition
    for parts in (member.current.assigned, member.current.revoking):
        since = parts.get(topic_id, {}).get(number)
        if since is not None:
            return epoch >= since
    return False


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
