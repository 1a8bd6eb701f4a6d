"""CreateTopics (19): creates topics with their partitions and settings.

    v2   throttle time                      v5   flexible; the settings in the answer (KIP-525)
    v4   broker's defaults by -1 (KIP-464)  v7   topic ids (KIP-516)

v6 adds an error for quotas and changes no field (KIP-599).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableReplicaAssignment:
    partition_index: int = wire("int32")
    broker_ids: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicConfig:
    name: str = wire("string")
    value: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopic:
    name: str = wire("string")
    # Number of partitions; -1: the broker's default, or the number in `assignments`.
    num_partitions: int = wire("int32")
    # Number of replicas; -1: the broker's default, or the number in `assignments`.
    replication_factor: int = wire("int16")
    # The brokers for the replicas; empty: the broker chooses.
    assignments: tuple[CreatableReplicaAssignment, ...] = wire_array(CreatableReplicaAssignment)
    # Settings other than the broker's.
    configs: tuple[CreatableTopicConfig, ...] = wire_array(CreatableTopicConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequest:
    first_version, last_version, flexible_since = 2, 7, 5
    topics: tuple[CreatableTopic, ...] = wire_array(CreatableTopic)
    timeout_ms: int = wire("int32", default=60_000)  # Longest time to wait until they are created.
    validate_only: bool = wire("bool", since=1)  # Whether to check the request and create nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicConfigs:
    name: str = wire("string", since=5)
    # Its value, as text; None when it is secret.
    value: str | None = wire("string", since=5, nullable_since=5)
    read_only: bool = wire("bool", since=5)  # Whether it cannot be changed.
    config_source: int = wire("int8", since=5, default=-1)  # Origin of the value, Kafka's number.
    is_sensitive: bool = wire("bool", since=5)  # Whether the value is secret.


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicResult:
    name: str = wire("string")
    topic_id: UUID = wire("uuid", since=7)
    error_code: int = wire("int16")
    error_message: str | None = wire("string", since=1, nullable_since=0)
    topic_config_error_code: int = wire("int16", since=5, tag=0)
    num_partitions: int = wire("int32", since=5, default=-1)
    replication_factor: int = wire("int16", since=5, default=-1)
    configs: tuple[CreatableTopicConfigs, ...] | None = wire_array(
        CreatableTopicConfigs, since=5, nullable_since=5
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponse:
    first_version, last_version, flexible_since = 2, 7, 5
    throttle_time_ms: int = wire("int32", since=2)
    topics: tuple[CreatableTopicResult, ...] = wire_array(CreatableTopicResult)
