"""Fuzz targets of a disk: text files, indexes, a segment to read, a folder to recover.

If a target gives data back, the data is compared with what was written.
"""

import struct
import uuid
from collections.abc import Callable, Iterable

import crc32c

from tailrace.errors import CorruptionError, DirectoryError
from tailrace.model import Codec, Offset, Position, SpecialTimestamp
from tailrace.reading.reader import open_log_reader
from tailrace.records.batch import Batch, UnsupportedMagicError
from tailrace.storage import checkpoints, names
from tailrace.storage.directories import open_log_directory
from tailrace.storage.index.offset import open_offset_index
from tailrace.storage.index.time import open_time_index
from tailrace.storage.index.transaction import open_transaction_index
from tailrace.storage.offset_lookup import find_offset
from tailrace.storage.snapshots import (
    decode_snapshot,
    encode_snapshot,
)
from tailrace.testing import MemoryFiles
from tests.fuzz.engine import FuzzTarget
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    append,
    batch,
    filled,
    open_at,
    path,
    settings,
    stop_cleanly,
)
from tests.unit.storage.producer_builders import (
    aborted_txn,
    known_batch,
    known_producer,
    known_producers,
)

ID = uuid.UUID("12345678-1234-4234-8234-123456789abc")


def _file(read: Callable[[MemoryFiles, str], object]) -> Callable[[bytes], object]:
    """A target that reads the input as a file."""

    def run(data: bytes) -> object:
        files = MemoryFiles()
        files.make_directory("data")
        files.open("data/file", create=True)
        files.overwrite("data/file", data)
        return read(files, "data/file")

    return run


def open_directory(data: bytes) -> object:
    """Open a log directory with this meta.properties."""
    files = MemoryFiles()
    files.make_directory("data")
    files.open("data/meta.properties", create=True)
    files.overwrite("data/meta.properties", data)
    return open_log_directory(files, "data", node_id=1, new_id=ID)


def read_name(data: bytes) -> object:
    """Take a file's name apart; what was set aside is known again, and no start removes it."""
    name = data.decode("latin-1")
    parsed = names.parse_set_aside_file_name(name)
    is_removed = names.is_removed_at_start(name)
    if parsed is not None:
        stem = names.set_aside_file_name(*parsed).removesuffix(names.KEPT_SUFFIX)
        assert name.startswith(stem)
        assert names.parse_segment_file_name(name) is None
    assert not is_removed or name.endswith((".deleted", ".tmp"))
    assert not (is_removed and parsed is not None)
    return parsed


_FILES = MemoryFiles()
_LOG = filled(_FILES, 12, config=settings(segment_bytes=420, index_interval_bytes=60))
append(_LOG, batch(b"x" * 100, b"y" * 40, codec=Codec.GZIP, timestamps=[NOW + 40, NOW + 30]))
WRITTEN = {bytes(each.view) for each in _LOG.batches(0)}
BASES = tuple(segment.base_offset for segment in _LOG.segments)
stop_cleanly(_LOG)
_LAST = BASES[-1]


def _disk(name: str, data: bytes) -> MemoryFiles:
    files = _FILES.crash(keep_unsynced=True)
    files.overwrite(name, data)
    return files


def _hold(batches: Iterable[Batch]) -> int:
    """Every batch that passes its check is, byte for byte, one that was written.

    Base offset, epoch and length stand outside of the checksum, so they are not held; the reader
    holds offsets against their neighbours, which leaves the last batch of a log.
    """
    known = {each[12 + 4 :] for each in WRITTEN}
    count = 0
    for each in batches:
        each.check()
        assert bytes(each.view[16:]) in known, each
        count += 1
    return count


def read_segment(name: str) -> Callable[[bytes], object]:
    """A target that reads the whole folder beside a broker, with one file replaced."""

    def run(data: bytes) -> object:
        reader = open_log_reader(_disk(name, data), FOLDER)
        middle = (reader.start_offset + reader.end_offset) // 2
        _hold(reader.batches(Offset(middle), reader.end_offset))
        return _hold(reader.batches(reader.start_offset, reader.end_offset))

    return run


def recover_folder(name: str, *, is_clean: bool) -> Callable[[bytes], object]:
    """A target that opens the folder with one file replaced, searches, reads and appends."""

    def run(data: bytes) -> object:
        files = _disk(name, data)
        log = open_at(files, is_clean=is_clean, checkpoints=(_LAST, 0))
        for timestamp in (SpecialTimestamp.MAX_TIMESTAMP, NOW + 5):
            find_offset(log, timestamp)
        for offset in (log.start_offset, log.end_offset // 2):
            log.read(offset, bytes_max=1 << 20, is_first_whole=True)
        count = _hold(log.batches(log.start_offset))
        if not is_clean:
            done = append(log, batch(b"more"))
            assert done.base_offset == log.end_offset - 1
        stop_cleanly(log)
        return count

    return run


def read_snapshot(data: bytes) -> object:
    """Decode a snapshot of producers whose CRC holds; what is taken can be written again."""
    if len(data) >= 6:
        data = data[:2] + struct.pack(">I", crc32c.crc32c(data[6:])) + data[6:]
    found = decode_snapshot(data)
    assert decode_snapshot(encode_snapshot(found)) == found
    return found


def read_transaction_index(data: bytes) -> object:
    """Check, search, cut and append to an index; the answers are held against its entries."""
    files = MemoryFiles()
    files.open("index", create=True)
    files.overwrite("index", data)
    index = open_transaction_index(files, "index", base_offset=Offset(0))
    index.collect(Offset(0), Offset(1))
    index.check()
    entries = index.entries()
    for offset in (Offset(0), *(entry.last_offset for entry in entries)):
        found, is_complete = index.collect(offset, Offset(offset + 5))
        wanted = [entry for entry in entries if entry.last_offset >= offset]
        ends = [n for n, entry in enumerate(wanted) if entry.last_stable_offset >= offset + 5]
        assert is_complete == bool(ends)
        seen = wanted[: ends[0] + 1] if ends else wanted
        assert found == [entry for entry in seen if entry.first_offset < offset + 5]
    middle = entries[len(entries) // 2].last_offset if entries else Offset(0)
    index.truncate_to(middle)
    kept = tuple(entry for entry in entries if entry.last_offset < middle)
    index.append(aborted_txn(1, middle, middle, middle))
    assert open_transaction_index(files, "index", base_offset=Offset(0)).entries()[:-1] == kept
    return len(entries)


def read_offset_index(data: bytes) -> int:
    """Search an index as it is; one that passes its check is then cut and appended to."""
    files = MemoryFiles()
    files.open("index", create=True)
    files.overwrite("index", data)
    index = open_offset_index(files, "index", base_offset=Offset(BASE), bytes_max=80)
    for offset in (BASE, BASE + 2, BASE + 2**31 - 1):
        found = index.lookup(Offset(offset))
        assert found.position == 0 or found.offset <= offset
    for position in (0, 100, 2**31 - 1):
        first = index.first_from(Position(position))
        assert first is None or first.position >= position
    try:
        index.check(300)
    finally:
        index.truncate_to(Offset(BASE + 2), bytes_max=80)
        assert index.lookup(Offset(BASE + 2**31 - 1)).offset < BASE + 2 or not index.entries.count
    last = index.lookup(Offset(BASE + 2**31 - 1))
    if not index.is_full:
        index.append(Offset(max(last.offset, BASE) + 1), Position(299))
        assert index.lookup(Offset(BASE + 2**31 - 1)).position == 299
    index.entries.trim()
    index.entries.close()
    return index.entries.count


def read_time_index(data: bytes) -> int:
    """Search an index as it is; one that passes its check is then cut and appended to."""
    files = MemoryFiles()
    files.open("index", create=True)
    files.overwrite("index", data)
    index = open_time_index(files, "index", base_offset=Offset(BASE), bytes_max=80)
    for timestamp in (-1, NOW + 2, 2**63 - 1):
        assert index.lookup(timestamp).timestamp <= timestamp
    try:
        index.check()
    finally:
        index.truncate_to(Offset(BASE + 2), bytes_max=80)
    if not index.is_full:
        newest = max(index.last.timestamp, NOW) + 1
        index.maybe_append(newest, Offset(max(index.last.offset, BASE + 5)))
        assert index.last.timestamp == newest
    index.entries.trim()
    index.entries.close()
    return index.entries.count


BASE = 170
"""Base offset of the indexes."""

REFUSALS = (CorruptionError, DirectoryError, UnsupportedMagicError)

_INDEX = struct.pack(">iiiiii", 1, 70, 2, 140, 3, 210)
_TIMES = struct.pack(">qiqiqi", NOW + 1, 1, NOW + 2, 2, NOW + 3, 3)
_PRODUCERS = known_producers(
    {
        7: known_producer(2, (known_batch(5, 11, 1, NOW),), NOW),
        8: known_producer(0, (), NOW, 3, 40),
    }
)
_ABORTED = struct.pack(">hqqqqhqqqqhqqqq", 0, 1, 0, 10, 11, 0, 2, 5, 15, 13, 0, 1, 18, 35, 36)


def _folder_targets() -> list[FuzzTarget]:
    found = []
    for base in (BASES[0], _LAST):
        for suffix, extra in ((".log", b""), (".index", _INDEX), (".timeindex", _TIMES)):
            name = path(base, suffix)
            seeds = (_FILES.content(name) or extra, *([extra] if extra else []))
            runs = {
                "read": read_segment(name),
                "open clean": recover_folder(name, is_clean=True),
                "recover": recover_folder(name, is_clean=False),
            }
            found += [
                FuzzTarget(
                    name=f"{kind} {base}{suffix}",
                    seeds=seeds,
                    run=run,
                    refusals=REFUSALS,
                    share=1.0 if kind == "read" else 0.25,
                )
                for kind, run in runs.items()
            ]
    return found


TARGETS: tuple[FuzzTarget, ...] = (
    FuzzTarget(
        name="offset checkpoint",
        seeds=(b"0\n2\nflights 0 84194\nflights 1 84194\n", b"0\n0\n"),
        run=_file(checkpoints.read_offset_checkpoint),
        refusals=(CorruptionError,),
    ),
    FuzzTarget(
        name="epoch checkpoint",
        seeds=(b"0\n2\n0 0\n3 170\n",),
        run=_file(checkpoints.read_epoch_checkpoint),
        refusals=(CorruptionError,),
    ),
    FuzzTarget(
        name="partition.metadata",
        seeds=(b"version: 0\ntopic_id: " + checkpoints.format_topic_id(ID).encode(),),
        run=_file(checkpoints.read_partition_metadata),
        refusals=(CorruptionError,),
    ),
    FuzzTarget(
        name="meta.properties",
        seeds=(b"#\nversion=1\nnode.id=1\ncluster.id=abc\ndirectory.id=def\n", b"broker.id=1\n"),
        run=open_directory,
        refusals=(DirectoryError,),
    ),
    FuzzTarget(
        name="producer snapshot",
        seeds=(encode_snapshot(_PRODUCERS), encode_snapshot({})),
        run=read_snapshot,
        refusals=(CorruptionError,),
    ),
    FuzzTarget(
        name="transaction index",
        seeds=(_ABORTED, _ABORTED[:34], b""),
        run=read_transaction_index,
        refusals=(CorruptionError,),
    ),
    FuzzTarget(
        name="offset index",
        seeds=(_INDEX, _INDEX + bytes(56), b""),
        run=read_offset_index,
        refusals=(CorruptionError,),
    ),
    FuzzTarget(
        name="time index",
        seeds=(_TIMES, _TIMES + bytes(44), b""),
        run=read_time_index,
        refusals=(CorruptionError,),
    ),
    FuzzTarget(
        name="name of a file in a partition",
        seeds=(
            names.set_aside_file_name(170, 8391).encode(),
            b"set-aside-00000000000000000170-0-2.bytes",
            b"set-aside-00000000000000000170-0.bytes.tmp",
            b"00000000000000000170.log.deleted",
            b"leader-epoch-checkpoint.tmp",
        ),
        run=read_name,
        refusals=(),
    ),
    *_folder_targets(),
)
