"""The choice of a version for each request on one connection.

Not here: the ApiVersions request itself; see `handshake`.
"""

from collections.abc import Mapping

from tailrace.protocol.apis import APIS, BETWEEN_NODES, Api, ApiKey
from tailrace.protocol.messages.api_versions import ApiVersionsResponse

VERSION_LIMITS: Mapping[int, int] = {
    ApiKey.PRODUCE: 12,
    # From version 13 on it names topics by id alone (KIP-516), which some brokers do not have.
    ApiKey.FETCH: 12,
    # From version 10 on by topic ids alone, as Fetch.
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    # From version 4 on it is for brokers.
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.END_TXN: 5,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    # Version 6 adds two-phase commits (KIP-939).
    ApiKey.INIT_PRODUCER_ID: 5,
}
"""Highest versions that the client sends, where `protocol` could speak later ones."""

BEFORE_KIP_890: Mapping[int, int] = {
    ApiKey.PRODUCE: 11,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
}
"""Highest versions of requests outside of transactions of version 2.

In later ones, brokers add partitions to the transaction, and raise the epoch at its end.
"""

THROTTLED_SINCE: Mapping[int, int] = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.METADATA: 6,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 0,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.OFFSET_FETCH: 4,
    ApiKey.OFFSET_DELETE: 0,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.DESCRIBE_PRODUCERS: 0,
}
"""First version in which the broker answers before the throttle time, not after it (KIP-219).

From that version on, the client has to wait. For requests that are not named here it is 1.
"""


KAFKA_SINCE: Mapping[int, str] = {
    ApiKey.CREATE_PARTITIONS: "1.0",
    ApiKey.DESCRIBE_LOG_DIRS: "2.0",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "2.0",
    ApiKey.DESCRIBE_ACLS: "2.0",
    ApiKey.CREATE_ACLS: "2.0",
    ApiKey.DELETE_ACLS: "2.0",
    ApiKey.DELETE_GROUPS: "1.1",
    ApiKey.ELECT_LEADERS: "2.2",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "2.4",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "2.4",
    ApiKey.OFFSET_DELETE: "2.4",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "2.6",
    ApiKey.ALTER_CLIENT_QUOTAS: "2.6",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "2.7",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "2.7",
    ApiKey.UPDATE_FEATURES: "2.7",
    ApiKey.DESCRIBE_CLUSTER: "2.8",
    ApiKey.DESCRIBE_PRODUCERS: "2.8",
    ApiKey.WRITE_TXN_MARKERS: "2.8",
    ApiKey.UNREGISTER_BROKER: "2.8",
    ApiKey.DESCRIBE_QUORUM: "3.0",
    ApiKey.DESCRIBE_TRANSACTIONS: "3.0",
    ApiKey.LIST_TRANSACTIONS: "3.0",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "3.7",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "3.7",
    ApiKey.LIST_CONFIG_RESOURCES: "3.7",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "3.8",
}
"""The first Apache Kafka that has a version of an API which the client speaks; others: 2.1."""


class Features:
    """The features that a cluster uses (KIP-584), by the newest answer of its brokers."""

    def __init__(self) -> None:
        self._epoch = -1
        self._levels: Mapping[str, int] = {}

    def learn(self, answer: ApiVersionsResponse) -> None:
        """Take an answer, unless a newer one is known."""
        # Answers of several brokers come in any order.
        if answer.finalized_features_epoch >= self._epoch:
            self._epoch = answer.finalized_features_epoch
            self._levels = {each.name: each.max_version_level for each in answer.finalized_features}

    def level(self, name: str) -> int:
        """The level of a feature; 0 if it is not used."""
        return self._levels.get(name, 0)


def settle_versions(
    answer: ApiVersionsResponse, limits: Mapping[int, int] = VERSION_LIMITS
) -> dict[int, int]:
    """The version of each request by API key; requests without a common version are missing.

    `limits` are the highest versions that the client sends.
    """
    settled = {}
    for offered in answer.api_keys:
        api = APIS.get(offered.api_key) or BETWEEN_NODES.get(offered.api_key)
        if api is None:
            continue
        version = choose_version(
            api, first=offered.min_version, last=offered.max_version, limits=limits
        )
        if version is not None:
            settled[int(api.key)] = version
    return settled


def choose_version(
    api: Api, *, first: int, last: int, limits: Mapping[int, int] = VERSION_LIMITS
) -> int | None:
    """The highest version of `api` that a broker with versions `first` to `last` has, or None."""
    highest = min(api.last_version, last, limits.get(api.key, api.last_version))
    # A range, so the highest common version is the lower of both ends.
    return highest if highest >= max(api.first_version, first) else None
