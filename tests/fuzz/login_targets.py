"""Fuzz targets of a broker's logins: SASL messages, tokens, key sets, and frames before a login."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress

from tailrace.model import Principal
from tailrace.protocol.answers import LoginEndedError
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import encode_request
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tailrace.runtime.limited_lines import LimitedLines
from tailrace.runtime.threads import WorkerThreads
from tailrace.security.authenticator import (
    ConnectionLogin,
    ListenerLogins,
    LoginThreads,
)
from tailrace.security.exchange import Exchange, Granted, RefusedLoginError, Work
from tailrace.security.kerberos_names import NameRules
from tailrace.security.key_set import KeySet, KeySetSource, key_set_fault, read_keys
from tailrace.security.oauthbearer import InvalidTokenError, OAuthBearer, read_first_message
from tailrace.security.plain import Plain
from tailrace.security.scram import Scram, keys_of, salted_password
from tailrace.security.tokens import SignedTokens, TokenRules, UnsecuredTokens, granted
from tests.fuzz.engine import FuzzTarget

_SALTED = salted_password("SCRAM-SHA-256", b"pencil", salt=b"salt", iterations=4096)
_KEYS = keys_of("SCRAM-SHA-256", _SALTED, salt=b"salt", iterations=4096)
_SCRAM = Scram("SCRAM-SHA-256", {"user": _KEYS}.get, nonce=lambda: "more")
_PLAIN = Plain({"alice": "secret"})
_RULES = TokenRules(scopes=("r",), clock_skew_s=1)


def _unsecured(**claims: object) -> str:
    parts = ({"alg": "none"}, claims)
    return "".join(
        b64encode(json.dumps(each).encode()).decode().rstrip("=") + "." for each in parts
    )


_TOKEN = _unsecured(sub="alice", exp=90, iat=10, nbf=10, scope=["r"], aud="a", iss="b")


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def run_exchange(begin: Callable[[bytes], Exchange], *tokens: bytes) -> Granted:
    """Log in with these tokens; each login has a name."""
    exchange = begin(tokens[0])
    given: object = None
    left = list(tokens[1:])
    while True:
        try:
            step = exchange.send(given)
        except StopIteration as done:
            found: Granted = done.value
            assert found.name
            return found
        if isinstance(step, Work):
            given = step.run()
        elif left:
            given = left.pop(0)
        else:
            raise RefusedLoginError("the client says no more")


def take_scram_final(data: bytes) -> Granted:
    """Give the data as a client's last message; nobody knows the password."""
    return run_exchange(_SCRAM.exchange, b"n,,n=user,r=abc", data)


def check_claims(data: bytes) -> object:
    """Check claims of a token whose signature was right."""
    claims = json.loads(data)
    if not isinstance(claims, dict):
        raise InvalidTokenError("no claims")
    found = granted(claims, _RULES, now=50.0, needs_issued_at=True)
    assert found.expires_at >= 49
    return found


def check_signed(data: bytes) -> object:
    """Check a token against a key set whose keys nobody has."""
    return _SIGNED().check(_text(data))


_KEY_SET = json.dumps(
    {
        "keys": [
            {"kty": "RSA", "kid": "a", "n": "w" * 342, "e": "AQAB", "alg": "RS256", "use": "sig"},
            {"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
             "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},
        ]
    }
).encode()  # fmt: skip


class _Fixed(KeySetSource):
    """A set that does not change."""

    def read(self) -> object:  # type: ignore[override]
        return read_keys(_KEY_SET)


def _SIGNED() -> SignedTokens:  # noqa: N802 - made when it is needed: PyJWT is an extra
    return SignedTokens(KeySet(_Fixed(url="")), _RULES, now=lambda: 50.0)


def _signed(**header: object) -> bytes:
    head = b64encode(json.dumps(header).encode()).decode().rstrip("=")
    return f"{head}.{_TOKEN.split('.')[1]}.{'A' * 86}".encode()


def use_keys(data: bytes) -> object:
    """Take a key set, and look each key up."""
    keys = read_keys(data)
    for key in keys:
        with suppress(InvalidTokenError):
            made = KeySetSource(url="")
            found = KeySet(made)
            found._keys, found._stale_at = keys, float("inf")
            found._read_at = float("inf")
            header = {"alg": "RS256", "kid": key.get("kid")}
            with suppress(TypeError):
                SignedTokens(found, _RULES, now=lambda: 50.0).check(_signed(**header).decode())
    return keys


# -- frames ---------------------------------------------------------------------------------------


def _frame(key: ApiKey, version: int, body: Message) -> bytes:
    data = encode_request(APIS[key], body, version=version, correlation_id=1, client_id="c")
    return len(data[4:]).to_bytes(4, "big") + data[4:]


_HANDSHAKES = [
    _frame(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=name))
    for version in (0, 1)
    for name in ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
]
_FIRSTS = (b"\0alice\0secret", b"n,,n=user,r=abc", b"n,,\x01auth=Bearer a\x01\x01")


def _conversations() -> tuple[bytes, ...]:
    versions = _frame(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    found = []
    for number, handshake in enumerate(_HANDSHAKES):
        token = _FIRSTS[number % 3]
        frame = len(token).to_bytes(4, "big") + token
        if number >= 3:
            body = SaslAuthenticateRequest(auth_bytes=token)
            frame = _frame(ApiKey.SASL_AUTHENTICATE, 2, body)
        found += [handshake + frame, versions + handshake + frame + handshake + frame]
    return tuple(found)


def converse(data: bytes) -> object:
    """Give a connection that has not logged in any frames; only the right password logs in."""
    return asyncio.run(_converse(data))


async def _converse(data: bytes) -> object:
    threads = WorkerThreads()
    lines = LimitedLines()
    logins = ListenerLogins(
        name="SASL",
        mechanisms={
            each.name: each
            for each in (
                _PLAIN,
                _SCRAM,
                OAuthBearer(UnsecuredTokens(_RULES, now=lambda: 50.0).check, is_quick=True),
            )
        },
        session_ms_max={"PLAIN": 1000},
        receive_bytes_max=1000,
        failure_delay_s=0,
        threads=LoginThreads(threads),
        now=lambda: 50.0,
    )
    login = ConnectionLogin(logins, "peer:1", lines)
    try:
        position = 0
        while position + 4 <= len(data) and not login.is_open:
            size = int.from_bytes(data[position : position + 4], "big")
            frame = data[position + 4 : position + 4 + size]
            position += 4 + size
            answer = login.take(memoryview(frame), lambda _: [bytes(10)])
            if not isinstance(answer, list):
                await answer
        if login.is_open:
            assert b"\0alice\0secret" in data
            assert login.principal == Principal("User", "alice")
        return login.principal
    finally:
        lines.close()
        threads.close()


_REFUSED = (RefusedLoginError,)

TARGETS = (
    FuzzTarget(
        name="PLAIN",
        seeds=(b"\0alice\0secret", b"alice\0alice\0wrong", "\0b\0ü".encode()),
        run=lambda data: run_exchange(_PLAIN.exchange, data),
        refusals=_REFUSED,
    ),
    FuzzTarget(
        name="first message of SCRAM",
        seeds=(b"n,,n=user,r=abc", b"n,a=user,m=x,n=us=2Cer=3D,r=abc,x=y,tokenauth=true"),
        run=lambda data: run_exchange(_SCRAM.exchange, data, b""),
        refusals=_REFUSED,
    ),
    FuzzTarget(
        name="last message of SCRAM",
        seeds=(b"c=biws,r=abcmore,x=y,p=" + b64encode(bytes(32)), b"c=biws,r=abcmore,p=AA=="),
        run=take_scram_final,
        refusals=_REFUSED,
    ),
    FuzzTarget(
        name="first message of OAUTHBEARER",
        seeds=(
            b"n,a=u=2Ca,\x01auth=Bearer a.b.c==\x01k=v w\x01\x01",
            b"n,,\x01auth=Bearer a\x01\x01",
        ),
        run=read_first_message,
        refusals=(ValueError,),
    ),
    FuzzTarget(
        name="unsecured token",
        seeds=(_TOKEN.encode(),),
        run=lambda data: UnsecuredTokens(_RULES, now=lambda: 50.0).check(_text(data)),
        refusals=(InvalidTokenError,),
    ),
    FuzzTarget(
        name="claims of a token",
        seeds=(
            b'{"sub":"alice","exp":90,"iat":10,"nbf":10.5,"scope":["r"],"jti":"x"}',
            b'{"sub":"alice","exp":9e1,"iat":10,"scope":"r w"}',
        ),
        run=check_claims,
        refusals=(InvalidTokenError, ValueError, RecursionError),
    ),
    FuzzTarget(
        name="signed token",
        seeds=(_signed(alg="RS256", kid="a"), _signed(alg="ES256"), _signed(alg="none")),
        run=check_signed,
        refusals=(InvalidTokenError,),
        share=0.3,
    ),
    FuzzTarget(name="key set", seeds=(_KEY_SET,), run=use_keys, refusals=(ValueError,), share=0.3),
    FuzzTarget(
        name="address of a key set",
        seeds=(b"https://idp.example.com:8443/keys?a=b", b"file:///etc/keys", b"http://[::1]/"),
        run=lambda data: key_set_fault(_text(data)),
        refusals=(),
    ),
    FuzzTarget(
        name="rule of Kerberos principals",
        seeds=(rb"RULE:[2:$1@$0](.*@REALM)s/(a)@.*/<$1>\$/g/L", b"DEFAULT"),
        run=lambda data: NameRules([_text(data)], realm="R").short_name("a/b@REALM"),
        refusals=(ValueError,),
    ),
    FuzzTarget(
        name="frames before a login",
        seeds=_conversations(),
        run=converse,
        refusals=(LoginEndedError,),
        share=0.2,
    ),
)
