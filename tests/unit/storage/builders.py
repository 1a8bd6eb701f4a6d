"""Logs, batches and settings for tests of the storage room."""

import random
from collections.abc import Callable, Sequence

from tailrace.model import Codec, LeaderEpoch, TopicPartition
from tailrace.records.builder import BatchBuilder, Record, records_of
from tailrace.runtime.files import Files
from tailrace.storage.config import LogConfig, log_config
from tailrace.storage.folder import PartitionFolder, Removals
from tailrace.storage.log import Log, LogAppendInfo
from tailrace.storage.recovery import LogCut, open_log
from tailrace.testing import MemoryFiles

PARTITION = TopicPartition("flights", 0)
FOLDER = "data/flights-0"
NOW = 1_700_000_000_000


def settings(**given: object) -> LogConfig:
    """Settings of a log with small segments and dense indexes, except for those given."""
    small = {"internal.segment.bytes": 600, "segment.index.bytes": 120, "index.interval.bytes": 100}
    named = {name.replace("_", "."): value for name, value in given.items()}
    if "segment.bytes" in named:
        named["internal.segment.bytes"] = named.pop("segment.bytes")
    return log_config({name: str(value) for name, value in {**small, **named}.items()})


def batch(
    *values: bytes,
    timestamps: Sequence[int] = (),
    key: bytes | None = b"k",
    codec: Codec = Codec.NONE,
    **options: object,
) -> bytearray:
    """A batch as a producer sends it, in writable memory."""
    builder = BatchBuilder(codec=codec, **options)  # type: ignore[arg-type]
    for number, value in enumerate(values or (b"value",)):
        builder.append(key, value, timestamp=timestamps[number] if timestamps else NOW)
    return bytearray(builder.build())


class SetClock:
    """A wall clock that a test sets."""

    def __init__(self, now_ms: int = NOW) -> None:
        self.time_ms = now_ms
        self._paused_s = 0.0

    def now_ms(self) -> int:
        """Return the time it was set to."""
        return self.time_ms

    def monotonic_s(self) -> float:
        """Return the seconds it has been paused."""
        return self._paused_s

    def pause(self, seconds: float) -> None:
        """Time goes by."""
        self._paused_s += seconds
        self.time_ms += round(seconds * 1000)


def folder_at(files: Files, *, clock: SetClock | None = None) -> PartitionFolder:
    """The partition's folder, which has to be there, and the seams around it."""
    return PartitionFolder(
        partition=PARTITION,
        path=FOLDER,
        files=files,
        clock=clock or SetClock(),
        chance=random.Random(0),
        removals=Removals(files),
    )


def open_at(
    files: Files,
    *,
    clock: SetClock | None = None,
    config: LogConfig | None = None,
    is_clean: bool = False,
    checkpoints: tuple[int, int] = (0, 0),
    high_watermark: int | None = None,
    report: Callable[[LogCut], None] | None = None,
) -> Log:
    """Open the partition's folder, making it if needed."""
    files.make_directory(FOLDER)
    return open_log(
        folder_at(files, clock=clock),
        config=config or settings(),
        is_clean=is_clean,
        checkpoints=checkpoints,
        high_watermark=high_watermark,
        report=report,
    )


def append(log: Log, data: bytearray, *, epoch: int = 0, now_ms: int = NOW) -> LogAppendInfo:
    """Append one batch, as the only replica: it is readable at once."""
    appended = log.append(memoryview(data), leader_epoch=LeaderEpoch(epoch), now_ms=now_ms)
    log.advance_high_watermark(log.end_offset)
    return appended


def append_values(log: Log, *values: bytes) -> None:
    """Append one batch with one record for each value."""
    for value in values:
        append(log, batch(value))


def filled(files: Files, count: int, *, config: LogConfig | None = None) -> Log:
    """A new log with `count` batches of one record: offset n has timestamp NOW + n."""
    log = open_at(files, config=config)
    for number in range(count):
        append(log, batch(b"value %d" % number, timestamps=[NOW + number]))
    return log


def records(log: Log, offset: int | None = None) -> list[Record]:
    """Every record from an offset, or the log start, on; each batch is checked."""
    found: list[Record] = []
    for each in log.batches(log.start_offset if offset is None else offset):
        each.check()
        found += records_of(each)
    return found


def values(log: Log) -> list[bytes | None]:
    """The values of all records."""
    return [record.value for record in records(log)]


def bases(log: Log) -> list[int]:
    """Base offsets of the segments."""
    return [segment.base_offset for segment in log.segments]


def stop_cleanly(log: Log) -> None:
    """Finish, sync and close."""
    log.finish()
    log.sync()
    log.close()


def path(base_offset: int, suffix: str) -> str:
    """A segment's file."""
    return f"{FOLDER}/{base_offset:020d}{suffix}"


def flip(files: MemoryFiles, name: str, position: int) -> None:
    """Change one byte of a file."""
    data = bytearray(files.content(name))
    data[position] ^= 0x55
    files.overwrite(name, bytes(data))
