"""Two replicas of one partition, held against each other up to the first difference.

A follower appends its leader's bytes, so replicas have the same batches, however they are cut into
segments. Compared is what both have: from the later start on, up to the earlier end.

Not here: which of the two is right. A checksum that does not hold is told with the difference. On
a compacted topic replicas are cleaned at different times, and a difference may be nothing but that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tailrace.errors import CorruptionError, TailraceError
from tailrace.offline.directory import list_segments
from tailrace.records.batch import Batch
from tailrace.records.builder import Record, records_of
from tailrace.runtime.files import Files
from tailrace.storage.listing import SegmentFiles
from tailrace.storage.reader import StoredBatch
from tailrace.storage.walk import walk_batches

_FIELDS = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence",
    "record_count",
)  # fmt: skip
_Side: TypeAlias = StoredBatch | CorruptionError | OSError
"""What a log has next."""

_SHOWN_BYTES = 40
"""Of a value that differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place where two logs are not the same."""

    offset: int
    path: str
    position: int | None
    """Bytes from the start of the file; None where the log cannot be read or has nothing there."""
    other_path: str
    other_position: int | None
    sentence: str
    """What differs, with the values of both; the first one's come first."""

    def __str__(self) -> str:
        first = _place(self.path, self.position)
        second = _place(self.other_path, self.other_position)
        return f"offset {self.offset}: {first} and {second}: {self.sentence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How far two logs are the same."""

    start: int = 0
    limit: int = 0
    """The offset behind the last batch that is the same in both."""
    batches: int = 0
    bytes: int = 0
    difference: Difference | None = None


def compare_logs(files: Files, folder: str, other_folder: str) -> Comparison:
    """The batches of two partition folders, up to the first difference.

    Raises:
        DirectoryError: a folder or a log file cannot be listed.
    """
    first, second = list_segments(files, folder)[0], list_segments(files, other_folder)[0]
    if not first or not second:
        return Comparison()
    start = max(first[0].base_offset, second[0].base_offset)
    walks = _walk(files, first, start), _walk(files, second, start)
    limit, batches, size = start, 0, 0
    while True:
        mine = _next_of(walks[0])
        theirs = _next_of(walks[1])
        if mine is None or theirs is None:
            difference = None
            break
        if not (isinstance(mine, StoredBatch) and isinstance(theirs, StoredBatch)):
            difference = _unreadable(limit, (folder, mine), (other_folder, theirs))
            break
        difference = _difference(mine, theirs)
        if difference is not None:
            break
        limit, batches, size = mine.batch.next_offset, batches + 1, size + mine.batch.size
    return Comparison(start=start, limit=limit, batches=batches, bytes=size, difference=difference)


def _next_of(walk: Iterator[StoredBatch]) -> _Side | None:
    try:
        return next(walk, None)
    except (CorruptionError, OSError) as error:
        return error


def _walk(files: Files, segments: Sequence[SegmentFiles], start: int) -> Iterator[StoredBatch]:
    """The batches from offset `start` on."""
    for number, segment in enumerate(segments):
        following = segments[number + 1 : number + 2]
        if following and following[0].base_offset <= start:
            continue
        file = files.open(segment.path, read_only=True)
        try:
            for position, batch in walk_batches(file, segment.path, start=0, limit=segment.size):
                if batch.base_offset >= start:
                    yield StoredBatch(batch, segment.path, position)
        finally:
            file.close()


def _difference(mine: StoredBatch, theirs: StoredBatch) -> Difference | None:
    first, second = mine.batch, theirs.batch
    if bytes(first.view) == bytes(second.view):
        return None
    offset = min(first.base_offset, second.base_offset)
    if first.base_offset != second.base_offset:
        sentence = (
            f"the next batch begins at offset {first.base_offset} and at {second.base_offset}"
        )
    else:
        sentence = "; ".join([*_fields(first, second), *_records(first, second)])
    damaged = [
        f"the {name} is damaged: {rule}"
        for name, rule in (("first", _damage(first)), ("second", _damage(second)))
        if rule is not None
    ]
    return Difference(
        offset=offset,
        path=mine.path,
        position=mine.position,
        other_path=theirs.path,
        other_position=theirs.position,
        sentence="; ".join([sentence or "the bytes of the records differ", *damaged]),
    )


def _fields(first: Batch, second: Batch) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {getattr(first, name)} and {getattr(second, name)}"
        for name in _FIELDS
        if getattr(first, name) != getattr(second, name)
    ]


def _records(first: Batch, second: Batch) -> list[str]:
    """The first record that differs, if those of both can be read."""
    try:
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


def _unreadable(offset: int, *sides: tuple[str, _Side]) -> Difference:
    """Where the walk over one log or both of them has ended."""
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
    (path, position), (other_path, other_position) = places
    return Difference(
        offset=offset,
        path=path,
        position=position,
        other_path=other_path,
        other_position=other_position,
        sentence="; ".join(sentences),
    )


def _place(path: str, position: int | None) -> str:
    return path if position is None else f"{path}, position {position}"
