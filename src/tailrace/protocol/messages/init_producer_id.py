"""InitProducerId (22): an id for a producer, so that its retries are not appended twice.

    v2   flexible                           v3   the producer's id and epoch (KIP-360)

v4 and v5 add errors and change no field (KIP-588, KIP-890). v6 (KIP-939) is not here: Kafka 4.3
does not advertise it.
"""

from dataclasses import dataclass
from typing import ClassVar

from tailrace.protocol.fields import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdRequest:
    """Give me an id."""

    flexible_since: ClassVar[int] = 2

    transactional_id: str | None = wire("string", nullable_since=0)
    """The transactional id; None: the producer is idempotent and no more."""
    transaction_timeout_ms: int = wire("int32")
    """How long a transaction may stay open."""
    producer_id: int = wire("int64", since=3, default=-1)
    """The id that the producer has, when it asks for a new epoch."""
    producer_epoch: int = wire("int16", since=3, default=-1)
    """The epoch that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdResponse:
    """The id."""

    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """How long the client is held back by a quota."""
    error_code: int = wire("int16")
    """0, or why there is none."""
    producer_id: int = wire("int64", default=-1)
    """The id."""
    producer_epoch: int = wire("int16")
    """Its epoch."""
