"""Records of type 28 of `__cluster_metadata`: eligible leader replicas are forgotten (KIP-966)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord:
    """The partitions of a topic have no eligible leader replicas any more."""

    record_type: ClassVar[int] = 28
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    topic_name: str = wire("string")
    """The topic; empty: all topics."""
