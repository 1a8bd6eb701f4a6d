"""A decoder and an encoder of records that are obviously right, and slow.

They follow the drawings in docs/formats word by word and share no code with the
product, which is tested against them.
"""

from io import BytesIO
from typing import NamedTuple
from zlib import crc32


class Malformed(Exception):  # noqa: N818 (a word of the tests, not an error of the product)
    """The payload breaks a rule of the format; `index` says at which record."""

    def __init__(self, rule: str, index: int = -1) -> None:
        self.rule = rule
        self.index = index
        super().__init__(f"record {index}: {rule}")


class NaiveRecord(NamedTuple):
    """A record with its deltas as they stand in the payload."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def read_varint(stream: BytesIO, *, bits: int) -> int:
    """A zigzag varint of 32 or 64 bits; bits beyond are dropped, as Java's shifts drop them."""
    number = 0
    for place in range(5 if bits == 32 else 10):
        byte = stream.read(1)
        if not byte:
            raise Malformed("TRUNCATED")
        number |= (byte[0] & 127) << (7 * place)
        if byte[0] < 128:
            number %= 1 << bits
            half = number >> 1
            return -half - 1 if number % 2 else half
    raise Malformed("OVERLONG_VARINT")


def read_bytes(stream: BytesIO, size: int, rule: str) -> bytes:
    """Exactly `size` bytes."""
    content = stream.read(size)
    if len(content) != size:
        raise Malformed(rule)
    return content


def read_sized(stream: BytesIO, rule: str) -> bytes | None:
    """A size and that many bytes, or None for a size of -1."""
    size = read_varint(stream, bits=32)
    if size < -1:
        raise Malformed(rule)
    return None if size == -1 else read_bytes(stream, size, rule)


def read_headers(stream: BytesIO, remaining: int) -> tuple[tuple[bytes, bytes | None], ...]:
    """The header count and the headers."""
    start = stream.tell()
    count = read_varint(stream, bits=32)
    remaining -= stream.tell() - start
    if not 0 <= count <= remaining // 2:
        raise Malformed("HEADER_COUNT")
    headers = []
    for _ in range(count):
        size = read_varint(stream, bits=32)
        if size < 0:
            raise Malformed("NULL_HEADER_KEY")
        key = read_bytes(stream, size, "HEADER_LENGTH")
        headers.append((key, read_sized(stream, "HEADER_LENGTH")))
    return tuple(headers)


def read_record(stream: BytesIO) -> NaiveRecord:
    """The record at the stream's place."""
    length = read_varint(stream, bits=32)
    if length < 6:
        raise Malformed("RECORD_LENGTH")
    body = BytesIO(read_bytes(stream, length, "TRUNCATED"))
    body.read(1)
    timestamp_delta = read_varint(body, bits=64)
    offset_delta = read_varint(body, bits=32)
    if offset_delta < 0:
        raise Malformed("OFFSET_DELTA")
    key = read_sized(body, "KEY_LENGTH")
    value = read_sized(body, "VALUE_LENGTH")
    headers = read_headers(body, length - body.tell())
    if body.read(1):
        raise Malformed("NOT_CONSUMED")
    return NaiveRecord(timestamp_delta, offset_delta, key, value, headers)


def read_records(payload: bytes, count: int) -> list[NaiveRecord]:
    """All records of a payload.

    Raises:
        Malformed: with the name of the fault and the index of the bad record.
    """
    if not 0 <= count <= len(payload) // 7:
        raise Malformed("RECORD_COUNT", 0)
    stream = BytesIO(payload)
    records: list[NaiveRecord] = []
    for index in range(count):
        try:
            records.append(read_record(stream))
        except Malformed as error:
            raise Malformed(error.rule, index) from error
    if stream.tell() != len(payload):
        raise Malformed("LEFTOVER", count)
    return records


def varint(number: int, *, bits: int = 64) -> bytes:
    """`number` as a zigzag varint."""
    rest = ((number << 1) ^ (number >> 63)) % 2**bits
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest % 128 + 128)
        rest //= 128
    return bytes((*encoded, rest))


def sized(content: bytes | None) -> bytes:
    """Size and content; -1 for None."""
    return varint(-1) if content is None else varint(len(content)) + content


def write_record(record: NaiveRecord) -> bytes:
    """The bytes of a record."""
    body = b"\x00" + varint(record.timestamp_delta) + varint(record.offset_delta)
    body += sized(record.key) + sized(record.value) + varint(len(record.headers))
    for key, value in record.headers:
        body += sized(key) + sized(value)
    return varint(len(body)) + body


def write_records(records: list[NaiveRecord]) -> bytes:
    """The bytes of records, one after the other."""
    return b"".join(map(write_record, records))


def wrapped(number: int) -> int:
    """`number` as int64 arithmetic would have it."""
    return (number + 2**63) % 2**64 - 2**63


class LegacyMessage(NamedTuple):
    """A message of format v0 or v1 as it is written: nothing is made up, nothing is checked."""

    magic: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = -1
    attributes: int = 0


def write_legacy(message: LegacyMessage) -> bytes:
    """The entry, by the drawing in docs/formats/legacy-messages.md."""
    body = bytes([message.magic, message.attributes])
    if message.magic == 1:
        body += message.timestamp.to_bytes(8, "big", signed=True)
    for content in (message.key, message.value):
        body += b"\xff\xff\xff\xff" if content is None else len(content).to_bytes(4, "big")
        body += content or b""
    checked = crc32(body).to_bytes(4, "big") + body
    offset = message.offset.to_bytes(8, "big", signed=True)
    return offset + len(checked).to_bytes(4, "big") + checked


def write_all_legacy(messages: list[LegacyMessage]) -> bytes:
    """The entries, one after the other."""
    return b"".join(map(write_legacy, messages))
