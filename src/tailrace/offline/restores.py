"""Bytes that recovery has set aside, and which of them fit behind the end of their log.

    log          offsets 0 to 169
    set aside    160 … 169    taken by now by what was appended since: stays where it is
                 200 … 239    fits: comes back, and 170 to 199 are missing before it

A batch comes back under its own offset, since that is what consumers know it by. So it has to begin
at or behind the end of the log, under no older leader epoch than the log's last one. A file that is
sound as a whole gets its name as a segment back; of another one the sound batches are copied.

Not here: `quarantine-` files, which hold what a repair has dropped. The operator chose to drop it,
so no repair brings it back.

Nothing is changed here. `tailrace.offline.repair` does what is planned.
"""

from collections.abc import Iterator, Sequence

from tailrace.errors import CorruptionError
from tailrace.model import NO_LEADER_EPOCH, Offset
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.reading.damage import find_sound
from tailrace.reading.directory import unreadable
from tailrace.reading.listing import SegmentFiles
from tailrace.reading.lookup import find_end
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.walk import walk_headers
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Batches that come back as one segment."""

    path: str
    """The file that was set aside."""
    base_offset: int
    """First offset of the segment."""
    next_offset: int
    """Behind the last batch."""
    records: int
    ranges: tuple[tuple[int, int], ...]
    """Start and end of each range in the file."""
    is_whole: bool
    """Whether that is all of the file."""

    @property
    def sentence(self) -> str:
        """The planned change as a sentence."""
        name = names.segment_file_name(self.base_offset, names.LOG_SUFFIX)
        how = "as" if self.is_whole else "copied to"
        return (
            f"set aside by a recovery: {self.records} records up to offset {self.next_offset - 1} "
            f"come back, {how} {name}"
        )


def plan_restores(
    files: Files, folder: str, *, segments: Sequence[SegmentFiles], listed: Sequence[str]
) -> tuple[list[Restore], list[str]]:
    """Find the batches that can return to a sound log, oldest first, and the files without any.

    Raises:
        DirectoryError: a file cannot be read.
        OSError: the same.
    """
    kept = _set_aside(files, folder, listed)
    if not kept:
        return [], []
    end = find_end(files, segments) if segments else 0
    epoch = _latest_epoch(files, segments)
    restores, rest = [], []
    for file in kept:
        restore, latest = _restore(files, file, due=end, epoch=epoch)
        if restore is None:
            rest.append(file.path)
            continue
        restores.append(restore)
        end, epoch = restore.next_offset, max(epoch, latest)
    return restores, rest


def check_set_aside(
    files: Files,
    folder: str,
    *,
    segments: Sequence[SegmentFiles],
    listed: Sequence[str],
    is_sound: bool,
) -> Iterator[Finding]:
    """A line for each file that recovery has set aside; a warning if a repair can bring it back.

    Raises:
        DirectoryError: a file cannot be read.
        OSError: the same.
    """
    restores: list[Restore] = []
    if is_sound:
        restores, _ = plan_restores(files, folder, segments=segments, listed=listed)
    coming = {each.path: each for each in restores}
    for file in _set_aside(files, folder, listed):
        restore = coming.get(file.path)
        yield Finding(
            severity=Severity.INFO if restore is None else Severity.WARNING,
            rule=Rule.SET_ASIDE,
            path=file.path,
            offset=file.base_offset if restore is None else restore.base_offset,
            sentence=(
                f"{file.size} bytes that a recovery has set aside; they do not fit behind the end "
                "of the log, and nothing reads them"
                if restore is None
                else f"{restore.records} records that a recovery has set aside; tailrace log "
                "repair brings them back"
            ),
        )


def _restore(
    files: Files, file: SegmentFiles, *, due: int, epoch: int
) -> tuple[Restore | None, int]:
    """The part of a file that fits behind `due` and `epoch`, and the epoch of its last batch.

    None if no batch does.
    """
    first, last, records = None, None, 0
    ranges: list[tuple[int, int]] = []
    for each in find_sound(files, file, due=Offset(due)):
        if each.epoch != NO_LEADER_EPOCH and each.epoch < epoch:
            continue
        first, last = first or each, each
        records += each.records
        if ranges and ranges[-1][1] == each.position:
            ranges[-1] = ranges[-1][0], each.end
        else:
            ranges.append((each.position, each.end))
    if first is None or last is None:
        return None, NO_LEADER_EPOCH
    restore = Restore(
        path=file.path,
        base_offset=first.base_offset,
        next_offset=last.last_offset + 1,
        records=records,
        ranges=tuple(ranges),
        is_whole=ranges == [(0, file.size)],
    )
    return restore, last.epoch


def _set_aside(files: Files, folder: str, listed: Sequence[str]) -> list[SegmentFiles]:
    """The files that recovery has set aside, in the order of the log."""
    found = []
    for name in listed:
        parsed = names.parse_set_aside_file_name(name)
        if parsed is None:
            continue
        path = f"{folder}/{name}"
        try:
            file = files.open(path, read_only=True)
        except OSError as error:
            raise unreadable(path, error) from error
        found.append(
            (parsed, SegmentFiles(base_offset=Offset(parsed[0]), path=path, size=file.size()))
        )
        file.close()
    return [file for _, file in sorted(found, key=lambda each: (each[0], each[1].path))]


def _latest_epoch(files: Files, segments: Sequence[SegmentFiles]) -> int:
    """The leader epoch of the last batch of a log; -1 if it has none."""
    latest = NO_LEADER_EPOCH
    for segment in reversed(segments):
        file = files.open(segment.path, read_only=True)
        try:
            for _, batch in walk_headers(file, segment.path, start=0, limit=segment.size):
                latest = max(latest, batch.leader_epoch)
        except CorruptionError:
            pass  # A tail that is not whole; what is before it counts.
        finally:
            file.close()
        if latest != NO_LEADER_EPOCH:
            break
    return latest
