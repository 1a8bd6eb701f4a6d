"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, for groups of both protocols.

Also the offsets that go when a group or topic is deleted. Topics are names here; `handlers` has
checked that they exist, and turns ids into names.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from tailrace.coordinator.groups.classic_group import (
    CONSUMER,
    ClassicGroup,
    ClassicState,
    group_tombstone,
)
from tailrace.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember, ConsumerState
from tailrace.coordinator.groups.consumer_records import consumer_group_tombstones
from tailrace.coordinator.groups.offsets import (
    CommittedOffset,
    Offsets,
    offset_record,
    offset_tombstone,
)
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import CoordinatorRecord, Decision, TransactionalProducer
from tailrace.coordinator.statistics import StoredCount
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID

DELETED_MAX: Final = 100
"""Tombstones in one batch, and in one turn of the event loop."""

NO_GROUP_ERROR_SINCE: Final = 9
"""From this version of OffsetCommit on, a group that is gone has an error of its own."""

EPOCHS_SINCE: Final = 9
"""From this version of OffsetCommit on a request can carry a member epoch."""


class Committer(NamedTuple):
    """The member that commits; an operator or a consumer without a group is none."""

    generation: int
    """Its generation or member epoch; below 0 for a client that is no member."""
    member_id: str
    instance_id: str | None


_NOBODY: Final = Committer(-1, "", None)


class MemberAtEpoch(NamedTuple):
    """The client that fetches."""

    member_id: str | None
    """None: no member, as an operator."""
    epoch: int
    """Below 0: no member."""


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
        # Anybody may commit for a group that does not exist: it becomes a simple group.
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
    # The member has joined this generation, and does not know its partitions yet.
    if group.state is ClassicState.COMPLETING_REBALANCE and not is_transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def consumer_commit_codes(group: ConsumerGroup, commit: Commit) -> list[ErrorCode]:
    """A code for each offset of a commit to a consumer group; NONE: it is allowed."""
    count, epoch = len(commit.offsets), commit.committer.generation
    is_transactional = commit.producer is not None
    if epoch < 0 and not group.members:
        return [ErrorCode.NONE] * count
    # TxnOffsetCommit may name no member: before v3 it cannot, and a producer need not.
    if is_transactional and commit.committer == _NOBODY:
        return [ErrorCode.NONE] * count
    member = group.members.get(commit.committer.member_id)
    if member is None:
        return [ErrorCode.UNKNOWN_MEMBER_ID] * count
    if not is_transactional and not member.is_classic and commit.version < EPOCHS_SINCE:
        return [ErrorCode.UNSUPPORTED_VERSION] * count
    if epoch == member.epoch:
        return [ErrorCode.NONE] * count
    # As in Kafka, a transaction commits all of its offsets or none when the epoch is not the
    # member's, and gets ILLEGAL_GENERATION, which producers know and abort for.
    stale = ErrorCode.ILLEGAL_GENERATION if is_transactional else _stale(member)
    # A member may commit with the epoch before, for partitions that it has had since then: the
    # request was under way when it came to its new epoch (KIP-1251).
    codes = [
        ErrorCode.NONE if epoch < member.epoch and _has_had(member, each, epoch) else stale
        for each in commit.offsets
    ]
    return [stale] * len(codes) if is_transactional and stale in codes else codes


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


def consumer_fetch_code(group: ConsumerGroup, fetcher: MemberAtEpoch) -> ErrorCode:
    """NONE if the offsets may be fetched: by a member at its epoch, or by no member."""
    if fetcher.member_id is None and fetcher.epoch < 0:
        return ErrorCode.NONE
    # Kafka answers -1 to an epoch without a member, which helps no client.
    member = group.members.get(fetcher.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if fetcher.epoch == member.epoch else _stale(member)


def fetch_offsets(
    offsets: Offsets,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    is_stable: bool,
    topic_ids: Mapping[str, UUID],
) -> list[FetchedOffset]:
    """The committed offsets of these partitions, or of all; a group that is not known has none.

    Neither has a topic whose id in `topic_ids` is another one than at the commit: it is deleted,
    and a new one has its name.
    """
    known = offsets.of_group(group_id)
    wanted = sorted(known) if partitions is None else partitions
    found = []
    for partition in wanted:
        # A consumer of committed records must not begin at an offset that a transaction, which may
        # commit at any moment, is about to move (KIP-447): it asks again.
        if is_stable and offsets.is_pending(group_id, partition):
            found.append(FetchedOffset(partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        else:
            committed = known.get(partition)
            topic_id = topic_ids.get(partition.topic, NO_UUID)
            if committed is not None and not _is_of_topic(committed, topic_id):
                committed = None
            found.append(FetchedOffset(partition, committed, ErrorCode.NONE))
    return found


def _is_of_topic(committed: CommittedOffset, topic_id: UUID) -> bool:
    return NO_UUID in (committed.topic_id, topic_id) or committed.topic_id == topic_id


def delete_offsets(
    offsets: Offsets,
    group: ClassicGroup | ConsumerGroup | None,
    partitions: Sequence[TopicPartition],
) -> Decision[ErrorCode | list[ErrorCode]]:
    """Delete offsets of topics that nobody in the group consumes; the reply has a code for each.

    A code alone refuses the whole request.
    """
    if group is None:
        return Decision(reply=ErrorCode.GROUP_ID_NOT_FOUND)
    if (
        isinstance(group, ClassicGroup)
        and group.state is not ClassicState.EMPTY
        and group.protocol_type != CONSUMER
    ):
        # Nobody knows what members of other protocol types consume.
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


def delete_group(
    offsets: Offsets, group: ClassicGroup | ConsumerGroup | None
) -> Decision[ErrorCode | None]:
    """Delete a group without members, with its offsets; None: some are left, ask again."""
    if group is None:
        return Decision(reply=ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state not in {ClassicState.EMPTY, ConsumerState.EMPTY}:
        return Decision(reply=ErrorCode.NON_EMPTY_GROUP)
    gone = tuple(islice(offsets.partitions(group.group_id), DELETED_MAX + 1))
    tombstones = [offset_tombstone(group.group_id, each) for each in gone[:DELETED_MAX]]
    if len(gone) > DELETED_MAX:
        return Decision(reply=None, records=tuple(tombstones))
    # The group goes with its last offsets: a crash in between leaves a group to ask for again.
    if isinstance(group, ConsumerGroup):
        tombstones += consumer_group_tombstones(group)
    else:
        tombstones.append(group_tombstone(group.group_id))
    return Decision(reply=ErrorCode.NONE, records=tuple(tombstones))


def forget_offsets(
    offsets: Offsets, group_id: str, partitions: Sequence[TopicPartition], *, topic_id: UUID
) -> Decision[ErrorCode | list[None]]:
    """Delete what a group has committed for partitions of a topic that is gone.

    An offset stays if it was committed for an older or newer topic of the same name. The reply is
    empty.
    """
    # `all_partitions` names some twice. The topic is gone already, so another one of its name may
    # exist, whose offsets stay.
    once = dict.fromkeys(partitions)
    gone = [each for each in once if offsets.is_of_topic(group_id, each, topic_id)]
    return Decision(reply=[], records=tuple([offset_tombstone(group_id, each) for each in gone]))


def is_consumed(group: ClassicGroup | ConsumerGroup, topic: str) -> bool:
    """Whether a member of the group has subscribed to the topic, or may have."""
    if isinstance(group, ConsumerGroup):
        return group.is_subscribed_to(topic)
    if group.state is ClassicState.EMPTY:
        return False
    # Members with metadata of their own may consume anything.
    if group.subscribed_topics is None:
        return group.protocol_type == CONSUMER
    return topic in group.subscribed_topics


def _has_had(member: ConsumerMember, offset: OffsetToCommit, epoch: int) -> bool:
    """Whether a member has had a partition since this epoch."""
    for parts in (member.current.assigned, member.current.revoking):
        since = parts.get(offset.topic_id, {}).get(offset.partition.partition)
        if since is not None:
            return epoch >= since
    return False


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
