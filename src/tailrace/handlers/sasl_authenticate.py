"""SaslAuthenticate (36): a token of a login, which no listener here expects.

Versions: 0 to 2.
Behaviour: ILLEGAL_SASL_STATE, with Kafka's message: without SASL a connection counts as logged in.
Not done: SASL.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def handle_sasl_authenticate(
    _services: Services, _header: RequestHeader, _request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """The refusal."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
