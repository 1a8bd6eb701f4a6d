"""DescribeConfigs (32): settings of topics and brokers, and where each value comes from.

    v1   sources and synonyms (KIP-226)     v4   flexible
    v3   types and documentation (KIP-569)

v2 changes when a throttled client gets its response, and no field (KIP-219).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResource:
    resource_type: int = wire("int8")  # 2: a topic, 4: a broker.
    resource_name: str = wire("string")  # Its name; a broker's is its number.
    # The requested settings; None: all.
    configuration_keys: tuple[str, ...] | None = wire_array("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsRequest:
    first_version, last_version, flexible_since = 1, 4, 4
    resources: tuple[DescribeConfigsResource, ...] = wire_array(DescribeConfigsResource)
    # Whether to list all values of each setting, not only the effective one.
    include_synonyms: bool = wire("bool", since=1)
    include_documentation: bool = wire("bool", since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsSynonym:
    """A value of a setting; values before it in the list take precedence."""

    # The setting with this value: the topic's, or the broker's default for it.
    name: str = wire("string", since=1)
    # The value, as text; None when it is secret.
    value: str | None = wire("string", since=1, nullable_since=0)
    source: int = wire("int8", since=1)  # Origin of the value, Kafka's number.


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResourceResult:
    name: str = wire("string")
    # Its value, as text; None when it is secret.
    value: str | None = wire("string", nullable_since=0)
    read_only: bool = wire("bool")  # Whether it cannot be changed while the broker runs.
    config_source: int = wire("int8", since=1, default=-1)  # Origin of the value, Kafka's number.
    is_sensitive: bool = wire("bool")  # Whether the value is secret.
    # All values of the setting, the effective one first.
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire_array(DescribeConfigsSynonym, since=1)
    config_type: int = wire("int8", since=3)  # Type of the value, Kafka's number.
    documentation: str | None = wire("string", since=3, nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResult:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    resource_type: int = wire("int8")  # 2: a topic, 4: a broker.
    resource_name: str = wire("string")  # Its name; a broker's is its number.
    configs: tuple[DescribeConfigsResourceResult, ...] = wire_array(DescribeConfigsResourceResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponse:
    first_version, last_version, flexible_since = 1, 4, 4
    throttle_time_ms: int = wire("int32")
    results: tuple[DescribeConfigsResult, ...] = wire_array(DescribeConfigsResult)
