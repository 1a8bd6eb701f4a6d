"""Records of type 11 of `__cluster_metadata`: a user's SCRAM credential (KIP-900)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord:
    """The form of a password that a server keeps, for one mechanism."""

    record_type: ClassVar[int] = 11
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    name: str = wire("string")
    """The user."""
    mechanism: int = wire("int8")
    """1: SCRAM-SHA-256, 2: SCRAM-SHA-512."""
    salt: bytes = wire("bytes")
    """The salt."""
    stored_key: bytes = wire("bytes")
    """The hash of the client's key."""
    server_key: bytes = wire("bytes")
    """The server's key."""
    iterations: int = wire("int32")
    """Iterations of the hash."""
