"""Records from lines: keys and values with separators between, or JSON objects.

    plain   VALUE, or KEY SEPARATOR VALUE where a separator is given; a line without it is a value
    json    {"key": "k", "value": {"hex": "ff00"}, "headers": [["h", "v"]], "timestamp": 1700000000}

The objects are those that `tailrace consume --json` and `tailrace log cat --format json` print. All
fields may be missing; `topic` and `offset` are passed over, and so is `partition` unless it is to
be kept. Every record that a broker can store is read as it was printed.
"""

import json
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from tailrace.errors import FatalError, kind_of

CHUNK_BYTES = 64 * 1024

JSON_GROWTH: Final = 6
"""Most characters of JSON for a byte of a record: control characters are written as \\u0001."""


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
    except (ValueError, RecursionError) as error:
        raise InputError(number, f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise InputError(number, f"expected a JSON object, found {kind_of(given)}")
    timestamp = given.get("timestamp")
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
            except UnicodeEncodeError as error:
                raise InputError(number, f"{field} is not valid Unicode: {error.reason}") from error
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
