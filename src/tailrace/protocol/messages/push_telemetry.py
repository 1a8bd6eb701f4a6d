"""PushTelemetry (72): metrics of a client (KIP-714)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTelemetryRequest:
    first_version, last_version, flexible_since = 0, 0, 0
    client_instance_id: UUID = wire("uuid")  # The client; zeros: it has no id yet.
    subscription_id: int = wire("int32")  # The set of metrics that the client is asked for.
    terminating: bool = wire("bool")  # Whether it is the last push of the client.
    compression_type: int = wire("int8")  # Codec of the metrics, Kafka's number.
    metrics: bytes = wire("bytes")  # The metrics, as OpenTelemetry's MetricsData v1 in Protobuf.


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTelemetryResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
