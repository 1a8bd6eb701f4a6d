"""`ClusterReader`: which topics a cluster has, who leads them, and where their logs begin and end.

    broker = cluster.leader(partition)
    broker.request(body, Response)          # sent when the broker is ready; returns the answer
    pending = broker.send_nowait(body)      # sent now, or None: the answer comes meanwhile
    pending.result(Response)                # waits for it

The connections live from one wait to the next: nothing runs in the background, and an answer that
nobody waits for stays with the kernel, which bounds what a broker can send ahead. Leaders and
coordinators are cached (`routes`); the cache is dropped before each retry. It also runs operations
of `admin`.

Not here: records; see `tailer`.

Invariant: a wait ends with an answer or an error. Connecting and each request have time limits, and
a throttle time that a broker asks for is kept for five minutes at most.
"""

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Concatenate, NamedTuple, ParamSpec, TypeVar
from uuid import UUID

from tailrace.client.calls import Ask, Call, Connecting, address_of, explained
from tailrace.client.cluster_engine import ClusterEngine, bootstrap_nodes
from tailrace.client.config import BrokerAddress, ClientConfig, parse_client_config
from tailrace.client.drive.steps import Steps, Until
from tailrace.client.drive.thread import ThreadDriver, WaitingNetwork
from tailrace.client.errors import DisconnectedError, NodeError, RemoteRetriableError, raise_for
from tailrace.client.nodes import Backoff, Node, NodesStatistics, RequestOutcome
from tailrace.client.nodes.versions import VERSION_LIMITS
from tailrace.client.retries import ATTEMPTS_MAX, retry
from tailrace.client.routes import ANY, Routes, Target, leader
from tailrace.client.short_repr import short_repr
from tailrace.errors import TailraceError
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, Message
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tailrace.runtime.polling import PollingNetwork
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.protocol.messages.describe_topic_partitions import (
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
    )

    AnyPartition = MetadataResponsePartition | DescribeTopicPartitionsResponsePartition

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Message)

REQUEST_TIMEOUT_MS = 30_000
"""Longest time that a broker may take to answer (Kafka: request.timeout.ms)."""

WITH_TOPIC_IDS: Mapping[int, int] = {**VERSION_LIMITS, ApiKey.FETCH: 17}
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

    __repr__ = short_repr


class ClusterReader:
    """Reads metadata and offsets of a cluster.

    Several threads may `run` and `do` operations; the rest is for one at a time.
    """

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
        self.cluster_id: str | None = None
        """The id in the last answer about topics; None before one, or from an old broker."""
        self.routes = Routes(bootstrap_nodes(config))
        self._config = config
        self._version_limits = WITH_TOPIC_IDS if has_topic_ids else VERSION_LIMITS
        # Here, so that a file that cannot be read is an error of the constructor.
        self._security = config.open_security()
        self._open_network = open_network
        self.clock = monotonic
        """Seconds; deadlines are in these."""
        self._chance = chance or random.SystemRandom()
        self._opening = threading.Lock()
        self._opened: tuple[ClusterEngine, ThreadDriver] | None = None
        self._pauses = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self._chance)

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
            OperationTimeoutError: nor within `OPERATION_TIMEOUT_MS`, with all attempts.
            UnsupportedBrokerError: a leader is too old for the special timestamp.
            RemoteRetriableError: a partition has no leader, also after the last attempt.
            RemoteFatalError: the broker refuses.
        """
        # Here, since the operations of `admin` import this module; and a task that only fetches
        # needs none of them.
        from tailrace.client.admin.offsets import list_offsets

        found = self.do(list_offsets, questions, isolation=isolation).complete()
        return {partition: each.offset for partition, each in found.items()}

    def log_range(
        self,
        partition: TopicPartition,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> tuple[int, int]:
        """The first offset of a partition's log, and the one after its last readable record."""
        from tailrace.client.admin.offsets import log_ranges  # late, as in `list_offsets`

        found = self.do(log_ranges, [partition], isolation=isolation).result(partition)
        return found.start, found.end

    def leader(self, partition: TopicPartition) -> "RemoteBroker":
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
        return RemoteBroker(self, node)

    def any_broker(self, *, until: float = float("inf")) -> "RemoteBroker":
        """A broker that is connected, or else the first that can be connected to.

        Candidates are those of the bootstrap list and those that brokers have named since. `until`
        is a time of the clock that the reader was made with.

        Raises:
            UnreachableBrokerError: none can be reached, or not in time.
            AuthenticationError: the first that can be reached refuses the login, or its identity
                could not be checked.
        """
        return RemoteBroker(self, self.run(self._connected(None, until)))

    def broker_of(self, target: Target) -> "RemoteBroker":
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
        return RemoteBroker(self, found)

    def call(self, *, limit_ms: int, retries: int) -> Call:
        """The limits of an operation that begins now."""
        engine, _ = self._open()
        return engine.call(limit_ms=limit_ms, retries=retries)

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
        # As many attempts as `retrying` has.
        call = self.call(limit_ms=OPERATION_TIMEOUT_MS, retries=ATTEMPTS_MAX - 1)
        return self.run(operation(call, *arguments, **options))

    def run(self, steps: Steps[T]) -> T:
        """The result of an operation, or of another call that waits.

        Raises: what the operation raises.
        """
        _, driver = self._open()
        return driver.run(steps)

    def retrying(self, attempt: Callable[[], T]) -> T:
        """The result of `attempt`, which is called again after a retriable error.

        Leaders and coordinators are looked up again then. After a bounded number of attempts, the
        last error is raised.
        """
        return retry(
            attempt,
            recover=self._forget,
            pause=self.pause,
            pauses=self._pauses,
        )

    def pause(self, seconds: float) -> None:
        """Wait for `seconds`; answers that arrive meanwhile are read."""
        self.wait_until(lambda: False, seconds)

    def wait_until(self, is_done: Callable[[], bool], seconds: float = inf) -> None:
        """Read answers until the predicate is true, for `seconds` at most."""

        def steps() -> Steps[None]:
            yield Until(is_done, self.clock() + seconds)

        self.run(steps())

    def connecting(self, node: Node) -> Callable[[], bool]:
        """Begin to connect to a broker; the result says whether it is ready, in `wait_until`.

        Raises (the result):
            UnreachableBrokerError: it cannot be reached, or is no broker.
            AuthenticationError: the login failed, or the broker's identity could not be checked.
        """
        engine, _ = self._open()
        connecting = Connecting(engine, [node], deadline=inf)

        def is_ready() -> bool:
            now = self.clock()
            return engine.nodes.is_ready(node.id, now) or connecting.ready(now) is not None

        return is_ready

    def ask(
        self, node: Node, body: Message, response: type[M], *, version_max: int | None
    ) -> Steps[M]:
        """The answer of a broker to a request; see `RemoteBroker.request`."""
        engine, _ = self._open()
        call = engine.call(limit_ms=REQUEST_TIMEOUT_MS, retries=0)
        # Neither the connection nor a throttle time of the broker is limited by this request.
        ask = Ask(node, body, inf, last_version=version_max)
        (reply,) = yield from call.send((ask,))
        return reply.answer(response)

    def send_nowait(
        self, node: Node, body: Message, *, version_max: int | None = None
    ) -> "PendingRequest | None":
        """Send a request if the broker is ready, else do nothing; never waits."""
        engine, _ = self._open()
        now = self.clock()
        # Also while the broker throttles this client.
        if not engine.nodes.is_ready(node.id, now):
            return None
        pending = PendingRequest(self, engine, node)
        with engine.lock:
            engine.nodes.send(
                node.id,
                body,
                now=now,
                done=pending.end,
                timeout_ms=engine.request_timeout_ms,
                version_max=version_max,
            )
        return pending

    def statistics(self) -> NodesStatistics:
        """The connections by node since the last `close`; none before the first question."""
        if self._opened is None:
            return NodesStatistics(nodes=MappingProxyType({}), failure_count=0)
        return self._opened[0].nodes.statistics()

    def close(self) -> None:
        """Close all connections and forget the leaders; the next question opens new ones."""
        if self._opened is not None:
            engine, driver = self._opened
            self._opened = None
            with engine.lock:
                driver.stop()
        self._forget()

    def _open(self) -> tuple[ClusterEngine, ThreadDriver]:
        with self._opening:
            # The driver is over after a `close`, after a bug of ours, and in a forked child, whose
            # parent keeps using the same sockets.
            if self._opened is None or self._opened[1].is_over:
                network = self._open_network()
                driver = ThreadDriver(network, clock=self.clock)
                engine = ClusterEngine(
                    self._config,
                    kind="reader",
                    network=network,
                    chance=self._chance,
                    clock=self.clock,
                    wake=lambda: None,
                    version_limits=self._version_limits,
                    security=self._security,
                    # Brokers that were named before a `close` are asked too, as the bootstrap list
                    # may be old.
                    routes=self.routes,
                )
                # Without a thread: a Spark job makes a reader for each task.
                driver.start(engine, has_thread=False)
                self._opened = engine, driver
            return self._opened

    def _connected(self, nodes: list[Node] | None, until: float) -> Steps[Node]:
        """The first of these brokers that is ready, or of all candidates."""
        engine, _ = self._open()
        yield Until(lambda: True, inf)  # a connection may have ended since the last wait
        connecting = Connecting(engine, nodes, deadline=until)
        found: list[Node] = []

        def is_ready() -> bool:
            node = connecting.ready(self.clock())
            found.extend([] if node is None else [node])
            return node is not None

        while not (yield Until(is_ready, min(until, connecting.next_at))):
            engine.check_open()
        return found[0]

    def _ask_topics(
        self, names: Collection[str] | None, *, may_create: bool = False
    ) -> dict[str, TopicDescription]:
        asked = None if names is None else tuple(MetadataRequestTopic(name=each) for each in names)
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=may_create)
        call = self.call(limit_ms=REQUEST_TIMEOUT_MS, retries=0)
        # Any broker has the metadata of all topics.
        (reply,) = self.run(call.send((Ask(None, request, inf),)))
        answer = reply.answer(MetadataResponse)
        raise_for(answer.error_code, about=f"{reply.address} was asked for metadata")
        self.routes.learn(answer)
        self.cluster_id = answer.cluster_id
        found: dict[str, TopicDescription] = {}
        for topic in answer.topics:
            # A topic that does not exist is left out, since callers ask for those that do.
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            raise_for(topic.error_code, about=f"topic {topic.name!r} at {reply.address}")
            found[topic.name] = describe_topic(topic.name, topic, topic.partitions)
        return found

    def _forget(self) -> None:
        self.routes.forget_all()


def describe_topic(
    name: str,
    topic: "MetadataResponseTopic | DescribeTopicPartitionsResponseTopic",
    partitions: "Iterable[AnyPartition]",
    *,
    operations: frozenset[int] | None = None,
) -> TopicDescription:
    """A topic, from an answer to Metadata or the pages of DescribeTopicPartitions."""
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
                # Metadata does not have these: they came with their own API (KIP-966).
                eligible_leaders=getattr(each, "eligible_leader_replicas", None),
            )
            for each in sorted(partitions, key=lambda each: each.partition_index)
        ),
        topic_id=None if topic.topic_id == NO_UUID else topic.topic_id,
        authorized_operations=operations,
    )


class PendingRequest:
    """A request that was sent; its answer may have come."""

    __slots__ = ("_engine", "_node", "_outcome", "_reader")

    def __init__(self, reader: ClusterReader, engine: ClusterEngine, node: Node) -> None:
        self._reader = reader
        self._engine = engine
        self._node = node
        self._outcome: RequestOutcome = None

    def end(self, outcome: RequestOutcome) -> None:
        """Note the answer, or the error that came instead."""
        self._outcome = outcome

    @property
    def is_done(self) -> bool:
        """Whether the answer has come, or cannot come any more."""
        # In a forked child the engine is closed, and the answer goes to the parent.
        return self._outcome is not None or self._engine.is_closed

    def result(self, response: type[M]) -> M:
        """Wait for the answer; records in it are views of its bytes.

        Raises:
            UnreachableBrokerError: the connection broke, no answer came within the time, or what
                came is no answer.
            UnsupportedBrokerError: the broker does not take this request.
        """
        if not self.is_done:
            self._reader.wait_until(lambda: self.is_done)
        outcome = self._outcome or DisconnectedError(f"{self._node}: this process was forked")
        if isinstance(outcome, NodeError):
            raise explained(outcome, self._node)
        assert isinstance(outcome, response)
        return outcome


class RemoteBroker(NamedTuple):
    """One broker that requests can be sent to."""

    reader: ClusterReader
    node: Node

    @property
    def address(self) -> BrokerAddress:
        """The host and port where it listens."""
        return address_of(self.node)

    def request(self, body: Message, response: type[M], *, version_max: int | None = None) -> M:
        """Send a request and return its answer; records in it are views of its bytes.

        `version_max` is the highest version that can carry the request, if there are later ones.

        Raises:
            UnreachableBrokerError: it cannot be reached, or gives no answer within the time.
            UnsupportedBrokerError: it does not take this request.
            AuthenticationError: the login failed, or the broker's identity could not be checked.
        """
        reader = self.reader
        return reader.run(reader.ask(self.node, body, response, version_max=version_max))

    def send_nowait(
        self, body: Message, *, version_max: int | None = None
    ) -> PendingRequest | None:
        """Send a request if it can be sent at once, else do nothing."""
        return self.reader.send_nowait(self.node, body, version_max=version_max)
