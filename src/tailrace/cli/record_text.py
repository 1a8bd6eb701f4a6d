r"""Records as text: what `consume` prints for a record, and what `produce` reads as one.

Output, as kcat's format strings show it: `%t [%p] at offset %o: key %k, value %s\n`.

    %s value    %S its bytes, -1 for null    %R the same, as a binary int32 in network order
    %k key      %K its bytes, -1 for null    %h headers, name=value with commas between
    %t topic    %p partition                 %o offset
    %T timestamp, in milliseconds since 1970          %% a percent sign

Keys, values and headers are written byte for byte. For a terminal, which obeys control characters,
they are escaped, and shown as hexadecimal digits where they are no text. A decoded value is JSON,
except that a text is that text; %S and %K stay the sizes of the bytes.

Input, keys and values with separators between, or JSON objects:

    plain   VALUE, or KEY SEPARATOR VALUE where a separator is given; a line without it is a value
    json    {"key": "k", "value": {"hex": "ff00"}, "headers": [["h", "v"]], "timestamp": 1700000000}

The objects are those that `tailrace consume --json` and `tailrace log cat --format json` print. All
fields may be missing; `topic` and `offset` are ignored, and so is `partition` unless it is to be
kept. Every record that a broker can store is read as it was printed.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from tailrace.errors import FatalError, kind_of
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

CHUNK_BYTES = 64 * 1024

JSON_GROWTH: Final = 6
"""Most characters of JSON for a byte of a record: control characters are written as \\u0001."""

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
    r"""The bytes of a text with \n, \r, \t, \0, \\ and \xHH; others are those that were typed.

    Raises:
        FormatError: another letter follows a backslash.
    """
    done, position = bytearray(), 0
    for found in _ESCAPE.finditer(text):
        done += typed(text[position : found.start()])
        letter = found[1]
        if letter[:1] == "x" and len(letter) == 3:
            done.append(int(letter[1:], 16))
        elif letter in _ESCAPES:
            done += _ESCAPES[letter]
        else:
            raise FormatError(rf"{found[0]!r} is not an escape; use \n, \r, \t, \0, \\ or \xHH")
        position = found.end()
    return bytes(done + typed(text[position:]))


def typed(text: str) -> bytes:
    """The bytes of an argument, also where they are no UTF-8 (`os.fsdecode`)."""
    return text.encode(errors="surrogateescape")


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
    # Null is written as nothing, as kcat does without -Z.
    return data or b""


def _printable(data: bytes | None) -> bytes:
    if data is None:
        return b""
    try:
        return printable(data.decode()).encode()
    except UnicodeDecodeError:
        return b"0x" + data.hex().encode()


# -- records from lines ----------------------------------------------------------------------


class InputError(FatalError, ValueError):
    """A line that cannot be made into a record."""

    def __init__(self, number: int, rule: str) -> None:
        self.number = number
        """The line, counted from 1 over all inputs."""
        super().__init__(f"line {number}: {rule}")


class InputRecord(NamedTuple):
    """A record to be sent."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    """Milliseconds since 1970, -1 for no time; None for the time of sending."""
    partition: int | None = None
    """The partition that the line names, if it is asked for."""


def read_lines(stream: BinaryIO, delimiter: bytes, *, size_max: int) -> Iterator[bytes]:
    """The pieces of a stream between delimiters, each as soon as it is whole.

    What follows the last delimiter is a line too, unless it is empty.

    Raises:
        FatalError: a line has more than `size_max` bytes; no more than twice that is held.
    """
    rest = bytearray()
    while True:
        # `read` waits for a whole chunk, and lines that are typed or come from `tail -f` would wait
        # too.
        chunk = stream.read1(CHUNK_BYTES) if hasattr(stream, "read1") else stream.read(CHUNK_BYTES)
        if not chunk:
            break
        # A delimiter may have begun at the end of what was there before.
        start = max(len(rest) - len(delimiter) + 1, 0)
        rest += chunk
        if rest.find(delimiter, start) >= 0:
            *lines, last = bytes(rest).split(delimiter)
            yield from lines
            rest = bytearray(last)
        if len(rest) > size_max:
            raise FatalError(
                f"a line has more than {size_max} bytes, which is more than a record may have; "
                "check --delimiter, or raise --option max.request.size"
            )
    if rest:
        yield bytes(rest)


def plain_record(line: bytes, separator: bytes | None) -> InputRecord:
    """The record of a plain line."""
    if separator:
        key, found, value = line.partition(separator)
        if found:
            return InputRecord(key, value)
    return InputRecord(None, line)


def json_record(line: bytes, number: int, *, keeps_partition: bool = False) -> InputRecord:
    """The record of a line with a JSON object; with its partition, if that is to be kept.

    Raises:
        InputError: the line is not such an object.
    """
    try:
        given = json.loads(line)
    # json.loads raises RecursionError for a line that is nested deeply.
    except (ValueError, RecursionError) as error:
        raise InputError(number, f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise InputError(number, f"expected a JSON object, found {kind_of(given)}")
    timestamp = given.get("timestamp")
    # Any integer: brokers store -1 and times before 1970, and what was printed can be sent again.
    # Not `isinstance`, for which true is the integer 1.
    if timestamp is not None and type(timestamp) is not int:
        raise InputError(number, "timestamp is not an integer; give milliseconds since 1970")
    partition = given.get("partition") if keeps_partition else None
    if keeps_partition and (type(partition) is not int or partition < 0):
        raise InputError(
            number, "--keep-partitions needs a partition number in the field partition"
        )
    headers = given.get("headers") or ()
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list | tuple) or not all(map(_is_header, pairs)):
        raise InputError(number, 'headers is not a list of pairs; give [["name", "value"]]')
    return InputRecord(
        key=_content(given.get("key"), number, field="key"),
        value=_content(given.get("value"), number, field="value"),
        headers=tuple((name, _content(value, number, field="header")) for name, value in pairs),
        timestamp=timestamp,
        partition=partition,
    )


def _is_header(pair: object) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)


def _content(given: object, number: int, *, field: str) -> bytes | None:
    match given:
        case None:
            return None
        case str():
            try:
                return given.encode()
            # JSON can say half of a surrogate pair, which UTF-8 has no bytes for.
            except UnicodeEncodeError as error:
                raise InputError(number, f"{field} is not valid Unicode: {error.reason}") from error
        # With other fields it is an object of the user's, which has to be quoted to be a value.
        case {"hex": str(digits), **rest} if not rest:
            try:
                return bytes.fromhex(digits)
            except ValueError as error:
                raise InputError(
                    number, f"{field}: {digits!r} is not hexadecimal; give two digits for each byte"
                ) from error
        case _:
            raise InputError(
                number, f'{field} is {kind_of(given)}; give a string, null or {{"hex": "ff00"}}'
            )
