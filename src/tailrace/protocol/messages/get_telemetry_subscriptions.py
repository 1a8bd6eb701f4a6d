"""GetTelemetrySubscriptions (71): the metrics that a client has to push (KIP-714)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTelemetrySubscriptionsRequest:
    """Ask which metrics to push."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    client_instance_id: UUID = wire("uuid")
    """The client; zeros: it has no id yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTelemetrySubscriptionsResponse:
    """The metrics to push, and when."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
    client_instance_id: UUID = wire("uuid")
    """The new id of a client that had none; else zeros."""
    subscription_id: int = wire("int32")
    """The set of metrics that the client is asked for."""
    accepted_compression_types: tuple[int, ...] = wire_array("int8")
    """Codecs that the broker takes, by Kafka's number, the preferred one first."""
    push_interval_ms: int = wire("int32")
    """Time between two pushes, in milliseconds."""
    telemetry_max_bytes: int = wire("int32")
    """Most bytes of metrics in one push."""
    delta_temporality: bool = wire("bool")
    """Whether counters are sent as differences; else as totals."""
    requested_metrics: tuple[str, ...] = wire_array("string")
    """Prefixes of the names of metrics; empty: none, one empty prefix: all."""
