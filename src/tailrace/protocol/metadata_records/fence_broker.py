"""Records of type 7 of `__cluster_metadata`: a broker is fenced; before Kafka 3.3."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBrokerRecord:
    """A broker; it leads no partition from now on."""

    record_type: ClassVar[int] = 7
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    id: int = wire("int32")
    """The broker."""
    epoch: int = wire("int64")
    """Epoch of its registration."""
