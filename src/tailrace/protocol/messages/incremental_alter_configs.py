"""IncrementalAlterConfigs (44): changes to single settings; the others stay (KIP-339).

v1   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterableConfig:
    """A change to one setting."""

    name: str = wire("string")
    """The setting."""
    config_operation: int = wire("int8")
    """0: set, 1: back to the default, 2: append to a list, 3: take from a list."""
    value: str | None = wire("string", nullable_since=0)
    """The value, as text; operation 1 ignores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsResource:
    """A topic or broker and the changes to its settings."""

    resource_type: int = wire("int8")
    """2: a topic, 4: a broker."""
    resource_name: str = wire("string")
    """Its name; a broker's is its number."""
    configs: tuple[IncrementalAlterableConfig, ...] = wire_array(IncrementalAlterableConfig)
    """The changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsRequest:
    """Change settings of these topics and brokers."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 1

    resources: tuple[IncrementalAlterConfigsResource, ...] = wire_array(
        IncrementalAlterConfigsResource
    )
    """The topics and brokers."""
    validate_only: bool = wire("bool")
    """Whether to check the request and change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsResourceResponse:
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
class IncrementalAlterConfigsResponse:
    """The results of the changes."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 1

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    responses: tuple[IncrementalAlterConfigsResourceResponse, ...] = wire_array(
        IncrementalAlterConfigsResourceResponse
    )
    """The results, by resource."""
