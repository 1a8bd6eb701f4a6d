"""Small directories of every kind, as a broker leaves them, and the damage that is done to them.

    plain          several segments, every codec, two leader epochs
    transactions   idempotent producers, transactions that commit, abort and stay open
    compacted      what a round of cleaning has left, with gaps in its offsets
    legacy         messages of v0 and v1 in front of record batches

No directory has two batches with the same bytes, so a batch that comes back is known by them.
"""

import random
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from tailrace.cluster.image import Topic
from tailrace.model import Codec, LeaderEpoch
from tailrace.reading.directory import list_segments
from tailrace.records.batch import Batch
from tailrace.records.control import ControlType
from tailrace.records.legacy import read_all_batches
from tailrace.storage import names
from tailrace.storage.checkpoints import (
    format_topic_id,
    write_atomically,
    write_offset_checkpoint,
    write_partition_metadata,
)
from tailrace.storage.config import LogConfig
from tailrace.storage.log import Log
from tailrace.testing import MemoryFiles
from tests.unit.cluster.metadata_logs import save_topics
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    append,
    batch,
    open_at,
    settings,
    stop_cleanly,
)
from tests.unit.storage.cleaner.shelves import Shelf
from tests.unit.storage.test_legacy_segments import old_segment
from tests.unit.storage.transactional import TransactionalProducer

ROOT = "data"
TOPIC_ID = uuid.UUID("12345678-1234-4234-8234-123456789abc")
STAMPED_BYTES = 16
"""Start of a batch: base offset, length and leader epoch, which its checksum does not cover."""

_SMALL = {
    "internal.segment.bytes": "700",
    "segment.index.bytes": "120",
    "index.interval.bytes": "60",
}


class Written(NamedTuple):
    """A batch as it stood in the log."""

    base_offset: int
    last_offset: int
    content: bytes
    """The bytes that its checksum covers, or would cover in an older format."""
    legacy: bool


@dataclass(frozen=True, kw_only=True)
class Directory:
    """A directory as it was written, and how to open its one partition."""

    name: str
    files: MemoryFiles
    config: LogConfig
    written: tuple[Written, ...]
    """In the order of the log."""
    known: dict[bytes, Written] = field(default_factory=dict)

    def copy(self) -> MemoryFiles:
        """The same files once more, to be damaged."""
        return self.files.crash(keep_unsynced=True)

    @property
    def has_gaps(self) -> bool:
        """Whether offsets are missing between two batches."""
        pairs = zip(self.written, self.written[1:], strict=False)
        return any(after.base_offset > before.last_offset + 1 for before, after in pairs)


def written_as(each: Batch) -> Written:
    """Return the fields by which a batch is recognized."""
    content = bytes(each.view[STAMPED_BYTES:])
    return Written(each.base_offset, each.last_offset, content, each.legacy is not None)


def all_paths(files: MemoryFiles, folder: str = ROOT) -> list[str]:
    """Every file, in the order of their paths."""
    found = []
    for name in files.list(folder):
        path = f"{folder}/{name}"
        found += all_paths(files, path) if files.is_directory(path) else [path]
    return found


@cache
def directories() -> tuple[Directory, ...]:
    """One of each kind."""
    return tuple(map(_finished, (_plain, _transactions, _compacted, _legacy)))


def _finished(make: Callable[[], tuple[MemoryFiles, dict[str, str]]]) -> Directory:
    files, configs = make()
    config = settings(**{name.replace(".", "_"): value for name, value in configs.items()})
    written = []
    for segment in list_segments(files, FOLDER)[0]:
        data = memoryview(files.content(segment.path))
        written += [written_as(each) for _, each in read_all_batches(data)]
    end = written[-1].last_offset + 1
    write_partition_metadata(files, FOLDER, names.PARTITION_METADATA, topic_id=TOPIC_ID)
    for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS):
        write_offset_checkpoint(files, ROOT, name, offsets={PARTITION: end})
    for name in (names.LOG_START_OFFSETS, names.CLEANER_OFFSETS):
        write_offset_checkpoint(files, ROOT, name, offsets={PARTITION: 0})
    topic = Topic(name="flights", topic_id=TOPIC_ID, partitions=(0,), configs=configs)
    save_topics(files, topic, directory=ROOT)
    lines = ("version=1", "node.id=1", "cluster.id=c", f"directory.id={format_topic_id(TOPIC_ID)}")
    write_atomically(files, ROOT, names.META_PROPERTIES, text="\n".join(lines) + "\n")
    text = '{"version":0,"brokerEpoch":-1}'
    write_atomically(files, ROOT, names.CLEAN_SHUTDOWN, text=text)
    assert len({each.content for each in written}) == len(written)
    return Directory(
        name=make.__name__.strip("_"),
        files=files,
        config=config,
        written=tuple(written),
        known={each.content: each for each in written},
    )


def _plain() -> tuple[MemoryFiles, dict[str, str]]:
    files = MemoryFiles()
    log = open_at(files, config=settings(**{n.replace(".", "_"): v for n, v in _SMALL.items()}))
    for number in range(16):
        values = [b"%03d %d " % (number, each) * 5 for each in range(number % 3 + 1)]
        times = [NOW + 10 * number + each for each in range(len(values))]
        data = batch(*values, codec=Codec(number % 5), timestamps=times)
        append(log, data, epoch=number // 7)
    stop_cleanly(log)
    return files, dict(_SMALL)


def _transactions() -> tuple[MemoryFiles, dict[str, str]]:
    files = MemoryFiles()
    log = open_at(files, config=settings(**{n.replace(".", "_"): v for n, v in _SMALL.items()}))
    first, second = TransactionalProducer(log, 7), TransactionalProducer(log, 8)
    for number in range(6):
        first.append(2, value=b"first %d" % number)
        second.append(value=b"second %d" % number * 3)
        _end(log, first, number, is_commit=number % 3 != 0)
        _numbered(log, 9, number)
        if number != 5:
            _end(log, second, number, is_commit=number % 2 == 0)
    stop_cleanly(log)
    return files, dict(_SMALL)


def _end(log: Log, producer: TransactionalProducer, number: int, *, is_commit: bool) -> None:
    producer.end(is_commit=is_commit, coordinator_epoch=number)
    log.advance_high_watermark(log.end_offset)


def _numbered(log: Log, producer_id: int, number: int) -> None:
    data = batch(
        b"numbered %d" % number, producer_id=producer_id, producer_epoch=0, base_sequence=number
    )
    log.append(memoryview(data), leader_epoch=LeaderEpoch(0), now_ms=NOW)


def _compacted() -> tuple[MemoryFiles, dict[str, str]]:
    configs = {**_SMALL, "cleanup.policy": "compact"}
    shelf = Shelf(segment_bytes=700, segment_index_bytes=120, index_interval_bytes=60)
    for number in range(12):
        keys = (number % 5, number % 3, number)
        if number in {1, 5}:
            shelf.append_transaction(7, *keys)
            shelf.end_transaction(7, ControlType.ABORT if number == 1 else ControlType.COMMIT)
        else:
            shelf.append_keys(*keys, codec=Codec(number % 5))
        if number % 3 == 2:
            shelf.roll()
    shelf.clean()
    for number in range(4):
        shelf.append_keys(number, 1, 40 + number)
        if number == 1:
            shelf.roll()
    for segment in shelf.segments:
        segment.finish()
        segment.sync()
        segment.close()
    files = shelf.files
    for path in all_paths(files):
        if path.endswith(names.DELETED_SUFFIX):
            files.remove(path)
    # Snapshots and epochs, which a shelf does not write.
    config = settings(**{name.replace(".", "_"): value for name, value in configs.items()})
    stop_cleanly(open_at(files, config=config))
    return files, configs


def _legacy() -> tuple[MemoryFiles, dict[str, str]]:
    files = MemoryFiles()
    configs = {**_SMALL, "internal.segment.bytes": "1200"}
    config = settings(**{name.replace(".", "_"): value for name, value in configs.items()})
    log = open_at(files, config=config)
    log.append_as_follower(memoryview(bytearray(old_segment()[0])), now_ms=NOW)
    for number in range(9):
        append(log, batch(b"new %d" % number * 20, codec=Codec(number % 5)))
    stop_cleanly(log)
    return files, configs


def damage(
    chance: random.Random, files: MemoryFiles, spared: Iterable[str] = ()
) -> list[tuple[str, str]]:
    """Do one to three pieces of damage; returns what was done to which file."""
    done = []
    for _ in range(chance.randint(1, 3)):
        paths = [path for path in all_paths(files) if path not in spared]
        # Logs are what matters most.
        if chance.random() < 0.5:
            paths = [path for path in paths if path.endswith(names.LOG_SUFFIX)] or paths
        if not paths:
            break
        path = chance.choice(paths)
        kind = chance.choice(_KINDS)
        kind(chance, files, path)
        done.append((kind.__name__.strip("_"), path))
    return done


def _flip(chance: random.Random, files: MemoryFiles, path: str) -> None:
    data = bytearray(files.content(path))
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    files.overwrite(path, bytes(data))


def _set(chance: random.Random, files: MemoryFiles, path: str) -> None:
    data = bytearray(files.content(path))
    at, size = chance.randrange(len(data) + 1), chance.choice((1, 1, 2, 4, 8))
    fill = chance.choice((b"\x00", b"\xff", b"\x7f", None))
    data[at : at + size] = chance.randbytes(size) if fill is None else fill * size
    files.overwrite(path, bytes(data))


def _cut(chance: random.Random, files: MemoryFiles, path: str) -> None:
    data = files.content(path)
    files.overwrite(path, data[: chance.randrange(len(data) + 1)])


def _take_out(chance: random.Random, files: MemoryFiles, path: str) -> None:
    data = files.content(path)
    at = chance.randrange(len(data) + 1)
    files.overwrite(path, data[:at] + data[at + chance.randint(1, 80) :])


def _add(chance: random.Random, files: MemoryFiles, path: str) -> None:
    files.overwrite(path, files.content(path) + chance.randbytes(chance.choice((1, 8, 12, 70))))


def _repeat(chance: random.Random, files: MemoryFiles, path: str) -> None:
    data = files.content(path)
    files.overwrite(path, data + data[chance.randrange(len(data) + 1) :])


def _zero(chance: random.Random, files: MemoryFiles, path: str) -> None:
    data = bytearray(files.content(path))
    start = 64 * chance.randrange(len(data) // 64 + 1)
    data[start : start + 64] = bytes(len(data[start : start + 64]))
    files.overwrite(path, bytes(data))


def _delete(chance: random.Random, files: MemoryFiles, path: str) -> None:  # noqa: ARG001
    files.remove(path)


def _swap(chance: random.Random, files: MemoryFiles, path: str) -> None:
    """A file and another of its folder have each other's content."""
    folder = path.rpartition("/")[0]
    other = chance.choice([each for each in all_paths(files) if each.rpartition("/")[0] == folder])
    mine, others = files.content(path), files.content(other)
    files.overwrite(path, others)
    files.overwrite(other, mine)


def _duplicate(chance: random.Random, files: MemoryFiles, path: str) -> None:
    """A segment under another name, all of its files or one."""
    folder, _, name = path.rpartition("/")
    parsed = names.parse_segment_file_name(name)
    if parsed is None:
        return
    base = chance.choice((0, parsed[0] + 1, chance.randrange(60), 2**40, 2**63 - 1))
    taken = files.list(folder) if chance.randrange(2) else [name]
    for each in taken:
        other = names.parse_segment_file_name(each)
        if other is not None and other[0] == parsed[0]:
            target = f"{folder}/{names.segment_file_name(base, other[1])}"
            files.open(target, create=True)
            files.overwrite(target, files.content(f"{folder}/{each}"))


def _rename(chance: random.Random, files: MemoryFiles, path: str) -> None:
    suffixes = (names.CLEANED_SUFFIX, names.SWAP_SUFFIX, names.DELETED_SUFFIX)
    files.rename(path, path + chance.choice(suffixes))


def _publish(chance: random.Random, files: MemoryFiles, path: str) -> None:
    """A segment that compaction has made stands beside the one that it replaces."""
    if path.endswith(names.LOG_SUFFIX):
        target = path + names.SWAP_SUFFIX
        files.open(target, create=True)
        files.overwrite(target, files.content(path))
        if chance.randrange(2):
            _flip(chance, files, target)


_KINDS = (
    _flip, _flip, _set, _set, _cut, _take_out, _add, _repeat, _zero, _delete, _swap, _duplicate,
    _rename, _publish,
)  # fmt: skip
