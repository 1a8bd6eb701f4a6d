"""`ClusterReader`: which topics a cluster has, who leads them, and where their logs begin and end.

It keeps one connection to each broker that it had to ask. What it knows of leaders is a cache: it
is thrown away, with all connections, before anything is tried again.

Not here: records; see `fetcher`.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from tailrace.client.connection import BrokerAddress, Connection, open_connection
from tailrace.client.errors import RemoteRetriableError, UnreachableBrokerError, raise_for
from tailrace.client.retries import retry
from tailrace.errors import ConfigError
from tailrace.model import SpecialTimestamp, TopicPartition
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

T = TypeVar("T")

REQUEST_TIMEOUT_MS = 30_000
"""How long a broker may take to answer (Kafka: request.timeout.ms)."""


class ClusterReader:
    """Questions to a cluster; not for more than one thread at a time."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "tailrace",
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Connects when it is first asked.

        Raises:
            ConfigError: `bootstrap` is not a list like `host1:9092,host2:9092`.
        """
        self._bootstrap = parse_bootstrap(bootstrap)
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._pause = pause
        self._connections: dict[BrokerAddress, Connection] = {}
        self._leaders: dict[TopicPartition, BrokerAddress] = {}

    def partitions(self, topics: Collection[str] | None = None) -> dict[str, tuple[int, ...]]:
        """Partition numbers by topic, of all topics or of those asked for that exist.

        Raises:
            UnreachableBrokerError: no broker of the list answers.
            RemoteRetriableError: a topic has no leader and does not get one.
            RemoteFatalError: the broker refuses.
        """
        return self.retrying(lambda: self._ask_partitions(topics))

    def list_offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset of each partition at a time in ms, or at a `SpecialTimestamp`.

        -1 where no record is that new.

        Raises:
            UnreachableBrokerError: a leader does not answer.
            RemoteRetriableError: a partition has no leader and does not get one.
            RemoteFatalError: the broker refuses.
        """
        return self.retrying(lambda: self._ask_offsets(questions))

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset of a partition's log, and the one after its last readable record."""
        start = self.list_offsets({partition: SpecialTimestamp.EARLIEST})[partition]
        return start, self.list_offsets({partition: SpecialTimestamp.LATEST})[partition]

    def leader(self, partition: TopicPartition) -> Connection:
        """A connection to the broker that leads a partition.

        Raises:
            UnreachableBrokerError: it cannot be reached, or no broker of the list can.
            RemoteRetriableError: no broker leads it at the moment, or it does not exist.
        """
        if partition not in self._leaders:
            self._ask_partitions([partition.topic])
        address = self._leaders.get(partition)
        if address is None:
            raise RemoteRetriableError(ErrorCode.LEADER_NOT_AVAILABLE, about=str(partition))
        return self._connection(address)

    def retrying(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns, tried again with fresh connections and leaders if need be."""
        return retry(attempt, recover=self.close, pause=self._pause)

    def close(self) -> None:
        """Close all connections and forget the leaders; the next question opens new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._leaders.clear()

    def _connection(self, address: BrokerAddress) -> Connection:
        if address not in self._connections:
            self._connections[address] = open_connection(
                address, client_id=self._client_id, timeout_ms=self._timeout_ms
            )
        return self._connections[address]

    def _any_connection(self) -> Connection:
        if self._connections:
            return next(iter(self._connections.values()))
        failures = []
        for address in self._bootstrap:
            try:
                return self._connection(address)
            except UnreachableBrokerError as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise UnreachableBrokerError(
            "no broker of the list can be reached: " + "; ".join(map(str, failures)),
            address=",".join(map(str, self._bootstrap)),
        )

    def _ask_partitions(self, topics: Collection[str] | None) -> dict[str, tuple[int, ...]]:
        asked = None if topics is None else tuple(MetadataRequestTopic(name=t) for t in topics)
        connection = self._any_connection()
        answer = connection.request(
            MetadataRequest(topics=asked, allow_auto_topic_creation=False), MetadataResponse
        )
        raise_for(answer.error_code, about=f"{connection.address} was asked for metadata")
        brokers = {each.node_id: BrokerAddress(each.host, each.port) for each in answer.brokers}
        found = {}
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            raise_for(topic.error_code, about=f"topic {topic.name!r} at {connection.address}")
            found[topic.name] = tuple(sorted(each.partition_index for each in topic.partitions))
            for each in topic.partitions:
                if each.leader_id in brokers:
                    key = TopicPartition(topic.name, each.partition_index)
                    self._leaders[key] = brokers[each.leader_id]
        return found

    def _ask_offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        unknown = {each.topic for each in questions if each not in self._leaders}
        if unknown:
            self._ask_partitions(unknown)
        by_leader: dict[BrokerAddress, list[TopicPartition]] = {}
        for partition in questions:
            by_leader.setdefault(self.leader(partition).address, []).append(partition)
        found: dict[TopicPartition, int] = {}
        for address, partitions in by_leader.items():
            request = list_offsets_request({each: questions[each] for each in partitions})
            connection = self._connection(address)
            for topic in connection.request(request, ListOffsetsResponse).topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    raise_for(each.error_code, about=f"offsets of {partition} at {address}")
                    found[partition] = each.offset
        missing = [str(each) for each in questions if each not in found]
        if missing:
            raise RemoteRetriableError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about="offsets of " + ", ".join(missing)
            )
        return found


def list_offsets_request(questions: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
    """The questions about partitions of one leader, grouped by topic as the wire wants them."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, number), timestamp in questions.items():
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        topics=tuple(
            ListOffsetsTopic(name=name, partitions=tuple(asked)) for name, asked in topics.items()
        )
    )


def parse_bootstrap(text: str) -> tuple[BrokerAddress, ...]:
    """The addresses of `host1:9092,[::1]:9092`, in their order.

    Raises:
        ConfigError: there is none, or one without a host or a port; all faults at once.
    """
    addresses, faults = [], []
    for part in filter(None, (each.strip() for each in text.split(","))):
        host, _, port = part.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16:
            addresses.append(BrokerAddress(host, int(port)))
        else:
            faults.append(f"kafka.bootstrap.servers: {part!r} is not HOST:PORT")
    if not addresses and not faults:
        faults.append("kafka.bootstrap.servers: the list is empty; give HOST:PORT,HOST:PORT")
    if faults:
        raise ConfigError(faults)
    return tuple(addresses)
