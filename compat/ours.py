"""A log directory as Tailrace's storage sees it: opened, read in both isolations, closed.

Topics that are not of the proof are Kafka's own (`__consumer_offsets`, …) and get their settings.

Invariant: whenever our storage has had a directory without a broker, the metadata log in it is byte
for byte as before; if it is not, that ends the proof.
"""

import hashlib
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from compat.clients import ReadBack, Seen
from compat.processes import bound_to_us
from compat.topics import TOPICS
from tailrace.errors import FatalError
from tailrace.model import METADATA_TOPIC, TimestampType, TopicPartition
from tailrace.records.batch import Batch, read_batches
from tailrace.records.builder import records_of
from tailrace.runtime.clock import SystemClock
from tailrace.runtime.files import DiskFiles
from tailrace.storage import names
from tailrace.storage.config import LogConfig, log_config, usable_configs
from tailrace.storage.directories import open_log_directories
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.index.transaction import AbortedTxn
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager, take_marks
from tailrace.storage.positions import ReadLimit

NODE_ID = 1
STOP_SECONDS_MAX = 60
READ_BYTES = 3000
"""Small, so that a partition takes many reads that end inside of batches."""

_INTERNAL = {"cleanup.policy": "compact", "segment.bytes": "104857600"}


def config_of(topic: str, topics: Mapping[str, Mapping[str, str]] = TOPICS) -> LogConfig:
    """The settings of a topic, as both brokers have them."""
    # Old Kafkas, and the golden directories, have small segments by their usual name.
    return log_config(usable_configs(topics.get(topic, _INTERNAL)))


@contextmanager
def opened(*paths: Path, topics: Mapping[str, Mapping[str, str]] = TOPICS) -> Iterator[LogManager]:
    """Every log of some directories; stopped in order at the end, as a crash would on an error.

    Raises:
        DirectoryError, StorageError: it cannot be opened.
    """
    files = DiskFiles()
    chance = random.Random(0)  # noqa: S311 - jitter of rolls
    before = kafkas_own(*paths)
    directories = open_log_directories(
        files, [str(path) for path in paths], node_id=NODE_ID, chance=chance
    ).usable
    logs = LogManager(
        [
            DirectoryLogs.from_checkpoints(files, each, clock=SystemClock(), chance=chance)
            for each in directories
        ]
    )
    try:
        take_marks(logs)
        for partition, topic_id in logs.find_partitions().items():
            config = config_of(partition.topic, topics)
            logs.open(partition, topic_id=topic_id or uuid.uuid4(), config=config)
        yield logs
    except BaseException:
        logs.abandon()
        raise
    logs.close()
    _check_kafkas_own(before, *paths)


def log_of(logs: LogManager, topic: str, partition: int = 0) -> Log:
    """The log of a partition."""
    log = logs.get(TopicPartition(topic, partition))
    assert log is not None, f"{topic} was not found"
    return log


def read_log(log: Log, *, is_committed: bool) -> ReadBack:
    """Read a log as a consumer does, by Fetch reads, without records of aborted transactions."""
    limit = ReadLimit.LAST_STABLE if is_committed else ReadLimit.HIGH_WATERMARK
    end = log.positions.limit(limit)
    records: list[Seen] = []
    offset = log.start_offset
    while offset < end:
        found = log.read(offset, bytes_max=READ_BYTES, is_first_whole=True, limit=limit)
        batches = [each for _, each in read_batches(found.read()) if each.last_offset >= offset]
        if not batches:
            break
        for batch in batches:
            batch.check()
            if not batch.is_control and not _is_aborted(batch, found.aborted):
                records += (seen for seen in seen_in(batch) if seen.offset >= offset)
        offset = batches[-1].next_offset
    return ReadBack(tuple(records), end)


def seen_in(batch: Batch) -> Iterator[Seen]:
    """The records of a batch, as a client shows them."""
    is_create_time = batch.timestamp_type is TimestampType.CREATE_TIME
    for record in records_of(batch):
        yield Seen(
            record.offset, is_create_time, record.timestamp, record.key, record.value,
            record.headers,
        )  # fmt: skip


def verify(path: Path) -> list[str]:
    """The errors and warnings that `tailrace log verify` has of a directory.

    Not what it merely tells, such as files that wait to be deleted. The exit code counts: one that
    is not 0 without a line is a finding too.
    """
    answer = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "tailrace", "log", "verify", "--data", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if not answer.returncode:
        return []
    said = answer.stdout.splitlines()[:-1] + answer.stderr.splitlines()
    told = [line for line in said if not line.startswith("info:")]
    return told or [f"exit code {answer.returncode}"]


@contextmanager
def serving(
    *paths: Path,
    ending: signal.Signals = signal.SIGTERM,
    settings: Mapping[str, str] = MappingProxyType({}),
    address: str = "127.0.0.1:0",
    node_id: int = NODE_ID,
) -> Iterator[str]:
    """A Tailrace broker on some directories, with settings over its own; gives its HOST:PORT.

    At the end it gets `ending`, which by default has it stop in order.

    Raises:
        FatalError: it did not start.
    """
    told = paths[0].parent / "tailrace.log"
    command = bound_to_us([
        sys.executable, "-m", "tailrace", "serve", "--data", ",".join(map(str, paths)),
        "--listen", address, "--node-id", str(node_id),
        *(f"--override={name}={value}" for name, value in settings.items()),
    ])  # fmt: skip
    with (
        told.open("wb") as errors,
        subprocess.Popen(  # noqa: S603 - our own command
            command, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise FatalError("Tailrace did not start: " + told.read_text()[-500:])
            yield line.split()[2].rstrip(",")
            process.send_signal(ending)
            process.wait(STOP_SECONDS_MAX)
        finally:
            process.kill()


def kafkas_own(*paths: Path) -> dict[str, str]:
    """A digest of each file that only a controller may change in these directories, by path."""
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for path in paths
        for file in (*path.glob(f"{METADATA_TOPIC}-*/*"), *path.glob("*.checkpoint"))
    }


def _check_kafkas_own(before: Mapping[str, str], *paths: Path) -> None:
    after = kafkas_own(*paths)
    changed = sorted(name for name, _ in before.items() ^ after.items())
    if changed:
        raise FatalError(f"Tailrace's storage has changed the metadata log: {changed[0]}")


def make_unclean(path: Path) -> None:
    """Have the next start check everything, as after a machine was lost."""
    (path / names.CLEAN_SHUTDOWN).unlink(missing_ok=True)
    (path / names.RECOVERY_POINTS).unlink(missing_ok=True)


def _is_aborted(batch: Batch, aborted: tuple[AbortedTxn, ...]) -> bool:
    return batch.is_transactional and any(
        each.producer_id == batch.producer_id
        and each.first_offset <= batch.base_offset <= each.last_offset
        for each in aborted
    )
