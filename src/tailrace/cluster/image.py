"""The cluster as clients see it: topics, settings of groups and features; an immutable value.

All of it follows from the image of the metadata log (`metadata.image`), in the form that requests
look up: partitions that this node has, and each topic's own settings beside it.
"""

import uuid
from bisect import bisect_left
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tailrace.model import INTERNAL_TOPICS, TopicPartition
from tailrace.storage.config import usable_configs
from tailrace.values import dataclass, field

if TYPE_CHECKING:
    from tailrace.cluster.metadata.image import MetadataImage, TopicState

TOPIC_RESOURCE: Final = 2
GROUP_RESOURCE: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic: name, id, partitions and current settings."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[int, ...]
    """Numbers of the partitions that this node has, rising; with gaps where other nodes had the
    other partitions."""
    configs: Mapping[str, str]
    """The topic's own settings that have an effect here, as text."""

    @property
    def partition_count(self) -> int:
        """Number of the topic's partitions, gaps included: the largest partition number plus 1."""
        # Not the length: producers hash over the number that the cluster has.
        return self.partitions[-1] + 1

    def has(self, number: int) -> bool:
        # The numbers are sorted. `in` would take as long as the topic has partitions, for each of
        # those that a request names.
        place = bisect_left(self.partitions, number)
        return place < len(self.partitions) and self.partitions[place] == number

    @property
    def is_internal(self) -> bool:
        """Whether only the broker itself may write to it."""
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """Topics, the settings of groups, and the levels of features."""

    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    """By name."""
    group_configs: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The own settings of consumer groups that have some, as text, by group id."""
    features: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Levels above 0, by feature."""

    _by_id: Mapping[int, Topic] = field(init=False, repr=False, compare=False)
    """Topics by the int of their id, a lookup three times as fast as by UUID."""

    def __post_init__(self) -> None:
        by_id = {topic.topic_id.int: topic for topic in self.topics.values()}
        # The one way to set a field of a frozen value. It is made with the image and not when it is
        # first asked for, since worker threads read images too.
        object.__setattr__(self, "_by_id", by_id)

    def has(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and topic.has(partition.partition)

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id.int)


def topic_on_node(state: "TopicState", image: "MetadataImage", node_id: int) -> Topic | None:
    """A topic of the metadata log, with the partitions of this node; None if it has none."""
    # Other nodes may have had the others: a directory of a larger Kafka cluster can be served.
    numbers = tuple(
        sorted(number for number, each in state.partitions.items() if node_id in each.replicas)
    )
    if not numbers:
        return None
    return Topic(
        name=state.name,
        topic_id=state.topic_id,
        partitions=numbers,
        configs=usable_configs(image.configs_of(TOPIC_RESOURCE, state.name)),
    )


def image_on_node(image: "MetadataImage", node_id: int) -> ClusterImage:
    """The image of the metadata log as the clients of this node see it."""
    found = (topic_on_node(state, image, node_id) for state in image.topics.values())
    return ClusterImage(
        topics=MappingProxyType({topic.name: topic for topic in found if topic is not None}),
        group_configs=group_configs_of(image),
        features=image.features,
    )


def group_configs_of(image: "MetadataImage") -> Mapping[str, Mapping[str, str]]:
    return MappingProxyType(
        {
            resource.name: settings
            for resource, settings in image.configs.items()
            if resource.type == GROUP_RESOURCE
        }
    )
