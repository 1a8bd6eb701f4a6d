"""The cluster as clients see it: topics, settings of groups and features; an immutable value.

All of it follows from the image of the metadata log (`metadata.image`), in the form that requests
look up: the partitions of each topic, and its own settings beside it. Of a node alone these are
the partitions that it has; a broker of a cluster knows all.
"""

import uuid
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tailrace.model import INTERNAL_TOPICS, TopicPartition
from tailrace.storage.config import usable_configs
from tailrace.values import dataclass, field, replace

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
    """Numbers of the partitions, rising. Of a node alone those that it has, with gaps
    where other nodes had the other partitions."""
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

    _by_id: Mapping[int, Topic] | None = field(default=None, repr=False, compare=False)
    """Topics by the int of their id, a lookup three times as fast as by UUID."""

    def __post_init__(self) -> None:
        if self._by_id is None:
            by_id = {topic.topic_id.int: topic for topic in self.topics.values()}
            # The one way to set a field of a frozen value. It is made with the image and not when
            # it is first asked for, since worker threads read images too.
            object.__setattr__(self, "_by_id", by_id)
        # `replace` with other topics would keep these; `with_topics` does not.
        assert len(self._by_id or ()) == len(self.topics)

    def with_topics(self, changed: Mapping[str, Topic | None]) -> "ClusterImage":
        """The image with other topics of these names; None: there is none any more."""
        # Copies of dicts, and no walk over the topics: a cluster has 10,000, a change has one.
        topics, by_id = dict(self.topics), dict(self._by_id or {})
        for name, topic in changed.items():
            known = topics.get(name)
            if known is not None:
                del by_id[known.topic_id.int]
            if topic is None:
                topics.pop(name, None)
            else:
                topics[name] = by_id[topic.topic_id.int] = topic
        return replace(self, topics=MappingProxyType(topics), _by_id=by_id)

    def has(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and topic.has(partition.partition)

    def find_topic(self, name: str, topic_id: uuid.UUID) -> Topic | None:
        """A topic by its id if that is not zero, else by its name; None if there is none."""
        # By its int: `UUID.__eq__` is a function in Python.
        return self.topic_by_id(topic_id) if topic_id.int else self.topics.get(name)

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        assert self._by_id is not None
        return self._by_id.get(topic_id.int)


def topic_on_node(state: "TopicState", image: "MetadataImage", node_id: int) -> Topic | None:
    """A topic of the metadata log, with the partitions of this node; None if it has none."""
    # Other nodes may have had the others: a directory of a larger Kafka cluster can be served.
    numbers = (number for number, each in state.partitions.items() if node_id in each.replicas)
    return _topic_of(state, image, numbers)


def whole_topic(state: "TopicState", image: "MetadataImage") -> Topic | None:
    """A topic of the metadata log, with all its partitions; None if it has none."""
    return _topic_of(state, image, state.partitions)


def image_on_node(image: "MetadataImage", node_id: int) -> ClusterImage:
    """The image of the metadata log as a node without others shows it to clients."""
    return _image_of(image, (topic_on_node(each, image, node_id) for each in image.topics.values()))


def whole_image(image: "MetadataImage") -> ClusterImage:
    """The image of the metadata log as a broker of a cluster shows it to clients."""
    return _image_of(image, (whole_topic(each, image) for each in image.topics.values()))


def _topic_of(state: "TopicState", image: "MetadataImage", numbers: Iterable[int]) -> Topic | None:
    partitions = tuple(sorted(numbers))
    if not partitions:
        return None
    return Topic(
        name=state.name,
        topic_id=state.topic_id,
        partitions=partitions,
        configs=usable_configs(image.configs_of(TOPIC_RESOURCE, state.name)),
    )


def _image_of(image: "MetadataImage", topics: Iterable[Topic | None]) -> ClusterImage:
    return ClusterImage(
        topics=MappingProxyType({topic.name: topic for topic in topics if topic is not None}),
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
