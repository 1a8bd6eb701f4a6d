"""Control records of type 6: the voters (KIP-853)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a listener."""

    name: str = wire("string")
    """The listener."""
    host: str = wire("string")
    """Host name to connect to."""
    port: int = wire("uint16")
    """Port to connect to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionFeature:
    """A range of versions."""

    min_supported_version: int = wire("int16")
    """Lowest version."""
    max_supported_version: int = wire("int16")
    """Highest version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """A voter."""

    voter_id: int = wire("int32")
    """The controller."""
    voter_directory_id: UUID = wire("uuid")
    """The id of its metadata directory."""
    endpoints: tuple[Endpoint, ...] = wire_array(Endpoint)
    """Addresses of its listeners."""
    kraft_version_feature: KRaftVersionFeature = wire(KRaftVersionFeature)
    """Versions of the quorum's protocol that it supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersRecord:
    """The voters from here on."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    version: int = wire("int16")
    """The version of this value."""
    voters: tuple[Voter, ...] = wire_array(Voter)
    """All of them."""
