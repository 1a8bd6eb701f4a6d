"""RemoveRaftVoter (81): removes a controller from the voters of the quorum (KIP-853)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRaftVoterRequest:
    first_version, last_version, flexible_since = 0, 0, 0
    cluster_id: str | None = wire("string", nullable_since=0)
    voter_id: int = wire("int32")
    voter_directory_id: UUID = wire("uuid")  # Id of the directory of its metadata log.


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRaftVoterResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
