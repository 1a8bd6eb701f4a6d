"""Any damage at any place of any file: every tool returns what a byte-by-byte search finds.

The search of the oracle is as naive as can be: at each byte of a log file a batch of each format is
tried, and what has the right checksum is one. It shares no code with the product. What the records
of a batch are comes from the log before it was damaged.
"""

import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import crc32c
import pytest

from compat.golden import GOLDEN
from tailrace.kernels.showing import Form
from tailrace.model import Offset, TopicPartition
from tailrace.offline.cat import Choice, show_records
from tailrace.offline.export import ExportFormat, export_records
from tailrace.offline.findings import Severity
from tailrace.offline.repair import apply_repair
from tailrace.offline.repair_plan import plan_repair
from tailrace.offline.scan import scan_partition
from tailrace.offline.verify import verify
from tailrace.reading.damage import OnDamage
from tailrace.reading.directory import find_partitions, list_segments
from tailrace.reading.located import Skipped
from tailrace.reading.log import Log
from tailrace.reading.lookup import find_end
from tailrace.spark.batch_reader import read_task
from tailrace.spark.planning import OffsetRange, ScanTask
from tailrace.spark.stores import DirectoryStore
from tailrace.testing import MemoryFiles
from tests.examples import IS_EVERY_CHANGE
from tests.unit.storage.builders import FOLDER, SetClock, open_at, settings

if TYPE_CHECKING:
    from tailrace.storage.recovery import LogCut

PARTITIONS = {
    "segments": "segments-0",
    "transactions": "transactions-0",
    "codecs": "codec-zstd-0",
    "stamped": "stamped-0",
    "idempotent": "idempotent-0",
    "deleted": "deleted-0",
    "compacted": "compacted-0",
    "tombstones": "tombstones-0",
    "v0": "v0-none-0",
    "v1": "v1-gzip-0",
    "v1-lz4": "v1-lz4-0",
}
HOMES = {"stamped": "codecs", "idempotent": "transactions", "tombstones": "compacted"}


class Entry(NamedTuple):
    """A batch with the right checksum, as the naive search finds it."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    is_v2: bool
    content: bytes
    """The bytes that the checksum covers."""


class Known(NamedTuple):
    """The content of a batch before the damage."""

    base_offset: int
    values: tuple[tuple[int, bytes | None], ...]
    """Offset and value of each record that consumers see."""
    records: int
    """Number of all records, markers included."""
    is_absolute: bool
    """Whether the offsets do not depend on that of the batch, as in a wrapper of v0."""


def entry_at(data: bytes, at: int) -> Entry | None:
    """The batch of any format at a position, if its checksum is right."""
    if at + 26 > len(data):
        return None
    offset, length = struct.unpack_from(">qi", data, at)
    end = at + 12 + length
    if length < 14 or end > len(data) or offset < 0:
        return None
    magic = data[at + 16]
    if magic == 2 and length >= 49:
        (crc,) = struct.unpack_from(">I", data, at + 17)
        content = data[at + 21 : end]
        if crc32c.crc32c(content) != crc:
            return None
        (delta,) = struct.unpack_from(">i", content, 2)
        return Entry(at, 12 + length, offset, offset + delta, True, content)  # noqa: FBT003
    if magic in (0, 1):
        (crc,) = struct.unpack_from(">I", data, at + 12)
        content = data[at + 16 : end]
        if zlib.crc32(content) == crc:
            return Entry(at, 12 + length, offset, offset, False, content)  # noqa: FBT003
    return None


def all_entries(data: bytes) -> Iterator[Entry]:
    """All batches that the search finds at any byte."""
    return filter(None, (entry_at(data, at) for at in range(len(data))))


def in_order(entries: list[Entry], first: int, limit: int) -> list[Entry]:
    """The most entries that share no byte and whose offsets rise between two bounds."""
    fitting = [each for each in entries if first <= each.base_offset <= each.last_offset < limit]
    best: list[list[Entry]] = []
    for each in fitting:
        before = [
            one
            for one in best
            if one[-1].last_offset < each.base_offset
            and one[-1].position + one[-1].size <= each.position
        ]
        best.append([*max(before, key=len, default=[]), each])
    return max(best, key=len, default=[])


class Golden(NamedTuple):
    """One partition as Kafka has left it."""

    folder: Path
    partition: TopicPartition
    contents: dict[str, bytes]
    known: dict[bytes, Known]
    total: int
    """Records, markers included."""
    is_dense: bool


def logs_of(contents: dict[str, bytes]) -> list[tuple[int, str]]:
    """Base offset and name of each segment."""
    return sorted((int(name[:20]), name) for name in contents if name.endswith(".log"))


@cache
def golden(name: str) -> Golden:
    """One of `PARTITIONS`."""
    home = GOLDEN / HOMES.get(name, name)
    if name[:2] in ("v0", "v1"):
        home = GOLDEN / "old-formats"
    folder = home / "logs" / PARTITIONS[name]
    topic, _, number = folder.name.rpartition("-")
    partition = TopicPartition(topic, int(number))
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    values: dict[int, bytes | None] = {}
    counts: dict[int, tuple[int, int, int]] = {}
    with Log(held(contents, "data/x-0"), "data/x-0", partition) as log:
        for stored in log.batches():
            batch = stored.batch
            counts[batch.last_offset] = batch.base_offset, batch.last_offset, batch.record_count
        for record in log.records():
            values[record.offset] = record.value
    known = {}
    total, due = 0, None
    is_dense = True
    for _, file in logs_of(contents):
        data, at = contents[file], 0
        while at < len(data):
            entry = entry_at(data, at)
            assert entry is not None
            at += entry.size
            found = counts.get(entry.last_offset)
            if found is None:
                continue  # Below the log start.
            base, last, count = found
            own = tuple((each, values[each]) for each in range(base, last + 1) if each in values)
            is_absolute = not entry.is_v2 and entry.content[0] == 0 and bool(entry.content[1] & 7)
            known[entry.content] = Known(entry.base_offset, own, count, is_absolute)
            total += count
            is_dense = is_dense and count == last - base + 1 and due in (None, base)
            due = last + 1
    return Golden(folder, partition, contents, known, total, is_dense)


# Damage


def zeros(chance: random.Random, data: bytearray) -> None:
    """A range of zeros."""
    at = chance.randrange(len(data))
    size = chance.choice([1, 4, 17, 61, 300, 1500])
    data[at : at + size] = bytes(len(data[at : at + size]))


def header_of_zeros(chance: random.Random, data: bytearray) -> None:
    """Zeros where the header of a batch was."""
    at = chance.choice(starts(bytes(data)))
    data[at : at + 61] = bytes(len(data[at : at + 61]))


def garbage(chance: random.Random, data: bytearray) -> None:
    """A range of random bytes."""
    at = chance.randrange(len(data))
    size = chance.choice([1, 4, 17, 61, 300, 1500])
    data[at : at + size] = chance.randbytes(len(data[at : at + size]))


def lying_length(chance: random.Random, data: bytearray) -> None:
    """Another length in the frame of a batch, too small or too large."""
    at = chance.choice(starts(bytes(data)))
    if len(data) < 61:
        return
    (length,) = struct.unpack_from(">i", data, at + 8)
    lies = [0, 14, 49, 64, length - 1, length + 1, length + 61, 2 * length, 2**31 - 1, -1, 4096]
    struct.pack_into(">i", data, at + 8, chance.choice(lies))


def hole(chance: random.Random, data: bytearray) -> None:
    """A block of zeros, as a file system leaves it."""
    block = 512
    at = chance.randrange(len(data)) // block * block
    data[at : at + block] = bytes(len(data[at : at + block]))


def cut(chance: random.Random, data: bytearray) -> None:
    """Bytes that are gone from the middle."""
    at = chance.randrange(len(data))
    del data[at : at + chance.choice([1, 10, 61, 300, 1500])]


def flip(chance: random.Random, data: bytearray) -> None:
    """One bit, perhaps of an offset, which no checksum covers."""
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def twice(chance: random.Random, data: bytearray) -> None:
    """Two of the others, with sound batches between them or not."""
    for _ in range(2 if len(data) > 2000 else 1):
        chance.choice([zeros, garbage, lying_length, header_of_zeros, flip, cut])(chance, data)


DAMAGES: list[Callable[[random.Random, bytearray], None]] = [
    zeros, header_of_zeros, garbage, lying_length, hole, cut, flip, twice,
]  # fmt: skip


def starts(data: bytes) -> list[int]:
    """Positions of the batches that are still there."""
    return [each.position for each in all_entries(data)] or [0]


class Case(NamedTuple):
    """A damaged partition, and what is left of it."""

    folder: str
    partition: TopicPartition
    contents: dict[str, bytes]
    values: list[tuple[int, bytes | None]]
    """Offset and value of each record that is left."""
    survivors: int
    """Records that are left, markers included."""
    missing: int
    end: int
    has_loss: bool
    is_segment_lost: bool
    """Whether nothing of a segment is left that tells whether its log was compacted."""
    is_end_lost: bool
    """Whether the damage reaches to the end of the log, so that nobody knows what was there."""


def damaged(whole: Golden, chance: random.Random, folder: str) -> Case:
    """One partition with a damage, and without some of its small files."""
    contents = dict(whole.contents)
    target = chance.choice([name for name in contents if contents[name]])
    if chance.random() < 0.8:
        target = chance.choice([name for _, name in logs_of(contents) if contents[name]])
    data = bytearray(contents[target])
    chance.choice(DAMAGES)(chance, data)
    contents[target] = bytes(data)
    if chance.random() < 0.5:
        for name in [*contents]:
            if name != target and name.endswith((".index", ".timeindex")) and chance.random() < 0.7:
                del contents[name]
    kept: list[Entry] = []
    is_segment_lost = False
    files = logs_of(contents)
    for number, (base, name) in enumerate(files):
        limit = files[number + 1][0] if number + 1 < len(files) else 2**63 - 1
        left = in_order(list(all_entries(contents[name])), base, limit)
        is_segment_lost = is_segment_lost or not left
        kept += left
    values: list[tuple[int, bytes | None]] = []
    survivors, end = 0, files[-1][0]
    for entry in kept:
        known = whole.known.get(entry.content)
        if known is None:
            continue
        shift = 0 if known.is_absolute else entry.base_offset - known.base_offset
        values += [(offset + shift, value) for offset, value in known.values]
        survivors += known.records
        end = max(end, entry.last_offset + 1)
    last = contents[files[-1][1]]
    tail = max((each.position + each.size for each in all_entries(last)), default=0)
    return Case(
        folder, whole.partition, contents, values, survivors, whole.total - survivors, end,
        contents[target] != whole.contents[target] and target.endswith(".log"),
        is_segment_lost,
        target == files[-1][1] and (tail < len(last) or last != whole.contents[target]),
    )  # fmt: skip


# The tools


def held(contents: dict[str, bytes], folder: str) -> MemoryFiles:
    """A disk with these files."""
    files = MemoryFiles()
    files.make_directory(folder)
    for name, content in contents.items():
        files.open(f"{folder}/{name}", create=True).close()
        files.overwrite(f"{folder}/{name}", content)
    return files


def check_counts(case: Case, skipped: list[Skipped], whole: Golden) -> None:
    """The number that is said to be left out is that of what is missing."""
    told = [each.records for each in skipped]
    known = sum(each or 0 for each in told)
    if None in told:
        assert case.is_end_lost or not whole.is_dense or case.is_segment_lost, skipped
        assert known <= case.missing
    elif not case.is_end_lost:
        assert known == case.missing, (skipped, case.missing)
    else:
        assert known <= case.missing, (skipped, case.missing)


def shown(
    files: MemoryFiles, partition: TopicPartition, folder: str
) -> tuple[list[tuple[int, bytes | None]], list[Skipped]]:
    """Offsets and values that an export has, and what it left out."""
    told: list[Skipped] = []
    export_records(
        files, {partition: folder}, Choice(), to="out.jsonl", form=ExportFormat.JSON,
        on_skip=told.append,
    )  # fmt: skip
    lines = [json.loads(line) for line in files.content("out.jsonl").splitlines()]
    return [(each["offset"], as_bytes(each["value"])) for each in lines], told


def as_bytes(value: object) -> bytes | None:
    """The value as it is stored."""
    if value is None:
        return None
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return str(value).encode()


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("seed", range(4 if IS_EVERY_CHANGE else 12))
def test_every_tool_finds_what_a_search_of_every_byte_finds(
    name: str, seed: int, tmp_path: Path
) -> None:
    """And says how many records it has left out."""
    chance = random.Random(f"{name} {seed}")
    whole = golden(name)
    folder = f"data/{whole.folder.name}"
    case = damaged(whole, chance, folder)
    files = held(case.contents, folder)

    found, told = shown(files, case.partition, folder)
    assert found == case.values
    check_counts(case, told, whole)

    pages = show_records(
        files, {case.partition: folder}, Choice(), form=Form.JSON, on_skip=lambda _: None
    )
    offsets = [json.loads(line)["offset"] for line in b"".join(pages).splitlines()]
    assert {each for each, _ in case.values} <= set(offsets)
    assert len(offsets) == case.survivors

    with Log(files, folder, case.partition, on_damage="skip") as log:
        assert [(each.offset, each.value) for each in log.records()] == case.values
        check_counts(case, list(log.skipped), whole)

    scan = scan_partition(files, "data", case.partition, folder=folder)
    assert scan.end_offset >= case.end
    assert find_end(files, list_segments(files, folder)[0]) >= case.end
    if case.has_loss and not case.is_end_lost:
        assert any(
            each.severity in (Severity.ERROR, Severity.WARNING)
            for each in verify(files, find_partitions(files, "data"))
        ) or case.missing == 0  # fmt: skip

    check_spark(case, tmp_path, whole)
    check_start(case, whole)
    check_repair(case, whole)


def check_spark(case: Case, root: Path, whole: Golden) -> None:
    """The reader of Spark's tasks."""
    target = root / whole.folder.name
    target.mkdir()
    for name, content in case.contents.items():
        (target / name).write_bytes(content)
    store = DirectoryStore(str(root), skips_damage=True)
    extent = store.extents([case.partition])[case.partition]
    wanted = OffsetRange(
        partition=case.partition, start=Offset(extent.start), limit=Offset(extent.end), size=0
    )
    task = ScanTask(ranges=(wanted,))
    batches = list(
        read_task(task, store, columns=["offset", "value"], fails_on_data_loss=True)
        if wanted.length
        else ()
    )
    rows = [(row["offset"], row["value"]) for each in batches for row in each.to_pylist()]
    assert rows == case.values
    assert store.skipped is not None
    check_counts(case, store.skipped, whole)


def check_start(case: Case, whole: Golden) -> None:
    """A start after a crash sets aside what it cuts, and says how many records that were."""
    files = held(case.contents, FOLDER)
    cuts: list[LogCut] = []
    policy = "delete" if whole.is_dense else "compact"
    log = open_at(files, config=settings(cleanup_policy=policy), report=cuts.append)
    left = sum(each.record_count for each in log.batches(log.start_offset))
    log.close()
    cut = sum(each.records for each in cuts)
    is_counted = case.has_loss and whole.is_dense and not case.is_end_lost
    assert not (is_counted and any(each.unknown_ranges for each in cuts))
    assert left + cut == whole.total if is_counted else left + cut <= whole.total


def check_repair(case: Case, whole: Golden) -> None:
    """A repair keeps all of it, and says how many records were lost."""
    folder = f"data/{whole.folder.name}"
    files = held(case.contents, folder)
    plan = plan_repair(files, find_partitions(files, "data"), OnDamage.SKIP)
    counts = plan.record_counts
    if not case.is_end_lost:
        assert counts.lost == case.missing or counts.unknown_ranges
    else:
        assert counts.lost <= case.missing
    apply_repair(files, plan, clock=SetClock())
    found, told = shown(files, case.partition, folder)
    assert found == case.values
    assert not told
