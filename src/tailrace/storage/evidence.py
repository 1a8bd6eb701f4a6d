"""What the files of a folder tell of it where a checkpoint is missing, damaged or of another life.

    question                               asked when                       what tells
    was this log ever compacted?           a segment begins too late        headers of its batches
    which leader wrote what?               leader-epoch-checkpoint is       headers of its batches
                                           malformed
    where does the log start?              the log start checkpoint is      the first leader epoch
                                           malformed, or beyond the end

A compacted log has traces: offsets missing between two batches of one segment, batches with fewer
records than offsets, delete horizons. No torn write leaves them, since a batch whose checksum holds
is whole. The first entry of `leader-epoch-checkpoint` moves up with the log start and is on the
device before the checkpoint of log starts; so in one life of a log it is never the lower one.

Nothing is changed here. The reasons are in docs/decisions/0020-a-gap-is-no-damage.md.
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
    return any(_has_trace(files, log_path(folder, base)) for base in bases)


def epochs_of_batches(files: Files, folder: str, bases: Sequence[int]) -> list[tuple[int, int]]:
    """Leader epoch and first offset of each, as the batches of these segments have them.

    A segment that is damaged counts up to the damage.

    Raises:
        CorruptionError: an epoch is lower than one before it, so nobody knows which one is wrong.
        OSError: a file cannot be read.
    """
    entries: list[tuple[int, int]] = []
    for base in bases:
        path = log_path(folder, base)
        for position, batch in _sound_batches(files, path):
            epoch = batch.leader_epoch
            if epoch == NO_LEADER_EPOCH or (entries and epoch == entries[-1][0]):
                continue
            if entries and epoch < entries[-1][0]:
                raise CorruptionError(
                    f"leader epoch {epoch} stands behind epoch {entries[-1][0]}",
                    path=path,
                    position=position,
                    offset=batch.base_offset,
                )
            entries.append((epoch, batch.base_offset))
    return entries


def first_epoch_offset(files: Files, folder: str) -> int | None:
    """Where the first entry of the folder's epoch checkpoint begins; None if nothing says.

    Raises:
        OSError: it cannot be read.
    """
    try:
        entries = read_epoch_checkpoint(files, f"{folder}/{names.LEADER_EPOCHS}")
    except CorruptionError:
        return None
    return entries[0][1] if entries else None


def start_by_epochs(files: Files, folder: str, *, first_base: int, first: Batch | None) -> int:
    """Where a log starts by its own files, at or above the base offset of its first segment.

    The first entry of the epoch checkpoint says it, if the log's `first` batch stands below it and
    carries an epoch: that batch had an entry of its own once, and only a log start that has moved
    up takes entries away.

    Raises:
        OSError: a file cannot be read.
    """
    noted = first_epoch_offset(files, folder)
    if noted is None or first is None or first.leader_epoch == NO_LEADER_EPOCH:
        return first_base
    return max(noted, first_base) if first.base_offset < noted else first_base


def first_batch(files: Files, folder: str, first_base: int) -> Batch | None:
    """The first batch of a log, if it is sound.

    Raises:
        OSError: a file cannot be read.
    """
    found = next(_sound_batches(files, log_path(folder, first_base)), None)
    return None if found is None else found[1]


def is_of_this_log(files: Files, folder: str, log_start: int) -> bool:
    """Whether a log start beyond the log's end can be believed: the folder itself knows of it.

    Raises:
        OSError: a file cannot be read.
    """
    noted = first_epoch_offset(files, folder)
    return noted is not None and noted >= log_start


def count_records(files: Files, path: str) -> int:
    """Records in a file as far as headers tell, damaged batches included, for telling of them.

    Raises:
        OSError: it cannot be read.
    """
    count = 0
    log = open_records_file(files, path, read_only=True)
    try:
        for _, batch in log.batches():
            if 0 <= batch.record_count <= batch.last_offset_delta + 1 <= batch.size:
                count += batch.record_count
    except CorruptionError:
        pass  # Bytes that are no batch, behind which nobody can count.
    finally:
        log.close()
    return count


def log_path(folder: str, base_offset: int) -> str:
    """The log file of a segment."""
    return f"{folder}/{names.segment_file_name(base_offset, names.LOG_SUFFIX)}"


def _has_trace(files: Files, path: str) -> bool:
    due = INT64_MAX
    for _, batch in _sound_batches(files, path):
        if batch.base_offset > due:
            return True
        if batch.legacy is None and (
            batch.record_count <= batch.last_offset_delta
            or batch.delete_horizon_or_none is not None
        ):
            return True
        due = batch.next_offset
    return False


def _sound_batches(files: Files, path: str) -> Iterator[tuple[int, Batch]]:
    """Position and batch, up to the first one whose checksum or place does not hold."""
    log: RecordsFile = open_records_file(files, path, read_only=True)
    try:
        end = 0
        for position, batch in log.batches():
            batch.check()
            if batch.base_offset < end:
                return
            yield position, batch
            end = batch.next_offset
    except CorruptionError:
        return
    finally:
        log.close()
