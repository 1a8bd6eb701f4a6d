"""Makes signed tokens and the key set that goes with them."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

jwt = pytest.importorskip("jwt", reason="needs PyJWT: pip install 'tailrace[oauthbearer]'")

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: E402
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm  # noqa: E402

NOW = 1_800_000_000.0
CLAIMS: Mapping[str, Any] = {"sub": "alice", "iat": int(NOW) - 60, "exp": int(NOW) + 300}


@cache
def private_key(kind: str) -> Any:
    """A key of a kind: RSA, EC or OKP; the same each time."""
    match kind:
        case "RSA":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case "EC":
            return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate()


def public_key(kind: str, **more: str) -> dict[str, Any]:
    """The public part of a key, as a key set has it."""
    made: Any = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}[kind]
    return {**made.to_jwk(private_key(kind).public_key(), as_dict=True), **more}


def key_set(*keys: Mapping[str, Any]) -> bytes:
    """A key set with these keys."""
    return json.dumps({"keys": keys}).encode()


def token(
    claims: Mapping[str, Any] = CLAIMS,
    *,
    kind: str = "RSA",
    algorithm: str = "RS256",
    key_id: str | None = "one",
    **more: Any,
) -> str:
    """A signed token; claims that are None are left out."""
    found = {name: value for name, value in {**claims, **more}.items() if value is not None}
    headers = {} if key_id is None else {"kid": key_id}
    made: str = jwt.encode(found, private_key(kind), algorithm=algorithm, headers=headers)
    return made
