"""DescribeUserScramCredentials (50): the users that can log in by SCRAM (KIP-554)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UserName:
    name: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsRequest:
    first_version, last_version, flexible_since = 0, 0, 0
    # The users; None: all.
    users: tuple[UserName, ...] | None = wire_array(UserName, nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialInfo:
    mechanism: int = wire("int8")  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512.
    iterations: int = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsResult:
    user: str = wire("string")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    credential_infos: tuple[CredentialInfo, ...] = wire_array(CredentialInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    results: tuple[DescribeUserScramCredentialsResult, ...] = wire_array(
        DescribeUserScramCredentialsResult
    )
