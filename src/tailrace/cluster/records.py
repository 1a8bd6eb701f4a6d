"""The records of the metadata log that each change of the cluster is, as Apache Kafka writes them.

    topic        Topic, a Config for each setting, a Partition for each partition
    settings     a Config for each one that changes, with null for one that goes
    election     PartitionChange, for each partition that this node must lead and does not
    features     FeatureLevel, for each one that changes
    start        RegisterBroker, fenced; then a change that unfences it

Pure: the image that was before, and what is wanted, give the records.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailrace.cluster.image import TOPIC_RESOURCE, Topic
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.features import (
    ELIGIBLE_LEADERS,
    FEATURES,
    partition_version,
    register_broker_version,
)
from tailrace.cluster.metadata.image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    METADATA_VERSION,
    MIN_INSYNC_REPLICAS,
    ConfigResource,
    MetadataImage,
)
from tailrace.cluster.partition_change import DIRECTORIES_SINCE
from tailrace.model import TopicPartition
from tailrace.storage.config import usable_configs
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord

NO_BROKER_EPOCH: Final = -1
"""The epoch of a broker that is not registered."""
UNASSIGNED: Final = uuid.UUID(int=1)
"""Log directory of a replica of which the broker has not said where it is (KIP-858)."""
_CHANGE_VERSIONS: Final = MappingProxyType(
    {"fenced": 0, "in_controlled_shutdown": 1, "log_dirs": 2, "cordoned_log_dirs": 3}
)
"""First version of BrokerRegistrationChangeRecord with each of its fields."""
_EPOCHS_AT_ONCE_MAX: Final = 1000
_NO_LEADER: Final = -1
# Tri-state in the record, where 0 changes nothing.
FENCED: Final = 1
UNFENCED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """This node, as far as the records name it."""

    node_id: int
    directories: Mapping[str, uuid.UUID]
    """The id of each log directory that is in use, by path."""

    @property
    def only_directory(self) -> uuid.UUID:
        """The id of the one directory; UNASSIGNED where there are several."""
        ids = tuple(self.directories.values())
        return ids[0] if len(ids) == 1 else UNASSIGNED


class FoundLog(NamedTuple):
    """A partition's log, as a start has found it."""

    leader_epoch: int
    """The largest in its batches; 0 if there is none."""
    directory: uuid.UUID


class Endpoint(NamedTuple):
    """The address that clients connect to."""

    host: str
    port: int


def topic_records(
    topic: Topic,
    image: MetadataImage,
    node: Node,
    *,
    logs: Mapping[TopicPartition, FoundLog] = MappingProxyType({}),
) -> Iterator[RecordToWrite]:
    """The records that make the image's topic of this name the wanted one; no partition goes.

    `logs` are the logs that partitions have which the image does not know yet. Another topic of
    this name is removed.
    """
    state = image.topic(topic.name)
    # A name can have one topic only.
    if state is not None and state.topic_id != topic.topic_id:
        yield remove_topic_record(state.topic_id)
        state = None
    if state is None:
        from tailrace.protocol.metadata_records import TopicRecord

        yield RecordToWrite(TopicRecord(name=topic.name, topic_id=topic.topic_id), 0)
    # Settings that have no effect here stay as they are.
    stored = image.configs_of(TOPIC_RESOURCE, topic.name) if state is not None else {}
    current = {name: stored[name] for name in stored if usable_configs({name: stored[name]})}
    yield from _config_changes(ConfigResource(TOPIC_RESOURCE, topic.name), current, topic.configs)
    known = state.partitions if state is not None else ()
    for number in topic.partitions:
        if number not in known:
            name = TopicPartition(topic.name, number)
            log = logs.get(name, FoundLog(0, node.only_directory))
            yield _partition_record(topic.topic_id, number, log, image=image, node=node)


def config_records(
    image: MetadataImage, owner: ConfigResource, wanted: Mapping[str, str]
) -> Iterator[RecordToWrite]:
    """The records that make `wanted` the own settings of a resource."""
    return _config_changes(owner, image.configs_of(*owner), wanted)


def remove_topic_record(topic_id: uuid.UUID) -> RecordToWrite:
    """A topic goes, with its partitions and settings."""
    from tailrace.protocol.metadata_records import RemoveTopicRecord

    return RecordToWrite(RemoveTopicRecord(topic_id=topic_id), 0)


def producer_ids_record(node: Node, broker_epoch: int, next_id: int) -> RecordToWrite:
    """A block of ids below `next_id` is this node's (KIP-730)."""
    from tailrace.protocol.metadata_records import ProducerIdsRecord

    record = ProducerIdsRecord(
        broker_id=node.node_id, broker_epoch=broker_epoch, next_producer_id=next_id
    )
    return RecordToWrite(record, 0)


def transaction_records(name: str) -> tuple[RecordToWrite, RecordToWrite]:
    """The begin and the end of records that count together, in several batches (KIP-868)."""
    from tailrace.protocol.metadata_records import BeginTransactionRecord, EndTransactionRecord

    return RecordToWrite(BeginTransactionRecord(name=name), 0), RecordToWrite(
        EndTransactionRecord(), 0
    )


def election_records(
    image: MetadataImage, node: Node, found: Mapping[TopicPartition, FoundLog], *, was_clean: bool
) -> Iterator[RecordToWrite]:
    """The records that make this node lead its partitions, in the directories of their logs.

    A partition that it leads already keeps its leader epoch after an orderly stop. Otherwise the
    next epoch begins, so that clients notice a tail that was lost (KIP-320). An epoch is above each
    one in the log. Other nodes leave the set of replicas in sync.
    """
    version = partition_version(image.metadata_version)
    for topic in image.topics.values():
        for number, state in topic.partitions.items():
            log = found.get(TopicPartition(topic.name, number))
            if log is None or not _may_lead(state, node.node_id):
                continue
            changes = _election(state, log, node.node_id, was_clean=was_clean)
            if image.metadata_version >= DIRECTORIES_SINCE:
                changes |= _placement(state, log.directory, node.node_id)
            yield from _partition_changes(state, changes, log.leader_epoch, version=version)


def placement_records(
    image: MetadataImage, node: Node, directories: Mapping[TopicPartition, uuid.UUID]
) -> Iterator[RecordToWrite]:
    """The records that name the directories in which the logs of partitions are now."""
    # Older nodes could not read the field.
    if image.metadata_version < DIRECTORIES_SINCE:
        return
    version = partition_version(image.metadata_version)
    for name, directory in directories.items():
        topic = image.topic(name.topic)
        state = None if topic is None else topic.partitions.get(name.partition)
        if state is not None and node.node_id in state.replicas:
            changes = _placement(state, directory, node.node_id)
            yield from _partition_changes(state, changes, 0, version=version)


def feature_records(
    image: MetadataImage, levels: Mapping[str, int], *, min_insync_replicas: str
) -> Iterator[RecordToWrite]:
    """The records that give features new levels, 0 for one that is not in use any more.

    Where eligible leader replicas begin, `min.insync.replicas` becomes a setting of all brokers,
    and none of a single one (KIP-966); `min_insync_replicas` is that of this broker.
    """
    from tailrace.protocol.metadata_records import FeatureLevelRecord

    # As Kafka's controller does when the feature begins (KIP-966): the size of the set in sync must
    # not differ from broker to broker.
    if levels.get(ELIGIBLE_LEADERS):
        for owner, settings in image.configs.items():
            if owner.type == BROKER_RESOURCE and owner != ALL_BROKERS:
                wanted = {name: settings[name] for name in settings if name != MIN_INSYNC_REPLICAS}
                yield from config_records(image, owner, wanted)
        shared = {MIN_INSYNC_REPLICAS: min_insync_replicas, **image.configs_of(*ALL_BROKERS)}
        yield from config_records(image, ALL_BROKERS, shared)
    for name, level in levels.items():
        yield RecordToWrite(FeatureLevelRecord(name=name, feature_level=level), 0)


def directories_record(node: Node, epoch: int) -> RecordToWrite:
    """The log directories of a broker whose registration could not name them."""
    directories = tuple(node.directories.values())
    return registration_change(node.node_id, epoch, log_dirs=directories)


def needs_directories(image: MetadataImage, levels: Mapping[str, int]) -> bool:
    """Whether the registrations of brokers must name directories at the new levels only."""
    return image.metadata_version < DIRECTORIES_SINCE <= levels.get(METADATA_VERSION, 0)


def fence_record(node: Node, epoch: int) -> RecordToWrite:
    """The broker of this registration serves no more, so that the next one need not wait for it."""
    return registration_change(node.node_id, epoch, fenced=FENCED)


def registration_records(
    image: MetadataImage,
    node: Node,
    endpoints: Mapping[str, Endpoint],
    *,
    protocols: Mapping[str, int],
    incarnation: uuid.UUID,
    epoch: int,
) -> Iterator[RecordToWrite]:
    """The registration of this broker, and that it serves; `epoch` is the offset of the first.

    `endpoints` are its addresses by listener, and `protocols` the numbers of their protocols.
    """
    from tailrace.protocol.metadata_records import (
        BrokerEndpoint,
        BrokerFeature,
        RegisterBrokerRecord,
    )

    features = tuple(
        BrokerFeature(
            name=name,
            min_supported_version=each.lowest,
            max_supported_version=each.highest,
        )
        for name, each in FEATURES.items()
    )
    level = image.metadata_version
    # Fenced at first, as every broker of Kafka; the change below unfences it.
    yield RecordToWrite(
        RegisterBrokerRecord(
            broker_id=node.node_id,
            incarnation_id=incarnation,
            broker_epoch=epoch,
            end_points=tuple(
                BrokerEndpoint(
                    name=name,
                    host=each.host,
                    port=each.port,
                    security_protocol=protocols.get(name, 0),
                )
                for name, each in endpoints.items()
            ),
            features=features,
            log_dirs=tuple(node.directories.values()) if level >= DIRECTORIES_SINCE else (),
        ),
        register_broker_version(level),
    )
    yield registration_change(node.node_id, epoch, fenced=UNFENCED)


def unregistration_records(image: MetadataImage, *, broker_id: int) -> Iterator[RecordToWrite]:
    """The records that end the registration of another broker: it leads and is in sync no more."""
    from tailrace.protocol.metadata_records import UnregisterBrokerRecord

    version = partition_version(image.metadata_version)
    for topic in image.topics.values():
        for state in topic.partitions.values():
            changes: dict[str, Any] = {}
            # Without a leader and not under another one: only a start elects, and only this node.
            if state.leader == broker_id:
                changes["leader"] = _NO_LEADER
            # The last replica in sync stays: only it has all that was committed.
            rest = tuple(each for each in state.isr if each != broker_id)
            if rest and rest != state.isr:
                changes["isr"] = rest
            yield from _partition_changes(state, changes, 0, version=version)
    epoch = image.brokers[broker_id].broker_epoch
    yield RecordToWrite(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch), 0)


def _partition_record(
    topic_id: uuid.UUID, number: int, log: FoundLog, *, image: MetadataImage, node: Node
) -> RecordToWrite:
    from tailrace.protocol.metadata_records import PartitionRecord

    level, replicas = image.metadata_version, (node.node_id,)
    record = PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=node.node_id,
        leader_epoch=log.leader_epoch,
        partition_epoch=0,
        directories=(log.directory,) if level >= DIRECTORIES_SINCE else (),
    )
    return RecordToWrite(record, partition_version(level))


def _config_changes(
    owner: ConfigResource, current: Mapping[str, str], wanted: Mapping[str, str]
) -> Iterator[RecordToWrite]:
    changed = [(name, value) for name, value in wanted.items() if current.get(name) != value]
    gone = [(name, None) for name in current if name not in wanted]
    for name, value in (*changed, *gone):
        from tailrace.protocol.metadata_records import ConfigRecord

        record = ConfigRecord(
            resource_type=owner.type, resource_name=owner.name, name=name, value=value
        )
        yield RecordToWrite(record, 0)


def _may_lead(state: "PartitionRecord", node_id: int) -> bool:
    """Whether the node is in sync, or the last that was, so that nothing committed is lost."""
    return (
        state.replicas == (node_id,)
        or node_id in state.isr
        or node_id in (state.eligible_leader_replicas or ())
    )


def _election(
    state: "PartitionRecord", log: FoundLog, node_id: int, *, was_clean: bool
) -> dict[str, Any]:
    # With another broker that serves, this would evict it from the set in sync at each restart. It
    # is safe only because this node is the one voter: nobody else has appended since (a quorum of
    # others is refused, `metadata.log`). Of several brokers the controller elects, and it keeps a
    # leader that is still valid.
    changes: dict[str, Any] = {}
    # After a crash the tail may be lost: a new epoch lets clients notice that (KIP-320).
    has_older_epoch = state.leader_epoch < log.leader_epoch
    if state.leader != node_id or state.isr != (node_id,) or not was_clean or has_older_epoch:
        changes["leader"] = node_id
    if state.isr != (node_id,):
        changes["isr"] = (node_id,)
    # This node is in sync now, so nobody else is eligible beside it.
    for name in ("eligible_leader_replicas", "last_known_elr"):
        if getattr(state, name):
            changes[name] = ()
    return changes


def _placement(state: "PartitionRecord", directory: uuid.UUID, node_id: int) -> dict[str, Any]:
    place = state.replicas.index(node_id)
    if state.directories[place] == directory:
        return {}
    others = state.directories
    return {"directories": (*others[:place], directory, *others[place + 1 :])}


def registration_change(broker_id: int, epoch: int, **change: Any) -> RecordToWrite:  # noqa: ANN401
    """A change of one field of a broker's registration, in the oldest version that has it."""
    from tailrace.protocol.metadata_records import BrokerRegistrationChangeRecord

    # Not the newest: a node that knows only older ones can still read what does not need them.
    [field] = change
    record = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, **change)
    return RecordToWrite(record, _CHANGE_VERSIONS[field])


def partition_change_record(
    state: "PartitionRecord", changes: Mapping[str, Any], *, version: int
) -> RecordToWrite:
    """A change of some fields of a partition."""
    from tailrace.protocol.metadata_records import PartitionChangeRecord

    record = PartitionChangeRecord(
        partition_id=state.partition_id, topic_id=state.topic_id, **changes
    )
    return RecordToWrite(record, version)


def _partition_changes(
    state: "PartitionRecord", changes: Mapping[str, Any], lowest_epoch: int, *, version: int
) -> Iterable[RecordToWrite]:
    """The record of some changes; again where each election raises the epoch by one only."""
    if not changes:
        return
    yield partition_change_record(state, changes, version=version)
    # A change raises the epoch by one. The log may have larger ones, from a state that was lost,
    # and the leader's epoch must be above each epoch in its log.
    if "leader" in changes:
        missing = min(lowest_epoch - state.leader_epoch - 1, _EPOCHS_AT_ONCE_MAX)
        again = partition_change_record(state, {"leader": changes["leader"]}, version=version)
        yield from [again] * missing
