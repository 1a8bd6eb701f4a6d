"""`Log`: one partition's log, read from its files by a program; `tailrace.open_log` gives one.

    records()    an object for each record       for programs that look at one after the other
    batches()    the headers, nothing decoded     for sizes, codecs, producers, places in files
    arrow()      columns, without objects         for pyarrow, pandas, Polars, DuckDB

Each takes a range of offsets or of time, and with `follow` waits for what is appended later. The
files tell all that there is to know, so no broker is needed, and one may be at work on them.

Not here: how files are read beside a broker (`reader`), and what of them may be seen (`view`).

Invariant: every record of a range is given, in order; or an error is raised where one is missing;
or, with `on_damage="skip"`, `skipped` says which were left out.
"""

import operator
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeAlias, TypeVar
from uuid import UUID

from tailrace.errors import (
    ConfigError,
    CorruptionError,
    DirectoryError,
    OffsetOutOfRangeError,
    OffsetsDeletedError,
)
from tailrace.model import IsolationLevel, Offset, TopicPartition
from tailrace.reading.directory import unreadable
from tailrace.reading.located import OnSkip, Skipped, decoding
from tailrace.reading.reader import FolderGoneError, StoredBatch, StoredRun
from tailrace.reading.view import LogView, Span, open_view
from tailrace.records.builder import Record, records_of
from tailrace.runtime.extras import check_extra
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.checkpoints import read_partition_metadata
from tailrace.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

Time: TypeAlias = int | datetime
"""Milliseconds since 1970, or a time that names its zone."""

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
OnDamage: TypeAlias = Literal["raise", "skip"]

Read_co = TypeVar("Read_co", covariant=True)

FOLLOW_SECONDS: Final = 0.1
"""Shortest pause between two looks at a log that is followed."""

FOLLOW_REST: Final = 9
"""Ratio of the pause after a look to the look itself: looks take a tenth of the time at most."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ISOLATIONS: Final = {each.name.lower(): each for each in IsolationLevel}
_ON_DAMAGE: Final = ("raise", "skip")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStatistics:
    """A log at the last look at its files."""

    partition: TopicPartition
    """Topic and number."""
    folder: str
    """Path of the partition's folder."""
    earliest_offset: Offset
    """The first offset that can be read."""
    latest_offset: Offset
    """The offset after the last that the isolation level lets be read."""
    segment_count: int
    """Segments of the log."""
    size_bytes: int
    """Size of the log files, up to the last whole batch."""
    skipped_count: int
    """Number of ranges of offsets that were left out so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """The checked range of a reader."""

    start: Offset | None
    limit: Offset | None
    start_time_ms: int | None
    limit_time_ms: int | None
    follow: bool


class _Read(Protocol[Read_co]):
    """Makes something of the batches of a span."""

    def __call__(self, pieces: Iterator[StoredRun], span: Span) -> Iterator[Read_co]: ...


class Log:
    """One partition's log; see `open_log`. For one thread at a time, but for `close`.

    A log is what its files had when it was opened or refreshed last: `refresh` looks again, and so
    does whatever follows it. Nothing is open between two calls.

    Offsets are given as plain ints, and come back as `Offset`, which is an int to everything but a
    type checker.
    """

    def __init__(
        self,
        files: Files,
        folder: str,
        partition: TopicPartition,
        *,
        isolation: Isolation = "read_uncommitted",
        on_damage: OnDamage = "raise",
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """Reads nothing yet; `pause` waits some seconds, for tests."""
        self.partition: Final = partition
        self.folder: Final = folder
        """Path of the partition's folder."""
        self._files = files
        self._isolation = _ISOLATIONS[_one_of("isolation", isolation, _ISOLATIONS)]
        is_skipping = _one_of("on_damage", on_damage, _ON_DAMAGE) == "skip"
        self._skipped: list[Skipped] = []
        self._on_skip: OnSkip | None = self._skipped.append if is_skipping else None
        self._closed = threading.Event()
        self._pause = self._closed.wait if pause is None else pause
        self._view: LogView | None = None
        self._topic_id: UUID | None = None
        """The id of the topic at the last look; None: the folder has none that can be read."""
        self._look_seconds = 0.0

    def __repr__(self) -> str:
        return f"Log({self.folder!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what follows the log, from any thread: it stops before its next record.

        Any other use of a closed log is an error.
        """
        self._closed.set()

    def refresh(self) -> None:
        """Look at the files again: at records that were appended, and those that were deleted.

        Raises:
            CorruptionError: a file is damaged without which the end of the log is not known.
            DirectoryError: the folder is gone or cannot be read.
            ValueError: the log is closed.
        """
        self._check_open()
        began = time.monotonic()
        # Before the look: a folder that is made again meanwhile has another id at the next one.
        topic_id = self._read_topic_id()
        # A follower looks several times a second: the transactions continue from the last look, and
        # not from the snapshot.
        known = None if self._view is None else self._view.transactions
        with self._explaining():
            self._view = open_view(
                self._files,
                self.folder,
                self.partition,
                isolation=self._isolation,
                on_skip=self._on_skip,
                known=known,
            )
        self._topic_id = topic_id
        self._look_seconds = time.monotonic() - began

    def earliest_offset(self) -> Offset:
        """The log start offset: the first that may be read."""
        return self._looked().reader.start_offset

    def latest_offset(self) -> Offset:
        """The offset after the last record; with read_committed, the last stable offset.

        Raises:
            DirectoryError: a file cannot be read.
        """
        with self._explaining():
            return self._looked().latest_offset()

    def offset_at(self, timestamp: Time) -> Offset | None:
        """The first offset whose record is as young as a time, or younger; None without one.

        Timestamps are those of the records, and need not rise. As in Kafka, markers of
        transactions count.

        Raises:
            CorruptionError: a batch on the way is damaged.
            DirectoryError: a file cannot be read.
            TypeError: the timestamp is no time, or names no zone.
        """
        timestamp_ms = _milliseconds("timestamp", timestamp)
        with self._explaining():
            return self._looked().offset_at(timestamp_ms)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Damage that was skipped so far; empty unless `on_damage` is skip."""
        tail = [] if self._view is None else self._view.tail
        # Each look finds the damage of the tail again, and a range that is read twice reports it
        # twice.
        return tuple(dict.fromkeys([*self._skipped, *tail]))

    def statistics(self) -> LogStatistics:
        """The log in numbers, as of the last look at its files.

        Raises:
            DirectoryError: a file cannot be read.
        """
        reader = self._looked().reader
        return LogStatistics(
            partition=self.partition,
            folder=self.folder,
            earliest_offset=reader.start_offset,
            latest_offset=self.latest_offset(),
            segment_count=len(reader.segments),
            size_bytes=sum(segment.size for segment in reader.segments),
            skipped_count=len(self.skipped),
        )

    def records(
        self,
        start: int | None = None,
        limit: int | None = None,
        *,
        start_time: Time | None = None,
        limit_time: Time | None = None,
        follow: bool = False,
    ) -> Iterator[Record]:
        """The records of a range as objects, in the order of their offsets.

        The range begins at the offset `start`, or at the first record as young as `start_time`, or
        with the log. It ends before the offset `limit`, before the first record in it as young as
        `limit_time`, and where the log ended at the last look; with `follow` it waits there until
        there is more or the log is closed. Markers of transactions are no records.

        Raises:
            TypeError: at the call, an argument is of another type.
            ConfigError: at the call, both `start` and `start_time` are given.
            OffsetOutOfRangeError: the log does not have `start`.
            OffsetsDeletedError: retention was faster than the reading; it says where to go on.
            CorruptionError: bytes are damaged and may not be skipped; with file and position.
            DirectoryError: the folder is gone, or its topic was created again; or a file cannot be
                read.
            ValueError: the log is closed.
        """
        return self._read(
            _range(start, limit, start_time=start_time, limit_time=limit_time, follow=follow),
            self._records,
        )

    def batches(
        self,
        start: int | None = None,
        limit: int | None = None,
        *,
        start_time: Time | None = None,
        limit_time: Time | None = None,
        follow: bool = False,
    ) -> Iterator[StoredBatch]:
        """The batches that hold an offset of a range, with their places; no record is decoded.

        `batch` has the fields of the header under Kafka's names; those at the ends of the range
        may reach beyond it. Markers come too, as batches that are `is_control`. Arguments and
        errors are those of `records`.
        """

        def split(pieces: Iterator[StoredRun], span: Span) -> Iterator[StoredBatch]:
            for stored in pieces:
                yield from stored.batches(span.start, span.limit)

        return self._read(
            _range(start, limit, start_time=start_time, limit_time=limit_time, follow=follow),
            split,
        )

    def arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        start: int | None = None,
        limit: int | None = None,
        start_time: Time | None = None,
        limit_time: Time | None = None,
        follow: bool = False,
    ) -> "pa.RecordBatchReader":
        """The records of a range as Arrow record batches, a few megabytes each.

        `columns` are those of the Spark source, in any order; without them key, value, topic,
        partition, offset, timestamp, timestampType and headers. The range and what the iteration
        raises are those of `records`.

        Raises:
            MissingExtraError: PyArrow is not installed.
            ConfigError: a column does not exist or is named twice.
        """
        wanted = _range(start, limit, start_time=start_time, limit_time=limit_time, follow=follow)
        # After the arguments: a wrong one is reported also where PyArrow is not installed.
        check_extra("arrow", "Log.arrow")
        import pyarrow as pa

        from tailrace.reading.columns import arrow_schema, check_columns, decode

        names = check_columns(columns)

        def decoded(pieces: Iterator[StoredRun], span: Span) -> "Iterator[pa.RecordBatch]":
            return decode(pieces, span, columns=names, on_skip=self._on_skip)

        return pa.RecordBatchReader.from_batches(arrow_schema(names), self._read(wanted, decoded))

    def _records(self, pieces: Iterator[StoredRun], span: Span) -> Iterator[Record]:
        for piece in pieces:
            for stored in piece.batches(span.start, span.limit):
                # Control records are for the clients themselves; `batches` shows them.
                if stored.batch.is_control:
                    continue
                # Stays empty if the batch is skipped, since `decoding` takes its error.
                found: Iterator[Record] = iter(())
                with decoding(stored, span, self._on_skip):
                    found = records_of(stored.batch)
                for record in found:
                    # The first and the last batch may reach beyond the range, as in Kafka's fetch.
                    if span.start <= record.offset < span.limit:
                        yield record

    def _read(self, wanted: _Range, read: _Read[Read_co]) -> Iterator[Read_co]:
        """Apply `read` to each span of the range."""
        with self._explaining():
            for view, span in self._spans(wanted):
                pieces = view.visible(span.start, span.limit)
                for each in read(pieces, span):
                    if self._closed.is_set():
                        if wanted.follow:
                            return
                        self._check_open()
                    yield each

    def _spans(self, wanted: _Range) -> Iterator[tuple[LogView, Span]]:
        """The range as far as the log has it; with `follow` its next part whenever there is one."""
        self._check_open()
        view = self._looked()
        at = view.reader.start_offset if wanted.start is None else wanted.start
        _check_within(view, at)
        start_time_ms, topic_id = wanted.start_time_ms, self._topic_id
        while True:
            # Of this look: what is appended later comes with the next one.
            end = view.latest_offset()
            if start_time_ms is not None:
                found = view.offset_at(start_time_ms, start=at)
                at = end if found is None else found
                start_time_ms = start_time_ms if found is None else None
            limit = end if wanted.limit is None else min(end, wanted.limit)
            # A limit that the log has not reached yet keeps a follower waiting.
            is_last = limit == wanted.limit
            if wanted.limit_time_ms is not None:
                found = view.offset_at(wanted.limit_time_ms, start=at)
                if found is not None and found <= limit:
                    limit, is_last = found, True
            if at < limit:
                yield view, Span(self.partition, at, limit)
                at = limit
            if is_last:
                return
            # Only now: everything before the damage has been given out.
            if view.tail_error is not None and at >= view.reader.end_offset:
                raise view.tail_error
            if not (wanted.follow and self._wait()):
                return
            self.refresh()
            view = self._looked()
            self._check_is_same_topic(topic_id)
            # Retention was faster than the reader, and has deleted what comes next.
            if at < view.reader.start_offset:
                raise OffsetsDeletedError(
                    at,
                    log_start_offset=view.reader.start_offset,
                    log_end_offset=view.reader.end_offset,
                )
            _check_within(view, at)

    def _wait(self) -> bool:
        """Pause until the next look; whether the log is still open then."""
        # A look at a log of many segments takes long: it must not become all that the process does.
        self._pause(max(FOLLOW_SECONDS, FOLLOW_REST * self._look_seconds))
        return not self._closed.is_set()

    def _looked(self) -> LogView:
        if self._view is None:
            self.refresh()
        assert self._view is not None
        return self._view

    def _read_topic_id(self) -> UUID | None:
        with self._explaining():
            try:
                path = f"{self.folder}/{names.PARTITION_METADATA}"
                return read_partition_metadata(self._files, path)
            # It may be written this moment; and the records are whole without it.
            except (CorruptionError, FileNotFoundError):
                return None

    def _check_is_same_topic(self, before: UUID | None) -> None:
        # Read after the look, as the id before was read before its look.
        now = self._read_topic_id()
        if None not in {before, now} and now != before:
            raise FolderGoneError(
                f"{self.folder} is that of another topic by now: {self.partition.topic} was "
                "deleted and created again while it was read; read it from its start"
            )

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ValueError(f"the log {self.folder} is closed; open it again to read it")

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Names the file in errors of the file system."""
        try:
            yield
        # It is an OSError as well, and names its file already.
        except DirectoryError:
            raise
        except OSError as error:
            raise unreadable(str(error.filename or self.folder), error) from error


def _check_within(view: LogView, offset: Offset) -> None:
    start, end = view.reader.start_offset, view.reader.end_offset
    if not start <= offset <= end:
        raise OffsetOutOfRangeError(offset, log_start_offset=start, log_end_offset=end)


def _range(
    start: int | None,
    limit: int | None,
    *,
    start_time: Time | None,
    limit_time: Time | None,
    follow: bool,
) -> _Range:
    if start is not None and start_time is not None:
        raise ConfigError(["start, start_time: give one of them; a range has one beginning"])
    if not isinstance(follow, bool):
        raise TypeError(f"follow is {follow!r}; it must be True or False")
    return _Range(
        start=_offset("start", start),
        limit=_offset("limit", limit),
        start_time_ms=None if start_time is None else _milliseconds("start_time", start_time),
        limit_time_ms=None if limit_time is None else _milliseconds("limit_time", limit_time),
        follow=follow,
    )


def _offset(name: str, value: object) -> Offset | None:
    if value is None:
        return None
    try:
        # A bool is an int to Python, and a mistake here.
        if isinstance(value, bool):
            raise TypeError
        return Offset(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be an offset, which is an int") from None


def _milliseconds(name: str, value: object) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise TypeError(f"{name} is {value!r}, which names no zone; give it a tzinfo")
        # Records have whole milliseconds: those of a part of one are too old.
        return -((_EPOCH - value) // timedelta(milliseconds=1))
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{name} is {value!r}; it must be a datetime, or milliseconds since 1970")


def _one_of(name: str, value: str, allowed: "Sequence[str] | dict[str, IsolationLevel]") -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
    if value not in allowed:
        raise ConfigError([f"{name}: {value!r} is none of {', '.join(allowed)}"])
    return value
