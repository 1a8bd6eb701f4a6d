"""EndTxn (26): a producer commits or aborts its transaction.

    v2   PRODUCER_FENCED                    v3   flexible

v4 adds an error and changes no field. With v5 the coordinator raises the epoch at the end of every
transaction, and the answer has it (KIP-890).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnRequest:
    first_version, last_version, flexible_since = 0, 5, 3
    transactional_id: str = wire("string")
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    committed: bool = wire("bool")  # Whether to commit; else it is aborted.


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnResponse:
    first_version, last_version, flexible_since = 0, 5, 3
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    # The producer id of the next transaction; -1 with an error.
    producer_id: int = wire("int64", since=5, default=-1)
    producer_epoch: int = wire("int16", since=5, default=-1)  # Its epoch; -1 with an error.
