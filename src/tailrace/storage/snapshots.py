"""The state of a producer, and the `.snapshot` files that keep it between two starts.

    00000000000000000170.snapshot       the state just before offset 170; big endian

     0   2  version             1
     2   4  CRC-32C             of everything from byte 6 on
     6   4  number of entries
    10  46  for each producer:
             0   8  producer id
             8   2  epoch
            10   4  last sequence       of the last batch; -1 if there is none
            14   8  last offset         -1 if there is none
            22   4  offset delta        from the first offset of that batch to its last
            26   8  timestamp           largest of that batch, or of the last marker, in ms
            34   4  coordinator epoch   of the last marker, or -1
            38   8  first offset of the open transaction, or -1

`producers` decides when a snapshot is written or read. Ended transactions are not in it, because
their markers are in the log.

Invariant: all state can be rebuilt from the batches in the log, so a missing or torn snapshot only
makes the next start slower. A snapshot that is not whole is refused.
"""

import logging
from collections.abc import Container, Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from tailrace.errors import CorruptionError
from tailrace.model import Offset, ProducerEpoch, ProducerId
from tailrace.records import packages
from tailrace.records.layout import SEQUENCE_MAX
from tailrace.runtime.files import Files, read_exactly
from tailrace.storage.checkpoints import write_whole
from tailrace.storage.names import SNAPSHOT_SUFFIX, parse_segment_file_name, segment_file_name

logger = logging.getLogger(__name__)

SNAPSHOT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Five million producers; a larger file is not read, and the state is rebuilt from the log."""

NONE: Final = -1
"""No epoch, sequence, offset or time."""

_NO_OFFSET: Final = Offset(NONE)

_VERSION: Final = 1
_HEADER: Final = Struct(">hIi")
_CRC_START: Final = 6
_ENTRY: Final = Struct(">qhiqiqiq")


class KnownBatch(NamedTuple):
    """A batch of a producer that is in the log."""

    last_sequence: int
    """-1 for a batch that a coordinator wrote in the producer's name."""
    last_offset: Offset
    offset_delta: int
    """From the first offset to the last."""
    timestamp: int
    """Largest timestamp in milliseconds; the broker's on a topic with LogAppendTime."""

    @property
    def first_sequence(self) -> int:
        """Sequence of the first record, or -1; a batch may run across 2147483647, to 0."""
        if self.last_sequence < 0:
            return NONE
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def base_offset(self) -> Offset:
        """Offset of the first record."""
        return Offset(self.last_offset - self.offset_delta)


class KnownProducer(NamedTuple):
    """The state of one producer id in a log."""

    epoch: ProducerEpoch
    batches: tuple[KnownBatch, ...]
    """The last batches of that epoch, at most five, newest last; none if only a marker is known."""
    timestamp: int
    """Timestamp of the newest batch or marker, in milliseconds."""
    coordinator_epoch: int = NONE
    """Coordinator epoch of the newest marker; markers with an older one are refused."""
    transaction_start: Offset = _NO_OFFSET
    """Offset of the first record in the open transaction, or -1."""
    seen_ms: int = NONE
    """The broker's clock at the last append; -1 for a producer that was read at the start."""

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, or -1."""
        return self.batches[-1].last_sequence if self.batches else NONE

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record, or -1 if only a marker is known."""
        return self.batches[-1].last_offset if self.batches else _NO_OFFSET

    @property
    def has_open_transaction(self) -> bool:
        """Whether it has written to a transaction that no marker has ended."""
        return self.transaction_start >= 0

    def is_writing(self, epoch: int) -> bool:
        """Whether the open transaction is of this producer epoch.

        A transaction of an older epoch waits for its marker: the next one begins after that.
        """
        return self.transaction_start >= 0 and epoch == self.epoch


def snapshot_path(directory: str, offset: int) -> str:
    """The file with the state just before `offset`."""
    return f"{directory}/{segment_file_name(offset, SNAPSHOT_SUFFIX)}"


def list_snapshots(files: Files, directory: str) -> list[Offset]:
    """The offsets of the snapshots in a folder, rising; the files are not read.

    Raises:
        OSError: the folder cannot be read.
    """
    parsed = [parse_segment_file_name(name) for name in files.list(directory)]
    return sorted(
        Offset(each[0]) for each in parsed if each is not None and each[1] == SNAPSHOT_SUFFIX
    )


def read_snapshot(files: Files, path: str) -> dict[ProducerId, KnownProducer]:
    """The producers in a snapshot, each with its last batch only.

    Raises:
        CorruptionError: the file is not a whole snapshot of version 1.
        OSError: it cannot be read.
    """
    file = files.open(path, read_only=True)
    try:
        size = file.size()
        if size > SNAPSHOT_BYTES_MAX:
            raise CorruptionError(f"{size} bytes are too many for a snapshot", path=path)
        return decode_snapshot(read_exactly(file, path, position=0, size=size))
    except CorruptionError as error:
        raise error.located(path=path) from error
    finally:
        file.close()


def write_snapshot(
    files: Files, path: str, *, producers: Mapping[ProducerId, KnownProducer], is_synced: bool
) -> None:
    """Write or replace a snapshot; with `is_synced`, its bytes are on the device on return.

    After a crash or a failure the file may be torn; `read_snapshot` refuses it then.

    Raises:
        OSError: the device is full or failing.
    """
    write_whole(files, path, encode_snapshot(producers), is_synced=is_synced)


class SnapshotFiles:
    """The snapshots in the folder of one log."""

    def __init__(self, files: Files, directory: str) -> None:
        """Knows of no snapshot, and reads no file; `load` does."""
        self._files = files
        self._directory = directory
        # Offsets of the snapshots in the folder, rising.
        self._offsets: list[Offset] = []
        # Offset of the newest snapshot, or where the replay of batches began.
        self._newest = Offset(0)
        # Whether `load` has removed snapshots that must not come back.
        self._is_tail_removed = False

    @property
    def paths(self) -> list[str]:
        """The snapshots in the folder, the oldest first."""
        return [snapshot_path(self._directory, offset) for offset in self._offsets]

    def write(
        self,
        offset: Offset,
        producers: Mapping[ProducerId, KnownProducer],
        *,
        is_synced: bool = False,
    ) -> None:
        """Write a snapshot for `offset`, the log end, unless there is one for it.

        With `is_synced` its bytes are on the device when this returns; its name is after a sync of
        the folder. A snapshot that is torn or lost in a crash makes the next start slower.

        Raises:
            OSError: the device is full or failing; the call can be repeated.
        """
        # Kafka writes none twice for an offset either: the state at an offset is one.
        if offset > self._newest:
            path = snapshot_path(self._directory, offset)
            write_snapshot(self._files, path, producers=producers, is_synced=is_synced)
            # Not before: a failed write is tried again.
            self._offsets.append(offset)
            self._newest = offset
        elif is_synced:
            self.sync(offset)

    def sync(self, offset: Offset) -> None:
        """Return when the snapshot for `offset`, if there is one, is on the device; any thread.

        Raises:
            OSError: the device failed.
        """
        try:
            file = self._files.open(snapshot_path(self._directory, offset))
        except FileNotFoundError:
            return  # No snapshot was due, or it has left service meanwhile.
        try:
            file.sync()
        finally:
            file.close()

    def move_to(self, directory: str) -> None:
        """Use another path from now on: the folder was renamed."""
        self._directory = directory

    def remove_before(self, offset: Offset) -> list[str]:
        """Forget the snapshots below `offset`; returns their existing files, for deletion."""
        return self._retire([each for each in self._offsets if each < offset])

    def remove_at(self, offsets: Iterable[Offset]) -> list[str]:
        """Forget the snapshots for these offsets; returns their existing files, for deletion.

        For segments that compaction removes: no segment begins at these offsets any more.
        """
        return self._retire([each for each in sorted(offsets) if each in self._offsets])

    def load(
        self, *, log_start: Offset, log_end: Offset, bases: Container[Offset]
    ) -> tuple[dict[ProducerId, KnownProducer], Offset]:
        """The producers in the newest sound snapshot and its offset; else none and the log start.

        Removes snapshots that are damaged, above the log end, or not above the log start, and those
        that are neither the newest nor at one of `bases`, the base offsets of the segments. Before
        anything is appended, `sync_removals` has to put that on the device.

        Raises:
            OSError: a file cannot be read or removed; call again, or open the log again.
        """
        found: dict[ProducerId, KnownProducer] | None = None
        start = log_start
        kept = []
        for offset in reversed(list_snapshots(self._files, self._directory)):
            path = snapshot_path(self._directory, offset)
            is_of_log = log_start < offset <= log_end
            if is_of_log and found is None:
                try:
                    # The newest sound one is enough; older ones stay only for the segments that
                    # begin there.
                    found, start = _read_state(self._files, path, offset=offset), offset
                    kept.append(offset)
                    continue
                except CorruptionError as error:
                    logger.warning("producer_snapshot_removed reason=%s", error)
            elif is_of_log and offset in bases:
                kept.append(offset)
                continue
            self._files.remove(path)
            self._is_tail_removed = self._is_tail_removed or offset > log_end
        self._offsets, self._newest = sorted(kept), start
        return found or {}, start

    def sync_removals(self) -> None:
        """Return when snapshots that `load` has removed above the log end stay so; any thread.

        Raises:
            OSError: the device failed, or descriptors are short; call again.
        """
        # If the file came back after a crash, it would be taken for the state of other batches that
        # have these offsets by then.
        if self._is_tail_removed:
            self._files.sync_directory(self._directory)
            self._is_tail_removed = False

    def clear(self, offset: Offset) -> None:
        """Remove all snapshots; the log restarts at `offset`.

        Raises:
            OSError: a snapshot cannot be removed; call again.
        """
        self._newest = offset
        for each in list_snapshots(self._files, self._directory):
            self._files.remove(snapshot_path(self._directory, each))
        # As in `sync_removals`: one that came back after a crash would be taken for the state of
        # other batches.
        self._files.sync_directory(self._directory)
        self._offsets = []

    def _retire(self, going: list[Offset]) -> list[str]:
        self._offsets = [each for each in self._offsets if each not in going]
        if self._newest in going:
            self._newest = max(self._offsets, default=Offset(0))
        paths = [snapshot_path(self._directory, each) for each in going]
        return [path for path in paths if self._files.exists(path)]


def _read_state(files: Files, path: str, *, offset: Offset) -> dict[ProducerId, KnownProducer]:
    """The producers in a snapshot; checks that it can be the state just before `offset`."""
    found = read_snapshot(files, path)
    starts = [known.transaction_start for known in found.values() if known.has_open_transaction]
    newest = max((known.last_offset for known in found.values()), default=_NO_OFFSET)
    if max([newest, *starts]) >= offset:
        raise CorruptionError(f"the snapshot has an offset at or above {offset}", path=path)
    # No two can begin with the same batch: the CRC is right, and the state was wrong when it was
    # written.
    if len(set(starts)) < len(starts):
        raise CorruptionError("two transactions begin at one offset", path=path)
    return found


def decode_snapshot(data: bytes) -> dict[ProducerId, KnownProducer]:
    """The producers in the bytes of a snapshot.

    Raises:
        CorruptionError: another version or size, a wrong CRC, or a negative number.
    """
    if len(data) < _HEADER.size:
        raise CorruptionError(f"{len(data)} bytes are too few for a snapshot")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptionError(f"the snapshot has version {version}, not {_VERSION}")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptionError(f"{count} entries do not make {len(data)} bytes")
    computed = packages.crc32c.crc32c(memoryview(data)[_CRC_START:])
    if computed != crc:
        raise CorruptionError(f"the stored CRC-32C is {crc}, the bytes have {computed}")
    producers: dict[ProducerId, KnownProducer] = {}
    for entry in _ENTRY.iter_unpack(memoryview(data)[_HEADER.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator, transaction = entry
        # The CRC holds, so another program has written this.
        if producer_id < 0 or delta < 0 or sequence < NONE:
            raise CorruptionError(f"producer {producer_id}: sequence {sequence}, delta {delta}")
        last = KnownBatch(sequence, offset, delta, timestamp)
        producers[producer_id] = KnownProducer(
            epoch, (last,) if offset >= 0 else (), timestamp, coordinator, transaction
        )
    return producers


def encode_snapshot(producers: Mapping[ProducerId, KnownProducer]) -> bytes:
    """The bytes of a snapshot, in the order of producer ids."""
    nothing = KnownBatch(NONE, _NO_OFFSET, 0, NONE)
    entries = []
    for producer_id, known in sorted(producers.items()):
        last = known.batches[-1] if known.batches else nothing
        entries.append(
            _ENTRY.pack(
                producer_id,
                known.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                known.timestamp,
                known.coordinator_epoch,
                known.transaction_start,
            )
        )
    data = bytearray(_HEADER.pack(_VERSION, 0, len(entries)) + b"".join(entries))
    _HEADER.pack_into(
        data, 0, _VERSION, packages.crc32c.crc32c(memoryview(data)[_CRC_START:]), len(entries)
    )
    return bytes(data)
