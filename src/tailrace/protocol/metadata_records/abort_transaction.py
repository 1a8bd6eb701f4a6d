"""Records of type 25 of `__cluster_metadata`: a transaction of metadata is aborted (KIP-868)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord:
    """The records since the begin do not count."""

    record_type: ClassVar[int] = 25
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    reason: str | None = wire("string", nullable_since=0, tag=0, default=None)
    """The reason, for the broker's log (KIP-800)."""
