"""ListPartitionReassignments (46): the partitions that are getting other replicas (KIP-455).

Versions: 0.
Behaviour: one broker has no other replicas to give, so the list is empty.
Not done: reassignments, until there are several brokers.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle_list_partition_reassignments(
    _services: Services, _: RequestHeader, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """No partition."""
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None)
