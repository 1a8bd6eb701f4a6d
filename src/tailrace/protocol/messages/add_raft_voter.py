"""AddRaftVoter (80): adds a controller to the voters of the quorum (KIP-853).

v1   an answer before the record is committed
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    name: str = wire("string")
    host: str = wire("string")
    port: int = wire("uint16")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRaftVoterRequest:
    first_version, last_version, flexible_since = 0, 1, 0
    cluster_id: str | None = wire("string", nullable_since=0)
    timeout_ms: int = wire("int32")
    voter_id: int = wire("int32")
    voter_directory_id: UUID = wire("uuid")  # Id of the directory of its metadata log.
    listeners: tuple[Listener, ...] = wire_array(Listener)
    # Whether to answer when the voters are committed.
    ack_when_committed: bool = wire("bool", since=1, default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRaftVoterResponse:
    first_version, last_version, flexible_since = 0, 1, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
