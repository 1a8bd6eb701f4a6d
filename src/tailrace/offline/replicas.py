"""Two replicas of one partition, compared from end to end.

A follower appends its leader's bytes, so replicas have the same batches, however they are cut into
segments. Batches are paired by their base offsets; differences are ranges of offsets:

    what         offset 0        10        20        30        40        50
    first log    |---------------|---------|---------|---------|---------|
    second log                   |---------|-- x x --|---------|
    difference   log-start                 content             log-end: 10 records short

A log that begins later or ends earlier is a difference too, though it may be in order: retention
comes to each replica in its own time, and a follower may lag.

Not here: which of the two is right. A wrong checksum is reported with the difference. On a
compacted topic replicas are cleaned at different times, and a difference may be nothing but that.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from enum import Enum
from typing import TypeAlias

from tailrace.config.settings import INT64_MAX
from tailrace.errors import CorruptionError, TailraceError
from tailrace.model import OFFSET_MAX, Offset
from tailrace.offline.findings import FINDINGS_MAX
from tailrace.reading.directory import believed_log_start, list_segments
from tailrace.reading.listing import STALE, TRIES_MAX, SegmentFiles, exchanged, unsettled
from tailrace.reading.reader import StoredBatch
from tailrace.records.batch import Batch
from tailrace.records.builder import Record, records_of
from tailrace.runtime.files import Files
from tailrace.storage.names import parse_partition_directory_name
from tailrace.storage.set_aside import is_blank
from tailrace.storage.walk import walk_batches
from tailrace.values import dataclass, replace

_FIELDS = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence",
    "record_count",
)  # fmt: skip
# Next item of a log: a batch, or the error that ends the walk.
_Side: TypeAlias = StoredBatch | CorruptionError | OSError

# Number of bytes of a differing value that a finding shows.
_SHOWN_BYTES = 40


class DifferenceKind(Enum):
    """Kinds of differences between two logs."""

    LOG_START = "log-start"
    """One begins later."""
    CONTENT = "content"
    """Batches are in one of them only, or not the same in both."""
    LOG_END = "log-end"
    """One ends earlier."""
    UNREADABLE = "unreadable"
    """One cannot be read on from here; what follows was not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One range of offsets in which two logs are not the same."""

    kind: DifferenceKind
    offset: int
    """The first offset of the range."""
    next_offset: int | None = None
    """The offset after it; None if that is unknown."""
    path: str
    position: int | None = None
    """Bytes from the start of the file; None where the log cannot be read or has nothing there."""
    other_path: str
    other_position: int | None = None
    sentence: str
    """The difference, with the values of both logs, the first log's value first."""
    batches: int = 0
    """Number of batches of either log that the other one lacks or has with other content."""

    def __str__(self) -> str:
        first = _place(self.path, self.position)
        second = _place(self.other_path, self.other_position)
        rest = f"; {self.batches} batches up to offset {self.next_offset}" if self.batches else ""
        return (
            f"offset {self.offset}: {first} and {second}: {self.sentence}{rest} [{self.kind.value}]"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Result of comparing two logs: the offsets where they are the same, and their differences."""

    start: int = 0
    """The first offset that both have."""
    limit: int = 0
    """The offset up to which all batches are the same in both."""
    batches: int = 0
    """Number of batches that are the same in both."""
    bytes: int = 0
    differences: tuple[Difference, ...] = ()
    """In the order of their offsets; at most `FINDINGS_MAX` of a kind."""
    counts: Counter[DifferenceKind]
    """Number of differences of each kind."""


class _Log:
    """One of the logs, batch by batch; `open` makes it."""

    def __init__(self, folder: str, start: int, walk: Iterator[StoredBatch]) -> None:
        self.folder = folder
        self.start = self.end = start
        """The offset after the last batch so far."""
        self.next: _Side | None = None
        """The next item of the walk; None at the end."""
        self._walk = walk

    @classmethod
    def open(cls, files: Files, folder: str) -> "_Log":
        """The log of a partition's folder, at its first batch."""
        segments, _ = list_segments(files, folder)
        parent, _, name = folder.rstrip("/").rpartition("/")
        partition = parse_partition_directory_name(name)
        start = segments[0].base_offset if segments else Offset(0)
        if partition is not None:
            start = Offset(
                believed_log_start(
                    files, parent or ".", partition, folder=folder, segments=segments
                )
            )
        log = cls(folder, start, _walk(files, folder, segments, start=start))
        log.advance()
        return log

    def advance(self) -> None:
        """Go on to the next batch."""
        if isinstance(self.next, StoredBatch):
            self.end = max(self.end, self.next.batch.next_offset)
        try:
            self.next = next(self._walk, None)
        except (CorruptionError, OSError) as error:
            self.next = error

    def pass_records(self, limit: int) -> int:
        """Count the records below an offset, and advance to the first batch that reaches it."""
        count = 0
        while isinstance(self.next, StoredBatch) and self.next.batch.base_offset < limit:
            batch = self.next.batch
            count += max(min(batch.record_count, limit - batch.base_offset), 0)
            if batch.last_offset >= limit:
                break  # The other log may begin in the middle of the same batch.
            self.advance()
        return count


class _Found:
    """The differences so far."""

    def __init__(self) -> None:
        self.counts: Counter[DifferenceKind] = Counter()
        self.differences: list[Difference] = []
        # A range of batches that differ, which may go on.
        self._open: Difference | None = None

    def add(self, difference: Difference) -> None:
        self.close()
        self._keep(difference)

    def extend(self, difference: Difference) -> None:
        """Note a batch that differs, in the range of those before it if they do too."""
        if self._open is None:
            self._open = difference
        else:
            ends = self._open.next_offset or 0, difference.next_offset or 0
            self._open = replace(
                self._open,
                next_offset=max(ends),
                batches=self._open.batches + difference.batches,
            )

    def close(self) -> None:
        """End a range of differences: a batch is the same in both, or there are no more."""
        if self._open is not None:
            self._keep(self._open)
            self._open = None

    def _keep(self, difference: Difference) -> None:
        self.counts[difference.kind] += 1
        if self.counts[difference.kind] <= FINDINGS_MAX:
            self.differences.append(difference)


def compare_logs(files: Files, folder: str, other_folder: str) -> Comparison:
    """Two partition folders, batch by batch, and where they begin and end.

    Raises:
        DirectoryError: a folder or a log file cannot be listed.
    """
    first, second = _Log.open(files, folder), _Log.open(files, other_folder)
    found = _Found()
    start = max(first.start, second.start)
    _compare_starts(first, second, found)
    limit, batches, size = start, 0, 0
    while isinstance(first.next, StoredBatch) and isinstance(second.next, StoredBatch):
        mine, theirs = first.next, second.next
        difference = _difference(mine, theirs)
        if difference is None:
            found.close()
            batches, size = batches + 1, size + mine.batch.size
            limit = limit if found.counts[DifferenceKind.CONTENT] else mine.batch.next_offset
        else:
            found.extend(difference)
        # The lower one goes first, both if they are equal: so the logs stay side by side across a
        # gap in one.
        if mine.batch.base_offset <= theirs.batch.base_offset:
            first.advance()
        if theirs.batch.base_offset <= mine.batch.base_offset:
            second.advance()
    found.close()
    if _is_error(first.next) or _is_error(second.next):
        at = max(first.end, second.end)
        found.add(_unreadable(at, (folder, first.next), (other_folder, second.next)))
    else:
        _compare_ends(first, second, found)
    return Comparison(
        start=start,
        limit=limit,
        batches=batches,
        bytes=size,
        differences=tuple(found.differences),
        counts=found.counts,
    )


def _compare_starts(first: _Log, second: _Log, found: _Found) -> None:
    if first.start == second.start:
        return
    early, late = sorted((first, second), key=lambda each: each.start)
    count = early.pass_records(late.start)
    names = ("first", "second") if early is first else ("second", "first")
    found.add(
        Difference(
            kind=DifferenceKind.LOG_START,
            offset=early.start,
            next_offset=late.start,
            path=first.folder,
            other_path=second.folder,
            sentence=f"the {names[1]} begins at offset {late.start}, without {count} records that "
            f"the {names[0]} has from offset {early.start} on",
        )
    )


def _compare_ends(first: _Log, second: _Log, found: _Found) -> None:
    """Read both logs to their ends, and note if one ends earlier."""
    counts = [each.pass_records(INT64_MAX) for each in (first, second)]
    for each in (first, second):
        if _is_error(each.next):
            sides = (first.folder, first.next), (second.folder, second.next)
            found.add(_unreadable(each.end, *sides))
            return
    if first.end == second.end:
        return
    short, long = sorted((first, second), key=lambda each: each.end)
    names = ("first", "second") if short is first else ("second", "first")
    found.add(
        Difference(
            kind=DifferenceKind.LOG_END,
            offset=short.end,
            next_offset=long.end,
            path=first.folder,
            other_path=second.folder,
            sentence=f"the {names[0]} ends at offset {short.end} and is {max(counts)} records "
            f"short: the {names[1]} ends at {long.end}",
        )
    )


def _is_error(side: _Side | None) -> bool:
    return isinstance(side, CorruptionError | OSError)


def _walk(
    files: Files, folder: str, segments: Sequence[SegmentFiles], *, start: Offset
) -> Iterator[StoredBatch]:
    """The batches that reach to offset `start` or beyond; continues where files are exchanged.

    Raises:
        CorruptionError: bytes that are no batch, or offsets that do not rise.
        DirectoryError: files were exchanged at each try, or the folder is gone.
        OSError: a file cannot be read.
    """
    # Not `LogReader.stored_runs`: that ends at the first wrong checksum. Here a damaged batch is a
    # difference like others, and the batches after it are compared too.
    tries, at, since, is_first = 0, start, start, True
    # While `is_first`, batches before `at` are not wanted or were seen.
    while True:
        try:
            for number, segment in enumerate(segments):
                following = segments[number + 1 : number + 2]
                if following and following[0].base_offset <= at:
                    continue
                since, end = segment.base_offset, 0
                with closing(files.open(segment.path, read_only=True)) as file:
                    walk = walk_batches(file, segment.path, start=0, limit=segment.size)
                    try:
                        for position, batch in walk:
                            end = position + batch.size
                            if is_first and batch.last_offset < at:
                                continue
                            if batch.base_offset < at and not is_first:
                                raise CorruptionError(
                                    f"the batch begins at offset {batch.base_offset}, where {at} "
                                    "or more is due",
                                    path=segment.path,
                                    position=position,
                                )
                            yield StoredBatch(batch, segment.path, position)
                            at, tries, is_first = batch.next_offset, 0, False
                    except CorruptionError:
                        # Zeros are room for appends, unless offsets are missing there.
                        is_end = not following or following[0].base_offset == at
                        if not is_end or not is_blank(
                            file, segment.path, start=end, limit=segment.size
                        ):
                            raise
        except STALE as error:
            tries, is_first = tries + 1, True
            known, segments = segments, list_segments(files, folder)[0]
            is_other = exchanged(known, segments, start_offset=since, limit_offset=OFFSET_MAX)
            # The file is the one that was listed, so the error is of the log and not of a broker.
            if not (is_other or isinstance(error, FileNotFoundError)):
                raise
            if tries >= TRIES_MAX:
                raise unsettled(folder) from error
        else:
            return


def _difference(mine: StoredBatch, theirs: StoredBatch) -> Difference | None:
    first, second = mine.batch, theirs.batch
    # The header too: a follower has its leader's bytes, the epoch included.
    if bytes(first.view) == bytes(second.view) and first.legacy == second.legacy:
        return None
    offset, count = min(first.base_offset, second.base_offset), 1
    next_offset = first.next_offset if first.base_offset == offset else second.next_offset
    if first.base_offset != second.base_offset:
        sentence = (
            f"the next batch begins at offset {first.base_offset} and at {second.base_offset}"
        )
    else:
        count, next_offset = 2, max(first.next_offset, second.next_offset)
        parts = [*_fields(first, second), *_stored(first, second), *_records(first, second)]
        sentence = "; ".join(parts)
    damaged = [
        f"the {name} is damaged: {rule}"
        for name, rule in (("first", _damage(first)), ("second", _damage(second)))
        if rule is not None
    ]
    return Difference(
        kind=DifferenceKind.CONTENT,
        offset=offset,
        next_offset=next_offset,
        path=mine.path,
        position=mine.position,
        other_path=theirs.path,
        other_position=theirs.position,
        sentence="; ".join([sentence or "the bytes of the records differ", *damaged]),
        batches=count,
    )


def _fields(first: Batch, second: Batch) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {getattr(first, name)} and {getattr(second, name)}"
        for name in _FIELDS
        if getattr(first, name) != getattr(second, name)
    ]


def _stored(first: Batch, second: Batch) -> list[str]:
    """The difference of two entries of older formats, which were converted for the comparison."""
    if first.legacy == second.legacy:
        return []
    one, two = (
        "format v2"
        if entry is None
        else f"format v{entry.magic} with codec {entry.codec_number}, {entry.size} bytes"
        for entry in (first.legacy, second.legacy)
    )
    return [f"stored in {one} and in {two}"]


def _records(first: Batch, second: Batch) -> list[str]:
    """The first record that differs, if those of both can be read."""
    try:
        # For the words of the difference only, so what cannot be read is left to the fields.
        pairs = list(zip(records_of(first), records_of(second), strict=False))
    except TailraceError:
        return []
    for mine, theirs in pairs:
        for name in Record._fields:
            one, two = getattr(mine, name), getattr(theirs, name)
            if one != two:
                return [f"record {mine.offset}: {name} {_shown(one)} and {_shown(two)}"]
    return []


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_BYTES else f"{text[:_SHOWN_BYTES]}…"


def _damage(batch: Batch) -> str | None:
    try:
        batch.check()
    except CorruptionError as error:
        return error.rule
    return None


def _unreadable(offset: int, *sides: tuple[str, _Side | None]) -> Difference:
    """Positions at which the walk over one or both logs ended early."""
    places, sentences = [], []
    for name, (folder, side) in zip(("first", "second"), sides, strict=True):
        match side:
            case CorruptionError():
                places.append((side.path or folder, side.position))
                sentences.append(f"the {name} cannot be read on: {side.rule}")
            case OSError():
                places.append((str(side.filename or folder), None))
                sentences.append(f"the {name} cannot be read: {side.strerror or side}")
            case StoredBatch():
                places.append((side.path, side.position))
            case None:
                places.append((folder, None))
    (path, position), (other_path, other_position) = places
    return Difference(
        kind=DifferenceKind.UNREADABLE,
        offset=offset,
        path=path,
        position=position,
        other_path=other_path,
        other_position=other_position,
        sentence="; ".join(sentences),
    )


def _place(path: str, position: int | None) -> str:
    return path if position is None else f"{path}, position {position}"
