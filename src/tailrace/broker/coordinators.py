"""The coordinators of a broker: their partitions are loaded as the broker begins to lead them.

The modules of a coordinator are imported when its topic exists, so that a start does not grow.
"""

import asyncio
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from tailrace.broker.config import BrokerConfig
from tailrace.broker.image_topics import ImageTopics
from tailrace.cluster.controller import Controller
from tailrace.cluster.image import Topic
from tailrace.coordinator.shard import PartitionLog, Shard
from tailrace.coordinator.shards import Shards
from tailrace.model import OFFSETS_TOPIC, TopicPartition
from tailrace.replication.device_reads import DeviceReads
from tailrace.replication.flushes import Flushes
from tailrace.replication.replicas import Replicas
from tailrace.runtime.system import Runtime

if TYPE_CHECKING:
    from tailrace.coordinator.groups.all_groups import AllGroupsMachine


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDoors:
    """The shared services that a coordinator's log needs besides its partition."""

    flushes: Flushes
    device_reads: DeviceReads
    is_durable: bool
    """Whether replies wait for the device (`tailrace.durability`)."""


class Coordinators:
    """The coordinators whose partitions this broker leads; `start` begins to load them."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        controller: Controller,
        replicas: Replicas,
        runtime: Runtime,
        logs: PartitionDoors,
    ) -> None:
        self._config = config
        self._controller = controller
        self._replicas = replicas
        self._runtime = runtime
        self._logs = logs
        self._topics = ImageTopics(controller, started_ms=runtime.clock.now_ms())
        self._starting: asyncio.Task[None] | None = None
        self.groups: Shards[AllGroupsMachine] = Shards(
            self._group_shard, partition_count=lambda: self._partition_count(OFFSETS_TOPIC)
        )

    def start(self) -> None:
        """Load the partitions that are there, and each that comes."""
        self._replicas.on_led = self._led
        self._replicas.on_gone = self._gone
        topic = self._controller.image.topics.get(OFFSETS_TOPIC)
        if topic is not None:
            self._starting = asyncio.ensure_future(self._start_groups(topic))

    async def stop(self) -> None:
        """Answer parked requests, and wait for partitions that are being loaded."""
        if self._starting is not None:
            await self._starting
        await self.groups.stop()

    async def _start_groups(self, topic: Topic) -> None:
        await self._runtime.threads.run(
            lambda: import_module("tailrace.coordinator.groups.modules")
        )
        for number in topic.partitions:
            name = TopicPartition(OFFSETS_TOPIC, number)
            if self._replicas.get(name) is not None:
                self._led(name)

    def _led(self, partition: TopicPartition) -> None:
        if partition.topic == OFFSETS_TOPIC:
            self.groups.lead(self._log_of(partition))

    def _gone(self, partition: TopicPartition) -> None:
        if partition.topic == OFFSETS_TOPIC:
            self.groups.resign(partition.partition)

    def _partition_count(self, name: str) -> int:
        topic = self._controller.image.topics.get(name)
        return 0 if topic is None else topic.partition_count

    def _log_of(self, partition: TopicPartition) -> PartitionLog:
        from tailrace.broker.coordinator_logs import CoordinatorLog

        return CoordinatorLog(
            partition,
            self._replicas,
            flushes=self._logs.flushes,
            device_reads=self._logs.device_reads,
            clock=self._runtime.clock,
            is_durable=self._logs.is_durable,
        )

    def _group_shard(self, log: PartitionLog) -> "Shard[AllGroupsMachine]":
        from tailrace.coordinator.groups.modules import AllGroupsMachine, GroupRecordCodec

        config = self._config
        return Shard(
            log,
            lambda: AllGroupsMachine(
                config.groups,
                self._topics,
                consumer_settings=lambda _: config.consumer_groups,
                chance=self._runtime.chance,
            ),
            GroupRecordCodec(),
            clock=self._runtime.clock,
        )
