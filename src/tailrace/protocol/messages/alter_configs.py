"""AlterConfigs (33): replaces all settings of topics or brokers.

v2   flexible

v1 changes when a throttled client gets its response, and no field (KIP-219). Current clients send
IncrementalAlterConfigs (44) instead.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterableConfig:
    name: str = wire("string")
    value: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResource:
    resource_type: int = wire("int8")  # 2: a topic, 4: a broker.
    resource_name: str = wire("string")  # Its name; a broker's is its number.
    # Its settings from now on; all others go back to their defaults.
    configs: tuple[AlterableConfig, ...] = wire_array(AlterableConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsRequest:
    """Replace the settings of these topics and brokers."""

    first_version, last_version, flexible_since = 0, 2, 2
    resources: tuple[AlterConfigsResource, ...] = wire_array(AlterConfigsResource)
    validate_only: bool = wire("bool")  # Whether to check the request and change nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResourceResponse:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    resource_type: int = wire("int8")  # 2: a topic, 4: a broker.
    resource_name: str = wire("string")  # Its name; a broker's is its number.


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResponse:
    first_version, last_version, flexible_since = 0, 2, 2
    throttle_time_ms: int = wire("int32")
    responses: tuple[AlterConfigsResourceResponse, ...] = wire_array(AlterConfigsResourceResponse)
