"""The changes that a newer image of the cluster brings to the replicas of one broker.

    image, newer image ─► partitions that are no more this broker's, or whose topic is gone
                      └─► partitions that it leads or follows, each with its new state

Pure. Only the end state counts: what lies between two images is not seen (kraft: a delta).
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tailrace.cluster.metadata.image import MetadataImage, TopicState
from tailrace.model import TopicPartition

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord


class AssignedReplica(NamedTuple):
    """A partition of which this broker has a replica, as the image has it."""

    name: TopicPartition
    topic_id: UUID
    state: "PartitionRecord"


class ReplicaChanges(NamedTuple):
    """The changes of one broker's replicas, in the order in which they are made."""

    removed: list[TopicPartition]
    """Before the others: a topic's name may be that of another one in the same image."""
    led: list[AssignedReplica]
    """Before those that are followed, so that they are served soonest."""
    followed: list[AssignedReplica]
    """Also those that have no leader now."""


def replica_changes(
    before: MetadataImage,
    after: MetadataImage,
    *,
    node_id: int,
    topics: Collection[UUID] | None = None,
) -> ReplicaChanges:
    """The changes from one image to the next; `topics` are all that may differ, None: any."""
    changes = ReplicaChanges([], [], [])
    if topics is None:
        topics = before.topics.keys() | after.topics.keys()
    for topic_id in topics:
        old, new = before.topics.get(topic_id), after.topics.get(topic_id)
        # A topic that has not changed is the same object in both.
        if old is not new:
            _add_changes(changes, old, new, node_id=node_id)
    return changes


def assigned_replicas(image: MetadataImage, node_id: int) -> Iterable[AssignedReplica]:
    """All replicas of a broker, as an image has them."""
    changes = replica_changes(MetadataImage(), image, node_id=node_id)
    return (*changes.led, *changes.followed)


def _add_changes(
    changes: ReplicaChanges, old: TopicState | None, new: TopicState | None, *, node_id: int
) -> None:
    known = {} if old is None else old.partitions
    current = {} if new is None else new.partitions
    for number, was in known.items():
        state = current.get(number)
        if node_id in was.replicas and (state is None or node_id not in state.replicas):
            assert old is not None, "its partitions are known"
            changes.removed.append(TopicPartition(old.name, number))
    for number, state in current.items():
        if state is known.get(number) or node_id not in state.replicas:
            continue
        assert new is not None, "its partitions are there"
        name = TopicPartition(new.name, number)
        kind = changes.led if state.leader == node_id else changes.followed
        kind.append(AssignedReplica(name, new.topic_id, state))
