"""`MetadataDelta`: the changes that records make to an image, as Kafka's controller replays them.

    delta = MetadataDelta(image)
    delta.replay(record) ...
    image, change = delta.image(), delta.change()

A part of the image is copied when the first record changes it, so that a change costs the size of
the parts it touches.

Not here: transactions of metadata. The caller replays their records when they end.

Invariant: a record that contradicts the image is a MetadataFaultError, and the delta is of no use
any more; the image that it began with is as before.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tailrace.cluster.metadata.features import KRAFT_VERSION
from tailrace.cluster.metadata.image import (
    ConfigResource,
    ImageChange,
    MetadataImage,
    ScramUser,
    TopicState,
    quota_entity,
)
from tailrace.cluster.topic_rules import InvalidTopicNameError, check_topic_name
from tailrace.errors import FatalError
from tailrace.model import METADATA_TOPIC
from tailrace.protocol.fields import Message
from tailrace.values import replace

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import (
        AccessControlEntryRecord,
        BrokerRegistrationChangeRecord,
        ClearElrRecord,
        ClientQuotaRecord,
        ConfigRecord,
        DelegationTokenRecord,
        FeatureLevelRecord,
        FenceBrokerRecord,
        NoOpRecord,
        PartitionChangeRecord,
        PartitionRecord,
        ProducerIdsRecord,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        RemoveAccessControlEntryRecord,
        RemoveDelegationTokenRecord,
        RemoveTopicRecord,
        RemoveUserScramCredentialRecord,
        TopicRecord,
        UnfenceBrokerRecord,
        UnregisterBrokerRecord,
        UserScramCredentialRecord,
        ZkMigrationStateRecord,
    )

K = TypeVar("K")
V = TypeVar("V")
Replay = TypeVar("Replay", bound=Callable[[Any, Any], None])

TOPIC_RESOURCE: Final = 2
NO_LEADER_CHANGE: Final = -2
MIGRATING: Final = uuid.UUID(int=0)
"""Log directory of a replica that was placed before directories had ids (KIP-858)."""


class MetadataFaultError(FatalError):
    """A record of the metadata log contradicts the records before it."""


# By the name of the class and not by the class: a start imports no classes of records that its log
# does not have (decision 24). The name is that of the parameter's type, which the type checker
# knows, so that a rename cannot be missed.
_REPLAYS: dict[str, Callable[[Any, Any], None]] = {}
"""The change that each record makes, by the name of its class."""


def _replays(method: Replay) -> Replay:
    [record] = (kind for name, kind in method.__annotations__.items() if name != "return")
    _REPLAYS[record] = method
    return method


class MetadataDelta:
    """Changes to one image, of which they make another."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._changed: dict[str, Any] = {}
        """Copies of the parts that were changed, by the name of the part."""
        self._topics: set[uuid.UUID] = set()
        """Ids of the topics that were made, changed or removed."""
        self._configs: set[ConfigResource] = set()
        """Owners of the settings that were set or removed."""

    def image(self) -> MetadataImage:
        """The image with the changes; the delta must not be changed any more."""
        return replace(self._image, **self._changed) if self._changed else self._image

    def change(self) -> ImageChange:
        """The topics, settings and other parts that differ; nobody compares ten thousand topics."""
        return ImageChange(
            topics=frozenset(self._topics),
            brokers="brokers" in self._changed,
            configs=frozenset(self._configs),
            features="features" in self._changed,
        )

    def replay(self, record: Message) -> None:
        """Change the image by a record.

        Raises:
            MetadataFaultError: the record contradicts the image, or is not of a type that changes
                one.
        """
        name = type(record).__name__
        if name not in _REPLAYS:
            raise MetadataFaultError(f"{name} cannot be replayed by itself")
        _REPLAYS[name](self, record)

    # -- parts --------------------------------------------------------------------------------

    def _part(self, name: str) -> Any:  # noqa: ANN401 - one of the image's mappings
        """A part as it is now, to be read."""
        return self._changed[name] if name in self._changed else getattr(self._image, name)

    def _own(self, name: str) -> Any:  # noqa: ANN401 - one of the image's mappings, as a dict
        """A part as it is now, to be changed."""
        # Copied by the first change, so that a delta costs the size of what it touches.
        if name not in self._changed:
            self._changed[name] = dict(getattr(self._image, name))
        return self._changed[name]

    def _take(self, name: str, key: object, what: str) -> Any:  # noqa: ANN401 - as _own
        """Remove an entry of a part, which has to be there."""
        part = self._own(name)
        if key not in part:
            raise MetadataFaultError(f"{what} is removed, but there is none")
        return part.pop(key)

    def _set_inner(self, name: str, key: object, change: Callable[[dict[str, Any]], None]) -> None:
        """Change a mapping inside of a part; one that is empty is left out."""
        part = self._own(name)
        inner = dict(part.get(key, {}))
        change(inner)
        if inner:
            part[key] = inner
        else:
            part.pop(key, None)

    # -- features and nodes -------------------------------------------------------------------

    @_replays
    def _(self, _record: "NoOpRecord") -> None:
        """Change nothing."""

    @_replays
    def _(self, record: "ZkMigrationStateRecord") -> None:
        self._changed["zk_migration_state"] = record.zk_migration_state

    @_replays
    def _(self, record: "FeatureLevelRecord") -> None:
        if record.name == KRAFT_VERSION:
            return
        if record.feature_level:
            self._own("features")[record.name] = record.feature_level
        else:
            self._own("features").pop(record.name, None)

    @_replays
    def _(self, record: "RegisterBrokerRecord") -> None:
        # Whole: a broker that comes back has another incarnation, and maybe other features.
        self._own("brokers")[record.broker_id] = record

    @_replays
    def _(self, record: "UnregisterBrokerRecord") -> None:
        self._registration(record.broker_id, record.broker_epoch)
        del self._own("brokers")[record.broker_id]

    @_replays
    def _(self, record: "FenceBrokerRecord") -> None:
        self._change_broker(record.id, record.epoch, fenced=True)

    @_replays
    def _(self, record: "UnfenceBrokerRecord") -> None:
        self._change_broker(record.id, record.epoch, fenced=False)

    @_replays
    def _(self, record: "BrokerRegistrationChangeRecord") -> None:
        changes: dict[str, Any] = {}
        # 1 fences and -1 unfences. There is no way back from a controlled shutdown but another
        # registration (KIP-841), so that field is only ever set.
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = True
        if record.log_dirs:
            changes["log_dirs"] = record.log_dirs
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = record.cordoned_log_dirs
        self._change_broker(record.broker_id, record.broker_epoch, **changes)

    @_replays
    def _(self, record: "RegisterControllerRecord") -> None:
        self._own("controllers")[record.controller_id] = record

    def _registration(self, broker_id: int, epoch: int) -> "RegisterBrokerRecord":
        found: RegisterBrokerRecord | None = self._part("brokers").get(broker_id)
        if found is None:
            raise MetadataFaultError(f"broker {broker_id} changes, but is not registered")
        if found.broker_epoch != epoch:
            raise MetadataFaultError(
                f"broker {broker_id} changes in epoch {epoch}, but has epoch {found.broker_epoch}"
            )
        return found

    def _change_broker(self, broker_id: int, epoch: int, **changes: object) -> None:
        found = self._registration(broker_id, epoch)
        self._own("brokers")[broker_id] = replace(found, **changes)  # type: ignore[arg-type]

    # -- topics -------------------------------------------------------------------------------

    @_replays
    def _(self, record: "TopicRecord") -> None:
        known = self._part("topic_ids").get(record.name)
        if known is not None or record.topic_id in self._part("topics"):
            raise MetadataFaultError(f"topic {record.name} is created, but there is one already")
        # Folders have its name: `../x` would be one outside of the log directories, and that of the
        # metadata log its own. Only a log that is damaged or forged has such a record.
        try:
            check_topic_name(record.name)
        except InvalidTopicNameError as error:
            raise MetadataFaultError(f"a topic is created, but {error}") from error
        if record.name == METADATA_TOPIC:
            raise MetadataFaultError(f"topic {record.name} is created, which is the metadata log")
        self._topics.add(record.topic_id)
        self._own("topic_ids")[record.name] = record.topic_id
        self._own("topics")[record.topic_id] = TopicState(
            name=record.name, topic_id=record.topic_id, partitions={}
        )

    @_replays
    def _(self, record: "RemoveTopicRecord") -> None:
        topic: TopicState = self._take("topics", record.topic_id, f"topic {record.topic_id}")
        del self._own("topic_ids")[topic.name]
        self._topics.add(record.topic_id)
        resource = ConfigResource(TOPIC_RESOURCE, topic.name)
        # Kafka writes no records for the settings that go with a topic.
        if resource in self._part("configs"):
            del self._own("configs")[resource]
            self._configs.add(resource)

    @_replays
    def _(self, record: "PartitionRecord") -> None:
        topic, record = self._topic(record.topic_id), _with_directories(record)
        if () in (record.eligible_leader_replicas, record.last_known_elr):
            record = replace(
                record,
                eligible_leader_replicas=record.eligible_leader_replicas or None,
                last_known_elr=record.last_known_elr or None,
            )
        if record.partition_id < 0:
            raise MetadataFaultError(f"topic {topic.name} has partition {record.partition_id}")
        self._set_partition(topic, record)

    @_replays
    def _(self, record: "PartitionChangeRecord") -> None:
        topic = self._topic(record.topic_id)
        before = topic.partitions.get(record.partition_id)
        if before is None:
            raise MetadataFaultError(
                f"partition {record.partition_id} of topic {record.topic_id} changes, but there "
                "is none"
            )
        self._set_partition(topic, changed_partition(before, record))

    @_replays
    def _(self, record: "ClearElrRecord") -> None:
        # Written when `min.insync.replicas` changes: who was eligible under the old number need not
        # have all that was committed under the new one (KIP-966). Without a name: all topics.
        names = [record.topic_name] if record.topic_name else list(self._part("topic_ids"))
        for name in names:
            topic_id = self._part("topic_ids").get(name)
            if topic_id is None:
                raise MetadataFaultError(f"topic {name} is changed, but there is none")
            for each in self._topic(topic_id).partitions.values():
                if each.eligible_leader_replicas or each.last_known_elr:
                    self._set_partition(
                        self._topic(topic_id),
                        replace(
                            each,
                            eligible_leader_replicas=None,
                            last_known_elr=None,
                            partition_epoch=each.partition_epoch + 1,
                        ),
                    )

    def _topic(self, topic_id: uuid.UUID) -> TopicState:
        found: TopicState | None = self._part("topics").get(topic_id)
        if found is None:
            raise MetadataFaultError(f"a partition of topic {topic_id} changes, but there is none")
        return found

    def _set_partition(self, topic: TopicState, record: "PartitionRecord") -> None:
        partitions: Mapping[int, PartitionRecord] = topic.partitions
        # A topic of ten thousand partitions is copied once for each delta, not for each partition.
        before = self._image.topics.get(record.topic_id)
        if before is None or before.partitions is not partitions:
            assert isinstance(partitions, dict), "the partitions are this delta's own"
            partitions[record.partition_id] = record
            return
        self._topics.add(record.topic_id)
        own = {**partitions, record.partition_id: record}
        self._own("topics")[record.topic_id] = replace(topic, partitions=own)

    # -- settings and the rest ----------------------------------------------------------------

    @_replays
    def _(self, record: "ConfigRecord") -> None:
        def change(inner: dict[str, Any]) -> None:
            if record.value is None:
                inner.pop(record.name, None)
            else:
                inner[record.name] = record.value

        resource = ConfigResource(record.resource_type, record.resource_name)
        self._configs.add(resource)
        self._set_inner("configs", resource, change)

    @_replays
    def _(self, record: "ClientQuotaRecord") -> None:
        def change(inner: dict[str, Any]) -> None:
            if record.remove:
                inner.pop(record.key, None)
            else:
                inner[record.key] = record.value

        parts = tuple((each.entity_type, each.entity_name) for each in record.entity)
        self._set_inner("quotas", quota_entity(self._part("quotas"), parts), change)

    @_replays
    def _(self, record: "ProducerIdsRecord") -> None:
        known = self._part("next_producer_id")
        if known is not None and record.next_producer_id <= known:
            raise MetadataFaultError(
                f"the next producer id is {record.next_producer_id}, but it was {known} before"
            )
        self._changed["next_producer_id"] = record.next_producer_id

    @_replays
    def _(self, record: "AccessControlEntryRecord") -> None:
        if record.id in self._part("acls"):
            raise MetadataFaultError(f"access control entry {record.id} is there already")
        self._own("acls")[record.id] = record

    @_replays
    def _(self, record: "RemoveAccessControlEntryRecord") -> None:
        self._take("acls", record.id, f"access control entry {record.id}")

    @_replays
    def _(self, record: "UserScramCredentialRecord") -> None:
        self._own("scram")[ScramUser(record.mechanism, record.name)] = record

    @_replays
    def _(self, record: "RemoveUserScramCredentialRecord") -> None:
        user = ScramUser(record.mechanism, record.name)
        self._take("scram", user, f"the SCRAM credential of {record.name}")

    @_replays
    def _(self, record: "DelegationTokenRecord") -> None:
        self._own("tokens")[record.token_id] = record

    @_replays
    def _(self, record: "RemoveDelegationTokenRecord") -> None:
        self._own("tokens").pop(record.token_id, None)


def changed_partition(
    before: "PartitionRecord", record: "PartitionChangeRecord"
) -> "PartitionRecord":
    """A partition after a PartitionChangeRecord."""
    # Field by field: a death of a broker changes ten thousand, and `replace` takes twice as long.
    # Null fields keep their value; a leader that is set begins a new leader epoch.
    is_led, recovery = record.leader != NO_LEADER_CHANGE, record.leader_recovery_state
    eligible, last_known = record.eligible_leader_replicas, record.last_known_elr
    return _with_directories(
        type(before)(
            partition_id=before.partition_id,
            topic_id=before.topic_id,
            replicas=before.replicas if record.replicas is None else record.replicas,
            isr=before.isr if record.isr is None else record.isr,
            removing_replicas=before.removing_replicas
            if record.removing_replicas is None
            else record.removing_replicas,
            adding_replicas=before.adding_replicas
            if record.adding_replicas is None
            else record.adding_replicas,
            leader=record.leader if is_led else before.leader,
            leader_recovery_state=recovery if recovery >= 0 else before.leader_recovery_state,
            leader_epoch=before.leader_epoch + is_led,
            partition_epoch=before.partition_epoch + 1,
            directories=before.directories if record.directories is None else record.directories,
            # None where they hold nothing: so records have them.
            eligible_leader_replicas=(
                before.eligible_leader_replicas if eligible is None else eligible
            )
            or None,
            last_known_elr=(before.last_known_elr if last_known is None else last_known) or None,
        )
    )


def _with_directories(record: "PartitionRecord") -> "PartitionRecord":
    """A partition with a log directory for each replica."""
    if len(record.directories) == len(record.replicas):
        return record
    # None at all: a record from before `metadata.version` 17, which has no such field.
    if all(each == MIGRATING for each in record.directories):
        return replace(record, directories=(MIGRATING,) * len(record.replicas))
    raise MetadataFaultError(
        f"partition {record.partition_id} of topic {record.topic_id} has "
        f"{len(record.replicas)} replicas in {len(record.directories)} directories"
    )
