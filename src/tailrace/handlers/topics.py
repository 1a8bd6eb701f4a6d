"""What it takes to make, to change and to remove a topic: the cluster's image, and the logs.

Not an API of its own: CreateTopics, DeleteTopics, Metadata (auto-creation) and the APIs that alter
settings use it. Logs that are there already are opened in `broker.loading`.
"""

import logging

from tailrace.cluster.controller import Controller
from tailrace.cluster.image import Topic
from tailrace.model import TopicPartition
from tailrace.replication.replicas import Replicas
from tailrace.storage.config import log_config

logger = logging.getLogger(__name__)


def create_topic(controller: Controller, replicas: Replicas, topic: Topic) -> None:
    """Make the logs of a planned topic, then the topic.

    A crash in between leaves folders without a topic, which the next start adopts.

    Raises:
        StorageError: the device refused; what was made is removed again.
    """
    try:
        config = log_config(topic.configs, controller.defaults.configs)
        for number in topic.partitions:
            name = TopicPartition(topic.name, number)
            replicas.create(name, topic_id=topic.topic_id, config=config)
        controller.add(topic)
    except BaseException:
        _close(controller, replicas, topic)
        raise
    logger.info("topic_created name=%s partitions=%d", topic.name, len(topic.partitions))


def configure_topic(controller: Controller, replicas: Replicas, topic: Topic) -> None:
    """Have a topic go by the settings that were planned for it, and its open logs act on them.

    After a crash the topic has its old settings or its new ones. Logs that are being opened, or
    are offline, find the new ones in the image.

    Raises:
        StorageError: the device refused; nothing has changed.
    """
    config = log_config(topic.configs, controller.defaults.configs)
    controller.change(topic)
    replicas.configure(topic.name, config)
    named = ",".join(f"{name}={value}" for name, value in sorted(topic.configs.items()))
    logger.info("topic_configured name=%s configs=%s", topic.name, named)


def delete_topic(controller: Controller, replicas: Replicas, topic: Topic) -> None:
    """Remove a topic and take its logs out of service; their files go later.

    Raises:
        StorageError: the device refused.
    """
    controller.remove(topic)
    _close(controller, replicas, topic)
    logger.info("topic_deleted name=%s", topic.name)


def _close(controller: Controller, replicas: Replicas, topic: Topic) -> None:
    for number in topic.partitions:
        replicas.close(TopicPartition(topic.name, number), unique_id=controller.new_id().hex)
