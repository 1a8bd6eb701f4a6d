"""Offsets expire some time after nobody consumes their topic for the group any more (KIP-211).

A walk over all groups looks at every offset, a bounded part of them in each turn of the event loop.
A group goes with its last offset, so it comes after its offsets:

    g flights-0 | g flights-1 | g planes-0 | g | h flights-0 | h
    '-------- one turn ------' '------- the next one -------'

What has changed between two turns is seen: each offset is looked up when its turn has come.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from tailrace.coordinator.deadlines import Records
from tailrace.coordinator.groups.classic_group import ClassicGroup, ClassicState, group_tombstone
from tailrace.coordinator.groups.commits import is_consumed
from tailrace.coordinator.groups.consumer_group import ConsumerGroup, ConsumerState
from tailrace.coordinator.groups.consumer_records import consumer_group_tombstones
from tailrace.coordinator.groups.offsets import CommittedOffset, counted, offset_tombstone
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.machine import CoordinatorRecord, Decision, Propose
from tailrace.model import TopicPartition

EXPIRED_MAX: Final = 100
"""Tombstones of offsets in one batch, and in one turn of the event loop."""

LOOKED_AT_MAX: Final = 500
"""Offsets and groups that are looked at in one turn of the event loop: half a millisecond."""


class Walk:
    """One walk over the offsets of all groups, a part with each call of `look`."""

    def __init__(self, groups: Groups) -> None:
        self.is_done = False
        """Whether everything has been looked at."""
        self._groups = groups
        self._offsets = groups.offsets
        self._rest = self._items()

    def look(self, now_ms: int) -> Records:
        """The tombstones of the next part of the offsets, and of the groups that have none left."""
        records: list[CoordinatorRecord] = []
        gone: Counter[str] = Counter()
        for count, (group_id, partition) in enumerate(self._rest, 1):
            if partition is None:
                if not self._is_left(group_id, gone[group_id]):
                    records += self._tombstones(group_id)
            elif self._is_expired(group_id, partition, now_ms):
                records.append(offset_tombstone(group_id, partition))
                gone[group_id] += 1
            if count == LOOKED_AT_MAX or len(records) >= EXPIRED_MAX:
                break
        else:
            self.is_done = True
        return tuple(records)

    def _items(self) -> Iterator[tuple[str, TopicPartition | None]]:
        # Copies, since groups and offsets change between two turns; each is looked up again.
        for group_id in tuple(self._groups.by_id):
            for partition in tuple(self._offsets.of_group(group_id)):
                yield group_id, partition
            yield group_id, None

    def _is_expired(self, group_id: str, partition: TopicPartition, now_ms: int) -> bool:
        committed = self._offsets.of_group(group_id).get(partition)
        group = self._groups.by_id.get(group_id)
        if committed is None or group is None or self._offsets.is_pending(group_id, partition):
            return False
        if isinstance(group, ClassicGroup):
            unused_since_ms = _unused_since_ms(group, partition.topic, committed)
        # In a consumer group the time counts from the commit, as in Kafka.
        elif group.is_subscribed_to(partition.topic):
            unused_since_ms = None
        else:
            unused_since_ms = committed.commit_ms
        if unused_since_ms is None:
            return False
        # A client of an old version may have given a time of its own (`retention_time_ms`).
        if committed.expire_ms != -1:
            return now_ms >= committed.expire_ms
        return now_ms - unused_since_ms >= self._groups.settings.retention_ms

    def _is_left(self, group_id: str, gone_count: int) -> bool:
        has_more = len(self._offsets.of_group(group_id)) > gone_count
        return has_more or self._offsets.has_pending(group_id)

    def _tombstones(self, group_id: str) -> Iterable[CoordinatorRecord]:
        """The tombstones of a group without offsets; none: it has members, and stays."""
        group = self._groups.by_id.get(group_id)
        if isinstance(group, ConsumerGroup):
            return consumer_group_tombstones(group) if group.state is ConsumerState.EMPTY else ()
        # A member that has been given its id is about to join.
        if group is None or group.state is not ClassicState.EMPTY or group.pending_ids:
            return ()
        return (group_tombstone(group_id),)


def _unused_since_ms(group: ClassicGroup, topic: str, committed: CommittedOffset) -> int | None:
    """Since when nobody consumes a topic for a classic group; None: somebody may."""
    if group.protocol_type is None:
        return committed.commit_ms
    if group.state is ClassicState.EMPTY:
        # From the moment when the last member has left, if a record has it (v2, KIP-211).
        return committed.commit_ms if group.state_since_ms == -1 else group.state_since_ms
    is_known = group.state is ClassicState.STABLE and group.subscribed_topics is not None
    return committed.commit_ms if is_known and not is_consumed(group, topic) else None


class Expiry:
    """Walks over the groups of one shard again and again, and deletes what has expired."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def start(self, propose: Propose) -> None:
        """Begin the first walk when the interval has passed."""
        interval_ms = self._groups.settings.expiry_interval_ms
        self._groups.deadlines.set("expiry", interval_ms, partial(self._begin, propose))

    def _begin(self, propose: Propose, now_ms: int) -> Decision[None]:
        self.start(propose)
        return self._turn(propose, Walk(self._groups), now_ms)

    def _turn(self, propose: Propose, walk: Walk, now_ms: int) -> Decision[None]:
        records = walk.look(now_ms)
        if not walk.is_done:
            propose(partial(self._turn, propose, walk))
        return counted(self._groups.counts.expired, Decision(reply=None, records=records))
