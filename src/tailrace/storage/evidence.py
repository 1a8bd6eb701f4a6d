"""Facts about a log from its own files, for a checkpoint that is missing, malformed or outdated.

    question                               asked when                       answered by
    was this log ever compacted?           a segment begins too late        headers of its batches
    where do the leader epochs begin?      leader-epoch-checkpoint is       headers of its batches
                                           malformed, or lost
    where does the log start?              the log start checkpoint is      the first leader epoch
                                           malformed, or beyond the end

Compaction leaves traces: offsets missing between two batches of one segment, batches with fewer
records than offsets, delete horizons. A torn write leaves none of these, because a batch with a
right checksum is whole. But no checksum covers an offset: one that the next batch refutes is damage
(`segment_walk`), and no trace. The first entry of `leader-epoch-checkpoint` moves up with the log
start and is on the device before the checkpoint of log starts. So it is never below the
checkpointed log start, unless the checkpoint belongs to an earlier log of the same name.

This module only reads. The reasons are in docs/decisions/0020-a-gap-is-no-damage.md.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing

from tailrace.errors import CorruptionError
from tailrace.model import NO_LEADER_EPOCH, Offset
from tailrace.records.batch import Batch
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.checkpoints import read_epoch_checkpoint
from tailrace.storage.segment_walk import Sound, walk_segment


def was_compacted(files: Files, folder: str, bases: Sequence[int]) -> bool:
    """Whether any segment has a trace of compaction; reads headers until it finds one.

    Raises:
        OSError: a file cannot be read.
    """
    places = sorted(bases)
    return any(
        _has_trace(files, folder, base=base, limit=limit)
        for base, limit in zip(places, [*places[1:], None], strict=True)
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
        for position, batch in _sound_batches(files, folder, base):
            epoch = batch.leader_epoch
            if epoch < 0 or (entries and epoch == entries[-1][0]):
                continue
            if entries and epoch < entries[-1][0]:
                raise CorruptionError(
                    f"leader epoch {epoch} follows the higher epoch {entries[-1][0]}",
                    path=log_path(folder, base),
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
    found = next(_sound_batches(files, folder, first_base), None)
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


def _has_trace(files: Files, folder: str, *, base: int, limit: int | None) -> bool:
    """Whether a segment, whose offsets are below `limit`, has a trace of compaction."""
    due: int | None = None
    for _, batch in _sound_batches(files, folder, base, limit=limit):
        if batch.legacy is None and (
            batch.record_count <= batch.last_offset_delta
            or batch.delete_horizon_or_none is not None
        ):
            return True
        if due is not None and batch.base_offset > due:
            return True
        due = batch.next_offset
    return False


def _sound_batches(
    files: Files, folder: str, base: int, *, limit: int | None = None
) -> Iterator[tuple[int, Batch]]:
    """Position and batch of a segment, up to the first damage."""
    path = log_path(folder, base)
    with closing(files.open(path, read_only=True)) as file:
        for found in walk_segment(
            file,
            path,
            base_offset=Offset(base),
            size=file.size(),
            following=None if limit is None else Offset(limit),
            # A start asks, so nothing is decompressed, and no damage searched for its end.
            reads_records=False,
            stops_at_damage=True,
        ):
            assert isinstance(found, Sound)
            yield from found.batches()
