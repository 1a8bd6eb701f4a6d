"""What it takes to make, to change and to remove a topic: the cluster's image, and the logs.

Each is a change of the cluster (`Changes.make`): what waits for the device runs on a worker thread,
what readers and writers see changes on the event loop.

Not an API of its own: CreateTopics, DeleteTopics, Metadata (auto-creation) and the APIs that alter
settings use it. Logs that are there already are opened in `broker.loading`.
"""

import logging
from collections.abc import Callable
from functools import partial

from tailrace.cluster.changes import Changes
from tailrace.cluster.controller import Controller
from tailrace.cluster.image import Topic
from tailrace.model import TopicPartition
from tailrace.replication.replicas import Replicas
from tailrace.runtime.slices import Slices, each_in_slices
from tailrace.storage.config import log_config

logger = logging.getLogger(__name__)


async def create_topic(
    changes: Changes, controller: Controller, replicas: Replicas, *, topic: Topic
) -> None:
    """Make the logs of a planned topic, then the topic.

    A crash in between leaves folders without a topic, which the next start adopts.

    Raises:
        StorageError: the device refused; what was made is removed again.
    """
    try:
        config = log_config(topic.configs, controller.defaults.configs)
        for number in topic.partitions:
            name = TopicPartition(topic.name, number)
            make = partial(replicas.create, name, topic_id=topic.topic_id, config=config)
            replicas.lead(await changes.on_device(make))
        await changes.on_device(lambda: controller.add(topic))
    except BaseException:
        await _close(changes, controller, replicas, topic=topic)
        raise
    logger.info("topic_created name=%s partitions=%d", topic.name, len(topic.partitions))


async def configure_topic(
    changes: Changes, controller: Controller, replicas: Replicas, *, topic: Topic
) -> None:
    """Have a topic go by the settings that were planned for it, and its open logs act on them.

    After a crash the topic has its old settings or its new ones. Logs that are being opened, or
    are offline, find the new ones in the image.

    Raises:
        StorageError: the device refused; nothing has changed.
    """
    config = log_config(topic.configs, controller.defaults.configs)
    await changes.on_device(lambda: controller.change(topic))
    replicas.configure(topic.name, config)
    named = ",".join(f"{name}={value}" for name, value in sorted(topic.configs.items()))
    logger.info("topic_configured name=%s configs=%s", topic.name, named)


async def delete_topic(
    changes: Changes, controller: Controller, replicas: Replicas, *, topic: Topic
) -> None:
    """Remove a topic and take its logs out of service; their files go later.

    Raises:
        StorageError: the device refused.
    """
    await changes.on_device(lambda: controller.remove(topic))
    await _close(changes, controller, replicas, topic=topic)
    logger.info("topic_deleted name=%s", topic.name)


async def _close(
    changes: Changes, controller: Controller, replicas: Replicas, *, topic: Topic
) -> None:
    def close(number: int) -> Callable[[], None]:
        name = TopicPartition(topic.name, number)
        return replicas.close(name, unique_id=controller.new_id().hex)

    # Whoever asks in between finds no topic, or one that is not made yet: the image has none.
    rests = await each_in_slices(topic.partitions, close, Slices())
    await changes.on_device(lambda: _do_all(rests))


def _do_all(rests: list[Callable[[], None]]) -> None:
    while rests:
        # Each holds a log, which is freed here: 1000 of them at once are 8 ms on the loop.
        rests.pop()()
