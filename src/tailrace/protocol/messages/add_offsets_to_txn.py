"""AddOffsetsToTxn (25): a producer adds the offsets of a consumer group to its transaction.

    v2   PRODUCER_FENCED                    v3   flexible

v4 adds an error and changes no field (KIP-890).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsToTxnRequest:
    """Add the offsets of this group to the transaction."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 3

    transactional_id: str = wire("string")
    """The transactional id."""
    producer_id: int = wire("int64")
    """The producer's id."""
    producer_epoch: int = wire("int16")
    """The producer's epoch."""
    group_id: str = wire("string")
    """The consumer group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsToTxnResponse:
    """Whether the offsets were added."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
