"""All partitions of this broker, and the work that makes and removes them."""

import logging
from collections.abc import Mapping

from tailrace.cluster.controller import Controller, UnknownTopicError
from tailrace.cluster.image import Topic
from tailrace.model import TopicPartition
from tailrace.replication.partition import Partition
from tailrace.storage.config import LogConfig, log_config
from tailrace.storage.manager import LogManager

logger = logging.getLogger(__name__)


class Replicas:
    """Partitions by name, kept in step with the cluster's image."""

    def __init__(self, logs: LogManager, controller: Controller) -> None:
        self._logs = logs
        self._controller = controller
        self._partitions: dict[TopicPartition, Partition] = {}

    def get(self, partition: TopicPartition) -> Partition | None:
        """A partition that this broker leads, or None."""
        return self._partitions.get(partition)

    def open_all(self) -> None:
        """Open every partition of the image; may take long, so call it before serving.

        Raises:
            DirectoryError, StorageError: a partition cannot be opened.
        """
        for topic in self._controller.image.topics.values():
            self._open(topic)

    def create_topic(self, topic: Topic) -> None:
        """Make the logs of a planned topic, then the topic.

        A crash in between leaves folders without a topic, which the next start adopts.

        Raises:
            StorageError: the device refused; what was made is removed again.
        """
        try:
            self._open(topic)
            self._controller.add(topic)
        except BaseException:
            for number in topic.partitions:
                self._close(TopicPartition(topic.name, number))
            raise
        logger.info("topic_created name=%s partitions=%d", topic.name, len(topic.partitions))

    def delete_topic(self, name: str) -> list[str]:
        """Remove a topic and take its logs out of service; returns the folders to remove.

        Raises:
            UnknownTopicError: there is no such topic.
            StorageError: the device refused.
        """
        topic = self._controller.image.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"topic {name} does not exist")
        self._controller.remove(topic)
        folders = [self._close(TopicPartition(name, number)) for number in topic.partitions]
        logger.info("topic_deleted name=%s", name)
        return [folder for folder in folders if folder is not None]

    def remove_deleted(self, folder: str) -> None:
        """Remove a folder that `delete_topic` returned; may take long."""
        self._logs.remove_deleted(folder)

    def config_of(self, configs: Mapping[str, str]) -> LogConfig:
        """The log settings of a topic with these settings of its own."""
        return log_config(configs, self._controller.defaults.configs)

    def _open(self, topic: Topic) -> None:
        config = self.config_of(topic.configs)
        for number in topic.partitions:
            name = TopicPartition(topic.name, number)
            log = self._logs.open(name, topic_id=topic.topic_id, config=config)
            self._partitions[name] = Partition(log)

    def _close(self, name: TopicPartition) -> str | None:
        partition = self._partitions.pop(name, None)
        if partition is None:
            return None
        folder = self._logs.delete(name, self._controller.new_id().hex)
        partition.appended.changed()
        return folder
