"""UnregisterBroker (64): makes the cluster forget a broker that will not come back (KIP-631)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRequest:
    first_version, last_version, flexible_since = 0, 0, 0
    broker_id: int = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
