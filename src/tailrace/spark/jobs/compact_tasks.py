"""The work items of a compaction: plain functions of files and one item, without Spark.

    collect_keys        a group of segments -> its keys and their newest offsets, in files
    compare_keys        a range of hashes   -> the offsets that newer records supersede, in a file
    rewrite_group       a group of segments -> the new segment, under `.cleaned` names

All they write is in the job's scratch directory, under names that no other attempt has. The results
of one phase become the items of the next by `tag_ranges` and `rewritings`.

The keys of a log need not fit one map, so there is a map for each piece of it: a stretch of
neighbouring runs whose keys fit a map of the given size. Of each key of a piece only the newest
record is compared with those of other pieces; what is older in the piece goes along with it.

    piece 1   a -> 7, b -> 3        newest of all     a -> 12          superseded, by piece
    piece 2   a -> 12, c -> 9   ->                    b -> 3      ->   1: offset 7
                                                      c -> 9           2: none

Keys are compared byte for byte, as everywhere in the cleaner. A hash of 31 bits, the tag, only says
which task compares them: the entries of all pieces are cut by ranges of it.

Not here: the order of the phases, and what becomes of the new segments (`compact`).

Invariants: the log is only read. An offset counts as superseded only if a record with the same key
comes after it, in the part of the log that the round cleans for the first time. A task holds one
map, or a range of entries of about half its size.
"""

import uuid
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace.config.settings import INT64_MAX
from tailrace.errors import FatalError
from tailrace.model import Position
from tailrace.runtime.files import File, Files, raise_descriptor_limit, read_exactly
from tailrace.storage.cleaner.group import (
    GroupRewriter,
    ProducerEnd,
    RewriteCounts,
    RewriteRules,
)
from tailrace.storage.cleaner.key_map import NO_OFFSET, KeyMap
from tailrace.storage.cleaner.passes import (
    Pace,
    Run,
    SegmentOverflowError,
    SegmentPass,
    SourceSegment,
)
from tailrace.storage.cleaner.transactions import (
    NOTHING_OPEN,
    CleanedTransactions,
    StraddlingTransactions,
    TransactionChanges,
)
from tailrace.storage.index.transaction import AbortedTxn
from tailrace.storage.records_file import open_records_file
from tailrace.values import dataclass

Int64s = np.ndarray[Any, np.dtype[np.int64]]

TAGS: Final = 2**31
"""Number of different hashes."""

BLOCK_BYTES: Final = 64 * 1024
"""Bytes of entries that are read at once. A range of tags is about so long in each piece of a log
that has a thousand of them; larger blocks would be read for a small part of them."""

_INT64_BYTES: Final = 8
_SCHEMA: Final = pa.schema([("tag", pa.int64()), ("entry", pa.binary()), ("offset", pa.int64())])
_PLACE_MASK: Final = 2**32 - 1
_UNPACED: Final = Pace(pause=lambda _: None, check=lambda: None)


class PieceMaps:
    """The keys of a group of segments, piece by piece in one map."""

    def __init__(
        self,
        sources: Sequence[SourceSegment],
        *,
        map_bytes: int,
        hash_secret: tuple[int, int],
        transactions: CleanedTransactions,
    ) -> None:
        """`transactions` are those open before the group."""
        self.map = KeyMap(map_bytes, hash_secret=hash_secret)
        self.records_read = 0
        self.limit_offset = sources[0].base_offset
        """The offset after the piece that the map holds."""
        self._sources = sources
        self._map_bytes = map_bytes
        self._transactions = transactions
        self._number = 0
        self._position = 0
        """Position of the next run, in bytes of the source of that number."""
        self._waiting: Run | None = None
        """The run for which the last piece had no room."""

    def next_piece(self) -> bool:
        """Have the map hold the next piece; False when there is none.

        Raises:
            CorruptionError: a batch or a transaction index is damaged.
            FatalError: the keys of one run do not fit the map.
        """
        if self._number == len(self._sources):
            return False
        self.map.clear()
        if self._waiting is not None:
            run, self._waiting = self._waiting, None
            if not self._put(run):
                raise FatalError(
                    f"the batches before offset {run.next_offset} have more keys than a map of "
                    f"{self._map_bytes} bytes holds; give a larger one"
                )
        # A piece may end within a segment; the next one continues at the position of the run that
        # had no room.
        while self._number < len(self._sources):
            source = self._sources[self._number]
            # Aborted transactions are added once for each segment, when its first byte is read.
            if not self._position:
                self._transactions.add_aborted(source.aborted)
            if not self._walk(source):
                return True
            self._number += 1
            self._position = 0
            self.limit_offset = source.limit_offset
        return True

    def _walk(self, source: SourceSegment) -> bool:
        def look(run: Run, position: int, batch: Any) -> None:  # noqa: ANN401
            self.records_read += batch.record_count
            # Records of aborted transactions supersede nothing.
            if not self._transactions.drops(batch):
                run.add(batch, position=position)

        def use(run: Run) -> bool:
            self._position += run.stored_bytes
            if self._put(run):
                return True
            self._waiting = run
            return False

        return SegmentPass(
            source.log,
            base_offset=source.base_offset,
            limit_offset=source.limit_offset,
            pace=_UNPACED,
        ).walk(source.log.batches(Position(self._position)), look=look, use=use, end=self._position)

    def _put(self, run: Run) -> bool:
        is_whole = self.map.put(run, start_offset=0)
        if is_whole:
            self.limit_offset = run.next_offset
        return is_whole


class PieceChooser:
    """Choose the records of a group that stay, given those that other pieces supersede."""

    def __init__(
        self, maps: PieceMaps, *, superseded: Int64s, first_dirty: int, latest_offset: int
    ) -> None:
        """`superseded` are offsets in rising order; `first_dirty` is where the round began."""
        self.latest_offset = latest_offset
        self._maps = maps
        self._superseded = superseded
        self._first_dirty = first_dirty

    def choose(self, run: Run) -> None:
        """Choose records as `KeyMap.choose` does; runs come in order, cut as those of the maps.

        Raises:
            CorruptRecordError: a record breaks a rule of the format; it has the position.
            CorruptionError, FatalError: as `PieceMaps.next_piece`.
        """
        # The rewriter comes with the same runs as the collector did, so a piece ends at the same
        # run.
        while self._maps.limit_offset < run.next_offset and self._maps.next_piece():
            _settle(self._maps.map, superseded=self._superseded, first_dirty=self._first_dirty)
        self._maps.map.choose(run)


def _settle(key_map: KeyMap, *, superseded: Int64s, first_dirty: int) -> None:
    """Have a map of one piece say what one map of the whole log would say of the piece's records.

    A newest record of the piece that is superseded takes all others of its key with it. One that is
    not, and lies before the dirty part, has no dirty record after it: then all of its key stay.
    """
    # The slots are written in place: the kernel that chooses reads the same memory.
    slots = np.frombuffer(key_map.slots, np.int64).reshape(-1, 2)
    used = np.flatnonzero(slots[:, 0])
    newest = slots[used, 1]
    indexes = np.searchsorted(superseded, newest)
    # Both are sorted, so a search finds them without a set.
    is_superseded = np.zeros(len(newest), np.bool_)
    inside = indexes < len(superseded)
    is_superseded[inside] = superseded[indexes[inside]] == newest[inside]
    slots[used, 1] = np.where(
        is_superseded, INT64_MAX, np.where(newest < first_dirty, NO_OFFSET, newest)
    )


def entries_of(key_map: KeyMap) -> pa.RecordBatch:
    """The keys of a map and their newest offsets, in the order of their tags.

    A key comes as the map's arena has it, with its size before it: equal entries are equal keys.
    """
    slots = np.frombuffer(key_map.slots, np.int64).reshape(-1, 2)
    used = slots[slots[:, 0] != 0]
    entry_indexes = (used[:, 0] & _PLACE_MASK) - 1
    # The arena has the keys in the order in which they came, which gives Arrow's offsets without a
    # copy.
    by_entry = np.argsort(entry_indexes)
    bounds = np.append(entry_indexes[by_entry], len(key_map.entries)).astype(np.int32)
    entries = pa.Array.from_buffers(
        pa.binary(), len(used), [None, pa.py_buffer(bounds), pa.py_buffer(key_map.entries)]
    )
    tags, offsets = used[by_entry, 0] >> 32, used[by_entry, 1]
    by_tag = np.argsort(tags)
    arrays = [pa.array(tags[by_tag]), entries.take(pa.array(by_tag)), pa.array(offsets[by_tag])]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def write_entries(
    files: Files, path: str, entries: pa.RecordBatch, *, block_bytes: int = BLOCK_BYTES
) -> None:
    """Write what `entries_of` gives to a new file: in blocks, after a list of what is where.

    Raises:
        OSError: the device is full or failing.
    """
    rows = max(1, block_bytes * len(entries) // max(entries.nbytes, 1))
    starts = range(0, len(entries), rows)
    firsts = entries.column("tag").to_numpy()[::rows]
    position = _INT64_BYTES * (2 + 2 * len(starts))
    ends = [position]
    file = files.open(path, create=True)
    try:
        for start in starts:
            block = entries.slice(start, rows).serialize()
            file.write(position, memoryview(block))
            position += len(block)
            ends.append(position)
        index = np.concatenate(([len(starts)], firsts, ends)).astype("<i8")
        file.write(0, memoryview(index.tobytes()))
    finally:
        file.close()


def find_superseded(
    files: Files, paths: Sequence[str], *, tags: tuple[int, int], first_dirty: int
) -> Int64s:
    """The offsets, in rising order, of entries whose key has a newer dirty one in another file.

    Looks at the entries with tags from the first of `tags` up to below the second.

    Raises:
        OSError: a file cannot be read.
    """
    # Each file is sorted by tag, so a range of tags is a few neighbouring blocks of it. The others
    # are not read: all keys of a log may be far more than the memory of a task.
    parts = [part for path in paths for part in _entries_between(files, path, tags=tags)]
    table = pa.Table.from_batches(parts, schema=_SCHEMA)
    # Equal keys get equal codes: the comparison byte by byte is Arrow's.
    encoded = table.column("entry").dictionary_encode()
    if not len(table):
        return np.empty(0, np.int64)
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    offsets = table.column("offset").to_numpy()
    newest = np.full(int(codes.max()) + 1, NO_OFFSET, np.int64)
    # Kafka's cleaner removes a record for the sake of a dirty one only.
    is_dirty = offsets >= first_dirty
    np.maximum.at(newest, codes[is_dirty], offsets[is_dirty])
    found: Int64s = np.unique(offsets[offsets < newest[codes]])
    return found


def _entries_between(files: Files, path: str, *, tags: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    file = files.open(path, read_only=True)
    try:
        [count] = _int64s(file, path, first=0, count=1).tolist()
        firsts = _int64s(file, path, first=1, count=count)
        ends = _int64s(file, path, first=1 + count, count=count + 1)
        # The block before the first that begins in the range may end in it.
        start, limit = np.searchsorted(firsts, tags).tolist()
        for number in range(max(start - 1, 0), limit):
            position, end = ends[number : number + 2].tolist()
            block = read_exactly(file, path, position=position, size=end - position)
            entries = pa.ipc.read_record_batch(pa.py_buffer(block), _SCHEMA)
            first, after = np.searchsorted(entries.column("tag").to_numpy(), tags).tolist()
            if first < after:
                yield entries.slice(first, after - first)
    finally:
        file.close()


def _int64s(file: File, path: str, *, first: int, count: int) -> Int64s:
    """Numbers of a file of nothing else, or of the beginning of one."""
    size, position = _INT64_BYTES * count, _INT64_BYTES * first
    data = read_exactly(file, path, position=position, size=size)
    return np.frombuffer(data, "<i8").astype(np.int64)


def write_offsets(files: Files, path: str, offsets: Int64s) -> None:
    """Write offsets to a new file, 8 bytes each, little-endian.

    Raises:
        OSError: the device is full or failing.
    """
    _write(files, path, memoryview(offsets.astype("<i8").tobytes()))


def offsets_between(
    files: Files, paths: Sequence[str], *, start_offset: int, limit_offset: int
) -> Int64s:
    """The offsets of several files from the start to below the limit, in rising order.

    Raises:
        OSError: a file cannot be read.
    """
    parts = [np.empty(0, np.int64)]
    for path in paths:
        file = files.open(path, read_only=True)
        try:
            start = _place_of(file, path, start_offset)
            limit = _place_of(file, path, limit_offset)
            parts.append(_int64s(file, path, first=start, count=limit - start))
        finally:
            file.close()
    return np.sort(np.concatenate(parts))


def _place_of(file: File, path: str, offset: int) -> int:
    """The number of the first offset of a file that is not below this one."""
    # By halving: the superseded offsets of a log may be gigabytes, and a group has few of them.
    return bisect_left(
        range(file.size() // _INT64_BYTES),
        offset,
        key=lambda place: int(_int64s(file, path, first=place, count=1)[0]),
    )


def _write(files: Files, path: str, data: memoryview) -> None:
    file = files.open(path, create=True)
    try:
        file.write(0, data)
    finally:
        file.close()


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
    hash_secret: tuple[int, int]
    """The same in all groups of a round, since their tags are compared."""
    scratch: str

    @property
    def size_bytes(self) -> int:
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
        _opened(files, group.sources),
        map_bytes=group.map_bytes,
        hash_secret=group.hash_secret,
        transactions=transactions,
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
            hash_secret=group.hash_secret,
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
    # The new segment's offsets would be more than int32 from its base; the driver splits the old
    # one.
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
    # One map has seen all keys, so its choice is right as it is.
    if len(pieces) < 2:
        return []
    size = sum(piece.size_bytes for piece in pieces)
    first = groups[0]
    # A range of entries takes about twice its bytes while it is compared, with codes and offsets.
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
        # Transactions that straddle groups: each task has to know what was open before its first
        # batch.
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
