"""Load the offset commits of a log in bulk: a kernel collects them, `Offsets` gets them as columns.

A log of `__consumer_offsets` is mostly commits, and most of these are overwritten by later ones.
`kernels.commits` keeps the newest of each key, for `KEYS_MAX` keys at a time. What it leaves is
replayed record by record, as is every record of a log of less than `LOG_BYTES_MIN`.

    batches   c c c c c c | transaction | c c c c | members of a group | c c
              '- taken -'   replayed      '- taken '  replayed
                         ^ put                     ^ put                   ^ put

Invariant: everything taken is put before another record is replayed, so that the state is at each
of these places what a replay of every record makes. Between two of them only commits of groups
change, and those of different keys do not depend on each other.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import Any, Final, Generic, TypeVar, cast
from uuid import UUID

from tailrace.coordinator.groups.classic_group import ClassicGroup
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.offsets import CommittedOffset, GroupOffsets
from tailrace.kernels import int64s, new_hash_secret
from tailrace.kernels.commits import (
    NAME_WIDTH,
    NAMES_PER_RECORD,
    STATE_SIZE,
    CommitColumn,
    CommitHistory,
    CommitState,
    take_commits,
)
from tailrace.model import TopicPartition
from tailrace.protocol.fields import NO_UUID
from tailrace.runtime.memory import freeze_objects

T = TypeVar("T")

KEYS_MAX: Final = 32_768
"""Keys that are collected at a time, in 11 MB. A log has rarely more in one partition."""

ROWS_AT_ONCE: Final = 500
"""Rows that are put with the interpreter lock held: half a millisecond."""

INTERNED_MAX: Final = 100_000
"""Partitions, and ids of topics, of which one object serves all groups."""

LOG_BYTES_MIN: Final = 256 * 1024
"""Logs of fewer bytes are replayed record by record: 2,500 commits take as long as making room."""

_NAMES_MAX: Final = NAMES_PER_RECORD * KEYS_MAX
_NO_NAME: Final = -1
_PUT_ONLY: Final = CommitHistory.IS_COMMITTED | CommitHistory.WAS_COMMITTED

# `_make` of a NamedTuple is a Python function, which takes three times as long.
_new_partition = cast("Callable[[Any], TopicPartition]", partial(tuple.__new__, TopicPartition))
_new_offset = cast("Callable[[Any], CommittedOffset]", partial(tuple.__new__, CommittedOffset))


class _Lookup(dict[int, T], Generic[T]):
    """Values by the index of a name; each is made when it is first needed."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make

    def __missing__(self, number: int) -> T:
        value = self[number] = self._make(number)
        return value


class BulkCommits:
    """Takes the commits of batches, and puts them into the offsets of a shard that is loaded."""

    def __init__(self, machine: GroupMachine) -> None:
        self._offsets = machine.groups.offsets
        self._groups = machine.groups.by_id
        self._state = int64s(STATE_SIZE)
        self._state[CommitState.GENERATION] = 1
        for place, number in enumerate(new_hash_secret(), start=CommitState.HASH_SECRET):
            self._state[place] = number
        self._columns = int64s(len(CommitColumn) * KEYS_MAX)
        self._names = int64s(NAME_WIDTH * _NAMES_MAX)
        self._arena = bytearray(4 * 1024 * 1024)
        self._row_slots = int64s(2 * KEYS_MAX)
        self._name_slots = int64s(2 * _NAMES_MAX)
        self._partitions: dict[TopicPartition, TopicPartition] = {}
        self._topic_ids: dict[bytes, UUID] = {}

    def take(self, window: memoryview, position: int) -> int:
        """Take batches of commits; see `records.untaken.TakeBatches`."""
        state = self._state
        state[CommitState.POSITION] = position
        while not take_commits(
            window, KEYS_MAX, state, self._columns, self._row_slots,
            self._names, self._name_slots, self._arena,
        ):  # fmt: skip
            if not state[CommitState.ROWS]:
                break  # One batch has more than there is room for.
            self.put()
        return state[CommitState.POSITION]

    def put(self) -> None:
        state = self._state
        rows = state[CommitState.ROWS]
        if not rows:
            return
        names = _Names(self)
        # A loop with a bytecode for each row would hold the interpreter lock, and with it the event
        # loop, for seconds: parts of half a millisecond are put by C functions (decision 40).
        for first in range(0, rows, ROWS_AT_ONCE):
            self._put_rows(names, first, min(first + ROWS_AT_ONCE, rows))
        for place in (CommitState.ROWS, CommitState.NAMES, CommitState.ARENA_USED):
            state[place] = 0
        state[CommitState.GENERATION] += 1
        # A pass over a million offsets would hold up the event loop for 100 ms (decision 40). It
        # freezes in the process of `tailrace serve` alone, never in a program of the user.
        freeze_objects()

    def _put_rows(self, names: "_Names", first: int, limit: int) -> None:
        columns = [self._column(column, first, limit) for column in CommitColumn]
        histories = columns[CommitColumn.HISTORY]
        # Nearly always every key has been committed and none was dropped.
        if histories.count(_PUT_ONLY) < len(histories):
            self._drop(names, columns)
            are_committed = [history & CommitHistory.IS_COMMITTED for history in histories]
            columns = [list(compress(column, are_committed)) for column in columns]
        groups, topics, partitions, offsets, epochs, metadata, commits, expires, ids, records, _ = (
            columns
        )
        # Groups commit for the same partitions: one object serves all of them.
        if len(self._partitions) > INTERNED_MAX:
            self._partitions.clear()
        keys = list(map(_new_partition, zip(names.texts_of(topics), partitions, strict=True)))
        values = zip(
            offsets, epochs, names.texts_of(metadata), commits, expires,
            map(names.ids.__getitem__, ids), records, strict=True,
        )  # fmt: skip
        putting = map(
            dict.__setitem__,
            map(names.tables.__getitem__, groups),
            map(self._partitions.setdefault, keys, keys),
            map(_new_offset, values),
        )
        deque(putting, maxlen=0)

    def _drop(self, names: "_Names", columns: list[list[int]]) -> None:
        """Replay the tombstones among rows; one that is followed by a commit drops offsets too."""
        for group, topic, partition, history in zip(
            columns[CommitColumn.GROUP],
            columns[CommitColumn.TOPIC],
            columns[CommitColumn.PARTITION],
            columns[CommitColumn.HISTORY],
            strict=True,
        ):
            if not history & CommitHistory.WAS_DROPPED:
                continue
            # Before the commits are put, though a commit may have come first: what counts is that
            # pending offsets of transactions are dropped, and the newest commit is put after it.
            group_id = names.texts[group]
            self._offsets.drop(group_id, TopicPartition(names.texts[topic], partition))
            if history & CommitHistory.WAS_COMMITTED:
                self._note_committed(group_id)

    def _column(self, column: CommitColumn, first: int, limit: int) -> list[int]:
        start = column * KEYS_MAX
        return self._columns[start + first : start + limit].tolist()

    def name(self, name: int) -> bytearray:
        """The bytes of a name that was taken."""
        at, size, _ = self._names[NAME_WIDTH * name : NAME_WIDTH * (name + 1)]
        return self._arena[at : at + size]

    def topic_id(self, name: int) -> UUID:
        """The topic id in these bytes; zero if there are none."""
        if name == _NO_NAME:
            return NO_UUID
        data = bytes(self.name(name))
        known = self._topic_ids.get(data)
        if known is None:
            if len(self._topic_ids) > INTERNED_MAX:
                self._topic_ids.clear()
            known = self._topic_ids[data] = UUID(bytes=data)
        return known

    def _note_committed(self, group_id: str) -> None:
        if group_id not in self._groups:
            # The group has no other record: a simple one.
            self._groups[group_id] = ClassicGroup(group_id, -1)

    def table(self, group_id: str) -> GroupOffsets:
        """The offsets of a group, which is one from now on."""
        self._note_committed(group_id)
        return self._offsets.committed.setdefault(group_id, {})


class _Names:
    """Texts, ids and tables by the index of a name, valid until `put` clears the names."""

    # Refers to its `BulkCommits`, which does not refer to it: a circle would keep the memory of
    # both until a collection, and for good in a process that freezes (`broker.process`).

    def __init__(self, bulk: BulkCommits) -> None:
        texts = self.texts = _Lookup(lambda name: str(bulk.name(name), "utf-8"))
        self.ids = _Lookup(bulk.topic_id)
        self.tables = _Lookup(lambda name: bulk.table(texts[name]))

    def texts_of(self, names: list[int]) -> "map[str]":
        return map(self.texts.__getitem__, names)
