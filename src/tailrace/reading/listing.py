"""List the log files of a partition while a broker may roll, delete and exchange them.

    10.log  20.log  30.log  40.log          the log
    10.log.swap                             compaction has merged the first two segments into one,
    20.log  30.log  40.log                  and exchanges the files one after the other
    10.log          30.log  40.log

Files of a segment that leaves service are renamed, the log first. So a listed name may be gone, or
belong to another file, at the next call. When a file does not fit, a reader lists again, asks
`exchanged` whether the files were exchanged, and continues at its offset: compaction removes
offsets, but never changes the record of one that stays.

A `.swap` file counts as the segment as soon as a starting broker would put it in place (see
`cleaner.swap`), so a listing is complete at every point of the exchange.

This module only reads.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

from tailrace.errors import CorruptionError, DirectoryError
from tailrace.model import Offset
from tailrace.runtime.files import File, FileCutError, Files
from tailrace.storage import names
from tailrace.storage.records_file import RecordsFile
from tailrace.values import dataclass

ResultT = TypeVar("ResultT")

Stale: TypeAlias = CorruptionError | FileNotFoundError | FileCutError
STALE: Final = (CorruptionError, FileNotFoundError, FileCutError)
"""The errors that a reader may get when the listed file was exchanged or removed."""

TRIES_MAX: Final = 10
"""Number of times that a step is tried when files are exchanged meanwhile. A round of the cleaner
takes seconds and a step milliseconds, so more tries would not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFiles:
    """One segment's log file, with its size when it was listed."""

    base_offset: Offset
    path: str
    size: int

    def sibling(self, suffix: str) -> str:
        """The path of an index of this segment, with the same `.swap` suffix as the log."""
        stem = self.path.removesuffix(names.SWAP_SUFFIX)
        return stem.removesuffix(names.LOG_SUFFIX) + suffix + self.path[len(stem) :]


def list_segment_files(files: Files, folder: str) -> tuple[list[SegmentFiles], list[str]]:
    """The segments of a partition in order, and the names of all files in its folder.

    Raises:
        OSError: the folder is not there or may not be read, or a log file in it.
    """
    listed = files.list(folder)
    while True:
        try:
            return open_segments(files, folder, listed), listed
        except FileNotFoundError:
            again = files.list(folder)
            # The file is named and is not there: a link into nowhere, say.
            if again == listed:
                raise
            listed = again


def open_sibling(files: Files, segment: SegmentFiles, suffix: str) -> File | None:
    """An index of a segment, or None if it has none.

    In the middle of an exchange the log has been renamed already, and its indexes may follow.

    Raises:
        OSError: the file cannot be opened.
    """
    own = segment.sibling(suffix)
    stem = own.removesuffix(names.SWAP_SUFFIX)
    paths = [own]
    swapped_log = f"{stem.removesuffix(suffix)}{names.LOG_SUFFIX}{names.SWAP_SUFFIX}"
    for path in paths:
        try:
            return files.open(path, read_only=True)
        except FileNotFoundError:
            # An exchange renames the log first: the index may still have the other name.
            if len(paths) == 1 and not files.exists(swapped_log):
                paths += [stem + names.SWAP_SUFFIX, stem]
    return None


def exchanged(
    before: Sequence[SegmentFiles],
    after: Sequence[SegmentFiles],
    *,
    start_offset: Offset,
    limit_offset: Offset,
) -> bool:
    """Whether files with offsets of a range were exchanged between two listings; pure.

    A last segment that has grown or was rolled does not count.
    """
    found = {each.base_offset: number for number, each in enumerate(after)}
    for number, segment in enumerate(before):
        following = before[number + 1].base_offset if number + 1 < len(before) else None
        is_outside = segment.base_offset >= limit_offset
        if is_outside or (following is not None and following <= start_offset):
            continue
        place = found.get(segment.base_offset)
        # Gone, or the same offsets under a `.swap` name.
        if place is None or after[place].path != segment.path:
            return True
        if following is None:
            # An active segment only grows, unless the log was cut.
            if after[place].size < segment.size:
                return True
            continue
        next_base = after[place + 1].base_offset if place + 1 < len(after) else None
        # A closed segment never changes: another size is another file under the same name.
        if next_base != following or after[place].size != segment.size:
            return True
    return False


def settled(
    files: Files, folder: str, work: Callable[[Sequence[SegmentFiles], Sequence[str]], ResultT]
) -> ResultT:
    """The result of `work` on the segments and file names of a folder that did not change.

    `work` is called again if files were exchanged or deleted, so it must have no side effects.

    Raises:
        CorruptionError, OSError: from `work`, if the files are still there; or the folder cannot be
            listed.
        DirectoryError: files were exchanged at each try.
    """
    segments, listed = list_segment_files(files, folder)
    for _ in range(TRIES_MAX):
        before = segments
        try:
            result = work(segments, listed)
        except (CorruptionError, OSError) as error:
            segments, listed = list_segment_files(files, folder)
            if not (_have_changed(before, segments) or isinstance(error, FileNotFoundError)):
                raise
        else:
            segments, listed = list_segment_files(files, folder)
            if not _have_changed(before, segments):
                return result
    raise unsettled(folder)


def unsettled(folder: str) -> DirectoryError:
    """The error for a folder whose files were exchanged during each try to read it."""
    return DirectoryError(
        f"{folder}: log files were exchanged or deleted at each of {TRIES_MAX} tries to read it; "
        "try again when the broker compacts and deletes less"
    )


def _have_changed(before: Sequence[SegmentFiles], after: Sequence[SegmentFiles]) -> bool:
    if not before:
        return False
    # Whatever is appended meanwhile does not count.
    first, limit = before[0].base_offset, Offset(before[-1].base_offset + 1)
    return exchanged(before, after, start_offset=first, limit_offset=limit)


def open_segments(files: Files, folder: str, listed: Sequence[str]) -> list[SegmentFiles]:
    """The segments that the listed file names form, in order.

    Raises:
        FileNotFoundError: a file was removed after the folder was listed.
        OSError: a log file cannot be read.
    """
    segments = []
    for base_offset, name in sorted(_current_logs(files, folder, listed).items()):
        path = f"{folder}/{name}"
        file = files.open(path, read_only=True)
        segments.append(SegmentFiles(base_offset=Offset(base_offset), path=path, size=file.size()))
        file.close()
    return segments


def _current_logs(files: Files, folder: str, listed: Sequence[str]) -> dict[int, str]:
    """The log file of each segment by base offset, those in exchange under their `.swap` names."""
    logs = _logs(listed)
    swapped = [name.removesuffix(names.SWAP_SUFFIX) for name in listed if _is_swap(name)]
    swaps = _logs(swapped)
    if not swaps:
        return logs
    cleaned = [name[:20] for name in listed if name.endswith(names.CLEANED_SUFFIX)]
    # Until all new segments have `.swap` names, the old files count.
    limit = min((int(each) for each in cleaned if each.isdecimal()), default=None)
    swaps = {base: name for base, name in swaps.items() if limit is None or base < limit}
    if not swaps:
        return logs
    end = max(
        _end_of(files, f"{folder}/{name}{names.SWAP_SUFFIX}", base) for base, name in swaps.items()
    )
    # As a start decides (`cleaner.swap`): the new segments replace all old ones in their range.
    kept = {base: name for base, name in logs.items() if not min(swaps) <= base < end}
    return kept | {base: name + names.SWAP_SUFFIX for base, name in swaps.items()}


def _logs(listed: Sequence[str]) -> dict[int, str]:
    found = {}
    for name in listed:
        parsed = names.parse_segment_file_name(name)
        if parsed is not None and parsed[1] == names.LOG_SUFFIX:
            found[parsed[0]] = name
    return found


def _is_swap(name: str) -> bool:
    return name.endswith(names.SWAP_SUFFIX)


def _end_of(files: Files, path: str, base_offset: int) -> int:
    """The offset after the last batch that can be read."""
    end = base_offset
    file = files.open(path, read_only=True)
    try:
        for _, batch in RecordsFile(path=path, file=file).batches():
            end = max(end, batch.next_offset)
    except CorruptionError:
        return end  # A reader of this segment gets the error.
    finally:
        file.close()
    return end
