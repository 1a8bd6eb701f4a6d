"""Records as lines of text, JSON or hexadecimal digits, and pages of such lines.

    text   one line: partition, offset, time, key, value, headers
    json   one object on one line; bytes that are not UTF-8 become {"hex": "..."}
    hex    as text, with keys and values as hexadecimal digits

Records of `__consumer_offsets` and `__cluster_metadata` are shown decoded in text and JSON, where
their version is known.
Text never holds a control character of a record: a terminal would obey it.

A kernel chooses the records of a batch and writes their lines; what it leaves to its caller is
written here, one record at a time.

Invariant: both ways give the same bytes, and no line of a batch is given out before all of its
records were found sound.
"""

import json
import struct
from collections.abc import Generator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tailrace import kernels
from tailrace.kernels import RecordFault
from tailrace.kernels.showing import (
    ESCAPE_WIDTH,
    PRINTABLE_CODES,
    Cursor,
    Form,
    StopReason,
    show_records,
)
from tailrace.model import METADATA_TOPIC, OFFSETS_TOPIC, TimestampType, TopicPartition
from tailrace.offline.commits import decode_group_record
from tailrace.offline.metadata import decode_metadata_record
from tailrace.records.batch import Batch
from tailrace.records.builder import Record, records_of
from tailrace.records.checks import check_records
from tailrace.records.layout import CONTROL_FLAG, LOG_APPEND_TIME_FLAG
from tailrace.runtime.clock import iso_time

if TYPE_CHECKING:
    from tailrace.schemas.shown import ShownDecoder, ShownValue

Buffer: TypeAlias = Any
"""Bytes or integers, as kernels take them."""

PAGE_BYTES: Final = 1024 * 1024
"""Small enough to stay in a processor's cache on its way, large enough for a call of the system."""

_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_TYPES = {0: "abort", 1: "commit"}
_DECODED_TOPICS = frozenset({OFFSETS_TOPIC, METADATA_TOPIC})


class ShownRecord(NamedTuple):
    """A record and what its batch says of it."""

    partition: TopicPartition
    record: Record
    is_control: bool
    """A marker of a transaction, which no consumer sees."""
    timestamp_type: TimestampType = TimestampType.CREATE_TIME


class Page:
    """Collects the lines of chosen records, and gives them out a page at a time."""

    __slots__ = (
        "_cursors",
        "_decoder",
        "_form",
        "_made_for",
        "_out",
        "_parts",
        "_read",
        "_tables",
        "is_export",
    )

    def __init__(
        self,
        form: Form,
        *,
        records_max: int,
        is_export: bool = False,
        decoder: "ShownDecoder | None" = None,
    ) -> None:
        """Show at most `records_max` lines; an export has keys and values as they are stored.

        An export is in JSON, and says the type of each timestamp. With a `decoder` keys and values
        are what it makes of them.
        """
        assert form is Form.JSON or not is_export
        self._form = form
        self._decoder = decoder
        self.is_export = is_export
        self._out = bytearray(PAGE_BYTES)
        self._parts: list[bytes] = []
        # Bytes of log since the last page.
        self._read = 0
        self._cursors = kernels.int64s(len(Cursor))
        self._cursors[Cursor.LEFT] = records_max
        # Partition and timestamp type whose literals are in `_tables`.
        self._made_for: tuple[TopicPartition, TimestampType] | None = None
        self._tables: tuple[Buffer, Buffer, Buffer, Buffer] = (b"", b"", b"", b"")

    @property
    def has_enough(self) -> bool:
        """Whether there are as many records as there may be."""
        return self._cursors[Cursor.LEFT] <= 0

    def take(self) -> bytes:
        """The lines since the last page."""
        self._put_by()
        page = b"".join(self._parts)
        self._parts.clear()
        self._read = 0
        return page

    def add(
        self, partition: TopicPartition, batch: Batch, *, bounds: Buffer, key: bytes
    ) -> Generator[bytes, None, bool]:
        """Adds a batch, and gives out pages that are full; returns whether `bounds` end in it.

        Raises:
            CorruptRecordError: a record breaks a rule of the format; none of the batch is shown.
            CorruptCompressionError: the payload cannot be decompressed.
            UnsupportedCodecError: the attributes have codec 5, 6 or 7.
        """
        timestamp_type = batch.timestamp_type
        if (partition, timestamp_type) != self._made_for:
            self._made_for = partition, timestamp_type
            shown_type = timestamp_type if self.is_export else None
            literals = _literals(partition, self._form, timestamp_type=shown_type)
            self._tables = (*literals, *_characters(self._form))
        cursors = self._cursors
        cursors[Cursor.INDEX] = cursors[Cursor.POSITION] = 0
        start, left = cursors[Cursor.END], cursors[Cursor.LEFT]
        records = None
        while (halt := self._show(batch, bounds, key, partition=partition)) > StopReason.ENOUGH:
            if records is None:
                # Raises for any of the records, before the first of them is given out.
                check_records(batch)
                records = enumerate(records_of(batch), 1)
            # Lines of the kernel come first: what Python makes of the next record goes after them.
            self._put_by()
            if halt == StopReason.UNSHOWN:
                record = next(each for count, each in records if count == cursors[Cursor.INDEX])
                found = ShownRecord(partition, record, batch.is_control, timestamp_type)
                self._parts.append(self._line(found))
            elif halt == StopReason.FULL:
                yield self.take()
        if halt < 0:
            # None of a batch is shown if one of its records is damaged.
            cursors[Cursor.END], cursors[Cursor.LEFT] = start, left
            check_records(batch)
            raise AssertionError(f"showing said {RecordFault(-halt)!r}, the walk nothing")
        self._read += batch.size
        if self._read >= PAGE_BYTES:
            yield self.take()
        return halt == StopReason.ENOUGH

    def _show(self, batch: Batch, bounds: Buffer, key: bytes, *, partition: TopicPartition) -> int:
        attributes = batch.attributes
        is_known = self._decoder is not None or (
            not (self._form is Form.HEX or self.is_export)
            and (attributes & CONTROL_FLAG or partition.topic in _DECODED_TOPICS)
        )
        is_create_time = not attributes & LOG_APPEND_TIME_FLAG
        return show_records(
            batch.records_view(),
            batch.record_count,
            batch.base_offset,
            batch.base_timestamp if is_create_time else batch.max_timestamp,
            is_create_time,
            bounds,
            key,
            Form.NONE if is_known else self._form,
            *self._tables,
            self._cursors,
            self._out,
        )

    def _put_by(self) -> None:
        """Makes room for a whole page of lines."""
        end = self._cursors[Cursor.END]
        if end:
            self._parts.append(bytes(memoryview(self._out)[:end]))
            self._cursors[Cursor.END] = 0

    def _line(self, found: ShownRecord) -> bytes:
        match self._form:
            case Form.TEXT:
                line = to_text(found, decoder=self._decoder)
            case Form.HEX:
                line = to_hex(found)
            case _:
                line = to_json(found, is_export=self.is_export, decoder=self._decoder)
        return f"{line}\n".encode()


def to_json(
    found: ShownRecord, *, is_export: bool = False, decoder: "ShownDecoder | None" = None
) -> str:
    """One object on one line; the fields are those of `json_fields`."""
    return json.dumps(json_fields(found, is_export=is_export, decoder=decoder), ensure_ascii=False)


def json_fields(
    found: ShownRecord, *, is_export: bool = False, decoder: "ShownDecoder | None" = None
) -> dict[str, object]:
    """A record as JSON has it.

    For an export, with the type of the timestamp, and with key and value in any topic. With a
    `decoder`, a key or value that it cannot decode is as it is stored, and `keyError` or
    `valueError` says why.
    """
    record = found.record
    shown: dict[str, object] = {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    if is_export:
        shown["timestampType"] = int(found.timestamp_type)
    decoded = None if is_export else _decode(found)
    if decoded is not None:
        shown["decoded"] = decoded
    elif decoder is None:
        shown["key"], shown["value"] = _json_bytes(record.key), _json_bytes(record.value)
    else:
        for name, data, value in _decoded(record, decoder):
            shown[name] = _json_bytes(data) if value is None or value.fault else value.value
            if value is not None and value.fault:
                shown[f"{name}Error"] = value.fault
    shown["headers"] = [[name, _json_bytes(value)] for name, value in record.headers]
    return shown


def to_text(found: ShownRecord, *, decoder: "ShownDecoder | None" = None) -> str:
    """One line for people; keys and values as for `json_fields`."""
    record = found.record
    decoded = _decode(found)
    if decoded is not None:
        parts = [f"{name}={_plain(value)}" for name, value in decoded.items()]
    elif decoder is None:
        parts = [f"key={_text(record.key)}", f"value={_text(record.value)}"]
    else:
        parts = []
        for name, data, value in _decoded(record, decoder):
            is_shown = value is not None and not value.fault
            parts.append(f"{name}={_plain(value.value) if value and is_shown else _text(data)}")
            if value is not None and value.fault:
                parts.append(f"{name}Error={printable(value.fault)}")
    parts += [f"header {printable(name)}={_text(value)}" for name, value in record.headers]
    return " ".join([_place(found), *parts])


def to_hex(found: ShownRecord) -> str:
    """One line, with keys and values as they are stored."""
    record = found.record
    parts = [f"key={_hex(record.key)}", f"value={_hex(record.value)}"]
    parts += [f"header {printable(name)}={_hex(value)}" for name, value in record.headers]
    return " ".join([_place(found), *parts])


def _literals(
    partition: TopicPartition, form: Form, *, timestamp_type: TimestampType | None
) -> tuple[bytes, Buffer]:
    """The text between the fields of a line, and where each piece of it ends."""
    pieces = [f"{partition} offset ", " ", " key=", " value=", ""]
    pieces += [" header ", "=", "", "", "\n", "0x", ""]
    if form is Form.JSON:
        topic = json.dumps(partition.topic, ensure_ascii=False)
        start = f'{{"topic": {topic}, "partition": {partition.partition}, "offset": '
        pieces = [start, ', "timestamp": ', ', "key": ', ', "value": ', ', "headers": [']
        if timestamp_type is not None:
            pieces[2] = f', "timestampType": {int(timestamp_type)}{pieces[2]}'
        pieces += ["[", ", ", "]", ", ", "]}\n", '{"hex": "', '"}']
    encoded = [piece.encode() for piece in pieces]
    # The kernel writes a line as these pieces with fields between, without a format string.
    ends = kernels.int64s(len(encoded) + 1)
    for number, piece in enumerate(encoded):
        ends[number + 1] = ends[number] + len(piece)
    return b"".join(encoded), ends


@cache
def _characters(form: Form) -> tuple[bytes, bytes]:
    """The replacement of each byte of a text, and the characters that need none."""
    escapes = bytearray()
    for character in map(chr, range(128)):
        shown = printable(character)
        if form is Form.JSON:
            shown = json.dumps(character, ensure_ascii=False)[1:-1]
        entry = b"" if shown == character else bytes([len(shown)]) + shown.encode()
        escapes += entry.ljust(ESCAPE_WIDTH, b"\0")
    # The bytes of longer characters never mean themselves alone.
    escapes += b"\xff" * (128 * ESCAPE_WIDTH)
    return bytes(escapes), bytes(map(str.isprintable, map(chr, range(PRINTABLE_CODES))))


def _decode(found: ShownRecord) -> dict[str, object] | None:
    """The fields of a record in a format of Kafka's own, or None for anyone else's."""
    record = found.record
    if found.partition.topic == METADATA_TOPIC:
        fields = decode_metadata_record(record.key, record.value, is_control=found.is_control)
        if fields is not None:
            return fields
    if found.is_control:
        key = record.key or b""
        # A newer key may be longer; its type is not known here then.
        number = _CONTROL_KEY.unpack(key)[1] if len(key) == _CONTROL_KEY.size else -1
        return {"type": "control", "control": _CONTROL_TYPES.get(number, _hex(record.key))}
    if found.partition.topic == OFFSETS_TOPIC:
        return decode_group_record(record.key, record.value)
    return None


def _decoded(
    record: Record, decoder: "ShownDecoder"
) -> tuple[tuple[str, bytes | None, "ShownValue | None"], ...]:
    """Name, stored bytes and decoded value of key and value; None where it is not decoded."""
    return (
        ("key", record.key, decoder.key(record.key)),
        ("value", record.value, decoder.value(record.value)),
    )


def _place(found: ShownRecord) -> str:
    return f"{found.partition} offset {found.record.offset} {iso_time(found.record.timestamp)}"


def _json_bytes(data: bytes | None) -> str | dict[str, str] | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        return {"hex": data.hex()}


def _plain(value: object) -> str:
    return printable(value) if isinstance(value, str) else json.dumps(value)


def _text(data: bytes | None) -> str:
    try:
        return "null" if data is None else printable(data.decode())
    except UnicodeDecodeError:
        return _hex(data)


def _hex(data: bytes | None) -> str:
    return "null" if data is None else f"0x{data.hex()}"


def printable(text: str) -> str:
    """The text with control characters as escapes, for a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
