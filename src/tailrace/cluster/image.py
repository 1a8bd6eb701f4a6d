"""The cluster at one moment, as an immutable value: whoever holds one can read it undisturbed."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tailrace.model import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic: what it was created with, and the settings that it has now."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[int, ...]
    """Numbers of the partitions that this cluster holds, rising. A topic adopted from folders on
    disk may have gaps, where the other partitions were on other brokers."""
    configs: Mapping[str, str]
    """Settings that were given for it, as text."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic was made with, as far as can be known."""
        return self.partitions[-1] + 1

    @property
    def is_internal(self) -> bool:
        """Whether only the broker itself may write to it."""
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """All topics, and the next producer id that nobody has."""

    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    """By name."""
    next_producer_id: int = 0
    """Ids below it may be in use."""
    deleted_topic_ids: frozenset[uuid.UUID] = frozenset()
    """Topics whose folders may still be there: they are not to be taken for topics again."""

    _by_id: Mapping[int, Topic] = field(init=False, repr=False, compare=False)
    """By the number of its id, which is found three times as quickly as a UUID."""

    def __post_init__(self) -> None:
        by_id = {topic.topic_id.int: topic for topic in self.topics.values()}
        object.__setattr__(self, "_by_id", by_id)

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic with an id, or None."""
        return self._by_id.get(topic_id.int)
