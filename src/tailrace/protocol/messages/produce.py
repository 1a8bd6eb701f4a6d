"""Produce (0): appends batches of records to partitions.

    v3   format v2 only, transactional id   v9   flexible
    v5   log start offset                   v10  leader and endpoints in tags (KIP-951)
    v7   zstd may be used                   v11  transaction errors (KIP-890)
    v8   errors per record (KIP-467)        v13  topic ids in place of names (KIP-516)

The records of a decoded request are views of the frame: nothing is copied, and a view keeps the
frame in memory.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import Buffer, wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProduceData:
    index: int = wire("int32")  # The partition.
    records: Buffer | None = wire("records", nullable_since=0)  # One batch in format v2.


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProduceData:
    name: str = wire("string", until=12)
    topic_id: UUID = wire("uuid", since=13)
    partition_data: tuple[PartitionProduceData, ...] = wire_array(PartitionProduceData)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    first_version, last_version, flexible_since = 3, 13, 9
    transactional_id: str | None = wire("string", since=3, nullable_since=3, default=None)
    # Replicas to wait for: 0 none and no answer, 1 the leader, -1 all in sync.
    acks: int = wire("int16")
    timeout_ms: int = wire("int32")  # Longest time to wait for these replicas.
    topic_data: tuple[TopicProduceData, ...] = wire_array(TopicProduceData)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchIndexAndErrorMessage:
    """A record for which its batch was refused."""

    batch_index: int = wire("int32", since=8)  # Index of the record in its batch.
    batch_index_error_message: str | None = wire("string", since=8, nullable_since=8, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderIdAndEpoch:
    """The leader of a partition, as far as the answering broker knows."""

    leader_id: int = wire("int32", since=10, default=-1)  # The broker; -1: not known.
    leader_epoch: int = wire("int32", since=10, default=-1)  # Its epoch; -1: not known.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProduceResponse:
    index: int = wire("int32")  # The partition.
    error_code: int = wire("int16")
    base_offset: int = wire("int64")  # Offset of the first record; -1 on an error.
    # Time of the append; since 1970; -1: records keep their timestamps.
    log_append_time_ms: int = wire("int64", since=2, default=-1)
    log_start_offset: int = wire("int64", since=5, default=-1)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire_array(
        BatchIndexAndErrorMessage, since=8
    )
    error_message: str | None = wire("string", since=8, nullable_since=8, default=None)
    # The leader, if it is not this broker.
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, since=10, tag=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProduceResponse:
    name: str = wire("string", until=12)
    topic_id: UUID = wire("uuid", since=13)
    partition_responses: tuple[PartitionProduceResponse, ...] = wire_array(PartitionProduceResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    node_id: int = wire("int32", since=10)
    host: str = wire("string", since=10)
    port: int = wire("int32", since=10)
    rack: str | None = wire("string", since=10, nullable_since=10, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponse:
    """The results for the batches; not sent for acks 0."""

    first_version, last_version, flexible_since = 3, 13, 9
    responses: tuple[TopicProduceResponse, ...] = wire_array(TopicProduceResponse)
    throttle_time_ms: int = wire("int32", since=1)
    # Addresses of the leaders in `current_leader`.
    node_endpoints: tuple[NodeEndpoint, ...] = wire_array(NodeEndpoint, since=10, tag=0)
