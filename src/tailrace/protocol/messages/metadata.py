"""Metadata (3): brokers, topics, and the leaders of partitions.

v1   controller, all topics by null     v9   flexible
v4   creation of topics on request      v10  topic ids (KIP-516)
v5   offline replicas                   v11  no operations of the cluster (KIP-700)
v7   leader epochs (KIP-320)            v12  topics by id alone
v8   authorized operations (KIP-430)    v13  an error for the whole answer (KIP-1102)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequestTopic:
    topic_id: UUID = wire("uuid", since=10)  # The topic by id, where the name is null.
    name: str | None = wire("string", nullable_since=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest:
    first_version, last_version, flexible_since = 0, 13, 9
    # The topics; None: all of them. In v0 an empty list means all.
    topics: tuple[MetadataRequestTopic, ...] | None = wire_array(
        MetadataRequestTopic, nullable_since=1
    )
    # Whether a missing topic may be created.
    allow_auto_topic_creation: bool = wire("bool", since=4, default=True)
    include_cluster_authorized_operations: bool = wire("bool", since=8, until=10)
    include_topic_authorized_operations: bool = wire("bool", since=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponseBroker:
    node_id: int = wire("int32")
    host: str = wire("string")
    port: int = wire("int32")
    rack: str | None = wire("string", since=1, nullable_since=1, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponsePartition:
    error_code: int = wire("int16")
    partition_index: int = wire("int32")
    leader_id: int = wire("int32")  # The broker that leads; -1: none.
    leader_epoch: int = wire("int32", since=7, default=-1)  # The leader epoch of the partition.
    # All replicas; the first is the preferred leader.
    replica_nodes: tuple[int, ...] = wire_array("int32")
    isr_nodes: tuple[int, ...] = wire_array("int32")
    offline_replicas: tuple[int, ...] = wire_array("int32", since=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponseTopic:
    error_code: int = wire("int16")
    name: str | None = wire("string", nullable_since=12)  # The topic; None for an unknown id.
    topic_id: UUID = wire("uuid", since=10)
    is_internal: bool = wire("bool", since=1)  # Whether the topic holds Kafka's own state.
    partitions: tuple[MetadataResponsePartition, ...] = wire_array(MetadataResponsePartition)
    # Operations that the client may perform on the topic, as bits.
    topic_authorized_operations: int = wire("int32", since=8, default=-2_147_483_648)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    first_version, last_version, flexible_since = 0, 13, 9
    throttle_time_ms: int = wire("int32", since=3)
    # All live brokers.
    brokers: tuple[MetadataResponseBroker, ...] = wire_array(MetadataResponseBroker)
    cluster_id: str | None = wire("string", since=2, nullable_since=2, default=None)
    # The broker that creates and deletes topics; -1: not known.
    controller_id: int = wire("int32", since=1, default=-1)
    topics: tuple[MetadataResponseTopic, ...] = wire_array(MetadataResponseTopic)
    # Operations that the client may perform on the cluster, as bits.
    cluster_authorized_operations: int = wire("int32", since=8, until=10, default=-2_147_483_648)
    error_code: int = wire("int16", since=13)  # 0, or REBOOTSTRAP_REQUIRED.
