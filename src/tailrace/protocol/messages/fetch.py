"""Fetch (1): records from partitions, for consumers and for followers.

    v4   isolation level, format v2         v13  topic ids in place of names (KIP-516)
    v5   log start offset                   v15  replica state in a tag (KIP-903)
    v7   sessions (KIP-227)                 v16  endpoints in a tag (KIP-951)
    v9   current leader epoch (KIP-320)     v17  directory id of a follower (KIP-853)
    v11  rack, preferred replica (KIP-392)  v18  high watermark of a follower (KIP-1166)
    v12  flexible; diverging epoch (KIP-595)

The broker encodes a response with `codec.gather`, which does not copy the records; a client's
decoder returns views of its frame.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import Records, wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    replica_id: int = wire("int32", since=15, default=-1)  # The broker; -1: a consumer.
    replica_epoch: int = wire("int64", since=15, default=-1)  # Its broker epoch; -1: not known.


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    partition: int = wire("int32")
    # The leader epoch that the client knows; -1: not sent.
    current_leader_epoch: int = wire("int32", since=9, default=-1)
    fetch_offset: int = wire("int64")  # Offset of the first record wanted.
    # Leader epoch of the last record that a follower has.
    last_fetched_epoch: int = wire("int32", since=12, default=-1)
    # First offset that a follower has; -1 from a consumer.
    log_start_offset: int = wire("int64", since=5, default=-1)
    # Most bytes of this partition; one batch may be larger (KIP-74).
    partition_max_bytes: int = wire("int32")
    # Directory of the follower's replica.
    replica_directory_id: UUID = wire("uuid", since=17, tag=0)
    # High watermark that the follower knows; -1: none, 2^63 - 1: it does not say.
    high_watermark: int = wire("int64", since=18, tag=1, default=9_223_372_036_854_775_807)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTopic:
    topic: str = wire("string", until=12)
    topic_id: UUID = wire("uuid", since=13)
    partitions: tuple[FetchPartition, ...] = wire_array(FetchPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenTopic:
    """Partitions that leave a fetch session."""

    topic: str = wire("string", since=7, until=12)
    topic_id: UUID = wire("uuid", since=13)
    partitions: tuple[int, ...] = wire_array("int32", since=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """Send records of these partitions, when enough are there."""

    first_version, last_version, flexible_since = 4, 18, 12
    # The id of the cluster that the client expects.
    cluster_id: str | None = wire("string", since=12, nullable_since=12, tag=0, default=None)
    replica_id: int = wire("int32", until=14, default=-1)  # The follower that asks; -1: a consumer.
    replica_state: ReplicaState = wire(ReplicaState, since=15, tag=1)  # The follower that asks.
    max_wait_ms: int = wire("int32")  # Longest time to wait for `min_bytes`.
    min_bytes: int = wire("int32")  # Bytes of records to wait for.
    # Most bytes in the answer; one batch may be larger (KIP-74).
    max_bytes: int = wire("int32", since=3, default=2_147_483_647)
    # 0: up to the high watermark; 1: up to the last stable offset.
    isolation_level: int = wire("int8", since=4)
    session_id: int = wire("int32", since=7)  # The fetch session; 0: none.
    # Number of the request in its session; 0: start a session, -1: use none.
    session_epoch: int = wire("int32", since=7, default=-1)
    # Partitions to fetch, by topic; in a session, those that changed.
    topics: tuple[FetchTopic, ...] = wire_array(FetchTopic)
    # Partitions that leave the session, by topic.
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire_array(ForgottenTopic, since=7)
    rack_id: str = wire("string", since=11)  # The consumer's rack, to be sent to a near replica.


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffset:
    epoch: int = wire("int32", since=12, default=-1)
    end_offset: int = wire("int64", since=12, default=-1)  # The offset after its last record.


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderIdAndEpoch:
    """The leader of a partition, as far as the answering broker knows."""

    leader_id: int = wire("int32", since=12, default=-1)  # The broker; -1: not known.
    leader_epoch: int = wire("int32", since=12, default=-1)  # Its epoch; -1: not known.


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotId:
    """A snapshot of a metadata log; read and written, not used by a broker of ours."""

    end_offset: int = wire("int64", default=-1)  # The offset after its last record.
    epoch: int = wire("int32", default=-1)  # The epoch of that record.


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """A transaction whose records a read_committed consumer drops."""

    producer_id: int = wire("int64", since=4)
    first_offset: int = wire("int64", since=4)  # The offset of its first record.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData:
    """Records of one partition, and the offsets of its log."""

    partition_index: int = wire("int32")
    error_code: int = wire("int16")
    # Offset after the last record that all in-sync replicas have.
    high_watermark: int = wire("int64")
    # Offset of the first record of an open transaction.
    last_stable_offset: int = wire("int64", since=4, default=-1)
    log_start_offset: int = wire("int64", since=5, default=-1)
    # Offset at which the logs of leader and follower diverge, if they do.
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, since=12, tag=0)
    # The leader, if it is not this broker.
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = wire(SnapshotId, since=12, tag=2)  # A snapshot to fetch instead.
    # Aborted transactions among the records; None for read_uncommitted.
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire_array(
        AbortedTransaction, since=4, nullable_since=4
    )
    # A nearer replica to read from; -1: none.
    preferred_read_replica: int = wire("int32", since=11, default=-1)
    # Batches as in the log; the last one may be cut off.
    records: Records | None = wire("records", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchableTopicResponse:
    topic: str = wire("string", until=12)
    topic_id: UUID = wire("uuid", since=13)
    partitions: tuple[PartitionData, ...] = wire_array(PartitionData)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    node_id: int = wire("int32", since=16)
    host: str = wire("string", since=16)
    port: int = wire("int32", since=16)
    rack: str | None = wire("string", since=16, nullable_since=16, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    first_version, last_version, flexible_since = 4, 18, 12
    throttle_time_ms: int = wire("int32", since=1)
    error_code: int = wire("int16", since=7)
    session_id: int = wire("int32", since=7)  # The fetch session; 0: none.
    responses: tuple[FetchableTopicResponse, ...] = wire_array(FetchableTopicResponse)
    # Addresses of the leaders in `current_leader`.
    node_endpoints: tuple[NodeEndpoint, ...] = wire_array(NodeEndpoint, since=16, tag=0)
