"""`ClusterReader`: which topics a cluster has, who leads them, and where their logs begin and end.

Leaders are cached; the cache is dropped before each retry.

Not here: records; see `fetcher`. Connections; see `brokers`.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from tailrace.client.brokers import Brokers, RemoteBroker, WaitingNetwork
from tailrace.client.config import parse_client_config
from tailrace.client.errors import RemoteRetriableError, UnreachableBrokerError, raise_for
from tailrace.client.nodes import Backoff, Node, NodesStatistics
from tailrace.client.retries import retry
from tailrace.config import settings_texts
from tailrace.model import IsolationLevel, SpecialTimestamp, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.runtime.polling import PollingNetwork

T = TypeVar("T")

REQUEST_TIMEOUT_MS = 30_000
"""Longest time that a broker may take to answer (Kafka: request.timeout.ms)."""


class ClusterReader:
    """Reads metadata and offsets of a cluster; not for more than one thread at a time."""

    def __init__(
        self,
        bootstrap: str,
        *,
        settings: Mapping[str, object] | None = None,
        client_id: str = "tailrace",
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        open_network: Callable[[], WaitingNetwork] = PollingNetwork.open,
        monotonic: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        """Connect on the first request, not here.

        `settings` are Kafka's, those of `ClientConfig`; a `client.id` or `request.timeout.ms`
        there overrides the argument.

        Raises:
            ConfigError: `bootstrap` is not a list like `host1:9092,host2:9092`, or a setting is
                unknown or cannot be used; all faults at once.
        """
        config = parse_client_config(
            {"client.id": client_id, "request.timeout.ms": timeout_ms}
            | settings_texts(settings)
            | {"bootstrap.servers": bootstrap}
        )
        chance = chance or random.SystemRandom()
        self._bootstrap = [Node(-n, *each) for n, each in enumerate(config.bootstrap_servers, 1)]
        self._brokers = Brokers(
            config, open_network=open_network, monotonic=monotonic, chance=chance
        )
        self._pauses = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self._known: list[Node] = []
        self._leaders: dict[TopicPartition, RemoteBroker] = {}

    def partitions(self, topics: Collection[str] | None = None) -> dict[str, tuple[int, ...]]:
        """Partition numbers by topic, of all topics or of those in `topics` that exist.

        Raises:
            UnreachableBrokerError: no broker of the list answers.
            RemoteRetriableError: a topic has no leader, also after the last attempt.
            RemoteFatalError: the broker refuses.
        """
        return self.retrying(lambda: self._ask_partitions(topics))

    def list_offsets(
        self,
        questions: Mapping[TopicPartition, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        """The offset of each partition at a time in ms, or at a `SpecialTimestamp`.

        -1 where no record is that new. With READ_COMMITTED the log ends at its last stable offset;
        later records are ignored.

        Raises:
            UnreachableBrokerError: a leader does not answer.
            RemoteRetriableError: a partition has no leader, also after the last attempt.
            RemoteFatalError: the broker refuses.
        """
        return self.retrying(lambda: self._ask_offsets(questions, isolation))

    def log_range(
        self,
        partition: TopicPartition,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> tuple[int, int]:
        """The first offset of a partition's log, and the one after its last readable record."""
        first, last = (
            self.list_offsets({partition: timestamp}, isolation=isolation)[partition]
            for timestamp in (SpecialTimestamp.EARLIEST, SpecialTimestamp.LATEST)
        )
        return first, last

    def leader(self, partition: TopicPartition) -> RemoteBroker:
        """The broker that leads a partition.

        Raises:
            UnreachableBrokerError: no broker can be reached.
            RemoteRetriableError: no broker leads it at the moment, or it does not exist.
        """
        if partition not in self._leaders:
            self._ask_partitions([partition.topic])
        broker = self._leaders.get(partition)
        if broker is None:
            raise RemoteRetriableError(ErrorCode.LEADER_NOT_AVAILABLE, about=str(partition))
        return broker

    def any_broker(self) -> RemoteBroker:
        """A broker that is connected, or else the first that can be connected to.

        Candidates are those of the bootstrap list and those that brokers have named since.

        Raises:
            UnreachableBrokerError: none can be reached.
            AuthenticationError: the first that can be reached refuses the login, or its identity
                could not be checked.
        """
        nodes = [*dict.fromkeys(self._bootstrap + self._known)]
        nodes.sort(key=self._brokers.is_ready, reverse=True)
        failures = []
        for node in nodes:
            try:
                self._brokers.connect(node)
            except UnreachableBrokerError as error:
                failures.append(error)
            else:
                return RemoteBroker(self._brokers, node)
        if len(failures) == 1:
            raise failures[0]
        raise UnreachableBrokerError(
            "no broker of the list can be reached: " + "; ".join(map(str, failures)),
            address=",".join(each.address for each in failures),
        )

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Call `attempt`, again with fresh leaders after a retriable error; returns its result."""
        return retry(
            attempt,
            recover=self._leaders.clear,
            pause=self._brokers.pause,
            pauses=self._pauses,
        )

    def statistics(self) -> NodesStatistics:
        """The connections by node since the last `close`; none before the first question."""
        return self._brokers.statistics()

    def close(self) -> None:
        """Close all connections and forget the leaders; the next question opens new ones."""
        self._brokers.close()
        self._leaders.clear()

    def _ask_partitions(self, topics: Collection[str] | None) -> dict[str, tuple[int, ...]]:
        asked = None if topics is None else tuple(MetadataRequestTopic(name=t) for t in topics)
        broker = self.any_broker()
        answer = broker.request(
            MetadataRequest(topics=asked, allow_auto_topic_creation=False), MetadataResponse
        )
        raise_for(answer.error_code, about=f"{broker.address} was asked for metadata")
        # A broker of the bootstrap list keeps its id, and with it the connection just used.
        listed = {(each.host, each.port): each for each in self._bootstrap}
        nodes = {
            each.node_id: listed.get(
                (each.host, each.port), Node(each.node_id, each.host, each.port)
            )
            for each in answer.brokers
        }
        self._known = [*nodes.values()]
        found: dict[str, tuple[int, ...]] = {}
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            raise_for(topic.error_code, about=f"topic {topic.name!r} at {broker.address}")
            found[topic.name] = tuple(sorted(each.partition_index for each in topic.partitions))
            for each in topic.partitions:
                if each.leader_id in nodes:
                    key = TopicPartition(topic.name, each.partition_index)
                    self._leaders[key] = RemoteBroker(self._brokers, nodes[each.leader_id])
        return found

    def _ask_offsets(
        self, questions: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        unknown = {each.topic for each in questions if each not in self._leaders}
        if unknown:
            self._ask_partitions(unknown)
        by_leader: dict[RemoteBroker, list[TopicPartition]] = {}
        for partition in questions:
            by_leader.setdefault(self.leader(partition), []).append(partition)
        found: dict[TopicPartition, int] = {}
        for broker, partitions in by_leader.items():
            request = list_offsets_request(
                {each: questions[each] for each in partitions}, isolation=isolation
            )
            for topic in broker.request(request, ListOffsetsResponse).topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    raise_for(each.error_code, about=f"offsets of {partition} at {broker.address}")
                    found[partition] = each.offset
        missing = [str(each) for each in questions if each not in found]
        if missing:
            raise RemoteRetriableError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about="offsets of " + ", ".join(missing)
            )
        return found


def list_offsets_request(
    questions: Mapping[TopicPartition, int], *, isolation: IsolationLevel
) -> ListOffsetsRequest:
    """A ListOffsets request for partitions of one leader, by partition and timestamp."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, number), timestamp in questions.items():
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=tuple(
            ListOffsetsTopic(name=name, partitions=tuple(asked)) for name, asked in topics.items()
        ),
    )
