"""Tests of the cleaner under faults that nobody has thought of."""

import asyncio
import random
import uuid
from collections.abc import Callable
from typing import TypeVar

from tailrace.broker.cleaning import clean_regularly
from tailrace.model import TopicPartition
from tailrace.storage.cleaner.worker import RETRY_MS_MIN, CleanerConfig, CleaningJob, LogCleaner
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.manager import LogManager
from tailrace.testing import MemoryFiles, Outside, virtual_runtime
from tests.unit.storage.builders import SetClock, append, batch, records, settings

T = TypeVar("T")
FLIGHTS = TopicPartition("flights", 0)
ID = uuid.UUID(int=5)


class ShortOfMemory:
    """Threads of which the first finds no memory."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Do it here and now, but for the first time."""
        self.runs += 1
        if self.runs == 1:
            raise MemoryError
        return function()

    def close(self) -> None:
        """Do nothing: no thread runs."""


def refuse(job: CleaningJob, error: OSError) -> None:
    """No device fails here."""
    raise AssertionError(job, error)


def test_a_step_that_breaks_off_does_not_end_all_cleaning() -> None:
    """The log is free again, and cleaned when its time has come."""
    clock, files, threads = SetClock(), MemoryFiles(), ShortOfMemory()
    directory = open_log_directory(files, "data", node_id=1, new_id=ID)
    logs = LogManager(
        [DirectoryLogs.from_checkpoints(files, directory, clock=clock, chance=random.Random(0))]
    )
    config = settings(cleanup_policy="compact", segment_bytes=400)
    log = logs.create(FLIGHTS, topic_id=ID, config=config)
    for number in range(40):
        append(log, batch(b"%d" % number, key=b"one"))
    cleaner = LogCleaner(logs, CleanerConfig(map_bytes_max=1 << 20, io_bytes_per_second=1e9), clock)

    async def scenario(outside: Outside) -> None:
        task = asyncio.ensure_future(
            clean_regularly(cleaner, threads, backoff_ms=lambda: 1000, device_failed=refuse)
        )
        await outside.pass_time(0.5)
        assert threads.runs == 1
        assert not cleaner.is_cleaning(FLIGHTS)
        assert list(cleaner.failures()) == [FLIGHTS]
        clock.time_ms += RETRY_MS_MIN
        await outside.pass_time(2)
        assert cleaner.failures() == {}
        task.cancel()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
    assert len(records(log)) < 40
