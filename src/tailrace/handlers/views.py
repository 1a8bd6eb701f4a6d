"""The cluster as answers show it: its brokers, and the leaders and replicas of partitions.

    LocalView    this node is its own controller and the only broker: `Replicas` says what it serves
    ImageView    a broker of a cluster: the image that it follows, as Kafka's KRaftMetadataCache

A view is made for one request.

Invariant: an `ImageView` does not change, though its answer may be made in slices; an image that is
published meanwhile is for the next request.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from tailrace.cluster.image import Topic
from tailrace.cluster.state import BrokerNode, FollowedCluster
from tailrace.handlers.services import Services
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.metadata import MetadataResponsePartition

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord

NO_LEADER: Final = -1

ALL_REPLICAS_SINCE: Final = 1
"""In v0 of Metadata replicas that cannot be reached were left out, with an error."""

LISTENER_NOT_FOUND_SINCE: Final = 6
"""Clients up to v5 of Metadata do not know the error, and would not ask again."""

NEWEST: Final = 13


_NONE: Final[frozenset[int]] = frozenset()


class View(Protocol):
    """Brokers and partitions, as one request sees them."""

    controller_id: int
    """The node that clients send CreateTopics and the like to; -1: no broker is alive."""
    nodes: Sequence[BrokerNode]
    """The brokers that clients of the listener can connect to, fenced ones too."""

    def find_topic(self, name: str, topic_id: UUID) -> Topic | None:
        """A topic by its id if that is not zero, else by its name; None if there is none."""
        ...

    def partition(self, topic: Topic, number: int) -> MetadataResponsePartition:
        """Leader and replicas of a partition, also of one that is not on this broker."""
        ...

    def eligible(self, topic: Topic, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The eligible leader replicas of a partition, and the last known ones (KIP-966)."""
        ...


def view_of(services: Services, *, version: int = NEWEST) -> View:
    """The cluster as a request sees it, in a version of Metadata."""
    if isinstance(services.cluster, FollowedCluster):
        return ImageView(services.cluster, services.listener, version=version)
    return LocalView(services, version=version)


def _unreachable_error(version: int) -> ErrorCode:
    """The error of a partition whose leader does not have the listener."""
    if version >= LISTENER_NOT_FOUND_SINCE:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.LEADER_NOT_AVAILABLE


class LocalView:
    """The view of a node that is its own controller, and the only broker."""

    def __init__(self, services: Services, *, version: int) -> None:
        # Kafka names any live broker, which forwards requests; this is the only one.
        self.controller_id = self._node_id = services.node_id
        endpoint = services.endpoint()
        self.nodes: Sequence[BrokerNode] = ()
        if endpoint is not None:
            self.nodes = (BrokerNode(services.node_id, *endpoint, None, is_fenced=False),)
        self._version = version
        self._replicas = services.replicas
        # Not of one image: a topic that the request creates is in its answer.
        self.find_topic = services.find_topic

    def partition(self, topic: Topic, number: int) -> MetadataResponsePartition:
        name = TopicPartition(topic.name, number)
        partition, is_led = self._replicas.get(name), self._replicas.is_led(name)
        # From v9 on Java's client remembers the highest epoch of a partition and ignores metadata
        # with an older one. So a partition without a log has the epoch that its log begins with.
        leader_epoch = 0 if is_led else -1  # Where the log is not made yet.
        if partition is not None:
            leader_epoch = partition.leader_epoch
        # Clients retry after this code, until the directory of the log is back.
        error = ErrorCode.NONE if is_led else ErrorCode.LEADER_NOT_AVAILABLE
        is_known = bool(self.nodes)
        if is_led and not is_known:
            error = _unreachable_error(self._version)
        return MetadataResponsePartition(
            error_code=error,
            partition_index=number,
            leader_id=self._node_id if is_led and is_known else NO_LEADER,
            leader_epoch=leader_epoch,
            replica_nodes=(self._node_id,),
            # The last replica stays in the ISR while its directory is offline, as in Kafka.
            isr_nodes=(self._node_id,),
            offline_replicas=(
                (self._node_id,) if not is_known or self._replicas.is_offline(name) else ()
            ),
        )

    def eligible(self, _topic: Topic, _number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        # The only replica is in the ISR, or its directory is offline.
        return (), ()


class ImageView:
    """The view of a broker whose controllers are other nodes: one image."""

    def __init__(self, cluster: FollowedCluster, listener: str, *, version: int) -> None:
        reachable = cluster.reachable(listener)
        self.nodes: Sequence[BrokerNode] = reachable.nodes
        self.controller_id = cluster.controller_id(listener)
        self.find_topic = cluster.image.find_topic
        self._registered = cluster.metadata.brokers
        self._topics = cluster.metadata.topics
        self._online = reachable.online
        self._reachable_ids = reachable.ids
        self._version = version

    def partition(self, topic: Topic, number: int) -> MetadataResponsePartition:
        state = self._topics[topic.topic_id].partitions[number]
        replicas, isr = state.replicas, state.isr
        error, leader = ErrorCode.NONE, state.leader
        if leader not in self._reachable_ids:
            error, leader = self._error_of(leader), NO_LEADER
        if self._version < ALL_REPLICAS_SINCE:
            replicas, isr = self._alive(replicas), self._alive(isr)
            is_whole = replicas == state.replicas and isr == state.isr
            if error is ErrorCode.NONE and not is_whole:
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=number,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=self._offline(state),
        )

    def eligible(self, topic: Topic, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        state = self._topics[topic.topic_id].partitions[number]
        return state.eligible_leader_replicas or (), state.last_known_elr or ()

    def _error_of(self, leader: int) -> ErrorCode:
        if leader in self._registered:
            return _unreachable_error(self._version)
        return ErrorCode.LEADER_NOT_AVAILABLE

    def _alive(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(each for each in replicas if each in self._online)

    def _offline(self, state: "PartitionRecord") -> tuple[int, ...]:
        """The replicas on brokers that are not alive, and in directories that are offline."""
        online, directories, found = self._online, state.directories, []
        for place, replica in enumerate(state.replicas):
            known = online.get(replica, _NONE)
            # A partition of before KIP-858 has no directories.
            if known is not None and (
                not known or (directories and directories[place].int not in known)
            ):
                found.append(replica)
        return tuple(found)
