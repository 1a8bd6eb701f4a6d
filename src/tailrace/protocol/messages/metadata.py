"""Metadata (3): brokers, topics, and the leaders of partitions.

v1   controller, all topics by null     v9   flexible
v4   creation of topics on request      v10  topic ids (KIP-516)
v5   offline replicas                   v11  no operations of the cluster (KIP-700)
v7   leader epochs (KIP-320)            v12  topics by id alone
v8   authorized operations (KIP-430)    v13  an error for the whole answer (KIP-1102)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequestTopic:
    """One topic, by name or by id."""

    topic_id: UUID = wire("uuid", since=10)
    """The topic by id, where the name is null."""
    name: str | None = wire("string", nullable_since=10)
    """The topic by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest:
    """Ask for the brokers, and for the leaders of these topics."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 13
    flexible_since: ClassVar[int] = 9

    topics: tuple[MetadataRequestTopic, ...] | None = wire_array(
        MetadataRequestTopic, nullable_since=1
    )
    """The topics; None: all of them. In v0 an empty list means all."""
    allow_auto_topic_creation: bool = wire("bool", since=4, default=True)
    """Whether a missing topic may be created."""
    include_cluster_authorized_operations: bool = wire("bool", since=8, until=10)
    """Whether to say what the client may do with the cluster."""
    include_topic_authorized_operations: bool = wire("bool", since=8)
    """Whether to say what the client may do with each topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponseBroker:
    """A broker and its address."""

    node_id: int = wire("int32")
    """The broker."""
    host: str = wire("string")
    """Host name to connect to."""
    port: int = wire("int32")
    """Port to connect to."""
    rack: str | None = wire("string", since=1, nullable_since=1, default=None)
    """The broker's rack, where it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponsePartition:
    """A partition and its replicas."""

    error_code: int = wire("int16")
    """0, or what is wrong with the partition."""
    partition_index: int = wire("int32")
    """The partition."""
    leader_id: int = wire("int32")
    """The broker that leads; -1: none."""
    leader_epoch: int = wire("int32", since=7, default=-1)
    """The leader epoch of the partition."""
    replica_nodes: tuple[int, ...] = wire_array("int32")
    """All replicas; the first is the preferred leader."""
    isr_nodes: tuple[int, ...] = wire_array("int32")
    """The replicas that are in sync."""
    offline_replicas: tuple[int, ...] = wire_array("int32", since=5)
    """The offline replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponseTopic:
    """A topic and its partitions."""

    error_code: int = wire("int16")
    """0, or what is wrong with the topic."""
    name: str | None = wire("string", nullable_since=12)
    """The topic; None for an unknown id."""
    topic_id: UUID = wire("uuid", since=10)
    """The topic's id."""
    is_internal: bool = wire("bool", since=1)
    """Whether the topic holds Kafka's own state."""
    partitions: tuple[MetadataResponsePartition, ...] = wire_array(MetadataResponsePartition)
    """Its partitions."""
    topic_authorized_operations: int = wire("int32", since=8, default=-2_147_483_648)
    """Operations that the client may perform on the topic, as bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    """The brokers and the requested topics."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 13
    flexible_since: ClassVar[int] = 9

    throttle_time_ms: int = wire("int32", since=3)
    """Time for which a quota throttles the client, in milliseconds."""
    brokers: tuple[MetadataResponseBroker, ...] = wire_array(MetadataResponseBroker)
    """All live brokers."""
    cluster_id: str | None = wire("string", since=2, nullable_since=2, default=None)
    """The cluster's id."""
    controller_id: int = wire("int32", since=1, default=-1)
    """The broker that creates and deletes topics; -1: not known."""
    topics: tuple[MetadataResponseTopic, ...] = wire_array(MetadataResponseTopic)
    """The requested topics."""
    cluster_authorized_operations: int = wire("int32", since=8, until=10, default=-2_147_483_648)
    """Operations that the client may perform on the cluster, as bits."""
    error_code: int = wire("int16", since=13)
    """0, or REBOOTSTRAP_REQUIRED."""
