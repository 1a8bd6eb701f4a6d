"""Topics of a cluster: find, create and delete them, and give them more partitions.

The controller makes the changes; any broker of a KRaft cluster forwards to it. A request for a
change is sent once: a second one could fail because the first has made the change.

Not here: settings of topics (`configs`) and their logs (`offsets`).
"""

from collections.abc import Collection, Mapping

from tailrace.client.errors import (
    NoSuchPartitionError,
    NoSuchTopicError,
    RemoteRetriableError,
    raise_for,
)
from tailrace.client.metadata import REQUEST_TIMEOUT_MS, ClusterReader, TopicDescription
from tailrace.config import settings_texts
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


def find_topic(cluster: ClusterReader, name: str) -> TopicDescription:
    """A topic that has to exist.

    Raises:
        NoSuchTopicError: it does not.
        UnreachableBrokerError: no broker of the list answers.
        RemoteRetriableError, RemoteFatalError: the broker refuses.
    """
    found = cluster.topics([name]).get(name)
    if found is None:
        raise NoSuchTopicError(name, existing=cluster.topics())
    return found


def find_or_create_topic(cluster: ClusterReader, name: str) -> TopicDescription:
    """A topic, which a broker may create because it is asked for.

    Raises:
        NoSuchTopicError: it does not exist after some seconds: `auto.create.topics.enable` is off.
        UnreachableBrokerError: no broker of the list answers.
        RemoteRetriableError, RemoteFatalError: the broker refuses.
    """

    def ask() -> TopicDescription:
        found = cluster.topics([name], may_create=True).get(name)
        if found is None:
            raise RemoteRetriableError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about=f"topic {name}")
        return found

    try:
        return cluster.retrying(ask)
    except RemoteRetriableError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise NoSuchTopicError(name, existing=cluster.topics()) from error


def find_partitions(
    cluster: ClusterReader, name: str, numbers: Collection[int] | None = None
) -> list[TopicPartition]:
    """Partitions of a topic in order: those with these numbers, or all.

    Raises:
        NoSuchTopicError: the topic does not exist.
        NoSuchPartitionError: it does not have one of the partitions.
        UnreachableBrokerError: no broker of the list answers.
        RemoteRetriableError, RemoteFatalError: the broker refuses.
    """
    topic = find_topic(cluster, name)
    existing = [each.partition for each in topic.partitions]
    wanted = existing if numbers is None else sorted(set(numbers))
    for number in wanted:
        if number not in existing:
            raise NoSuchPartitionError(name, number, count=len(existing))
    return [TopicPartition(name, number) for number in wanted]


def led_partitions(
    cluster: ClusterReader, partitions: Collection[TopicPartition]
) -> set[TopicPartition]:
    """The partitions that exist and have a leader now, so that their logs can be asked about.

    Raises:
        UnreachableBrokerError: no broker of the list answers.
        RemoteRetriableError, RemoteFatalError: the broker refuses.
    """
    if not partitions:
        return set()
    topics = cluster.topics({each.topic for each in partitions})
    led = {
        TopicPartition(name, each.partition)
        for name, topic in topics.items()
        for each in topic.partitions
        if each.leader >= 0
    }
    return led.intersection(partitions)


def add_topic(
    cluster: ClusterReader,
    name: str,
    *,
    partition_count: int = -1,
    replication_factor: int = -1,
    settings: Mapping[str, object] | None = None,
    timeout_ms: int = REQUEST_TIMEOUT_MS,
) -> None:
    """Create a topic; a count of -1 is the broker's own default.

    Raises:
        TypeError: `settings` is no mapping of names to values.
        UnreachableBrokerError: no broker of the list answers.
        RemoteFatalError: the broker refuses: the topic exists, or a setting is wrong.
        RemoteRetriableError: the broker refuses for now; try again later.
    """
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
    broker = cluster.retrying(cluster.controller)
    answer = broker.request(
        CreateTopicsRequest(topics=(wanted,), timeout_ms=timeout_ms), CreateTopicsResponse
    )
    for each in answer.topics:
        _check(each.error_code, each.error_message, about=f"topic {name} at {broker.address}")


def delete_topic(
    cluster: ClusterReader, name: str, *, timeout_ms: int = REQUEST_TIMEOUT_MS
) -> None:
    """Delete a topic with all of its records.

    Raises:
        NoSuchTopicError: it does not exist.
        UnreachableBrokerError: no broker of the list answers.
        RemoteFatalError: the broker refuses; a setting of it may forbid to delete topics.
        RemoteRetriableError: the broker refuses for now; try again later.
    """
    find_topic(cluster, name)
    broker = cluster.retrying(cluster.controller)
    answer = broker.request(
        DeleteTopicsRequest(
            topics=(DeleteTopicState(name=name),), topic_names=(name,), timeout_ms=timeout_ms
        ),
        DeleteTopicsResponse,
    )
    for each in answer.responses:
        _check(each.error_code, each.error_message, about=f"topic {name} at {broker.address}")


def add_partitions(
    cluster: ClusterReader, name: str, count: int, *, timeout_ms: int = REQUEST_TIMEOUT_MS
) -> None:
    """Give a topic more partitions, so that it has `count` of them.

    Records with a key may go to other partitions from then on.

    Raises:
        NoSuchTopicError: it does not exist.
        UnreachableBrokerError: no broker of the list answers.
        UnsupportedBrokerError: the broker cannot do it.
        RemoteFatalError: the broker refuses: the topic has as many, or more.
        RemoteRetriableError: the broker refuses for now; try again later.
    """
    find_topic(cluster, name)
    broker = cluster.retrying(cluster.controller)
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    answer = broker.request(
        CreatePartitionsRequest(topics=(wanted,), timeout_ms=timeout_ms), CreatePartitionsResponse
    )
    for each in answer.results:
        _check(each.error_code, each.error_message, about=f"topic {name} at {broker.address}")


def _check(code: int, message: str | None, *, about: str) -> None:
    raise_for(code, about=f"{about}: {message.rstrip('.')}" if message else about)
