"""Exchange old segments for compacted ones, and complete or undo the exchange after a crash.

    step        files of the new segment     files of the old ones          after a crash
    rewrite     170.log.cleaned              170.log, 200.log               the old, not .cleaned
    publish     170.log.cleaned -> .swap     170.log, 200.log               the old, until all files
                                                                            are renamed
    exchange    170.log.swap                 170.log.deleted, ...           the new
    complete    170.log                      deleted later                  the new
    sync        170.log, on the device       deleted later                  the new

The suffixes decide: a `.swap` file counts only if no `.cleaned` file with the same or a lower
offset is left. Therefore several segments are published from the highest offset down. After that
the exchange can only be completed, and a start completes it (as Kafka's LogLoader does).

A start finds the old segments by their offsets: from the first new base offset up to the end of the
new segments. So if no record of the last old segments was kept, some of these may come back after a
crash right before the exchange. They are complete, and the records that replace theirs are after
them. The next round cleans them again.

Invariant: at every point, each range of offsets is served by its old segments or by its new one.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from tailrace.errors import CorruptionError
from tailrace.model import Offset
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.cleaner.output import CleanedSegmentWriter, discard, open_cleaned
from tailrace.storage.config import LogConfig
from tailrace.storage.records_file import open_records_file
from tailrace.storage.segment import Segment, open_segment

_OF_SEGMENTS: Final = (
    names.LOG_SUFFIX,
    names.OFFSET_INDEX_SUFFIX,
    names.TIME_INDEX_SUFFIX,
    names.TRANSACTION_INDEX_SUFFIX,
    names.SNAPSHOT_SUFFIX,
)
_SUFFIXES: Final = (names.CLEANED_SUFFIX, names.SWAP_SUFFIX, names.DELETED_SUFFIX)


def publish(files: Files, directory: str, *segments: Segment) -> None:
    """Renames new segments from `.cleaned` to `.swap`; on the device when this returns.

    May be slow, and uses no file in service, so it can run on a worker thread. A crash before it
    returns leaves either the old segments or the new ones. A log whose last exchange failed must
    not be cleaned again before a start: a `.cleaned` file would make its `.swap` files invalid.

    Raises:
        OSError: the device refused; a start drops the renamed files, unless all were renamed.
    """
    # From the highest offset down: a `.swap` file counts only if no `.cleaned` of the same or a
    # lower offset is left. So the set becomes valid with its last rename.
    for segment in sorted(segments, key=lambda each: each.base_offset, reverse=True):
        segment.change_suffix(names.CLEANED_SUFFIX, names.SWAP_SUFFIX)
    files.sync_directory(directory)


def complete(*segments: Segment) -> None:
    """Removes the `.swap` suffix, after the old files were renamed.

    On the device when the caller has synced the directory. Until then the next round must not
    begin: after a crash its `.cleaned` files could make a `.swap` file of this one invalid.

    Raises:
        OSError: a file cannot be renamed; a start completes the exchange.
    """
    for segment in sorted(segments, key=lambda each: each.base_offset):
        segment.change_suffix(names.SWAP_SUFFIX, "")


def finish_swaps(files: Files, directory: str) -> None:
    """Completes or undoes every exchange that a crash has interrupted.

    Afterwards the folder has no `.cleaned`, `.swap` and `.deleted` files. Can be repeated after a
    crash.

    Raises:
        CorruptionError: a new segment is damaged; nothing has changed.
        OSError: the device refused.
    """
    found = _suffixed(files, directory)
    cleaned, swaps = found[names.CLEANED_SUFFIX], found[names.SWAP_SUFFIX]
    limit = min(map(_offset_of, cleaned), default=None)
    # Find invalid `.swap` files before the `.cleaned` files are removed: without these, a partly
    # published set looks complete.
    invalid = [name for name in swaps if limit is not None and _offset_of(name) >= limit]
    for name in swaps:
        # Check the new segments before any old file is removed.
        if name not in invalid and _is_log(name):
            _check(files, f"{directory}/{name}")
    for name in found[names.DELETED_SUFFIX]:
        files.remove(f"{directory}/{name}")
    for name in invalid:
        files.remove(f"{directory}/{name}")
    if invalid:
        files.sync_directory(directory)
    # Only now: without these the invalid `.swap` files would look complete.
    for name in cleaned:
        files.remove(f"{directory}/{name}")
    valid = [name for name in swaps if name not in invalid]
    if not valid:
        return
    _remove_replaced(files, directory, valid)
    # The log before its indexes: a folder with an index and no log would lose the index at the next
    # start, one with a log and no index has it rebuilt.
    for name in sorted(valid, key=lambda each: (_offset_of(each), not _is_log(each))):
        path = f"{directory}/{name}"
        files.rename(path, path.removesuffix(names.SWAP_SUFFIX))
    files.sync_directory(directory)


def split_overflowed(
    files: Files, directory: str, *, base_offset: int, config: LogConfig
) -> list[int]:
    """Splits a segment whose offsets do not fit 31 bits; returns the new base offsets.

    For a log that is not open: the new segments are in place, and closed, when this returns. After
    a crash a start undoes or completes the split.

    Raises:
        CorruptionError: the log cannot be read to its end; nothing has changed.
        OSError: the device refused.
    """
    with closing(
        open_segment(files, directory, base_offset=Offset(base_offset), config=config)
    ) as source:
        parts = split_segment(files, directory, source, config=config)
    publish(files, directory, *parts)
    finish_swaps(files, directory)
    for part in parts:
        part.close()
    return [part.base_offset for part in parts]


def split_segment(
    files: Files, directory: str, source: Segment, *, config: LogConfig
) -> list[Segment]:
    """Copies the batches of a segment into several new ones: `.cleaned` files, synced, unpublished.

    Batches are copied unchanged. The first part has the base offset of the source, and may be empty
    if the source's first batch does not fit it. When this raises, the files are removed.

    Raises:
        CorruptionError: the log or its transaction index cannot be read to its end.
        OSError: the device is full or failing.
    """
    parts: list[Segment] = []

    def begin(base_offset: int) -> Segment:
        part = open_cleaned(
            files, directory, base_offset=base_offset, config=config, size_max=source.size
        )
        parts.append(part)
        return part

    try:
        output = CleanedSegmentWriter(begin(source.base_offset))
        end = 0
        for position, batch in source.log.batches():
            # Only then: each part gets as many batches as fit, so few parts are made.
            if not output.segment.can_hold(batch.last_offset):
                output.flush()
                output = CleanedSegmentWriter(begin(batch.base_offset))
            end = position + batch.size
            # Byte for byte, whatever the format: nothing is to be changed but the base.
            data = source.log.read(position, end)
            output.add(data, last_offset=batch.last_offset, max_timestamp=batch.max_timestamp)
        output.flush()
        if end != source.size:
            raise CorruptionError("the last batch is not whole", path=source.log.path, position=end)
        bases = [part.base_offset for part in parts]
        for aborted in source.transactions.entries():
            parts[bisect_right(bases, aborted.last_offset) - 1].transactions.append(aborted)
        for part in parts:
            part.finish()
            part.sync()
            # Retention counts from it where records have no timestamps.
            files.set_modified_ms(part.log.path, source.modified_ms())
    except Exception as error:
        discard(files, *parts, after=error)
        raise
    return parts


def _remove_replaced(files: Files, directory: str, swaps: Sequence[str]) -> None:
    """Removes the segments that the new ones replace, and the snapshots between them."""
    bases = [_offset_of(name) for name in swaps if _is_log(name)]
    if not bases:
        return
    limit = max(
        _next_offset(files, f"{directory}/{name}", base_offset=_offset_of(name))
        for name in swaps
        if _is_log(name)
    )
    for name in files.list(directory):
        parsed = names.parse_segment_file_name(name)
        if parsed is None or parsed[1] not in _OF_SEGMENTS:
            continue
        offset, suffix = parsed
        is_new_base = offset in bases
        # The state before a segment does not depend on what compaction removes from it.
        if is_new_base and suffix == names.SNAPSHOT_SUFFIX:
            continue
        if is_new_base or min(bases) <= offset < limit:
            files.remove(f"{directory}/{name}")
    files.sync_directory(directory)


def _check(files: Files, path: str) -> None:
    with closing(open_records_file(files, path, read_only=True)) as log:
        end = 0
        for each in log.checked():
            end = each.end
        if end != log.size:
            raise CorruptionError("the last batch is not whole", path=path, position=end)


def _next_offset(files: Files, path: str, *, base_offset: int) -> int:
    with closing(open_records_file(files, path, read_only=True)) as log:
        return max((batch.next_offset for _, batch in log.batches()), default=base_offset)


def _suffixed(files: Files, directory: str) -> dict[str, list[str]]:
    """The segment files with a `.cleaned`, `.swap` or `.deleted` suffix, by suffix."""
    found: dict[str, list[str]] = {suffix: [] for suffix in _SUFFIXES}
    for name in files.list(directory):
        stem, dot, last = name.rpartition(".")
        if dot + last in found and names.parse_segment_file_name(stem) is not None:
            found[dot + last].append(name)
    return found


def _offset_of(name: str) -> int:
    return int(name[:20])


def _is_log(name: str) -> bool:
    return name.removesuffix(names.SWAP_SUFFIX).endswith(names.LOG_SUFFIX)
