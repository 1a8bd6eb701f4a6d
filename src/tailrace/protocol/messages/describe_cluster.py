"""DescribeCluster (60): the brokers or controllers of a cluster (KIP-700).

v1   controllers (KIP-919)              v2   fenced brokers (KIP-1073)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterRequest:
    first_version, last_version, flexible_since = 0, 2, 0
    include_cluster_authorized_operations: bool = wire("bool")
    endpoint_type: int = wire("int8", since=1, default=1)  # 1: the brokers, 2: the controllers.
    include_fenced_brokers: bool = wire("bool", since=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterBroker:
    broker_id: int = wire("int32")
    host: str = wire("string")
    port: int = wire("int32")
    rack: str | None = wire("string", nullable_since=0, default=None)
    # Whether the controller has fenced it, so that it leads nothing.
    is_fenced: bool = wire("bool", since=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterResponse:
    first_version, last_version, flexible_since = 0, 2, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0, default=None)
    endpoint_type: int = wire("int8", since=1, default=1)  # 1: the brokers, 2: the controllers.
    cluster_id: str = wire("string")
    # The broker for requests to the controller; -1: not known.
    controller_id: int = wire("int32", default=-1)
    # The brokers or controllers.
    brokers: tuple[DescribeClusterBroker, ...] = wire_array(DescribeClusterBroker)
    # Operations that the client may perform on the cluster, as bits.
    cluster_authorized_operations: int = wire("int32", default=-2_147_483_648)
