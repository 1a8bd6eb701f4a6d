"""Create, grow, configure and delete topics: their entries in the cluster image, and their logs.

Each runs as a change of the cluster (`TopicChanges.make`): steps that wait for the device run on a
worker thread, and the state that readers and writers see changes on the event loop. A new partition
is in that state before its log is made (`replication.new_logs`).

CreateTopics, CreatePartitions, DeleteTopics, Metadata (auto-creation) and the APIs that alter
settings use it.
`broker.loading` opens the logs at a start.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from tailrace.cluster.changes import TopicChanges
from tailrace.cluster.controller import Controller
from tailrace.cluster.image import Topic
from tailrace.cluster.metadata.image import MIN_INSYNC_REPLICAS
from tailrace.cluster.topic_rules import NewTopic
from tailrace.errors import TailraceError
from tailrace.handlers.services import Services
from tailrace.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from tailrace.protocol.frames import RequestHeader
from tailrace.replication.replicas import Replicas
from tailrace.runtime.slices import Slices, each_in_slices
from tailrace.storage.config import log_config, segment_configs

SHOWN_MAX: Final = 8
"""Most brokers of an invalid assignment that the message names."""


async def create_topics(
    changes: TopicChanges, controller: Controller, replicas: Replicas, *, topics: Sequence[Topic]
) -> None:
    """Save planned topics together, show them to clients, and have their logs made.

    After a crash all of them are there, or none.

    Raises:
        StorageError: the device refused; there is none of them.
    """
    # On the device before anybody sees it: the answer and the metadata promise the topic.
    await changes.on_device(lambda: controller.prepare(topics))
    slices = Slices()
    for topic in topics:
        # Before `publish`: a request that finds the topic must find that its log is expected, and
        # wait for it (decision 55).
        _expect(controller, replicas, topic=topic, numbers=topic.partitions)
        await slices.turn()
    controller.publish(*(topic.name for topic in topics))


async def create_missing(
    changes: TopicChanges,
    controller: Controller,
    replicas: Replicas,
    *,
    missing: Sequence[NewTopic],
) -> Mapping[str, TailraceError]:
    """Create topics that do not exist, as `Services.create_topics`; they are in the image then."""

    async def create(wanted: NewTopic) -> None:
        # Another request may have created it meanwhile.
        if wanted.name not in controller.image.topics:
            # A node that is its own controller has one replica of everything.
            topic = controller.plan_topic(
                wanted.name, partition_count=wanted.partition_count, configs=wanted.configs
            )
            await create_topics(changes, controller, replicas, topics=[topic])

    refused = {}
    for wanted in missing:
        try:
            await changes.make(wanted.name, partial(create, wanted))
        except TailraceError as error:
            refused[wanted.name] = error
    return refused


async def create_for_client(
    services: Services, header: RequestHeader, name: str
) -> TailraceError | None:
    """Create a topic that a client misses, or have the controllers do it; an error if it cannot be.

    It is in the image then, if this node is the controller, unless the client has used up its quota
    of changes (KIP-599). The controllers of others count that themselves.
    """
    wanted = _missing_topic(services, name)
    if services.controller is not None:
        count = wanted.partition_count
        count = services.cluster.defaults.partition_count if count == -1 else count
        if not services.quotas.mutations(header).take(count):
            return None
    return await _create_missing(services, header, wanted, client=header)


async def create_for_coordinator(
    services: Services, header: RequestHeader, name: str
) -> TailraceError | None:
    """Create a topic of the coordinators, as `create_for_client`; no quota of clients counts."""
    return await _create_missing(services, header, _missing_topic(services, name), client=None)


async def _create_missing(
    services: Services, header: RequestHeader, wanted: NewTopic, *, client: RequestHeader | None
) -> TailraceError | None:
    name = wanted.name
    refused = await services.create_topics([wanted], client)
    if name not in refused:
        # Whether the topic is created is in the log of the controller, if that has one.
        event = "topic_asked_for" if services.controller is None else "topic_created"
        services.audit.changed(header, event, {"topic": name})
    return refused.get(name)


def _missing_topic(services: Services, name: str) -> NewTopic:
    # Also where a client looks at one before the first group: with the defaults of topics its
    # records would be deleted by age, and its number of partitions stays.
    if name == OFFSETS_TOPIC:
        return _offsets_topic(services)
    if name == TRANSACTIONS_TOPIC:
        return _transactions_topic(services)
    return NewTopic(name)


def _offsets_topic(services: Services) -> NewTopic:
    """The topic of the groups, with Kafka's settings for it."""
    groups = services.group_settings
    return NewTopic(
        OFFSETS_TOPIC,
        partition_count=groups.partition_count,
        replication_factor=groups.replication_factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            **segment_configs(groups.segment_bytes),
        },
    )


def _transactions_topic(services: Services) -> NewTopic:
    """The topic of the transactions, with Kafka's settings for it."""
    transactions = services.transaction_settings
    # With its one replica a node alone could not write to a topic that wants two.
    is_alone = services.controller is not None
    least = {} if is_alone else {MIN_INSYNC_REPLICAS: str(transactions.insync_replicas_min)}
    return NewTopic(
        TRANSACTIONS_TOPIC,
        partition_count=transactions.partition_count,
        replication_factor=transactions.replication_factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            **segment_configs(transactions.segment_bytes),
            # As in Kafka: an unclean leader would forget transactions that were decided.
            "unclean.leader.election.enable": "false",
            **least,
        },
    )


def assignment_fault(services: Services, number: int, broker_ids: tuple[int, ...]) -> str | None:
    """A sentence about what is wrong with the replicas of partition `number`; None if nothing is.

    This broker is the only one, so it must be named once, and no other.
    """
    if broker_ids == (services.node_id,):
        return None
    shown = ", ".join(map(str, broker_ids[:SHOWN_MAX])) or "none"
    return (
        f"partition {number} is assigned to brokers {shown}; the only broker is {services.node_id}"
    )


async def add_partitions(
    changes: TopicChanges,
    controller: Controller,
    replicas: Replicas,
    *,
    topic: Topic,
    first_number: int,
) -> None:
    """Save a topic with its new partitions, those from `first_number` on; their logs are made then.

    Raises:
        StorageError: the device refused; nothing has changed.
    """
    numbers = tuple(number for number in topic.partitions if number >= first_number)
    await changes.on_device(lambda: controller.prepare([topic]))
    _expect(controller, replicas, topic=topic, numbers=numbers)
    controller.publish(topic.name)


async def configure_topic(
    changes: TopicChanges, controller: Controller, replicas: Replicas, *, topic: Topic
) -> None:
    """Save the planned settings of a topic, and apply them to its logs.

    After a crash the topic has either its old settings or its new ones.

    Raises:
        StorageError: the device refused; nothing has changed.
    """
    await changes.on_device(lambda: controller.change(topic))
    # Not before it, since the broker's defaults may change meanwhile.
    replicas.configure(topic.name, log_config(topic.configs, controller.defaults.configs))


async def delete_topic(
    changes: TopicChanges, controller: Controller, replicas: Replicas, *, topic: Topic
) -> None:
    """Remove a topic and take its logs out of service; their files are deleted later.

    Raises:
        StorageError: the device refused.
    """
    # The record first: a crash leaves folders without a topic, and never a topic that has lost its
    # records.
    await changes.on_device(lambda: controller.remove(topic))
    slices = Slices()
    names = [TopicPartition(topic.name, number) for number in topic.partitions]
    for name in names:
        # A log that is being made would appear after its topic is gone.
        await replicas.new_logs.forget(name)
        await slices.turn()

    def close(name: TopicPartition) -> Callable[[], None]:
        return replicas.close(name, unique_id=controller.new_id().hex)

    # A request in between finds no topic, because the image does not have it any more.
    rests = await each_in_slices(names, close, slices)
    await changes.on_device(lambda: _do_all(rests))


def _expect(
    controller: Controller, replicas: Replicas, *, topic: Topic, numbers: Iterable[int]
) -> None:
    replicas.new_logs.expect(
        [TopicPartition(topic.name, number) for number in numbers],
        topic_id=topic.topic_id,
        config=log_config(topic.configs, controller.defaults.configs),
    )


def _do_all(rests: list[Callable[[], None]]) -> None:
    while rests:
        # Each function holds a log, which is freed here: 1000 of them take 8 ms on the loop.
        rests.pop()()
