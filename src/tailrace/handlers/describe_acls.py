"""DescribeAcls (29): the access control lists that match a filter.

Versions: 1 to 3.
Behaviour: SECURITY_DISABLED with Kafka's message, because there is no authorizer: everybody may do
    everything. MirrorMaker and Kafka's tools take it for that.
Not done: authorizers. Entries that the metadata log has from Kafka stay there, without effect.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle_describe_acls(
    _services: Services, _header: RequestHeader, _request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """The refusal."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
    )
