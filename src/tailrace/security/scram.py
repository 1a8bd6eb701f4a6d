"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the arithmetic, and a broker's side.

    client                                   broker
    n,,n=alice,r=CLIENT             ->
                                    <-       r=CLIENT SERVER,s=SALT,i=ITERATIONS
    c=biws,r=CLIENT SERVER,p=PROOF  ->
                                    <-       v=SIGNATURE

A broker keeps `ScramKeys`, by which it can check a proof and not make one.

Invariant: a user that does not exist gets a salt, a number of iterations and a refusal after the
same two steps as one whose password is wrong. (Kafka refuses it after the first step.) The salt is
derived from the name and a secret of the process, so it is the same until the next start.

Names and passwords are not prepared by SASLprep, as in Kafka. Its messages are ASCII only.
"""

import hashlib
import hmac
import re
import secrets
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tailrace.security.exchange import Exchange, Granted, RefusedLoginError, client_error

HASHES: Final[Mapping[str, str]] = MappingProxyType(
    {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
)
"""The hash of each mechanism, by the name in `hashlib`."""

ITERATIONS_MIN: Final = 4096
"""Fewer make brute force on a stolen list of hashes too cheap; Kafka refuses them too."""

GS2_HEADER: Final = b"n,,"
"""Begins a client's first message: no channel binding, as in Kafka, and no other identity."""

# Letters without those that end a field (,) or begin an escape (=), as Kafka's ScramMessages.
_NAME = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_TEXT = rb"[\x01-\x2b\x2d-\x7f]+"
_NONCE = rb"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = rb"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_FIRST: Final = re.compile(
    rb"(?P<header>n,(?:a=(?P<identity>%s))?,)"
    rb"(?P<bare>(?:m=%s,)?n=(?P<name>%s),r=(?P<nonce>%s)(?P<extensions>(?:,[A-Za-z]+=%s)*))"
    % (_NAME, _TEXT, _NAME, _NONCE, _TEXT)
)
_FINAL: Final = re.compile(
    rb"(?P<proofless>c=(?P<binding>%s),r=(?P<nonce>%s)(?:,[A-Za-z]+=%s)*?),p=(?P<proof>%s)"
    % (_BASE64, _NONCE, _TEXT, _BASE64)
)


class ScramKeys(NamedTuple):
    """A user's record for one mechanism, by which a broker can check a proof."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salted_password(mechanism: str, password: bytes, *, salt: bytes, iterations: int) -> bytes:
    """The password after its iterations, which take milliseconds; only clients do this."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)


def keys_of(mechanism: str, salted: bytes, *, salt: bytes, iterations: int) -> ScramKeys:
    """The record of a salted password."""
    name = HASHES[mechanism]
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    server_key = hmac.digest(salted, b"Server Key", name)
    return ScramKeys(salt, stored_key, server_key, iterations)


def client_proof(mechanism: str, salted: bytes, signed: bytes) -> bytes:
    """The proof that the client knows the salted password, for the three messages `signed`."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return _xor(client_key, hmac.digest(stored_key, signed, name))


def server_signature(mechanism: str, server_key: bytes, signed: bytes) -> bytes:
    """The proof that the broker knows the user's keys."""
    return hmac.digest(server_key, signed, HASHES[mechanism])


def is_proof(mechanism: str, keys: ScramKeys, *, signed: bytes, proof: bytes) -> bool:
    """Whether a client's proof is right; takes the same time if it is not."""
    name = HASHES[mechanism]
    signature = hmac.digest(keys.stored_key, signed, name)
    if len(proof) != len(signature):
        return False
    found = hashlib.new(name, _xor(proof, signature)).digest()
    return hmac.compare_digest(found, keys.stored_key)


def escaped(name: str) -> str:
    """A user's name in a message: a comma ends a field there, and = begins an escape."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """The user's name of a message."""
    return name.replace("=2C", ",").replace("=3D", "=")


class Scram:
    """A broker's side of one of the mechanisms."""

    def __init__(
        self,
        mechanism: str,
        find_keys: Callable[[str], ScramKeys | None],
        *,
        usual_iterations: Callable[[], int] = lambda: ITERATIONS_MIN,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        """`find_keys` gives the keys of a user, and None if there is no such user.

        `usual_iterations` is the number that most users have.
        """
        self.name = mechanism
        self._find_keys = find_keys
        # Random, and of nothing that a person has chosen: anybody may have salts made with it, and
        # could try passwords against them.
        self._secret = secrets.token_bytes(64)
        self._usual_iterations = usual_iterations
        self._nonce = nonce

    def exchange(self, first: bytes) -> Exchange:
        """A new login; see `ServerMechanism.exchange`."""
        found = _FIRST.fullmatch(first)
        if found is None:
            raise RefusedLoginError("the first SCRAM message has another form than RFC 5802")
        user = unescaped(found["name"].decode())
        identity = found["identity"]
        # Of unknown users too, or the answer would tell that there is no such user.
        if identity is not None and unescaped(identity.decode()) != user:
            raise client_error(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                user=user,
            )
        # For each login, so that it takes as long for a user that there is.
        invented = self._invented(user)
        keys = self._find_keys(user)
        # Delegation tokens log in with their id as the name, and this broker has none.
        is_token = _has_token_mark(found["extensions"])
        is_known = keys is not None and not is_token
        if keys is None or is_token:
            keys = invented
        elif keys.iterations < ITERATIONS_MIN:
            # Kafka's rule too; such a record is none of the controller's.
            raise RefusedLoginError(
                f"the user has {keys.iterations} iterations, fewer than {ITERATIONS_MIN}", user=user
            )
        nonce = found["nonce"] + self._nonce().encode()
        salt = b2a_base64(keys.salt, newline=False)
        challenge = b"r=%s,s=%s,i=%d" % (nonce, salt, keys.iterations)
        final = _FINAL.fullmatch(bytes((yield challenge)))
        if final is None:
            raise RefusedLoginError(
                "the last SCRAM message has another form than RFC 5802", user=user
            )
        if final["nonce"] != nonce:
            raise RefusedLoginError("the nonce is not that of the challenge", user=user)
        if final["binding"] != b2a_base64(found["header"], newline=False):
            raise RefusedLoginError(
                "the channel binding is not that of the first message", user=user
            )
        signed = b",".join((found["bare"], challenge, final["proofless"]))
        # Also for an unknown user, which must not be answered sooner.
        is_right = is_proof(self.name, keys, signed=signed, proof=a2b_base64(final["proof"]))
        if not is_known:
            what = "delegation token" if is_token else f"user with credentials for {self.name}"
            raise RefusedLoginError(f"there is no such {what}", user=user)
        if not is_right:
            raise RefusedLoginError("the password is wrong", user=user)
        signature = server_signature(self.name, keys.server_key, signed)
        return Granted(user, answer=b"v=" + b2a_base64(signature, newline=False))

    def _invented(self, user: str) -> ScramKeys:
        """Keys for a user that does not exist: nobody knows a password for them."""
        drawn = hmac.digest(self._secret, f"{self.name} {user}".encode(), "sha512")
        size = hashlib.new(HASHES[self.name]).digest_size
        return ScramKeys(_like_a_salt(drawn), drawn[:size], drawn[:size], self._usual_iterations())


def new_salt() -> bytes:
    """A random salt for a new password."""
    return _like_a_salt(secrets.token_bytes(17))


def _like_a_salt(drawn: bytes) -> bytes:
    """130 bits in the letters and digits of base 36, as Kafka's own tools make salts."""
    number = int.from_bytes(drawn[:17], "big") >> 6
    found = bytearray()
    while number:
        number, digit = divmod(number, 36)
        found.append(b"0123456789abcdefghijklmnopqrstuvwxyz"[digit])
    return bytes(found)


def _has_token_mark(extensions: bytes) -> bool:
    return any(each.lower() == b"tokenauth=true" for each in extensions.split(b","))


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))
