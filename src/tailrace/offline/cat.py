"""The records of a partition, chosen by offset, time and key; `tailrace.offline.show` shows them.

Bounds of offset and time are looked up in the indexes, so that only what is wanted is read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tailrace import kernels
from tailrace.config.settings import INT64_MAX
from tailrace.errors import CorruptionError, DirectoryError, TailraceError
from tailrace.kernels.showing import ANY_KEY, NO_RECORD, THIS_KEY, Bound, Form
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.offline.directory import DataDirectory, unreadable
from tailrace.offline.show import Page
from tailrace.offline.undecided import AbortedRecords, find_aborted, first_unstable_offset
from tailrace.offline.walk import offset_before_time
from tailrace.records.batch import Batch
from tailrace.runtime.files import Files
from tailrace.storage.listing import SegmentFiles
from tailrace.storage.names import parse_partition_directory_name
from tailrace.storage.reader import LogReader, open_log_reader

if TYPE_CHECKING:
    from array import array

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which records; every bound that is not None must hold."""

    from_offset: int | None = None
    to_offset: int | None = None
    """The first offset that is not wanted."""
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    """Where to stop: the first record as young as this, and what is behind it, is not wanted."""
    key: bytes | None = None
    limit: int | None = None
    """At most so many records."""
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    """READ_COMMITTED leaves out aborted records, markers, and all from the first open transaction
    on."""


def choose_partitions(
    directory: DataDirectory, topic: str, partition: int | None
) -> dict[TopicPartition, str]:
    """The folders that `flights-3`, `flights` with 3, or `flights` alone (all of them) name.

    Raises:
        DirectoryError: there is none; the message names the topics there are.
    """
    named = parse_partition_directory_name(topic)
    if partition is None and named in directory.partitions:
        assert named is not None
        return {named: directory.partitions[named]}
    found = {
        each: folder
        for each, folder in directory.partitions.items()
        if each.topic == topic and partition in (None, each.partition)
    }
    if not found:
        wanted = topic if partition is None else TopicPartition(topic, partition)
        topics = sorted({each.topic for each in directory.partitions})
        known = ", ".join(topics[:10]) + (" and more" if len(topics) > 10 else "")
        raise DirectoryError(f"{directory.path} has no {wanted}; its topics: {known or 'none'}")
    return found


def show_records(
    files: Files, partitions: dict[TopicPartition, str], choice: Choice, *, form: Form
) -> Iterator[bytes]:
    """The records in the order of partitions and offsets, as pages of whole lines in UTF-8.

    Raises:
        CorruptionError: a batch that holds wanted offsets is damaged; what came before is good.
        OffsetsDeletedError: retention has deleted wanted offsets meanwhile; likewise.
        DirectoryError: a file cannot be read.
    """
    page = Page(form, records_max=INT64_MAX if choice.limit is None else choice.limit)
    try:
        for partition, folder in partitions.items():
            if page.has_enough:
                break
            yield from _show_partition(files, partition, folder, choice=choice, page=page)
    except TailraceError:
        yield page.take()
        raise
    yield page.take()


def _show_partition(
    files: Files, partition: TopicPartition, folder: str, *, choice: Choice, page: Page
) -> Iterator[bytes]:
    damage: list[CorruptionError] = []

    def judge_tail(last: SegmentFiles, end: int, error: CorruptionError | None) -> int:
        """Damage at the end of the log is told when what is before it has been shown."""
        del last
        damage[:] = [] if error is None else [error]
        return end

    try:
        reader = open_log_reader(files, folder, judge_tail=judge_tail)
        start = max(choice.from_offset or 0, reader.start_offset)
        limit = INT64_MAX if choice.to_offset is None else choice.to_offset
        is_committed = choice.isolation is IsolationLevel.READ_COMMITTED
        aborted = AbortedRecords([])
        if is_committed and start < reader.end_offset:
            unstable, aborted = reader.settled(
                start, INT64_MAX, lambda: _undecided(files, folder, reader, start=start)
            )
            limit = limit if unstable is None else min(limit, unstable)
        bounds = _bounds(choice, start, limit)
        keys, latest = bounds[Bound.KEYS], bounds[Bound.LATEST]
        for batch in _batches(files, reader, start, limit=limit, from_time_ms=choice.from_time_ms):
            if choice.from_time_ms is not None and batch.max_timestamp < choice.from_time_ms:
                continue
            is_hidden = is_committed and (batch.is_control or aborted.has(batch))
            is_hidden = is_hidden or (batch.is_control and choice.key is not None)
            bounds[Bound.KEYS] = NO_RECORD if is_hidden else keys
            # The time of a marker is that of a broker's clock.
            bounds[Bound.LATEST] = INT64_MAX if batch.is_control else latest
            is_late = yield from page.add(partition, batch, bounds=bounds, key=choice.key or b"")
            if is_late or page.has_enough:
                return
        if damage and limit > reader.end_offset:
            raise damage[0]
    except DirectoryError:
        raise
    except OSError as error:
        raise unreadable(error.filename or folder, error) from error


def _undecided(
    files: Files, folder: str, reader: LogReader, *, start: int
) -> tuple[int | None, AbortedRecords]:
    """What readers of committed records do not see."""
    unstable = first_unstable_offset(files, folder, reader.segments, end=reader.end_offset)
    return unstable, find_aborted(files, reader.segments, start)


def _bounds(choice: Choice, start: int, limit: int) -> "array[int]":
    """The bounds of a kernel; what is beyond int64 is as good as its ends."""
    bounds = kernels.int64s(len(Bound))
    earliest, latest = choice.from_time_ms, choice.to_time_ms
    bounds[Bound.START_OFFSET] = min(start, INT64_MAX)
    bounds[Bound.LIMIT_OFFSET] = min(limit, INT64_MAX)
    bounds[Bound.EARLIEST] = -INT64_MAX - 1 if earliest is None else min(earliest, INT64_MAX)
    bounds[Bound.LATEST] = INT64_MAX if latest is None else min(latest, INT64_MAX)
    bounds[Bound.KEYS] = ANY_KEY if choice.key is None else THIS_KEY
    return bounds


def _batches(
    files: Files, reader: LogReader, start: int, *, limit: int, from_time_ms: int | None
) -> Iterator[Batch]:
    """The checked batches with offsets from `start` to below `limit`, by the indexes.

    Batches before the first that can be young enough are stepped over.
    """
    end = min(limit, reader.end_offset)
    if from_time_ms is None:
        if start < end:
            yield from reader.batches(start, end)
        return
    segments = reader.segments
    bases = [*(segment.base_offset for segment in segments[1:]), INT64_MAX]
    for segment, following in zip(segments, bases, strict=False):
        first, last = max(start, segment.base_offset), min(following, end)
        if first >= last:
            continue
        # What is behind the last entry is read: a lost machine may have left a time index short.
        first = max(first, offset_before_time(files, segment, from_time_ms))
        if first < last:
            yield from reader.batches(first, last)


def parse_time(text: str) -> int:
    """Milliseconds since 1970 from digits or from ISO 8601; UTC where it names no zone.

    Raises:
        ValueError: neither of the two.
    """
    if text.isascii() and text.isdigit() and len(text) > 8:
        return int(text)
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)
