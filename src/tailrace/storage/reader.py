"""A partition's folder, opened for reading only, with or without a broker that writes to it.

Nothing is changed, made, locked or repaired, so it works on a read-only mount, on a backup, and
beside a running broker. Offsets are those at the time of opening: what is appended later is not
seen. A batch that is not whole at the very end is an append in progress and is left out; anywhere
else it is damage.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from tailrace.config.settings import INT64_MAX
from tailrace.errors import CorruptionError, OffsetOutOfRangeError
from tailrace.model import TopicPartition
from tailrace.records.batch import Batch
from tailrace.records.layout import FRAME_SIZE
from tailrace.records.runs import Piece, batches_of
from tailrace.runtime.files import File, FileCutError, Files
from tailrace.storage import evidence, names
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.storage.index.offset import ENTRY
from tailrace.storage.walk import walk_runs

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFiles:
    """One segment's log file as it stood when the reader was opened."""

    base_offset: int
    path: str
    size: int


class StoredBatch(NamedTuple):
    """A batch and where it stands."""

    batch: Batch
    path: str
    """The log file."""
    position: int
    """Bytes from the start of the file."""


class StoredPiece(NamedTuple):
    """A batch, or a run of them, and where it stands."""

    piece: Piece
    path: str
    position: int

    def since(self, offset: int) -> "StoredPiece":
        """Without the batches that end before `offset`, which it must reach."""
        if isinstance(self.piece, Batch):
            return self
        left = self.piece.since(offset)
        return StoredPiece(left, self.path, self.position + self.piece.size - left.size)

    def batches(self, start_offset: int, limit_offset: int) -> Iterator[StoredBatch]:
        """One by one, those that hold an offset of a range."""
        for position, batch in batches_of(self.piece, start_offset, limit_offset):
            yield StoredBatch(batch, self.path, self.position + position)


class JudgeTail(Protocol):
    """Decides what the bytes behind the last whole batch of a log are."""

    def __call__(self, last: SegmentFiles, end: int, error: CorruptionError | None) -> int:
        """The offset where the log ends: `end`, behind the last whole batch, or further on.

        `error` says what is wrong with the bytes; None: they are part of a batch. May raise it.
        """
        ...


class LogReader:
    """The batches of one partition between two offsets."""

    def __init__(
        self,
        *,
        files: Files,
        directory: str,
        segments: tuple[SegmentFiles, ...],
        start_offset: int,
        judge_tail: JudgeTail | None,
    ) -> None:
        self.segments = segments
        """With only the whole batches of the last one, which an append may be changing."""
        self.start_offset = start_offset
        """The first offset that may be read."""
        self._files = files
        self._directory = directory
        self.end_offset = self._find_end(judge_tail)
        """The offset behind the last whole batch."""

    def start_at(self, log_start: int | None) -> None:
        """Hide what lies below the log start that a checkpoint has; None if nobody knows it.

        Raises:
            OSError: a file cannot be read.
        """
        if log_start is None or (
            any(segment.size for segment in self.segments)
            and self.end_offset < log_start
            and not evidence.is_of_this_log(self._files, self._directory, log_start)
        ):
            log_start = evidence.start_by_epochs(
                self._files,
                self._directory,
                first_base=self.start_offset,
                first=self._first_batch(),
            )
        self.start_offset = max(self.start_offset, log_start)
        self.end_offset = max(self.end_offset, self.start_offset)

    def batches(self, start_offset: int, limit_offset: int) -> Iterator[Batch]:
        """Every batch that holds an offset of the range; as `stored_pieces`."""
        for stored in self.stored_pieces(start_offset, limit_offset):
            for batch, _, _ in stored.batches(start_offset, limit_offset):
                yield batch

    def stored_pieces(self, start_offset: int, limit_offset: int) -> Iterator[StoredPiece]:
        """Every batch that holds an offset from `start_offset` up to below `limit_offset`.

        Each is checked (`Batch.check`) before it is handed out. A run may reach beyond the range.

        Raises:
            OffsetOutOfRangeError: the range is not within the log.
            CorruptionError: a batch is damaged or not whole; with file and position.
            OSError: a file cannot be read.
        """
        for offset in (start_offset, limit_offset):
            if not self.start_offset <= offset <= self.end_offset:
                raise OffsetOutOfRangeError(
                    offset, log_start_offset=self.start_offset, log_end_offset=self.end_offset
                )
        end = start_offset
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1 : number + 2]
            if following and following[0].base_offset <= start_offset:
                continue
            if segment.base_offset >= limit_offset:
                return
            for position, piece in self._scan(number, start_offset):
                if piece.base_offset >= limit_offset:
                    return
                end = piece.next_offset
                if piece.last_offset < start_offset:
                    continue
                if isinstance(piece, Batch):
                    try:
                        piece.check()
                    except CorruptionError as error:
                        raise error.located(path=segment.path, position=position) from error
                yield StoredPiece(piece, segment.path, position).since(start_offset)
        if end < limit_offset:
            raise CorruptionError(
                f"the log ends at offset {end}; it reached to {self.end_offset} when opened",
                path=self._directory,
            )

    def segments_between(self, start_offset: int, limit_offset: int) -> list[SegmentFiles]:
        """The segments that may hold an offset of a range."""
        limits = [*(each.base_offset for each in self.segments[1:]), INT64_MAX]
        return [
            segment
            for segment, limit in zip(self.segments, limits, strict=False)
            if segment.base_offset < limit_offset and limit > start_offset
        ]

    def size_between(self, start_offset: int, limit_offset: int) -> int:
        """About how many bytes of log a range has, from the sizes of its segments."""
        total = 0
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1 : number + 2]
            limit = following[0].base_offset if following else self.end_offset
            low, high = max(segment.base_offset, start_offset), min(limit, limit_offset)
            if low < high:
                total += segment.size * (high - low) // max(limit - segment.base_offset, 1)
        return total

    def _scan(self, number: int, start_offset: int) -> Iterator[tuple[int, Piece]]:
        """Position and batch or run from near `start_offset` on; each fits between its neighbours.

        No checksum covers a batch's base offset, so it is held against what stands around it.
        """
        segment = self.segments[number]
        following = self.segments[number + 1 : number + 2]
        end = position = 0
        piece = None
        file = self._files.open(segment.path, read_only=True)
        try:
            position = end = self._position_near(segment, file, start_offset)
            walk = walk_runs(file, segment.path, start=position, limit=segment.size)
            for next_position, following_piece in walk:
                if piece is not None:
                    limit = following_piece.base_offset
                    _check_order(segment, position, piece, first=segment.base_offset, limit=limit)
                    yield position, piece
                position, piece = next_position, following_piece
                end = position + piece.size
        except FileCutError:
            pass  # What is left is told below, with the offset where the log ends now.
        finally:
            file.close()
        if following and end < segment.size:
            raise CorruptionError("a batch is not whole", path=segment.path, position=end)
        if piece is not None:
            limit = following[0].base_offset if following else INT64_MAX
            _check_order(segment, position, piece, first=segment.base_offset, limit=limit)
            yield position, piece

    def _position_near(self, segment: SegmentFiles, file: File, offset: int) -> int:
        """A position at or before the batch with `offset`, by the offset index if it can serve.

        The index of the segment that takes writes is padded with zeros, and a damaged one may
        hold anything; an entry is used only if the batch it points at fits it.
        """
        name = names.segment_file_name(segment.base_offset, names.OFFSET_INDEX_SUFFIX)
        path = f"{self._directory}/{name}"
        if offset <= segment.base_offset or not self._files.exists(path):
            return 0
        index = self._files.open(path, read_only=True)
        try:
            last_offset, position = _floor_entry(index, offset - segment.base_offset)
        finally:
            index.close()
        if not 0 < position < segment.size:
            return 0
        try:
            walk = walk_runs(file, segment.path, start=position, limit=segment.size)
            _, piece = next(walk)
            batch = next(StoredPiece(piece, segment.path, position).batches(0, INT64_MAX)).batch
            batch.check()
        except (CorruptionError, StopIteration):
            return 0
        first, last = batch.base_offset, batch.last_offset
        fits = segment.base_offset <= first and last <= segment.base_offset + last_offset
        return position if fits else 0

    def _first_batch(self) -> Batch | None:
        """The first batch of the log, if it is sound."""
        if not self.segments:
            return None
        first = self.segments[0]
        file = self._files.open(first.path, read_only=True)
        try:
            for position, piece in walk_runs(file, first.path, start=0, limit=first.size):
                found = next(StoredPiece(piece, first.path, position).batches(0, INT64_MAX)).batch
                found.check()
                return found
        except CorruptionError:
            pass  # Who reads it is told.
        finally:
            file.close()
        return None

    def _find_end(self, judge: JudgeTail | None) -> int:
        if not self.segments:
            return self.start_offset
        last = self.segments[-1]
        end, size, error = last.base_offset, 0, None
        file = self._files.open(last.path, read_only=True)
        try:
            start = self._position_near(last, file, INT64_MAX)
            for position, piece in walk_runs(file, last.path, start=start, limit=last.size):
                _check_order(last, position, piece, first=end)
                end, size = piece.next_offset, position + piece.size
        except CorruptionError as found:
            error = found
        finally:
            # In a preallocated file, zeros stand behind the last batch.
            has_tail = any(file.read(size, min(FRAME_SIZE, last.size - size)))
            file.close()
        if has_tail and judge is not None:
            judged = judge(last, end, error)
            end, size = judged, size if judged == end else last.size
        elif has_tail and error is not None:
            raise error
        self.segments = (*self.segments[:-1], replace(last, size=size))
        return max(end, self.start_offset)


def open_log_reader(
    files: Files,
    directory: str,
    *,
    log_start_offset: int | None = None,
    judge_tail: JudgeTail | None = None,
) -> LogReader:
    """Open a partition's folder for reading.

    `log_start_offset` is what the directory's checkpoint says; None reads that checkpoint, which
    stands beside the partition's folder. If it is malformed or of another life of the log, the log
    starts where it starts for a broker (`evidence`). Without `judge_tail`, a batch that is not
    whole at the very end is an append in progress, and anything else that cannot be read there is
    an error.

    Raises:
        CorruptionError: the log cannot be read up to its end.
        OSError: the folder is not there or may not be read.
    """
    segments = []
    for name in files.list(directory):
        parsed = names.parse_segment_file_name(name)
        if parsed is not None and parsed[1] == names.LOG_SUFFIX:
            path = f"{directory}/{name}"
            try:
                file = files.open(path, read_only=True)
            except FileNotFoundError:
                continue  # Retention has just deleted it.
            segments.append(SegmentFiles(base_offset=parsed[0], path=path, size=file.size()))
            file.close()
    if log_start_offset is None:
        log_start_offset = _checkpointed_log_start(files, directory)
    reader = LogReader(
        files=files,
        directory=directory,
        segments=tuple(segments),
        start_offset=segments[0].base_offset if segments else 0,
        judge_tail=judge_tail,
    )
    reader.start_at(log_start_offset)
    return reader


def list_partitions(files: Files, data_directory: str) -> dict[TopicPartition, str]:
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


def _checkpointed_log_start(files: Files, directory: str) -> int | None:
    """What the checkpoint says, 0 if nothing; None for one that is malformed, which is told."""
    parent, _, name = directory.rstrip("/").rpartition("/")
    partition = names.parse_partition_directory_name(name)
    if partition is None:
        return 0
    path = f"{parent or '.'}/{names.LOG_START_OFFSETS}"
    try:
        return read_offset_checkpoint(files, path).get(partition, 0)
    except CorruptionError as error:
        logger.warning("checkpoint_unreadable reason=%s", error)
        return None


def _floor_entry(index: File, key: int) -> tuple[int, int]:
    """Relative offset and position of the last entry in use at or below `key`, or zeros.

    No entry has position 0, so one that has it is of the zeros that fill a preallocated index.
    """
    low, high = 0, index.size() // ENTRY.size
    found = 0, 0
    while low < high:
        middle = (low + high) // 2
        data = index.read(middle * ENTRY.size, ENTRY.size)
        relative, position = ENTRY.unpack(data) if len(data) == ENTRY.size else (0, 0)
        if position > 0 and relative <= key:
            found = relative, position
            low = middle + 1
        else:
            high = middle
    return found


def _check_order(
    segment: SegmentFiles, position: int, piece: Piece, *, first: int, limit: int = INT64_MAX
) -> None:
    if not first <= piece.base_offset <= piece.last_offset < limit:
        raise CorruptionError(
            f"offsets {piece.base_offset} to {piece.last_offset} where those from "
            f"{first} to below {limit} may stand",
            path=segment.path,
            position=position,
        )
