"""AllocateProducerIds (67): a broker asks for a block of producer ids (KIP-730)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsRequest:
    first_version, last_version, flexible_since = 0, 0, 0
    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64", default=-1)  # Epoch of the broker's registration.


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    producer_id_start: int = wire("int64")
    producer_id_len: int = wire("int32")
