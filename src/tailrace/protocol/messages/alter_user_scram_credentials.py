"""AlterUserScramCredentials (51): sets and removes passwords for SCRAM (KIP-554)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentialDeletion:
    name: str = wire("string")
    mechanism: int = wire("int8")  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512.


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentialUpsertion:
    name: str = wire("string")
    mechanism: int = wire("int8")  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512.
    iterations: int = wire("int32")
    salt: bytes = wire("bytes")
    # The salted password; the broker never gets the password itself.
    salted_password: bytes = wire("bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsRequest:
    first_version, last_version, flexible_since = 0, 0, 0
    deletions: tuple[ScramCredentialDeletion, ...] = wire_array(ScramCredentialDeletion)
    upsertions: tuple[ScramCredentialUpsertion, ...] = wire_array(ScramCredentialUpsertion)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsResult:
    user: str = wire("string")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    throttle_time_ms: int = wire("int32")
    results: tuple[AlterUserScramCredentialsResult, ...] = wire_array(
        AlterUserScramCredentialsResult
    )
