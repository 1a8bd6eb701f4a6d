"""AlterConfigs (33): replaces all settings of topics or brokers.

v2   flexible

v1 changes when a throttled client gets its response, and no field (KIP-219). Current clients send
IncrementalAlterConfigs (44) instead.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterableConfig:
    """A setting and its value."""

    name: str = wire("string")
    """The setting."""
    value: str | None = wire("string", nullable_since=0)
    """The value, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResource:
    """A topic or broker and its new settings."""

    resource_type: int = wire("int8")
    """2: a topic, 4: a broker."""
    resource_name: str = wire("string")
    """Its name; a broker's is its number."""
    configs: tuple[AlterableConfig, ...] = wire_array(AlterableConfig)
    """Its settings from now on; all others go back to their defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsRequest:
    """Replace the settings of these topics and brokers."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    resources: tuple[AlterConfigsResource, ...] = wire_array(AlterConfigsResource)
    """The topics and brokers."""
    validate_only: bool = wire("bool")
    """Whether to check the request and change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResourceResponse:
    """The result for one resource."""

    error_code: int = wire("int16")
    """0, or why nothing was changed."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
    resource_type: int = wire("int8")
    """The type that the request names."""
    resource_name: str = wire("string")
    """The name that the request gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResponse:
    """The results of the changes."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    responses: tuple[AlterConfigsResourceResponse, ...] = wire_array(AlterConfigsResourceResponse)
    """The results, by resource."""
