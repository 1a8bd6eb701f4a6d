"""BrokerRegistration (62): a broker says to the controllers that it is there (KIP-631).

v1   migrations from ZooKeeper             v3   its epoch before an orderly stop (KIP-966)
v2   its log directories (KIP-858)         v4   any lowest level of a feature
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    name: str = wire("string")
    host: str = wire("string")
    port: int = wire("uint16")
    security_protocol: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    name: str = wire("string")
    min_supported_version: int = wire("int16")
    max_supported_version: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationRequest:
    first_version, last_version, flexible_since = 0, 4, 0
    broker_id: int = wire("int32")
    cluster_id: str = wire("string")
    incarnation_id: UUID = wire("uuid")
    listeners: tuple[Listener, ...] = wire_array(Listener)
    features: tuple[Feature, ...] = wire_array(Feature)
    rack: str | None = wire("string", nullable_since=0)
    is_migrating_zk_broker: bool = wire("bool", since=1)
    log_dirs: tuple[UUID, ...] = wire_array("uuid", since=2)
    previous_broker_epoch: int = wire("int64", since=3, default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationResponse:
    first_version, last_version, flexible_since = 0, 4, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    broker_epoch: int = wire("int64", default=-1)  # Epoch of the broker's registration.
