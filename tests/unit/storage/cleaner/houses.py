"""A directory of logs on a disk in memory, with the cleaner of a broker."""

import random
import uuid

from tailrace.model import TopicPartition
from tailrace.storage.cleaner.worker import CleanerConfig, LogCleaner, clean
from tailrace.storage.config import LogConfig
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import SetClock, append, batch, records, settings

ONE, TWO, THREE = (TopicPartition(name, 0) for name in ("flights", "planes", "pilots"))
ID = uuid.UUID(int=5)
COMPACTED = settings(cleanup_policy="compact", segment_bytes=400)


class House:
    """A directory of logs, and its cleaner."""

    def __init__(
        self,
        files: MemoryFiles | None = None,
        *,
        path: str = "data",
        map_bytes: int = 1 << 20,
    ) -> None:
        self.files = files or MemoryFiles()
        self.clock = SetClock()
        self.config = CleanerConfig(map_bytes_max=map_bytes, io_bytes_per_second=1e9)
        directory = open_log_directory(self.files, path, node_id=1, new_id=ID)
        self.home = DirectoryLogs.from_checkpoints(
            self.files, directory, clock=self.clock, chance=random.Random(0)
        )
        self.logs = LogManager([self.home])
        self.found = self.logs.find_partitions()
        self.cleaner = LogCleaner(self.logs, self.config, self.clock)

    def open(self, partition: TopicPartition = ONE, config: LogConfig = COMPACTED) -> Log:
        """A partition, new or from the disk."""
        make = self.logs.open if partition in self.found else self.logs.create
        return make(partition, topic_id=ID, config=config)

    def clean(self) -> TopicPartition | None:
        """Clean what is filthiest; says which it was."""
        job = self.cleaner.next_job()
        if job is None:
            return None
        clean(job)
        return job.log.partition


def keyed(log: Log, keys: str, *, value: str = "") -> None:
    """A batch of one record for each letter; its value is the offset it gets."""
    for key in keys:
        content = (value or str(log.end_offset)).encode()
        append(log, batch(content, key=key.encode()))


def latest(log: Log) -> dict[bytes | None, bytes | None]:
    """Return the last record of each key, as a reader keeps it."""
    return {record.key: record.value for record in records(log)}
