"""Control records of type 5: the version of the quorum's protocol (KIP-853)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionRecord:
    """The version from here on."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    version: int = wire("int16")
    """The version of this value."""
    kraft_version: int = wire("int16")
    """0: the settings name the voters; 1: the log does."""
