"""Control records of type 2: a controller leads from here on (KIP-595)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """A voter."""

    voter_id: int = wire("int32")
    """The controller."""
    voter_directory_id: UUID = wire("uuid", since=1)
    """The id of its metadata directory (KIP-853)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChangeMessage:
    """The leader and the voters; Kafka 4.3 writes version 0."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 0

    version: int = wire("int16")
    """The version of this value."""
    leader_id: int = wire("int32")
    """The controller that leads."""
    voters: tuple[Voter, ...] = wire_array(Voter)
    """All voters."""
    granting_voters: tuple[Voter, ...] = wire_array(Voter)
    """The voters that chose it."""
