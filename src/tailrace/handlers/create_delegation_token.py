"""CreateDelegationToken (38): make a token that logs in for a user (KIP-48).

Versions: 1 to 3.
Behaviour: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as Kafka answers on every listener without SASL or
    certificates of clients; the owner is Kafka's name for a client that has not logged in.
Version notes: v3 names who has asked for the token (KIP-373).
Not done: tokens.
"""

from typing import Final

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

_REQUESTER_SINCE: Final = 3


def handle_create_delegation_token(
    _services: Services, header: RequestHeader, _request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """The refusal."""
    kind, name = "User", "ANONYMOUS"
    has_requester = header.api_version >= _REQUESTER_SINCE
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=kind if has_requester else "",
        token_requester_principal_name=name if has_requester else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
