"""DeleteAcls (31): remove the entries that match filters from access control lists.

Versions: 1 to 3.
Behaviour: SECURITY_DISABLED for each filter, with Kafka's message: there is no authorizer.
Not done: authorizers.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle_delete_acls(
    _services: Services, _header: RequestHeader, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    """The refusal of every filter."""
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))
