"""PushTelemetry (72): metrics of a client (KIP-714)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTelemetryRequest:
    """Take these metrics."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    client_instance_id: UUID = wire("uuid")
    """The client; zeros: it has no id yet."""
    subscription_id: int = wire("int32")
    """The set of metrics that the client is asked for."""
    terminating: bool = wire("bool")
    """Whether it is the last push of the client."""
    compression_type: int = wire("int8")
    """Codec of the metrics, by Kafka's number."""
    metrics: bytes = wire("bytes")
    """The metrics, as OpenTelemetry's MetricsData v1 in Protobuf."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTelemetryResponse:
    """Whether the metrics were taken."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
