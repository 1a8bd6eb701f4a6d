"""The records of coordinators: those of `__consumer_offsets` by type, then `__transaction_state`.

Not here: the numbers in front of them, which are the type of a key and the version of a value
(`coordinator_records`).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import NO_VERSION, wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyOffsetCommitKey:
    """Type 0: offset commits of brokers before 0.9. Kafka reads them as type 1, and writes none."""

    record_type, first_version, last_version, flexible_since = 0, 0, 0, NO_VERSION
    group: str = wire("string")
    topic: str = wire("string")
    partition: int = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyOffsetCommitValue:
    record_type, first_version, last_version, flexible_since = 0, 0, 0, NO_VERSION
    offset: int = wire("int64")  # Offset of the next record to consume.
    metadata: str = wire("string")  # Metadata that the client has stored with the offset.
    commit_timestamp: int = wire("int64")  # Time of the commit, in ms since 1970.


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitKey:
    """Type 1: offset commits, by group, topic and partition."""

    record_type, first_version, last_version, flexible_since = 1, 0, 0, NO_VERSION
    group: str = wire("string")
    topic: str = wire("string")
    partition: int = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValue:
    """A committed offset. Kafka 4.3 writes v4, and v1 for a request that asks for a retention time.

    v1   its own time to expire             v4   flexible; topic id in a tag
    v3   leader epoch (KIP-320)
    """

    record_type, first_version, last_version, flexible_since = 1, 0, 4, 4
    offset: int = wire("int64")  # Offset of the next record to consume.
    # Leader epoch of the last consumed record; -1: not known.
    leader_epoch: int = wire("int32", since=3, default=-1)
    metadata: str = wire("string")  # Metadata that the client has stored with the offset.
    commit_timestamp: int = wire("int64")  # Time of the commit, in ms since 1970.
    # Time at which it expires, in ms since 1970; -1: by the broker's setting.
    expire_timestamp: int = wire("int64", since=1, until=1, default=-1)
    topic_id: UUID = wire("uuid", since=4, tag=0)  # The topic's id; zeros: not known.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataKey:
    """Type 2: classic groups and their members."""

    record_type, first_version, last_version, flexible_since = 2, 0, 0, NO_VERSION
    group: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    member_id: str = wire("string")
    # The member's instance id, if it is static (KIP-345).
    group_instance_id: str | None = wire("string", since=3, nullable_since=3, default=None)
    client_id: str = wire("string")
    # The address that it connects from, with Java's slash in front.
    client_host: str = wire("string")
    # Milliseconds that a rebalance waits for it; -1: its session timeout.
    rebalance_timeout: int = wire("int32", since=1, default=-1)
    # Longest time between two heartbeats of the member, in milliseconds.
    session_timeout: int = wire("int32")
    subscription: bytes = wire("bytes")  # Metadata that it sent for the chosen protocol.
    assignment: bytes = wire("bytes")  # Its part of the assignment.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue:
    """A group as of its last rebalance. Kafka 4.3 writes v3.

    v1   rebalance timeout                  v3   static members (KIP-345)
    v2   time of the state (KIP-211)        v4   flexible
    """

    record_type, first_version, last_version, flexible_since = 2, 0, 4, 4
    protocol_type: str = wire("string")  # `consumer` for consumers; empty before the first member.
    generation: int = wire("int32")  # Generation of the group.
    # The chosen protocol; None in an empty group.
    protocol: str | None = wire("string", nullable_since=0)
    # The member that assigns the partitions; None in an empty group.
    leader: str | None = wire("string", nullable_since=0)
    # Time of the last change of state, in ms since 1970; -1: not known.
    current_state_timestamp: int = wire("int64", since=2, default=-1)
    members: tuple[MemberMetadata, ...] = wire_array(MemberMetadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataKey:
    """Type 3: the epochs of groups of the consumer protocol (KIP-848)."""

    record_type, first_version, last_version, flexible_since = 3, 0, 0, NO_VERSION
    group_id: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataValue:
    record_type, first_version, last_version, flexible_since = 3, 0, 0, 0
    epoch: int = wire("int32")  # Epoch of the group.
    # Hash over the subscribed topics (KIP-1101); 0: none is subscribed.
    metadata_hash: int = wire("int64", tag=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupPartitionMetadataKey:
    """Type 4: the subscribed topics of a group, until Kafka 4.1 (KIP-1101)."""

    record_type, first_version, last_version, flexible_since = 4, 0, 0, NO_VERSION
    group_id: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    partition: int = wire("int32")
    racks: tuple[str, ...] = wire_array("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic, as the group knows it."""

    topic_id: UUID = wire("uuid")
    topic_name: str = wire("string")
    num_partitions: int = wire("int32")
    # Its partitions; empty: no racks are known.
    partition_metadata: tuple[PartitionMetadata, ...] = wire_array(PartitionMetadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupPartitionMetadataValue:
    record_type, first_version, last_version, flexible_since = 4, 0, 0, 0
    topics: tuple[TopicMetadata, ...] = wire_array(TopicMetadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataKey:
    """Type 5: members of the consumer protocol (KIP-848)."""

    record_type, first_version, last_version, flexible_since = 5, 0, 0, NO_VERSION
    group_id: str = wire("string")
    member_id: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocol:
    name: str = wire("string")  # The protocol: the name of an assignor.
    metadata: bytes = wire("bytes")  # Its subscription: a `ConsumerProtocolSubscription`.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata:
    """Timeout and protocols of a member that uses the classic protocol."""

    session_timeout_ms: int = wire("int32")  # Longest time between two heartbeats of the member.
    supported_protocols: tuple[ClassicProtocol, ...] = wire_array(ClassicProtocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValue:
    """The member and the topics that it subscribes to.

    The default of `classic_member_metadata` is an empty struct, not None, as in Kafka: a member
    without the tag is one of the classic protocol. For a member of the consumer protocol the record
    ends with `01 00 01 00`: one tag, number 0, one byte, null.
    """

    record_type, first_version, last_version, flexible_since = 5, 0, 0, 0
    # The member's instance id, if it is static (KIP-345).
    instance_id: str | None = wire("string", nullable_since=0)
    rack_id: str | None = wire("string", nullable_since=0)
    client_id: str = wire("string")
    client_host: str = wire("string")
    subscribed_topic_names: tuple[str, ...] = wire_array("string")
    # The regular expression of its topics; Kafka writes an empty one for none.
    subscribed_topic_regex: str | None = wire("string", nullable_since=0)
    # Time in which the member has to give up partitions.
    rebalance_timeout_ms: int = wire("int32", default=-1)
    # The assignor that the broker is to use; None: the group's own choice.
    server_assignor: str | None = wire("string", nullable_since=0)
    # None for a member of the consumer protocol.
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        ClassicMemberMetadata, nullable_since=0, tag=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataKey:
    """Type 6: the epoch of a group's target assignment (KIP-848)."""

    record_type, first_version, last_version, flexible_since = 6, 0, 0, NO_VERSION
    group_id: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    record_type, first_version, last_version, flexible_since = 6, 0, 0, 0
    assignment_epoch: int = wire("int32")  # Epoch of the group that it is for.
    # Time of the assignment, in ms since 1970; 0: not known (KIP-1263).
    assignment_timestamp: int = wire("int64", tag=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberKey:
    """Type 7: the target assignment of a member (KIP-848)."""

    record_type, first_version, last_version, flexible_since = 7, 0, 0, NO_VERSION
    group_id: str = wire("string")
    member_id: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartition:
    topic_id: UUID = wire("uuid")
    partitions: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberValue:
    record_type, first_version, last_version, flexible_since = 7, 0, 0, 0
    topic_partitions: tuple[TopicPartition, ...] = wire_array(TopicPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentKey:
    """Type 8: the epoch and the partitions that a member has (KIP-848)."""

    record_type, first_version, last_version, flexible_since = 8, 0, 0, NO_VERSION
    group_id: str = wire("string")
    member_id: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    topic_id: UUID = wire("uuid")
    partitions: tuple[int, ...] = wire_array("int32")
    # For each partition, the member epoch in which it was assigned.
    assignment_epochs: tuple[int, ...] | None = wire_array("int32", nullable_since=0, tag=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    record_type, first_version, last_version, flexible_since = 8, 0, 0, 0
    member_epoch: int = wire("int32")
    previous_member_epoch: int = wire("int32")  # Epoch of the member before the current one.
    # 0: stable, 1: gives up partitions, 2: waits for partitions, Kafka's number.
    state: int = wire("int8")
    assigned_partitions: tuple[TopicPartitions, ...] = wire_array(TopicPartitions)
    partitions_pending_revocation: tuple[TopicPartitions, ...] = wire_array(TopicPartitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionKey:
    """Type 16: the topics that match a regular expression of a group."""

    record_type, first_version, last_version, flexible_since = 16, 0, 0, NO_VERSION
    group_id: str = wire("string")
    regular_expression: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionValue:
    record_type, first_version, last_version, flexible_since = 16, 0, 0, 0
    topics: tuple[str, ...] = wire_array("string")
    version: int = wire("int64")  # Offset in the metadata log at which the topics were found.
    timestamp: int = wire("int64")  # Time of the search, in ms since 1970.


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogKey:
    """The only type of `__transaction_state`: transactions by id."""

    record_type, first_version, last_version, flexible_since = 0, 0, 0, NO_VERSION
    transactional_id: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsSchema:
    topic: str = wire("string")
    partition_ids: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValue:
    """The state of a transaction. v1: flexible; ids of other transactions in tags (KIP-890)."""

    record_type, first_version, last_version, flexible_since = 0, 0, 1, 1
    producer_id: int = wire("int64")
    # Producer id of the transaction before; -1: none, or the same.
    previous_producer_id: int = wire("int64", since=1, tag=0, default=-1)
    # Producer id of the next transaction, when the epochs of this one are used up; -1: the same.
    next_producer_id: int = wire("int64", since=1, tag=1, default=-1)
    producer_epoch: int = wire("int16")
    # Epoch of the next producer id; -1: none.
    next_producer_epoch: int = wire("int16", since=1, tag=3, default=-1)
    transaction_timeout_ms: int = wire("int32")  # Longest time that a transaction may stay open.
    transaction_status: int = wire("int8")  # State of the transaction, Kafka's number.
    # The partitions in it, by topic; None: none is open.
    transaction_partitions: tuple[PartitionsSchema, ...] | None = wire_array(
        PartitionsSchema, nullable_since=0
    )
    # Time of the last change; since 1970.
    transaction_last_update_timestamp_ms: int = wire("int64")
    # Time of the start; since 1970; -1: none is open.
    transaction_start_timestamp_ms: int = wire("int64")
    # Version of the producer's transactions: 2 since KIP-890, 0 before.
    client_transaction_version: int = wire("int16", since=1, tag=2)
