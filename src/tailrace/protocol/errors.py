"""Kafka's error codes, their messages, and the codes for our exceptions.

Rooms below `handlers` and `client` do not use error codes; they raise the classes of
`tailrace.errors`, and `handlers` calls `code_for`.

Names, numbers and retriability are those of Kafka 4. The messages are ours, one for each error that
Tailrace answers with.
"""

from enum import IntEnum

from tailrace.errors import (
    CorruptionError,
    FatalError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    StorageError,
    TailraceError,
    UnsupportedCodecError,
)


class MalformedMessageError(FatalError, ValueError):
    """Bytes from a peer that are not a message; the connection cannot be used any more."""

    def __init__(self, rule: str, *, position: int) -> None:
        self.rule = rule
        """The fault, as a sentence with its values."""
        self.position = position
        """Position of the wrong field, in bytes from the start of the view."""
        super().__init__(f"position {position}: {rule}")


class TooManyPartsError(MalformedMessageError):
    """The arrays of a message have more elements together than the reader allows.

    No objects were created for the array that exceeded the limit.
    """


class UnencodableMessageError(FatalError, ValueError):
    """A value does not fit its field in this version: number too large, null, or wrong type."""


class MalformedRecordError(CorruptionError):
    """A key or value that ends too early, or has a field that is not of its type."""


class UnknownRecordError(FatalError, ValueError):
    """A record of a type, or a value of a version, that is not known here."""

    def __init__(self, *, what: str, number: int) -> None:
        self.what = what
        """The number: a type, or the version of a class."""
        self.number = number
        super().__init__(f"{what} {number} is not known")


class ErrorCode(IntEnum):
    """Kafka's error codes; 0 is no error."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def is_retriable(self) -> bool:
        """Whether Kafka's clients retry the request after this error."""
        return self in _RETRIABLE

    @property
    def message(self) -> str:
        """The error as a sentence; the name in words for codes that Tailrace does not send."""
        return _MESSAGES.get(self) or self.name.lower().replace("_", " ")


_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


_MESSAGES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker failed in a way it did not expect; see its log",
    ErrorCode.NONE: "no error",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is outside of the partition's log",
    ErrorCode.CORRUPT_MESSAGE: "the records are damaged: checksum, size or structure is wrong",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "this broker does not have that topic or partition",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker does not lead that partition",
    ErrorCode.REQUEST_TIMED_OUT: "the request was not completed within its timeout",
    ErrorCode.MESSAGE_TOO_LARGE: "the batch is larger than max.message.bytes",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no broker coordinates that key",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the name is not one that a topic may have",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than segment.bytes",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks is none of 0, 1 and -1",
    ErrorCode.INVALID_TIMESTAMP: "a record's timestamp is outside of what the topic allows",
    ErrorCode.UNSUPPORTED_VERSION: "this broker does not serve that version of the API",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic with that name already exists",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not one that a topic may have",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor does not fit the brokers",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the assignment of replicas does not fit the brokers",
    ErrorCode.INVALID_CONFIG: "a setting of the topic is unknown or has a wrong value",
    ErrorCode.NOT_CONTROLLER: "this broker is not the controller",
    ErrorCode.INVALID_REQUEST: "the request does not follow the protocol",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the format of the log cannot answer that",
    ErrorCode.POLICY_VIOLATION: "the request breaks a policy of this broker",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the producer's sequence number leaves a gap",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "the producer sent that sequence number before",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer has taken over that producer id",
    ErrorCode.INVALID_TXN_STATE: "no transaction is open that the request could be for",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id has another producer id",
    ErrorCode.CONCURRENT_TRANSACTIONS: (
        "the markers of the transaction before are being written; ask again"
    ),
    ErrorCode.PRODUCER_FENCED: "a newer producer has taken over that transactional id",
    ErrorCode.TRANSACTION_ABORTABLE: "the partition is not in the transaction: abort it",
    ErrorCode.KAFKA_STORAGE_ERROR: "the partition's directory is offline",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the log has no state of that producer id",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "the fetch session is not known; start a new one",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "the fetch session is at another epoch",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete.topic.enable is false",
    ErrorCode.FENCED_LEADER_EPOCH: "the partition has a newer leader epoch than the request",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the request has a newer leader epoch than the partition",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the codec is unknown, or too new for this version",
    ErrorCode.INVALID_RECORD: "the batch breaks a rule of its topic or of its format",
    ErrorCode.UNKNOWN_TOPIC_ID: "this broker does not have a topic with that id",
}


def code_for(error: TailraceError) -> ErrorCode:
    """Kafka's error code for an exception; UNKNOWN_SERVER_ERROR for all others."""
    match error:
        case CorruptionError():
            return ErrorCode.CORRUPT_MESSAGE
        case OffsetOutOfRangeError():
            return ErrorCode.OFFSET_OUT_OF_RANGE
        # Before the case without a setting, which would match as well.
        case RecordTooLargeError(setting="segment.bytes"):
            return ErrorCode.RECORD_LIST_TOO_LARGE
        case RecordTooLargeError():
            return ErrorCode.MESSAGE_TOO_LARGE
        case InvalidRecordError():
            return ErrorCode.INVALID_RECORD
        case InvalidTimestampError():
            return ErrorCode.INVALID_TIMESTAMP
        case UnsupportedCodecError():
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        case StorageError():
            return ErrorCode.KAFKA_STORAGE_ERROR
        case MalformedMessageError():
            return ErrorCode.INVALID_REQUEST
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR
