"""One partition's log without a broker: appends to the disk, lookups by offset and by time."""

import mmap
import os
import random
import time
from bisect import bisect_right
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import crc32c

from benchmarks.macro.load import VALUE_BYTES, build_batch
from benchmarks.measure import Bench, Figure, interleave, seconds_of
from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.records.builder import BatchBuilder
from tailrace.records.layout import ATTRIBUTES_POSITION
from tailrace.runtime.clock import SystemClock
from tailrace.runtime.files import DiskFiles
from tailrace.storage.config import log_config
from tailrace.storage.folder import PartitionFolder, Removals
from tailrace.storage.log import Log
from tailrace.storage.offset_lookup import find_offset
from tailrace.storage.recovery import open_log

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH_BYTES = 16 * 1024
APPEND_BYTES = 500_000_000
LOOKUP_BATCHES = 4000
LOOKUPS = 20_000
RECORDS_PER_BATCH = 150
SEGMENT_BYTES = 16 * 1024 * 1024
"""Size at which the lookups choose between four segments."""

NOW_MS = 1_700_000_000_000
START_MS = NOW_MS - LOOKUP_BATCHES * RECORDS_PER_BATCH
"""Records are one millisecond apart."""


def measure_append(bench: Bench) -> list[Figure]:
    """GB per second into a new log, for each round."""
    batch = bytearray(build_batch(BATCH_BYTES).data)
    batch_count = bench.scaled(APPEND_BYTES, quick=8_000_000) // len(batch)
    bench.say(f"append: {batch_count} batches a round")
    numbers = count()
    contenders: dict[str, Callable[[], float]] = {
        "ours": lambda: _append(bench.directory / f"log-{next(numbers)}", batch, batch_count),
        "peer": partial(_write, bench.directory / "peer.log", batch, batch_count),
    }
    found = interleave(bench, contenders)
    gigabytes = len(batch) * batch_count / 1e9
    return [
        Figure(
            name="append 16 KB batches to a log",
            unit="GB/s",
            ours=tuple(gigabytes / seconds for seconds in found["ours"]),
            peer_name="crc32c, pwrite",
            peer=tuple(gigabytes / seconds for seconds in found["peer"]),
        )
    ]


def measure_lookup(bench: Bench) -> list[Figure]:
    """Lookups per second in a log of several segments, by offset and by time."""
    batch_count = bench.scaled(LOOKUP_BATCHES, quick=100)
    lookups = bench.scaled(LOOKUPS, quick=1000)
    bench.say(f"lookups: a log of {batch_count} batches")
    log = _open(bench.directory / "lookups", settings={"segment.bytes": str(SEGMENT_BYTES)})
    batches = [_build(START_MS + number * RECORDS_PER_BATCH) for number in range(batch_count)]
    for batch in batches:
        log.append(memoryview(batch), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    log.advance_high_watermark(log.end_offset)
    path = bench.directory / "peer.log"
    path.write_bytes(b"".join(batches))
    chance = random.Random(0)
    offsets = [chance.randrange(log.end_offset) for _ in range(lookups)]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = memoryview(mapped)
        sizes = [len(batch) for batch in batches]
        contenders: dict[str, Callable[[], None]] = {
            "by offset": partial(_by_offset, log, offsets),
            "peer by offset": partial(_by_bisect, view, sizes, offsets, is_checked=False),
            "by time": partial(_by_time, log, offsets),
            "peer by time": partial(_by_bisect, view, sizes, offsets, is_checked=True),
        }
        found = interleave(
            bench, {name: partial(seconds_of, work) for name, work in contenders.items()}
        )
        view.release()
    log.close()
    return [
        Figure(
            name=f"lookup {kind}",
            unit="1000/s",
            ours=tuple(lookups / 1e3 / seconds for seconds in found[kind]),
            peer_name=peer_name,
            peer=tuple(lookups / 1e3 / seconds for seconds in found[f"peer {kind}"]),
        )
        for kind, peer_name in (
            ("by offset", "bisect of a list of all batches"),
            ("by time", "the same, crc32c of the batch"),
        )
    ]


def _open(folder: Path, *, settings: dict[str, str]) -> Log:
    folder.mkdir()
    files = DiskFiles()
    return open_log(
        PartitionFolder(
            partition=TopicPartition("t", 0),
            path=str(folder),
            files=files,
            clock=SystemClock(),
            chance=random.Random(0),
            removals=Removals(files),
        ),
        config=log_config(settings),
        is_clean=True,
    )


def _append(folder: Path, batch: bytearray, batch_count: int) -> float:
    log = _open(folder, settings={})
    now_ms = time.time_ns() // 1_000_000
    view = memoryview(batch)

    def append_all() -> None:
        for _ in range(batch_count):
            # The append before has stamped its offset here, and a client sends 0.
            view[:8] = bytes(8)
            log.append(view, leader_epoch=LeaderEpoch(0), now_ms=now_ms)

    seconds = seconds_of(append_all)
    assert log.size == len(batch) * batch_count
    log.close()
    for path in folder.iterdir():
        path.unlink()
    return seconds


def _write(path: Path, batch: bytearray, batch_count: int) -> float:
    """The checksum of the same bytes, and the write."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    checked = memoryview(batch)[ATTRIBUTES_POSITION:]

    def write_all() -> None:
        for number in range(batch_count):
            crc32c.crc32c(checked)
            os.pwrite(file, batch, number * len(batch))

    seconds = seconds_of(write_all)
    os.close(file)
    path.unlink()
    return seconds


def _build(timestamp: int) -> bytearray:
    builder = BatchBuilder()
    for number in range(RECORDS_PER_BATCH):
        builder.append(None, b"x" * VALUE_BYTES, timestamp=timestamp + number)
    return bytearray(builder.build())


def _by_offset(log: Log, offsets: list[int]) -> None:
    for offset in offsets:
        found = log.read(offset, bytes_max=1, is_first_whole=True)
        assert len(found.read()) > VALUE_BYTES


def _by_time(log: Log, offsets: list[int]) -> None:
    for offset in offsets:
        found = find_offset(log, START_MS + offset)
        assert found is not None
        assert found[0].offset == offset


def _by_bisect(view: memoryview, sizes: list[int], offsets: list[int], *, is_checked: bool) -> None:
    """Look up the offsets in the peer: an index in memory with an entry for every batch."""
    limits = [(number + 1) * RECORDS_PER_BATCH for number in range(len(sizes))]
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    for offset in offsets:
        number = bisect_right(limits, offset)
        with view[ends[number] : ends[number + 1]] as batch:
            if is_checked:
                crc32c.crc32c(batch[ATTRIBUTES_POSITION:])
