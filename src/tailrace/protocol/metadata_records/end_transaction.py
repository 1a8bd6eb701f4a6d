"""Records of type 24 of `__cluster_metadata`: a transaction of metadata ends (KIP-868)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord:
    """The records since the begin count."""

    record_type: ClassVar[int] = 24
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0
