"""Read records from damaged batches; no checksum proves that they are right.

    header | record | record | rec#rd | record
             written  written  the walk ends here

One checksum covers all records of a batch. Where it fails, each of them may hold the damage: a
record that can be walked has sizes that fit, and its key and value may be anything. So none of them
is sound, and none ever goes back into a log. What is written here is for people who would rather
have a doubtful record than none; every line says that it is unproven.

The walk begins after the header and ends at the first record that breaks a rule of the format or
whose offset does not rise. Offsets and timestamps are counted from those of the header, which may
be damaged too. Nothing is taken from compressed batches and from formats v0 and v1: a damaged
stream gives no bytes that anybody has written, and an older entry is one record under one checksum.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from tailrace.kernels.records import RecordFault, record_at
from tailrace.model import TimestampType, TopicPartition
from tailrace.offline.cat import readable
from tailrace.offline.show import ShownRecord, json_fields
from tailrace.offline.whole_file import whole_file
from tailrace.reading.directory import list_segments
from tailrace.records import layout
from tailrace.records.builder import Record, record_in
from tailrace.runtime.files import File, Files, read_exactly
from tailrace.storage.segment_walk import Damage, Fault, walk_segment
from tailrace.values import dataclass

FORMAT: Final = "tailrace.salvage/1"

_WINDOW_BYTES: Final = 1024 * 1024
# Longer records are not believed: a damaged size must not decide how much memory is taken.
_RECORD_BYTES_MAX: Final = 256 * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class Salvaged:
    """Counts of the records and ranges that a salvage has written."""

    records: int = 0
    ranges: int = 0
    """Damaged ranges of which at least one record was written."""
    silent_ranges: int = 0
    """Damaged ranges of which nothing could be read."""


def salvage_records(files: Files, partitions: dict[TopicPartition, str], *, to: str) -> Salvaged:
    """Write what can be walked of the damaged batches of these folders to a file of JSON lines.

    Raises:
        DirectoryError: a log file cannot be read.
        StorageError: the file cannot be written.
    """
    written = Salvaged()
    with whole_file(files, to) as output:
        for partition, folder in partitions.items():
            for path, damage, records in _damaged(files, folder):
                before = written.records
                for record, timestamp_type in records:
                    found = ShownRecord(partition, record, False, timestamp_type)  # noqa: FBT003
                    output.write(_line(found, path, damage))
                    written.records += 1
                written.ranges += written.records > before
                written.silent_ranges += written.records == before
    return written


def _damaged(
    files: Files, folder: str
) -> Iterator[tuple[str, Damage, Iterator[tuple[Record, TimestampType]]]]:
    """The damage in each log file of a folder, with what can be walked of it."""
    with readable(folder):
        segments, _ = list_segments(files, folder)
        for number, segment in enumerate(segments):
            following = segments[number + 1].base_offset if number + 1 < len(segments) else None
            with closing(files.open(segment.path, read_only=True)) as file:
                for found in walk_segment(
                    file,
                    segment.path,
                    base_offset=segment.base_offset,
                    size=segment.size,
                    following=following,
                ):
                    if isinstance(found, Damage) and found.fault is not Fault.PADDING:
                        yield segment.path, found, unproven_records(file, segment.path, found)


def unproven_records(
    file: File, path: str, damage: Damage
) -> Iterator[tuple[Record, TimestampType]]:
    """The records that can be walked from the start of a damaged range, none of them proven.

    Raises:
        OSError: the file cannot be read.
    """
    if damage.end - damage.position < layout.HEADER_SIZE:
        return
    data = read_exactly(file, path, position=damage.position, size=layout.HEADER_SIZE)
    header = layout.HEADER.unpack(data)
    base_offset, magic, attributes, base_timestamp = header[0], header[3], header[5], header[7]
    if magic != layout.MAGIC or attributes & (layout.CODEC_MASK | layout.CONTROL_FLAG):
        return
    is_append_time = bool(attributes & layout.LOG_APPEND_TIME_FLAG)
    timestamp_type = TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
    before = -1
    for data, frame in _frames(file, damage):
        # Offsets of records rise; one that does not is of damaged bytes, and so is what follows.
        if frame[2] <= before:
            return
        before = frame[2]
        record = record_in(data, frame, base_offset=base_offset, base_timestamp=base_timestamp)
        yield record._replace(timestamp=header[8]) if is_append_time else record, timestamp_type


def _frames(file: File, damage: Damage) -> Iterator[tuple[bytes, Sequence[int]]]:
    """Bytes, and where in them the fields of a record are, one record after the other."""
    position, limit = damage.position + layout.HEADER_SIZE, damage.end
    wanted = _WINDOW_BYTES
    while position < limit:
        data = file.read(position, min(wanted, limit - position))
        at, frame = 0, record_at(data, 0, len(data))
        while frame[0] > 0:
            yield data, frame
            at = frame[0]
            frame = record_at(data, at, len(data))
        is_last = position + len(data) >= limit or len(data) < wanted
        if is_last or -frame[0] != RecordFault.TRUNCATED or (not at and wanted > _RECORD_BYTES_MAX):
            return
        # A record larger than the window is read again with a larger one.
        wanted = _WINDOW_BYTES if at else 2 * wanted
        position += at


def _line(found: ShownRecord, path: str, damage: Damage) -> bytes:
    shown = {
        "format": FORMAT,
        "unproven": True,
        **json_fields(found, is_export=True),
        "file": path,
        "position": damage.position,
        "reason": damage.reason,
    }
    return f"{json.dumps(shown, ensure_ascii=False)}\n".encode()
