"""Offsets expire some time after nobody consumes their topic for the group any more (KIP-211).

A walk over all groups of one protocol looks at every offset, a bounded part of them in each turn of
the event loop. A group goes with its last offset, so it comes behind its offsets:

    g flights-0 | g flights-1 | g planes-0 | g | h flights-0 | h
    '-------- one turn ------' '------- the next one -------'

What has changed between two turns is seen: each offset is looked up when its turn has come.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, Protocol

from tailrace.coordinator.groups.deadlines import Deadlines, Records
from tailrace.coordinator.groups.offsets import CommittedOffset, Offsets, counted, offset_tombstone
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import CoordinatorRecord, Decision, Propose
from tailrace.coordinator.statistics import StoredCount
from tailrace.model import TopicPartition

EXPIRED_MAX: Final = 100
"""Tombstones of offsets in one batch, and in one turn of the event loop."""

LOOKED_AT_MAX: Final = 500
"""Offsets and groups that are looked at in one turn of the event loop: half a millisecond."""


class GroupRules(Protocol):
    """Tells which offsets of the groups of one protocol have expired, and which groups may go."""

    def ids(self) -> Iterable[str]:
        """The ids of all groups."""
        ...

    def is_expired(
        self, group_id: str, partition: TopicPartition, committed: CommittedOffset, *, now_ms: int
    ) -> bool:
        """Whether an offset of a group has expired; not, if there is no such group."""
        ...

    def tombstones(self, group_id: str) -> Iterable[CoordinatorRecord]:
        """The tombstones of a group that goes when it has no offset; none: it stays."""
        ...


class Walk:
    """One walk over the offsets of all groups, a part with each call of `look`."""

    def __init__(self, offsets: Offsets, rules: GroupRules) -> None:
        self.is_done = False
        """Whether everything has been looked at."""
        self._offsets = offsets
        self._rules = rules
        self._rest = self._items()

    def look(self, now_ms: int) -> Records:
        """The tombstones of the next part of the offsets, and of the groups that have none left."""
        records: list[CoordinatorRecord] = []
        gone: Counter[str] = Counter()
        for count, (group_id, partition) in enumerate(self._rest, 1):
            if partition is None:
                if not self._is_left(group_id, gone[group_id]):
                    records += self._rules.tombstones(group_id)
            elif self._is_expired(group_id, partition, now_ms):
                records.append(offset_tombstone(group_id, partition))
                gone[group_id] += 1
            if count == LOOKED_AT_MAX or len(records) >= EXPIRED_MAX:
                break
        else:
            self.is_done = True
        return tuple(records)

    def _items(self) -> Iterator[tuple[str, TopicPartition | None]]:
        for group_id in tuple(self._rules.ids()):
            for partition in tuple(self._offsets.of_group(group_id)):
                yield group_id, partition
            yield group_id, None

    def _is_expired(self, group_id: str, partition: TopicPartition, now_ms: int) -> bool:
        committed = self._offsets.of_group(group_id).get(partition)
        return (
            committed is not None
            and self._rules.is_expired(group_id, partition, committed, now_ms=now_ms)
            and not self._offsets.is_pending(group_id, partition)
        )

    def _is_left(self, group_id: str, gone_count: int) -> bool:
        has_more = len(self._offsets.of_group(group_id)) > gone_count
        return has_more or self._offsets.has_pending(group_id)


class Expiry:
    """Walks over the groups of one protocol again and again, and deletes what has expired."""

    def __init__(
        self,
        settings: GroupSettings,
        deadlines: Deadlines,
        offsets: Offsets,
        *,
        rules: GroupRules,
        count: StoredCount,
    ) -> None:
        """`count` is that of expired offsets."""
        self._interval_ms = settings.expiry_interval_ms
        self._deadlines = deadlines
        self._offsets = offsets
        self._rules = rules
        self._count = count

    def start(self, propose: Propose) -> None:
        """Begin the first walk when the interval has passed."""
        self._deadlines.set("expiry", self._interval_ms, partial(self._begin, propose))

    def _begin(self, propose: Propose, now_ms: int) -> Decision[None]:
        self.start(propose)
        return self._turn(propose, Walk(self._offsets, self._rules), now_ms)

    def _turn(self, propose: Propose, walk: Walk, now_ms: int) -> Decision[None]:
        records = walk.look(now_ms)
        if not walk.is_done:
            propose(partial(self._turn, propose, walk))
        return counted(self._count, Decision(reply=None, records=records))
