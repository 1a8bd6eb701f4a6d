"""ListConfigResources (74): the names of resources that have settings (KIP-714).

v1   all types of resources (KIP-1142)

In v0 it lists subscriptions of client metrics alone.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConfigResourcesRequest:
    first_version, last_version, flexible_since = 0, 1, 0
    # The types of resources; empty: all.
    resource_types: tuple[int, ...] = wire_array("int8", since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResource:
    resource_name: str = wire("string")  # Its name; a broker's is its number.
    # 2: a topic, 4: a broker, 8: a broker's loggers, 16: client metrics, 32: a group.
    resource_type: int = wire("int8", since=1, default=16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConfigResourcesResponse:
    first_version, last_version, flexible_since = 0, 1, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    config_resources: tuple[ConfigResource, ...] = wire_array(ConfigResource)
