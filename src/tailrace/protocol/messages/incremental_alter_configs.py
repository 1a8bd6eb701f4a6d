"""IncrementalAlterConfigs (44): changes to single settings; the others stay (KIP-339).

v1   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterableConfig:
    name: str = wire("string")
    # 0: set, 1: back to the default, 2: append to a list, 3: take from a list.
    config_operation: int = wire("int8")
    # The value, as text; operation 1 ignores it.
    value: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsResource:
    resource_type: int = wire("int8")  # 2: a topic, 4: a broker.
    resource_name: str = wire("string")  # Its name; a broker's is its number.
    configs: tuple[IncrementalAlterableConfig, ...] = wire_array(IncrementalAlterableConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsRequest:
    first_version, last_version, flexible_since = 0, 1, 1
    resources: tuple[IncrementalAlterConfigsResource, ...] = wire_array(
        IncrementalAlterConfigsResource
    )
    validate_only: bool = wire("bool")  # Whether to check the request and change nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsResourceResponse:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    resource_type: int = wire("int8")  # 2: a topic, 4: a broker.
    resource_name: str = wire("string")  # Its name; a broker's is its number.


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsResponse:
    first_version, last_version, flexible_since = 0, 1, 1
    throttle_time_ms: int = wire("int32")
    responses: tuple[IncrementalAlterConfigsResourceResponse, ...] = wire_array(
        IncrementalAlterConfigsResourceResponse
    )
