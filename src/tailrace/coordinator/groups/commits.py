"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, and the expiry of offsets (KIP-211).

Topics are names here; `handlers` has checked that they exist, and turns ids into names.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from tailrace.coordinator.groups.classic_group import CONSUMER, ClassicGroup, ClassicState
from tailrace.coordinator.groups.offsets import (
    CommittedOffset,
    Offsets,
    offset_record,
    offset_tombstone,
)
from tailrace.coordinator.groups.records import group_tombstone
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import CoordinatorRecord, Decision, TransactionalProducer
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode

NO_GROUP_ERROR_SINCE = 9
"""From this version of OffsetCommit on, a group that is gone has an error of its own."""


class Committer(NamedTuple):
    """The member that commits; an operator or a consumer without a group is none."""

    generation: int
    """Its generation; below 0 for a client that is no member."""
    member_id: str
    instance_id: str | None


class OffsetToCommit(NamedTuple):
    """How far a partition is consumed, by a client."""

    partition: TopicPartition
    topic_id: UUID
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A request to commit."""

    group_id: str
    committer: Committer
    offsets: Sequence[OffsetToCommit]
    version: int
    retention_ms: int = -1
    """How long the offsets stay, if the client says so; -1: as the broker is set."""
    producer: TransactionalProducer | None = None
    """The producer in whose transaction they are committed."""


class FetchedOffset(NamedTuple):
    """What is committed for a partition."""

    partition: TopicPartition
    committed: CommittedOffset | None
    code: ErrorCode
    """UNSTABLE_OFFSET_COMMIT, if a transaction that is open has an offset for it."""


def commit_offsets(
    settings: GroupSettings, group: ClassicGroup | None, commit: Commit, *, now_ms: int
) -> Decision[list[ErrorCode]]:
    """Commit offsets; the reply has a code for each, in their order."""
    fault = _fault(group, commit)
    if fault is not ErrorCode.NONE:
        return Decision(reply=[fault] * len(commit.offsets))
    expire_ms = -1 if commit.retention_ms == -1 else now_ms + commit.retention_ms
    codes: list[ErrorCode] = []
    records: list[CoordinatorRecord] = []
    for each in commit.offsets:
        if len(each.metadata) > settings.metadata_characters_max:
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        codes.append(ErrorCode.NONE)
        committed = CommittedOffset(
            offset=each.offset,
            leader_epoch=each.leader_epoch,
            metadata=each.metadata,
            commit_ms=now_ms,
            expire_ms=expire_ms,
            topic_id=each.topic_id,
            record_offset=-1,
        )
        records.append(offset_record(commit.group_id, each.partition, committed))
    return Decision(reply=codes, records=tuple(records), producer=commit.producer)


def fetch_offsets(
    offsets: Offsets,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    is_stable: bool,
) -> Decision[list[FetchedOffset]]:
    """What is committed for these partitions, or for all; a group that is not known has nothing."""
    known = offsets.of_group(group_id)
    wanted = sorted(known) if partitions is None else partitions
    found = []
    for partition in wanted:
        if is_stable and offsets.is_pending(group_id, partition):
            found.append(FetchedOffset(partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        else:
            found.append(FetchedOffset(partition, known.get(partition), ErrorCode.NONE))
    return Decision(reply=found)


def delete_offsets(
    offsets: Offsets,
    group: ClassicGroup | None,
    partitions: Sequence[TopicPartition],
) -> Decision[ErrorCode | list[ErrorCode]]:
    """Delete offsets of topics that nobody in the group consumes; the reply has a code for each.

    A code alone refuses the whole request.
    """
    if group is None:
        return Decision(reply=ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not ClassicState.EMPTY and group.protocol_type != CONSUMER:
        return Decision(reply=ErrorCode.NON_EMPTY_GROUP)
    known = offsets.of_group(group.group_id)
    codes, records = [], []
    for partition in partitions:
        if _is_consumed(group, partition.topic):
            codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        codes.append(ErrorCode.NONE)
        if partition in known or offsets.is_pending(group.group_id, partition):
            records.append(offset_tombstone(group.group_id, partition))
    return Decision(reply=codes, records=tuple(records))


def delete_group(offsets: Offsets, group: ClassicGroup | None) -> Decision[ErrorCode]:
    """Delete a group without members, with its offsets."""
    if group is None:
        return Decision(reply=ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not ClassicState.EMPTY:
        return Decision(reply=ErrorCode.NON_EMPTY_GROUP)
    known = offsets.of_group(group.group_id)
    tombstones = [offset_tombstone(group.group_id, each) for each in known]
    return Decision(reply=ErrorCode.NONE, records=(*tombstones, group_tombstone(group.group_id)))


def expire(
    settings: GroupSettings, offsets: Offsets, group: ClassicGroup, *, now_ms: int
) -> tuple[CoordinatorRecord, ...]:
    """The tombstones of a group's expired offsets, and of the group if nothing is left of it."""
    known = offsets.of_group(group.group_id)
    expired = list(_expired(settings, offsets, group, now_ms=now_ms))
    records = [offset_tombstone(group.group_id, each) for each in expired]
    is_left = len(expired) < len(known) or offsets.has_pending(group.group_id)
    if group.state is ClassicState.EMPTY and not group.pending_ids and not is_left:
        records.append(group_tombstone(group.group_id))
    return tuple(records)


def _expired(
    settings: GroupSettings, offsets: Offsets, group: ClassicGroup, *, now_ms: int
) -> Iterator[TopicPartition]:
    for partition, committed in offsets.of_group(group.group_id).items():
        if offsets.is_pending(group.group_id, partition):
            continue
        base_ms = _idle_since_ms(group, partition.topic, committed)
        if committed.expire_ms != -1:
            is_expired = base_ms is not None and now_ms >= committed.expire_ms
        else:
            is_expired = base_ms is not None and now_ms - base_ms >= settings.retention_ms
        if is_expired:
            yield partition


def _idle_since_ms(group: ClassicGroup, topic: str, committed: CommittedOffset) -> int | None:
    """Since when nobody consumes a partition for the group; None: somebody may."""
    if group.protocol_type is None:
        return committed.commit_ms
    if group.state is ClassicState.EMPTY:
        return committed.commit_ms if group.state_since_ms == -1 else group.state_since_ms
    is_known = group.state is ClassicState.STABLE and group.subscribed_topics is not None
    return committed.commit_ms if is_known and not _is_consumed(group, topic) else None


def _is_consumed(group: ClassicGroup, topic: str) -> bool:
    if group.state is ClassicState.EMPTY:
        return False
    if group.subscribed_topics is None:
        return group.protocol_type == CONSUMER
    return topic in group.subscribed_topics


def _fault(group: ClassicGroup | None, commit: Commit) -> ErrorCode:
    """Why a commit is refused, or NONE."""
    generation, member_id, instance_id = commit.committer
    is_transactional = commit.producer is not None
    if group is None:
        if generation < 0:
            return ErrorCode.NONE
        if is_transactional or commit.version < NO_GROUP_ERROR_SINCE:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.GROUP_ID_NOT_FOUND
    if generation < 0 and group.state is ClassicState.EMPTY:
        return ErrorCode.NONE
    if generation >= 0 or member_id or instance_id is not None:
        fault = group.check_member(member_id, instance_id)
        if fault is ErrorCode.NONE and generation != group.generation:
            fault = ErrorCode.ILLEGAL_GENERATION
        if fault is not ErrorCode.NONE:
            return fault
    elif not is_transactional and group.state is not ClassicState.EMPTY:
        # A client with its own partitions must not overwrite what the group's members commit.
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is ClassicState.COMPLETING_REBALANCE and not is_transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
