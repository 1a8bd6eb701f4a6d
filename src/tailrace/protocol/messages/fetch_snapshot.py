"""FetchSnapshot (59): a part of a snapshot of the metadata log (KIP-630).

v1   the directory of the replica; addresses of controllers (KIP-853)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import Records, wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotId:
    end_offset: int = wire("int64")  # The offset after its last record.
    epoch: int = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    partition: int = wire("int32")
    # The leader epoch that the client knows; -1: not sent.
    current_leader_epoch: int = wire("int32")
    snapshot_id: SnapshotId = wire(SnapshotId)
    position: int = wire("int64")
    replica_directory_id: UUID = wire("uuid", since=1, tag=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    name: str = wire("string")
    partitions: tuple[PartitionSnapshot, ...] = wire_array(PartitionSnapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRequest:
    first_version, last_version, flexible_since = 0, 1, 0
    cluster_id: str | None = wire("string", nullable_since=0, tag=0, default=None)
    replica_id: int = wire("int32", default=-1)  # The follower that asks; -1: a consumer.
    max_bytes: int = wire("int32", default=2_147_483_647)
    topics: tuple[TopicSnapshot, ...] = wire_array(TopicSnapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderIdAndEpoch:
    leader_id: int = wire("int32")  # The broker; -1: not known.
    leader_epoch: int = wire("int32")  # Its epoch; -1: not known.


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponsePartitionSnapshot:
    index: int = wire("int32")  # The partition.
    error_code: int = wire("int16")
    snapshot_id: SnapshotId = wire(SnapshotId)
    # The leader, if it is not this broker.
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, tag=0)
    size: int = wire("int64")
    position: int = wire("int64")
    unaligned_records: Records = wire("records")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponseTopicSnapshot:
    name: str = wire("string")
    partitions: tuple[FetchSnapshotResponsePartitionSnapshot, ...] = wire_array(
        FetchSnapshotResponsePartitionSnapshot
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    node_id: int = wire("int32", since=1)
    host: str = wire("string", since=1)
    port: int = wire("uint16", since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse:
    first_version, last_version, flexible_since = 0, 1, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    topics: tuple[FetchSnapshotResponseTopicSnapshot, ...] = wire_array(
        FetchSnapshotResponseTopicSnapshot
    )
    # Addresses of the leaders in `current_leader`.
    node_endpoints: tuple[NodeEndpoint, ...] = wire_array(NodeEndpoint, since=1, tag=0)
