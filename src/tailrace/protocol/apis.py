"""The tables of APIs: all keys of Kafka, and the versions that are served and sent.

`ApiKey` has every key of Kafka 4. `APIS` has the APIs that a Tailrace broker serves, with the
versions that a Kafka 4.3 broker serves; our clients send no others.

    not served                          because
    76 to 79, 83 to 87, 90 to 92        there are no share groups; a client that does not find the
                                        API says the same as after Kafka's UNSUPPORTED_VERSION,
                                        which brokers answer where share.version is 0
    88, 89                              there are no streams groups; likewise, with streams.version
    71, 72                              nothing takes metrics of clients; Kafka does not list them
                                        either, unless it has a plug-in that does
    52 to 54, 56, 58, 59, 62, 63, 67,   between controllers and brokers; Kafka has them on
    70, 73, 82                          listeners of controllers only. A broker sends those of
                                        `BETWEEN_NODES`

The classes of ListOffsets are `ListOffsetsRequest` and `ListOffsetsResponse` in
`tailrace.protocol.messages.list_offsets`; so it is with every key. The module is imported when one
of its classes is first needed (decision 24).

Not here: what a request means (`handlers`) and how a header is read (`frames`).

Invariant: a version in `APIS` can be decoded and encoded in both directions.
"""

from enum import IntEnum
from functools import cache, cached_property
from importlib import import_module
from typing import Final

from tailrace.protocol.fields import Message

_MESSAGES = "tailrace.protocol.messages"


class ApiKey(IntEnum):
    """The key of an API; 4 to 7 were removed with ZooKeeper."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    @property
    def title(self) -> str:
        """The name as Kafka's documents write it: ListOffsets."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def module(self) -> str:
        """The last part of the names of its modules: list_offsets."""
        return self.name.lower()


class Api:
    """An API that is served, and that our clients send; there is one object for each."""

    def __init__(self, key: ApiKey, first_version: int, last_version: int) -> None:
        self.key: Final = key
        self.first_version: Final = first_version
        self.last_version: Final = last_version

    @cached_property
    def request(self) -> type[Message]:
        return self._message("Request")

    @cached_property
    def response(self) -> type[Message]:
        return self._message("Response")

    @property
    def versions(self) -> range:
        """The implemented versions."""
        return range(self.first_version, self.last_version + 1)

    @property
    def advertised_first_version(self) -> int:
        """The lowest version in an ApiVersions response."""
        # As in Kafka, although 0 to 2 are refused: without them old librdkafka assumes that the
        # broker does not support compression (KAFKA-18659).
        return 0 if self.key is ApiKey.PRODUCE else self.first_version

    def is_served(self, version: int) -> bool:
        """Whether this version can be read and answered."""
        return self.first_version <= version <= self.last_version

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields (KIP-482)."""
        return version >= self.request.flexible_since

    def has_response_tags(self, version: int) -> bool:
        """Whether the response header has a tag section."""
        # The client of ApiVersions does not know the broker's versions yet, and a broker that does
        # not have the request's version answers in version 0 (KIP-511).
        return self.is_flexible(version) and self.key is not ApiKey.API_VERSIONS

    def _message(self, kind: str) -> type[Message]:
        # Imported at the first use: a client needs a dozen of the sixty APIs (decision 24).
        module = import_module(f"{_MESSAGES}.{self.key.module}")
        found: type[Message] = getattr(module, f"{self.key.title}{kind}")
        return found


_SERVED = (
    (ApiKey.PRODUCE, 3, 13),
    (ApiKey.FETCH, 4, 18),
    (ApiKey.LIST_OFFSETS, 1, 11),
    (ApiKey.METADATA, 0, 13),
    (ApiKey.OFFSET_COMMIT, 2, 10),
    (ApiKey.OFFSET_FETCH, 1, 10),
    (ApiKey.FIND_COORDINATOR, 0, 6),
    (ApiKey.JOIN_GROUP, 0, 9),
    (ApiKey.HEARTBEAT, 0, 4),
    (ApiKey.LEAVE_GROUP, 0, 5),
    (ApiKey.SYNC_GROUP, 0, 5),
    (ApiKey.DESCRIBE_GROUPS, 0, 6),
    (ApiKey.LIST_GROUPS, 0, 5),
    (ApiKey.SASL_HANDSHAKE, 0, 1),
    (ApiKey.API_VERSIONS, 0, 4),
    (ApiKey.CREATE_TOPICS, 2, 7),
    (ApiKey.DELETE_TOPICS, 1, 6),
    (ApiKey.DELETE_RECORDS, 0, 2),
    (ApiKey.INIT_PRODUCER_ID, 0, 5),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5),
    (ApiKey.ADD_OFFSETS_TO_TXN, 0, 4),
    (ApiKey.END_TXN, 0, 5),
    (ApiKey.WRITE_TXN_MARKERS, 1, 2),
    (ApiKey.TXN_OFFSET_COMMIT, 0, 5),
    (ApiKey.DESCRIBE_ACLS, 1, 3),
    (ApiKey.CREATE_ACLS, 1, 3),
    (ApiKey.DELETE_ACLS, 1, 3),
    (ApiKey.DESCRIBE_CONFIGS, 1, 4),
    (ApiKey.ALTER_CONFIGS, 0, 2),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2),
    (ApiKey.DESCRIBE_LOG_DIRS, 1, 5),
    (ApiKey.SASL_AUTHENTICATE, 0, 2),
    (ApiKey.CREATE_PARTITIONS, 0, 3),
    (ApiKey.CREATE_DELEGATION_TOKEN, 1, 3),
    (ApiKey.RENEW_DELEGATION_TOKEN, 1, 2),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3),
    (ApiKey.DELETE_GROUPS, 0, 2),
    (ApiKey.ELECT_LEADERS, 0, 2),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0),
    (ApiKey.OFFSET_DELETE, 0, 0),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1),
    (ApiKey.ALTER_CLIENT_QUOTAS, 0, 1),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0),
    (ApiKey.DESCRIBE_QUORUM, 0, 2),
    (ApiKey.UPDATE_FEATURES, 0, 2),
    (ApiKey.DESCRIBE_CLUSTER, 0, 2),
    (ApiKey.DESCRIBE_PRODUCERS, 0, 0),
    (ApiKey.UNREGISTER_BROKER, 0, 0),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, 0),
    (ApiKey.LIST_TRANSACTIONS, 0, 2),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1),
    (ApiKey.LIST_CONFIG_RESOURCES, 0, 1),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0),
    (ApiKey.ADD_RAFT_VOTER, 0, 1),
    (ApiKey.REMOVE_RAFT_VOTER, 0, 0),
)

APIS: dict[int, Api] = {key: Api(key, first, last) for key, first, last in _SERVED}
"""The served requests by key, ascending."""

_BETWEEN_NODES = (
    (ApiKey.ALTER_PARTITION, 2, 3),
    (ApiKey.ENVELOPE, 0, 0),
    (ApiKey.FETCH_SNAPSHOT, 0, 1),
    (ApiKey.BROKER_REGISTRATION, 0, 4),
    (ApiKey.BROKER_HEARTBEAT, 0, 2),
    (ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0),
    (ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0),
)

BETWEEN_NODES: dict[int, Api] = {key: Api(key, first, last) for key, first, last in _BETWEEN_NODES}
"""The requests that a broker sends to controllers, and serves to nobody, by key."""


@cache
def api_of(request: type[Message]) -> Api:
    """The API whose requests this class is of."""
    key = ApiKey[request.__module__.rpartition(".")[2].upper()]
    return APIS.get(key) or BETWEEN_NODES[key]
