"""GetTelemetrySubscriptions (71): the metrics that a client has to push (KIP-714)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTelemetrySubscriptionsRequest:
    first_version, last_version, flexible_since = 0, 0, 0
    client_instance_id: UUID = wire("uuid")  # The client; zeros: it has no id yet.


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTelemetrySubscriptionsResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    client_instance_id: UUID = wire("uuid")  # The new id of a client that had none; else zeros.
    subscription_id: int = wire("int32")  # The set of metrics that the client is asked for.
    # Codecs that the broker takes, Kafka's number, the preferred one first.
    accepted_compression_types: tuple[int, ...] = wire_array("int8")
    push_interval_ms: int = wire("int32")  # Time between two pushes.
    telemetry_max_bytes: int = wire("int32")  # Most bytes of metrics in one push.
    # Whether counters are sent as differences; else as totals.
    delta_temporality: bool = wire("bool")
    # Prefixes of the names of metrics; empty: none, one empty prefix: all.
    requested_metrics: tuple[str, ...] = wire_array("string")
