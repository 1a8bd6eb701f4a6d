"""AddOffsetsToTxn (25): a producer adds the offsets of a consumer group to its transaction.

    v2   PRODUCER_FENCED                    v3   flexible

v4 adds an error and changes no field (KIP-890).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsToTxnRequest:
    first_version, last_version, flexible_since = 0, 4, 3
    transactional_id: str = wire("string")
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    group_id: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsToTxnResponse:
    first_version, last_version, flexible_since = 0, 4, 3
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
