"""Logins and delegation tokens: this broker has none of them.

    SaslHandshake (17), 0 to 1
    SaslAuthenticate (36), 0 to 2
    CreateDelegationToken (38), 1 to 3    v3 names who has asked for the token (KIP-373)
    RenewDelegationToken (39), 1 to 2
    ExpireDelegationToken (40), 1 to 2
    DescribeDelegationToken (41), 1 to 3

Codes and messages are Kafka's on a listener without SASL or certificates of clients.

Not done: SASL and delegation tokens. Tokens that the metadata log has from Kafka stay there,
without effect.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tailrace.protocol.messages.describe_delegation_token import DescribeDelegationTokenResponse
from tailrace.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from tailrace.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeResponse

M = TypeVar("M", bound=Message)

# Kafka answers so on PLAINTEXT, before it looks at the token or the owner.
_NO_TOKENS: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_REQUESTER_SINCE: Final = 3


def _always(answer: M) -> Callable[[Services, RequestHeader, Message], M]:
    def handle(_services: Services, _header: RequestHeader, _request: Message) -> M:
        return answer

    return handle


# No mechanisms: a client that is set up to log in learns at once that its `security.protocol` or
# its port is wrong.
handle_sasl_handshake = _always(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
# Without SASL a connection counts as logged in.
handle_sasl_authenticate = _always(
    SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
)
# -1 for all times is what Kafka sends with an error.
handle_renew_delegation_token = _always(
    RenewDelegationTokenResponse(error_code=_NO_TOKENS, expiry_timestamp_ms=-1)
)
handle_expire_delegation_token = _always(
    ExpireDelegationTokenResponse(error_code=_NO_TOKENS, expiry_timestamp_ms=-1)
)
handle_describe_delegation_token = _always(DescribeDelegationTokenResponse(error_code=_NO_TOKENS))


def handle_create_delegation_token(
    _services: Services, header: RequestHeader, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """The refusal, with the owner that the request names; else it is who has asked."""
    # Kafka's name for a client that has not logged in.
    kind, name = owner_kind, owner_name = "User", "ANONYMOUS"
    # As in Kafka a type without a name is no owner.
    if request.owner_principal_name:
        owner_kind = request.owner_principal_type or ""
        owner_name = request.owner_principal_name
    has_requester = header.api_version >= _REQUESTER_SINCE
    return CreateDelegationTokenResponse(
        error_code=_NO_TOKENS,
        principal_type=owner_kind,
        principal_name=owner_name,
        token_requester_principal_type=kind if has_requester else "",
        token_requester_principal_name=name if has_requester else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
