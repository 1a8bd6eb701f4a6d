"""Topics and partitions that have to exist, as commands name them.

Not here: changes of topics; see `admin.topics`.
"""

from collections.abc import Collection

from tailrace.client.errors import NoSuchPartitionError, NoSuchTopicError, RemoteRetriableError
from tailrace.client.reader import ClusterReader, TopicDescription
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode


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
        # The first answer is an error while the broker creates the topic, so this is retried.
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
    existing = {each.partition for each in topic.partitions}
    wanted = sorted(existing if numbers is None else set(numbers))
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
