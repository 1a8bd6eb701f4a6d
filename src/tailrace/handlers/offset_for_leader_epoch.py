"""OffsetForLeaderEpoch (23): where a leader epoch ends in the log (KIP-101, KIP-279, KIP-320).

Versions: 2 to 4.
Behaviour: a consumer that was told of a new leader asks with the epoch of its last record. If the
    end offset is below its position, records that it has read were truncated. The answer is the
    largest epoch at or below the requested one, and the offset behind its last record; for the
    current epoch that is the log end. -1 and -1 stand for an epoch that is not known here.
Version notes: v3 has the id of a follower, which changes nothing.
Not done: nothing.
"""

from functools import partial

from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from tailrace.runtime.slices import Slices, each_in_slices


async def handle_offset_for_leader_epoch(
    services: Services, _: RequestHeader, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """The end of an epoch for every requested partition."""
    slices = Slices()
    topics = []
    for topic in request.topics:
        numbers = (each.partition for each in topic.partitions)
        await services.replicas.new_logs.wait_for_each(topic.topic, numbers)
        find = partial(_find, services, topic.topic)
        found = await each_in_slices(topic.partitions, find, slices)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(found)))
        await slices.turn()
    return OffsetForLeaderEpochResponse(topics=tuple(topics))


def _find(services: Services, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = services.replicas.find(TopicPartition(topic, wanted.partition))
        partition.check_epoch(LeaderEpoch(wanted.current_leader_epoch))
    except TailraceError as error:
        return EpochEndOffset(error_code=error_code(error), partition=wanted.partition)
    end = partition.end_of_epoch(LeaderEpoch(wanted.leader_epoch))
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=wanted.partition,
        leader_epoch=end.epoch,
        end_offset=end.end_offset,
    )
