"""Create, grow, configure and delete a topic: its entry in the cluster image, and its logs.

Each runs as a change of the cluster (`TopicChanges.make`): steps that wait for the device run on a
worker thread, and the state that readers and writers see changes on the event loop.

CreateTopics, CreatePartitions, DeleteTopics, Metadata (auto-creation) and the APIs that alter
settings use it.
`broker.loading` opens the logs at a start.
"""

import logging
from collections.abc import Callable, Collection
from functools import partial

from tailrace.cluster.changes import TopicChanges
from tailrace.cluster.controller import Controller
from tailrace.cluster.image import Topic
from tailrace.model import TopicPartition
from tailrace.replication.replicas import Replicas
from tailrace.runtime.slices import Slices, each_in_slices
from tailrace.storage.config import log_config

logger = logging.getLogger(__name__)


async def create_topic(
    changes: TopicChanges, controller: Controller, replicas: Replicas, *, topic: Topic
) -> None:
    """Save a planned topic, create its logs, then show it to clients.

    A crash in between leaves the topic or nothing of it: the next start creates the other logs.

    Raises:
        StorageError: the device refused; the created logs are removed again.
    """
    await changes.on_device(lambda: controller.prepare(topic))
    try:
        await _create_logs(changes, controller, replicas, topic=topic, numbers=topic.partitions)
    except BaseException:
        # Withdrawn last: a crash in between leaves no folder without a topic.
        try:
            await _close(changes, controller, replicas, topic=topic, numbers=topic.partitions)
        finally:
            await changes.on_device(lambda: controller.withdraw(topic))
        raise
    controller.publish(topic)
    logger.info("topic_created name=%s partitions=%d", topic.name, len(topic.partitions))


async def add_partitions(
    changes: TopicChanges,
    controller: Controller,
    replicas: Replicas,
    *,
    topic: Topic,
    first_number: int,
) -> None:
    """Create the logs of a topic's new partitions, then save the topic with them.

    They are the partitions from `first_number` on. A log cannot be taken back from the cluster's
    state, so it is made first: a crash in between leaves none of them, and the next start sets the
    empty folders aside.

    Raises:
        StorageError: the device refused; the created logs are removed again.
    """
    numbers = tuple(number for number in topic.partitions if number >= first_number)
    try:
        await _create_logs(changes, controller, replicas, topic=topic, numbers=numbers)
        await changes.on_device(lambda: controller.change(topic))
    except BaseException:
        await _close(changes, controller, replicas, topic=topic, numbers=numbers)
        raise
    logger.info("partitions_created name=%s partitions=%d", topic.name, topic.partition_count)


async def configure_topic(
    changes: TopicChanges, controller: Controller, replicas: Replicas, *, topic: Topic
) -> None:
    """Save the planned settings of a topic, and apply them to its open logs.

    After a crash the topic has either its old settings or its new ones. Logs that are opened later
    take the new ones from the image.

    Raises:
        StorageError: the device refused; nothing has changed.
    """
    config = log_config(topic.configs, controller.defaults.configs)
    await changes.on_device(lambda: controller.change(topic))
    replicas.configure(topic.name, config)
    named = ",".join(f"{name}={value}" for name, value in sorted(topic.configs.items()))
    logger.info("topic_configured name=%s configs=%s", topic.name, named)


async def delete_topic(
    changes: TopicChanges, controller: Controller, replicas: Replicas, *, topic: Topic
) -> None:
    """Remove a topic and take its logs out of service; their files are deleted later.

    Raises:
        StorageError: the device refused.
    """
    await changes.on_device(lambda: controller.remove(topic))
    await _close(changes, controller, replicas, topic=topic, numbers=topic.partitions)
    logger.info("topic_deleted name=%s", topic.name)


async def _create_logs(
    changes: TopicChanges,
    controller: Controller,
    replicas: Replicas,
    *,
    topic: Topic,
    numbers: Collection[int],
) -> None:
    config = log_config(topic.configs, controller.defaults.configs)
    slices = Slices()
    for number in numbers:
        await slices.turn()
        name = TopicPartition(topic.name, number)
        make = partial(replicas.create, name, topic_id=topic.topic_id, config=config)
        replicas.lead(await changes.on_device(make))


async def _close(
    changes: TopicChanges,
    controller: Controller,
    replicas: Replicas,
    *,
    topic: Topic,
    numbers: Collection[int],
) -> None:
    def close(number: int) -> Callable[[], None]:
        name = TopicPartition(topic.name, number)
        return replicas.close(name, unique_id=controller.new_id().hex)

    # A request in between finds no topic, because the image does not have it any more.
    rests = await each_in_slices(numbers, close, Slices())
    await changes.on_device(lambda: _do_all(rests))


def _do_all(rests: list[Callable[[], None]]) -> None:
    while rests:
        # Each function holds a log, which is freed here: 1000 of them take 8 ms on the loop.
        rests.pop()()
