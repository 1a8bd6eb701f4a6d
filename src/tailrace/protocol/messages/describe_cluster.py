"""DescribeCluster (60): the brokers or controllers of a cluster (KIP-700).

v1   controllers (KIP-919)              v2   fenced brokers (KIP-1073)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterRequest:
    """Describe the cluster."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 0

    include_cluster_authorized_operations: bool = wire("bool")
    """Whether to say what the client may do with the cluster."""
    endpoint_type: int = wire("int8", since=1, default=1)
    """1: the brokers, 2: the controllers."""
    include_fenced_brokers: bool = wire("bool", since=2)
    """Whether to list fenced brokers too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterBroker:
    """A broker or controller and its address."""

    broker_id: int = wire("int32")
    """The broker."""
    host: str = wire("string")
    """Host name to connect to."""
    port: int = wire("int32")
    """Port to connect to."""
    rack: str | None = wire("string", nullable_since=0, default=None)
    """The broker's rack, where it has one."""
    is_fenced: bool = wire("bool", since=2)
    """Whether the controller has fenced it, so that it leads nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterResponse:
    """The cluster and its brokers."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or why there is no answer."""
    error_message: str | None = wire("string", nullable_since=0, default=None)
    """The error message, or None."""
    endpoint_type: int = wire("int8", since=1, default=1)
    """1: the brokers, 2: the controllers."""
    cluster_id: str = wire("string")
    """The cluster's id."""
    controller_id: int = wire("int32", default=-1)
    """The broker for requests to the controller; -1: not known."""
    brokers: tuple[DescribeClusterBroker, ...] = wire_array(DescribeClusterBroker)
    """The brokers or controllers."""
    cluster_authorized_operations: int = wire("int32", default=-2_147_483_648)
    """Operations that the client may perform on the cluster, as bits."""
