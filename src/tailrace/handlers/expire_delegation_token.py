"""ExpireDelegationToken (40): end a token (KIP-48).

Versions: 1 to 2.
Behaviour: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as Kafka answers on every listener without SASL or
    certificates of clients.
Not done: tokens. Those that the metadata log has from Kafka stay there, without effect.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


def handle_expire_delegation_token(
    _services: Services, _header: RequestHeader, _request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """The refusal."""
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
    )
