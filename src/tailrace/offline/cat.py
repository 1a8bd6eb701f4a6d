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
from tailrace.offline.directory import (
    DataDirectory,
    believed_log_start,
    list_segments,
    unreadable,
)
from tailrace.offline.show import Page
from tailrace.offline.undecided import AbortedRecords, find_aborted, first_unstable_offset
from tailrace.offline.walk import newest_timestamp, offset_before_time, position_near
from tailrace.records.batch import Batch
from tailrace.runtime.files import Files
from tailrace.storage.names import parse_partition_directory_name
from tailrace.storage.reader import SegmentFiles
from tailrace.storage.walk import walk_batches

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
    try:
        segments, _ = list_segments(files, folder)
        root = folder.rstrip("/").rpartition("/")[0] or "."
        log_start = believed_log_start(files, root, partition, folder=folder, segments=segments)
        start = max(choice.from_offset or 0, log_start)
        limit = INT64_MAX if choice.to_offset is None else choice.to_offset
        is_committed = choice.isolation is IsolationLevel.READ_COMMITTED
        aborted = AbortedRecords([])
        if is_committed:
            unstable = first_unstable_offset(files, folder, segments)
            limit = limit if unstable is None else min(limit, unstable)
            aborted = find_aborted(files, segments, start)
        batches = _batches(files, segments, start, limit=limit, from_time_ms=choice.from_time_ms)
        bounds = _bounds(choice, start, limit)
        keys, latest = bounds[Bound.KEYS], bounds[Bound.LATEST]
        for batch in batches:
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
    except OSError as error:
        raise unreadable(error.filename or folder, error) from error


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
    files: Files,
    segments: list[SegmentFiles],
    start: int,
    *,
    limit: int,
    from_time_ms: int | None,
) -> Iterator[Batch]:
    """The checked batches with offsets from `start` to below `limit`, by the indexes.

    Batches before the first that can be young enough are stepped over.
    """
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if following is not None and following <= start:
            continue
        if segment.base_offset >= limit:
            return
        first = start
        if from_time_ms is not None:
            newest = newest_timestamp(files, segment)
            if following is not None and newest is not None and newest < from_time_ms:
                continue
            first = max(start, offset_before_time(files, segment, from_time_ms))
        for position, batch in _in_order(files, segment, first, following=following):
            if batch.base_offset >= limit:
                return
            if batch.last_offset < first:
                continue
            try:
                batch.check()
            except CorruptionError as error:
                raise error.located(path=segment.path, position=position) from error
            yield batch


def _in_order(
    files: Files, segment: SegmentFiles, offset: int, *, following: int | None
) -> Iterator[tuple[int, Batch]]:
    """Position and batch from near `offset` on; each fits between its neighbours.

    No checksum covers a batch's base offset, so it is held against what stands around it.
    """
    file = files.open(segment.path, read_only=True)
    try:
        position = end = position_near(files, segment, file, offset=offset)
        held = None
        for position, batch in walk_batches(file, segment.path, start=end, limit=segment.size):
            if held is not None:
                _check_order(segment, *held, limit=batch.base_offset)
                yield held
            held = position, batch
            end = position + batch.size
    finally:
        file.close()
    if following is not None and end < segment.size:
        raise CorruptionError("a batch is not whole", path=segment.path, position=end)
    if held is not None:
        _check_order(segment, *held, limit=INT64_MAX if following is None else following)
        yield held


def _check_order(segment: SegmentFiles, position: int, batch: Batch, *, limit: int) -> None:
    if not segment.base_offset <= batch.base_offset <= batch.last_offset < limit:
        raise CorruptionError(
            f"offsets {batch.base_offset} to {batch.last_offset} where those from "
            f"{segment.base_offset} to below {limit} may stand",
            path=segment.path,
            position=position,
        )


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
