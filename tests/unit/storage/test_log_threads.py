"""One log under all its threads at once: what was appended is what is found after a kill."""

import random
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.model import TopicPartition
from tailrace.records.batch import read_batches
from tailrace.runtime.files import DiskFiles
from tailrace.storage.cleaner.worker import (
    CleanerConfig,
    CleaningJob,
    LogCleaner,
    SegmentExchange,
)
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager
from tailrace.storage.positions import ReadLimit
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import NOW, SetClock, append, batch, open_at, records, settings
from tests.unit.storage.transactional import TransactionalProducer

if TYPE_CHECKING:
    from tailrace.storage.segment import Segment

PARTITION = TopicPartition("flights", 0)
ID = uuid.UUID(int=5)
COMPACTED = settings(
    cleanup_policy="compact",
    segment_bytes=2000,
    min_cleanable_dirty_ratio="0.1",
    file_delete_delay_ms=0,
)
APPENDS = 500
KEYS = 20


class Shop:
    """A directory on the real disk with one compacted log, and its cleaner."""

    def __init__(self, path: Path) -> None:
        files, clock = DiskFiles(), SetClock()
        directory = open_log_directory(files, str(path), node_id=1, new_id=ID)
        self.home = DirectoryLogs.from_checkpoints(
            files, directory, clock=clock, chance=random.Random(0)
        )
        self.logs = LogManager([self.home])
        make = self.logs.open if self.logs.find_partitions() else self.logs.create
        self.log = make(PARTITION, topic_id=ID, config=COMPACTED)
        config = CleanerConfig(map_bytes_max=1 << 16, io_bytes_per_second=1e9)
        self.cleaner = LogCleaner(self.logs, config, clock)


class Cleaning:
    """Jobs one after the other: long steps on a thread, short ones where `go_on` is called."""

    def __init__(self, cleaner: LogCleaner, thread: ThreadPoolExecutor) -> None:
        self.rounds = 0
        self._cleaner = cleaner
        self._thread = thread
        self._job: CleaningJob | None = None
        self._mapped: Future[list[tuple[Segment, ...]]] | None = None
        self._groups: list[tuple[Segment, ...]] = []
        self._rewritten: Future[SegmentExchange] | None = None
        self._settled: Future[None] | None = None
        self._noted: Future[None] | None = None

    def go_on(self) -> bool:
        """Do the short step that is due, if one is; False when there is nothing to clean."""
        if self._job is None:
            self._job = self._cleaner.next_job()
            if self._job is None:
                return False
            self._mapped = self._thread.submit(self._job.map_keys)
        elif self._mapped is not None:
            if self._mapped.done():
                self._groups, self._mapped = self._mapped.result(), None
                self._rewrite_next(self._job)
        elif self._rewritten is not None:
            if self._rewritten.done():
                self._job.exchange(self._rewritten.result())
                self._rewritten = None
                self._settled = self._thread.submit(self._job.settle)
        elif self._settled is not None:
            if self._settled.done():
                self._settled.result()
                self._settled = None
                self._rewrite_next(self._job)
        elif self._noted is None:
            self._noted = self._thread.submit(self._job.note_cleaned)
        elif self._noted.done():
            self._noted.result()
            self._noted = None
            self._job.finish()
            self._job = None
            self.rounds += 1
        return True

    def _rewrite_next(self, job: CleaningJob) -> None:
        self._rewritten = None
        if self._groups:
            self._rewritten = self._thread.submit(job.rewrite, self._groups.pop(0))


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns a hundred times as often as they do else."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 100)
    yield
    sys.setswitchinterval(interval)


def flush_until(stop: threading.Event, shop: Shop, found: list[int]) -> None:
    """Commits, flushes, checkpoints and removals, as the threads of a broker do them."""
    log = shop.log
    while not stop.is_set():
        end = log.end_offset
        log.commit()
        shop.home.checkpoint()
        log.sync()
        assert end <= log.positions.recovery_point <= log.end_offset
        found.append(shop.home.removals.remove_due(2 * NOW))


def send(log: Log, numbers: Sequence[int], newest: dict[bytes | None, bytes | None]) -> None:
    """Append one record of each number, as an idempotent producer does."""
    for number in numbers:
        key, value = b"key %d" % (number % KEYS), b"value %d" % number
        append(
            log,
            batch(value, key=key, producer_id=7, producer_epoch=0, base_sequence=number),
        )
        newest[key] = value


def latest(log: Log) -> dict[bytes | None, bytes | None]:
    """The last value of each key; every batch is checked, and offsets rise."""
    found = records(log)
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    return {record.key: record.value for record in found}


def read_committed_until(stop: threading.Event, has_read: threading.Event, log: Log) -> int:
    """Read the end of the log over and over, as a consumer of committed records; how many reads.

    Sets `has_read` after the first read, or when it fails.
    """
    count = 0
    try:
        while not stop.is_set():
            offset = max(0, log.end_offset - 3)
            found = log.read(
                offset, bytes_max=10**6, is_first_whole=True, limit=ReadLimit.LAST_STABLE
            )
            aborted = {each.first_offset for each in found.aborted}
            for _, each in read_batches(found.read()):
                # What is shown is decided: the reader gets the abort along with the record.
                assert each.is_control or each.base_offset in aborted
                count += 1
            has_read.set()
    finally:
        has_read.set()
    return count


@pytest.mark.usefixtures("eager_threads")
def test_a_reader_of_committed_records_beside_the_writer_sees_no_open_transaction() -> None:
    """However appends, the high watermark and aborts of the one thread meet reads of another."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=10**6, segment_index_bytes=1200))
    producer = TransactionalProducer(log, 15)

    def write_and_abort() -> None:
        producer.append()
        log.advance_high_watermark(log.end_offset)
        producer.abort()
        log.advance_high_watermark(log.end_offset)

    # There is something to read from the beginning.
    write_and_abort()
    stop, has_read = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(read_committed_until, stop, has_read, log)
        # A new thread may get no processor before all appends are done.
        has_read.wait()
        for _ in range(APPENDS):
            write_and_abort()
        stop.set()
        assert reading.result() > 0


@pytest.mark.usefixtures("eager_threads")
def test_appends_flushes_and_cleaning_at_once_lose_nothing(tmp_path: Path) -> None:
    """Readers of the running log, a start after a kill and one after an orderly stop find all."""
    shop = Shop(tmp_path / "data")
    newest: dict[bytes | None, bytes | None] = {}
    removed: list[int] = []
    stop = threading.Event()
    with ThreadPoolExecutor(1) as flusher, ThreadPoolExecutor(1) as cleaning_thread:
        flushing = flusher.submit(flush_until, stop, shop, removed)
        cleaning = Cleaning(shop.cleaner, cleaning_thread)
        for number in range(APPENDS):
            send(shop.log, [number], newest)
            cleaning.go_on()
        while cleaning.go_on():
            pass
        stop.set()
        flushing.result()
    assert cleaning.rounds > 0
    assert sum(removed) > 0
    assert latest(shop.log) == newest
    assert len(records(shop.log)) < APPENDS
    shop.logs.abandon()

    killed = Shop(tmp_path / "data")
    assert killed.log.end_offset == APPENDS
    assert latest(killed.log) == newest
    send(killed.log, range(APPENDS, APPENDS + KEYS), newest)
    killed.logs.close()
    stopped = Shop(tmp_path / "data")
    assert stopped.log.end_offset == APPENDS + KEYS
    assert latest(stopped.log) == newest
    stopped.logs.abandon()
