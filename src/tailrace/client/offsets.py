"""Offsets of partitions: where a place in a log is, and what groups have committed.

    find_offsets(cluster, partitions, at=OffsetAt(Place.TIME, 1700000000000))
    committed_offsets(cluster, "billing")        # by partition
    commit_offsets(cluster, "billing", {...})    # of a group without members

Not here: members of groups, which commit what they have processed.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, assert_never

from tailrace.client.errors import raise_for
from tailrace.client.groups import NoSuchGroupError
from tailrace.client.metadata import ClusterReader
from tailrace.model import IsolationLevel, SpecialTimestamp, TopicPartition
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)


class Place(Enum):
    """Kinds of places in a log."""

    EARLIEST = "the first record"
    LATEST = "after the last record"
    OFFSET = "an offset"
    TIME = "the first record from a time on, in milliseconds since 1970"
    FROM_LATEST = "so many offsets after the last record; before it, if negative"
    FROM_COMMITTED = "so many offsets after the committed one; before it, if negative"


class OffsetAt(NamedTuple):
    """A place in any log."""

    place: Place
    number: int = 0
    """The offset, time or distance."""


class LogRange(NamedTuple):
    """The two ends of a log."""

    start: int
    """Its first offset."""
    end: int
    """The offset after its last readable record."""


class FoundOffset(NamedTuple):
    """A place in one log, as an offset."""

    offset: int
    """May lie outside of `log`, where an offset or a distance was asked for."""
    log: LogRange

    @property
    def within(self) -> int:
        """The nearest offset that the log has, or the one after its last record."""
        return min(max(self.offset, self.log.start), self.log.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The offset of the next record that a group wants from a partition."""

    offset: int
    leader_epoch: int = -1
    """The leader epoch of the last record that was processed; -1 if it is not known."""
    metadata: str = ""
    """A note by the client that committed it."""


def log_ranges(
    cluster: ClusterReader,
    partitions: Collection[TopicPartition],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, LogRange]:
    """Both ends of each log.

    Raises:
        UnreachableBrokerError: a leader does not answer.
        RemoteRetriableError: a partition has no leader, also after the last attempt.
        RemoteFatalError: a broker refuses.
    """
    starts, ends = (
        cluster.list_offsets(dict.fromkeys(partitions, timestamp), isolation=isolation)
        for timestamp in (SpecialTimestamp.EARLIEST, SpecialTimestamp.LATEST)
    )
    return {each: LogRange(starts[each], ends[each]) for each in partitions}


def find_offsets(
    cluster: ClusterReader,
    partitions: Collection[TopicPartition],
    *,
    at: OffsetAt,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    committed: Mapping[TopicPartition, CommittedOffset] | None = None,
) -> dict[TopicPartition, FoundOffset]:
    """The offset at a place in each log.

    A time after the last record is the end of the log. A partition without an offset in `committed`
    is left out where the distance from that is wanted.

    Raises: as `log_ranges`.
    """
    logs = log_ranges(cluster, partitions, isolation=isolation)
    times: dict[TopicPartition, int] = {}
    if at.place is Place.TIME:
        questions = dict.fromkeys(partitions, max(at.number, 0))
        times = cluster.list_offsets(questions, isolation=isolation)
    known = committed or {}

    def offset_in(partition: TopicPartition, log: LogRange) -> int:
        match at.place:
            case Place.EARLIEST:
                return log.start
            case Place.LATEST:
                return log.end
            case Place.OFFSET:
                return at.number
            case Place.TIME:
                return times[partition] if times[partition] >= 0 else log.end
            case Place.FROM_LATEST:
                return log.end + at.number
            case Place.FROM_COMMITTED:
                return known[partition].offset + at.number
            case _:
                assert_never(at.place)

    return {
        each: FoundOffset(offset_in(each, log), log)
        for each, log in logs.items()
        if at.place is not Place.FROM_COMMITTED or each in known
    }


def committed_offsets(cluster: ClusterReader, group: str) -> dict[TopicPartition, CommittedOffset]:
    """The offsets that a group has committed, ordered by partition; none for an unknown group.

    Raises:
        UnreachableBrokerError: the coordinator does not answer.
        RemoteRetriableError, RemoteFatalError: the coordinator refuses.
    """
    request = OffsetFetchRequest(
        group_id=group,
        topics=None,
        groups=(OffsetFetchRequestGroup(group_id=group, topics=None),),
    )

    def ask() -> dict[TopicPartition, CommittedOffset]:
        broker = cluster.coordinator(CoordinatorKeyType.GROUP, group)
        answer = broker.request(request, OffsetFetchResponse)
        about = f"offsets of group {group!r} at {broker.address}"
        # Until version 7 the answer is about one group; later it has a list.
        told = answer.groups[0] if answer.groups else answer
        if told.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise_for(told.error_code, about=about)
        found = {}
        for topic in told.topics:
            for each in topic.partitions:
                raise_for(each.error_code, about=about)
                if each.committed_offset >= 0:
                    partition = TopicPartition(topic.name, each.partition_index)
                    found[partition] = CommittedOffset(
                        offset=each.committed_offset,
                        leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata or "",
                    )
        return dict(sorted(found.items()))

    return cluster.retrying(ask)


def commit_offsets(
    cluster: ClusterReader, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Commit offsets for a group that has no members; it is made if it does not exist.

    Raises:
        UnreachableBrokerError: the coordinator does not answer.
        RemoteFatalError: the coordinator refuses: UNKNOWN_MEMBER_ID if the group has members.
        RemoteRetriableError: it refuses for now, also after the last attempt.
    """
    if not offsets:
        return
    request = OffsetCommitRequest(
        group_id=group,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[TopicPartition(topic, number)].offset,
                        committed_leader_epoch=offsets[TopicPartition(topic, number)].leader_epoch,
                        committed_metadata=offsets[TopicPartition(topic, number)].metadata,
                    )
                    for number in numbers
                ),
            )
            for topic, numbers in _by_topic(offsets).items()
        ),
    )

    def ask() -> None:
        broker = cluster.coordinator(CoordinatorKeyType.GROUP, group)
        for topic in broker.request(request, OffsetCommitResponse).topics:
            for each in topic.partitions:
                about = f"offset of group {group!r} for {topic.name}-{each.partition_index}"
                raise_for(each.error_code, about=f"{about} at {broker.address}")

    cluster.retrying(ask)


def delete_offsets(
    cluster: ClusterReader, group: str, partitions: Collection[TopicPartition]
) -> None:
    """Delete what a group has committed for these partitions.

    Those that the coordinator accepts are deleted, also if it refuses others.

    Raises:
        NoSuchGroupError: the coordinator does not know the group.
        UnreachableBrokerError: the coordinator does not answer.
        RemoteFatalError: it refuses: GROUP_SUBSCRIBED_TO_TOPIC if members of the group read it.
        RemoteRetriableError: it refuses for now, also after the last attempt.
    """
    request = OffsetDeleteRequest(
        group_id=group,
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=tuple(
                    OffsetDeleteRequestPartition(partition_index=number) for number in numbers
                ),
            )
            for topic, numbers in _by_topic(partitions).items()
        ),
    )

    def ask() -> None:
        broker = cluster.coordinator(CoordinatorKeyType.GROUP, group)
        answer = broker.request(request, OffsetDeleteResponse)
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise NoSuchGroupError(group)
        raise_for(answer.error_code, about=f"group {group!r} at {broker.address}")
        for topic in answer.topics:
            for each in topic.partitions:
                about = f"offset of group {group!r} for {topic.name}-{each.partition_index}"
                raise_for(each.error_code, about=f"{about} at {broker.address}")

    cluster.retrying(ask)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found
