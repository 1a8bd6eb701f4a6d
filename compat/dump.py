"""Compares the output of Kafka's DumpLogSegments with the same lines from our own decoders.

    Dumping …/flights-0/00000000000000000000.log
    Log starting offset: 0
    baseOffset: 0 lastOffset: 1 count: 2 … crc: 3866321609 isvalid: true
    | offset: 0 CreateTime: 1750000000147 keySize: 3 … sequence: -1 headerKeys: [] key: abc …

Lines are compared, not parsed, so that no field of a batch, a record, an index entry or a producer
can be left out. What the tool tells of gaps in the offsets comes last, and is put behind the lines
of its file as `gap: 0 is followed by 2`.

Not here: values of headers, which the tool does not print.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tailrace.errors import CorruptionError
from tailrace.model import Codec, Offset
from tailrace.records import layout
from tailrace.records.batch import Batch, LegacyEntry, sequence_after
from tailrace.records.builder import Record, records_of
from tailrace.records.control import read_end_transaction_marker
from tailrace.records.legacy import read_all_batches
from tailrace.runtime.files import DiskFiles
from tailrace.storage import names
from tailrace.storage.index.offset import open_offset_index
from tailrace.storage.index.time import open_time_index
from tailrace.storage.index.transaction import open_transaction_index
from tailrace.storage.snapshots import read_snapshot

Lines = dict[str, list[str]]
"""Printed lines of each file, by the names of its folder and itself."""

SUFFIXES = frozenset(
    {
        names.LOG_SUFFIX,
        names.OFFSET_INDEX_SUFFIX,
        names.TIME_INDEX_SUFFIX,
        names.TRANSACTION_INDEX_SUFFIX,
        names.SNAPSHOT_SUFFIX,
    }
)

_DUMPING = "Dumping "
_GAPS = "Non-consecutive offsets in "
_GAP = re.compile(r"^  (-?\d+ is followed by \d+)$")
_NO_TEXT = re.compile("\ufffd+")
_INNER_CHECKSUM = re.compile(r"^(\| .*?) isValid: true crc: \d+")
"""Checksum of a record inside of a v0 or v1 entry; the entry's own is in the entry's line."""


def dumpable(logs: Path) -> list[Path]:
    """The files of all partitions that the tool can read; not those of Kafka's metadata log."""
    return sorted(
        path
        for path in logs.glob("*/*")
        if path.suffix in SUFFIXES and not names.is_metadata_directory_name(path.parent.name)
    )


def read_dump(printed: Iterable[str]) -> Lines:
    """The lines that the tool has printed, by file."""
    found: Lines = {}
    about: list[str] = []
    is_told_of_gaps = False
    for line in printed:
        if line.startswith((_DUMPING, _GAPS)):
            is_told_of_gaps = line.startswith(_GAPS)
            path = Path(line.removeprefix(_DUMPING).removeprefix(_GAPS))
            about = found.setdefault(f"{path.parent.name}/{path.name}", [])
            continue
        gap = _GAP.match(line)
        if line.endswith(" is empty."):
            line = "empty"  # noqa: PLW2901 - without the path
        elif is_told_of_gaps and gap:
            line = f"gap: {gap[1]}"  # noqa: PLW2901
        about.append(_INNER_CHECKSUM.sub(r"\1", line))
    return found


def our_dump(logs: Path) -> Lines:
    """The lines that the tool would print of the same files, if our decoders are right."""
    return {f"{path.parent.name}/{path.name}": _lines_of(path) for path in dumpable(logs)}


def _shown(line: str) -> str:
    """Replace each run of U+FFFD by one; its length differs between Java and Python."""
    return _NO_TEXT.sub("\ufffd", line)


def dump_differences(found: Lines, expected: Lines) -> list[str]:
    """The first different line of each file; a file that one side lacks is a difference."""
    differences = []
    for name in sorted(found.keys() | expected.keys()):
        ours, theirs = found.get(name), expected.get(name)
        if ours is None or theirs is None:
            differences.append(f"{name} is missing from {'ours' if ours is None else 'theirs'}")
            continue
        pairs = zip(map(_shown, ours), map(_shown, theirs), strict=False)
        different = next((pair for pair in pairs if pair[0] != pair[1]), None)
        if different is not None:
            differences.append(f"{name}: {different[0]!r} where Kafka has {different[1]!r}")
        elif len(ours) != len(theirs):
            differences.append(f"{name}: {len(ours)} lines where Kafka has {len(theirs)}")
    return differences


def _lines_of(path: Path) -> list[str]:
    base_offset = int(path.stem)
    match path.suffix:
        case names.LOG_SUFFIX:
            lines = _log_lines(path, base_offset)
        case names.OFFSET_INDEX_SUFFIX:
            lines = _offset_index_lines(path, base_offset)
        case names.TIME_INDEX_SUFFIX:
            lines = _time_index_lines(path, base_offset)
        case names.TRANSACTION_INDEX_SUFFIX:
            lines = _transaction_index_lines(path, base_offset)
        case _:
            lines = _snapshot_lines(path)
    # Bytes of a record may be ends of lines; what the tool prints was read in the same way.
    return "\n".join(lines).replace("\r\n", "\n").replace("\r", "\n").splitlines()


def _log_lines(path: Path, base_offset: int) -> Iterator[str]:
    yield f"Log starting offset: {base_offset}"
    offset, gaps = -1, []
    data = memoryview(path.read_bytes())
    reader = read_all_batches(data)
    for position, batch in reader:
        yield _batch_line(batch, position)
        for record in records_of(batch):
            if record.offset != offset + 1:
                gaps.append(f"gap: {offset} is followed by {record.offset}")
            offset = record.offset
            yield _record_line(batch, record)
    if reader.position < len(data):
        left = len(data) - reader.position
        yield f"Found {left} invalid bytes at the end of {path.name}"
    yield from gaps


def _batch_line(batch: Batch, position: int) -> str:
    stored: Batch | LegacyEntry = batch.legacy or batch
    if batch.legacy is not None:
        fields = [f"offset: {batch.legacy.offset}"]
        newest = batch.legacy.timestamp
    else:
        fields = [
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset}",
            f"count: {batch.record_count} baseSequence: {batch.base_sequence}",
            f"lastSequence: {batch.last_sequence} producerId: {batch.producer_id}",
            f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch}",
            f"isTransactional: {_java(batch.is_transactional)}",
            f"isControl: {_java(batch.is_control)}",
            f"deleteHorizonMs: {_optional(batch.delete_horizon_or_none)}",
        ]
        newest = batch.max_timestamp
    codec = Codec(stored.attributes & layout.CODEC_MASK).name.lower()
    fields += [
        f"position: {position} {_timestamp_type(batch)}: {newest} size: {batch.size}",
        f"magic: {stored.magic} compresscodec: {codec} crc: {stored.crc}",
        f"isvalid: {_java(_is_valid(batch))}",
    ]
    return " ".join(fields)


def _record_line(batch: Batch, record: Record) -> str:
    sizes = [-1 if each is None else len(each) for each in (record.key, record.value)]
    fields = [
        f"| offset: {record.offset} {_timestamp_type(batch)}: {record.timestamp}",
        f"keySize: {sizes[0]} valueSize: {sizes[1]}",
    ]
    if batch.legacy is None:
        sequence = sequence_after(batch.base_sequence, record.offset - batch.base_offset)
        header_keys = ",".join(name for name, _ in record.headers)
        fields.append(f"sequence: {sequence} headerKeys: [{header_keys}]")
    if batch.is_control:
        marker = read_end_transaction_marker(record.key, record.value)
        fields.append(f"endTxnMarker: {marker.type.name}")
        fields.append(f"coordinatorEpoch: {marker.coordinator_epoch}")
        return " ".join(fields)
    if record.key is not None:
        fields.append(f"key: {record.key.decode(errors='replace')}")
    if record.value is not None:
        fields.append(f"payload: {record.value.decode(errors='replace')}")
    return " ".join(fields)


def _offset_index_lines(path: Path, base_offset: int) -> Iterator[str]:
    size = path.stat().st_size
    index = open_offset_index(
        DiskFiles(), str(path), base_offset=Offset(base_offset), bytes_max=size
    )
    if not index.entries.count:
        yield "empty"
    for number in range(index.entries.count):
        relative, position = index.entries.entry(number)
        yield f"offset: {base_offset + relative} position: {position}"
    index.entries.close()


def _time_index_lines(path: Path, base_offset: int) -> Iterator[str]:
    size = path.stat().st_size
    index = open_time_index(DiskFiles(), str(path), base_offset=Offset(base_offset), bytes_max=size)
    for number in range(index.entries.count):
        timestamp, relative = index.entries.entry(number)
        if relative == 0 and number:
            break  # The tool takes it for one of the zeros behind the last entry.
        yield f"timestamp: {timestamp} offset: {base_offset + relative}"
    index.entries.close()


def _transaction_index_lines(path: Path, base_offset: int) -> Iterator[str]:
    index = open_transaction_index(
        DiskFiles(), str(path), base_offset=Offset(base_offset), read_only=True
    )
    for each in index.entries():
        yield (
            f"version: 0 producerId: {each.producer_id} firstOffset: {each.first_offset} "
            f"lastOffset: {each.last_offset} lastStableOffset: {each.last_stable_offset}"
        )
    index.close()


def _snapshot_lines(path: Path) -> Iterator[str]:
    for producer_id, known in read_snapshot(DiskFiles(), str(path)).items():
        start = known.transaction_start if known.has_open_transaction else None
        fields = [
            f"producerId: {producer_id} producerEpoch: {known.epoch}",
            f"coordinatorEpoch: {known.coordinator_epoch}",
            f"currentTxnFirstOffset: {_optional(start)} lastTimestamp: {known.timestamp}",
        ]
        fields += (
            f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
            f"lastOffset: {last.last_offset} offsetDelta: {last.offset_delta} "
            f"timestamp: {last.timestamp}"
            for last in known.batches
        )
        yield " ".join(fields)


def _is_valid(batch: Batch) -> bool:
    try:
        batch.check()
    except CorruptionError:
        return False
    return True


def _timestamp_type(batch: Batch) -> str:
    if batch.legacy is not None and not batch.legacy.magic:
        return "NoTimestampType"
    return "".join(part.capitalize() for part in batch.timestamp_type.name.split("_"))


def _java(flag: bool) -> str:  # noqa: FBT001
    return str(flag).lower()


def _optional(number: int | None) -> str:
    return "OptionalLong.empty" if number is None else f"OptionalLong[{number}]"
