"""The cluster as this node reads it, no matter which node changes it.

    Controller        this node is its own controller, and its metadata log has the state
    FollowedCluster   the controllers of a cluster have it, and this node follows what they decide

Handlers and coordinators read either through `ClusterState`. Nothing here waits, or changes the
cluster.

Invariant: each value that is read here is immutable and replaced whole, so a reader on a worker
thread sees one state or the next.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from tailrace.cluster.image import (
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
    Topic,
    group_configs_of,
    whole_image,
    whole_topic,
)
from tailrace.cluster.metadata.delta import MIGRATING
from tailrace.cluster.metadata.image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    ConfigResource,
    ImageChange,
    MetadataImage,
)
from tailrace.cluster.records import NO_BROKER_EPOCH, UNASSIGNED, Endpoint
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.cluster.topic_rules import ReservedTopicError, TakenNames, check_topic_name
from tailrace.model import METADATA_TOPIC, TopicPartition
from tailrace.values import replace

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord, RegisterBrokerRecord

DEFAULT_LISTENER = "PLAINTEXT"


class Leader(NamedTuple):
    """The leader of a partition, as clients have to know it."""

    node_id: int
    """-1: the partition has none."""
    epoch: int
    endpoint: Endpoint | None
    """The address for clients; None: the partition has no leader, or it is not alive, or does not
    have the listener."""


class BrokerNode(NamedTuple):
    """A registered broker, with its address on a listener."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class Reachable(NamedTuple):
    """The brokers that have a listener, as its clients know them."""

    nodes: tuple[BrokerNode, ...]
    """All of them, fenced ones too."""
    ids: frozenset[int]
    online: Mapping[int, frozenset[int] | None]
    """The ints of the log directories that are online, by the ids of those that are alive; None:
    the broker has not said."""


class ClusterState(Protocol):
    """The state of the cluster, by this node's knowledge of it."""

    node_id: int
    image: ClusterImage
    """Topics, settings of groups and features, as requests look them up."""
    defaults: TopicDefaults
    broker_epoch: int
    """The epoch of this broker's registration; -1 before it."""
    listener: str
    """Name of the listener by which brokers reach each other."""
    names: TakenNames
    rack_changes: int
    """Grows when replicas of a partition may be in other racks than before."""

    @property
    def metadata(self) -> MetadataImage:
        """The whole state that the metadata log has."""
        ...

    @property
    def features_epoch(self) -> int:
        """The offset of the metadata log up to which the image has the levels of features."""
        ...

    @property
    def kraft_version(self) -> int:
        """The level of `kraft.version`, which the control records of the log have."""
        ...

    def controller_id(self, listener: str | None = None) -> int:
        """The node that clients send changes to: any alive broker can forward them; -1: none.

        One that clients of the listener can reach; None: that of the brokers.
        """
        ...

    def check_new_name(self, name: str) -> None:
        """Check the name of a topic that does not exist yet.

        Raises:
            InvalidTopicNameError: it is none, or differs from another only in dots and underscores.
            ReservedTopicError: it is the name of Kafka's metadata log.
            TopicExistsError: the name is taken.
        """
        check_topic_name(name)
        if name == METADATA_TOPIC:
            raise ReservedTopicError(f"Creation of internal topic {name} is prohibited.")
        self.names.check_is_free(name, self.metadata.topic_ids)

    # -- brokers ------------------------------------------------------------------------------

    def alive_epoch(self, broker_id: int) -> int | None:
        """The epoch of a broker's registration; None if it has none or is fenced."""
        broker = self.metadata.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.broker_epoch

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether a broker hands its partitions over before it stops."""
        broker = self.metadata.brokers.get(broker_id)
        return broker is not None and broker.in_controlled_shutdown

    def endpoint(self, broker_id: int, listener: str | None = None) -> Endpoint | None:
        """The address of an alive broker on a listener; None: that of the brokers.

        None if the broker is fenced, or has no such listener.
        """
        broker = self.metadata.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return None
        return endpoint_of(broker, listener or self.listener)

    def rack_of(self, broker_id: int, listener: str | None = None) -> str | None:
        """The rack of an alive broker that has a listener; None if it has no rack."""
        if self.endpoint(broker_id, listener) is None:
            return None
        return self.metadata.brokers[broker_id].rack

    # -- partitions ---------------------------------------------------------------------------

    def partition(self, name: TopicPartition) -> "PartitionRecord | None":
        """The state of a partition; None if there is no such partition."""
        topic = self.metadata.topic(name.topic)
        return None if topic is None else topic.partitions.get(name.partition)

    def racks_of(self, topic: Topic) -> tuple[tuple[str, ...], ...]:  # noqa: ARG002 - see below
        """The racks of the replicas of each partition, by number; empty: no broker has a rack."""
        # A node alone: nothing depends on where its one replica is.
        return ()

    def leader_of(self, name: TopicPartition, listener: str | None = None) -> Leader | None:
        """The leader that the image has for a partition; None if there is no such partition.

        With its address on a listener; None: that of the brokers.
        """
        state = self.partition(name)
        if state is None:
            return None
        endpoint = self.endpoint(state.leader, listener)
        return Leader(state.leader, state.leader_epoch, endpoint)

    def is_replica(self, name: TopicPartition) -> bool:
        """Whether this broker is to have the partition."""
        state = self.partition(name)
        return state is not None and self.node_id in state.replicas


class FollowedCluster(ClusterState):
    """The state that the controllers of a cluster decide; `publish` brings the next one."""

    def __init__(
        self,
        node_id: int,
        *,
        defaults: TopicDefaults,
        listener: str = DEFAULT_LISTENER,
        kraft_version: Callable[[], int] = lambda: 0,
    ) -> None:
        """`defaults` are those that the broker was started with, `listener` that of brokers."""
        self.node_id = node_id
        self.image = ClusterImage()
        self.defaults = defaults
        self.broker_epoch = NO_BROKER_EPOCH
        self.listener = listener
        self.names = TakenNames()
        self._reachable: dict[str, Reachable] = {}
        """The brokers of the image by listener, as far as somebody has asked for them."""
        self.rack_changes = 0
        self._racks: Mapping[int, str] = {}
        """The racks of the brokers that have one, by broker id."""
        self._controllers_named = node_id
        self._metadata = MetadataImage()
        self._offset = -1
        self._kraft_version = kraft_version

    @property
    def metadata(self) -> MetadataImage:
        return self._metadata

    @property
    def features_epoch(self) -> int:
        # As in Kafka's broker: the offset of the last record that the image has.
        return max(self._offset, 0)

    @property
    def kraft_version(self) -> int:
        return self._kraft_version()

    def reachable(self, listener: str) -> Reachable:
        """The brokers that have a listener."""
        # In this order: a thread that is overtaken by `publish` notes them where nobody looks.
        known, image = self._reachable, self._metadata
        found = known.get(listener)
        if found is None:
            nodes = tuple(_nodes(image, listener))
            alive = (image.brokers[each.node_id] for each in nodes if not each.is_fenced)
            found = known[listener] = Reachable(
                nodes,
                frozenset(each.node_id for each in nodes),
                {each.broker_id: _online(each) for each in alive},
            )
        return found

    def controller_id(self, listener: str | None = None) -> int:
        # One after the other, so that clients which ask for changes spread; Kafka names a random
        # one.
        nodes = self.reachable(listener or self.listener).nodes
        alive = [each.node_id for each in nodes if not each.is_fenced]
        self._controllers_named += 1
        return alive[self._controllers_named % len(alive)] if alive else -1

    def publish(self, image: MetadataImage, changed: ImageChange, *, offset: int) -> None:
        """Show the image at an offset of the metadata log; on the event loop.

        The time is that of what has changed since the image before.
        """
        if changed.brokers:
            self._note_racks(image)
        if self._racks and self._has_moved(image, changed.topics):
            self.rack_changes += 1
        self._metadata, self._offset = image, offset
        if changed.brokers:
            self._reachable = {}
        self.image = self._next(image, changed)
        of_brokers = {ALL_BROKERS, ConfigResource(BROKER_RESOURCE, str(self.node_id))}
        if changed.configs is None or not of_brokers.isdisjoint(changed.configs):
            self.defaults = self.defaults.with_state(image, self.node_id)

    def racks_of(self, topic: Topic) -> tuple[tuple[str, ...], ...]:
        """The racks of the replicas of each partition, by number; empty: no broker has a rack."""
        state = self._metadata.topics.get(topic.topic_id)
        if not self._racks or state is None:
            return ()
        racks = self._racks
        return tuple(
            tuple(racks[each] for each in state.partitions[number].replicas if each in racks)
            for number in topic.partitions
        )

    def _note_racks(self, image: MetadataImage) -> None:
        # Also of fenced brokers, as in Kafka: groups need no new assignment for a restart.
        brokers = image.brokers.values()
        racks = {each.broker_id: each.rack for each in brokers if each.rack is not None}
        if racks != self._racks:
            self._racks = racks
            self.rack_changes += 1

    def _has_moved(self, image: MetadataImage, topic_ids: frozenset[UUID] | None) -> bool:
        """Whether partitions that there were have other replicas."""
        if topic_ids is None:
            return True
        for topic_id in topic_ids:
            before, state = self._metadata.topics.get(topic_id), image.topics.get(topic_id)
            if before is None or state is None:
                continue
            for number, each in before.partitions.items():
                now = state.partitions.get(number)
                if now is not each and (now is None or now.replicas != each.replicas):
                    return True
        return False

    def _next(self, image: MetadataImage, changed: ImageChange) -> ClusterImage:
        if changed.topics is None or changed.configs is None:
            return whole_image(image)
        # The same object where nothing in it has changed: a connection that remembers its last
        # request looks whether it is the same.
        shown = self.image
        configured = {each.name for each in changed.configs if each.type == TOPIC_RESOURCE}
        topics = _changed_topics(shown, image, changed.topics, configured=configured)
        if topics:
            shown = shown.with_topics(topics)
        if any(each.type == GROUP_RESOURCE for each in changed.configs):
            shown = replace(shown, group_configs=group_configs_of(image))
        if changed.features:
            shown = replace(shown, features=image.features)
        return shown


def endpoint_of(broker: "RegisterBrokerRecord", listener: str) -> Endpoint | None:
    """The address that a broker has registered for a listener."""
    # The names are few, and as in Kafka they are compared as they are written in upper case.
    for each in broker.end_points:
        if each.name == listener:
            return Endpoint(each.host, each.port)
    return None


def _nodes(image: MetadataImage, listener: str) -> Iterator[BrokerNode]:
    for broker in image.brokers.values():
        endpoint = endpoint_of(broker, listener)
        if endpoint is not None:
            yield BrokerNode(broker.broker_id, *endpoint, broker.rack, broker.fenced)


def _online(broker: "RegisterBrokerRecord") -> frozenset[int] | None:
    # Registered by an older Kafka, or before the level of `metadata.version` that has directories
    # (KAFKA-16162): a broker without any would not run.
    if not broker.log_dirs:
        return None
    # Ints, since a UUID is hashed and compared in Python: answers of Metadata look at each replica.
    return frozenset({UNASSIGNED.int, MIGRATING.int, *(each.int for each in broker.log_dirs)})


def _changed_topics(
    shown: ClusterImage,
    image: MetadataImage,
    topic_ids: frozenset[UUID],
    *,
    configured: set[str],
) -> Mapping[str, Topic | None]:
    """The topics that look different in a new image, by name; None: there is none any more."""
    names = set(configured)
    for topic_id in topic_ids:
        known, state = shown.topic_by_id(topic_id), image.topics.get(topic_id)
        # Most changes are of leaders and of the ISR, which `metadata` alone has.
        if known is None or state is None or known.partition_count != len(state.partitions):
            names |= {each.name for each in (known, state) if each is not None}
    topics = {}
    for name in names:
        # By name: another topic of this name may have come with the same image.
        state = image.topic(name)
        topic = None if state is None else whole_topic(state, image)
        if topic != shown.topics.get(name):
            topics[name] = topic
    return topics
