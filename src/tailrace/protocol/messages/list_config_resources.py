"""ListConfigResources (74): the names of resources that have settings (KIP-714).

v1   all types of resources (KIP-1142)

In v0 it lists subscriptions of client metrics alone.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConfigResourcesRequest:
    """Ask for the names of resources."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 0

    resource_types: tuple[int, ...] = wire_array("int8", since=1)
    """The types of resources; empty: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResource:
    """One resource."""

    resource_name: str = wire("string")
    """Its name; a broker's is its number."""
    resource_type: int = wire("int8", since=1, default=16)
    """2: a topic, 4: a broker, 8: a broker's loggers, 16: client metrics, 32: a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConfigResourcesResponse:
    """The resources."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or why there is no list."""
    config_resources: tuple[ConfigResource, ...] = wire_array(ConfigResource)
    """The resources."""
