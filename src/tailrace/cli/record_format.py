r"""Records as kcat's format strings show them: `%t [%p] at offset %o: key %k, value %s\n`.

    %s value    %S its bytes, -1 for null    %R the same, as a binary int32 in network order
    %k key      %K its bytes, -1 for null    %h headers, name=value with commas between
    %t topic    %p partition                 %o offset
    %T timestamp, in milliseconds since 1970          %% a percent sign

Keys, values and headers are written byte for byte. For a terminal, which obeys control characters,
they are escaped, and shown as hexadecimal digits where they are no text.

A decoded value is JSON, except that a text is that text; %S and %K stay the sizes of the bytes.
"""

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.offline.show import printable
from tailrace.records.builder import Record

if TYPE_CHECKING:
    from tailrace.schemas.shown import ShownDecoder, ShownValue

VALUE_LINE = r"%s\n"
"""The default: values, one on a line."""

_TOKEN: Final = re.compile(r"%(.?)|([^%]+)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}

Shower = Callable[[TopicPartition, Record], bytes]


class FormatError(FatalError, ValueError):
    """A format string, or a delimiter, that cannot be read."""


def parse_format(text: str, *, for_terminal: bool, decoder: "ShownDecoder | None" = None) -> Shower:
    """A function that writes records in this format; `decoder` decodes keys and values.

    Raises:
        FormatError: a letter after % or a backslash means nothing.
    """
    parts: list[Shower] = []
    shown = _printable if for_terminal else _raw
    for found in _TOKEN.finditer(text):
        letter, literal = found.groups()
        parts.append(
            _literal(unescape(literal)) if letter is None else _field(letter, shown, decoder)
        )

    def show(partition: TopicPartition, record: Record) -> bytes:
        return b"".join(part(partition, record) for part in parts)

    return show


def unescape(text: str) -> bytes:
    r"""The bytes of a text with \n, \r, \t, \0, \\ and \xHH.

    Raises:
        FormatError: another letter follows a backslash.
    """
    done, position = bytearray(), 0
    for found in _ESCAPE.finditer(text):
        done += text[position : found.start()].encode()
        letter = found[1]
        if letter[:1] == "x" and len(letter) == 3:
            done.append(int(letter[1:], 16))
        elif letter in _ESCAPES:
            done += _ESCAPES[letter]
        else:
            raise FormatError(rf"{found[0]!r} is not an escape; use \n, \r, \t, \0, \\ or \xHH")
        position = found.end()
    return bytes(done + text[position:].encode())


def _field(
    letter: str, shown: Callable[[bytes | None], bytes], decoder: "ShownDecoder | None"
) -> Shower:
    match letter:
        case "s" if decoder is not None:
            return lambda _, record: shown(_text(record.value, decoder.value(record.value)))
        case "k" if decoder is not None:
            return lambda _, record: shown(_text(record.key, decoder.key(record.key)))
        case "s":
            return lambda _, record: shown(record.value)
        case "S":
            return lambda _, record: b"%d" % _size(record.value)
        case "R":
            return lambda _, record: _size(record.value).to_bytes(4, "big", signed=True)
        case "k":
            return lambda _, record: shown(record.key)
        case "K":
            return lambda _, record: b"%d" % _size(record.key)
        case "T":
            return lambda _, record: b"%d" % record.timestamp
        case "h":
            return lambda _, record: b",".join(
                shown(name.encode()) + b"=" + shown(value) for name, value in record.headers
            )
        case "t":
            return lambda partition, _: partition.topic.encode()
        case "p":
            return lambda partition, _: b"%d" % partition.partition
        case "o":
            return lambda _, record: b"%d" % record.offset
        case "%":
            return _literal(b"%")
        case _:
            raise FormatError(
                f"%{letter} is not a format token; use %s %S %R %k %K %h %T %t %p %o, or %% for %"
            )


def _literal(text: bytes) -> Shower:
    return lambda _partition, _record: text


def _text(data: bytes | None, decoded: "ShownValue | None") -> bytes | None:
    """A decoded key or value; as it is stored if it could not be decoded."""
    if decoded is None or decoded.fault or data is None:
        return data
    value = decoded.value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode()


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _raw(data: bytes | None) -> bytes:
    return data or b""


def _printable(data: bytes | None) -> bytes:
    if data is None:
        return b""
    try:
        return printable(data.decode()).encode()
    except UnicodeDecodeError:
        return b"0x" + data.hex().encode()
