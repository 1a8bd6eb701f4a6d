"""AddOffsetsToTxn (25): a producer takes the offsets of a consumer group into its transaction.

    v2   PRODUCER_FENCED                    v3   flexible

v4 adds an error and changes no field (KIP-890).
"""

from dataclasses import dataclass
from typing import ClassVar

from tailrace.protocol.fields import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsToTxnRequest:
    """Take this group's offsets in."""

    flexible_since: ClassVar[int] = 3

    transactional_id: str = wire("string")
    """The transactional id."""
    producer_id: int = wire("int64")
    """The producer's id."""
    producer_epoch: int = wire("int16")
    """Its epoch."""
    group_id: str = wire("string")
    """The consumer group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsToTxnResponse:
    """Whether they are in."""

    flexible_since: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32")
    """How long the client is held back by a quota."""
    error_code: int = wire("int16")
    """0, or why not."""
