"""`create_topic`: a new topic, for a program that asks nothing else.

Not here: all other administration; see `topics`, `configs`, `groups`, `transactions`.
"""

from collections.abc import Mapping
from contextlib import closing

from tailrace.client.metadata import REQUEST_TIMEOUT_MS, ClusterReader
from tailrace.client.topics import add_topic
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

    `settings` are the topic's. A broker may take `timeout_ms` for it. The request is sent once: a
    second one could fail because the first has created the topic.

    Raises:
        ConfigError: `bootstrap` is not a list like `host1:9092,host2:9092`.
        TypeError: `name` is no str, or `settings` no mapping of names to values.
        UnreachableBrokerError: no broker of the list answers.
        RemoteFatalError: the broker refuses: the topic exists, or a setting is wrong.
        RemoteRetriableError: the broker refuses for now; try again later.
    """
    if not isinstance(name, str):
        raise TypeError(f"name is {kind_of(name)}; it has to be a str")
    with closing(ClusterReader(bootstrap, timeout_ms=timeout_ms)) as cluster:
        add_topic(
            cluster,
            name,
            partition_count=partition_count,
            replication_factor=replication_factor,
            settings=settings,
            timeout_ms=timeout_ms,
        )
