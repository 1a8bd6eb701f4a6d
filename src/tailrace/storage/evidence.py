"""Facts about a log from its own files, for a checkpoint that is missing, malformed or outdated.

    question                               asked when                       answered by
    was this log ever compacted?           a segment begins too late        headers of its batches
    where do the leader epochs begin?      leader-epoch-checkpoint is       headers of its batches
                                           malformed
    where does the log start?              the log start checkpoint is      the first leader epoch
                                           malformed, or beyond the end

Compaction leaves traces: offsets missing between two batches of one segment, batches with fewer
records than offsets, delete horizons. A torn write leaves none of these, because a batch with a
right checksum is whole. But no checksum covers an offset: one that is too high for what is behind
it is damaged, and no trace. The first entry of `leader-epoch-checkpoint` moves up with the log
start and is on the device before the checkpoint of log starts. So it is never below the
checkpointed log start, unless the checkpoint belongs to an earlier log of the same name.

This module only reads. The reasons are in docs/decisions/0020-a-gap-is-no-damage.md.
"""

from collections.abc import Iterator, Sequence

from tailrace.config.settings import INT64_MAX
from tailrace.errors import CorruptionError
from tailrace.model import NO_LEADER_EPOCH
from tailrace.records.batch import Batch
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.checkpoints import read_epoch_checkpoint
from tailrace.storage.records_file import RecordsFile, open_records_file


def was_compacted(files: Files, folder: str, bases: Sequence[int]) -> bool:
    """Whether any segment has a trace of compaction; reads headers until it finds one.

    Raises:
        OSError: a file cannot be read.
    """
    places = sorted(bases)
    return any(
        _has_trace(files, log_path(folder, base), base=base, limit=limit)
        for base, limit in zip(places, [*places[1:], INT64_MAX], strict=True)
    )


def epochs_of_batches(files: Files, folder: str, bases: Sequence[int]) -> list[tuple[int, int]]:
    """Each leader epoch and its first offset, from the batch headers of these segments.

    A damaged segment is read up to the damage. A negative epoch is none.

    Raises:
        CorruptionError: an epoch is lower than one before it, so one of them is wrong.
        OSError: a file cannot be read.
    """
    entries: list[tuple[int, int]] = []
    for base in bases:
        path = log_path(folder, base)
        for position, batch in _sound_batches(files, path):
            epoch = batch.leader_epoch
            if epoch < 0 or (entries and epoch == entries[-1][0]):
                continue
            if entries and epoch < entries[-1][0]:
                raise CorruptionError(
                    f"leader epoch {epoch} follows the higher epoch {entries[-1][0]}",
                    path=path,
                    position=position,
                    offset=batch.base_offset,
                )
            entries.append((epoch, batch.base_offset))
    return entries


def first_epoch_offset(files: Files, folder: str) -> int | None:
    """The first offset in the folder's epoch checkpoint; None if it is empty or malformed.

    Raises:
        OSError: it cannot be read.
    """
    try:
        entries = read_epoch_checkpoint(files, f"{folder}/{names.LEADER_EPOCHS}")
    except CorruptionError:
        return None
    return entries[0][1] if entries else None


def start_by_epochs(files: Files, folder: str, *, first_base: int, first: Batch | None) -> int:
    """The log start according to the log's own files; at least the first segment's base offset.

    It is the first offset in the epoch checkpoint, if the log's `first` batch has an epoch and lies
    below that offset: the batch had an entry once, and only a log start that moved up removes
    entries.

    Raises:
        OSError: a file cannot be read.
    """
    noted = first_epoch_offset(files, folder)
    if noted is None or first is None or first.leader_epoch == NO_LEADER_EPOCH:
        return first_base
    return max(noted, first_base) if first.base_offset < noted else first_base


def first_batch(files: Files, folder: str, first_base: int) -> Batch | None:
    """The first batch of a log, or None if it is damaged.

    Raises:
        OSError: a file cannot be read.
    """
    found = next(_sound_batches(files, log_path(folder, first_base)), None)
    return None if found is None else found[1]


def is_of_this_log(files: Files, folder: str, log_start: int) -> bool:
    """Whether the folder's leader epochs confirm a log start that lies beyond the log's end.

    Raises:
        OSError: a file cannot be read.
    """
    noted = first_epoch_offset(files, folder)
    return noted is not None and noted >= log_start


def log_path(folder: str, base_offset: int) -> str:
    """The log file of a segment."""
    return f"{folder}/{names.segment_file_name(base_offset, names.LOG_SUFFIX)}"


def _has_trace(files: Files, path: str, *, base: int, limit: int) -> bool:
    """Whether a segment, whose offsets are below `limit`, has a trace of compaction."""
    due = INT64_MAX
    for _, batch in _sound_batches(files, path):
        if batch.base_offset < base:
            return False  # The batches of another segment, whose file has a wrong name.
        if batch.legacy is None and (
            batch.record_count <= batch.last_offset_delta
            or batch.delete_horizon_or_none is not None
        ):
            return True
        if batch.next_offset > limit:
            return False  # No checksum covers the offset, so it is damaged and shows no gap.
        if batch.base_offset > due:
            return True
        due = batch.next_offset
    return False


def _sound_batches(files: Files, path: str) -> Iterator[tuple[int, Batch]]:
    """Position and batch, up to the first one with a wrong checksum or an offset out of order.

    Where the offsets of two batches contradict each other, one of them is damaged, and nothing
    tells which: neither is given.
    """
    log: RecordsFile = open_records_file(files, path, read_only=True)
    before: tuple[int, Batch] | None = None
    try:
        for position, batch in log.batches():
            batch.check()
            if before is not None:
                if batch.base_offset < before[1].next_offset:
                    return
                yield before
            before = position, batch
    except CorruptionError:
        pass
    finally:
        log.close()
    if before is not None:
        yield before
