"""`ClusterReader`: which topics a cluster has, who leads them, and where their logs begin and end.

Leaders and coordinators are cached (`routes`); the cache is dropped before each retry. It also runs
operations of `admin`, which are steps without I/O.

Not here: records; see `fetcher`. Connections; see `brokers`.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping
from typing import Concatenate, ParamSpec, TypeVar
from uuid import UUID

from tailrace.client.asking import carry_out
from tailrace.client.brokers import Brokers, PendingRequest, RemoteBroker, WaitingNetwork
from tailrace.client.config import ClientConfig, parse_client_config
from tailrace.client.errors import (
    RemoteRetriableError,
    UnreachableBrokerError,
    raise_for,
)
from tailrace.client.nodes import Backoff, ConnectionPool, Node, NodesStatistics
from tailrace.client.nodes.versions import VERSION_LIMITS
from tailrace.client.retries import ATTEMPTS_MAX, retry
from tailrace.client.routes import ANY, Routes, Target, leader
from tailrace.client.steps import Call, Steps
from tailrace.errors import TailraceError
from tailrace.model import IsolationLevel, SpecialTimestamp, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
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
from tailrace.values import dataclass

P = ParamSpec("P")
T = TypeVar("T")

REQUEST_TIMEOUT_MS = 30_000
"""Longest time that a broker may take to answer (Kafka: request.timeout.ms)."""

WITH_TOPIC_IDS: Mapping[int, int] = {**VERSION_LIMITS, ApiKey.FETCH: 17, ApiKey.METADATA: 13}
"""Highest versions of a reader that tells topics of the same name apart by their ids (KIP-516)."""

OPERATION_TIMEOUT_MS = 60_000
"""Longest time of an operation with all retries (Kafka: default.api.timeout.ms)."""


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
    eligible_leaders: tuple[int, ...] | None = None
    """Replicas out of sync that may lead without loss (KIP-966); None from older brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic as the brokers know it."""

    name: str
    is_internal: bool
    """Whether Kafka keeps its own state in it."""
    partitions: tuple[PartitionDescription, ...]
    """Ordered by number."""
    topic_id: UUID | None = None
    """None from a broker that does not tell, or to a client that asks in an older version."""
    authorized_operations: frozenset[int] | None = None
    """Operations that the client may do, by the numbers of `AclOperation`; None if nobody asked."""


class ClusterReader:
    """Reads metadata and offsets of a cluster; not for more than one thread at a time."""

    def __init__(
        self,
        bootstrap: str | ClientConfig,
        *,
        settings: Mapping[str, object] | None = None,
        client_id: str = "tailrace",
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        has_topic_ids: bool = False,
        open_network: Callable[[], WaitingNetwork] = PollingNetwork.open,
        monotonic: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        """Connect on the first request, not here.

        `bootstrap` has all settings, or only the addresses. Then `settings` are Kafka's, those of
        `ClientConfig`; a `client.id` or `request.timeout.ms` there overrides the argument. With
        `has_topic_ids` it asks for the ids of topics, and can fetch from a topic by its id.

        Raises:
            ConfigError: `bootstrap` is not a list like `host1:9092,host2:9092`, or a setting is
                unknown or cannot be used; all faults at once.
        """
        config = (
            bootstrap
            if isinstance(bootstrap, ClientConfig)
            else parse_client_config(
                settings or {},
                {"bootstrap.servers": bootstrap},
                defaults={"client.id": client_id, "request.timeout.ms": timeout_ms},
            )
        )
        chance = chance or random.SystemRandom()
        self.cluster_id: str | None = None
        """The id in the last answer about topics; None before one, or from an old broker."""
        self.routes = Routes(bootstrap_nodes(config))
        self._monotonic = monotonic
        self._brokers = Brokers(
            config,
            version_limits=WITH_TOPIC_IDS if has_topic_ids else VERSION_LIMITS,
            open_network=open_network,
            monotonic=monotonic,
            chance=chance,
        )
        self._pauses = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)

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
        node = self.routes.known(leader(partition))
        if node is None:
            found = self._ask_topics([partition.topic]).get(partition.topic)
            there = [] if found is None else [each.partition for each in found.partitions]
            if partition.partition not in there:
                raise RemoteRetriableError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about=str(partition)
                )
            node = self.routes.known(leader(partition))
        if node is None:
            raise RemoteRetriableError(ErrorCode.LEADER_NOT_AVAILABLE, about=str(partition))
        return RemoteBroker(self._brokers, node)

    def any_broker(self, *, until: float = float("inf")) -> RemoteBroker:
        """A broker that is connected, or else the first that can be connected to.

        Candidates are those of the bootstrap list and those that brokers have named since. `until`
        is a time of the clock that the reader was made with.

        Raises:
            UnreachableBrokerError: none can be reached, or not in time.
            AuthenticationError: the first that can be reached refuses the login, or its identity
                could not be checked.
        """
        nodes = sorted(self.routes.candidates, key=self._brokers.is_ready, reverse=True)
        failures = []
        for node in nodes:
            try:
                self._brokers.connect(node, until=until)
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

    def broker_of(self, target: Target) -> RemoteBroker:
        """The broker of a target: the controller, a coordinator, a broker by its id, a leader.

        Raises:
            UnreachableBrokerError: no broker of the list answers.
            RemoteRetriableError: there is none at the moment.
            RemoteFatalError: the broker refuses.
        """
        assert target != ANY, "any_broker connects to one"
        call = self.call(limit_ms=REQUEST_TIMEOUT_MS, retries=0)
        found = self.run(self.routes.find(call, [target]))[target]
        if isinstance(found, TailraceError):
            raise found
        assert found is not None, "only ANY has no broker"
        return RemoteBroker(self._brokers, found)

    def call(self, *, limit_ms: int, retries: int) -> Call:
        """The limits of an operation that begins now."""
        return Call(
            routes=self.routes,
            clock=self._monotonic,
            deadline=self._monotonic() + limit_ms / 1000,
            limit_ms=limit_ms,
            retries=retries,
            pauses=self._pauses,
        )

    def do(
        self,
        operation: Callable[Concatenate[Call, P], Steps[T]],
        /,
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """The result of an operation of `admin`, retried as all that this reader asks.

            cluster.do(create_topics, [NewTopic("flights")]).results()

        Raises: what the operation raises.
        """
        call = self.call(limit_ms=OPERATION_TIMEOUT_MS, retries=ATTEMPTS_MAX - 1)
        return self.run(operation(call, *arguments, **options))

    def run(self, steps: Steps[T]) -> T:
        """The result of an operation, whose requests are sent and whose pauses are kept.

        Raises: what the operation raises.
        """
        return self._brokers.run(carry_out(steps, self))

    @property
    def nodes(self) -> ConnectionPool:
        """The connections; opened by this if there are none."""
        return self._brokers.nodes

    @property
    def request_timeout_ms(self) -> int:
        """Longest time that a broker may take to answer."""
        return self._brokers.request_timeout_ms

    def candidates(self) -> list[Node]:
        """The brokers of the bootstrap list, and those that brokers have named since."""
        return self.routes.candidates

    def clock(self) -> float:
        """Monotonic seconds."""
        return self._monotonic()

    def check_open(self) -> None:
        """Do nothing: a reader that was closed opens new connections."""

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
        self.routes.learn(answer)
        self.cluster_id = answer.cluster_id
        found: dict[str, TopicDescription] = {}
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            raise_for(topic.error_code, about=f"topic {topic.name!r} at {broker.address}")
            found[topic.name] = describe_topic(topic.name, topic)
        return found

    def _forget(self) -> None:
        self.routes.forget_all()

    def _ask_offsets(
        self, questions: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        unknown = {each.topic for each in questions if self.routes.known(leader(each)) is None}
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


def bootstrap_nodes(config: ClientConfig) -> list[Node]:
    """The brokers of `bootstrap.servers`, with ids from -1 downwards."""
    return [Node(-n, *each) for n, each in enumerate(config.bootstrap_servers, 1)]


def describe_topic(
    name: str, topic: MetadataResponseTopic, *, operations: frozenset[int] | None = None
) -> TopicDescription:
    """A topic, from an answer to Metadata."""
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
        topic_id=None if topic.topic_id == NO_UUID else topic.topic_id,
        authorized_operations=operations,
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
