"""`ClusterReader`: which topics a cluster has, who leads them, and where their logs begin and end.

Leaders and coordinators are cached; the caches are dropped before each retry.

Not here: records; see `fetcher`. Connections; see `brokers`.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tailrace.client.brokers import Brokers, PendingRequest, RemoteBroker, WaitingNetwork
from tailrace.client.config import parse_client_config
from tailrace.client.errors import RemoteRetriableError, UnreachableBrokerError, raise_for
from tailrace.client.nodes import Backoff, Node, NodesStatistics
from tailrace.client.retries import retry
from tailrace.config import settings_texts
from tailrace.model import IsolationLevel, SpecialTimestamp, TopicPartition
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
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
    MetadataResponseTopic,
)
from tailrace.runtime.polling import PollingNetwork

T = TypeVar("T")

REQUEST_TIMEOUT_MS = 30_000
"""Longest time that a broker may take to answer (Kafka: request.timeout.ms)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition's leader and replicas, by their node ids."""

    partition: int
    leader: int
    """-1 if no broker leads it at the moment."""
    leader_epoch: int
    """-1 from a broker that does not tell."""
    replicas: tuple[int, ...]
    """All replicas; the first is the preferred leader."""
    isr: tuple[int, ...]
    """The replicas that are in sync."""
    offline: tuple[int, ...]
    """The replicas that are not available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic as the brokers know it."""

    name: str
    is_internal: bool
    """Whether Kafka keeps its own state in it."""
    partitions: tuple[PartitionDescription, ...]
    """Ordered by number."""


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
        self._nodes: dict[int, Node] = {}
        """The brokers that answers have named, by id."""
        self._controller = -1
        self._leaders: dict[TopicPartition, RemoteBroker] = {}
        self._coordinators: dict[tuple[CoordinatorKeyType, str], RemoteBroker] = {}

    def topics(
        self, names: Collection[str] | None = None, *, may_create: bool = False
    ) -> dict[str, TopicDescription]:
        """All topics by name, or those in `names` that exist.

        With `may_create` a broker with `auto.create.topics.enable` begins to create the others.

        Raises:
            UnreachableBrokerError: no broker of the list answers.
            RemoteRetriableError: the broker refuses for now, also after the last attempt.
            RemoteFatalError: the broker refuses.
        """
        return self.retrying(lambda: self._ask_topics(names, may_create=may_create))

    def partitions(self, topics: Collection[str] | None = None) -> dict[str, tuple[int, ...]]:
        """Partition numbers by topic, of all topics or of those in `topics` that exist.

        Raises:
            UnreachableBrokerError: no broker of the list answers.
            RemoteRetriableError: a topic has no leader, also after the last attempt.
            RemoteFatalError: the broker refuses.
        """
        return {
            name: tuple(each.partition for each in topic.partitions)
            for name, topic in self.topics(topics).items()
        }

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
            self._ask_topics([partition.topic])
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
        nodes = [*dict.fromkeys((*self._bootstrap, *self._nodes.values()))]
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

    def all_brokers(self) -> list[RemoteBroker]:
        """Every broker that is alive, by the metadata that is asked for now.

        Raises:
            UnreachableBrokerError: no broker of the list answers.
            RemoteRetriableError, RemoteFatalError: the broker refuses.
        """
        self._ask_topics(())
        return [RemoteBroker(self._brokers, each) for each in self._nodes.values()]

    def controller(self) -> RemoteBroker:
        """The broker that takes changes of topics: the controller, or one that forwards to it.

        Raises:
            UnreachableBrokerError: no broker of the list answers.
            RemoteRetriableError: no broker is the controller at the moment.
        """
        self._ask_topics(())
        found = self._nodes.get(self._controller)
        if found is None:
            raise RemoteRetriableError(
                ErrorCode.NOT_CONTROLLER, about="no broker is the controller"
            )
        return RemoteBroker(self._brokers, found)

    def coordinator(self, kind: CoordinatorKeyType, key: str) -> RemoteBroker:
        """The coordinator of a group, or of a transactional id.

        Raises:
            UnreachableBrokerError: no broker of the list answers.
            RemoteRetriableError: it is not available at the moment.
            RemoteFatalError: the broker refuses.
        """
        found = self._coordinators.get((kind, key))
        if found is not None:
            return found
        broker = self.any_broker()
        answer = broker.request(
            FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=(key,)),
            FindCoordinatorResponse,
        )
        # Until version 3 the answer is about one key; later it has a list.
        told = next(iter(answer.coordinators), answer)
        what = f"the coordinator of {kind.name.lower()} {key!r}"
        raise_for(told.error_code, about=f"{broker.address} was asked for {what}")
        found = RemoteBroker(self._brokers, self._node(told.node_id, told.host, told.port))
        self._coordinators[kind, key] = found
        return found

    def retrying(self, attempt: Callable[[], T]) -> T:
        """The result of `attempt`, which is called again after a retriable error.

        Leaders and coordinators are looked up anew then. After a bounded number of attempts, the
        last error is raised.
        """
        return retry(
            attempt,
            recover=self._forget,
            pause=self._brokers.pause,
            pauses=self._pauses,
        )

    def wait_for_any(self, pending: Collection[PendingRequest], seconds: float) -> None:
        """Wait until one of these requests has its outcome, for `seconds` at most."""
        self._brokers.wait_for_any(pending, seconds)

    def statistics(self) -> NodesStatistics:
        """The connections by node since the last `close`; none before the first question."""
        return self._brokers.statistics()

    def close(self) -> None:
        """Close all connections and forget the leaders; the next question opens new ones."""
        self._brokers.close()
        self._forget()

    def _ask_topics(
        self, names: Collection[str] | None, *, may_create: bool = False
    ) -> dict[str, TopicDescription]:
        asked = None if names is None else tuple(MetadataRequestTopic(name=each) for each in names)
        broker = self.any_broker()
        answer = broker.request(
            MetadataRequest(topics=asked, allow_auto_topic_creation=may_create), MetadataResponse
        )
        raise_for(answer.error_code, about=f"{broker.address} was asked for metadata")
        nodes = {
            each.node_id: self._node(each.node_id, each.host, each.port) for each in answer.brokers
        }
        self._nodes = nodes
        self._controller = answer.controller_id
        found: dict[str, TopicDescription] = {}
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            raise_for(topic.error_code, about=f"topic {topic.name!r} at {broker.address}")
            found[topic.name] = _description(topic.name, topic)
            for each in topic.partitions:
                if each.leader_id in nodes:
                    key = TopicPartition(topic.name, each.partition_index)
                    self._leaders[key] = RemoteBroker(self._brokers, nodes[each.leader_id])
        return found

    def _node(self, node_id: int, host: str, port: int) -> Node:
        # A broker of the bootstrap list keeps its id, and with it the connection just used.
        listed = (each for each in self._bootstrap if (each.host, each.port) == (host, port))
        return next(listed, Node(node_id, host, port))

    def _forget(self) -> None:
        self._leaders.clear()
        self._coordinators.clear()

    def _ask_offsets(
        self, questions: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        unknown = {each.topic for each in questions if each not in self._leaders}
        if unknown:
            self._ask_topics(unknown)
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


def _description(name: str, topic: MetadataResponseTopic) -> TopicDescription:
    ordered = sorted(topic.partitions, key=lambda each: each.partition_index)
    return TopicDescription(
        name=name,
        is_internal=topic.is_internal,
        partitions=tuple(
            PartitionDescription(
                partition=each.partition_index,
                leader=each.leader_id,
                leader_epoch=each.leader_epoch,
                replicas=each.replica_nodes,
                isr=each.isr_nodes,
                offline=each.offline_replicas,
            )
            for each in ordered
        ),
    )


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
