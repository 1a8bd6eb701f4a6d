"""Records of type 23 of `__cluster_metadata`: a transaction of metadata begins (KIP-868)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord:
    """The records up to the end of the transaction count together, or not at all."""

    record_type: ClassVar[int] = 23
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    name: str | None = wire("string", nullable_since=0, tag=0, default=None)
    """Its purpose, for people who read the log."""
