"""`ImageTopics`: the topics of the cluster image, as groups of the consumer protocol know them."""

from collections.abc import Iterable
from uuid import UUID

from tailrace.cluster.controller import Controller
from tailrace.cluster.image import Topic as ImageTopic
from tailrace.coordinator.groups.topics import Topic


class ImageTopics:
    """See `coordinator.groups.topics.Topics`; no broker has a rack."""

    def __init__(self, controller: Controller, *, started_ms: int) -> None:
        """`started_ms` is the time of day.

        Versions count from it, so that those in the records of an earlier start are lower: what was
        found in the topics then is looked for again.
        """
        self._controller = controller
        self._topics = controller.image.topics
        self._version = started_ms

    @property
    def version(self) -> int:
        """Grows when topics have changed since the last look."""
        topics = self._controller.image.topics
        if topics is not self._topics:
            self._topics = topics
            self._version += 1
        return self._version

    def by_name(self, name: str) -> Topic | None:
        """The topic with a name, if there is one."""
        return _known(self._controller.image.topics.get(name))

    def by_id(self, topic_id: UUID) -> Topic | None:
        """The topic with an id, if there is one."""
        return _known(self._controller.image.topic_by_id(topic_id))

    def names(self) -> Iterable[str]:
        """The names of all topics."""
        return self._controller.image.topics


def _known(topic: ImageTopic | None) -> Topic | None:
    return None if topic is None else Topic(topic.name, topic.topic_id, topic.partition_count)
