"""The records of a partition, chosen by offset, time and key, and their three ways to be shown.

    text   one line: partition, offset, time, key, value, headers
    json   one object on one line; bytes that are not UTF-8 become {"hex": "..."}
    hex    as text, with keys and values as hexadecimal digits

Records of `__consumer_offsets` are shown decoded in text and JSON, where their version is known.
Text never holds a control character of a record: a terminal would obey it.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from tailrace.config.settings import INT64_MAX
from tailrace.errors import CorruptionError, DirectoryError
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.offline.directory import (
    DataDirectory,
    list_segments,
    log_start_offsets,
    unreadable,
)
from tailrace.offline.groups import decode_group_record
from tailrace.offline.undecided import AbortedRecords, find_aborted, first_unstable_offset
from tailrace.offline.walk import (
    newest_timestamp,
    offset_before_time,
    position_near,
    walk_batches,
)
from tailrace.records.batch import Batch
from tailrace.records.builder import Record, records_of
from tailrace.runtime.files import Files
from tailrace.storage.names import parse_partition_directory_name
from tailrace.storage.reader import SegmentFiles

OFFSETS_TOPIC = "__consumer_offsets"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_TYPES = {0: "abort", 1: "commit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which records; every bound that is not None must hold."""

    from_offset: int | None = None
    to_offset: int | None = None
    """The first offset that is not wanted."""
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    """Where to stop: the first record as young as this, and what is behind it, is not wanted."""
    key: bytes | None = None
    limit: int | None = None
    """At most so many records."""
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    """READ_COMMITTED leaves out aborted records, markers, and all from the first open transaction
    on."""


class Found(NamedTuple):
    """A record and what its batch says of it."""

    partition: TopicPartition
    record: Record
    is_control: bool
    """A marker of a transaction, which no consumer sees."""


def choose_partitions(
    directory: DataDirectory, topic: str, partition: int | None
) -> dict[TopicPartition, str]:
    """The folders that `flights-3`, `flights` with 3, or `flights` alone (all of them) name.

    Raises:
        DirectoryError: there is none; the message names the topics there are.
    """
    named = parse_partition_directory_name(topic)
    if partition is None and named in directory.partitions:
        assert named is not None
        return {named: directory.partitions[named]}
    found = {
        each: folder
        for each, folder in directory.partitions.items()
        if each.topic == topic and partition in (None, each.partition)
    }
    if not found:
        wanted = topic if partition is None else TopicPartition(topic, partition)
        topics = sorted({each.topic for each in directory.partitions})
        known = ", ".join(topics[:10]) + (" and more" if len(topics) > 10 else "")
        raise DirectoryError(f"{directory.path} has no {wanted}; its topics: {known or 'none'}")
    return found


def find_records(
    files: Files, partitions: dict[TopicPartition, str], choice: Choice
) -> Iterator[Found]:
    """The records in the order of partitions and offsets.

    Raises:
        CorruptionError: a batch that holds wanted offsets is damaged; what came before is good.
        DirectoryError: a file cannot be read.
    """
    found = (
        each
        for partition, folder in partitions.items()
        for each in _records_in(files, partition, folder, choice=choice)
    )
    return islice(found, choice.limit)


def _records_in(
    files: Files, partition: TopicPartition, folder: str, *, choice: Choice
) -> Iterator[Found]:
    try:
        segments, _ = list_segments(files, folder)
        root = folder.rstrip("/").rpartition("/")[0] or "."
        start = max(choice.from_offset or 0, log_start_offsets(files, root).get(partition, 0))
        limit = INT64_MAX if choice.to_offset is None else choice.to_offset
        is_committed = choice.isolation is IsolationLevel.READ_COMMITTED
        aborted = AbortedRecords([])
        if is_committed:
            unstable = first_unstable_offset(files, folder, segments)
            limit = limit if unstable is None else min(limit, unstable)
            aborted = find_aborted(files, segments, start)
        batches = _batches(files, segments, start, limit=limit, from_time_ms=choice.from_time_ms)
        for batch in batches:
            if choice.from_time_ms is not None and batch.max_timestamp < choice.from_time_ms:
                continue
            is_hidden = is_committed and (batch.is_control or aborted.has(batch))
            for record in records_of(batch):
                if not start <= record.offset < limit:
                    continue
                is_late = choice.to_time_ms is not None and record.timestamp >= choice.to_time_ms
                if is_late and not batch.is_control:
                    return
                if not is_hidden and _is_wanted(record, batch, choice):
                    yield Found(partition, record, batch.is_control)
    except OSError as error:
        raise unreadable(error.filename or folder, error) from error


def _batches(
    files: Files,
    segments: list[SegmentFiles],
    start: int,
    *,
    limit: int,
    from_time_ms: int | None,
) -> Iterator[Batch]:
    """The checked batches with offsets from `start` to below `limit`, by the indexes.

    Batches before the first that can be young enough are stepped over.
    """
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if following is not None and following <= start:
            continue
        if segment.base_offset >= limit:
            return
        first = start
        if from_time_ms is not None:
            newest = newest_timestamp(files, segment)
            if following is not None and newest is not None and newest < from_time_ms:
                continue
            first = max(start, offset_before_time(files, segment, from_time_ms))
        for position, batch in _in_order(files, segment, first, following=following):
            if batch.base_offset >= limit:
                return
            if batch.last_offset < first:
                continue
            try:
                batch.check()
            except CorruptionError as error:
                raise error.located(path=segment.path, position=position) from error
            yield batch


def _in_order(
    files: Files, segment: SegmentFiles, offset: int, *, following: int | None
) -> Iterator[tuple[int, Batch]]:
    """Position and batch from near `offset` on; each fits between its neighbours.

    No checksum covers a batch's base offset, so it is held against what stands around it.
    """
    file = files.open(segment.path, read_only=True)
    try:
        position = end = position_near(files, segment, file, offset=offset)
        held = None
        for position, batch in walk_batches(file, segment.path, start=end, limit=segment.size):
            if held is not None:
                _check_order(segment, *held, limit=batch.base_offset)
                yield held
            held = position, batch
            end = position + batch.size
    finally:
        file.close()
    if following is not None and end < segment.size:
        raise CorruptionError("a batch is not whole", path=segment.path, position=end)
    if held is not None:
        _check_order(segment, *held, limit=INT64_MAX if following is None else following)
        yield held


def _check_order(segment: SegmentFiles, position: int, batch: Batch, *, limit: int) -> None:
    if not segment.base_offset <= batch.base_offset <= batch.last_offset < limit:
        raise CorruptionError(
            f"offsets {batch.base_offset} to {batch.last_offset} where those from "
            f"{segment.base_offset} to below {limit} may stand",
            path=segment.path,
            position=position,
        )


def _is_wanted(record: Record, batch: Batch, choice: Choice) -> bool:
    if choice.from_time_ms is not None and record.timestamp < choice.from_time_ms:
        return False
    return choice.key is None or (record.key == choice.key and not batch.is_control)


def to_json(found: Found) -> str:
    """One object on one line."""
    record = found.record
    shown: dict[str, object] = {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    decoded = _decode(found)
    if decoded is None:
        shown["key"], shown["value"] = _json_bytes(record.key), _json_bytes(record.value)
    else:
        shown["decoded"] = decoded
    shown["headers"] = [[name, _json_bytes(value)] for name, value in record.headers]
    return json.dumps(shown, ensure_ascii=False)


def to_text(found: Found) -> str:
    """One line for people."""
    record = found.record
    decoded = _decode(found)
    if decoded is None:
        parts = [f"key={_text(record.key)}", f"value={_text(record.value)}"]
    else:
        parts = [f"{name}={_plain(value)}" for name, value in decoded.items()]
    parts += [f"header {_printable(name)}={_text(value)}" for name, value in record.headers]
    return " ".join([_place(found), *parts])


def to_hex(found: Found) -> str:
    """One line, with keys and values as they are stored."""
    record = found.record
    parts = [f"key={_hex(record.key)}", f"value={_hex(record.value)}"]
    parts += [f"header {_printable(name)}={_hex(value)}" for name, value in record.headers]
    return " ".join([_place(found), *parts])


def iso_time(timestamp_ms: int) -> str:
    """UTC with milliseconds; the bare number where no calendar reaches, and - for none."""
    if timestamp_ms < 0:
        return "-"
    try:
        time = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Milliseconds since 1970 from digits or from ISO 8601; UTC where it names no zone.

    Raises:
        ValueError: neither of the two.
    """
    if text.isascii() and text.isdigit() and len(text) > 8:
        return int(text)
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _decode(found: Found) -> dict[str, object] | None:
    """The fields of a record in a format of Kafka's own, or None for anyone else's."""
    record = found.record
    if found.is_control:
        key = record.key or b""
        number = _CONTROL_KEY.unpack(key)[1] if len(key) == _CONTROL_KEY.size else -1
        return {"type": "control", "control": _CONTROL_TYPES.get(number, _hex(record.key))}
    if found.partition.topic == OFFSETS_TOPIC:
        return decode_group_record(record.key, record.value)
    return None


def _place(found: Found) -> str:
    return f"{found.partition} offset {found.record.offset} {iso_time(found.record.timestamp)}"


def _json_bytes(data: bytes | None) -> str | dict[str, str] | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        return {"hex": data.hex()}


def _plain(value: object) -> str:
    return _printable(value) if isinstance(value, str) else json.dumps(value)


def _text(data: bytes | None) -> str:
    try:
        return "null" if data is None else _printable(data.decode())
    except UnicodeDecodeError:
        return _hex(data)


def _hex(data: bytes | None) -> str:
    return "null" if data is None else f"0x{data.hex()}"


def _printable(text: str) -> str:
    """The text with control characters as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
