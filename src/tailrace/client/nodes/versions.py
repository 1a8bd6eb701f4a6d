"""The choice of a version for each request on one connection.

Not here: the ApiVersions request itself; see `setup`.
"""

from collections.abc import Mapping

from tailrace.protocol.apis import SPOKEN, Api, ApiKey
from tailrace.protocol.messages.api_versions import ApiVersionsResponse

VERSION_LIMITS: Mapping[int, int] = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 12,
    ApiKey.METADATA: 8,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.INIT_PRODUCER_ID: 5,
}
"""Highest versions that the client sends, where `protocol` could speak later ones.

From v13 on a Fetch names topics by id alone (KIP-516), which some brokers do not have; so do
OffsetCommit and OffsetFetch from v10 on. Metadata
after v8 tells a client nothing new, and librdkafka's mock cluster (2.16) appends a surplus byte to
the flexible versions, which `protocol` refuses. With later versions of Produce, EndTxn and
TxnOffsetCommit, a broker treats the producer as one that follows KIP-890. AddPartitionsToTxn from
v4 on is for brokers. InitProducerId v6 adds two-phase commits (KIP-939).
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


def settle_versions(answer: ApiVersionsResponse) -> dict[int, int]:
    """The version of each request by API key; requests without a common version are missing."""
    settled = {}
    for offered in answer.api_keys:
        api = SPOKEN.get(offered.api_key)
        if api is None:
            continue
        version = choose_version(api, first=offered.min_version, last=offered.max_version)
        if version is not None:
            settled[int(api.key)] = version
    return settled


def choose_version(api: Api, *, first: int, last: int) -> int | None:
    """The highest version of `api` that a broker with versions `first` to `last` has, or None."""
    highest = min(api.last_version, last, VERSION_LIMITS.get(api.key, api.last_version))
    return highest if highest >= max(api.first_version, first) else None
