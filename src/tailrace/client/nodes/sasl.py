"""SASL mechanisms as generators that yield the client's tokens and are sent the broker's.

    tokens = login.tokens(host)              # plain(credentials), scram(credentials), ...
    first = next(tokens)                     # send it
    second = tokens.send(answer)             # and so on, until StopIteration: authenticated

A mechanism that has to wait for something else than the broker yields `Blocking`, and is sent what
that returns. PLAIN is RFC 4616; SCRAM-SHA-256 and SCRAM-SHA-512 are RFC 5802 and RFC 7677.

Not here: the requests that carry the tokens (`handshake`), OAUTHBEARER (`oauth`) and GSSAPI
(`kerberos`).

Names and passwords are sent as UTF-8 without normalisation. RFC 5802 asks for SASLprep, but Kafka's
brokers and clients do not apply it, so a password that it changes would not work.
"""

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Generator, Mapping
from typing import Protocol

from tailrace.client.errors import AuthenticationError
from tailrace.errors import ConfigError
from tailrace.protocol.fields import Buffer
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True)
class Blocking:
    """Work for another thread, because it may wait: a token callback, HTTP, Kerberos."""

    run: Callable[[], bytes]
    """Does the work; raises a NodeError if the login cannot go on."""
    subject: str
    """The setting or service that is waited for, for messages."""


Tokens = Generator[bytes | Blocking, Buffer, None]
"""Yields the client's tokens, and is sent the broker's; or yields work, and is sent its result."""


class Login(Protocol):
    """The way in which a client logs in to each broker."""

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism."""
        ...

    @property
    def advice(self) -> str:
        """The settings to check when a broker refuses the login."""
        ...

    def tokens(self, host: str) -> Tokens:
        """A new login to the broker at `host`.

        Raises:
            NodeError: the login failed; from the generator.
        """
        ...


ITERATIONS_MIN = 4096
"""Fewer make brute force on a stolen list of hashes too cheap; Kafka refuses them too."""

ITERATIONS_MAX = 100_000
"""More would block the client noticeably; Kafka's brokers use 16,384 at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """User name, password and SASL mechanism."""

    mechanism: str
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (`sasl.mechanism`)."""
    username: str
    """`sasl.username`."""
    password: str
    """`sasl.password`."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: the mechanism is not known, or a value is not Unicode text.
        """
        faults = [
            f"{name}: the value is not Unicode text"
            for name, value in (("sasl.username", self.username), ("sasl.password", self.password))
            if not _is_text(value)
        ]
        if self.mechanism not in MECHANISMS:
            faults.append(f"sasl.mechanism: {self.mechanism} is not one of {', '.join(MECHANISMS)}")
        if faults:
            raise ConfigError(faults)

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.username!r})"

    @property
    def advice(self) -> str:
        """The settings to check when a broker refuses the login."""
        return "check sasl.username, sasl.password and sasl.mechanism"

    def tokens(self, host: str) -> Tokens:
        """A new login; see `Login.tokens`."""
        del host
        return MECHANISMS[self.mechanism](self)


def plain(credentials: Credentials) -> Tokens:
    """Send name and password in clear text; only for connections with TLS."""
    # The first field, an identity to act for, stays empty: Kafka refuses others.
    yield f"\0{credentials.username}\0{credentials.password}".encode()


def scram(credentials: Credentials, *, nonce: Callable[[], str] | None = None) -> Tokens:
    """Prove the password without sending it, and check that the broker knows it too.

    Raises:
        AuthenticationError: the broker does not know the password, breaks the protocol, or asks
            for too few or too many iterations.
    """
    # Loads OpenSSL, which takes 4 ms; most clients know this module by its types alone.
    import hmac
    import secrets

    from tailrace.security.scram import (
        GS2_HEADER,
        client_proof,
        escaped,
        keys_of,
        salted_password,
        server_signature,
    )

    mechanism = credentials.mechanism
    our_nonce = secrets.token_urlsafe(24) if nonce is None else nonce()
    client_first = f"n={escaped(credentials.username)},r={our_nonce}"
    # Without channel binding: Java has none either, and TLS is below, if it is wanted.
    server_first = bytes((yield GS2_HEADER + client_first.encode()))

    fields = _fields(server_first)
    salt, iterations = _challenge(fields, our_nonce=our_nonce)
    salted = salted_password(
        mechanism, credentials.password.encode(), salt=salt, iterations=iterations
    )
    # "biws" is the base64 of the header.
    proofless = b"c=biws,r=" + fields["r"].encode()
    signed = b",".join((client_first.encode(), server_first, proofless))

    proof = client_proof(mechanism, salted, signed)
    server_final = yield proofless + b",p=" + b2a_base64(proof, newline=False)

    keys = keys_of(mechanism, salted, salt=salt, iterations=iterations)
    expected = b2a_base64(server_signature(mechanism, keys.server_key, signed), newline=False)
    given = _fields(bytes(server_final)).get("v", "").encode()
    # In constant time, as is usual for secrets; and a wrong one means a broker that does not know
    # the password.
    if not hmac.compare_digest(given, expected):
        raise AuthenticationError(
            "the broker accepted the login but could not prove that it knows the password, so it "
            "may be an impostor; check bootstrap.servers and use TLS"
        )


MECHANISMS: Mapping[str, Callable[[Credentials], Tokens]] = {
    "PLAIN": plain,
    "SCRAM-SHA-256": scram,
    "SCRAM-SHA-512": scram,
}
"""The mechanisms with a name and a password."""


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    # PLAIN separates its fields with it.
    return "\0" not in value


def _fields(message: bytes) -> dict[str, str]:
    """The fields of a SCRAM message by their letters."""
    try:
        pairs = [part.split("=", 1) for part in message.decode().split(",")]
        fields = {letter: value for letter, value in pairs}  # noqa: C416 - refuses other lengths
    except ValueError:
        raise AuthenticationError("the broker's SCRAM message cannot be read") from None
    if "e" in fields:
        raise AuthenticationError(
            f"the broker refused the login: {fields['e']}; check sasl.username, sasl.password and "
            "sasl.mechanism"
        )
    return fields


def _challenge(fields: dict[str, str], *, our_nonce: str) -> tuple[bytes, int]:
    """The salt and the number of iterations that the broker's first message asks for."""
    try:
        salt = a2b_base64(fields["s"], strict_mode=True)
        iterations = int(fields["i"])
        nonce = fields["r"]
    except (KeyError, ValueError):
        raise AuthenticationError("the broker's SCRAM challenge is not complete") from None
    # Otherwise an old exchange could be replayed.
    if not nonce.startswith(our_nonce) or nonce == our_nonce:
        raise AuthenticationError("the broker's SCRAM challenge has a nonce that is not ours")
    # A hostile broker could ask for billions of iterations, or for one, to get a hash that is easy
    # to break.
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise AuthenticationError(
            f"the broker asks for {iterations} SCRAM iterations; this client accepts "
            f"{ITERATIONS_MIN} to {ITERATIONS_MAX}; create the user's credentials again with a "
            "number in that range"
        )
    return salt, iterations
