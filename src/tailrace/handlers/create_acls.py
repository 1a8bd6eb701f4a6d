"""CreateAcls (30): add entries to access control lists.

Versions: 1 to 3.
Behaviour: SECURITY_DISABLED for each entry, with Kafka's message: there is no authorizer, and an
    entry without one would protect nothing.
Not done: authorizers.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def handle_create_acls(
    _services: Services, _header: RequestHeader, request: CreateAclsRequest
) -> CreateAclsResponse:
    """The refusal of every entry."""
    refused = AclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return CreateAclsResponse(results=(refused,) * len(request.creations))
