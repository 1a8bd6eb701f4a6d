"""`TopicListings`: requests of callers for topics with their partitions, that any broker answers.

Not here: what a producer or consumer knows of the cluster for its own work (`metadata` of each).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tailrace.client.nodes import ConnectionPool, DisconnectedError, Node, RequestOutcome
from tailrace.client.pending import Pending
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_PORTS: Final = range(1, 1 << 16)


class PartitionInfo(NamedTuple):
    """A partition of a topic, and the brokers that have it."""

    topic: str
    partition: int
    leader: int | None
    """Id of the leading broker; None while there is none."""
    replicas: tuple[int, ...]
    """Ids of the brokers that have it."""
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


Listing = Mapping[str, tuple[PartitionInfo, ...]]
"""Topics by name, with their partitions in order."""


class _Asked(NamedTuple):
    """A caller's request."""

    pending: Pending[Listing]
    body: MetadataRequest


class TopicListings:
    """The requests of one client, under the lock of which every method is called."""

    def __init__(
        self, nodes: ConnectionPool, *, timeout_ms: int, error_of: Callable[[Exception], Exception]
    ) -> None:
        """`error_of` makes the client's own error of one of a connection."""
        self._nodes = nodes
        self._timeout_ms = timeout_ms
        self._error_of = error_of
        self._unsent: list[_Asked] = []

    def ask(self, topics: Sequence[str] | None = None) -> Pending[Listing]:
        """Ask for these topics, or for all; those that do not exist are left out of the answer."""
        pending: Pending[Listing] = Pending()
        named = None if topics is None else tuple(MetadataRequestTopic(name=t) for t in topics)
        body = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        self._unsent.append(_Asked(pending, body))
        return pending

    def send(self, any_node: Callable[[float], Node | None], now: float) -> None:
        """Send what waits, if `any_node` gives a node that is ready; `now` is in monotonic s."""
        while self._unsent:
            node = any_node(now)
            if node is None:
                return
            asked = self._unsent.pop(0)
            if not asked.pending.is_abandoned:
                self._send(node, asked, now)

    def fail(self, error: Exception) -> None:
        """End all requests that wait for a node with an error."""
        unsent, self._unsent = self._unsent, []
        for each in unsent:
            each.pending.fail(error)

    def _send(self, node: Node, asked: "_Asked", now: float) -> None:
        pending = asked.pending

        def take(outcome: RequestOutcome) -> None:
            if isinstance(outcome, MetadataResponse):
                pending.settle(listed_topics(outcome))
            elif isinstance(outcome, DisconnectedError):
                pending.reason = str(outcome)
                self._unsent.append(asked)
            else:
                assert isinstance(outcome, Exception), "Metadata has an answer"
                pending.fail(self._error_of(outcome))

        self._nodes.send(node.id, asked.body, now=now, done=take, timeout_ms=self._timeout_ms)


def listed_topics(response: MetadataResponse) -> Listing:
    """The topics of an answer that can be used, with their partitions in order."""
    return {
        each.name: partitions_of(each.name, each)
        for each in response.topics
        if each.name and not each.error_code
    }


def partitions_of(name: str, answer: MetadataResponseTopic) -> tuple[PartitionInfo, ...]:
    """The partitions of one topic of an answer, in order."""
    found = {
        each.partition_index: PartitionInfo(
            name,
            each.partition_index,
            each.leader_id if each.leader_id >= 0 else None,
            each.replica_nodes,
            each.isr_nodes,
            each.offline_replicas,
        )
        for each in answer.partitions
    }
    return tuple(found[number] for number in sorted(found))


def usable_nodes(response: MetadataResponse) -> dict[int, Node]:
    """The brokers by id, without negative ids, which are reserved for the bootstrap list."""
    nodes = (Node(each.node_id, each.host, each.port) for each in response.brokers)
    return {each.id: each for each in nodes if each.id >= 0 and is_address(each)}


def is_address(node: Node) -> bool:
    """Whether a client can connect to the address that a broker gave."""
    return bool(node.host) and node.port in _PORTS
