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

from tailrace.errors import DirectoryError
from tailrace.model import TopicPartition
from tailrace.offline.directory import DataDirectory, unreadable
from tailrace.offline.groups import decode_group_record
from tailrace.records.batch import Batch
from tailrace.records.builder import Record, records_of
from tailrace.runtime.files import Files
from tailrace.storage.names import parse_partition_directory_name
from tailrace.storage.reader import open_log_reader

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
    """The first time that is not wanted."""
    key: bytes | None = None
    limit: int | None = None
    """At most so many records."""


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
        reader = open_log_reader(files, folder)
        start, end = reader.start_offset, reader.end_offset
        first = start if choice.from_offset is None else min(max(choice.from_offset, start), end)
        limit = end if choice.to_offset is None else min(max(choice.to_offset, first), end)
        for batch in reader.batches(first, limit):
            if choice.from_time_ms is not None and batch.max_timestamp < choice.from_time_ms:
                continue
            for record in records_of(batch):
                if first <= record.offset < limit and _is_wanted(record, batch, choice):
                    yield Found(partition, record, batch.is_control)
    except OSError as error:
        raise unreadable(error.filename or folder, error) from error


def _is_wanted(record: Record, batch: Batch, choice: Choice) -> bool:
    if choice.from_time_ms is not None and record.timestamp < choice.from_time_ms:
        return False
    if choice.to_time_ms is not None and record.timestamp >= choice.to_time_ms:
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
