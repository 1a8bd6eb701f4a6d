"""Produce (0): batches of records for partitions, and where they went.

    v3   format v2 only, transactional id   v9   flexible
    v5   log start offset                   v10  leader and endpoints in tags (KIP-951)
    v7   zstd may be used                   v11  transaction errors (KIP-890)
    v8   errors per record (KIP-467)        v13  topic ids in place of names (KIP-516)

A decoded request holds its records as views of the frame: nothing is copied, and the frame lives
as long as a view does.
"""

# ruff: noqa: RUF009 - `wire` makes a dataclass field, as dataclasses.field does.

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import Buffer, wire, wire_array
from tailrace.protocol.messages.leadership import LeaderIdAndEpoch, NodeEndpoint


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

    flexible_since: ClassVar[int] = 9

    transactional_id: str | None = wire("string", nullable_since=3, default=None)
    """The producer's transactional id, where it has one."""
    acks: int = wire("int16")
    """Replicas to wait for: 0 none and no answer, 1 the leader, -1 all in sync."""
    timeout_ms: int = wire("int32")
    """How long to wait for them."""
    topic_data: tuple[TopicProduceData, ...] = wire_array(TopicProduceData)
    """The batches, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchIndexAndErrorMessage:
    """A record that made its batch fail."""

    batch_index: int = wire("int32")
    """Place of the record in its batch."""
    batch_index_error_message: str | None = wire("string", nullable_since=0, default=None)
    """What is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProduceResponse:
    """What became of the records for one partition."""

    index: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0, or why the batch was not appended."""
    base_offset: int = wire("int64")
    """Offset of the first record; -1 on an error."""
    log_append_time_ms: int = wire("int64", since=2, default=-1)
    """When the broker stamped the records; -1 if their own timestamps stay."""
    log_start_offset: int = wire("int64", since=5, default=-1)
    """The first offset of the log."""
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire_array(
        BatchIndexAndErrorMessage, since=8
    )
    """The records that made the batch fail."""
    error_message: str | None = wire("string", since=8, nullable_since=8, default=None)
    """Why the batch was not appended, for people."""
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, since=10, tag=0)
    """Who leads, if it is not this broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProduceResponse:
    """What became of the records for one topic."""

    name: str = wire("string", until=12)
    """The topic by name, up to v12."""
    topic_id: UUID = wire("uuid", since=13)
    """The topic by id, from v13."""
    partition_responses: tuple[PartitionProduceResponse, ...] = wire_array(PartitionProduceResponse)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponse:
    """What became of the batches; not sent for acks 0."""

    flexible_since: ClassVar[int] = 9

    responses: tuple[TopicProduceResponse, ...] = wire_array(TopicProduceResponse)
    """The outcome, by topic."""
    throttle_time_ms: int = wire("int32", since=1)
    """How long the client is held back by a quota."""
    node_endpoints: tuple[NodeEndpoint, ...] = wire_array(NodeEndpoint, since=10, tag=0)
    """Where the leaders named in `current_leader` listen."""
