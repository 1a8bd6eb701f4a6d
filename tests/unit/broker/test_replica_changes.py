"""The meaning of a newer image for the replicas of a broker."""

from uuid import UUID

from tailrace.broker.kraft.replica_changes import assigned_replicas, replica_changes
from tailrace.cluster.metadata.delta import MetadataDelta
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.model import TopicPartition
from tailrace.protocol.fields import Message
from tailrace.protocol.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

ME = 1
A, B = UUID(int=10), UUID(int=11)


def topic(topic_id: UUID, name: str, *partitions: tuple[list[int], int]) -> list[Message]:
    """A topic with partitions, each with its replicas and its leader."""
    records: list[Message] = [TopicRecord(name=name, topic_id=topic_id)]
    for number, (replicas, leader) in enumerate(partitions):
        records.append(
            PartitionRecord(
                topic_id=topic_id, partition_id=number, replicas=tuple(replicas),
                isr=tuple(replicas), leader=leader, leader_epoch=0, partition_epoch=0,
            )
        )  # fmt: skip
    return records


def after(image: MetadataImage, *records: Message) -> MetadataImage:
    """The image with these records."""
    delta = MetadataDelta(image)
    for each in records:
        delta.replay(each)
    return delta.image()


FIRST = after(
    MetadataImage(), *topic(A, "a", ([1, 2], 1), ([2, 1], 2), ([2, 3], 2)), *topic(B, "b", ([1], 1))
)


def names(replicas: object) -> list[TopicPartition]:
    """Their partitions."""
    return [each.name for each in replicas]  # type: ignore[attr-defined]


def test_the_first_image_has_all_replicas_of_a_broker() -> None:
    """It leads some, follows others, and replicas on other brokers alone are none of its own."""
    changes = replica_changes(MetadataImage(), FIRST, node_id=ME)
    assert names(changes.led) == [TopicPartition("a", 0), TopicPartition("b", 0)]
    assert names(changes.followed) == [TopicPartition("a", 1)]
    assert names(assigned_replicas(FIRST, ME)) == names(changes.led) + names(changes.followed)


def test_only_what_has_changed_is_among_the_changes() -> None:
    """A change of one partition leaves its neighbours out."""
    change = PartitionChangeRecord(topic_id=A, partition_id=0, leader=2, isr=(2,))
    changes = replica_changes(FIRST, after(FIRST, change), node_id=ME)
    assert (changes.removed, changes.led) == ([], [])
    (followed,) = changes.followed
    assert followed.name == TopicPartition("a", 0)
    assert (followed.state.leader, followed.state.leader_epoch) == (2, 1)
    assert replica_changes(FIRST, after(FIRST, change), node_id=3) == ([], [], [])


def test_a_partition_without_a_leader_is_followed() -> None:
    """It is no more led, and has nobody to be fetched from."""
    change = PartitionChangeRecord(topic_id=B, partition_id=0, leader=-1)
    (followed,) = replica_changes(FIRST, after(FIRST, change), node_id=ME).followed
    assert (followed.name, followed.state.leader) == (TopicPartition("b", 0), -1)


def test_a_replica_that_moved_away_is_removed() -> None:
    """So are those of a deleted topic; those of other brokers are none of this one's."""
    moved = after(
        FIRST,
        PartitionChangeRecord(topic_id=A, partition_id=1, replicas=(2, 3), isr=(2, 3)),
        RemoveTopicRecord(topic_id=B),
    )
    changes = replica_changes(FIRST, moved, node_id=ME)
    assert changes.removed == [TopicPartition("a", 1), TopicPartition("b", 0)]
    assert replica_changes(FIRST, moved, node_id=2).removed == []


def test_a_topic_of_the_same_name_takes_the_place_of_a_deleted_one() -> None:
    """The old replica is removed before the new one is made, though the name is the same."""
    made = after(FIRST, RemoveTopicRecord(topic_id=B), *topic(UUID(int=12), "b", ([1], 1)))
    changes = replica_changes(FIRST, made, node_id=ME)
    assert changes.removed == [TopicPartition("b", 0)]
    assert [(each.name, each.topic_id) for each in changes.led] == [
        (TopicPartition("b", 0), UUID(int=12))
    ]


def test_topics_that_cannot_differ_are_not_compared() -> None:
    """The cost is that of the topics which are named."""
    change = PartitionChangeRecord(topic_id=A, partition_id=0, leader=2)
    newer = after(FIRST, change, RemoveTopicRecord(topic_id=B))
    changes = replica_changes(FIRST, newer, node_id=ME, topics=[A])
    assert (changes.removed, names(changes.followed)) == ([], [TopicPartition("a", 0)])


def test_the_changes_of_reassignments() -> None:
    """A replica comes, goes, leads or follows, and was whatever it was before."""
    image = after(
        MetadataImage(),
        *topic(
            A, "a", ([2, 1], 2), ([1, 2], 1), ([2, 1], 2), ([1, 2], 1), ([2, 3], 2), ([2, 3], 2)
        ),
    )
    away, here = {"replicas": (2, 3), "isr": (2, 3)}, {"replicas": (2, 1), "isr": (2, 1)}
    wanted = (
        {"leader": ME},
        {"leader": 2},
        away,
        {"leader": 2, **away},
        {"leader": ME, **here},
        here,
    )
    moved = after(
        image,
        *(
            PartitionChangeRecord(topic_id=A, partition_id=number, **fields)  # type: ignore[arg-type]
            for number, fields in enumerate(wanted)
        ),
    )
    changes = replica_changes(image, moved, node_id=ME)
    assert names(changes.led) == [TopicPartition("a", 0), TopicPartition("a", 4)]
    assert names(changes.followed) == [TopicPartition("a", 1), TopicPartition("a", 5)]
    assert changes.removed == [TopicPartition("a", 2), TopicPartition("a", 3)]
