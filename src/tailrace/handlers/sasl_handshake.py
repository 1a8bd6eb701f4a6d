"""SaslHandshake (17): choose a mechanism for a login, of which no listener here has any.

Versions: 0 to 1.
Behaviour: ILLEGAL_SASL_STATE without mechanisms, as Kafka answers on a listener without SASL. So a
    client that is set up to log in learns at once that its `security.protocol` or port is wrong.
Not done: SASL.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle_sasl_handshake(
    _services: Services, _header: RequestHeader, _request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """The refusal."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
