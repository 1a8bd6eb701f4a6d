"""Control records of type 3: the first of a snapshot (KIP-630)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeaderRecord:
    """The age of the snapshot."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    version: int = wire("int16")
    """The version of this value."""
    last_contained_log_timestamp: int = wire("int64")
    """Time of the last record that is in it, in milliseconds since 1970."""
