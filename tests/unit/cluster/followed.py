"""Clusters whose images a test publishes: `Followed`, and the records of brokers and topics."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from tailrace.cluster.metadata.delta import MetadataDelta
from tailrace.cluster.metadata.image import EVERYTHING_CHANGED, ImageChange, MetadataImage
from tailrace.cluster.state import FollowedCluster
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.protocol.fields import Message
from tailrace.protocol.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

A, B = UUID(int=10), UUID(int=11)
DEFAULTS = TopicDefaults(partition_count=1, replication_factor=1, given={})


def broker(
    broker_id: int,
    *,
    fenced: bool = False,
    leaving: bool = False,
    listeners: Sequence[str] = ("INSIDE", "PLAINTEXT"),
    directories: tuple[UUID, ...] = (),
    rack: str | None = "own",
) -> RegisterBrokerRecord:
    """A registration; the broker is in a rack of its own."""
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=UUID(int=broker_id),
        broker_epoch=100 + broker_id,
        end_points=tuple(
            BrokerEndpoint(
                name=name,
                host=f"{name[:1].lower()}{broker_id}",
                port=9092,
                security_protocol=0,
            )
            for name in listeners
        ),
        rack=f"r{broker_id}" if rack == "own" else rack,
        fenced=fenced,
        in_controlled_shutdown=leaving,
        log_dirs=directories,
    )


def partition(topic_id: UUID, number: int = 0, **fields: object) -> PartitionRecord:
    """A partition with two replicas in sync, led by one after the other."""
    defaults: dict[str, object] = {
        "partition_id": number,
        "topic_id": topic_id,
        "replicas": (1, 2),
        "isr": (1, 2),
        "leader": 1 + number % 2,
        "leader_epoch": 5,
        "partition_epoch": 7,
    }
    return PartitionRecord(**{**defaults, **fields})  # type: ignore[arg-type]


def topic(name: str, topic_id: UUID, count: int = 1, **fields: object) -> list[Message]:
    """A topic whose partitions have these fields."""
    partitions = [partition(topic_id, number, **fields) for number in range(count)]
    return [TopicRecord(name=name, topic_id=topic_id), *partitions]


class Followed:
    """A followed cluster to which a test publishes records."""

    def __init__(self) -> None:
        self.cluster = FollowedCluster(1, defaults=DEFAULTS)
        self._image = MetadataImage()
        self._offset = -1

    def publish(self, *records: Message, changed: ImageChange = EVERYTHING_CHANGED) -> None:
        self._image, self._offset = replayed(self._image, records), self._offset + len(records)
        self.cluster.publish(self._image, changed, offset=self._offset)


def replayed(image: MetadataImage, records: Iterable[Message]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.image()
