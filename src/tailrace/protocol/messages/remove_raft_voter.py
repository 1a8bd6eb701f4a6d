"""RemoveRaftVoter (81): removes a controller from the voters of the quorum (KIP-853)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRaftVoterRequest:
    """Remove a voter."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    cluster_id: str | None = wire("string", nullable_since=0)
    """The cluster's id."""
    voter_id: int = wire("int32")
    """Its node id."""
    voter_directory_id: UUID = wire("uuid")
    """Id of the directory of its metadata log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRaftVoterResponse:
    """Whether it was removed."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
