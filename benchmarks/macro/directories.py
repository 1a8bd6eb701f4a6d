"""Measures whole log directories: recovery, compaction, verification, many partitions.

Peers are what the machine can do at best with the same bytes: read them (`cat`), copy them (`cp`),
checksum them (`cksum`), open their files.

A warm file is in the page cache when its round begins. A cold one was put out of it before
(POSIX_FADV_DONTNEED), as after the loss of a machine.
"""

import os
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import crc32c
import numpy as np

from benchmarks.macro.load import build_batch
from benchmarks.measure import (
    Bench,
    Cost,
    Figure,
    cost_of,
    interleave,
    resident_bytes,
    seconds_of,
)
from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.records.builder import BatchBuilder
from tailrace.records.layout import ATTRIBUTES_POSITION, CRC, CRC_POSITION
from tailrace.runtime.clock import SystemClock
from tailrace.runtime.files import DiskFiles, raise_descriptor_limit
from tailrace.storage.cleaner.worker import CleanerConfig, LogCleaner, clean
from tailrace.storage.config import LogConfig, log_config
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager

BATCH_BYTES = 16 * 1024
RECOVERY_BYTES = 2_000_000_000
VERIFY_BYTES = 1_000_000_000
PARTITIONS = 2000

COMPACTION_BYTES = 2_000_000_000
KEYS = 4_000_000
KEY_BYTES = 16
KEYED_VALUE_BYTES = 212
"""Two gigabytes are then two records of each key."""
RECORDS_PER_BATCH = 64
MAP_BYTES = 128 * 1024 * 1024
"""Kafka's default of `log.cleaner.dedupe.buffer.size`."""

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(256 * 1024 * 1024),
    # Until nothing is dirty, however small the last round.
    "min.cleanable.dirty.ratio": "0.001",
}

PARTITION = TopicPartition("t", 0)
ID = uuid.UUID(int=1)
DEFAULTS = log_config({})


class Directory:
    """A log directory of one broker, open."""

    def __init__(self, path: Path) -> None:
        files, clock = DiskFiles(), SystemClock()
        directory = open_log_directory(files, str(path), node_id=1, new_id=ID)
        self.clock = clock
        self.home = DirectoryLogs.from_checkpoints(
            files, directory, clock=clock, chance=random.Random(0)
        )
        self.logs = LogManager([self.home])
        self.found = self.logs.find_partitions()

    def open(self, partition: TopicPartition = PARTITION, config: LogConfig = DEFAULTS) -> Log:
        """A partition, new or from the disk."""
        make = self.logs.open if partition in self.found else self.logs.create
        return make(partition, topic_id=self.found.get(partition) or ID, config=config)


@contextmanager
def opened(path: Path) -> Iterator[Directory]:
    """A directory that is left as a killed process leaves it."""
    directory = Directory(path)
    try:
        yield directory
    finally:
        directory.logs.abandon()


def measure_recovery(bench: Bench) -> list[Figure]:
    """Seconds to open a log that was not stopped in order, checking every batch of it."""
    path = bench.directory / "recovery"
    size = bench.scaled(RECOVERY_BYTES, quick=20_000_000)
    bench.say(f"recovery: writing {size / 1e9:.2f} GB")
    fill(path, size, build_batch(BATCH_BYTES).data)
    files = sorted((path / str(PARTITION)).glob("*.log"))
    contenders = {
        f"{who} {state}": partial(_timed, state, files, work)
        for state in ("warm", "cold")
        for who, work in (("ours", partial(_recover, path)), ("peer", partial(_cat, files)))
    }
    found = interleave(bench, contenders)
    return [
        Figure(
            name=f"recovery of {size / 1e9:.0f} GB, {state}",
            unit="s",
            ours=tuple(found[f"ours {state}"]),
            peer_name="cat > /dev/null",
            peer=tuple(found[f"peer {state}"]),
        )
        for state in ("warm", "cold")
    ]


def measure_verify(bench: Bench) -> list[Figure]:
    """Seconds of `tailrace log verify` on one segment of a gigabyte, and its largest memory."""
    path = bench.directory / "verify"
    size = bench.scaled(VERIFY_BYTES, quick=20_000_000)
    bench.say(f"verify: writing {size / 1e9:.2f} GB")
    fill(path, size, build_batch(BATCH_BYTES).data)
    files = sorted((path / str(PARTITION)).glob("*.log"))
    contenders: dict[str, Callable[[], tuple[float, float]]] = {
        "ours": partial(_verify, path),
        "peer": lambda: (seconds_of(lambda: _cksum(files)), 0.0),
    }
    found = interleave(bench, contenders)
    return [
        Figure(
            name=f"verify {size / 1e9:.0f} GB",
            unit="s",
            ours=tuple(each[0] for each in found["ours"]),
            peer_name="cksum",
            peer=tuple(each[0] for each in found["peer"]),
        ),
        Figure(
            name=f"verify {size / 1e9:.0f} GB, largest memory",
            unit="MB",
            ours=tuple(each[1] for each in found["ours"]),
            peer_name="size of the log",
            peer=(size / 1e6,),
        ),
    ]


def measure_compaction(bench: Bench) -> list[Figure]:
    """MB per second of log that a whole compaction takes, in as many rounds as the map needs."""
    size = bench.scaled(COMPACTION_BYTES, quick=20_000_000)
    keys = bench.scaled(KEYS, quick=40_000)
    bench.say(f"compaction: writing {size / 1e9:.2f} GB with {keys:,} keys")
    source = bench.directory / "dirty"
    fill_keyed(source, size, keys)
    megabytes = sum(path.stat().st_size for path in source.rglob("*.log")) / 1e6
    numbers = count()
    contenders: dict[str, Callable[[], float]] = {
        "ours": lambda: _compact(source, bench.directory / f"clean-{next(numbers)}", keys),
        "peer": lambda: _copy(source, bench.directory / f"copy-{next(numbers)}"),
    }
    found = interleave(bench, contenders)
    return [
        Figure(
            name=f"compaction of {size / 1e9:.0f} GB, {keys / 1e6:.0f} million keys",
            unit="MB/s",
            ours=tuple(megabytes / seconds for seconds in found["ours"]),
            peer_name="cp and sync",
            peer=tuple(megabytes / seconds for seconds in found["peer"]),
        )
    ]


def measure_partitions(bench: Bench) -> list[Figure]:
    """Seconds and MB to open a directory of many partitions after an orderly stop."""
    path = bench.directory / "partitions"
    number = bench.scaled(PARTITIONS, quick=20)
    bench.say(f"partitions: making {number}")
    raise_descriptor_limit()
    directory = Directory(path)
    batch = build_batch(BATCH_BYTES)
    for index in range(number):
        log = directory.open(TopicPartition("t", index))
        log.append(memoryview(bytearray(batch.data)), leader_epoch=LeaderEpoch(0), now_ms=_now_ms())
    directory.logs.close()
    found = interleave(
        bench,
        {
            "ours": lambda: _in_own_process(path, "logs"),
            "peer": lambda: _in_own_process(path, "files"),
        },
    )
    return [
        Figure(
            name=f"{what} of {number:,} partitions",
            unit=unit,
            ours=tuple(each[place] for each in found["ours"]),
            peer_name="bare open and map of their files",
            peer=tuple(each[place] for each in found["peer"]),
        )
        for place, (what, unit) in enumerate((("opening", "s"), ("memory", "MB")))
    ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def fill(
    path: Path,
    size: int,
    data: bytes,
    *,
    partitions: Sequence[TopicPartition] = (PARTITION,),
) -> None:
    """The same batch until it is `size` in all, left as by a killed process, on the device."""
    batch = bytearray(data)
    view, now_ms = memoryview(batch), _now_ms()
    with opened(path) as directory:
        for partition in partitions:
            log = directory.open(partition)
            for _ in range(size // len(partitions) // len(batch)):
                view[:8] = bytes(8)
                log.append(view, leader_epoch=LeaderEpoch(0), now_ms=now_ms)
    os.sync()


def fill_keyed(path: Path, size: int, keys: int) -> None:
    """A compacted partition; keys come in a random order, each about as often as the others."""
    chance = np.random.default_rng(0)
    builder = BatchBuilder()
    marks = [b"%016d" % number for number in range(RECORDS_PER_BATCH)]
    now_ms = _now_ms()
    filler = random.Random(0)
    for mark in marks:
        builder.append(mark, filler.randbytes(KEYED_VALUE_BYTES), timestamp=now_ms)
    template = builder.build()
    batch = bytearray(template)
    array = np.frombuffer(batch, np.uint8)
    places = np.array([template.index(mark) for mark in marks])[:, None] + np.arange(KEY_BYTES)
    digits = 10 ** np.arange(KEY_BYTES - 1, -1, -1, dtype=np.int64)
    view = memoryview(batch)
    with opened(path) as directory:
        log = directory.open(config=log_config(COMPACTED))
        for _ in range(size // len(batch)):
            chosen = chance.integers(0, keys, RECORDS_PER_BATCH)
            array[places] = chosen[:, None] // digits % 10 + ord("0")
            view[:8] = bytes(8)
            CRC.pack_into(batch, CRC_POSITION, crc32c.crc32c(view[ATTRIBUTES_POSITION:]))
            log.append(view, leader_epoch=LeaderEpoch(0), now_ms=now_ms)
            log.advance_high_watermark(log.end_offset)
        log.roll()
        directory.logs.close()
    os.sync()


def prepare(state: str, files: Iterable[Path]) -> None:
    """Have files warm or cold."""
    for path in files:
        if state == "cold":
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            path.read_bytes()


def _timed(state: str, files: list[Path], work: Callable[[], object]) -> float:
    prepare(state, files)
    return seconds_of(work)


def _recover(path: Path) -> None:
    with opened(path) as directory:
        assert directory.open().end_offset > 0


def _cat(files: list[Path]) -> None:
    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)


def _cksum(files: list[Path]) -> None:
    subprocess.run(["cksum", *files], stdout=subprocess.DEVNULL, check=True)


_OBSERVER = """
import resource, subprocess, sys, time
started = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(time.perf_counter() - started)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6)
"""
"""Watches a command from a small process: a child counts its parent's memory until it is itself."""


def _verify(path: Path) -> tuple[float, float]:
    command = [sys.executable, "-m", "tailrace", "log", "verify", "--data", str(path)]
    done = subprocess.run(
        [sys.executable, "-c", _OBSERVER, *command], check=True, capture_output=True, text=True
    )
    seconds, megabytes = map(float, done.stdout.split())
    return seconds, megabytes


def _compact(source: Path, target: Path, keys: int) -> float:
    shutil.copytree(source, target)
    cost, records = clean_all(target)
    assert records <= keys
    shutil.rmtree(target)
    return cost.seconds


def clean_all(path: Path) -> tuple[Cost, int]:
    """Clean a compacted log until nothing is dirty; return the cost and the records left."""
    with opened(path) as directory:
        log = directory.open(config=log_config(COMPACTED))
        log.advance_high_watermark(log.end_offset)
        config = CleanerConfig(map_bytes_max=MAP_BYTES, io_bytes_per_second=1e12)
        cleaner = LogCleaner(directory.logs, config, directory.clock)

        def rounds() -> None:
            while (job := cleaner.next_job()) is not None:
                clean(job)

        cost = cost_of(os.getpid(), rounds)
        assert not cleaner.failures()
        return cost, sum(batch.record_count for batch in log.batches(0))


def _copy(source: Path, target: Path) -> float:
    def copy() -> None:
        subprocess.run(["cp", "-r", source, target], check=True)
        subprocess.run(["sync", "-f", target], check=True)

    seconds = seconds_of(copy)
    shutil.rmtree(target)
    return seconds


def _in_own_process(path: Path, what: str) -> tuple[float, float]:
    """Seconds and resident MB of a process that opens a directory's logs, or just its files."""
    command = [sys.executable, "-m", "benchmarks.macro.directories", str(path), what]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, megabytes = map(float, done.stdout.split())
    return seconds, megabytes


def _open_logs(path: Path) -> object:
    directory = Directory(path)
    for partition in directory.found:
        directory.open(partition)
    return directory


def _open_files(path: Path) -> object:
    files = DiskFiles()
    return [files.open(str(name)) for name in sorted(path.glob("*/0*"))]


def main() -> None:
    """Open what the arguments say, and print seconds and resident MB."""
    raise_descriptor_limit()
    path, what = Path(sys.argv[1]), sys.argv[2]
    held: list[object] = []
    work = _open_logs if what == "logs" else _open_files
    seconds = seconds_of(lambda: held.append(work(path)))
    print(seconds, resident_bytes(os.getpid()) / 1e6)
    if isinstance(held[0], Directory):
        held[0].logs.close()


if __name__ == "__main__":
    main()
