"""Offsets expire some time after nobody consumes their topic for the group any more (KIP-211).

The time counts from the commit, or from the moment when the last member of a group has left. A
client of an old version may have given a time of its own. A group goes with its last offset.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from tailrace.coordinator.groups.classic_group import ClassicGroup, ClassicState
from tailrace.coordinator.groups.commits import is_consumed
from tailrace.coordinator.groups.deadlines import Deadlines, Records
from tailrace.coordinator.groups.offsets import CommittedOffset, Offsets, offset_tombstone
from tailrace.coordinator.groups.records import group_tombstone
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import Decision, Propose
from tailrace.model import TopicPartition

EXPIRED_MAX: Final = 100
"""Tombstones in one batch, and in one turn of the event loop."""


class Expiry:
    """Looks for expired offsets of all groups of a shard, again and again."""

    def __init__(
        self,
        settings: GroupSettings,
        deadlines: Deadlines,
        groups: Mapping[str, ClassicGroup],
        *,
        offsets: Offsets,
    ) -> None:
        self._settings = settings
        self._deadlines = deadlines
        self._groups = groups
        self._offsets = offsets

    def start(self, propose: Propose) -> None:
        """Look for the first time when the interval has passed."""
        self._deadlines.set(
            "expiry", self._settings.expiry_interval_ms, partial(self._look, propose)
        )

    def _look(self, propose: Propose, now_ms: int) -> Records:
        self.start(propose)
        for group in self._groups.values():
            if self._expired(group, now_ms):
                propose(partial(self._expire, propose, group))
        return ()

    def _expire(self, propose: Propose, group: ClassicGroup, now_ms: int) -> Decision[None]:
        if self._groups.get(group.group_id) is not group:
            return Decision(reply=None)
        records = self._expired(group, now_ms)
        if len(records) > EXPIRED_MAX:
            propose(partial(self._expire, propose, group))
        return Decision(reply=None, records=records[:EXPIRED_MAX])

    def _expired(self, group: ClassicGroup, now_ms: int) -> Records:
        return expired(self._settings, self._offsets, group, now_ms=now_ms)


def expired(
    settings: GroupSettings, offsets: Offsets, group: ClassicGroup, *, now_ms: int
) -> Records:
    """The tombstones of a group's expired offsets, then of the group if nothing is left of it."""
    known = offsets.of_group(group.group_id)
    gone = list(_expired_partitions(settings, offsets, group, now_ms=now_ms))
    records = [offset_tombstone(group.group_id, each) for each in gone]
    is_left = len(gone) < len(known) or offsets.has_pending(group.group_id)
    if group.state is ClassicState.EMPTY and not group.pending_ids and not is_left:
        records.append(group_tombstone(group.group_id))
    return tuple(records)


def _expired_partitions(
    settings: GroupSettings, offsets: Offsets, group: ClassicGroup, *, now_ms: int
) -> Iterator[TopicPartition]:
    for partition, committed in offsets.of_group(group.group_id).items():
        if offsets.is_pending(group.group_id, partition):
            continue
        base_ms = _idle_since_ms(group, partition.topic, committed)
        if committed.expire_ms != -1:
            is_expired = base_ms is not None and now_ms >= committed.expire_ms
        else:
            is_expired = base_ms is not None and now_ms - base_ms >= settings.retention_ms
        if is_expired:
            yield partition


def _idle_since_ms(group: ClassicGroup, topic: str, committed: CommittedOffset) -> int | None:
    """Since when nobody consumes a partition for the group; None: somebody may."""
    if group.protocol_type is None:
        return committed.commit_ms
    if group.state is ClassicState.EMPTY:
        return committed.commit_ms if group.state_since_ms == -1 else group.state_since_ms
    is_known = group.state is ClassicState.STABLE and group.subscribed_topics is not None
    return committed.commit_ms if is_known and not is_consumed(group, topic) else None
