"""The handshake on a new connection: ask for the API versions, then log in.

    ApiVersions (v4, or what the broker names instead: KIP-511)
    SaslHandshake v1, SaslAuthenticate (KIP-152)                  with credentials only

A generator that yields requests and is sent their answers; it also yields work that may block, and
is sent its result. Versions come first: a broker answers ApiVersions before the login too, and the
answer decides the version of SaslAuthenticate.

Not here: TLS, which is below the requests; see `security.tls`.
"""

from collections.abc import Generator, Mapping

from tailrace import __version__
from tailrace.client.errors import AuthenticationError, UnsupportedVersionError, error_words
from tailrace.client.nodes.sasl import Blocking, Login
from tailrace.client.nodes.versions import Features, settle_versions
from tailrace.protocol.apis import APIS, Api, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Buffer, Message
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tailrace.values import dataclass, field

SESSION_SHARE = 0.85
"""Fraction of a SASL session after which the connection is replaced (KIP-368: 0.85 to 0.95)."""


@dataclass(slots=True, kw_only=True)
class Agreement:
    """The result of a setup."""

    versions: dict[int, int] = field(default_factory=dict)
    """The version of each request by its API key."""
    session_s: float = float("inf")
    """Seconds for which the connection may be used."""


Request = tuple[Api, int, Message]
"""A request with its API and version."""

Step = Request | Blocking
Steps = Generator[Step, Message | bytes, Agreement]
"""Yields requests, and is sent their answers; yields work, and is sent its result."""


def handshake(
    login: Login | None, host: str, *, limits: Mapping[int, int], features: Features
) -> Steps:
    """Choose the version of each request, and log in to the broker at `host` if there is a login.

    `limits` are the highest versions that the client sends, by API key; `features` learns those of
    the cluster.

    Raises:
        UnsupportedVersionError: the broker does not answer ApiVersions.
        AuthenticationError: it refuses the credentials, or fails the check of its own identity.
    """
    answer = yield from _ask_versions()
    # Transactions of version 2 depend on a feature of the cluster, which only this answer has.
    features.learn(answer)
    agreement = Agreement(versions=settle_versions(answer, limits))
    if login is not None:
        yield from _log_in(login, host, agreement)
    return agreement


def _ask_versions() -> Generator[Step, Message | bytes, ApiVersionsResponse]:
    api = APIS[ApiKey.API_VERSIONS]
    # The newest: a broker that lacks it answers in version 0, with the versions that it has
    # (KIP-511).
    version = api.last_version
    request = ApiVersionsRequest(
        client_software_name="tailrace", client_software_version=__version__
    )
    answer = yield api, version, request
    assert isinstance(answer, ApiVersionsResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        # Brokers before 2.4 name none; every broker has version 0.
        named = [each.max_version for each in answer.api_keys if each.api_key == api.key]
        version = min(max(named[0], 0), version - 1) if named else 0
        answer = yield api, version, request
        assert isinstance(answer, ApiVersionsResponse)
    if answer.error_code:
        raise UnsupportedVersionError(
            f"the broker answered ApiVersions with an error: {error_words(answer.error_code)}"
        )
    return answer


def _log_in(
    login: Login, host: str, agreement: Agreement
) -> Generator[Step, Message | bytes, None]:
    mechanism = login.mechanism
    if ApiKey.SASL_HANDSHAKE not in agreement.versions:
        # It would close the connection, which looks like a broker that is starting.
        raise AuthenticationError(
            "the broker has no logins by SASL; check security.protocol and the port"
        )
    # With version 0 the tokens would travel outside of the protocol, without an error code.
    answer = yield APIS[ApiKey.SASL_HANDSHAKE], 1, SaslHandshakeRequest(mechanism=mechanism)
    assert isinstance(answer, SaslHandshakeResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationError(
            f"the broker does not offer {mechanism} but {', '.join(answer.mechanisms) or 'none'}; "
            "change sasl.mechanism"
        )
    # A listener without SASL answers so; the advice is about the port and not about the password.
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationError(
            "the broker expects no login on this port; check security.protocol and the port"
        )
    if answer.error_code:
        raise AuthenticationError(
            f"the broker refused SaslHandshake: {error_words(answer.error_code)}; check "
            "security.protocol and the port"
        )
    tokens = login.tokens(host)
    step = next(tokens)
    while True:
        received: Buffer
        if isinstance(step, Blocking):
            result = yield step
            assert isinstance(result, bytes)
            received = result
        else:
            received = yield from _exchange(step, agreement, advice=login.advice)
        try:
            step = tokens.send(received)
        except StopIteration:
            return


def _exchange(
    token: bytes, agreement: Agreement, *, advice: str
) -> Generator[Step, Message | bytes, Buffer]:
    """The broker's answer to a token."""
    api = APIS[ApiKey.SASL_AUTHENTICATE]
    version = agreement.versions.get(api.key, 0)
    answer = yield api, version, SaslAuthenticateRequest(auth_bytes=token)
    assert isinstance(answer, SaslAuthenticateResponse)
    if answer.error_code:
        said = answer.error_message or error_words(answer.error_code)
        raise AuthenticationError(f"the broker refused the login: {said}; {advice}")
    if answer.session_lifetime_ms > 0:
        # The broker closes the connection at the end of the session (KIP-368).
        agreement.session_s = answer.session_lifetime_ms / 1000 * SESSION_SHARE
    return answer.auth_bytes
