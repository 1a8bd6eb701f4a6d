"""The only writer of the cluster image: makes and changes topics, hands out producer ids.

Each change makes a new image, saves it, and only then becomes the current one. It waits for the
device, and may run on any thread: one change comes after the other.
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
from tailrace.model import METADATA_TOPIC, TopicPartition
from tailrace.storage.config import log_config

TOPIC_NAME_BYTES_MAX = 249
"""255 less a dash, a partition number of four digits, and one to spare: Kafka's limit."""

PARTITIONS_MAX = 10_000
"""Most partitions that one topic may be created with, so that one request cannot fill a disk."""

PRODUCER_ID_BLOCK = 1000
"""Ids reserved at a time (KIP-730): after a crash at most so many are skipped."""

FIRST_PRODUCER_ID = 2**40
"""Apache Kafka counts its ids from 0 on and knows nothing of ours: it never comes this far, even at
a million new producers a day."""

ADOPTED_CONFIGS = MappingProxyType(
    {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
)
"""Settings of a topic that another broker had, and whose own are not known: nothing of it may go
until somebody says what. Those that are Kafka's defaults too are set only where ours differ."""

ADOPTED_COMPACTED_CONFIGS = MappingProxyType(
    {"cleanup.policy": "compact", "min.compaction.lag.ms": str(INT64_MAX)}
)
"""The same for a topic that was compacted. A record without a key is refused, as it was by the
other broker, whose cleaner would drop it when it has the topic again."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class InvalidTopicError(FatalError, ValueError):
    """A topic name that Kafka does not allow."""


class ReservedTopicError(FatalError, ValueError):
    """The name of Kafka's metadata log, which is no topic."""


class TopicExistsError(FatalError, ValueError):
    """A topic of that name is there already."""


class InvalidPartitionsError(FatalError, ValueError):
    """A number of partitions that cannot be had."""


class InvalidReplicationError(FatalError, ValueError):
    """A replication factor above the number of brokers, or below 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """What a topic gets that was not asked for."""

    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]
    """Settings by topic name, from the broker's own."""


class Controller:
    """Current image and the way to the next one."""

    def __init__(
        self, store: LocalStore, *, chance: random.Random, defaults: TopicDefaults
    ) -> None:
        self.image = store.load()
        self.defaults = defaults
        self._store = store
        self._chance = chance
        self._producer_ids = range(0)
        self._changing = threading.Lock()

    def new_id(self) -> uuid.UUID:
        """A random id (version 4), never zero."""
        return uuid.UUID(int=self._chance.getrandbits(128), version=4)

    def plan_topic(
        self,
        name: str,
        *,
        partition_count: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        """A topic as it would be created; -1 stands for the broker's default. Changes nothing.

        Raises:
            InvalidTopicError: the name is empty, too long, `.` or `..`, or has other characters
                than letters, digits, dot, underscore and dash.
            ReservedTopicError: it is the name of Kafka's metadata log.
            TopicExistsError: the name is taken, or differs only in dots and underscores.
            InvalidPartitionsError, InvalidReplicationError: not to be had here.
            ConfigError: settings that do not exist, are out of range or contradict each other.
        """
        check_topic_name(name)
        if name == METADATA_TOPIC:
            raise ReservedTopicError(f"Creation of internal topic {name} is prohibited.")
        self._check_name_is_free(name)
        count = self.defaults.partition_count if partition_count == -1 else partition_count
        if not 1 <= count <= PARTITIONS_MAX:
            raise InvalidPartitionsError(f"{count} partitions; a topic has 1 to {PARTITIONS_MAX}")
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

    def add(self, topic: Topic) -> None:
        """Make a planned topic part of the cluster.

        Raises:
            StorageError: the image could not be saved; there is no such topic.
        """
        with self._changing:
            self._become(replace(self.image, topics=_with(self.image.topics, topic)))

    def plan_configs(
        self, topic: Topic, changes: Iterable[ConfigChange], *, is_replaced: bool = False
    ) -> Topic:
        """The topic with settings changed, or with new ones in place of all. Changes nothing.

        Raises:
            ConfigError: see `config_changes.plan_configs`; all faults together.
        """
        current = {} if is_replaced else topic.configs
        planned = plan_configs(current, changes, self.defaults.configs)
        return replace(topic, configs=MappingProxyType(planned))

    def change(self, topic: Topic) -> None:
        """Have a topic of the cluster be as was planned; after a crash it is as before, or so.

        Raises:
            StorageError: the image could not be saved; the topic is as it was.
        """
        with self._changing:
            assert self.image.topics[topic.name].topic_id == topic.topic_id
            self._become(replace(self.image, topics=_with(self.image.topics, topic)))

    def remove(self, topic: Topic) -> None:
        """Take a topic out of the cluster; its logs are the caller's to remove.

        Its id is kept until the next start, so that folders which a crash leaves are not adopted.

        Raises:
            StorageError: the image could not be saved; the topic is still there.
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
        """Take in partitions that are on disk and in no image: another broker wrote them.

        New topics get `ADOPTED_CONFIGS`, or those that are `compacted`, `ADOPTED_COMPACTED_CONFIGS`
        besides. The caller has removed the folders of deleted topics;
        their ids are forgotten.

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
        if topics != self.image.topics or self.image.deleted_topic_ids:
            self._become(
                replace(self.image, topics=MappingProxyType(topics), deleted_topic_ids=frozenset())
            )

    def skip_producer_ids(self, known: int) -> None:
        """Hand out no id up to `known`, the largest that a log knows, nor one that Kafka may give.

        The logs can have ids of another broker, or of a cluster whose state is gone. A producer
        with such an id would be refused, or its first batches taken for old ones sent again.

        Raises:
            StorageError: the image could not be saved.
        """
        first = max(known + 1, FIRST_PRODUCER_ID)
        if self.image.next_producer_id < first:
            self._become(replace(self.image, next_producer_id=first))

    def next_producer_id(self) -> int:
        """A producer id that was never handed out before, also not before a crash.

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
            return producer_id

    def _check_name_is_free(self, name: str) -> None:
        if name in self.image.topics:
            raise TopicExistsError(f"topic {name} exists")
        # Metrics write dots as underscores, so Kafka lets only one of such names be.
        folded = name.replace(".", "_")
        for other in self.image.topics:
            if other.replace(".", "_") == folded:
                raise InvalidTopicError(f"topic {name} collides with {other}: only . and _ differ")

    def _become(self, image: ClusterImage) -> None:
        try:
            self._store.save(image)
        except OSError as error:
            raise StorageError(f"the cluster's state cannot be saved: {error}") from error
        self.image = image


def check_topic_name(name: str) -> None:
    """Check a name against Kafka's rules.

    Raises:
        InvalidTopicError: see `Controller.plan_topic`.
    """
    if not name or len(name) > TOPIC_NAME_BYTES_MAX or name in (".", ".."):
        raise InvalidTopicError(
            f"{name[:40]!r} is no topic name: it has 1 to {TOPIC_NAME_BYTES_MAX} characters "
            "and is not . or .."
        )
    if _LEGAL_NAME.fullmatch(name) is None:
        raise InvalidTopicError(
            f"{name[:40]!r} is no topic name: letters, digits, dot, underscore and dash are allowed"
        )


def _with(topics: Mapping[str, Topic], topic: Topic) -> Mapping[str, Topic]:
    return MappingProxyType({**topics, topic.name: topic})
