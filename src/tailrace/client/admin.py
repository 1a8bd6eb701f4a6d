"""`create_topic`: a new topic.

Not here: reading topic metadata (`metadata`), and all other administration.
"""

from collections.abc import Mapping
from contextlib import closing

from tailrace.client.errors import raise_for
from tailrace.client.metadata import REQUEST_TIMEOUT_MS, ClusterReader
from tailrace.config import settings_texts
from tailrace.errors import kind_of
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


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
    configs = tuple(
        CreatableTopicConfig(name=each, value=value)
        for each, value in settings_texts(settings).items()
    )
    wanted = CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        configs=configs,
    )
    with closing(ClusterReader(bootstrap, timeout_ms=timeout_ms)) as cluster:
        broker = cluster.any_broker()
        answer = broker.request(
            CreateTopicsRequest(topics=(wanted,), timeout_ms=timeout_ms), CreateTopicsResponse
        )
    for topic in answer.topics:
        said = f": {topic.error_message}" if topic.error_message else ""
        raise_for(topic.error_code, about=f"topic {name} at {broker.address}{said}")
