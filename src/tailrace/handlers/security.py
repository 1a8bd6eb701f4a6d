"""Logins that come when none is due, and delegation tokens, of which there are none.

    SaslHandshake (17), 0 to 1
    SaslAuthenticate (36), 0 to 2
    CreateDelegationToken (38), 1 to 3    v3 names who has asked for the token (KIP-373)
    RenewDelegationToken (39), 1 to 2
    ExpireDelegationToken (40), 1 to 2
    DescribeDelegationToken (41), 1 to 3

Codes and messages are Kafka's on a listener without SASL, or after a login that has no end; logins
themselves are in `security.authenticator`. Requests about tokens of a client that has a name are
answered as by a Kafka without `delegation.token.secret.key`.

Not done: delegation tokens. Tokens that the metadata log has from Kafka stay there, without effect.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from tailrace.handlers.services import Services
from tailrace.model import ANONYMOUS, Principal
from tailrace.protocol.apis import ApiKey
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

_REQUESTER_SINCE: Final = 3
_USER: Final = "User"


def _refusal_of_tokens(header: RequestHeader) -> ErrorCode:
    """The answer of a Kafka that has no secret key for tokens."""
    # Before it looks at the token: who has not logged in, or has done so by a token, may not ask.
    principal = header.caller.principal
    if principal == ANONYMOUS or principal.is_by_token:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


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
def handle_renew_delegation_token(
    _services: Services | None, header: RequestHeader, _request: Message
) -> RenewDelegationTokenResponse:
    """The refusal."""
    code = _refusal_of_tokens(header)
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)


def handle_expire_delegation_token(
    _services: Services | None, header: RequestHeader, _request: Message
) -> ExpireDelegationTokenResponse:
    """The refusal."""
    code = _refusal_of_tokens(header)
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)


def handle_describe_delegation_token(
    _services: Services | None, header: RequestHeader, _request: Message
) -> DescribeDelegationTokenResponse:
    """The refusal."""
    return DescribeDelegationTokenResponse(error_code=_refusal_of_tokens(header))


def handle_create_delegation_token(
    services: Services | None, header: RequestHeader, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """The refusal, with the owner that the request names; else it is who has asked."""
    requester = owner = header.caller.principal
    # As in Kafka a type without a name is no owner.
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    code = _refusal_of_tokens(header)
    if code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
        if owner != requester and not _may_create_for(services, header, owner):
            code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        elif any(each.principal_type != _USER for each in request.renewers):
            code = ErrorCode.INVALID_PRINCIPAL_TYPE
    has_requester = header.api_version >= _REQUESTER_SINCE
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type if has_requester else "",
        token_requester_principal_name=requester.name if has_requester else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def _may_create_for(services: Services | None, header: RequestHeader, owner: Principal) -> bool:
    if services is None or services.authorizer is None:
        return True
    from tailrace.security.needs import NEEDS

    [need] = NEEDS[ApiKey.CREATE_DELEGATION_TOKEN]
    return services.authorizer.allows(header, need.operation, need.resource, name=str(owner))
