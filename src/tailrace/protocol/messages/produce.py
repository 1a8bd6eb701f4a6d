"""Produce (0): appends batches of records to partitions.

    v3   format v2 only, transactional id   v9   flexible
    v5   log start offset                   v10  leader and endpoints in tags (KIP-951)
    v7   zstd may be used                   v11  transaction errors (KIP-890)
    v8   errors per record (KIP-467)        v13  topic ids in place of names (KIP-516)

The records of a decoded request are views of the frame: nothing is copied, and a view keeps the
frame in memory.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import Buffer, wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProduceData:
    """Records for one partition."""

    index: int = wire("int32")
    """The partition."""
    records: Buffer | None = wire("records", nullable_since=0)
    """One batch in format v2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProduceData:
    """Records for the partitions of one topic."""

    name: str = wire("string", until=12)
    """The topic by name, up to v12."""
    topic_id: UUID = wire("uuid", since=13)
    """The topic by id, from v13."""
    partition_data: tuple[PartitionProduceData, ...] = wire_array(PartitionProduceData)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    """Append these batches."""

    first_version: ClassVar[int] = 3
    last_version: ClassVar[int] = 13
    flexible_since: ClassVar[int] = 9

    transactional_id: str | None = wire("string", since=3, nullable_since=3, default=None)
    """The producer's transactional id, where it has one."""
    acks: int = wire("int16")
    """Replicas to wait for: 0 none and no answer, 1 the leader, -1 all in sync."""
    timeout_ms: int = wire("int32")
    """Longest time to wait for these replicas, in milliseconds."""
    topic_data: tuple[TopicProduceData, ...] = wire_array(TopicProduceData)
    """The batches, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchIndexAndErrorMessage:
    """A record for which its batch was refused."""

    batch_index: int = wire("int32", since=8)
    """Index of the record in its batch."""
    batch_index_error_message: str | None = wire("string", since=8, nullable_since=8, default=None)
    """Error message for the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderIdAndEpoch:
    """The leader of a partition, as far as the answering broker knows."""

    leader_id: int = wire("int32", since=10, default=-1)
    """The broker; -1: not known."""
    leader_epoch: int = wire("int32", since=10, default=-1)
    """Its epoch; -1: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProduceResponse:
    """The result for the records of one partition."""

    index: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0, or why the batch was not appended."""
    base_offset: int = wire("int64")
    """Offset of the first record; -1 on an error."""
    log_append_time_ms: int = wire("int64", since=2, default=-1)
    """Time of the append, in milliseconds since 1970; -1: records keep their timestamps."""
    log_start_offset: int = wire("int64", since=5, default=-1)
    """The first offset of the log."""
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire_array(
        BatchIndexAndErrorMessage, since=8
    )
    """The records for which the batch was refused."""
    error_message: str | None = wire("string", since=8, nullable_since=8, default=None)
    """The error message, or None."""
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, since=10, tag=0)
    """The leader, if it is not this broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProduceResponse:
    """The result for the records of one topic."""

    name: str = wire("string", until=12)
    """The topic by name, up to v12."""
    topic_id: UUID = wire("uuid", since=13)
    """The topic by id, from v13."""
    partition_responses: tuple[PartitionProduceResponse, ...] = wire_array(PartitionProduceResponse)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    """Address of a broker."""

    node_id: int = wire("int32", since=10)
    """The broker."""
    host: str = wire("string", since=10)
    """Host name to connect to."""
    port: int = wire("int32", since=10)
    """Port to connect to."""
    rack: str | None = wire("string", since=10, nullable_since=10, default=None)
    """The broker's rack, where it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponse:
    """The results for the batches; not sent for acks 0."""

    first_version: ClassVar[int] = 3
    last_version: ClassVar[int] = 13
    flexible_since: ClassVar[int] = 9

    responses: tuple[TopicProduceResponse, ...] = wire_array(TopicProduceResponse)
    """The results, by topic."""
    throttle_time_ms: int = wire("int32", since=1)
    """Time for which a quota throttles the client, in milliseconds."""
    node_endpoints: tuple[NodeEndpoint, ...] = wire_array(NodeEndpoint, since=10, tag=0)
    """Addresses of the leaders in `current_leader`."""
