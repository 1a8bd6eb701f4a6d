"""AlterUserScramCredentials (51): sets and removes passwords for SCRAM (KIP-554)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentialDeletion:
    """A credential to remove."""

    name: str = wire("string")
    """The user's name."""
    mechanism: int = wire("int8")
    """1: SCRAM-SHA-256, 2: SCRAM-SHA-512."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentialUpsertion:
    """A credential to set."""

    name: str = wire("string")
    """The user's name."""
    mechanism: int = wire("int8")
    """1: SCRAM-SHA-256, 2: SCRAM-SHA-512."""
    iterations: int = wire("int32")
    """Iterations with which the password was salted."""
    salt: bytes = wire("bytes")
    """The salt."""
    salted_password: bytes = wire("bytes")
    """The salted password; the broker never gets the password itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsRequest:
    """Set and remove these credentials."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    deletions: tuple[ScramCredentialDeletion, ...] = wire_array(ScramCredentialDeletion)
    """The credentials to remove."""
    upsertions: tuple[ScramCredentialUpsertion, ...] = wire_array(ScramCredentialUpsertion)
    """The credentials to set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsResult:
    """The result for one user."""

    user: str = wire("string")
    """The user's name."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsResponse:
    """The results, by user."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    results: tuple[AlterUserScramCredentialsResult, ...] = wire_array(
        AlterUserScramCredentialsResult
    )
    """The results."""
