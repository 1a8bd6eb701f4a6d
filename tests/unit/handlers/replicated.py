"""A broker's services for the partitions of a cluster of three, without a server."""

from collections.abc import Awaitable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from tailrace.cluster.image import Topic
from tailrace.cluster.metadata.delta import MetadataDelta
from tailrace.cluster.metadata.image import EVERYTHING_CHANGED, MetadataImage
from tailrace.cluster.state import FollowedCluster
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.handlers.produce import handle_produce
from tailrace.model import Acks, Offset, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.protocol.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tailrace.replication.flushes import Flushes
from tailrace.replication.partition import ClusterView, Partition
from tailrace.replication.replicas import Replicas
from tailrace.replication.validation import BatchValidation
from tailrace.testing import Outside
from tests.unit.storage.builders import batch, settings
from tests.unit.storage.test_manager import manager

if TYPE_CHECKING:
    from tailrace.handlers.services import Services
    from tailrace.replication.leadership import IsrChange

ME, SECOND, THIRD = 1, 2, 3
ALL = (ME, SECOND, THIRD)
TOPIC_ID = UUID(int=77)
BY_NAME = 12
"""The last version of Produce that names topics."""


class Node:
    """The first broker of three, and whatever the image says of topic "t"."""

    def __init__(self, outside: Outside, *, is_durable: bool = False, **configs: object) -> None:
        self.outside = outside
        self.cluster = FollowedCluster(
            ME, defaults=TopicDefaults(partition_count=1, replication_factor=1, given={})
        )
        self.logs = manager(outside.files, "data")
        self.replicas = Replicas(
            self.logs,
            outside.threads,
            cluster=ClusterView(
                node_id=ME,
                brokers=self.cluster,
                has_partition=lambda name: self.cluster.partition(name) is not None,
                clock=outside.clock,
                lag_ms=30_000,
            ),
        )
        self.proposed: list[IsrChange] = []
        self.replicas.on_isr_change = lambda _, change: self.proposed.append(change)
        self.logs.on_failure = self.replicas.directory_failed
        self.services = cast(
            "Services",
            SimpleNamespace(
                cluster=self.cluster,
                listener=self.cluster.listener,
                controller=None,
                replicas=self.replicas,
                flushes=Flushes(self.logs, outside.threads),
                validation=BatchValidation(outside.threads),
                clock=outside.clock,
                is_durable=is_durable,
                find_topic=self._find_topic,
            ),
        )
        self._configs = configs
        self._image = MetadataImage()
        self._partition_epoch = 0
        self._publish(TopicRecord(name="t", topic_id=TOPIC_ID), *map(_broker, ALL))

    def _find_topic(self, name: str, topic_id: UUID) -> Topic | None:
        image = self.cluster.image
        return image.topic_by_id(topic_id) if topic_id.int else image.topics.get(name)

    def _publish(self, *records: Message) -> None:
        delta = MetadataDelta(self._image)
        for record in records:
            delta.replay(record)
        self._image = delta.image()
        self.cluster.publish(self._image, EVERYTHING_CHANGED, offset=0)

    async def assign(
        self,
        number: int = 0,
        *,
        leader: int = ME,
        isr: Sequence[int] = ALL,
        replicas: Sequence[int] = ALL,
        epoch: int = 1,
    ) -> Partition:
        """The next image, in which a partition has this state; returns it when it has its log."""
        self._partition_epoch += 1
        state = PartitionRecord(
            partition_id=number,
            topic_id=TOPIC_ID,
            replicas=tuple(replicas),
            isr=tuple(isr),
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=self._partition_epoch,
        )
        self._publish(state)
        name = TopicPartition("t", number)
        self.replicas.assign(name, TOPIC_ID, state, config=settings(**self._configs))
        await self.replicas.new_logs.wait_for(name)
        return self.replicas.find_replica(name)

    def fetch(self, broker_id: int, offset: int, number: int = 0, *, log_start: int = 0) -> None:
        """A fetch of a follower that has all records before `offset`."""
        partition = self.replicas.find(TopicPartition("t", number))
        partition.note_fetch(
            broker_id,
            broker_epoch=100 + broker_id,
            offset=Offset(offset),
            log_start=Offset(log_start),
            log_end=partition.log.end_offset,
            now_ms=self.outside.clock.now_ms(),
        )

    async def produce(
        self,
        *numbers: int,
        acks: int = Acks.ALL,
        timeout_ms: int = 1000,
        version: int = BY_NAME,
        records: bytes | None = None,
    ) -> ProduceResponse:
        """The answer to a request with one record for each of the partitions, by default 0."""
        data = [
            PartitionProduceData(
                index=each, records=memoryview(bytearray(records or batch(b"value")))
            )
            for each in numbers or (0,)
        ]
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=(TopicProduceData(name="t", partition_data=tuple(data)),),
        )
        header = RequestHeader(ApiKey.PRODUCE, version, 1, "client")
        answer: Any = handle_produce(self.services, header, request)
        if isinstance(answer, Awaitable):
            answer = await answer
        assert isinstance(answer, ProduceResponse)
        return answer


def partition_answers(response: ProduceResponse) -> tuple[PartitionProduceResponse, ...]:
    return response.responses[0].partition_responses


def _broker(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=UUID(int=broker_id),
        broker_epoch=100 + broker_id,
        end_points=(
            BrokerEndpoint(name="PLAINTEXT", host=f"b{broker_id}", port=9092, security_protocol=0),
        ),
        rack=f"r{broker_id}",
        fenced=False,
    )
