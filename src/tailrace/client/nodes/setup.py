"""The setup of a new connection: ask for the API versions, then log in.

    ApiVersions (v4, or what the broker names instead: KIP-511)
    SaslHandshake v1, SaslAuthenticate (KIP-152)                  with credentials only

A generator that yields requests and is sent their answers. Versions come first: a broker answers
ApiVersions before the login too, and the answer decides the version of SaslAuthenticate.

Not here: TLS, which is below the requests; see `tls`.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata

from tailrace.client.nodes.errors import (
    AuthenticationError,
    UnsupportedVersionError,
)
from tailrace.client.nodes.sasl import MECHANISMS, Credentials
from tailrace.client.nodes.versions import settle_versions
from tailrace.protocol.apis import SPOKEN, Api, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

SESSION_SHARE = 0.85
"""Fraction of a SASL session after which the connection is replaced (KIP-368: 0.85 to 0.95)."""


@dataclass(slots=True, kw_only=True)
class Agreement:
    """The result of a setup."""

    versions: dict[int, int] = field(default_factory=dict)
    """The version of each request by its API key."""
    session_s: float = float("inf")
    """Seconds for which the connection may be used."""


Steps = Generator[tuple[Api, int, Message], Message, Agreement]
"""Yields requests with their API and version; is sent the answers."""


def introduce(credentials: Credentials | None) -> Steps:
    """Choose the version of each request, and log in if there are credentials.

    Raises:
        UnsupportedVersionError: the broker does not answer ApiVersions.
        AuthenticationError: it refuses the credentials, or fails the check of its own identity.
    """
    agreement = Agreement(versions=settle_versions((yield from _ask_versions())))
    if credentials is not None:
        yield from _log_in(credentials, agreement)
    return agreement


def _ask_versions() -> Generator[tuple[Api, int, Message], Message, ApiVersionsResponse]:
    api = SPOKEN[ApiKey.API_VERSIONS]
    version = api.last_version
    request = ApiVersionsRequest(
        client_software_name="tailrace", client_software_version=_software_version()
    )
    answer = yield api, version, request
    assert isinstance(answer, ApiVersionsResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        named = [each.max_version for each in answer.api_keys if each.api_key == api.key]
        version = min(max(named[0], 0), version - 1) if named else 0
        answer = yield api, version, request
        assert isinstance(answer, ApiVersionsResponse)
    if answer.error_code:
        raise UnsupportedVersionError(
            f"the broker answered ApiVersions with an error: {_words(answer.error_code)}"
        )
    return answer


@cache
def _software_version() -> str:
    """The version of the installed package; "unknown" where only the modules were shipped."""
    try:
        return metadata.version("tailrace")
    except metadata.PackageNotFoundError:
        return "unknown"


def _log_in(
    credentials: Credentials, agreement: Agreement
) -> Generator[tuple[Api, int, Message], Message, None]:
    mechanism = credentials.mechanism
    answer = yield SPOKEN[ApiKey.SASL_HANDSHAKE], 1, SaslHandshakeRequest(mechanism=mechanism)
    assert isinstance(answer, SaslHandshakeResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationError(
            f"the broker does not offer {mechanism} but {', '.join(answer.mechanisms) or 'none'}; "
            "change sasl.mechanism"
        )
    if answer.error_code:
        raise AuthenticationError(
            f"the broker refused SaslHandshake: {_words(answer.error_code)}; check "
            "security.protocol and the port"
        )
    tokens = MECHANISMS[mechanism](credentials)
    token = next(tokens)
    while True:
        challenge = yield from _exchange(token, agreement)
        try:
            token = tokens.send(challenge)
        except StopIteration:
            return


def _exchange(
    token: bytes, agreement: Agreement
) -> Generator[tuple[Api, int, Message], Message, bytes]:
    """The broker's answer to a token."""
    api = SPOKEN[ApiKey.SASL_AUTHENTICATE]
    version = agreement.versions.get(api.key, 0)
    answer = yield api, version, SaslAuthenticateRequest(auth_bytes=token)
    assert isinstance(answer, SaslAuthenticateResponse)
    if answer.error_code:
        said = answer.error_message or _words(answer.error_code)
        raise AuthenticationError(
            f"the broker refused the login: {said}; check sasl.username, sasl.password and "
            "sasl.mechanism"
        )
    if answer.session_lifetime_ms > 0:
        agreement.session_s = answer.session_lifetime_ms / 1000 * SESSION_SHARE
    return answer.auth_bytes


def _words(code: int) -> str:
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
