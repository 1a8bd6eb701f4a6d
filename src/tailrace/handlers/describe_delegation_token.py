"""DescribeDelegationToken (41): the tokens of users (KIP-48).

Versions: 1 to 3.
Behaviour: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as Kafka answers on every listener without SASL or
    certificates of clients.
Not done: tokens. Those that the metadata log has from Kafka stay there, without effect.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def handle_describe_delegation_token(
    _services: Services, _header: RequestHeader, _request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """The refusal."""
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    )
