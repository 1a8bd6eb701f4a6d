"""The records of a partition, chosen by offset, time and key; `tailrace.offline.show` shows them.

Bounds of offset and time are looked up in the indexes, so that only what is wanted is read.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from tailrace import kernels
from tailrace.config.settings import INT64_MAX
from tailrace.errors import DirectoryError, TailraceError
from tailrace.kernels.showing import ANY_KEY, NO_RECORD, THIS_KEY, BoundIndex, Form
from tailrace.model import OFFSET_MAX, IsolationLevel, Offset, TopicPartition
from tailrace.offline.show import Page
from tailrace.reading.directory import DataDirectory, unreadable
from tailrace.reading.located import OnSkip
from tailrace.reading.reader import StoredBatch
from tailrace.reading.view import UNREADABLE, LogView, open_view
from tailrace.runtime.files import Files
from tailrace.storage.names import parse_partition_directory_name
from tailrace.values import dataclass

if TYPE_CHECKING:
    from array import array

    from tailrace.schemas.shown import ShownDecoder

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice of records; every bound that is not None must hold."""

    from_offset: int | None = None
    to_offset: int | None = None
    """The first offset that is not wanted."""
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    """The end: output stops before the first record as young as this."""
    key: bytes | None = None
    limit: int | None = None
    """Most records to show."""
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
        numbers = sorted(each.partition for each in directory.partitions if each.topic == topic)
        if numbers:
            listed = ", ".join(map(str, numbers[:10])) + (" and more" if len(numbers) > 10 else "")
            raise DirectoryError(
                f"{directory.path} has no partition {partition} of topic {topic}; it has {listed}"
            )
        wanted = topic if partition is None else TopicPartition(topic, partition)
        topics = sorted({each.topic for each in directory.partitions})
        known = ", ".join(topics[:10]) + (" and more" if len(topics) > 10 else "")
        raise DirectoryError(f"{directory.path} has no {wanted}; its topics: {known or 'none'}")
    return found


class ChosenBatch(NamedTuple):
    """A sound batch that may hold chosen records, and bounds for choosing them."""

    stored: StoredBatch
    start_offset: Offset
    limit_offset: Offset
    """The first offset that is not wanted."""
    is_hidden: bool
    """Whether no record is to be shown: a marker, or aborted, where only committed ones are."""


def show_records(
    files: Files,
    partitions: dict[TopicPartition, str],
    choice: Choice,
    *,
    form: Form,
    on_skip: OnSkip | None = None,
    decoder: "ShownDecoder | None" = None,
) -> Iterator[bytes]:
    """The records in the order of partitions and offsets, as pages of whole lines in UTF-8.

    With `on_skip` damage is reported to it and skipped. With `decoder` keys and values are decoded.

    Raises:
        CorruptionError: a batch that holds wanted offsets is damaged and may not be skipped; what
            came before is good.
        OffsetsDeletedError: retention has deleted wanted offsets meanwhile; likewise.
        DirectoryError: a file cannot be read.
    """
    records_max = INT64_MAX if choice.limit is None else choice.limit
    page = Page(form, records_max=records_max, decoder=decoder)
    try:
        for partition, folder in partitions.items():
            if page.has_enough:
                break
            with readable(folder):
                log = open_view(
                    files, folder, partition, isolation=choice.isolation, on_skip=on_skip
                )
                yield from show_partition(log, partition, choice, page=page)
    # What was read before the error is good, and is shown first.
    except TailraceError:
        yield page.take()
        raise
    yield page.take()


def show_partition(
    log: LogView,
    partition: TopicPartition,
    choice: Choice,
    *,
    page: Page,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[bytes]:
    """Adds the chosen records of one partition to `page`, and gives out the pages that are full.

    `progress` takes bytes of log that have been read.

    Raises:
        CorruptionError, OffsetsDeletedError, OSError: as `chosen_batches`.
    """
    key = choice.key or b""
    made_for, bounds = None, kernels.int64s(0)
    for stored, start, limit, is_hidden in chosen_batches(log, choice):
        batch = stored.batch
        if (start, limit, is_hidden, batch.is_control) != made_for:
            made_for = start, limit, is_hidden, batch.is_control
            bounds = _bounds(choice, start, limit)
            if is_hidden or (batch.is_control and (page.is_export or choice.key is not None)):
                # Nothing of it is shown, but it is walked: the end by time may lie in it.
                bounds[BoundIndex.KEYS] = NO_RECORD
            if batch.is_control:
                # The time of a marker is that of a broker's clock.
                bounds[BoundIndex.LATEST] = INT64_MAX
        try:
            is_late = yield from page.add(partition, batch, bounds=bounds, key=key)
        except UNREADABLE as error:
            log.leave_out(stored, error)
            continue
        progress(batch.size)
        if is_late or page.has_enough:
            return


def chosen_batches(log: LogView, choice: Choice) -> Iterator[ChosenBatch]:
    """The batches that may hold chosen records, in the order of their offsets.

    Raises:
        CorruptionError: a batch, the end of the log, or a transaction index that is needed is
            damaged and may not be skipped; an index never may.
        OffsetsDeletedError: retention has deleted wanted offsets meanwhile.
        OSError: a file cannot be read.
    """
    reader = log.reader
    start = max(Offset(choice.from_offset or 0), reader.start_offset)
    limit = OFFSET_MAX if choice.to_offset is None else Offset(choice.to_offset)
    aborted = None
    # The index of aborted transactions is read only where it is needed: damage of it is an error.
    if choice.isolation is IsolationLevel.READ_COMMITTED and start < reader.end_offset:
        if log.latest_offset() < reader.end_offset:
            limit = min(limit, log.latest_offset())
        aborted = log.find_aborted(start)
    for stored in _batches(log, start, limit=limit, from_time_ms=choice.from_time_ms):
        batch = stored.batch
        # The index leads to an offset near the time; timestamps need not rise from there.
        if choice.from_time_ms is not None and batch.max_timestamp < choice.from_time_ms:
            continue
        is_hidden = aborted is not None and (batch.is_control or aborted.has(batch))
        yield ChosenBatch(stored, start, limit, is_hidden)
    # Damage after the end is of interest only if the end was asked for.
    if limit > reader.end_offset:
        log.finish()


@contextmanager
def readable(folder: str) -> Iterator[None]:
    """Turns an error of the system into one line for an operator.

    Raises:
        DirectoryError: instead of an OSError.
    """
    try:
        yield
    except DirectoryError:
        raise
    except OSError as error:
        raise unreadable(error.filename or folder, error) from error


def _bounds(choice: Choice, start: int, limit: int) -> "array[int]":
    """The bounds of a kernel; what is beyond int64 is as good as its ends."""
    bounds = kernels.int64s(len(BoundIndex))
    earliest, latest = choice.from_time_ms, choice.to_time_ms
    bounds[BoundIndex.START_OFFSET] = min(start, INT64_MAX)
    bounds[BoundIndex.LIMIT_OFFSET] = min(limit, INT64_MAX)
    bounds[BoundIndex.EARLIEST] = -INT64_MAX - 1 if earliest is None else min(earliest, INT64_MAX)
    bounds[BoundIndex.LATEST] = INT64_MAX if latest is None else min(latest, INT64_MAX)
    bounds[BoundIndex.KEYS] = ANY_KEY if choice.key is None else THIS_KEY
    return bounds


def _batches(
    log: LogView, start: Offset, *, limit: Offset, from_time_ms: int | None
) -> Iterator[StoredBatch]:
    """The checked batches with offsets from `start` to below `limit`, by the indexes.

    Batches before the first that can be young enough are stepped over.
    """
    end = min(limit, log.reader.end_offset)
    if start >= end:
        return
    if from_time_ms is None:
        yield from log.batches(start, end)
    else:
        yield from log.batches_since(from_time_ms, start, end)


def parse_time(text: str) -> int:
    """Milliseconds since 1970 from digits or from ISO 8601; UTC where it names no zone.

    Raises:
        ValueError: neither of the two.
    """
    # Shorter digits are ISO dates, as 20260501.
    if text.isascii() and text.isdigit() and len(text) > 8:
        return int(text)
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)
