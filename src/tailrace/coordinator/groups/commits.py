"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete; and what goes with a group or topic.

Topics are names here; `handlers` has checked that they exist, and turns ids into names.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
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
from tailrace.coordinator.statistics import StoredCount
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID

DELETED_MAX = 100
"""Tombstones in one batch, and in one turn of the event loop."""

NO_GROUP_ERROR_SINCE = 9
"""From this version of OffsetCommit on, a group that is gone has an error of its own."""


class Committer(NamedTuple):
    """The member that commits; an operator or a consumer without a group is none."""

    generation: int
    """Its generation; below 0 for a client that is no member."""
    member_id: str
    instance_id: str | None


class OffsetToCommit(NamedTuple):
    """The offset up to which a client has consumed a partition."""

    partition: TopicPartition
    topic_id: UUID
    offset: int
    leader_epoch: int
    metadata: str


class Commit(NamedTuple):
    """A request to commit."""

    group_id: str
    committer: Committer
    offsets: Sequence[OffsetToCommit]
    version: int
    retention_ms: int = -1
    """Milliseconds for which the offsets stay, if the client says so; -1: as the broker is set."""
    producer: TransactionalProducer | None = None
    """The producer in whose transaction they are committed."""


class FetchedOffset(NamedTuple):
    """The committed offset of a partition."""

    partition: TopicPartition
    committed: CommittedOffset | None
    code: ErrorCode
    """UNSTABLE_OFFSET_COMMIT, if a transaction that is open has an offset for it."""


def commit_fault(group: ClassicGroup | None, commit: Commit) -> ErrorCode:
    """Why a commit to a group, or to none, is refused; or NONE."""
    generation, member_id, instance_id = commit.committer
    is_transactional = commit.producer is not None
    if is_transactional and not commit.group_id:
        return ErrorCode.INVALID_GROUP_ID
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


def commit_offsets(
    settings: GroupSettings, commit: Commit, now_ms: int, *, count: StoredCount
) -> Decision[list[ErrorCode]]:
    """Commit offsets that `commit_fault` allows; the reply has a code for each, in their order.

    `count` is that of committed offsets.
    """
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
            # As in Kafka, which leaves the id out in transactions.
            topic_id=each.topic_id if commit.producer is None else NO_UUID,
            record_offset=-1,
        )
        records.append(offset_record(commit.group_id, each.partition, committed))
    return Decision(
        reply=codes,
        records=tuple(records),
        producer=commit.producer,
        undo=count.add(len(records)),
    )


def fetch_offsets(
    offsets: Offsets,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    is_stable: bool,
    topic_ids: Mapping[str, UUID],
) -> Decision[list[FetchedOffset]]:
    """The committed offsets of these partitions, or of all; a group that is not known has none.

    Neither has a topic whose id in `topic_ids` is another one than at the commit: it is deleted,
    and a new one has its name.
    """
    known = offsets.of_group(group_id)
    wanted = sorted(known) if partitions is None else partitions
    found = []
    for partition in wanted:
        if is_stable and offsets.is_pending(group_id, partition):
            found.append(FetchedOffset(partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        else:
            committed = known.get(partition)
            topic_id = topic_ids.get(partition.topic, NO_UUID)
            if committed is not None and not _is_of_topic(committed, topic_id):
                committed = None
            found.append(FetchedOffset(partition, committed, ErrorCode.NONE))
    return Decision(reply=found)


def _is_of_topic(committed: CommittedOffset, topic_id: UUID) -> bool:
    """Whether the ids are equal, or one of them is not known."""
    return NO_UUID in (committed.topic_id, topic_id) or committed.topic_id == topic_id


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
        if is_consumed(group, partition.topic):
            codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        codes.append(ErrorCode.NONE)
        if partition in known or offsets.is_pending(group.group_id, partition):
            records.append(offset_tombstone(group.group_id, partition))
    return Decision(reply=codes, records=tuple(records))


def delete_group(offsets: Offsets, group: ClassicGroup | None) -> Decision[ErrorCode | None]:
    """Delete a group without members, with its offsets; None: some are left, ask again."""
    if group is None:
        return Decision(reply=ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not ClassicState.EMPTY:
        return Decision(reply=ErrorCode.NON_EMPTY_GROUP)
    return delete_all(offsets, group.group_id, (group_tombstone(group.group_id),))


def delete_all(
    offsets: Offsets, group_id: str, group: tuple[CoordinatorRecord, ...]
) -> Decision[ErrorCode | None]:
    """Delete the offsets of a group, and with the last of them the group itself by its tombstones.

    None: some are left, ask again.
    """
    gone = tuple(islice(offsets.partitions(group_id), DELETED_MAX + 1))
    tombstones = [offset_tombstone(group_id, each) for each in gone[:DELETED_MAX]]
    if len(gone) > DELETED_MAX:
        return Decision(reply=None, records=tuple(tombstones))
    return Decision(reply=ErrorCode.NONE, records=(*tombstones, *group))


def forget_offsets(
    offsets: Offsets, group_id: str, partitions: Sequence[TopicPartition], *, topic_id: UUID
) -> Decision[ErrorCode | list[None]]:
    """Delete what a group has committed for partitions of a topic that is gone.

    An offset stays if it was committed for an older or newer topic of the same name. The reply is
    empty.
    """
    once = dict.fromkeys(partitions)
    gone = [each for each in once if offsets.is_of_topic(group_id, each, topic_id)]
    return Decision(reply=[], records=tuple([offset_tombstone(group_id, each) for each in gone]))


def is_consumed(group: ClassicGroup, topic: str) -> bool:
    """Whether a member of the group has subscribed to the topic, or may have."""
    if group.state is ClassicState.EMPTY:
        return False
    if group.subscribed_topics is None:
        return group.protocol_type == CONSUMER
    return topic in group.subscribed_topics
