"""The controller, the only writer of the cluster image: changes topics and assigns producer ids.

Each change builds a new image, saves it, and then makes it the current one. It waits for the device
and may run on any thread; a lock serializes changes.

    prepare(topic)     the topic is in the saved state, and nobody sees it
    its logs are made
    publish(topic)     the topic is in the image

So a crash in between leaves the whole topic: the next start makes the logs that are missing, as
a broker of Kafka does with what the metadata log has.
"""

import random
import re
import threading
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tailrace.cluster.config_changes import ConfigChange, plan_configs
from tailrace.cluster.image import ClusterImage, Topic
from tailrace.cluster.store import LocalStore
from tailrace.config.settings import INT64_MAX
from tailrace.errors import FatalError, StorageError
from tailrace.model import INTERNAL_TOPICS, METADATA_TOPIC, ProducerId, TopicPartition
from tailrace.storage.config import log_config

TOPIC_NAME_BYTES_MAX = 249
"""Kafka's limit: 255 less a dash, a partition number of four digits, and one byte."""

PARTITIONS_MAX = 10_000
"""Most partitions of a new topic, so that one request cannot fill a disk."""

GROUPS_MAX = 1_000
"""Most groups with settings of their own: they are saved together, and need not exist."""

PRODUCER_ID_BLOCK = 1000
"""Ids reserved at a time (KIP-730): after a crash at most this many are skipped."""

FIRST_PRODUCER_ID = 2**40
"""Apache Kafka assigns ids from 0 on. It does not reach this one even with a million new producers
a day, so its ids and ours do not collide."""

ADOPTED_CONFIGS = MappingProxyType(
    {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
)
"""Settings of an adopted topic, whose own settings are unknown: no record may be deleted until the
operator sets others. Kafka's defaults are set only where the broker's defaults differ."""

ADOPTED_COMPACTED_CONFIGS = MappingProxyType(
    {"cleanup.policy": "compact", "min.compaction.lag.ms": str(INT64_MAX)}
)
"""Settings of an adopted topic that was compacted. Records without a key are refused, as by the
other broker: its cleaner would drop them when it gets the topic back."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class InvalidTopicNameError(FatalError, ValueError):
    """A topic name that Kafka does not allow."""


class ReservedTopicError(FatalError, ValueError):
    """The name is reserved for Kafka's metadata log."""


class TopicExistsError(FatalError, ValueError):
    """A topic with that name exists already."""


class InvalidPartitionsError(FatalError, ValueError):
    """A number of partitions that is not allowed."""


class TooManyPartitionsError(FatalError, ValueError):
    """More partitions than a topic may have, so that one request cannot fill a disk."""


class TooManyGroupsError(FatalError, ValueError):
    """More groups with settings of their own than there may be."""


class InvalidReplicationError(FatalError, ValueError):
    """A replication factor above the number of brokers, or below 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """The broker's defaults for new topics."""

    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]
    """The broker's defaults, by the name of the topic setting."""


class Controller:
    """Holds the current cluster image, and changes it."""

    def __init__(
        self,
        store: LocalStore,
        image: ClusterImage,
        *,
        chance: random.Random,
        defaults: TopicDefaults,
    ) -> None:
        self.image = image
        self.defaults = defaults
        self._store = store
        self._chance = chance
        self._producer_ids = range(0)
        self._prepared: dict[str, Topic] = {}
        """Topics that are saved, and that the image does not have like this yet."""
        self._changing = threading.Lock()

    def new_id(self) -> uuid.UUID:
        """A random id (version 4), never zero."""
        return uuid.UUID(int=self._chance.getrandbits(128), version=4)

    def image_has(self, partition: TopicPartition) -> bool:
        """Whether the partition is in the cluster."""
        topic = self.image.topics.get(partition.topic)
        return topic is not None and partition.partition in topic.partitions

    def plan_topic(
        self,
        name: str,
        *,
        partition_count: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        """Check a request for a topic, and return the topic; -1 means the broker's default.

        Changes nothing.

        Raises:
            InvalidTopicNameError: the name is empty, too long, `.` or `..`, or has other characters
                than letters, digits, dot, underscore and dash.
            ReservedTopicError: it is the name of Kafka's metadata log.
            TopicExistsError: the name is taken, or differs only in dots and underscores.
            InvalidPartitionsError, InvalidReplicationError: the number is not possible here.
            TooManyPartitionsError: more than `PARTITIONS_MAX`.
            ConfigError: settings that do not exist, are out of range or contradict each other.
        """
        check_topic_name(name)
        if name == METADATA_TOPIC:
            raise ReservedTopicError(f"Creation of internal topic {name} is prohibited.")
        self._check_name_is_free(name)
        count = self.defaults.partition_count if partition_count == -1 else partition_count
        if count < 1:
            raise InvalidPartitionsError(f"{count} partitions; a topic has at least 1")
        _check_partition_limit(count)
        if replication_factor not in (-1, 1):
            raise InvalidReplicationError(
                f"replication factor {replication_factor}; this cluster has 1 broker"
            )
        given = dict(configs or {})
        log_config(given, self.defaults.configs)
        return Topic(
            name=name,
            topic_id=self.new_id(),
            partitions=tuple(range(count)),
            configs=MappingProxyType(given),
        )

    def plan_partitions(self, topic: Topic, count: int) -> Topic:
        """The topic with `count` partitions, which must be more than it has. Changes nothing.

        Raises:
            InvalidPartitionsError: it has as many or more.
            TooManyPartitionsError: more than `PARTITIONS_MAX`.
        """
        if count <= topic.partition_count:
            raise InvalidPartitionsError(
                f"topic {topic.name} has {topic.partition_count} partitions; {count} is no increase"
            )
        _check_partition_limit(count)
        added = range(topic.partition_count, count)
        return replace(topic, partitions=(*topic.partitions, *added))

    def prepare(self, topic: Topic) -> None:
        """Save a planned topic that is new or has new partitions; its logs can be made then.

        Raises:
            StorageError: the state could not be saved; nothing has changed.
        """
        with self._changing:
            self._prepared[topic.name] = topic
            try:
                self._become(self.image)
            except StorageError:
                del self._prepared[topic.name]
                raise

    def publish(self, topic: Topic) -> None:
        """Put a prepared topic, whose logs are made, into the image."""
        with self._changing:
            del self._prepared[topic.name]
            self.image = replace(self.image, topics=_with(self.image.topics, topic))

    def withdraw(self, topic: Topic) -> None:
        """Take a prepared topic back, since its logs could not be made; the caller removes them.

        Raises:
            StorageError: the state could not be saved; the next change saves it. A start before
                that has the topic as it was prepared.
        """
        with self._changing:
            del self._prepared[topic.name]
            self._become(self.image)

    def plan_configs(
        self, topic: Topic, changes: Iterable[ConfigChange], *, is_replaced: bool = False
    ) -> Topic:
        """The topic with changed settings; `is_replaced` drops all others. Changes nothing.

        Raises:
            ConfigError: see `config_changes.plan_configs`; all faults together.
        """
        current = {} if is_replaced else topic.configs
        planned = plan_configs(current, changes, self.defaults.configs)
        return replace(topic, configs=MappingProxyType(planned))

    def change(self, topic: Topic) -> None:
        """Replace a topic by its planned version; after a crash it is the old or the new one.

        Raises:
            StorageError: the image could not be saved; the topic is unchanged.
        """
        with self._changing:
            assert self.image.topics[topic.name].topic_id == topic.topic_id
            self._become(replace(self.image, topics=_with(self.image.topics, topic)))

    def check_group_limit(self, group_id: str) -> None:
        """Check that a group may have settings of its own.

        Raises:
            TooManyGroupsError: `GROUPS_MAX` other groups have some.
        """
        known = self.image.group_configs
        if group_id not in known and len(known) >= GROUPS_MAX:
            raise TooManyGroupsError(
                f"{len(known)} groups have settings of their own, {GROUPS_MAX} may; remove those "
                "of groups that are not used any more"
            )

    def configure_group(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Replace the settings of a group; after a crash it has the old ones or the new ones.

        Raises:
            TooManyGroupsError: as `check_group_limit`.
            StorageError: the image could not be saved; the settings are unchanged.
        """
        with self._changing:
            self.check_group_limit(group_id)
            groups = {**self.image.group_configs, group_id: MappingProxyType(dict(configs))}
            if not configs:
                del groups[group_id]
            self._become(replace(self.image, group_configs=MappingProxyType(groups)))

    def remove(self, topic: Topic) -> None:
        """Remove a topic from the cluster; the caller removes its logs.

        Its id is kept until the next start, so that folders left by a crash are not adopted.

        Raises:
            StorageError: the image could not be saved; the topic still exists.
        """
        with self._changing:
            topics = {name: t for name, t in self.image.topics.items() if name != topic.name}
            deleted = self.image.deleted_topic_ids | {topic.topic_id}
            self._become(
                replace(self.image, topics=MappingProxyType(topics), deleted_topic_ids=deleted)
            )

    def adopt(
        self,
        folders: Mapping[TopicPartition, uuid.UUID | None],
        *,
        compacted: Collection[str] = (),
    ) -> None:
        """Add partitions that are on disk and not in the image, because another broker wrote them.

        New topics get `ADOPTED_CONFIGS`; `compacted` ones also get `ADOPTED_COMPACTED_CONFIGS`. The
        caller has removed the folders of deleted topics, so their ids are forgotten.

        An internal topic gets the partitions between them too, and its start creates their logs:
        the hash of a group's id names a partition, whose coordinator would never be found.

        Raises:
            StorageError: the image could not be saved.
        """
        topics = dict(self.image.topics)
        ours = {"retention.ms", *self.defaults.configs}
        configs = {name: value for name, value in ADOPTED_CONFIGS.items() if name in ours}
        for (name, number), topic_id in sorted(folders.items()):
            known = topics.get(name)
            if known is None:
                known = Topic(
                    name=name,
                    topic_id=topic_id or self.new_id(),
                    partitions=(),
                    configs=MappingProxyType(
                        {**configs, **ADOPTED_COMPACTED_CONFIGS} if name in compacted else configs
                    ),
                )
            if number not in known.partitions:
                topics[name] = replace(known, partitions=tuple(sorted((*known.partitions, number))))
        for name in INTERNAL_TOPICS & topics.keys():
            known = topics[name]
            if known.partition_count <= PARTITIONS_MAX:
                topics[name] = replace(known, partitions=tuple(range(known.partition_count)))
        if topics != self.image.topics or self.image.deleted_topic_ids:
            self._become(
                replace(self.image, topics=MappingProxyType(topics), deleted_topic_ids=frozenset())
            )

    def skip_producer_ids(self, known: int) -> None:
        """Skip producer ids up to `known`, the largest in any log, and those that Kafka may assign.

        The logs may have ids from another broker, or from a cluster whose state is lost. A new
        producer with such an id would be refused, or its batches taken for duplicates.

        Raises:
            StorageError: the image could not be saved.
        """
        first = max(known + 1, FIRST_PRODUCER_ID)
        if self.image.next_producer_id < first:
            self._become(replace(self.image, next_producer_id=first))

    def next_producer_id(self) -> ProducerId:
        """A producer id that was never assigned before, also not before a crash.

        Raises:
            StorageError: a new block of ids could not be reserved.
        """
        with self._changing:
            if not self._producer_ids:
                first = self.image.next_producer_id
                self._become(replace(self.image, next_producer_id=first + PRODUCER_ID_BLOCK))
                self._producer_ids = range(first, first + PRODUCER_ID_BLOCK)
            producer_id = self._producer_ids[0]
            self._producer_ids = self._producer_ids[1:]
            return ProducerId(producer_id)

    def _check_name_is_free(self, name: str) -> None:
        if name in self.image.topics:
            raise TopicExistsError(f"topic {name} exists")
        # Metrics write dots as underscores, so Kafka allows only one of such names.
        folded = name.replace(".", "_")
        for other in self.image.topics:
            if other.replace(".", "_") == folded:
                raise InvalidTopicNameError(
                    f"topic {name} collides with {other}: only . and _ differ"
                )

    def _become(self, image: ClusterImage) -> None:
        topics = MappingProxyType({**image.topics, **self._prepared})
        try:
            self._store.save(replace(image, topics=topics))
        except OSError as error:
            raise StorageError(f"the cluster's state cannot be saved: {error}") from error
        self.image = image


def check_topic_name(name: str) -> None:
    """Check a name against Kafka's rules.

    Raises:
        InvalidTopicNameError: see `Controller.plan_topic`.
    """
    if not name or len(name) > TOPIC_NAME_BYTES_MAX or name in (".", ".."):
        raise InvalidTopicNameError(
            f"{name[:40]!r} is no topic name: a name has 1 to {TOPIC_NAME_BYTES_MAX} characters, "
            "and . and .. are not allowed"
        )
    if _LEGAL_NAME.fullmatch(name) is None:
        raise InvalidTopicNameError(
            f"{name[:40]!r} is no topic name: letters, digits, dot, underscore and dash are allowed"
        )


def _check_partition_limit(count: int) -> None:
    if count > PARTITIONS_MAX:
        raise TooManyPartitionsError(
            f"{count} partitions; a topic may have {PARTITIONS_MAX} at most"
        )


def _with(topics: Mapping[str, Topic], topic: Topic) -> Mapping[str, Topic]:
    return MappingProxyType({**topics, topic.name: topic})
