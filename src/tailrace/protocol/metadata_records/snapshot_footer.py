"""Control records of type 4: the last of a snapshot (KIP-630); without it, it is not whole."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFooterRecord:
    """The end."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    version: int = wire("int16")
    """The version of this value."""
