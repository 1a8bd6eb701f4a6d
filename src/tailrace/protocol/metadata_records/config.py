"""Records of type 4 of `__cluster_metadata`: a setting of a topic, a broker or a group."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """One setting."""

    record_type: ClassVar[int] = 4
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    resource_type: int = wire("int8")
    """2: topic, 4: broker, 16: client metrics, 32: group."""
    resource_name: str = wire("string")
    """The topic, broker id or group; empty: all brokers."""
    name: str = wire("string")
    """The setting."""
    value: str | None = wire("string", nullable_since=0)
    """The value; None: the setting is removed."""
