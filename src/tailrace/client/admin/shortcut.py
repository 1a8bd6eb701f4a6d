"""`create_topic`: a new topic, for a program that asks nothing else of a cluster."""

from collections.abc import Mapping
from contextlib import closing

from tailrace.client.admin.topics import NewTopic, create_topics
from tailrace.client.metadata import REQUEST_TIMEOUT_MS, ClusterReader
from tailrace.errors import kind_of


def create_topic(
    bootstrap: str,
    name: str,
    *,
    partition_count: int,
    replication_factor: int = -1,
    settings: Mapping[str, object] | None = None,
    timeout_ms: int = REQUEST_TIMEOUT_MS,
) -> None:
    """Create a topic, with the broker's own replication factor unless one is given.

    `settings` are the topic's. A broker may take `timeout_ms` for it. See
    `Admin.create_topics` for what is sent once.

    Raises:
        ConfigError: `bootstrap` is not a list like `host1:9092,host2:9092`.
        TypeError: `name` is no str, or `settings` no mapping of names to values.
        UnreachableBrokerError: no broker of the list answers.
        RemoteFatalError: the broker refuses: the topic exists, or a setting is wrong.
        RemoteRetriableError: the broker refuses for now; try again later.
        UnknownOutcomeError: the broker got the request and did not answer.
    """
    if not isinstance(name, str):
        raise TypeError(f"name is {kind_of(name)}; it has to be a str")
    topic = NewTopic(name, partition_count, replication_factor, settings)
    with closing(ClusterReader(bootstrap, timeout_ms=timeout_ms)) as cluster:
        cluster.do(create_topics, [topic]).results()
