"""The work items of a compaction: what a task is told, what it does, and what it tells.

    collect_keys        a group of segments -> its keys and their newest offsets, in files
    compare_keys        a range of hashes   -> the offsets that newer records supersede, in a file
    rewrite_group       a group of segments -> the new segment, under `.cleaned` names

Each is a plain function of files and one item, and knows nothing of Spark. All they write is in the
job's scratch directory, under names that no other attempt has. What one phase has told becomes the
items of the next by `tag_ranges` and `rewritings`.

Not here: the order of the phases, and what becomes of the new segments; that is `compact`.

Invariant: the log is only read.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from tailrace.runtime.files import Files, raise_descriptor_limit
from tailrace.spark.jobs.compact_keys import (
    TAGS,
    PieceChooser,
    PieceMaps,
    entries_of,
    find_superseded,
    offsets_between,
    write_entries,
    write_offsets,
)
from tailrace.storage.cleaner.errors import SegmentOverflowError
from tailrace.storage.cleaner.group import (
    GroupRewriter,
    ProducerEnd,
    RewriteCounts,
    RewriteRules,
)
from tailrace.storage.cleaner.passes import Pace, SourceSegment
from tailrace.storage.cleaner.transactions import (
    NOTHING_OPEN,
    CleanedTransactions,
    StraddlingTransactions,
    TransactionChanges,
)
from tailrace.storage.index.transaction import AbortedTxn
from tailrace.storage.records_file import open_records_file
from tailrace.values import dataclass

_UNPACED: Final = Pace(pause=lambda _: None, check=lambda: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A closed segment, by the name of its log file; the rest is as in `SourceSegment`."""

    path: str
    size_bytes: int
    base_offset: int
    limit_offset: int
    modified_ms: int
    aborted: tuple[AbortedTxn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Segments that become one."""

    sources: tuple[SourceFile, ...]
    first_dirty: int
    """First offset of the round: what lies before was cleaned already."""
    map_bytes: int
    scratch: str

    @property
    def size_bytes(self) -> int:
        """Bytes of the log files."""
        return sum(each.size_bytes for each in self.sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesFile:
    """The keys of one piece of a log."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedKeys:
    """The keys that `collect_keys` found in a group."""

    entries: tuple[EntriesFile, ...]
    transactions: TransactionChanges
    records: int
    """All of them, markers too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagRange:
    """A part of all the keys of a partition."""

    paths: tuple[str, ...]
    """The entries of all pieces."""
    tags: tuple[int, int]
    """The first tag, and the one after the last."""
    first_dirty: int
    scratch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """A group, and what decides what stays of it."""

    group: Group
    rules: RewriteRules
    producers: Mapping[int, ProducerEnd]
    open_before: StraddlingTransactions
    superseded: tuple[str, ...]
    """Files of `compare_keys`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A new segment, on the device under `.cleaned` names."""

    directory: str
    base_offset: int
    size_bytes: int
    counts: RewriteCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """A segment of the group has to be split first; as `SegmentOverflowError`."""

    base_offset: int
    offset: int


def collect_keys(files: Files, group: Group) -> CollectedKeys:
    """Write the keys of a group, each with its newest offset there, a file for each piece.

    Raises:
        CorruptionError: a batch is damaged or not whole.
        FatalError: one run has more keys than a map holds.
        OSError: a log cannot be read, or the scratch directory not be written.
    """
    transactions = CleanedTransactions()
    with_keys = PieceMaps(
        _opened(files, group.sources), map_bytes=group.map_bytes, transactions=transactions
    )
    written = []
    while with_keys.next_piece():
        path = f"{group.scratch}/{uuid.uuid4().hex}.keys"
        write_entries(files, path, entries_of(with_keys.map))
        written.append(EntriesFile(path=path, size_bytes=len(with_keys.map.entries)))
    return CollectedKeys(
        entries=tuple(written),
        transactions=transactions.met(),
        records=with_keys.records_read,
    )


def compare_keys(files: Files, tag_range: TagRange) -> str:
    """Write which offsets are superseded; returns the path of the file.

    Raises:
        OSError: a file cannot be read or written.
    """
    found = find_superseded(
        files, tag_range.paths, tags=tag_range.tags, first_dirty=tag_range.first_dirty
    )
    path = f"{tag_range.scratch}/{uuid.uuid4().hex}.superseded"
    write_offsets(files, path, found)
    return path


def rewrite_group(files: Files, item: Rewriting) -> Rewritten | Overflow:
    """Write the new segment of a group, in a directory of its own.

    Raises:
        CorruptionError: a batch is damaged or not whole.
        OSError: a log cannot be read, or the device is full or failing.
    """
    group = item.group
    sources = _opened(files, group.sources)
    superseded = offsets_between(
        files,
        item.superseded,
        start_offset=sources[0].base_offset,
        limit_offset=sources[-1].limit_offset,
    )
    chooser = PieceChooser(
        PieceMaps(
            sources,
            map_bytes=group.map_bytes,
            transactions=CleanedTransactions(item.open_before),
        ),
        superseded=superseded,
        first_dirty=group.first_dirty,
        latest_offset=item.rules.first_uncleanable - 1,
    )
    directory = f"{group.scratch}/{uuid.uuid4().hex}"
    files.make_directory(directory)
    rewriter = GroupRewriter(
        files,
        directory,
        rules=item.rules,
        chooser=chooser,
        transactions=CleanedTransactions(item.open_before),
        pace=_UNPACED,
    )
    try:
        cleaned = rewriter.rewrite(sources, producers=item.producers)
    except SegmentOverflowError as error:
        return Overflow(base_offset=error.base_offset, offset=error.offset)
    size_bytes = cleaned.size
    cleaned.close()
    return Rewritten(
        directory=directory,
        base_offset=cleaned.base_offset,
        size_bytes=size_bytes,
        counts=rewriter.counts,
    )


def tag_ranges(groups: Sequence[Group], collected: Sequence[CollectedKeys]) -> list[TagRange]:
    """All keys of a log in ranges that a task can hold; none where one piece has them all."""
    pieces = [piece for each in collected for piece in each.entries]
    if len(pieces) < 2:
        return []
    size = sum(piece.size_bytes for piece in pieces)
    first = groups[0]
    count = 1 + size // (first.map_bytes // 2)
    bounds = [number * TAGS // count for number in range(count + 1)]
    return [
        TagRange(
            paths=tuple(piece.path for piece in pieces),
            tags=tags,
            first_dirty=first.first_dirty,
            scratch=first.scratch,
        )
        for tags in pairwise(bounds)
    ]


def rewritings(
    groups: Sequence[Group],
    collected: Sequence[CollectedKeys],
    superseded: Sequence[str],
    *,
    rules: RewriteRules,
    producers: Mapping[int, ProducerEnd],
) -> Iterator[Rewriting]:
    """Plan the rewriting of each group of a log, after all of its keys were compared."""
    open_before = NOTHING_OPEN
    for group, each in zip(groups, collected, strict=True):
        yield Rewriting(
            group=group,
            rules=rules,
            producers=producers,
            open_before=open_before,
            superseded=tuple(superseded),
        )
        open_before = each.transactions.after(open_before)


def _opened(files: Files, sources: Sequence[SourceFile]) -> list[SourceSegment]:
    raise_descriptor_limit()
    return [
        SourceSegment(
            log=open_records_file(files, each.path, read_only=True),
            base_offset=each.base_offset,
            limit_offset=each.limit_offset,
            modified_ms=each.modified_ms,
            aborted=each.aborted,
        )
        for each in sources
    ]
