"""DescribeConfigs (32): settings of topics and brokers, and where each value comes from.

    v1   sources and synonyms (KIP-226)     v4   flexible
    v3   types and documentation (KIP-569)

v2 changes when a throttled client gets its response, and no field (KIP-219).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResource:
    """A topic or broker and the names of the requested settings."""

    resource_type: int = wire("int8")
    """2: a topic, 4: a broker."""
    resource_name: str = wire("string")
    """Its name; a broker's is its number."""
    configuration_keys: tuple[str, ...] | None = wire_array("string", nullable_since=0)
    """The requested settings; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsRequest:
    """Describe the settings of these topics and brokers."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 4

    resources: tuple[DescribeConfigsResource, ...] = wire_array(DescribeConfigsResource)
    """The topics and brokers."""
    include_synonyms: bool = wire("bool", since=1)
    """Whether to list all values of each setting, not only the effective one."""
    include_documentation: bool = wire("bool", since=3)
    """Whether to include the documentation of each setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsSynonym:
    """A value of a setting; values before it in the list take precedence."""

    name: str = wire("string", since=1)
    """The setting with this value: the topic's, or the broker's default for it."""
    value: str | None = wire("string", since=1, nullable_since=0)
    """The value, as text; None when it is secret."""
    source: int = wire("int8", since=1)
    """Origin of the value, by Kafka's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResourceResult:
    """One setting."""

    name: str = wire("string")
    """The setting."""
    value: str | None = wire("string", nullable_since=0)
    """Its value, as text; None when it is secret."""
    read_only: bool = wire("bool")
    """Whether it cannot be changed while the broker runs."""
    config_source: int = wire("int8", since=1, default=-1)
    """Origin of the value, by Kafka's number."""
    is_sensitive: bool = wire("bool")
    """Whether the value is secret."""
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire_array(DescribeConfigsSynonym, since=1)
    """All values of the setting, the effective one first."""
    config_type: int = wire("int8", since=3)
    """Type of the value, by Kafka's number."""
    documentation: str | None = wire("string", since=3, nullable_since=0)
    """Description of the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResult:
    """The settings of one resource."""

    error_code: int = wire("int16")
    """0, or why there are none."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
    resource_type: int = wire("int8")
    """The type that the request names."""
    resource_name: str = wire("string")
    """The name that the request gives."""
    configs: tuple[DescribeConfigsResourceResult, ...] = wire_array(DescribeConfigsResourceResult)
    """Its settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponse:
    """The settings."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 4

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    results: tuple[DescribeConfigsResult, ...] = wire_array(DescribeConfigsResult)
    """The settings, by resource."""
