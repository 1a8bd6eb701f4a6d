"""`KeyMap`: the newest offset of every key in a stretch of log, in memory of a fixed size.

The buffer that the settings give is taken once: one half for slots, one for the keys themselves
(see `tailrace.kernels.key_map` for the drawing). A slot costs 16 bytes and three of four may be in
use, so a key of 20 bytes takes 42, and 128 MiB have room for three million keys.

When there is no room for one more key the map is full: the caller cleans with what it has and comes
again for the rest. A key that fits an empty map always ends up in some round. One that is larger
than the whole half for keys never does: `choose` then keeps all of its records, so that nothing is
lost and the round goes on.

Invariant: the map never says of a record that a newer one exists, unless it was given that one.
"""

from typing import Final, NamedTuple

from tailrace import kernels
from tailrace.kernels import Chosen, MapState, RecordFault
from tailrace.records.batch import Batch
from tailrace.records.checks import record_error

SIZE_BYTES_MIN: Final = 64
"""Two slots, one of which stays free, and an arena of 32 bytes."""

SIZE_BYTES_MAX: Final = 2**31 - 1
"""What one round of Kafka's cleaner takes too; places in the arena have 32 bits."""

_SLOT_BYTES: Final = 16
_ZEROS: Final = bytes(1 << 20)

NO_OFFSET: Final = -1
"""`latest_offset` of a map that has seen nothing."""


class Choice(NamedTuple):
    """Which records of a batch stay."""

    keeps: bytearray
    """One byte for each record: 1 if it stays."""
    kept: int
    unkeyed: int
    """Records that go because they have no key."""
    tombstones: int
    """Records without a value among those that stay."""
    timestamp_delta_max: int
    """Of those that stay; 0 when none does."""
    size: int
    """Bytes of those that stay, before compression."""
    timestamp_delta_first: int = 0
    """Of the first one that stays."""


class KeyMap:
    """Keys and offsets of one round of cleaning."""

    def __init__(self, size_bytes: int) -> None:
        """Takes the memory at once; `size_bytes` beyond 2 GiB are not used."""
        assert size_bytes >= SIZE_BYTES_MIN
        size_bytes = min(size_bytes, SIZE_BYTES_MAX)
        slot_count = size_bytes // 2 // _SLOT_BYTES
        self._slot_bytes = memoryview(bytearray(slot_count * _SLOT_BYTES))
        self._slots = self._slot_bytes.cast("q")
        self._arena = bytearray(size_bytes - len(self._slot_bytes))
        self._state = kernels.int64s(len(MapState))
        self._state[MapState.KEYS_MAX] = slot_count * 3 // 4
        self.latest_offset = NO_OFFSET
        """Everything up to this offset has been seen; -1 for nothing."""

    @property
    def key_count(self) -> int:
        """Different keys in the map."""
        return self._state[MapState.KEYS]

    @property
    def unmapped(self) -> int:
        """Records whose key is larger than the map; they all stay."""
        return self._state[MapState.UNMAPPED]

    @property
    def load(self) -> float:
        """Share of the map in use, from 0 to 1: of slots or of bytes, whichever is fuller."""
        return max(
            self._state[MapState.KEYS] / self._state[MapState.KEYS_MAX],
            self._state[MapState.ARENA_USED] / len(self._arena),
        )

    def clear(self) -> None:
        """Forgets everything; the memory stays."""
        # A map without keys has zeros already, and its pages need not exist yet.
        for start in range(0, len(self._slot_bytes) if self.key_count else 0, len(_ZEROS)):
            piece = self._slot_bytes[start : start + len(_ZEROS)]
            piece[:] = _ZEROS[: len(piece)]
        for place in MapState:
            if place is not MapState.KEYS_MAX:
                self._state[place] = 0
        self.latest_offset = NO_OFFSET

    def skip_to(self, offset: int) -> None:
        """Says that everything before `offset` has been seen, where nothing of it has a place."""
        self.latest_offset = max(self.latest_offset, offset - 1)

    def put(self, batch: Batch, *, start_offset: int) -> bool:
        """Notes every keyed record of a batch from `start_offset` on; says whether all had room.

        If not, the map is full, and `latest_offset` is that of the last record that is in it.

        Raises:
            CorruptRecordError: a record breaks a rule of the format.
            CorruptCompressionError: the payload cannot be decompressed.
            UnsupportedCodecError: the attributes have a codec that nobody has defined.
        """
        view = batch.records_view()
        walked = kernels.put_keys(
            view, 0, len(view), batch.record_count,
            batch.base_offset, start_offset, self._slots, self._arena, self._state,
        )  # fmt: skip
        if walked < 0:
            index = self._state[MapState.WALKED]
            raise record_error(batch, RecordFault(-walked), index=index, size=len(view))
        is_whole = bool(walked == batch.record_count)
        if is_whole:
            self.skip_to(batch.next_offset)
        elif walked:
            self.skip_to(self._state[MapState.LAST_OFFSET] + 1)
        return is_whole

    def choose(self, batch: Batch, view: memoryview, *, keeps_tombstones: bool) -> Choice:
        """Which records of a batch stay; `view` is its `records_view()`.

        Raises:
            CorruptRecordError: a record breaks a rule of the format.
        """
        # A count that is a lie must not cost memory before the kernel refuses it.
        keeps = bytearray(max(0, min(batch.record_count, len(view))))
        totals = kernels.int64s(len(Chosen))
        kept = kernels.choose_records(
            view, 0, len(view), batch.record_count,
            batch.base_offset, self.latest_offset, int(keeps_tombstones),
            self._slots, self._arena, keeps, totals,
        )  # fmt: skip
        if kept < 0:
            index = totals[Chosen.RECORDS]
            raise record_error(batch, RecordFault(-kept), index=index, size=len(view))
        return Choice(
            keeps=keeps,
            kept=kept,
            unkeyed=totals[Chosen.UNKEYED],
            tombstones=totals[Chosen.TOMBSTONES],
            timestamp_delta_max=totals[Chosen.TIMESTAMP_DELTA_MAX],
            size=totals[Chosen.SIZE],
            timestamp_delta_first=totals[Chosen.TIMESTAMP_DELTA_FIRST],
        )
