"""Records of type 0 of `__cluster_metadata`: a broker registers itself, at each start.

v1   controlled shutdown          v3   log directories (KIP-858)
v2   migration from ZooKeeper     v4   cordoned log directories (KIP-1066)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
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
class BrokerFeature:
    """The levels of a feature that a broker supports."""

    name: str = wire("string")
    """The feature."""
    min_supported_version: int = wire("int16")
    """Lowest level."""
    max_supported_version: int = wire("int16")
    """Highest level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord:
    """The whole registration of a broker; it replaces an earlier one."""

    record_type: ClassVar[int] = 0
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 0

    broker_id: int = wire("int32")
    """The broker."""
    is_migrating_zk_broker: bool = wire("bool", since=2)
    """Whether it still runs with ZooKeeper."""
    incarnation_id: UUID = wire("uuid")
    """The start of the broker."""
    broker_epoch: int = wire("int64")
    """Epoch of the registration: the offset of the newest record when it was asked for."""
    end_points: tuple[BrokerEndpoint, ...] = wire_array(BrokerEndpoint)
    """Addresses of its listeners."""
    features: tuple[BrokerFeature, ...] = wire_array(BrokerFeature)
    """Levels of features that it supports."""
    rack: str | None = wire("string", nullable_since=0)
    """Its rack, where it has one."""
    fenced: bool = wire("bool", default=True)
    """Whether it is fenced: it leads no partition, and clients are not told of it."""
    in_controlled_shutdown: bool = wire("bool", since=1)
    """Whether it hands its partitions over before it stops."""
    log_dirs: tuple[UUID, ...] = wire_array("uuid", since=3, tag=0)
    """Ids of its log directories that are online."""
    cordoned_log_dirs: tuple[UUID, ...] | None = wire_array(
        "uuid", since=4, nullable_since=4, tag=1, default=None
    )
    """Ids of the directories that get no new partitions; None: no change."""
