"""Records of type 27 of `__cluster_metadata`: a controller registers itself (KIP-919)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerEndpoint:
    """The address of a listener."""

    name: str = wire("string")
    """The listener."""
    host: str = wire("string")
    """Host name to connect to."""
    port: int = wire("uint16")
    """Port to connect to."""
    security_protocol: int = wire("int16")
    """0: PLAINTEXT, 1: SSL, 2: SASL_PLAINTEXT, 3: SASL_SSL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFeature:
    """The levels of a feature that a controller supports."""

    name: str = wire("string")
    """The feature."""
    min_supported_version: int = wire("int16")
    """Lowest level."""
    max_supported_version: int = wire("int16")
    """Highest level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRecord:
    """The whole registration of a controller; it replaces an earlier one."""

    record_type: ClassVar[int] = 27
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    controller_id: int = wire("int32")
    """The controller."""
    incarnation_id: UUID = wire("uuid")
    """The start of the controller."""
    zk_migration_ready: bool = wire("bool")
    """Whether it is ready for a migration from ZooKeeper."""
    end_points: tuple[ControllerEndpoint, ...] = wire_array(ControllerEndpoint)
    """Addresses of its listeners."""
    features: tuple[ControllerFeature, ...] = wire_array(ControllerFeature)
    """Levels of features that it supports."""
