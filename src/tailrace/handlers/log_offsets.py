"""Offsets of partitions: by timestamp, and at the end of a leader epoch."""

from collections import Counter
from functools import partial
from typing import Final

from tailrace.errors import TailraceError
from tailrace.handlers.fetch_sessions import CONSUMER
from tailrace.handlers.services import Services, error_code, read_limit
from tailrace.model import LeaderEpoch, SpecialTimestamp, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tailrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from tailrace.replication.partition import Partition
from tailrace.runtime.slices import Slices, each_in_slices
from tailrace.storage.index.time import TimestampOffset
from tailrace.storage.offset_lookup import find_offset
from tailrace.storage.positions import ReadLimit

# Consumers ask for these when they start and to know their lag, and get them from memory. The
# position of a timestamp needs the device.
_KNOWN_WITHOUT_READING = frozenset(
    {
        SpecialTimestamp.LATEST,
        SpecialTimestamp.EARLIEST,
        SpecialTimestamp.EARLIEST_LOCAL,
        SpecialTimestamp.LATEST_TIERED,
        SpecialTimestamp.EARLIEST_PENDING_UPLOAD,
    }
)

# The last four came with KIP-734, KIP-405, KIP-1005 and KIP-1023.
_SINCE: dict[int, int] = {
    SpecialTimestamp.LATEST: 1,
    SpecialTimestamp.EARLIEST: 1,
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version that has a special timestamp."""

# Above every version, which is an int16.
_NEVER: Final = 1 << 15

_TOOL: Final = -2
"""The replica id of tools that look at one replica, whatever its role (`DEBUGGING_REPLICA_ID`)."""

_NOT_AVAILABLE_SINCE: Final = 5
"""The first version with OFFSET_NOT_AVAILABLE (KIP-207)."""


async def handle_list_offsets(
    services: Services, header: RequestHeader, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """ListOffsets (2): the offset for a timestamp, or for one of the ends of a log.

    Versions: 1 to 11.
    Behaviour: a timestamp of 0 or more returns the first record with at least this timestamp; (-1,
        -1) if there is none. Special timestamps: -1 latest, -2 earliest, -3 the record with the
        largest timestamp (KIP-734) at or above the log start (Kafka may return a deleted one), -4
        earliest local (same as -2), -5 latest tiered and -6 earliest to be tiered (none). A special
        timestamp that the version does not have is UNSUPPORTED_VERSION; a partition that the
        request names twice is INVALID_REQUEST, and answered once. For a read_committed consumer the
        latest offset is the last stable offset, and no record above it is returned.
        A follower gets the log end as the latest offset, and finds records up to it. Only the
        leader answers, except to the replica id -2 of tools, which see up to the log end too.
        OFFSET_NOT_AVAILABLE: a new leader does not know yet how far the log is committed (KIP-207),
        so a consumer that asked for the latest offset might see it go back.
    Version notes: v2 has the isolation level; v4 checks the leader epoch (KIP-320) and returns that
        of the record; before v5 OFFSET_NOT_AVAILABLE is LEADER_NOT_AVAILABLE.
    Not done: nothing.
    """
    slices = Slices()
    # Counted first: as in Kafka the first entry of such a partition is refused too.
    counts: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for partition in topic.partitions:
            counts[topic.name, partition.partition_index] += 1
            await slices.turn()
    topics = []
    for topic in request.topics:
        found = []
        for partition in topic.partitions:
            # Later entries of the same partition find nothing, and get no answer of their own.
            count = counts.pop((topic.name, partition.partition_index), 0)
            if count > 1:
                found.append(_refused(partition, ErrorCode.INVALID_REQUEST))
            # In Kafka's order: a partition that is named twice has INVALID_REQUEST also with a
            # timestamp that the version does not have.
            elif not _has_timestamp(header.api_version, partition.timestamp):
                found.append(_refused(partition, ErrorCode.UNSUPPORTED_VERSION))
            elif count:
                found.append(
                    await _find(
                        services,
                        request,
                        topic=topic.name,
                        wanted=partition,
                        version=header.api_version,
                    )
                )
            await slices.turn()
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(found)))
    return ListOffsetsResponse(topics=tuple(topics))


def _has_timestamp(version: int, timestamp: int) -> bool:
    return timestamp >= 0 or version >= _SINCE.get(timestamp, _NEVER)


def _refused(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


async def _find(
    services: Services,
    request: ListOffsetsRequest,
    *,
    topic: str,
    wanted: ListOffsetsPartition,
    version: int,
) -> ListOffsetsPartitionResponse:
    name = TopicPartition(topic, wanted.partition_index)
    is_consumer = request.replica_id == CONSUMER
    limit = read_limit(request.isolation_level) if is_consumer else ReadLimit.LOG_END
    # Kafka refuses a partition whose log is not made yet, and clients ask again after 100 ms
    # (decision 55).
    await services.replicas.new_logs.wait_for(name)
    try:
        partition = services.replicas.find_replica(name)
        # KIP-320: a consumer with older metadata may mean the log of another leader.
        partition.check_epoch(LeaderEpoch(wanted.current_leader_epoch))
        if request.replica_id != _TOOL:
            partition.check_leader()
        # Before the lookup, which may wait: the high watermark may have moved after it.
        is_early = is_consumer and _is_below_epoch(partition)
        if wanted.timestamp in _KNOWN_WITHOUT_READING:
            answer = find_offset(partition.log, wanted.timestamp, limit=limit)
        else:
            # On a worker thread, since reading indexes and decompressing a batch may take long.
            answer = await _find_in_log(services, partition, wanted.timestamp, limit=limit)
    except (TailraceError, OSError) as error:
        return _refused(wanted, error_code(error))
    if is_early and (answer is None or wanted.timestamp == SpecialTimestamp.LATEST):
        # Clients of either version ask again.
        is_known = version >= _NOT_AVAILABLE_SINCE
        code = ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
        return _refused(wanted, code)
    # No error but the default offset of -1: `offsetsForTimes` of Java's consumer has null for the
    # partition then.
    if answer is None:
        return ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index, error_code=ErrorCode.NONE
        )
    found, leader_epoch = answer
    if wanted.timestamp == SpecialTimestamp.LATEST:
        # The record that comes there will have this epoch, and no other leader's.
        leader_epoch = partition.leader_epoch
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=leader_epoch,
    )


def _is_below_epoch(partition: Partition) -> bool:
    """Whether a new leader does not know yet how much of its log is committed."""
    leadership = partition.leadership
    # The log of a leader begins its epoch with all that was committed before (KIP-207), so a lower
    # high watermark is old: the leader before may have served consumers up to a higher one.
    return (
        leadership is not None and leadership.epoch_start > partition.log.positions.high_watermark
    )


async def _find_in_log(
    services: Services, partition: Partition, timestamp: int, *, limit: ReadLimit
) -> tuple[TimestampOffset, LeaderEpoch] | None:
    return await partition.look(
        services.device_reads, lambda log: find_offset(log, timestamp, limit=limit)
    )


async def handle_offset_for_leader_epoch(
    services: Services, _: RequestHeader, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """OffsetForLeaderEpoch (23): where a leader epoch ends in the log (KIP-101, KIP-279, KIP-320).

    Versions: 2 to 4.
    Behaviour: a consumer that has learned of a new leader asks with the epoch of its last record.
        If the end offset is below its position, records that it has read were truncated. The answer
        is the largest epoch at or below the requested one, and the offset after its last record;
        for the current epoch that is the log end. -1 and -1: the epoch is not known here.
        Only the leader answers, consumers as followers.
    Version notes: v3 has the id of a follower, which changes nothing.
    Not done: nothing.
    """
    slices = Slices()
    topics = []
    for topic in request.topics:
        numbers = (each.partition for each in topic.partitions)
        await services.replicas.new_logs.wait_for_each(topic.topic, numbers)
        find = partial(_end_of_epoch, services, topic.topic)
        found = await each_in_slices(topic.partitions, find, slices)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(found)))
        await slices.turn()
    return OffsetForLeaderEpochResponse(topics=tuple(topics))


def _end_of_epoch(
    services: Services, topic: str, wanted: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        partition = services.replicas.find_replica(TopicPartition(topic, wanted.partition))
        # As in Kafka: who has an older epoch learns that, and not who leads.
        partition.check_epoch(LeaderEpoch(wanted.current_leader_epoch))
        partition.check_leader()
    except TailraceError as error:
        return EpochEndOffset(error_code=error_code(error), partition=wanted.partition)
    # Java's consumer takes -1 and -1 as a truncation of unknown extent: it resets its position by
    # `auto.offset.reset`, or fails with LogTruncationException if there is no such policy. With an
    # end offset below its position it goes back to that offset, or fails likewise.
    end = partition.end_of_epoch(LeaderEpoch(wanted.leader_epoch))
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=wanted.partition,
        leader_epoch=end.epoch,
        end_offset=end.end_offset,
    )
