"""`ControlState`: what an active controller knows, and what all of its rules ask.

    log ──replay──► image ┐
    heartbeats ──────────►├─ rule(state, request) ─► Decision: records, answer
    settings ────────────►┘

A decision changes only what is lost with the controller (`heartbeats`). The image changes when the
records are replayed, which must be done before the next decision: a rule that saw the state without
them would elect a second leader for an epoch.

Invariant: `image` is the replay of all records up to `next_offset`, committed or not.
"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from tailrace.cluster.control.heartbeats import Heartbeats
from tailrace.cluster.control.settings import ControlConfig
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.delta import MIGRATING, MetadataDelta
from tailrace.cluster.metadata.features import ELIGIBLE_LEADERS, partition_version
from tailrace.cluster.metadata.image import ImageChange, MetadataImage, TopicState
from tailrace.cluster.partition_change import (
    DIRECTORIES_SINCE,
    Rules,
    Wanted,
    change_partition,
)
from tailrace.cluster.records import UNASSIGNED, partition_change_record
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.config.settings import Setting
from tailrace.errors import FatalError
from tailrace.protocol.config_resources import ConfigSource, ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.create_topics import CreatableTopicConfigs
from tailrace.storage.config import TOPIC_SETTINGS, LogConfig, log_config, usable_configs

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord, RegisterBrokerRecord

LOST: Final = UUID(int=2)
"""Log directory of a replica whose directory has failed, without a name (KIP-858)."""
RESERVED_DIRECTORIES: Final = 100
"""Ids below it are not those of directories; some have a meaning, as `MIGRATING` (KIP-858)."""
RECORDS_MAX: Final = 10_000
"""Most records of a request of a client: they are one batch, which every broker must be able to
fetch."""


class RefusedError(FatalError):
    """The request, or one part of it, is refused; has the code and the text of the answer."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = message or code.message
        super().__init__(self.message)


class ResourceRules(NamedTuple):
    """Rules for the settings of resources of one type, which are known above the cluster."""

    check: Callable[[Collection[str], str, Mapping[str, str]], None]
    """Checks all settings that a resource is to have, by its name and the names of those of this
    type that have some; raises RefusedError."""
    declared: Mapping[str, Setting] = MappingProxyType({})
    """Settings by their names; values are added to and taken from those that are lists."""


Take = Callable[[int], None]
"""Counts partitions that a client creates or deletes; raises RefusedError above its quota."""


def take_any(_: int) -> None:
    """Let a client without a quota change any number of partitions."""


class Decision(NamedTuple):
    """The outcome of a request: records for the log, and the answer once they count."""

    records: Sequence[RecordToWrite]
    answer: Message


def check_count(decision: Decision) -> Decision:
    """The decision of a request of a client, which must fit one batch.

    Raises:
        RefusedError: POLICY_VIOLATION: more than `RECORDS_MAX` records.
    """
    if len(decision.records) > RECORDS_MAX:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION,
            f"The request would be {len(decision.records)} records, and {RECORDS_MAX} are allowed.",
        )
    return decision


class _Layers(NamedTuple):
    """The defaults of topics under the settings of brokers in one image."""

    source: object
    """The settings of the image, by identity: one without other settings has the same ones."""
    configs: Mapping[str, str]
    shown: Mapping[str, CreatableTopicConfigs]


def _shown(defaults: TopicDefaults) -> Mapping[str, CreatableTopicConfigs]:
    layers = ((ConfigSource.BROKER, defaults.given), *defaults.dynamic.items())
    found = {}
    for setting in sorted(TOPIC_SETTINGS, key=lambda each: each.name):
        value, source = setting.format(setting.default), ConfigSource.DEFAULT
        for each, settings in layers:
            if setting.name in settings:
                value, source = settings[setting.name], each
        found[setting.name] = CreatableTopicConfigs(
            name=setting.name, value=value, config_source=source
        )
    return found


class ControlState:
    """The state of the cluster as the active controller sees it."""

    def __init__(
        self,
        cluster_id: str,
        *,
        node_id: int,
        defaults: TopicDefaults,
        chance: random.Random,
        config: ControlConfig | None = None,
        kraft_version: int = 0,
        rules: Mapping[ResourceType, ResourceRules] = MappingProxyType({}),
        can_delete_topics: bool = True,
    ) -> None:
        """Settings of types that are not in `rules` are taken as they are."""
        self.rules = rules
        self.cluster_id = cluster_id
        self.defaults = defaults
        """Settings of topics that were not given their own; those of the controller's file."""
        self.chance = chance
        self.config = config or ControlConfig()
        self.kraft_version = kraft_version
        self.can_delete_topics = can_delete_topics
        """`delete.topic.enable` of this controller."""
        self.image = MetadataImage()
        self.next_offset = 0
        """Offset of the next record."""
        self.heartbeats = Heartbeats(self.config.session_timeout_ms)
        self.node_id = node_id
        self._layered = _Layers(None, MappingProxyType({}), MappingProxyType({}))

    # -- changes ------------------------------------------------------------------------------

    def begin(self, image: MetadataImage, *, next_offset: int, now_ms: int) -> None:
        """Become the active controller, with the state of the log up to `next_offset`."""
        self.image, self.next_offset = image, next_offset
        self.heartbeats = Heartbeats(self.config.session_timeout_ms)
        for broker_id, broker in image.brokers.items():
            self.heartbeats.register(broker_id, offset=broker.broker_epoch, is_fenced=broker.fenced)
            # As if it had just sent a heartbeat: who was heard of by the last controller is not
            # known, and to fence all brokers at once would stop the cluster.
            if not broker.fenced:
                self.heartbeats.note(broker_id, broker.broker_epoch, now_ms=now_ms)

    def replay(self, records: Iterable[Message]) -> ImageChange:
        """Change the state by records that were appended at `next_offset`; returns what differs.

        Raises:
            MetadataFaultError: they contradict the state, which is as before.
        """
        appended = tuple(records)
        delta = MetadataDelta(self.image)
        for record in appended:
            delta.replay(record)
        self.image = delta.image()
        for offset, record in enumerate(appended, self.next_offset):
            self._note(record, offset)
        self.next_offset += len(appended)
        return delta.change()

    def _note(self, record: Message, offset: int) -> None:
        """Note what the record of a broker means for its heartbeats."""
        # By name, as `delta` does: no class of records is imported for it.
        match type(record).__name__:
            case "RegisterBrokerRecord":
                self.heartbeats.register(
                    record.broker_id,  # type: ignore[attr-defined]
                    offset=offset,
                    is_fenced=record.fenced,  # type: ignore[attr-defined]
                )
            case "UnregisterBrokerRecord":
                self.heartbeats.forget(record.broker_id)  # type: ignore[attr-defined]
            case "BrokerRegistrationChangeRecord":
                self.heartbeats.changed(
                    record.broker_id,  # type: ignore[attr-defined]
                    is_fenced=record.fenced > 0,  # type: ignore[attr-defined]
                )

    # -- brokers ------------------------------------------------------------------------------

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker serves: registered, not fenced, and not shutting down."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def check_epoch(self, broker_id: int, epoch: int) -> "RegisterBrokerRecord":
        """The registration of a broker, which must have this epoch.

        Raises:
            RefusedError: STALE_BROKER_EPOCH: it is not registered, or has another one.
        """
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise RefusedError(
                ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker {broker_id}"
            )
        if broker.broker_epoch != epoch:
            raise RefusedError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.broker_epoch}, but got broker epoch {epoch}",
            )
        return broker

    def is_online(self, broker_id: int, directory: UUID) -> bool:
        """Whether a broker has this log directory of a replica."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or directory == LOST:
            return False
        if directory in (MIGRATING, UNASSIGNED):
            return True
        # Registered at a level without directories: it would stop if all of them had failed
        # (KAFKA-16162).
        return not broker.log_dirs or directory in broker.log_dirs

    def default_directory(self, broker_id: int) -> UUID:
        """The log directory of a new replica on a broker."""
        if not self.names_directories:
            return MIGRATING
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return UNASSIGNED
        if not broker.log_dirs:
            return MIGRATING
        # Of several the broker itself chooses, and reports it (AssignReplicasToDirs).
        return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED

    # -- levels and settings ------------------------------------------------------------------

    @property
    def names_directories(self) -> bool:
        """Whether records name log directories (KIP-858)."""
        return self.image.metadata_version >= DIRECTORIES_SINCE

    @property
    def has_elr(self) -> bool:
        """Whether eligible leader replicas are kept (KIP-966)."""
        return self.image.features.get(ELIGIBLE_LEADERS, 0) > 0

    @property
    def default_configs(self) -> Mapping[str, str]:
        """The settings of a topic that was given none."""
        return self._layers().configs

    @property
    def shown_defaults(self) -> Mapping[str, CreatableTopicConfigs]:
        """The settings of a topic that was given none, as the answer to CreateTopics has them."""
        return self._layers().shown

    def _layers(self) -> "_Layers":
        if self._layered.source is not self.image.configs:
            defaults = self.defaults.with_state(self.image, self.node_id)
            self._layered = _Layers(self.image.configs, defaults.configs, _shown(defaults))
        return self._layered

    def topic_config(self, name: str) -> LogConfig:
        """The settings of a topic as they apply on this controller."""
        own = usable_configs(self.image.configs_of(ResourceType.TOPIC, name))
        return log_config(own, self.default_configs)

    def insync_min(self, topic: TopicState) -> int:
        """`min.insync.replicas` of a topic, at most its replication factor."""
        # Of partition 0, as in Kafka: another one may be under reassignment.
        factor = len(topic.partitions[0].replicas)
        return min(self.topic_config(topic.name).min_insync_replicas, factor)

    # -- partitions ---------------------------------------------------------------------------

    def partitions(
        self, has: Callable[["PartitionRecord"], bool]
    ) -> Iterator[tuple[TopicState, "PartitionRecord"]]:
        """The partitions of which this holds, with their topics."""
        # Each change of a broker looks at all partitions: 50 ms for a hundred thousand, and it
        # happens a few times a day. Kafka keeps an index for it, of which every record is a change.
        for topic in self.image.topics.values():
            for partition in topic.partitions.values():
                if has(partition):
                    yield topic, partition

    def change(
        self, topic: TopicState, partition: "PartitionRecord", wanted: Wanted
    ) -> RecordToWrite | None:
        """The record of a change of one partition; None: nothing changes."""
        changes = self.changed_fields(
            partition, wanted, insync_min=self.insync_min(topic), is_alive=self.is_active
        )
        if not changes:
            return None
        return partition_change_record(
            partition, changes, version=partition_version(self.image.metadata_version)
        )

    def changed_fields(
        self,
        partition: "PartitionRecord",
        wanted: Wanted,
        *,
        insync_min: int,
        is_alive: Callable[[int], bool],
    ) -> Mapping[str, Any]:
        """The fields of a change, as of `change_partition`; `is_alive` says who may lead."""
        own = dict(zip(partition.replicas, partition.directories, strict=False))

        def may_lead(broker_id: int, _: UUID | None) -> bool:
            # The directory that the broker has confirmed, not one that this change assigns. Who is
            # no replica has no records: the last known leader may have been one before a
            # reassignment was cancelled. (Kafka's controller fails there.)
            directory = own.get(broker_id)
            return (
                directory is not None
                and is_alive(broker_id)
                and self.is_online(broker_id, directory)
            )

        rules = Rules(
            metadata_version=self.image.metadata_version,
            has_elr=self.has_elr,
            may_lead=may_lead,
            default_directory=self.default_directory,
        )
        return change_partition(partition, wanted, rules, insync_min=insync_min)
