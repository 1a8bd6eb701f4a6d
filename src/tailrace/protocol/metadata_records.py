"""The records of the metadata log, `__cluster_metadata`, by type; then its control records.

Not here: the numbers in front of them (`metadata_log`).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    name: str = wire("string")
    host: str = wire("string")
    port: int = wire("uint16")
    security_protocol: int = wire("int16")  # 0: PLAINTEXT, 1: SSL, 2: SASL_PLAINTEXT, 3: SASL_SSL.


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeature:
    name: str = wire("string")
    min_supported_version: int = wire("int16")
    max_supported_version: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord:
    """A broker registers itself, at each start; the record replaces an earlier one.

    v1   controlled shutdown          v3   log directories (KIP-858)
    v2   migration from ZooKeeper     v4   cordoned log directories (KIP-1066)
    """

    record_type, first_version, last_version, flexible_since = 0, 0, 4, 0
    broker_id: int = wire("int32")
    is_migrating_zk_broker: bool = wire("bool", since=2)  # Whether it still runs with ZooKeeper.
    incarnation_id: UUID = wire("uuid")  # The start of the broker.
    # Epoch of the registration: the offset of the newest record when it was asked for.
    broker_epoch: int = wire("int64")
    end_points: tuple[BrokerEndpoint, ...] = wire_array(BrokerEndpoint)
    features: tuple[BrokerFeature, ...] = wire_array(BrokerFeature)
    rack: str | None = wire("string", nullable_since=0)
    # Whether it is fenced: it leads no partition, and clients do not see it.
    fenced: bool = wire("bool", default=True)
    # Whether it hands its partitions over before it stops.
    in_controlled_shutdown: bool = wire("bool", since=1)
    # Ids of its log directories that are online.
    log_dirs: tuple[UUID, ...] = wire_array("uuid", since=3, tag=0)
    # Ids of the directories that get no new partitions; None: no change.
    cordoned_log_dirs: tuple[UUID, ...] | None = wire_array(
        "uuid", since=4, nullable_since=4, tag=1, default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord:
    """A broker is no part of the cluster any more."""

    record_type, first_version, last_version, flexible_since = 1, 0, 0, 0
    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64")  # Epoch of the broker's registration.


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic is created; its partitions and settings follow in records of their own."""

    record_type, first_version, last_version, flexible_since = 2, 0, 0, 0
    name: str = wire("string")
    topic_id: UUID = wire("uuid")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """A partition is created; in a snapshot, the whole state of a partition.

    v1   log directories (KIP-858)    v2   eligible leader replicas (KIP-966)
    """

    record_type, first_version, last_version, flexible_since = 3, 0, 2, 0
    partition_id: int = wire("int32", default=-1)
    topic_id: UUID = wire("uuid")
    # Brokers that have the partition; the first is the preferred leader.
    replicas: tuple[int, ...] = wire_array("int32")
    isr: tuple[int, ...] = wire_array("int32")
    removing_replicas: tuple[int, ...] = wire_array("int32")
    adding_replicas: tuple[int, ...] = wire_array("int32")
    leader: int = wire("int32", default=-1)  # The leader; -1: none.
    # 1: the leader recovers after an unclean election; 0: it does not.
    leader_recovery_state: int = wire("int8", tag=0)
    # The leader epoch; it grows with each change of the leader.
    leader_epoch: int = wire("int32", default=-1)
    partition_epoch: int = wire("int32", default=-1)  # It grows with each change of the partition.
    # The id of the log directory of each replica, in the order of `replicas`.
    directories: tuple[UUID, ...] = wire_array("uuid", since=1)
    # Replicas that have all committed records, and are not in sync.
    eligible_leader_replicas: tuple[int, ...] | None = wire_array(
        "int32", since=2, nullable_since=2, tag=1, default=None
    )
    # The last members of the ISR, where nobody is left in it.
    last_known_elr: tuple[int, ...] | None = wire_array(
        "int32", since=2, nullable_since=2, tag=2, default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """A setting of a topic, a broker or a group."""

    record_type, first_version, last_version, flexible_since = 4, 0, 0, 0
    resource_type: int = wire("int8")  # 2: topic, 4: broker, 16: client metrics, 32: group.
    resource_name: str = wire("string")  # The topic, broker id or group; empty: all brokers.
    name: str = wire("string")
    value: str | None = wire("string", nullable_since=0)  # The value; None: the setting is removed.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """Changes of a partition; None: no change. The partition epoch grows by one.

    v1   log directories (KIP-858)    v2   eligible leader replicas (KIP-966)
    """

    record_type, first_version, last_version, flexible_since = 5, 0, 2, 0
    partition_id: int = wire("int32", default=-1)
    topic_id: UUID = wire("uuid")
    isr: tuple[int, ...] | None = wire_array("int32", nullable_since=0, tag=0, default=None)
    # The leader, whose epoch grows by one; -1: none, -2: no change.
    leader: int = wire("int32", tag=1, default=-2)
    replicas: tuple[int, ...] | None = wire_array("int32", nullable_since=0, tag=2, default=None)
    removing_replicas: tuple[int, ...] | None = wire_array(
        "int32", nullable_since=0, tag=3, default=None
    )
    adding_replicas: tuple[int, ...] | None = wire_array(
        "int32", nullable_since=0, tag=4, default=None
    )
    # 1: the leader recovers, 0: it has recovered, -1: no change.
    leader_recovery_state: int = wire("int8", tag=5, default=-1)
    # The id of the log directory of each replica.
    directories: tuple[UUID, ...] | None = wire_array(
        "uuid", since=1, nullable_since=1, tag=8, default=None
    )
    # Replicas that have all committed records, and are not in sync.
    eligible_leader_replicas: tuple[int, ...] | None = wire_array(
        "int32", since=2, nullable_since=2, tag=6, default=None
    )
    # The last members of the ISR, where nobody is left in it.
    last_known_elr: tuple[int, ...] | None = wire_array(
        "int32", since=2, nullable_since=2, tag=7, default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBrokerRecord:
    """A broker leads no partition from now on; before Kafka 3.3."""

    record_type, first_version, last_version, flexible_since = 7, 0, 0, 0
    id: int = wire("int32")
    epoch: int = wire("int64")  # Epoch of its registration.


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfenceBrokerRecord:
    """A broker may lead partitions from now on; before Kafka 3.3."""

    record_type, first_version, last_version, flexible_since = 8, 0, 0, 0
    id: int = wire("int32")
    epoch: int = wire("int64")  # Epoch of its registration.


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    """A topic is deleted, with its partitions and its settings."""

    record_type, first_version, last_version, flexible_since = 9, 0, 0, 0
    topic_id: UUID = wire("uuid")


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenRecord:
    """A delegation token (KIP-48), whose secret is computed from its id; times in ms since 1970."""

    record_type, first_version, last_version, flexible_since = 10, 0, 0, 0
    owner: str = wire("string")  # The user that it authenticates.
    requester: str = wire("string")  # The user that asked for it.
    renewers: tuple[str, ...] = wire_array("string")
    issue_timestamp: int = wire("int64")
    max_timestamp: int = wire("int64")  # Time after which it cannot be renewed.
    expiration_timestamp: int = wire("int64")  # Time at which it expires.
    token_id: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord:
    """A user's SCRAM credential (KIP-900): what a server keeps of a password, for one mechanism."""

    record_type, first_version, last_version, flexible_since = 11, 0, 0, 0
    name: str = wire("string")
    mechanism: int = wire("int8")  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512.
    salt: bytes = wire("bytes")
    stored_key: bytes = wire("bytes")  # The hash of the client's key.
    server_key: bytes = wire("bytes")
    iterations: int = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord:
    """The level of a feature that all nodes use from now on."""

    record_type, first_version, last_version, flexible_since = 12, 0, 0, 0
    name: str = wire("string")
    feature_level: int = wire("int16")  # The level; 0: the feature is off.


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityData:
    entity_type: str = wire("string")  # `user`, `client-id` or `ip`.
    # Its name; None: the default for all that have no quota of their own.
    entity_name: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord:
    """One quota of one entity."""

    record_type, first_version, last_version, flexible_since = 14, 0, 0, 0
    # The parts of the entity: a user, a client id, both, or an IP address.
    entity: tuple[EntityData, ...] = wire_array(EntityData)
    key: str = wire("string")  # The quota, such as `producer_byte_rate`.
    value: float = wire("float64")
    remove: bool = wire("bool")  # Whether it is removed.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """A block of producer ids for a broker; it ends before the next id."""

    record_type, first_version, last_version, flexible_since = 15, 0, 0, 0
    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64", default=-1)  # Epoch of the broker's registration.
    next_producer_id: int = wire("int64")  # The first id that no broker has yet.


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord:
    """A part of a broker's registration changes.

    v1   controlled shutdown    v2   log directories (KIP-858)
                                v3   cordoned log directories (KIP-1066)
    """

    record_type, first_version, last_version, flexible_since = 17, 0, 3, 0
    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64")  # Epoch of the broker's registration.
    # 1: it is fenced, -1: it is not fenced any more, 0: no change.
    fenced: int = wire("int8", tag=0)
    # 1: it hands its partitions over, 0: no change.
    in_controlled_shutdown: int = wire("int8", since=1, tag=1)
    # Ids of its log directories that are online; empty: no change.
    log_dirs: tuple[UUID, ...] = wire_array("uuid", since=2, tag=2)
    # Ids of the directories that get no new partitions; None: no change.
    cordoned_log_dirs: tuple[UUID, ...] | None = wire_array(
        "uuid", since=3, nullable_since=3, tag=3, default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord:
    """An entry of the access control lists."""

    record_type, first_version, last_version, flexible_since = 18, 0, 0, 0
    id: UUID = wire("uuid")
    # 2: topic, 3: group, 4: cluster, 5: transactional id, 6: delegation token, 7: user.
    resource_type: int = wire("int8")
    resource_name: str = wire("string")  # The resource, or the prefix of its name.
    pattern_type: int = wire("int8")  # 3: the name itself, 4: a prefix.
    principal: str = wire("string")  # The principal, such as `User:ann`.
    host: str = wire("string")  # The host; `*`: any.
    operation: int = wire("int8")  # The operation, Kafka's number.
    permission_type: int = wire("int8")  # 2: denied, 3: allowed.


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecord:
    """An entry is removed."""

    record_type, first_version, last_version, flexible_since = 19, 0, 0, 0
    id: UUID = wire("uuid")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord:
    """No change, but a sign that the leader lives."""

    record_type, first_version, last_version, flexible_since = 20, 0, 0, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkMigrationStateRecord:
    """The state of a migration from ZooKeeper; Kafka 4 ignores it."""

    record_type, first_version, last_version, flexible_since = 21, 0, 0, 0
    zk_migration_state: int = wire("int8")  # 0: none, 1: to come, 2: under way, 3: ended.


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord:
    """A SCRAM credential is removed."""

    record_type, first_version, last_version, flexible_since = 22, 0, 0, 0
    name: str = wire("string")
    mechanism: int = wire("int8")  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512.


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord:
    """The records up to the end of the transaction count together, or not at all (KIP-868)."""

    record_type, first_version, last_version, flexible_since = 23, 0, 0, 0
    # Its purpose, for people who read the log.
    name: str | None = wire("string", nullable_since=0, tag=0, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord:
    """The records since the begin count."""

    record_type, first_version, last_version, flexible_since = 24, 0, 0, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord:
    """The records since the begin do not count."""

    record_type, first_version, last_version, flexible_since = 25, 0, 0, 0
    # The reason, for the broker's log (KIP-800).
    reason: str | None = wire("string", nullable_since=0, tag=0, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDelegationTokenRecord:
    """A delegation token is removed."""

    record_type, first_version, last_version, flexible_since = 26, 0, 0, 0
    token_id: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerEndpoint:
    name: str = wire("string")
    host: str = wire("string")
    port: int = wire("uint16")
    security_protocol: int = wire("int16")  # 0: PLAINTEXT, 1: SSL, 2: SASL_PLAINTEXT, 3: SASL_SSL.


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFeature:
    name: str = wire("string")
    min_supported_version: int = wire("int16")
    max_supported_version: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRecord:
    """A controller registers itself (KIP-919); the record replaces an earlier one."""

    record_type, first_version, last_version, flexible_since = 27, 0, 0, 0
    controller_id: int = wire("int32")
    incarnation_id: UUID = wire("uuid")  # The start of the controller.
    zk_migration_ready: bool = wire("bool")  # Whether it is ready for a migration from ZooKeeper.
    end_points: tuple[ControllerEndpoint, ...] = wire_array(ControllerEndpoint)
    features: tuple[ControllerFeature, ...] = wire_array(ControllerFeature)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord:
    """The partitions of a topic have no eligible leader replicas any more (KIP-966)."""

    record_type, first_version, last_version, flexible_since = 28, 0, 0, 0
    topic_name: str = wire("string")  # The topic; empty: all topics.


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    voter_id: int = wire("int32")
    voter_directory_id: UUID = wire("uuid", since=1)  # The id of its metadata directory (KIP-853).


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChangeMessage:
    """Control type 2: a controller leads from here on (KIP-595); Kafka 4.3 writes version 0."""

    first_version, last_version, flexible_since = 0, 1, 0
    version: int = wire("int16")
    leader_id: int = wire("int32")  # The controller that leads.
    voters: tuple[Voter, ...] = wire_array(Voter)
    granting_voters: tuple[Voter, ...] = wire_array(Voter)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeaderRecord:
    """Control type 3: the first record of a snapshot (KIP-630)."""

    first_version, last_version, flexible_since = 0, 0, 0
    version: int = wire("int16")
    # Time of the last record that is in it, in ms since 1970.
    last_contained_log_timestamp: int = wire("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFooterRecord:
    """Control type 4: the last record of a snapshot (KIP-630); without it, it is not whole."""

    first_version, last_version, flexible_since = 0, 0, 0
    version: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionRecord:
    """Control type 5: the version of the quorum's protocol from here on (KIP-853)."""

    first_version, last_version, flexible_since = 0, 0, 0
    version: int = wire("int16")
    kraft_version: int = wire("int16")  # 0: the settings name the voters; 1: the log does.


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    name: str = wire("string")
    host: str = wire("string")
    port: int = wire("uint16")


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionFeature:
    min_supported_version: int = wire("int16")
    max_supported_version: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersRecordVoter:
    voter_id: int = wire("int32")
    voter_directory_id: UUID = wire("uuid")  # The id of its metadata directory.
    endpoints: tuple[Endpoint, ...] = wire_array(Endpoint)
    # Versions of the quorum's protocol that it supports.
    kraft_version_feature: KRaftVersionFeature = wire(KRaftVersionFeature)


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersRecord:
    """Control type 6: the voters from here on (KIP-853)."""

    first_version, last_version, flexible_since = 0, 0, 0
    version: int = wire("int16")
    voters: tuple[VotersRecordVoter, ...] = wire_array(VotersRecordVoter)
