"""Bearer tokens at a broker: which are taken, and what is said of those that are not."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tailrace.client.nodes.oauth import unsecured_token
from tailrace.security.key_set import KeySet, KeySetSource
from tailrace.security.oauthbearer import InvalidTokenError, ValidToken
from tailrace.security.tokens import SignedTokens, TokenRules, UnsecuredTokens
from tests.unit.security.token_issuer import NOW, jwt, key_set, private_key, public_key, token

RULES = TokenRules(clock_skew_s=30.0)


@pytest.fixture
def keys(tmp_path: Path) -> KeySet:
    """A set with a key of each kind."""
    path = tmp_path / "keys.json"
    path.write_bytes(
        key_set(
            public_key("RSA", kid="one"),
            public_key("EC", kid="two", alg="ES256", use="sig"),
            public_key("OKP", kid="three"),
            public_key("RSA", kid="encrypts", use="enc"),
            {"kty": "oct", "kid": "shared", "k": base64.urlsafe_b64encode(b"x" * 32).decode()},
        )
    )
    return KeySet(KeySetSource(url=path.as_uri()))


def check(keys: KeySet, text: str, rules: TokenRules = RULES, *, now: float = NOW) -> ValidToken:
    """The result for a token."""
    return SignedTokens(keys, rules, now=lambda: now).check(text)


def reason(keys: KeySet, text: str, rules: TokenRules = RULES, *, now: float = NOW) -> str:
    """Why a token is refused."""
    with pytest.raises(InvalidTokenError) as refused:
        check(keys, text, rules, now=now)
    return refused.value.reason


@pytest.mark.parametrize(
    ("kind", "algorithm", "key_id"),
    [
        ("RSA", "RS256", "one"), ("RSA", "RS512", "one"), ("RSA", "PS384", "one"),
        ("EC", "ES256", "two"), ("OKP", "EdDSA", "three"), ("RSA", "RS256", None),
    ],
)  # fmt: skip
def test_a_signed_token_grants_its_subject(
    keys: KeySet, kind: str, algorithm: str, key_id: str | None
) -> None:
    """A token by a key of the set logs its subject in until it expires."""
    text = token(kind=kind, algorithm=algorithm, key_id=key_id, jti="t1")
    assert check(keys, text) == ValidToken("alice", int(NOW) + 300, "t1")


def test_a_token_without_a_signature_is_refused(keys: KeySet) -> None:
    """With a key set there is no algorithm `none`, however it is written."""
    text = unsecured_token({"sub": "alice"}, lifetime_s=60, wall=lambda: NOW).value
    assert "algorithm 'none'" in reason(keys, text)
    head = base64.urlsafe_b64encode(b'{"alg":"nOnE"}').decode().rstrip("=")
    assert "algorithm 'nOnE'" in reason(keys, head + text[text.index(".") :])


def test_a_public_key_is_no_secret(keys: KeySet) -> None:
    """A token that takes the public key, or a symmetric key of the set, for a secret is refused."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = private_key("RSA").public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )  # fmt: skip
    signed = jwt.api_jws.PyJWS()
    hs256 = signed.get_algorithm_by_name("HS256")
    head, body, _ = token().split(".")
    for key_id, secret in (("one", pem), ("shared", b"x" * 32)):
        header = json.dumps({"alg": "HS256", "kid": key_id}).encode()
        head = base64.urlsafe_b64encode(header).decode().rstrip("=")
        mark = base64.urlsafe_b64encode(hs256.sign(f"{head}.{body}".encode(), secret)).decode()
        assert "algorithm 'HS256'" in reason(keys, f"{head}.{body}.{mark.rstrip('=')}")


def test_a_token_with_conditions_of_its_own_is_refused(keys: KeySet) -> None:
    """Its issuer demands with `crit` that an extension is checked, and there is none here."""
    _, body, _ = token().split(".")
    header = {"alg": "RS256", "kid": "one", "crit": ["only-at"], "only-at": "other.example"}
    head = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
    rs256 = jwt.api_jws.PyJWS().get_algorithm_by_name("RS256")
    signature = rs256.sign(f"{head}.{body}".encode(), private_key("RSA"))
    mark = base64.urlsafe_b64encode(signature).decode().rstrip("=")
    assert "its header has 'crit'" in reason(keys, f"{head}.{body}.{mark}")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"kind": "EC", "algorithm": "ES256", "key_id": "one"}, "no key of the set has the id"),
        ({"key_id": "four"}, "no key of the set has the id 'four'"),
        ({"key_id": "encrypts"}, "no key of the set has the id 'encrypts'"),
        ({"kind": "OKP", "algorithm": "EdDSA", "key_id": "two"}, "no key of the set"),
    ],
)
def test_the_key_has_to_fit(keys: KeySet, made: Mapping[str, Any], said: str) -> None:
    """The algorithm fits the type and use of the key that the token names."""
    assert said in reason(keys, token(**made))


def test_a_changed_token_is_refused(keys: KeySet) -> None:
    """A token whose claims were changed has a wrong signature."""
    head, _, mark = token().split(".")
    _, body, _ = token(sub="root").split(".")
    assert reason(keys, f"{head}.{body}.{mark}") == "its signature is wrong"


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": NOW - 31}, "it expired at 2027-01-15T07:59:29Z, 31 s ago"),
        ({"iat": NOW + 31}, "it was issued at 2027-01-15T08:00:31Z, in 31 s"),
        ({"nbf": NOW + 31}, "it is not valid before 2027-01-15T08:00:31Z, in 31 s"),
        ({"iat": NOW + 20, "exp": NOW + 10}, "it expires before it was issued"),
        ({"exp": None}, "exp"), ({"iat": None}, "iat"), ({"sub": None}, "sub"),
        ({"sub": ""}, "its claim 'sub' is no name"), ({"sub": 7}, "its claim 'sub' is no name"),
        ({"sub": "half of \ud83d"}, "its claim 'sub' is no name"),
        ({"exp": 10**400}, "its claim 'exp' is no time"), ({"exp": -1}, "'exp' is no time"),
        ({"iat": "soon"}, "'iat' is no time"), ({"nbf": True}, "'nbf' is no time"),
        ({"scope": ["a", "a"]}, "no list of scopes"), ({"scope": ["a", ""]}, "no list of scopes"),
        ({"scope": [1]}, "no list of scopes"), ({"scope": {}}, "no list of scopes"),
    ],
)  # fmt: skip
def test_the_operator_learns_which_claim_is_wrong(
    keys: KeySet, claims: Mapping[str, Any], said: str
) -> None:
    """The reason has the time and how far it is off, or the claim."""
    assert said in reason(keys, token(**claims))


@pytest.mark.parametrize("claims", [{"exp": NOW - 29}, {"iat": NOW + 29}, {"nbf": NOW + 29}])
def test_clocks_may_be_off_by_the_skew(keys: KeySet, claims: Mapping[str, Any]) -> None:
    """Times are taken that are off by less than `sasl.oauthbearer.clock.skew.seconds`."""
    claims = {"iat": NOW - 300, **claims}
    assert check(keys, token(**claims)).name == "alice"


@pytest.mark.parametrize(
    ("rules", "claims", "is_taken"),
    [
        ({"issuer": "https://idp"}, {"iss": "https://idp"}, True),
        ({"issuer": "https://idp"}, {"iss": "https://other"}, False),
        ({"issuer": "https://idp"}, {}, False),
        ({}, {"iss": "https://other"}, True),
        ({"audiences": ("kafka", "b")}, {"aud": "kafka"}, True),
        ({"audiences": ("kafka", "b")}, {"aud": ["x", "b"]}, True),
        ({"audiences": ("kafka",)}, {"aud": ["x"]}, False),
        ({"audiences": ("kafka",)}, {}, False),
        ({}, {"aud": "kafka"}, False),
        ({"name_claim": "azp"}, {"azp": "alice"}, True),
        ({"name_claim": "azp"}, {}, False),
        ({"scope_claim": "scp", "scopes": ("w",)}, {"scp": "r w"}, True),
        ({"scopes": ("w",)}, {"scope": ["r"]}, False),
    ],
)
def test_issuer_audience_and_names_of_claims(
    keys: KeySet, rules: Mapping[str, Any], claims: Mapping[str, Any], *, is_taken: bool
) -> None:
    """The claims that the settings name have to be there, with one of the expected values."""
    text = token(**claims)
    if is_taken:
        assert check(keys, text, TokenRules(**rules)).name == "alice"
    else:
        assert reason(keys, text, TokenRules(**rules))


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.c", "a.b.c.d", "e30.e30.", "W10.W10.x"])
def test_other_texts_are_refused(keys: KeySet, text: str) -> None:
    """A text that is no JSON Web Token is refused."""
    assert reason(keys, text)


def test_the_name_in_a_refused_token_is_known(keys: KeySet) -> None:
    """The log of the operator can say for whom a refused token was made."""
    with pytest.raises(InvalidTokenError) as refused:
        check(keys, token(exp=int(NOW) - 1000))
    assert refused.value.user == "alice"


def unsecured(claims: Mapping[str, object], **rules: Any) -> ValidToken:
    """The result for a token without a signature, for a listener that allows them."""
    text = unsecured_token(claims, lifetime_s=60, wall=lambda: NOW).value
    return UnsecuredTokens(TokenRules(**rules), now=lambda: NOW).check(text)


def test_unsecured_tokens_grant_what_they_say() -> None:
    """A token of Kafka's login module for development logs in."""
    assert unsecured({"sub": "bob"}) == ValidToken("bob", NOW + 60)
    assert unsecured({"sub": "bob", "scope": "r w"}, scopes=("w",)).name == "bob"


@pytest.mark.parametrize("claims", [{}, {"sub": ""}, {"sub": 7}, {"sub": None}, {"sub": "\udc00"}])
def test_an_unsecured_token_has_a_name_and_an_end(claims: Mapping[str, object]) -> None:
    """One without a name is refused, and one whose time is over."""
    with pytest.raises(InvalidTokenError, match="sub"):
        unsecured(claims)
    text = unsecured_token({"sub": "bob"}, lifetime_s=60, wall=lambda: NOW).value
    with pytest.raises(InvalidTokenError):
        UnsecuredTokens(TokenRules(), now=lambda: NOW + 200).check(text)


def test_an_unsecured_token_lacks_a_scope() -> None:
    """The client is sent the scopes that a token has to have."""
    with pytest.raises(InvalidTokenError) as refused:
        unsecured({"sub": "bob", "scope": "r"}, scopes=("r", "w"))
    assert refused.value.scope == "[r, w]"


def test_a_signed_token_is_not_unsecured() -> None:
    """A signed token is refused where nothing can check its signature."""
    with pytest.raises(InvalidTokenError, match=r"jwks\.endpoint\.url"):
        UnsecuredTokens(TokenRules(), now=lambda: NOW).check(token())
