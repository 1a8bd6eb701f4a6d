"""DeleteRecords (21): raise the log start offset of partitions.

Versions: 0 to 2.
Behaviour: when the response is sent, readers see the new log start, and get OFFSET_OUT_OF_RANGE
    below it. Retention later deletes segments that lie completely below it. -1 means the high
    watermark; an offset above it is OFFSET_OUT_OF_RANGE, one below the log start changes nothing.
    The low watermark in the response is the log start.
    Refused: internal topics (INVALID_TOPIC_EXCEPTION), and topics whose `cleanup.policy` is
    `compact` alone (POLICY_VIOLATION).
After a crash: the new log start is kept from the next checkpoint on (at most
    `log.flush.start.offset.checkpoint.interval.ms` later), as in Kafka; after an earlier crash the
    records may be there again.
Not done: waiting for other replicas, because there are none.
"""

from functools import partial

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
from tailrace.runtime.slices import Slices, each_in_slices


async def handle_delete_records(
    services: Services, _: RequestHeader, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Raise the log start of every partition that allows it."""
    slices = Slices()
    topics = []
    for topic in request.topics:
        numbers = (each.partition_index for each in topic.partitions)
        # CreateTopics answers before the logs are made (decision 55), so the topic may have none
        # yet.
        await services.replicas.new_logs.wait_for_each(topic.name, numbers)
        delete = partial(_delete, services, topic.name)
        results = await each_in_slices(topic.partitions, delete, slices)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(results)))
        await slices.turn()
    return DeleteRecordsResponse(topics=tuple(topics))


def _delete(
    services: Services, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    low_watermark, code = -1, ErrorCode.NONE
    # Their state is in the records: a coordinator that loads the rest would lose groups.
    if topic in INTERNAL_TOPICS:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        try:
            partition = services.replicas.find(TopicPartition(topic, wanted.partition_index))
            # -1 is the high watermark, which only the partition knows. An OSError is the device's,
            # and an error of this partition alone.
            low_watermark = partition.delete_records(Offset(wanted.offset))
        except (TailraceError, OSError) as error:
            code = error_code(error)
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=code
    )
