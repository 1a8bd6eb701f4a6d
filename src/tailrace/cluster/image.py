"""The cluster image: topics, settings of groups and the next producer id; an immutable value."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tailrace.model import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic: name, id, partitions and current settings."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[int, ...]
    """Numbers of the partitions in this cluster, rising. A topic adopted from folders on disk may
    have gaps, because other brokers had the other partitions."""
    configs: Mapping[str, str]
    """The topic's own settings, as text."""

    @property
    def partition_count(self) -> int:
        """Number of the topic's partitions, gaps included: the largest partition number plus 1."""
        return self.partitions[-1] + 1

    @property
    def is_internal(self) -> bool:
        """Whether only the broker itself may write to it."""
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """All topics, the settings of groups, and the next free producer id."""

    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    """By name."""
    next_producer_id: int = 0
    """Ids below it may be in use."""
    group_configs: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The own settings of consumer groups that have some, as text, by group id."""
    deleted_topic_ids: frozenset[uuid.UUID] = frozenset()
    """Ids of deleted topics whose folders may still exist, so that these are not adopted."""

    _by_id: Mapping[int, Topic] = field(init=False, repr=False, compare=False)
    """Topics by the int of their id, a lookup three times as fast as by UUID."""

    def __post_init__(self) -> None:
        by_id = {topic.topic_id.int: topic for topic in self.topics.values()}
        object.__setattr__(self, "_by_id", by_id)

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic with an id, or None."""
        return self._by_id.get(topic_id.int)
