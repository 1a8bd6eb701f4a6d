"""AddRaftVoter (80): adds a controller to the voters of the quorum (KIP-853).

v1   an answer before the record is committed
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listener of the new voter."""

    name: str = wire("string")
    """The listener's name."""
    host: str = wire("string")
    """Host name to connect to."""
    port: int = wire("uint16")
    """Port to connect to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRaftVoterRequest:
    """Add a voter."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 0

    cluster_id: str | None = wire("string", nullable_since=0)
    """The cluster's id."""
    timeout_ms: int = wire("int32")
    """Longest time to wait for the result, in milliseconds."""
    voter_id: int = wire("int32")
    """Its node id."""
    voter_directory_id: UUID = wire("uuid")
    """Id of the directory of its metadata log."""
    listeners: tuple[Listener, ...] = wire_array(Listener)
    """Its listeners."""
    ack_when_committed: bool = wire("bool", since=1, default=True)
    """Whether to answer when the voters are committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRaftVoterResponse:
    """Whether it was added."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
