"""DeleteRecords (21): raise the log start offset of partitions.

Versions: 0 to 2.
Behaviour: when the response is sent, readers see the new log start, and get OFFSET_OUT_OF_RANGE
    below it. Retention later deletes segments that lie completely below it. -1 means the high
    watermark; an offset above it is OFFSET_OUT_OF_RANGE, one below the log start changes nothing.
    The response comes when all replicas that are alive have raised their log start, and has the
    smallest of them as low watermark; after the request's timeout it is REQUEST_TIMED_OUT, and the
    records are deleted all the same.
    Refused: internal topics (INVALID_TOPIC_EXCEPTION), and topics whose `cleanup.policy` is
    `compact` alone (POLICY_VIOLATION).
After a crash: the new log start is kept from the next checkpoint on (at most
    `log.flush.start.offset.checkpoint.interval.ms` later), as in Kafka; after an earlier crash the
    records may be there again.
"""

import asyncio
from functools import partial
from typing import NamedTuple

from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.model import INTERNAL_TOPICS, Offset, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tailrace.replication.partition import Partition
from tailrace.replication.waiting import ReplicasTimedOutError, expire
from tailrace.runtime.slices import Slices, each_in_slices


class _Deletion(NamedTuple):
    """The deletion in one partition, and the replicas that its answer waits for."""

    answer: DeleteRecordsPartitionResult
    partition: Partition | None = None
    deleted: asyncio.Future[None] | None = None


async def handle_delete_records(
    services: Services, _: RequestHeader, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Raise the log start of every partition that allows it."""
    slices = Slices()
    deletions: list[list[_Deletion]] = []
    for topic in request.topics:
        numbers = (each.partition_index for each in topic.partitions)
        # CreateTopics answers before the logs are made (decision 55), so the topic may have none
        # yet.
        await services.replicas.new_logs.wait_for_each(topic.name, numbers)
        delete = partial(_delete, services, topic.name)
        deletions.append(await each_in_slices(topic.partitions, delete, slices))
        await slices.turn()
    waiting = [each.deleted for topic in deletions for each in topic if each.deleted is not None]
    topics = []
    end = expire(waiting, timeout_ms=request.timeout_ms)
    try:
        for topic, done in zip(request.topics, deletions, strict=True):
            results = [await _answer(each) for each in done]
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(results)))
            await slices.turn()
    finally:
        end()
    return DeleteRecordsResponse(topics=tuple(topics))


def _delete(services: Services, topic: str, wanted: DeleteRecordsPartition) -> _Deletion:
    # Their state is in the records: a coordinator that loads the rest would lose groups.
    if topic in INTERNAL_TOPICS:
        return _Deletion(_result(wanted.partition_index, ErrorCode.INVALID_TOPIC_EXCEPTION))
    try:
        partition = services.replicas.find(TopicPartition(topic, wanted.partition_index))
        # -1 is the high watermark, which only the partition knows. An OSError is the device's, and
        # an error of this partition alone.
        offset = partition.delete_records(Offset(wanted.offset))
        return _Deletion(
            _result(wanted.partition_index, low_watermark=partition.low_watermark),
            partition,
            partition.deleted(offset),
        )
    except (TailraceError, OSError) as error:
        return _Deletion(_result(wanted.partition_index, error_code(error)))


async def _answer(deletion: _Deletion) -> DeleteRecordsPartitionResult:
    answer, partition, deleted = deletion
    if partition is None or deleted is None:
        return answer
    code = ErrorCode.NONE
    try:
        await deleted
    except ReplicasTimedOutError as error:
        code = error_code(error)
    except TailraceError as error:
        return _result(answer.partition_index, error_code(error))
    return _result(answer.partition_index, code, low_watermark=partition.low_watermark)


def _result(
    index: int, code: ErrorCode = ErrorCode.NONE, *, low_watermark: int = -1
) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=low_watermark, error_code=code
    )
