"""All partitions of this broker, by name."""

import uuid

from tailrace.model import TopicPartition
from tailrace.replication.partition import Partition
from tailrace.storage.config import LogConfig
from tailrace.storage.manager import LogManager


class Replicas:
    """The partitions that this broker leads, over the logs of its directory."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._partitions: dict[TopicPartition, Partition] = {}

    def get(self, name: TopicPartition) -> Partition | None:
        """A partition that this broker leads, or None."""
        return self._partitions.get(name)

    def open(self, name: TopicPartition, *, topic_id: uuid.UUID, config: LogConfig) -> None:
        """Open a partition's log, or make an empty one, and lead it.

        Raises:
            DirectoryError, StorageError: the log cannot be opened.
        """
        log = self._logs.open(name, topic_id=topic_id, config=config)
        self._partitions[name] = Partition(log)

    def close(self, name: TopicPartition, *, unique_id: str) -> str | None:
        """Take a partition out of service; returns its folder, for `remove_deleted`.

        Whoever waits for it is woken. None if there is no such partition.

        Raises:
            StorageError: the device refused.
        """
        partition = self._partitions.pop(name, None)
        if partition is None:
            return None
        folder = self._logs.delete(name, unique_id)
        partition.appended.changed()
        return folder

    def remove_deleted(self, folder: str) -> None:
        """Remove a folder that `close` returned; may take long."""
        self._logs.remove_deleted(folder)
