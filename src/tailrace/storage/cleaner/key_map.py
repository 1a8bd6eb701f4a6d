"""`KeyMap`: the newest offset of every key in a range of a log, in memory of a fixed size.

The memory is allocated once: one half for slots, one for the keys (the arena; see
`tailrace.kernels.key_map` for the drawing). A slot takes 16 bytes, and nine of ten may be in use,
as in Kafka, so 128 MiB have room for 3.7 million keys of up to 16 bytes.

When there is no room for one more key, the map is full: this round compacts what is in it, and the
next round the rest. A key that fits an empty map is compacted in some round. For a key larger than
the arena, `choose` keeps all records, so that nothing is lost and the round continues.

Invariant: a record is only removed if `put` was given a newer one with its key.
"""

import mmap
from typing import Final

from tailrace import kernels
from tailrace.kernels import (
    BATCH_ROW_SIZE,
    GROUP_SIZE,
    STATE_SIZE,
    BatchRow,
    MapState,
    RecordFault,
    new_hash_secret,
)
from tailrace.records.checks import CorruptRecordError, record_error
from tailrace.runtime.memory import LargeMemory
from tailrace.storage.cleaner.passes import Run

SIZE_BYTES_MIN: Final = 64
"""Two slots, one of which stays free, and an arena of 32 bytes."""

SIZE_BYTES_MAX: Final = 2**31 - 1
"""The limit of one thread of Kafka's cleaner too; positions in the arena have 32 bits."""

_SLOT_BYTES: Final = 16
_ZEROS: Final = bytes(1 << 20)

NO_OFFSET: Final = -1
"""`latest_offset` of an empty map."""


class KeyMap:
    """Keys and offsets of one round of cleaning."""

    def __init__(self, size_bytes: int, *, hash_secret: tuple[int, int] | None = None) -> None:
        """Allocates the memory; of `size_bytes` at most 2 GiB are used.

        Maps whose slots are compared need one `hash_secret`; else each makes its own.
        """
        assert size_bytes >= SIZE_BYTES_MIN
        size_bytes = min(size_bytes, SIZE_BYTES_MAX)
        slot_count = size_bytes // 2 // _SLOT_BYTES
        slot_bytes = slot_count * _SLOT_BYTES
        memory = LargeMemory(size_bytes)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            # Searches go everywhere, and with small pages each waits for the page table as well.
            memory.madvise(mmap.MADV_HUGEPAGE)
        self._slot_bytes = memoryview(memory)[:slot_bytes]
        self._slots = self._slot_bytes.cast("q")
        self._arena = memoryview(memory)[slot_bytes:]
        self._state = kernels.int64s(STATE_SIZE)
        secret = hash_secret or new_hash_secret()
        for place, number in enumerate(secret, start=MapState.HASH_SECRET):
            self._state[place] = number
        self._state[MapState.KEYS_MAX] = slot_count * 9 // 10
        self._group = kernels.int64s(GROUP_SIZE)
        self.latest_offset = NO_OFFSET
        """All records up to this offset are in the map; -1 for none."""

    @property
    def key_count(self) -> int:
        """Number of different keys in the map."""
        return self._state[MapState.KEYS]

    @property
    def unmapped(self) -> int:
        """Records whose key is larger than the arena; they are all kept."""
        return self._state[MapState.UNMAPPED]

    @property
    def load(self) -> float:
        """Share of the map in use, from 0 to 1: the larger of slots and arena."""
        return max(
            self._state[MapState.KEYS] / self._state[MapState.KEYS_MAX],
            self._state[MapState.ARENA_USED] / len(self._arena),
        )

    @property
    def slots(self) -> memoryview:
        """The slots as int64, for a comparison of maps; see the drawing."""
        return self._slots

    @property
    def entries(self) -> memoryview:
        """The part of the arena that is in use."""
        return self._arena[: self._state[MapState.ARENA_USED]]

    def clear(self) -> None:
        """Removes all keys; keeps the memory."""
        # A map without keys has only zeros, and writing them would allocate its pages.
        for start in range(0, len(self._slot_bytes) if self.key_count else 0, len(_ZEROS)):
            piece = self._slot_bytes[start : start + len(_ZEROS)]
            piece[:] = _ZEROS[: len(piece)]
        for place in MapState:
            if place not in (MapState.KEYS_MAX, MapState.HASH_SECRET):
                self._state[place] = 0
        self.latest_offset = NO_OFFSET

    def skip_to(self, offset: int) -> None:
        """Sets `latest_offset` to just before `offset`, for a range without records to map."""
        self.latest_offset = max(self.latest_offset, offset - 1)

    def put(self, run: Run, *, start_offset: int) -> bool:
        """Adds every keyed record of a run from `start_offset` on; returns whether all had room.

        If not, the map is full, and `latest_offset` is that of the last record in it.

        Raises:
            CorruptRecordError: a record breaks a rule of the format; it has the position.
        """
        status = kernels.put_keys(
            run.data(), start_offset, run.rows,
            self._slots, self._arena, self._state, self._group,
        )  # fmt: skip
        if status < 0:
            raise self._error(run, -status)
        if status:
            self.skip_to(run.next_offset)
        else:
            self.skip_to(run.batches[self._state[MapState.BATCH]].base_offset)
            self.skip_to(self._state[MapState.LAST_OFFSET] + 1)
        return bool(status)

    def choose(self, run: Run) -> None:
        """Marks in a run which of its records are kept.

        Raises:
            CorruptRecordError: a record breaks a rule of the format; it has the position.
        """
        status = kernels.choose_records(
            run.data(), run.rows,
            self._slots, self._arena, self._state, self._group, run.keeps,
        )  # fmt: skip
        if status < 0:
            raise self._error(run, -status)

    def _error(self, run: Run, fault: int) -> CorruptRecordError:
        index = self._state[MapState.BATCH]
        row = BATCH_ROW_SIZE * index
        error = record_error(
            run.batches[index],
            RecordFault(fault),
            index=self._state[MapState.RECORD],
            size=run.rows[row + BatchRow.LIMIT] - run.rows[row + BatchRow.POSITION],
        )
        error.position = run.positions[index]
        return error
