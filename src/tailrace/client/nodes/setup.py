"""What is said on a new connection before the first request: versions, then who we are.

    ApiVersions (v4, or what the broker names instead: KIP-511)
    SaslHandshake v1, SaslAuthenticate (KIP-152)                  with credentials only

A generator: out go requests, in come their answers. Versions are asked for first and once. A
broker answers that to strangers too, and it decides the version of SaslAuthenticate.

Not here: TLS, which is below the requests; see `tls`.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata

from tailrace.client.nodes.errors import (
    AuthenticationError,
    MalformedAnswerError,
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
"""Share of a SASL session after which the connection is replaced (KIP-368: 0.85 to 0.95)."""


@dataclass(slots=True, kw_only=True)
class Agreement:
    """What both sides have settled."""

    versions: dict[int, int] = field(default_factory=dict)
    """The version of each request by its key."""
    session_s: float = float("inf")
    """How long the connection may be used."""


Steps = Generator[tuple[Api, int, Message], Message, Agreement]
"""Requests with their API and version; the answers are sent in."""


def introduce(credentials: Credentials | None) -> Steps:
    """Settle versions and log in.

    Raises:
        UnsupportedVersionError: the broker refuses to name its versions.
        AuthenticationError: it does not take the credentials, or cannot prove its own.
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
            f"the broker does not name its versions: {_words(answer.error_code)}"
        )
    return answer


@cache
def _software_version() -> str:
    """Of the installed package; an executor may have been sent the modules alone."""
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
            f"the broker takes no login here: {_words(answer.error_code)}; check "
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
    if answer.auth_bytes is None:
        raise MalformedAnswerError("the broker answered a login without a token")
    return bytes(answer.auth_bytes)


def _words(code: int) -> str:
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
