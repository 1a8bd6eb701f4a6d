"""Whether the transaction index of a segment agrees with the abort markers in it.

The walk over the segment collects the markers; then the index is read and held against them, entry
by entry: each has its marker, each marker of an abort its entry.

Invariant: an entry is judged by sound batches only; where a segment is damaged, a missing marker is
nobody's fault.
"""

from collections.abc import Iterator, Sequence

from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.reading.producers import EndedTransaction
from tailrace.runtime.files import Files
from tailrace.storage.index.transaction import ENTRY, VERSION, AbortedTxn


def check_aborts(
    files: Files,
    path: str,
    *,
    base_offset: int,
    limit_offset: int,
    markers: Sequence[EndedTransaction],
    is_sound: bool,
) -> Iterator[Finding]:
    """Check the transaction index at `path`; a missing file has no entries.

    `markers` are those of the segment, whose offsets lie below `limit_offset`; with `is_sound` they
    are all there are.

    Raises:
        OSError: the index cannot be read.
    """
    data = _content(files, path)
    whole = len(data) // ENTRY.size * ENTRY.size
    if whole < len(data):
        sentence = f"{len(data) - whole} bytes are left over behind entries of {ENTRY.size}"
        yield _finding(path, sentence, position=whole, offset=None)
    aborts = {each.last_offset: each for each in markers if each.is_aborted}
    seen = set()
    before = base_offset - 1
    for number, (version, *fields) in enumerate(ENTRY.iter_unpack(memoryview(data)[:whole])):
        entry, position = AbortedTxn(*fields), number * ENTRY.size
        if version == VERSION and entry.last_offset >= limit_offset and not is_sound:
            continue
        fault = _fault(version, entry, before=before, limit_offset=limit_offset)
        if fault is None:
            before = entry.last_offset
            seen.add(before)
            fault = _disagreement(entry, aborts.get(before), is_sound=is_sound)
        if fault is not None:
            yield _finding(path, f"the entry {fault}", position=position, offset=entry.last_offset)
    for offset, marker in aborts.items():
        # A transaction that began before a hole may have lost its entry with its records.
        if offset not in seen and marker.first_offset is not None and marker.is_unbroken:
            yield _finding(
                path,
                f"no entry for the transaction of producer {marker.producer_id} from offset "
                f"{marker.first_offset}, which the marker at {offset} aborts",
                position=None,
                offset=offset,
            )


def _fault(version: int, entry: AbortedTxn, *, before: int, limit_offset: int) -> str | None:
    if version != VERSION:
        return f"has version {version}, not {VERSION}"
    if not before < entry.last_offset < limit_offset:
        return (
            f"ends at offset {entry.last_offset}, where one behind {before} and below "
            f"{limit_offset} is due"
        )
    if not 0 <= entry.first_offset <= entry.last_offset:
        return f"begins at offset {entry.first_offset} and ends at {entry.last_offset}"
    if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
        return (
            f"has the last stable offset {entry.last_stable_offset}, behind its marker at "
            f"{entry.last_offset}"
        )
    return None


def _disagreement(
    entry: AbortedTxn, marker: EndedTransaction | None, *, is_sound: bool
) -> str | None:
    if marker is None:
        return f"has no abort marker at offset {entry.last_offset}" if is_sound else None
    if entry.producer_id != marker.producer_id:
        return f"names producer {entry.producer_id}; the marker is of {marker.producer_id}"
    first = marker.first_offset
    if first is not None and (
        entry.first_offset != first
        if marker.is_exact
        else marker.is_unbroken and entry.first_offset > first
    ):
        return f"begins at offset {entry.first_offset}; the transaction begins at {first}"
    if marker.is_exact and entry.last_stable_offset != marker.last_stable_offset:
        return (
            f"has the last stable offset {entry.last_stable_offset}, where it is "
            f"{marker.last_stable_offset}"
        )
    return None


def _content(files: Files, path: str) -> bytes:
    try:
        file = files.open(path, read_only=True)
    except FileNotFoundError:
        return b""
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def _finding(path: str, sentence: str, *, position: int | None, offset: int | None) -> Finding:
    return Finding(
        severity=Severity.ERROR,
        rule=Rule.TRANSACTION_INDEX,
        path=path,
        position=position,
        offset=offset,
        sentence=sentence,
    )
