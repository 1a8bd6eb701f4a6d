"""Read a partition's folder without a broker, or beside a broker that writes to it.

The reader changes, creates, locks and repairs nothing, so it works on a read-only mount, on a
backup, and beside a running broker. It reads up to the log end at the time of opening. A partial
batch at the very end is an append in progress and is left out; anywhere else it is damage. Files
that a broker exchanges or deletes meanwhile are no damage: the reader lists the folder again and
continues at its offset (`listing`).
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final, NamedTuple, Protocol, TypeVar

from tailrace.errors import (
    CorruptionError,
    DirectoryError,
    OffsetOutOfRangeError,
    OffsetsDeletedError,
)
from tailrace.model import OFFSET_MAX, Offset, Position, TopicPartition
from tailrace.reading.listing import (
    STALE,
    TRIES_MAX,
    SegmentFiles,
    Stale,
    exchanged,
    list_segment_files,
    unsettled,
)
from tailrace.reading.lookup import position_near
from tailrace.records.batch import Batch
from tailrace.records.runs import Piece, batches_of
from tailrace.runtime.files import FileCutError, Files
from tailrace.storage import evidence, names
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.storage.set_aside import is_blank
from tailrace.storage.walk import walk_runs
from tailrace.values import replace

ResultT = TypeVar("ResultT")

_FIRST: Final = Offset(0)

logger = logging.getLogger(__name__)


class FolderGoneError(DirectoryError):
    """The folder of a partition was there when it was opened, and is not any more."""


class StoredBatch(NamedTuple):
    """A batch and its place."""

    batch: Batch
    path: str
    """The log file."""
    position: Position
    """Bytes from the start of the file."""


class StoredRun(NamedTuple):
    """A batch or a run of batches, with its log file and position in bytes."""

    piece: Piece
    path: str
    position: Position

    def since(self, offset: Offset) -> "StoredRun":
        """The same without the batches that end before `offset`; its last offset is not below."""
        if isinstance(self.piece, Batch):
            return self
        left = self.piece.since(offset)
        skipped = self.piece.size - left.size
        return StoredRun(left, self.path, Position(self.position + skipped))

    def batches(self, start_offset: Offset, limit_offset: Offset) -> Iterator[StoredBatch]:
        """The single batches with an offset of the range."""
        for position, batch in batches_of(self.piece, start_offset, limit_offset):
            # A call of `Position` for each batch would cost more than the sum.
            yield StoredBatch(batch, self.path, self.position + position)  # type: ignore[arg-type]


class _LogEnd(NamedTuple):
    """The end of the whole batches of a log."""

    offset: Offset
    size: int
    """Bytes of whole batches in the last segment."""
    error: CorruptionError | None
    """Error in the bytes after them, if they cannot be a batch."""
    has_tail: bool
    """Whether there are bytes after them."""


class ResolveTail(Protocol):
    """Decides where a log ends if there are bytes after its last whole batch."""

    def __call__(self, last: SegmentFiles, end: Offset, error: CorruptionError | None) -> Offset:
        """The log end: `end`, the offset after the last whole batch, or a larger one.

        `error` says what is wrong with the bytes, or is None for a partial batch. May raise it.
        """
        ...


class LogReader:
    """The batches of one partition between two offsets; `open_log_reader` makes it."""

    def __init__(
        self,
        *,
        files: Files,
        folder: str,
        log_start_offset: Offset | None,
        resolve_tail: ResolveTail | None,
    ) -> None:
        self.segments: tuple[SegmentFiles, ...] = ()
        """The size of the last one has only whole batches, as an append may be in progress."""
        self.start_offset = Offset(0)
        """The first offset that may be read."""
        self.end_offset = Offset(0)
        """The offset after the last whole batch at the time of `open`."""
        self.files = files
        self.folder = folder
        self._given_start = log_start_offset
        self._resolve_tail = resolve_tail

    def batches(self, start_offset: Offset, limit_offset: Offset) -> Iterator[Batch]:
        """Every batch with an offset of the range; as `stored_runs`."""
        for stored in self.stored_runs(start_offset, limit_offset):
            for batch, _, _ in stored.batches(start_offset, limit_offset):
                yield batch

    def stored_runs(self, start_offset: Offset, limit_offset: Offset) -> Iterator[StoredRun]:
        """Every batch with an offset from `start_offset` up to below `limit_offset`.

        Each batch is checked (`Batch.check`) before it is returned. A run may reach beyond the
        range. If compaction exchanges segments meanwhile, some offsets may be missing.

        Raises:
            OffsetOutOfRangeError: the range is not within the log.
            OffsetsDeletedError: the log start has moved into the range meanwhile.
            CorruptionError: a batch is damaged or not whole; with file and position.
            FolderGoneError: the folder is gone.
            OSError: a file cannot be read.
        """
        for offset in (start_offset, limit_offset):
            if not self.start_offset <= offset <= self.end_offset:
                raise OffsetOutOfRangeError(
                    offset, log_start_offset=self.start_offset, log_end_offset=self.end_offset
                )
        # `since` is where the segment at hand was entered: if it is exchanged, offsets that were
        # read already may be in another file now, and the rest is read from there.
        at, tries = start_offset, 0
        path, since = "", start_offset
        while True:
            try:
                for stored in self._planned_pieces(at, limit_offset):
                    if stored.path != path:
                        path, since = stored.path, at
                    yield stored
                    at, tries = stored.piece.next_offset, 0
            except STALE as error:
                tries += 1
                # The exchange may concern a segment that was read already, so start at `since`.
                self._check_exchanged(
                    error, tries, start_offset=at, since=since, limit_offset=limit_offset
                )
            else:
                return

    def settled(
        self, start_offset: Offset, limit_offset: Offset, work: Callable[[], ResultT]
    ) -> ResultT:
        """The result of `work`, while no segment of a range was exchanged.

        `work` is called again if one was, so it must have no side effects.

        Raises:
            OffsetsDeletedError: the log start has moved into the range meanwhile.
            CorruptionError, OSError: from `work`, if the files are still there.
            DirectoryError: files were exchanged at each try.
        """
        for tries in range(1, TRIES_MAX + 1):
            try:
                result = work()
            except STALE as error:
                self._check_exchanged(
                    error, tries, start_offset=start_offset, limit_offset=limit_offset
                )
                continue
            if not self.list_again(start_offset, limit_offset):
                return result
        raise unsettled(self.folder)

    def list_again(
        self, start_offset: Offset, limit_offset: Offset, *, since: Offset | None = None
    ) -> bool:
        """List the folder again; whether files of a range were exchanged. Updates `segments` then.

        With `since`, files from that offset on count, also if they were read already.

        Raises:
            OffsetsDeletedError: the log start has moved into the range meanwhile.
            FolderGoneError: the folder is gone.
            CorruptionError, OSError: the log cannot be read up to its end.
        """
        try:
            found, _ = list_segment_files(self.files, self.folder)
        except FileNotFoundError as error:
            raise gone(self.folder) from error
        if not exchanged(
            self.segments,
            found,
            start_offset=start_offset if since is None else since,
            limit_offset=limit_offset,
        ):
            return False
        known, self.segments = self.segments, tuple(found)
        try:
            if found and found[-1].base_offset < self.end_offset:
                self._find_end()  # What an append is changing is left out, as when it was opened.
            self.start_offset = self._find_start(self.end_offset)
        except BaseException:
            self.segments = known
            raise
        self.end_offset = max(self.end_offset, self.start_offset)
        if start_offset < self.start_offset:
            raise OffsetsDeletedError(
                start_offset, log_start_offset=self.start_offset, log_end_offset=self.end_offset
            )
        return True

    def _check_exchanged(
        self,
        error: Stale,
        tries: int,
        *,
        start_offset: Offset,
        limit_offset: Offset,
        since: Offset | None = None,
    ) -> None:
        """Raise `error`, unless it comes from files that were exchanged."""
        try:
            has_changed = self.list_again(start_offset, limit_offset, since=since)
        except STALE as found:
            # The new files cannot be read either; perhaps they were exchanged again.
            has_changed, error = True, found
        if not (has_changed or isinstance(error, FileNotFoundError)):
            raise error
        if tries >= TRIES_MAX:
            raise unsettled(self.folder) from error

    def _planned_pieces(self, start_offset: Offset, limit_offset: Offset) -> Iterator[StoredRun]:
        """Yield the pieces that `stored_runs` promises, from the files as listed now."""
        end = start_offset
        segments = self.segments
        for number, segment in enumerate(segments):
            following = segments[number + 1 : number + 2]
            if following and following[0].base_offset <= start_offset:
                continue
            if segment.base_offset >= limit_offset:
                return
            limit = following[0].base_offset if following else None
            for position, piece in self._scan(segment, limit, start_offset):
                if piece.base_offset >= limit_offset:
                    return
                end = piece.next_offset
                if piece.last_offset < start_offset:
                    continue
                # The checksums of a run hold already.
                if isinstance(piece, Batch):
                    try:
                        piece.check()
                    except CorruptionError as error:
                        raise error.located(path=segment.path, position=position) from error
                yield StoredRun(piece, segment.path, position).since(start_offset)
                if end >= limit_offset:
                    return  # Stop here: damage after the range must not fail this read.
        if end < limit_offset:
            raise CorruptionError(
                f"the log ends at offset {end}; it reached to {self.end_offset} when opened",
                path=self.folder,
            )

    def segments_between(self, start_offset: Offset, limit_offset: Offset) -> list[SegmentFiles]:
        """The segments that may have an offset of a range."""
        limits = [*(each.base_offset for each in self.segments[1:]), OFFSET_MAX]
        return [
            segment
            for segment, limit in zip(self.segments, limits, strict=False)
            if segment.base_offset < limit_offset and limit > start_offset
        ]

    def size_between(self, start_offset: Offset, limit_offset: Offset) -> int:
        """An estimate of the bytes of log in a range, from the sizes of its segments."""
        total = 0
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1 : number + 2]
            limit = following[0].base_offset if following else self.end_offset
            low, high = max(segment.base_offset, start_offset), min(limit, limit_offset)
            if low < high:
                # As if all records were of one size: a plan of tasks needs no more.
                total += segment.size * (high - low) // max(limit - segment.base_offset, 1)
        return total

    def _scan(
        self, segment: SegmentFiles, following: Offset | None, start_offset: Offset
    ) -> Iterator[tuple[Position, Piece]]:
        """Position and batch or run, from one at or before `start_offset` on.

        No checksum covers a batch's base offset, so it is compared with its neighbours. `following`
        is the base offset of the next segment.
        """
        position, end = Position(0), 0
        piece = None
        damage: CorruptionError | None = None
        next_base = OFFSET_MAX if following is None else following
        file = self.files.open(segment.path, read_only=True)
        try:
            position = end = position_near(self.files, segment, file, offset=start_offset)
            walk = walk_runs(file, segment.path, start=position, limit=segment.size)
            for next_position, following_piece in walk:
                if piece is not None:
                    # Clear `piece` first: it must not be returned below if it is out of order.
                    held, piece = piece, None
                    limit = min(following_piece.base_offset, next_base)
                    _check_order(segment, position, held, first=segment.base_offset, limit=limit)
                    yield position, held
                position, piece = next_position, following_piece
                end = position + piece.size
        except FileCutError:
            pass  # The caller raises an error with the offset where the log ends now.
        except CorruptionError as error:
            damage = error  # The batches before it are sound and are returned first.
        finally:
            file.close()
        # In the last segment it is an append in progress.
        if damage is None and following is not None and end < segment.size:
            damage = CorruptionError("a batch is not whole", path=segment.path, position=end)
        if piece is not None:
            _check_order(segment, position, piece, first=segment.base_offset, limit=next_base)
            yield position, piece
        if damage is not None:
            raise damage

    def _first_batch(self) -> Batch | None:
        """The first batch of the log, or None if it is damaged."""
        if not self.segments:
            return None
        first = self.segments[0]
        file = self.files.open(first.path, read_only=True)
        try:
            for position, piece in walk_runs(file, first.path, start=0, limit=first.size):
                found = next(
                    StoredRun(piece, first.path, position).batches(_FIRST, OFFSET_MAX)
                ).batch
                found.check()
                return found
        except CorruptionError:
            pass  # A reader of this batch gets the error.
        finally:
            file.close()
        return None

    def open(self) -> None:
        """List the segments and find both ends of the log, from one consistent listing.

        Raises:
            CorruptionError: the log cannot be read up to its end.
            OSError: the folder is not there or may not be read.
        """
        found, _ = list_segment_files(self.files, self.folder)
        for _ in range(TRIES_MAX):
            failure: Stale | None = None
            self.segments = tuple(found)
            try:
                end = self._find_end()
                self.start_offset = self._find_start(end)
                self.end_offset = max(end, self.start_offset)
                # If the last segment was closed and cleaned meanwhile, it may be shorter now.
                # Its size bounds every read to come.
                if not found or self._is_there(found[-1]):
                    return
            except STALE as error:
                failure = error
            before, (found, _) = found, list_segment_files(self.files, self.folder)
            last = before[-1].base_offset if before else _FIRST
            # Only the last segment was read for the end.
            has_changed = exchanged(before, found, start_offset=last, limit_offset=OFFSET_MAX)
            # The file is the one that was listed, so it is the damage of the disk.
            if isinstance(failure, CorruptionError | FileCutError) and not has_changed:
                raise failure
        raise unsettled(self.folder)

    def _is_there(self, segment: SegmentFiles) -> bool:
        """Whether the file exists and is not shorter than listed."""
        with closing(self.files.open(segment.path, read_only=True)) as file:
            return file.size() >= segment.size

    def _find_start(self, end: Offset) -> Offset:
        """The log start as a broker finds it: from the checkpoint, or else from the log's files.

        `end` is the log end when the log was opened. The checkpoint is ignored if it is malformed,
        or if its entry is beyond the current log end and the folder's leader epochs do not confirm
        it (`evidence.is_of_this_log`).
        """
        first = self.segments[0].base_offset if self.segments else _FIRST
        noted = self._given_start
        if noted is None:
            noted = _checkpointed_log_start(self.files, self.folder)
        if noted is None or (
            noted > end
            and any(segment.size for segment in self.segments)
            and not evidence.is_of_this_log(self.files, self.folder, noted)
            # Looked at again: a broker may have appended since, and its checkpoint is right then.
            and noted > self._walk_to_end(self.segments[-1]).offset
        ):
            return max(first, self._start_by_epochs(first))
        return max(first, noted)

    def _start_by_epochs(self, first_base: Offset) -> Offset:
        first = self._first_batch()
        return Offset(
            evidence.start_by_epochs(self.files, self.folder, first_base=first_base, first=first)
        )

    def _find_end(self) -> Offset:
        """The offset after the last whole batch; cuts the size of the last segment to it."""
        if not self.segments:
            return _FIRST
        last = self.segments[-1]
        end, size, error, has_tail = self._walk_to_end(last)
        if has_tail and self._resolve_tail is not None:
            resolved = self._resolve_tail(last, end, error)
            end, size = resolved, size if resolved == end else last.size
        elif has_tail and error is not None:
            raise error
        # What comes after this size is of an append that is under way, and is never looked at.
        self.segments = (*self.segments[:-1], replace(last, size=size))
        return end

    def _walk_to_end(self, last: SegmentFiles) -> "_LogEnd":
        """The end of the whole batches in the last segment, and the bytes after them."""
        end, size, error = last.base_offset, 0, None
        with closing(self.files.open(last.path, read_only=True)) as file:
            # From the last index entry on: an active segment may have a gigabyte.
            start = position_near(self.files, last, file, offset=OFFSET_MAX)
            try:
                for position, piece in walk_runs(file, last.path, start=start, limit=last.size):
                    _check_order(last, position, piece, first=end)
                    end, size = piece.next_offset, position + piece.size
            except CorruptionError as found:
                error = found
            # Zeros up to the end of the file come from preallocation, and are no tail.
            has_tail = not is_blank(file, last.path, start=size, limit=last.size)
        return _LogEnd(end, size, error, has_tail)


def open_log_reader(
    files: Files,
    folder: str,
    *,
    log_start_offset: Offset | None = None,
    resolve_tail: ResolveTail | None = None,
) -> LogReader:
    """Open a partition's folder for reading.

    `log_start_offset` is the log start in the data directory's checkpoint; None reads that file. If
    it is malformed or belongs to an earlier log of this name, the log starts where a broker would
    start it (`evidence`). Without `resolve_tail`, a partial batch at the very end is an append in
    progress, and any other bytes there that are no batch are an error.

    Raises:
        CorruptionError: the log cannot be read up to its end.
        OSError: the folder is not there or may not be read.
    """
    reader = LogReader(
        files=files,
        folder=folder,
        log_start_offset=log_start_offset,
        resolve_tail=resolve_tail,
    )
    reader.open()
    return reader


def gone(folder: str) -> FolderGoneError:
    """One line for an operator."""
    return FolderGoneError(
        f"{folder} is gone: its partition was deleted or moved while it was read"
    )


def partition_folders(files: Files, data_directory: str) -> dict[TopicPartition, str]:
    """The folder of every live partition in a data directory.

    Raises:
        OSError: the directory is not there or may not be read.
    """
    found = {}
    for name in files.list(data_directory):
        partition = names.parse_partition_directory_name(name)
        path = f"{data_directory}/{name}"
        if partition is not None and files.is_directory(path):
            found[partition] = path
    return found


def _checkpointed_log_start(files: Files, directory: str) -> Offset | None:
    """The checkpointed log start, 0 without an entry; None if it is malformed, which is logged."""
    parent, _, name = directory.rstrip("/").rpartition("/")
    partition = names.parse_partition_directory_name(name)
    if partition is None:
        # A folder that is opened by itself, as of a backup: nothing notes its start.
        return _FIRST
    path = f"{parent or '.'}/{names.LOG_START_OFFSETS}"
    try:
        return Offset(read_offset_checkpoint(files, path).get(partition, 0))
    except CorruptionError as error:
        logger.warning("checkpoint_unreadable reason=%s", error)
        return None


def _check_order(
    segment: SegmentFiles,
    position: Position,
    piece: Piece,
    *,
    first: Offset,
    limit: Offset = OFFSET_MAX,
) -> None:
    if not first <= piece.base_offset <= piece.last_offset < limit:
        raise CorruptionError(
            f"a batch has offsets {piece.base_offset} to {piece.last_offset}, and only offsets "
            f"from {first} to below {limit} are valid here",
            path=segment.path,
            position=position,
        )
