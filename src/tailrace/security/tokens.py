"""Bearer tokens for a broker: JSON Web Tokens (RFC 7519), signed, or unsecured for development.

    token -> form -> signature by a key of the set -> issuer, audience -> times -> name

`SignedTokens` needs the package PyJWT, which checks signatures, issuer and audience. The times are
checked here, on the broker's clock, by the same rules for both kinds.

Invariant: the algorithm is one of `ALGORITHMS`, which are all asymmetric, and has to fit the type
of the key that the set names. So no token without a signature passes, and none that takes a public
key for a secret (RFC 8725, 3.1).
"""

import base64
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, Final

from tailrace.errors import UNEXPECTED_JSON, MissingExtraError
from tailrace.security.key_set import KeySet, KeySetError
from tailrace.security.oauthbearer import InvalidTokenError, ValidToken
from tailrace.values import dataclass

ALGORITHMS: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", "")),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The type and curve of the key for each algorithm."""

RSA_BITS_MIN: Final = 2048

KEYS_TRIED_MAX: Final = 8
"""Most keys that are tried for a token that does not name its own."""

_SAID_MAX: Final = 200
# JSON may say half of a surrogate pair, which UTF-8 has no bytes for: no request of such a user
# could be forwarded, and no page of metrics with the name be sent.
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
# Later days cannot be shown, and a token has to end before.
_SECONDS_MAX: Final = 253_402_300_799


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The claims that a token must have."""

    issuer: str = ""
    """Its `iss`; empty: any, or none."""
    audiences: tuple[str, ...] = ()
    """One of them is in its `aud`; empty: the token must have none, as in Kafka."""
    name_claim: str = "sub"
    """The claim with the user's name."""
    scope_claim: str = "scope"
    """The claim with the scopes: a list, or a text with spaces."""
    scopes: tuple[str, ...] = ()
    """Scopes that it must have."""
    clock_skew_s: float = 0.0
    """Seconds by which its times may be off."""


class SignedTokens:
    """Checks tokens against a key set."""

    def __init__(self, keys: KeySet, rules: TokenRules, *, now: Callable[[], float]) -> None:
        """`now` gives Unix seconds.

        Raises:
            MissingExtraError: the package PyJWT is not installed.
        """
        missing = [each for each in ("jwt", "cryptography") if find_spec(each) is None]
        if missing:
            names = ["PyJWT" if each == "jwt" else each for each in missing]
            raise MissingExtraError("OAUTHBEARER with a key set", names, extra="oauthbearer")
        self._keys = keys
        self._rules = rules
        self._now = now

    def check(self, token: str) -> ValidToken:
        """The name that a token grants; may wait for the key set.

        Raises:
            InvalidTokenError: it is no such token, or a rule does not hold.
        """
        import jwt

        header, unchecked = parse_token(token)
        user = shown_name(unchecked, self._rules)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise InvalidTokenError(
                f"its algorithm {str(algorithm)[:40]!r} is none of {', '.join(ALGORITHMS)}",
                user=user,
            )
        # RFC 7515, 4.1.11. Not all versions of the package look at it.
        if "crit" in header:
            raise InvalidTokenError(
                "its header has 'crit', which makes extensions a condition that nobody here checks",
                user=user,
            )
        try:
            keys = self._keys.find(header.get("kid"), *ALGORITHMS[algorithm])
        except KeySetError as error:
            raise InvalidTokenError(str(error), user=user) from error
        fitting = [each for each in keys if each.get("alg", algorithm) == algorithm]
        reason = (
            f"no key of the set has the id {str(header.get('kid'))[:80]!r} and fits {algorithm}"
        )
        for key in fitting[:KEYS_TRIED_MAX]:
            try:
                made = jwt.PyJWK(dict(key), algorithm=algorithm)
            except (jwt.PyJWTError, *UNEXPECTED_JSON) as error:
                reason = f"the key {str(key.get('kid'))[:80]!r} of the set cannot be used: {error}"
                continue
            # Only warned of by the package; RFC 7518, 3.3 forbids shorter ones.
            if getattr(made.key, "key_size", RSA_BITS_MIN) < RSA_BITS_MIN and key["kty"] == "RSA":
                reason = f"its key has {made.key.key_size} bits, fewer than {RSA_BITS_MIN}"
                continue
            try:
                claims = jwt.decode(
                    token,
                    made,
                    algorithms=[algorithm],
                    audience=self._rules.audiences or None,
                    issuer=self._rules.issuer or None,
                    options={
                        "require": ["exp", "iat", self._rules.name_claim],
                        # On the broker's clock instead.
                        "verify_exp": False,
                        "verify_iat": False,
                        "verify_nbf": False,
                        # Kafka's rules for these are others, and come after.
                        "verify_sub": False,
                        "verify_jti": False,
                    },
                )
            except jwt.InvalidSignatureError:
                reason = "its signature is wrong"
            except jwt.PyJWTError as error:
                raise InvalidTokenError(str(error)[:_SAID_MAX], user=user) from error
            else:
                return granted(claims, self._rules, now=self._now(), needs_issued_at=True)
        raise InvalidTokenError(reason, user=user)


class UnsecuredTokens:
    """Takes tokens without a signature, which anybody can make: for development alone."""

    def __init__(self, rules: TokenRules, *, now: Callable[[], float]) -> None:
        """`now` gives Unix seconds."""
        self._rules = rules
        self._now = now

    def check(self, token: str) -> ValidToken:
        """The name that a token grants.

        Raises:
            InvalidTokenError: it has a signature, or a rule does not hold.
        """
        header, claims = parse_token(token)
        # A signature that nobody checks would look like safety.
        if header.get("alg") != "none" or not token.endswith("."):
            raise InvalidTokenError(
                "it is signed, and this listener has no key set to check it; set "
                "sasl.oauthbearer.jwks.endpoint.url",
                user=shown_name(claims, self._rules),
            )
        return granted(claims, self._rules, now=self._now(), needs_issued_at=False)


def parse_token(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Header and claims of a token in the compact form; nothing is checked.

    Raises:
        InvalidTokenError: it has another form.
    """
    parts = token.split(".", 3)
    if len(parts) != 3:
        raise InvalidTokenError("it has not the three parts of a JSON Web Token")
    return _parse_part(parts[0], "header"), _parse_part(parts[1], "claims")


def shown_name(claims: Mapping[str, Any], rules: TokenRules) -> str:
    """The name that a token claims, for a log line."""
    name = claims.get(rules.name_claim)
    return name if isinstance(name, str) else ""


def granted(
    claims: Mapping[str, Any], rules: TokenRules, *, now: float, needs_issued_at: bool
) -> ValidToken:
    """The token with these claims, checked at `now`, in Unix seconds.

    Raises:
        InvalidTokenError: a time or claim is wrong; the reason says which.
    """
    user = shown_name(claims, rules)
    name = user.strip()
    if not name or _SURROGATE.search(name):
        raise InvalidTokenError(f"its claim {rules.name_claim!r} is no name")
    expires_at = _seconds(claims, "exp", user=user)
    issued_at = _seconds(claims, "iat", user=user, is_needed=needs_issued_at)
    begins_at = _seconds(claims, "nbf", user=user, is_needed=False)
    assert expires_at is not None
    skew_s = rules.clock_skew_s
    if now - skew_s >= expires_at:
        raise InvalidTokenError(f"it expired at {_day(expires_at, now)}", user=user)
    # From the future: the issuer's clock or this one is wrong.
    for what, at in (("was issued at", issued_at), ("is not valid before", begins_at)):
        if at is not None and at > now + skew_s:
            raise InvalidTokenError(f"it {what} {_day(at, now)}", user=user)
    if issued_at is not None and expires_at <= issued_at:
        raise InvalidTokenError("it expires before it was issued", user=user)
    scopes = _scopes(claims.get(rules.scope_claim), rules, user=user)
    missing = [each for each in rules.scopes if each not in scopes]
    if missing:
        # In Kafka's form, which is that of a list in Java.
        scope = f"[{', '.join(rules.scopes)}]"
        raise InvalidTokenError(f"it lacks the scope {', '.join(missing)}", user=user, scope=scope)
    token_id = claims.get("jti")
    return ValidToken(name, expires_at, token_id if isinstance(token_id, str) else "")


def _parse_part(part: str, what: str) -> Mapping[str, Any]:
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise InvalidTokenError(f"its {what} is not JSON in base64") from None
    if not isinstance(found, dict):
        raise InvalidTokenError(f"its {what} is no JSON object")
    return found


def _seconds(
    claims: Mapping[str, Any], name: str, *, user: str, is_needed: bool = True
) -> float | None:
    value = claims.get(name)
    if value is None and not is_needed:
        return None
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 <= value <= _SECONDS_MAX
    ):
        raise InvalidTokenError(f"its claim {name!r} is no time", user=user)
    return float(value)


def _day(at: float, now: float) -> str:
    """A time, and how far from now it is."""
    text = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    apart = f"{now - at:.0f} s ago" if at <= now else f"in {at - now:.0f} s"
    return f"{text}, {apart}; check the clocks of this machine and of the issuer"


def _scopes(value: object, rules: TokenRules, *, user: str) -> Collection[str]:
    if value is None:
        return ()
    found: Sequence[object] = value.split() if isinstance(value, str) else ()
    if isinstance(value, list):
        found = value
    elif not isinstance(value, str):
        found = (value,)
    texts = [each.strip() for each in found if isinstance(each, str)]
    # As Kafka's ClaimValidationUtils: an empty scope, or one that is there twice, is a mistake.
    if len(texts) < len(found) or not all(texts) or len(set(texts)) < len(texts):
        raise InvalidTokenError(f"its claim {rules.scope_claim!r} is no list of scopes", user=user)
    return texts
