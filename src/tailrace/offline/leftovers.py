"""Leftovers of interrupted work: which files are removed, completed, or brought back.

    in a partition                  what a broker does with it when it starts
    .cleaned                        removed
    .swap                           put in place, or removed beside an unfinished .cleaned
    .deleted, .tmp                  removed
    set aside by a recovery         kept; `tailrace log repair` restores what fits
    quarantined by a repair         kept; the operator chose to drop it
    beside the partitions
    flights-3.0f…-delete            removed
    flights-3.0f…-future, -stray    kept; replicas that move, or that nobody has assigned
    __cluster_metadata-0.0f…-delete kept; to be renamed by its owner

Nothing is changed here; `tailrace.offline.repair` does what is planned.

**Set aside.** A batch comes back under its own offset, since that is what consumers know it by. So
it has to begin at or after the end of the log, under no older leader epoch than the log's last one:

    log          offsets 0 to 169
    set aside    160 … 169    taken by now by what was appended since: stays where it is
                 200 … 239    fits: comes back, and 170 to 199 are missing before it

A file that is sound as a whole gets its name as a segment back; of another one the sound batches
are copied.

**Exchanges.** While compaction exchanges segments, two sets of files are in the folder, and only
one of them is the log:

    00000000000000000000.log.swap   what compaction has made; readers take it for segment 0
    00000000000000000000.log        a segment that it replaces; nobody reads it any more
    00000000000000000005.log        another one

So a repair changes nothing in such a log. If the `.swap` files are sound, it puts them in place as
a broker's start does, and the next repair looks at the rest. If one is damaged, it says what to do,
because the files that are replaced may hold the only sound copy of a record.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing

from tailrace.config.sources import read_properties
from tailrace.errors import CorruptionError
from tailrace.model import NO_LEADER_EPOCH, Offset
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.reading.damage import OnDamage, find_damage
from tailrace.reading.directory import unreadable
from tailrace.reading.listing import SegmentFiles, open_segments
from tailrace.reading.lookup import find_end
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.checkpoints import parse_topic_id, read_text
from tailrace.storage.segment_walk import Damage, walk_segment
from tailrace.storage.walk import walk_headers
from tailrace.values import dataclass

_SET_ASIDE = re.compile(r"[a-zA-Z0-9._-]*-[0-9]+\.[^.\s]+-(future|stray)")


def check_identity(files: Files, path: str) -> Iterator[Finding]:
    """Check `meta.properties` at `path`; it may be missing, as in a backup.

    Raises:
        OSError: it cannot be read.
    """
    # A backup has none, and nothing is wrong with it.
    if not files.exists(path):
        return
    try:
        fault = _identity_fault(read_properties(read_text(files, path)))
    except CorruptionError as error:
        fault = error.rule
    if fault is not None:
        yield Finding(severity=Severity.ERROR, rule=Rule.IDENTITY, path=path, sentence=fault)


def check_partition_leftovers(folder: str, listed: list[str]) -> Iterator[Finding]:
    """The files in a partition's folder that a broker will remove or put in place."""
    # As a starting broker decides (`cleaner.swap`): swap files from the first unready one on are
    # void.
    cleaned = [_base(name) for name in listed if name.endswith(names.CLEANED_SUFFIX)]
    limit = min((base for base in cleaned if base is not None), default=None)
    for name in listed:
        severity, sentence = Severity.WARNING, None
        if name.endswith((names.CLEANED_SUFFIX, names.SWAP_SUFFIX)) and _base(name) is None:
            continue  # Of no segment: a broker leaves it alone.
        if name.endswith(names.CLEANED_SUFFIX):
            sentence = "left by a compaction that was interrupted; a broker removes it"
        elif name.endswith(names.SWAP_SUFFIX):
            base = _base(name)
            assert base is not None
            is_void = limit is not None and base >= limit
            sentence = (
                "left by a compaction that was interrupted; a broker removes it, since a .cleaned "
                "file beside it is not ready"
                if is_void
                else "a compaction is half done; a broker puts it in place of what it replaces"
            )
        elif names.is_removed_at_start(name):
            severity, sentence = Severity.INFO, "out of service; a broker removes it"
        if sentence is not None:
            yield _leftover(f"{folder}/{name}", severity, sentence)


def check_directory_leftovers(files: Files, path: str) -> Iterator[Finding]:
    """The folders beside the partitions that are none in service.

    Raises:
        OSError: the directory cannot be read.
    """
    for name in files.list(path):
        severity = Severity.INFO
        if names.is_metadata_directory_name(name):
            if names.parse_partition_directory_name(name) is not None:
                continue
            severity = Severity.WARNING
            sentence = (
                "Kafka's metadata log under the name of a deleted partition; Kafka does not start "
                f"without it: rename the folder to {name.partition('.')[0]}"
            )
        elif names.is_delete_directory_name(name):
            sentence = (
                "a partition that was deleted; a broker removes the folder a minute after its start"
            )
        elif _SET_ASIDE.fullmatch(name):
            sentence = "a replica that is not in service; a broker keeps the folder"
        else:
            continue
        yield _leftover(f"{path}/{name}", severity, sentence)


def _identity_fault(fields: dict[str, str]) -> str | None:
    text = fields.get("version", "0")
    if text not in {"0", "1"}:
        return f"version {text[:20]!r}, where 0 and 1 are known"
    # Version 0 is that of ZooKeeper's time: it calls the node broker.id, and need not name the
    # cluster.
    needed = ("broker.id",) if text == "0" else ("cluster.id", "node.id")
    missing = [name for name in needed if not fields.get(name)]
    if missing:
        return f"{' and '.join(missing)} missing"
    if not re.fullmatch(r"[0-9]{1,10}", fields[needed[-1]]):
        return f"{needed[-1]} is {fields[needed[-1]][:20]!r}, which is no number"
    if fields.get("directory.id"):
        try:
            parse_topic_id(fields["directory.id"])
        except ValueError as error:
            return f"directory.id: {error}"
    return None


def _base(name: str) -> int | None:
    parsed = names.parse_segment_file_name(name.rpartition(".")[0])
    return None if parsed is None else parsed[0]


def _leftover(path: str, severity: Severity, sentence: str) -> Finding:
    return Finding(severity=severity, rule=Rule.LEFTOVER, path=path, sentence=sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Batches that come back as one segment."""

    path: str
    """The file that was set aside."""
    base_offset: int
    """First offset of the segment."""
    next_offset: int
    """The offset after the last batch."""
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
    # Of the log as it is now: others may have been appended since the recovery.
    end = find_end(files, segments) if segments else 0
    epoch = _latest_epoch(files, segments)
    restores, rest = [], []
    for file in kept:
        restore, latest = _restore(files, file, due=end, epoch=epoch)
        if restore is None:
            rest.append(file.path)
            continue
        restores.append(restore)
        # The next file has to fit after this one.
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
    # Where a repair drops something the end of the log moves, and what fits after it is not known.
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
                f"{file.size} bytes that a recovery has set aside; they do not fit after the end "
                "of the log, and nothing reads them"
                if restore is None
                else f"{restore.records} records that a recovery has set aside; tailrace log "
                "repair brings them back"
            ),
        )


def _restore(
    files: Files, file: SegmentFiles, *, due: int, epoch: int
) -> tuple[Restore | None, int]:
    """The part of a file that fits after `due` and `epoch`, and the epoch of its last batch.

    None if no batch does.
    """
    base_offset: int | None = None
    next_offset, latest, records = due, NO_LEADER_EPOCH, 0
    ranges: list[tuple[int, int]] = []
    try:
        with closing(files.open(file.path, read_only=True)) as opened:
            for found in walk_segment(
                opened, file.path, base_offset=file.base_offset, size=file.size, due=Offset(due)
            ):
                # It was set aside because of its damage; what is sound around it may come back.
                if isinstance(found, Damage):
                    continue
                for position, batch in found.batches():
                    # Epochs must not fall: a follower would truncate its log there.
                    if batch.leader_epoch != NO_LEADER_EPOCH and batch.leader_epoch < epoch:
                        continue
                    base_offset = batch.base_offset if base_offset is None else base_offset
                    next_offset, latest = batch.next_offset, batch.leader_epoch
                    records += batch.record_count
                    end = position + batch.size
                    # Neighbours become one range, so that an undamaged file is renamed and not
                    # copied.
                    is_next = bool(ranges) and ranges[-1][1] == position
                    start = ranges.pop()[0] if is_next else position
                    ranges.append((start, end))
    except OSError as error:
        raise unreadable(file.path, error) from error
    if base_offset is None:
        return None, NO_LEADER_EPOCH
    restore = Restore(
        path=file.path,
        base_offset=base_offset,
        next_offset=next_offset,
        records=records,
        ranges=tuple(ranges),
        is_whole=ranges == [(0, file.size)],
    )
    return restore, latest


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
    # The newest segment may have no batch yet.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """An exchange of segments that is half done."""

    path: str
    """The first `.swap` file of a log."""
    advice: str | None
    """Advice for the operator; None if the `.swap` files are sound and can be put in place."""


def plan_exchange(
    files: Files, folder: str, *, segments: Sequence[SegmentFiles], listed: Sequence[str]
) -> Exchange | None:
    """Plan how to complete or undo an exchange of `.swap` files; None if there are none.

    Raises:
        DirectoryError: a file cannot be read.
    """
    swaps = [each for each in segments if each.path.endswith(names.SWAP_SUFFIX)]
    if not swaps:
        return None
    paths = {each.path for each in swaps}
    # The `.swap` files are listed as segments, so they are checked with their neighbours.
    drops = find_damage(files, segments, OnDamage.SKIP).drops
    damaged = next((each.path for each in drops if each.path in paths), None)
    if damaged is None:
        return Exchange(path=swaps[0].path, advice=None)
    if _are_old_sound(files, folder, segments=segments, listed=listed, first=swaps[0].base_offset):
        advice = (
            f"{damaged} is damaged, and the segments that it would replace are there and sound: "
            f"move all files in {folder} that end in {names.SWAP_SUFFIX} to another directory, and "
            "repair again; no record is lost"
        )
    else:
        bases = ", ".join(str(each.base_offset) for each in swaps)
        advice = (
            f"{damaged} is damaged, and the segments that it replaces are not all there and sound: "
            "restore the partition from a replica or a backup. Without one, move the segments "
            f"between those at offsets {bases} and the next one to another directory, remove "
            f"{names.SWAP_SUFFIX} from the names in {folder}, and repair again; that keeps the "
            "sound batches"
        )
    return Exchange(path=damaged, advice=advice)


def _are_old_sound(
    files: Files,
    folder: str,
    *,
    segments: Sequence[SegmentFiles],
    listed: Sequence[str],
    first: int,
) -> bool:
    """Whether all segments that are replaced still have their names and no damage.

    The exchange renames them before a `.swap` file gets its name, the lowest one first.
    """
    for name in listed:
        stem = name.removesuffix(names.DELETED_SUFFIX)
        parsed = None if stem == name else names.parse_segment_file_name(stem)
        if parsed is not None and parsed[0] >= first and parsed[1] == names.LOG_SUFFIX:
            return False
    try:
        old = open_segments(
            files, folder, [each for each in listed if not each.endswith(names.SWAP_SUFFIX)]
        )
    except OSError as error:
        raise unreadable(str(error.filename or folder), error) from error
    replaced = {each.path for each in old} - {each.path for each in segments}
    # The first one has been deleted already, and what it held is in the swap file alone.
    if all(each.base_offset != first for each in old):
        return False
    return not any(each.path in replaced for each in find_damage(files, old, OnDamage.SKIP).drops)
