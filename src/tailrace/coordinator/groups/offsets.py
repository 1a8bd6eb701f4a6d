"""The committed offsets of the groups of one shard, with those of transactions that are open.

    commit           counts at once
    in a transaction is kept by producer until the marker of the transaction: COMMIT makes it the
                     committed offset if its record is newer, ABORT drops it (KIP-98)

Invariant: `committed` has what the records in the log say, in their order, and nothing else.
"""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple, TypeVar
from uuid import UUID

from tailrace.coordinator.machine import CoordinatorRecord, Decision, Origin
from tailrace.coordinator.statistics import StoredCount
from tailrace.model import NO_PRODUCER_ID, ProducerId, TopicPartition
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.records import OffsetCommitKey, OffsetCommitValue
from tailrace.values import dataclass, field

ReplyT = TypeVar("ReplyT")


class CommittedOffset(NamedTuple):
    """The offset up to which a group has consumed a partition."""

    offset: int
    """Offset of the next record to consume, as the client has sent it."""
    leader_epoch: int
    """Leader epoch of the last consumed record; -1: not known."""
    metadata: str
    commit_ms: int
    """When it was committed, in milliseconds since the epoch."""
    expire_ms: int
    """When it expires; -1: by the retention of its group. Only old clients give a time."""
    topic_id: UUID
    """The topic's id, or zero where it was not known."""
    record_offset: int
    """Offset of its record in the log."""


GroupOffsets = dict[TopicPartition, CommittedOffset]


@dataclass(slots=True)
class Offsets:
    """All committed offsets of a shard."""

    committed: dict[str, GroupOffsets] = field(default_factory=dict)
    pending: dict[int, dict[str, GroupOffsets]] = field(default_factory=dict)
    """Offsets of open transactions, by producer id and group."""
    producers: dict[str, dict[TopicPartition, set[int]]] = field(default_factory=dict)
    """The producers of these by group and partition: there may be thousands, and each expiry,
    deletion and fetch asks."""

    def of_group(self, group_id: str) -> GroupOffsets:
        """The committed offsets of a group; empty if it has none."""
        return self.committed.get(group_id, {})

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        return partition in self.producers.get(group_id, ())

    def has_pending(self, group_id: str) -> bool:
        return group_id in self.producers

    def groups(self) -> tuple[str, ...]:
        """The groups that have an offset, committed or pending."""
        return tuple(dict.fromkeys(chain(self.committed, self.producers)))

    def is_of_topic(self, group_id: str, partition: TopicPartition, topic_id: UUID) -> bool:
        """Whether a group has an offset, committed or pending, for a partition of this topic.

        One that was committed without a topic id counts too.
        """
        found = [self.of_group(group_id).get(partition)]
        producers = self.producers.get(group_id, {}).get(partition, ())
        found += [self.pending[each][group_id][partition] for each in producers]
        return any(each is not None and each.topic_id in (NO_UUID, topic_id) for each in found)

    def partitions(self, group_id: str) -> Iterator[TopicPartition]:
        """The partitions for which a group has an offset, committed or pending, each once."""
        committed = self.of_group(group_id)
        # In a generator: who deletes a group of a million offsets looks at a hundred in each turn.
        yield from committed
        pending = tuple(self.producers.get(group_id, ()))
        yield from (each for each in pending if each not in committed)

    def all_partitions(self, group_id: str) -> tuple[TopicPartition, ...]:
        """See `partitions`; a committed and pending one is there twice, and 100,000 take 1 ms."""
        return (*self.of_group(group_id), *self.producers.get(group_id, ()))

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, origin: Origin) -> None:
        partition = TopicPartition(key.topic, key.partition)
        if value is None:
            # A deletion ends pending offsets too: a transaction that commits later must not bring
            # back what an operator has deleted (as in Kafka).
            self.drop(key.group, partition)
            return
        found = CommittedOffset(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_ms=value.commit_timestamp,
            expire_ms=value.expire_timestamp,
            topic_id=value.topic_id,
            record_offset=origin.offset,
        )
        if origin.producer_id == NO_PRODUCER_ID:
            self.committed.setdefault(key.group, {})[partition] = found
        else:
            groups = self.pending.setdefault(origin.producer_id, {})
            groups.setdefault(key.group, {})[partition] = found
            producers = self.producers.setdefault(key.group, {}).setdefault(partition, set())
            producers.add(origin.producer_id)

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        for group_id, offsets in self.pending.pop(producer_id, {}).items():
            for each in offsets:
                self.producers[group_id][each].remove(producer_id)
                self._forget_if_idle(group_id, each)
            if is_commit:
                self._commit_pending(group_id, offsets)

    def _forget_if_idle(self, group_id: str, partition: TopicPartition) -> None:
        of_group = self.producers[group_id]
        if not of_group[partition]:
            del of_group[partition]
        if not of_group:
            del self.producers[group_id]

    def _commit_pending(self, group_id: str, offsets: GroupOffsets) -> None:
        committed = self.committed.setdefault(group_id, {})
        for partition, found in offsets.items():
            known = committed.get(partition)
            # A commit outside of the transaction may have come between its record and the marker.
            if known is None or known.record_offset < found.record_offset:
                committed[partition] = found

    def drop(self, group_id: str, partition: TopicPartition) -> None:
        """Forget the offset of a partition, committed or in a transaction."""
        committed = self.committed.get(group_id, {})
        committed.pop(partition, None)
        if not committed:
            self.committed.pop(group_id, None)
        producers = self.producers.get(group_id, {}).get(partition)
        if producers is None:
            return
        for producer_id in producers:
            groups = self.pending[producer_id]
            del groups[group_id][partition]
            if not groups[group_id]:
                del groups[group_id]
            if not groups:
                del self.pending[producer_id]
        producers.clear()
        self._forget_if_idle(group_id, partition)


def offset_record(
    group_id: str, partition: TopicPartition, committed: CommittedOffset
) -> CoordinatorRecord:
    return CoordinatorRecord(
        OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition),
        OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_ms,
            expire_timestamp=committed.expire_ms,
            topic_id=committed.topic_id,
        ),
    )


def offset_tombstone(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    topic, number = partition
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=number), None)


def counted(count: StoredCount, decision: Decision[ReplyT]) -> Decision[ReplyT]:
    """A decision to delete offsets, which count unless their tombstones cannot be stored."""
    offsets = sum(isinstance(each.key, OffsetCommitKey) for each in decision.records)
    return decision._replace(undo=count.add(offsets)) if offsets else decision
