"""What it takes to make and to remove a topic: the cluster's image and the logs, in that order.

Not an API of its own: CreateTopics, DeleteTopics and Metadata (auto-creation) use it, and the
broker when it starts.
"""

import logging

from tailrace.cluster.controller import Controller
from tailrace.cluster.image import Topic
from tailrace.model import TopicPartition
from tailrace.replication.replicas import Replicas
from tailrace.storage.config import log_config

logger = logging.getLogger(__name__)


def open_topics(controller: Controller, replicas: Replicas) -> None:
    """Open every partition of the image; may take long, so call it before serving.

    Raises:
        DirectoryError, StorageError: a partition cannot be opened.
    """
    for topic in controller.image.topics.values():
        _open(controller, replicas, topic)


def create_topic(controller: Controller, replicas: Replicas, topic: Topic) -> None:
    """Make the logs of a planned topic, then the topic.

    A crash in between leaves folders without a topic, which the next start adopts.

    Raises:
        StorageError: the device refused; what was made is removed again.
    """
    try:
        _open(controller, replicas, topic)
        controller.add(topic)
    except BaseException:
        _close(controller, replicas, topic)
        raise
    logger.info("topic_created name=%s partitions=%d", topic.name, len(topic.partitions))


def delete_topic(controller: Controller, replicas: Replicas, topic: Topic) -> list[str]:
    """Remove a topic and take its logs out of service; returns the folders to remove.

    Raises:
        StorageError: the device refused.
    """
    controller.remove(topic)
    folders = _close(controller, replicas, topic)
    logger.info("topic_deleted name=%s", topic.name)
    return folders


def _open(controller: Controller, replicas: Replicas, topic: Topic) -> None:
    config = log_config(topic.configs, controller.defaults.configs)
    for number in topic.partitions:
        replicas.open(TopicPartition(topic.name, number), topic_id=topic.topic_id, config=config)


def _close(controller: Controller, replicas: Replicas, topic: Topic) -> list[str]:
    closed = (
        replicas.close(TopicPartition(topic.name, number), unique_id=controller.new_id().hex)
        for number in topic.partitions
    )
    return [folder for folder in closed if folder is not None]
