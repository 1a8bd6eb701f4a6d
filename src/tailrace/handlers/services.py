"""The parts of the broker that handlers use, and helpers for most handlers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from tailrace.cluster.changes import TopicChanges
from tailrace.cluster.controller import Controller
from tailrace.cluster.image import Topic
from tailrace.cluster.metadata.features import FeatureUpdateError
from tailrace.cluster.records import Endpoint
from tailrace.cluster.state import ClusterState
from tailrace.cluster.topic_rules import (
    InvalidPartitionsError,
    InvalidReplicationError,
    InvalidTopicNameError,
    NewTopic,
    ReservedTopicError,
    TooManyGroupsError,
    TooManyPartitionsError,
    TopicExistsError,
)
from tailrace.config.settings import Setting
from tailrace.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from tailrace.coordinator.groups.settings import ConsumerSettings, GroupSettings
from tailrace.coordinator.transactions.settings import TransactionSettings
from tailrace.errors import ConfigError, DirectoryError, FatalError, TailraceError
from tailrace.handlers.fetch_sessions import FetchSessions
from tailrace.model import IsolationLevel, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode, code_for
from tailrace.protocol.frames import RequestHeader
from tailrace.replication.device_reads import DeviceReads
from tailrace.replication.flushes import Flushes
from tailrace.replication.leadership import NotReplicaError, StaleFollowerError
from tailrace.replication.moves import (
    CordonedDirectoryError,
    FolderNameError,
    LogDirNotFoundError,
    PartitionMoves,
    ReplicaNotAvailableError,
)
from tailrace.replication.partition import (
    DeletionPolicyError,
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderError,
    UnknownLeaderEpochError,
    UnknownPartitionError,
)
from tailrace.replication.quotas import ReplicationQuota
from tailrace.replication.replicas import Replicas
from tailrace.replication.validation import BatchValidation
from tailrace.replication.waiting import ReplicasTimedOutError
from tailrace.runtime.clock import Clock
from tailrace.runtime.files import CutMeanwhileError
from tailrace.runtime.threads import Threads
from tailrace.security.audit import Audit
from tailrace.security.quotas import ClientQuotas
from tailrace.storage.appends import UnexpectedAppendOffsetError, UnreadableRecordsError
from tailrace.storage.directories import UnusableDirectoryError
from tailrace.storage.positions import ReadLimit
from tailrace.storage.producers import (
    AbortedSequenceError,
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    ProducerSequenceError,
)
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.coordinator.groups.machine import GroupMachine
    from tailrace.coordinator.shard import PartitionLog
    from tailrace.coordinator.shards import Shards
    from tailrace.coordinator.transactions.machine import TransactionMachine
    from tailrace.coordinator.transactions.requests import AddPartitions
    from tailrace.security.authorizer import Authorizer

MESSAGE_CHARACTERS_MAX = 8000
"""Older versions allow 32,767 bytes for a string, and a character has up to four bytes."""

# Kafka's default of the field (KIP-430).
NO_OPERATIONS = -(2**31)
"""The authorized operations of an answer that nobody has asked for them."""

# What Kafka answers to a super user.
CLUSTER_OPERATIONS = 8096
"""All operations on a cluster, one bit each by Kafka's number: without an authorizer everybody may
do everything."""

TOPIC_OPERATIONS = 3576
"""All operations on a topic."""

GROUP_OPERATIONS = 3400
"""All operations on a group."""


class InvalidRequestError(FatalError, ValueError):
    """A request that contradicts itself, or that this broker does not support."""


_CODES: dict[type[Exception], ErrorCode] = {
    FeatureUpdateError: ErrorCode.INVALID_UPDATE_VERSION,
    FencedLeaderEpochError: ErrorCode.FENCED_LEADER_EPOCH,
    UnknownLeaderEpochError: ErrorCode.UNKNOWN_LEADER_EPOCH,
    InvalidRequestError: ErrorCode.INVALID_REQUEST,
    InvalidTopicNameError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    # Kafka's code for `__cluster_metadata`; other bad names are INVALID_TOPIC_EXCEPTION.
    ReservedTopicError: ErrorCode.INVALID_REQUEST,
    TopicExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    InvalidPartitionsError: ErrorCode.INVALID_PARTITIONS,
    TooManyGroupsError: ErrorCode.POLICY_VIOLATION,
    # Kafka has this code for more than 10,000 new partitions in one request.
    TooManyPartitionsError: ErrorCode.POLICY_VIOLATION,
    InvalidReplicationError: ErrorCode.INVALID_REPLICATION_FACTOR,
    ConfigError: ErrorCode.INVALID_CONFIG,
    CoordinatorLoadInProgressError: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    CoordinatorNotAvailableError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    NotCoordinatorError: ErrorCode.NOT_COORDINATOR,
    InvalidProducerEpochError: ErrorCode.INVALID_PRODUCER_EPOCH,
    ProducerSequenceError: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    AbortedSequenceError: ErrorCode.INVALID_TXN_STATE,
    InvalidTransactionStateError: ErrorCode.INVALID_TXN_STATE,
    CoordinatorFencedError: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    UnknownPartitionError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    NotLeaderError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    StaleFollowerError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    # A reassignment that this leader has not seen yet: the follower asks again (KIP-320).
    NotReplicaError: ErrorCode.UNKNOWN_LEADER_EPOCH,
    NotEnoughReplicasError: ErrorCode.NOT_ENOUGH_REPLICAS,
    ReplicasTimedOutError: ErrorCode.REQUEST_TIMED_OUT,
    DeletionPolicyError: ErrorCode.POLICY_VIOLATION,
    # KAFKA-4893: the suffix of a copy makes the name of a folder longer than 255 bytes.
    FolderNameError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    CordonedDirectoryError: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    LogDirNotFoundError: ErrorCode.LOG_DIR_NOT_FOUND,
    ReplicaNotAvailableError: ErrorCode.REPLICA_NOT_AVAILABLE,
    DirectoryError: ErrorCode.KAFKA_STORAGE_ERROR,
    UnusableDirectoryError: ErrorCode.KAFKA_STORAGE_ERROR,
    # Kafka's answer, where CORRUPT_MESSAGE would have a producer send the same bytes again.
    UnreadableRecordsError: ErrorCode.UNKNOWN_SERVER_ERROR,
    # Only followers raise these two, so no client of a leader gets them.
    UnexpectedAppendOffsetError: ErrorCode.UNKNOWN_SERVER_ERROR,
    CutMeanwhileError: ErrorCode.KAFKA_STORAGE_ERROR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The settings of this broker, for the APIs that show and change them."""

    declared: Mapping[str, Setting]
    """The settings that it has, by name."""
    is_changeable: Callable[[str], bool]
    """Tells by its name whether a setting changes while the broker runs."""
    port_of: Callable[[str], int | None]
    """The port that a listener of this broker has; None: there is no such listener."""
    given: Mapping[str, str]
    """The settings that it was started with, as text, also those without effect."""
    check: Callable[[Mapping[str, str], Mapping[str, str]], None]
    """Checks changes of all brokers and of this one together; raises a ConfigError."""
    apply: Callable[[], Awaitable[None]]
    """Has the broker use the changes that the cluster's state has."""


class VerdictsElsewhere(Protocol):
    """See `broker.transaction_peers.TransactionPeers.verdicts`."""

    async def __call__(
        self, request: "AddPartitions", *, is_adding: bool
    ) -> "dict[TopicPartition, ErrorCode] | None":
        """NONE, or an error, for each partition; None: this broker coordinates the transaction."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of a broker that its handlers use."""

    node_id: int
    cluster_id: str
    listener: str
    """Name of the listener on which the requests come; answers have the addresses that its clients
    connect to."""
    endpoints: Callable[[], Mapping[str, Endpoint]]
    """The advertised addresses of this broker, by listener."""
    cluster: ClusterState
    """The state of the cluster, to be read."""
    controller: Controller | None
    """Changes the cluster, if this node is its own controller; None: the controllers are others,
    to which requests for changes are forwarded."""
    create_topics: Callable[
        [Sequence[NewTopic], RequestHeader | None], Awaitable[Mapping[str, TailraceError]]
    ]
    """Creates topics that a client or a coordinator misses, or asks the controller to; the errors
    of those that cannot be, by name. A topic that is not in the image afterwards is being made. The
    header is that of the client whose rights and quota count at the controller; None: this broker's
    own."""
    next_producer_id: Callable[[], Awaitable[ProducerId]]
    """A producer id that was never assigned before; raises StorageError if none can be reserved."""
    changes: TopicChanges
    """Serializes the changes of each topic; all changes of the cluster go through it."""
    threads: Threads
    replicas: Replicas
    flushes: Flushes
    device_reads: DeviceReads
    moves: PartitionMoves
    validation: BatchValidation
    groups: "Shards[GroupMachine]"
    group_settings: GroupSettings
    consumer_settings_now: Callable[[], ConsumerSettings]
    transactions: "Shards[TransactionMachine]"
    transaction_settings_now: Callable[[], TransactionSettings]
    coordinator_log: "Callable[[TopicPartition], PartitionLog]"
    """A partition of this broker, as coordinators write to it."""
    verdicts_elsewhere: "VerdictsElsewhere | None"
    """Asks the coordinator of a transaction on another broker; None: there are no others."""
    clock: Clock
    is_durable: bool
    """Whether acks=all waits until the records are on the device (`tailrace.durability`)."""
    auto_create_topics: bool
    can_delete_topics: bool
    """`delete.topic.enable`."""
    fetch_sessions: FetchSessions
    sends_to_nearest: bool = False
    """Whether consumers are sent to followers in their rack (`replica.selector.class`, KIP-392)."""
    leader_quota: ReplicationQuota
    """The rate of the followers that are throttled here."""
    quotas: ClientQuotas
    """The quotas of users and client ids."""
    fetch_bytes_max: int
    """Most bytes of records in one fetch response."""
    fetch_wait_ms_max: int
    """Upper limit of the wait time of a fetch."""
    partitions_per_answer_max: int
    """Most partitions in one answer to DescribeTopicPartitions."""
    settings: BrokerSettings
    authorizer: "Authorizer | None"
    """Decides who may do what; None: everybody may do everything."""
    audit: Audit
    """Logs what clients have changed."""

    def endpoint(self) -> Endpoint | None:
        """The address of this broker for clients of the listener; None: it is not advertised."""
        return self.endpoints().get(self.listener)

    @property
    def own_controller(self) -> Controller:
        """The controller in this process, for handlers that run only where there is one."""
        # Where there is none, requests for changes are forwarded before a handler gets them.
        assert self.controller is not None
        return self.controller

    @property
    def consumer_settings(self) -> ConsumerSettings:
        """The settings of groups of the consumer protocol, some of which may change."""
        return self.consumer_settings_now()

    @property
    def transaction_settings(self) -> TransactionSettings:
        """The settings of transactions, some of which may change."""
        return self.transaction_settings_now()

    def find_topic(self, name: str, topic_id: UUID) -> Topic | None:
        """A topic by its id if that is not zero, else by its name; None if there is none."""
        return self.cluster.image.find_topic(name, topic_id)

    @property
    def has_consumer_protocol(self) -> bool:
        """Whether groups of the consumer protocol are served: by settings, and by the cluster."""
        # Their records need the feature: an older Kafka, which may get the directory back, does not
        # know them.
        is_in_use = self.cluster.image.features.get("group.version", 0) > 0
        return self.consumer_settings.is_served and is_in_use

    def has_partition(self, name: TopicPartition) -> bool:
        """Whether a topic of the cluster has this partition, on whichever broker it is."""
        topic = self.cluster.image.topics.get(name.topic)
        return topic is not None and 0 <= name.partition < topic.partition_count


def read_limit(isolation_level: int) -> ReadLimit:
    """The read limit of a consumer with this isolation level."""
    # Kafka has an exception for a number that is neither; here it is read_uncommitted.
    is_committed = isolation_level == IsolationLevel.READ_COMMITTED
    return ReadLimit.LAST_STABLE if is_committed else ReadLimit.HIGH_WATERMARK


def error_message(error: Exception) -> str:
    """The message of an error in a response, cut to a length that every version allows."""
    text = str(error)
    return text if len(text) < MESSAGE_CHARACTERS_MAX else f"{text[: MESSAGE_CHARACTERS_MAX - 1]}…"


def error_code(error: TailraceError | OSError) -> ErrorCode:
    """Kafka's error code for an exception; KAFKA_STORAGE_ERROR for an OSError of the system."""
    if not isinstance(error, TailraceError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    # By the exact type, so that no subclass has the code of its base by accident.
    return _CODES.get(type(error), code_for(error))
