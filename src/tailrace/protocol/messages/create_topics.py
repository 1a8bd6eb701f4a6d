"""CreateTopics (19): creates topics with their partitions and settings.

    v2   throttle time                      v5   flexible; the settings in the answer (KIP-525)
    v4   broker's defaults by -1 (KIP-464)  v7   topic ids (KIP-516)

v6 adds an error for quotas and changes no field (KIP-599).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableReplicaAssignment:
    """The brokers for the replicas of one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    broker_ids: tuple[int, ...] = wire_array("int32")
    """The brokers; the first is the preferred leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicConfig:
    """A setting of a new topic."""

    name: str = wire("string")
    """The setting."""
    value: str | None = wire("string", nullable_since=0)
    """Its value, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopic:
    """A topic to create."""

    name: str = wire("string")
    """The topic."""
    num_partitions: int = wire("int32")
    """Number of partitions; -1: the broker's default, or the number in `assignments`."""
    replication_factor: int = wire("int16")
    """Number of replicas; -1: the broker's default, or the number in `assignments`."""
    assignments: tuple[CreatableReplicaAssignment, ...] = wire_array(CreatableReplicaAssignment)
    """The brokers for the replicas; empty: the broker chooses."""
    configs: tuple[CreatableTopicConfig, ...] = wire_array(CreatableTopicConfig)
    """Settings other than the broker's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequest:
    """Create these topics."""

    first_version: ClassVar[int] = 2
    last_version: ClassVar[int] = 7
    flexible_since: ClassVar[int] = 5

    topics: tuple[CreatableTopic, ...] = wire_array(CreatableTopic)
    """The topics."""
    timeout_ms: int = wire("int32", default=60_000)
    """Longest time to wait until they are created, in milliseconds."""
    validate_only: bool = wire("bool", since=1)
    """Whether to check the request and create nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicConfigs:
    """A setting that a new topic has."""

    name: str = wire("string", since=5)
    """The setting."""
    value: str | None = wire("string", since=5, nullable_since=5)
    """Its value, as text; None when it is secret."""
    read_only: bool = wire("bool", since=5)
    """Whether it cannot be changed."""
    config_source: int = wire("int8", since=5, default=-1)
    """Origin of the value, by Kafka's number."""
    is_sensitive: bool = wire("bool", since=5)
    """Whether the value is secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicResult:
    """The result for one topic."""

    name: str = wire("string")
    """The topic."""
    topic_id: UUID = wire("uuid", since=7)
    """Its id."""
    error_code: int = wire("int16")
    """0, or why it was not created."""
    error_message: str | None = wire("string", since=1, nullable_since=0)
    """The error message, or None."""
    topic_config_error_code: int = wire("int16", since=5, tag=0)
    """0, or why `configs` is missing."""
    num_partitions: int = wire("int32", since=5, default=-1)
    """Number of partitions."""
    replication_factor: int = wire("int16", since=5, default=-1)
    """Number of replicas of each partition."""
    configs: tuple[CreatableTopicConfigs, ...] | None = wire_array(
        CreatableTopicConfigs, since=5, nullable_since=5
    )
    """Its settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponse:
    """The results for the topics."""

    first_version: ClassVar[int] = 2
    last_version: ClassVar[int] = 7
    flexible_since: ClassVar[int] = 5

    throttle_time_ms: int = wire("int32", since=2)
    """Time for which a quota throttles the client, in milliseconds."""
    topics: tuple[CreatableTopicResult, ...] = wire_array(CreatableTopicResult)
    """The results, by topic."""
