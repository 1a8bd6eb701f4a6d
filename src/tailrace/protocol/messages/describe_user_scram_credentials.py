"""DescribeUserScramCredentials (50): the users that can log in by SCRAM (KIP-554)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UserName:
    """A user."""

    name: str = wire("string")
    """The user's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsRequest:
    """Show the credentials of these users, without the passwords."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    users: tuple[UserName, ...] | None = wire_array(UserName, nullable_since=0)
    """The users; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialInfo:
    """One credential of a user."""

    mechanism: int = wire("int8")
    """1: SCRAM-SHA-256, 2: SCRAM-SHA-512."""
    iterations: int = wire("int32")
    """Iterations with which the password was salted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsResult:
    """The result for one user."""

    user: str = wire("string")
    """The user's name."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
    credential_infos: tuple[CredentialInfo, ...] = wire_array(CredentialInfo)
    """The user's credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsResponse:
    """The users."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
    results: tuple[DescribeUserScramCredentialsResult, ...] = wire_array(
        DescribeUserScramCredentialsResult
    )
    """The results."""
