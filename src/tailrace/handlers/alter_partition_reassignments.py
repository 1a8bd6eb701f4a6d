"""AlterPartitionReassignments (45): give partitions other replicas, or cancel that (KIP-455).

Versions: 0 to 1.
Behaviour: this broker has every replica, so the only assignment is the present one, which changes
    nothing. No broker, a broker that does not exist, or one twice is INVALID_REPLICA_ASSIGNMENT.
    Null replicas cancel a reassignment, of which there is none: NO_REASSIGNMENT_IN_PROGRESS.
Version notes: v1 can refuse another number of replicas, which no assignment of one broker has.
Not done: reassignments, until there are several brokers.
"""

from functools import partial

from tailrace.handlers.assignments import assignment_fault
from tailrace.handlers.services import Services
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tailrace.runtime.slices import Slices, each_in_slices


async def handle_alter_partition_reassignments(
    services: Services, _: RequestHeader, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """The outcome for every requested partition."""
    slices = Slices()
    responses = []
    for topic in request.topics:
        alter = partial(_alter, services, topic.name)
        altered = await each_in_slices(topic.partitions, alter, slices)
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=tuple(altered)))
        await slices.turn()
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=tuple(responses),
    )


def _alter(
    services: Services, topic: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    code, message = ErrorCode.NONE, None
    if not services.has_partition(TopicPartition(topic, wanted.partition_index)):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif wanted.replicas is None:
        code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    else:
        message = assignment_fault(services, wanted.partition_index, wanted.replicas)
        code = ErrorCode.NONE if message is None else ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if code is not ErrorCode.NONE:
        message = message or code.message
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=code, error_message=message
    )
