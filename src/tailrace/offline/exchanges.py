"""Plans how a repair ends a compaction that was interrupted while it exchanged segments.

    00000000000000000000.log.swap   what compaction has made; readers take it for segment 0
    00000000000000000000.log        a segment that it replaces; nobody reads it any more
    00000000000000000005.log        another one

Both sets of files are in the folder, and only one of them is the log. So a repair changes nothing
in such a log. If the `.swap` files are sound, it puts them in place as a broker's start does, and
the next repair looks at the rest. If one is damaged, it says what to do, because the files that are
replaced may hold the only sound copy of a record.

Nothing is changed here.
"""

from collections.abc import Sequence

from tailrace.reading.damage import OnDamage, find_damage
from tailrace.reading.directory import unreadable
from tailrace.reading.listing import SegmentFiles, open_segments
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.values import dataclass


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
    if all(each.base_offset != first for each in old):
        return False
    return not any(each.path in replaced for each in find_damage(files, old, OnDamage.SKIP).drops)
