# cython: boundscheck=False
"""The kernel that writes records as lines of text, JSON or hexadecimal digits.

The input is a payload of v2 records as drawn in `tailrace.kernels.records`. A line is made of
literals, which the caller gives, and of the fields between them:

    literal 0, offset, 1, time, 2, key, 3, value, 4, headers, 9
    headers:  literal 5, name, 6, value, 7; between two of them literal 8

A key or value that is not UTF-8 is written as hexadecimal digits between literals 10 and 11. The
kernel leaves a record to its caller if a header name is not UTF-8 or, in text, if a character
outside of ASCII is not in `printable`.

No index is checked: a record lies where `read_record` has found it, and is only written if `out`
has room for the longest line that it can become.

Invariant: nothing outside of `data` is read and nothing beyond the end of `out` is written,
whatever the bytes are.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import cython

from tailrace.kernels.records import RecordFault

if not cython.compiled:
    from tailrace.kernels.memory import address, copy_bytes, is_equal, output_address
    from tailrace.kernels.records import can_hold, read_record, read_varint, wrapping_sum
    from tailrace.kernels.utf8 import read_utf8

if TYPE_CHECKING:
    from tailrace.kernels.memory import Ints, Outputs
    from tailrace.kernels.records import Frame


class Form(IntEnum):
    """Output formats of records."""

    NONE = 0
    """The kernel writes nothing: it leaves each chosen record to the caller."""
    TEXT = 1
    JSON = 2
    HEX = 3


class StopReason(IntEnum):
    """Reasons for which `show_records` returns."""

    WALKED = 0
    """No record is left."""
    ENOUGH = 1
    """No later record is wanted: the next one is too young, or there were enough."""
    FULL = 2
    """The next record may not fit into `out`."""
    UNSHOWN = 3
    """The record before the cursors is chosen and not written: the caller has to show it."""


class BoundIndex(IntEnum):
    """Places in the `bounds` of `show_records`."""

    START_OFFSET = 0
    LIMIT_OFFSET = 1
    """The first offset that is not wanted."""
    EARLIEST = 2
    """Records with an earlier timestamp (ms) are skipped."""
    LATEST = 3
    """The call ends at the first record with this timestamp (ms) or a later one; 2^63 - 1 is no
    bound."""
    KEYS = 4
    """`ANY_KEY`, `THIS_KEY` for the records with the given key, or `NO_RECORD` for none at all."""


class Cursor(IntEnum):
    """Places in the `cursors` of `show_records`."""

    INDEX = 0
    """Records of the payload that are done."""
    POSITION = 1
    """Position of the next record."""
    END = 2
    """Bytes written to `out`."""
    LEFT = 3
    """Records that may still be chosen."""


ANY_KEY: Final = 0
THIS_KEY: Final = 1
NO_RECORD: Final = 2

ESCAPE_WIDTH: Final = 8
"""Bytes for each byte value in `escapes`: the size of its escape, and the escape. Size 0 means that
the byte is written as it is."""

PRINTABLE_CODES: Final = 1 << 16
"""Size of `printable`; the caller shows records with characters beyond it."""

TIMESTAMP_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999; younger timestamps are shown as numbers."""

_GROWTH_MAX: Final = 8
"""Most bytes of a line for each byte of its record, without the literals: JSON takes six for a
control character, and twelve for the two bytes of an empty header."""
_ROOM_MIN: Final = 64
"""Room for the offset and the time of a record."""

_THIS_KEY: Final = THIS_KEY
_NO_RECORD: Final = NO_RECORD
_ESCAPE_WIDTH: Final = ESCAPE_WIDTH
_PRINTABLE_CODES: Final = PRINTABLE_CODES
_TIMESTAMP_MAX: Final = TIMESTAMP_MAX
_NONE: Final = int(Form.NONE)
_JSON: Final = int(Form.JSON)
_HEX: Final = int(Form.HEX)
_ENOUGH: Final = int(StopReason.ENOUGH)
_FULL: Final = int(StopReason.FULL)
_UNSHOWN: Final = int(StopReason.UNSHOWN)
_RECORD_COUNT: Final = int(RecordFault.RECORD_COUNT)
_NO_ROOM: Final = int(RecordFault.NO_ROOM)
_BOUNDS: Final = len(BoundIndex)
_CURSORS: Final = len(Cursor)
_LITERALS: Final = 12
_PLAIN_BLOCK: Final = 32
"""Bytes that `is_plain` looks at, in a few instructions."""
_LEFTOVER: Final = int(RecordFault.LEFTOVER)
_INT64_MAX: Final = (1 << 63) - 1
_DAY_MS: Final = 86_400_000


def put_literal(
    literals: "Ints", literal_ends: "Ints", number: int, out: "Outputs", end: int
) -> int:
    """Writes a literal; returns the end of `out`."""
    start = literal_ends[number]
    size = literal_ends[number + 1] - start
    copy_bytes(literals, start, out, end, size)
    return end + size


def put_digits(out: "Outputs", end: int, number: int, width: int) -> int:
    """Writes the last `width` digits of a number of 0 or more; returns the end of `out`."""
    for place in range(end + width - 1, end - 1, -1):
        following = number // 10
        out[place] = 48 + number - following * 10
        number = following
    return end + width


def put_number(out: "Outputs", end: int, number: int) -> int:
    """Writes a 64-bit number; returns the end of `out`."""
    rest = number // 10
    last = number - rest * 10
    if number < 0:
        out[end] = 45
        end += 1
        rest = number // -10
        last = rest * -10 - number
    width = 0
    probe = rest
    while probe > 0:
        probe //= 10
        width += 1
    end = put_digits(out, end, rest, width)
    out[end] = 48 + last
    return end + 1


def put_time(out: "Outputs", end: int, timestamp: int) -> int:
    """Writes a time in ISO 8601; returns the end of `out`.

    A time after the year 9999 is written as a number, and a negative one as `-`. Days become a date
    as in Hinnant's `civil_from_days`, whose years begin in March.
    """
    if timestamp < 0:
        out[end] = 45
        return end + 1
    if timestamp > _TIMESTAMP_MAX:
        return put_number(out, end, timestamp)
    days = timestamp // _DAY_MS
    rest = timestamp - days * _DAY_MS
    days += 719_468
    era = days // 146_097
    days -= era * 146_097
    years = (days - days // 1460 + days // 36_524 - days // 146_096) // 365
    days -= 365 * years + years // 4 - years // 100
    month = (5 * days + 2) // 153
    day = days - (153 * month + 2) // 5 + 1
    year = years + era * 400
    if month >= 10:
        year += 1
        month -= 9
    else:
        month += 3
    seconds = rest // 1000
    minutes = seconds // 60
    hours = minutes // 60
    end = put_digits(out, end, year, 4)
    out[end] = 45
    end = put_digits(out, end + 1, month, 2)
    out[end] = 45
    end = put_digits(out, end + 1, day, 2)
    out[end] = 84
    end = put_digits(out, end + 1, hours, 2)
    out[end] = 58
    end = put_digits(out, end + 1, minutes - hours * 60, 2)
    out[end] = 58
    end = put_digits(out, end + 1, seconds - minutes * 60, 2)
    out[end] = 46
    end = put_digits(out, end + 1, rest - seconds * 1000, 3)
    out[end] = 90
    return end + 1


def is_plain(data: "Ints", at: int, quote: int, backslash: int) -> bool:
    """Whether the `_PLAIN_BLOCK` bytes at `at` are printable ASCII and none of these two."""
    odd = 0
    for place in range(at, at + 32):
        byte = data[place]
        odd |= (byte < 32) | (byte > 126) | (byte == quote) | (byte == backslash)
    return odd == 0


def put_characters(
    data: "Ints", at: int, limit: int, form: int,
    escapes: "Ints", printable: "Ints", out: "Outputs", end: int,
) -> int:  # fmt: skip
    """Writes `data[at:limit]` as text; returns the end of `out`.

    Returns -1 if the bytes are not UTF-8, and -2 if a character is not in `printable`.
    """
    quote, backslash = (34, 92) if form == _JSON else (0, 0)
    while at < limit:
        start = at
        # Nearly all text goes here, 32 bytes at a time; the loop after it finds the odd byte.
        while limit - at >= _PLAIN_BLOCK and is_plain(data, at, quote, backslash):
            at += _PLAIN_BLOCK
        while at < limit and escapes[_ESCAPE_WIDTH * data[at]] == 0:
            at += 1
        copy_bytes(data, start, out, end, at - start)
        end += at - start
        if at == limit:
            break
        if data[at] < 128:
            size = escapes[_ESCAPE_WIDTH * data[at]]
            copy_bytes(escapes, _ESCAPE_WIDTH * data[at] + 1, out, end, size)
            at += 1
        else:
            size, code = read_utf8(data, at, limit)
            if size == 0:
                return -1
            if form != _JSON and (code >= _PRINTABLE_CODES or printable[code] == 0):
                return -2
            copy_bytes(data, at, out, end, size)
            at += size
        end += size
    return end


def put_hex(data: "Ints", at: int, limit: int, out: "Outputs", end: int) -> int:
    """Writes `data[at:limit]` as hexadecimal digits; returns the end of `out`."""
    for place in range(at, limit):
        high = data[place] >> 4
        low = data[place] & 15
        out[end] = high + (48 if high < 10 else 87)
        out[end + 1] = low + (48 if low < 10 else 87)
        end += 2
    return end


def put_field(
    data: "Ints", at: int, size: int, form: int, is_name: bool,  # noqa: FBT001 (for kernels)
    literals: "Ints", literal_ends: "Ints", escapes: "Ints", printable: "Ints",
    out: "Outputs", end: int,
) -> int:  # fmt: skip
    """Writes a key, a value or a header name; returns the end of `out`, or -1 as `put_record`."""
    if size < 0:
        out[end] = 110
        out[end + 1] = 117
        out[end + 2] = 108
        out[end + 3] = 108
        return end + 4
    start = end
    if form != _HEX or is_name:
        if form == _JSON:
            out[end] = 34
            end += 1
        end = put_characters(data, at, at + size, form, escapes, printable, out, end)
        if end >= 0:
            if form == _JSON:
                out[end] = 34
                end += 1
            return end
        if end == -2 or is_name:
            return -1
    # Back to `start`: what was written before the byte that is not UTF-8 is overwritten.
    end = put_literal(literals, literal_ends, 10, out, start)
    end = put_hex(data, at, at + size, out, end)
    return put_literal(literals, literal_ends, 11, out, end)


def put_record(
    data: "Ints", frame: "Frame", offset: int, timestamp: int, form: int,
    literals: "Ints", literal_ends: "Ints", escapes: "Ints", printable: "Ints",
    out: "Outputs", end: int,
) -> int:  # fmt: skip
    """Writes the line of a record; returns the end of `out`, or -1 if the caller must show it."""
    limit, _, _, key_at, key_size, value_at, value_size, headers_at, headers = frame
    end = put_literal(literals, literal_ends, 0, out, end)
    end = put_number(out, end, offset)
    end = put_literal(literals, literal_ends, 1, out, end)
    end = put_number(out, end, timestamp) if form == _JSON else put_time(out, end, timestamp)
    # One loop over all fields, because `put_field` is inlined wherever it is called.
    for field in range(2 + 2 * headers):
        is_name = False
        if field == 0:
            at, size, before, after = key_at, key_size, 2, 3
        elif field == 1:
            at, size, before, after = value_at, value_size, -1, 4
        else:
            is_name = field & 1 == 0
            size, at = read_varint(data, headers_at, limit)
            headers_at = at + max(0, size)
            before, after = (5, 6) if is_name else (-1, 7)
            if is_name and field > 2:
                end = put_literal(literals, literal_ends, 8, out, end)
        if before >= 0:
            end = put_literal(literals, literal_ends, before, out, end)
        end = put_field(
            data, at, size, form, is_name, literals, literal_ends, escapes, printable, out, end
        )
        if end < 0:
            return -1
        end = put_literal(literals, literal_ends, after, out, end)
    return put_literal(literals, literal_ends, 9, out, end)


def show_records(
    data: "Ints", count: int, base_offset: int, base_timestamp: int, keeps_deltas: int,
    bounds: "Outputs", key: "Ints", form: int, literals: "Ints", literal_ends: "Outputs",
    escapes: "Ints", printable: "Ints", cursors: "Outputs", out: "Outputs",
) -> int:  # fmt: skip
    """Writes the chosen records from `cursors` on as lines to `out`, and moves the cursors.

    `bounds` has the places of `BoundIndex`, `cursors` those of `Cursor`. `keeps_deltas` is as in
    `Payload`. `literal_ends` has 0 and then where each literal ends.

    Returns:
        A `StopReason`, or minus a `RecordFault`; then the lines of the records before are in `out`.
    """
    octets, wanted, out_bytes = address(data), address(key), output_address(out)
    words, escaped, shown = address(literals), address(escapes), address(printable)
    with cython.nogil:
        if (
            len(bounds) < _BOUNDS or len(cursors) < _CURSORS or len(literal_ends) <= _LITERALS
            or len(escapes) < 256 * _ESCAPE_WIDTH or len(printable) < _PRINTABLE_CODES
        ):  # fmt: skip
            return -_NO_ROOM
        position = cursors[1]
        if not can_hold(0, len(data), len(data), count) or not 0 <= position <= len(data):
            return -_RECORD_COUNT
        for index in range(cursors[0], count):
            if cursors[3] <= 0:
                return _ENOUGH
            frame = read_record(octets, position, len(data))
            if frame[0] < 0:
                return frame[0]
            offset = wrapping_sum(base_offset, frame[2])
            timestamp = wrapping_sum(base_timestamp, frame[1] * keeps_deltas)
            is_chosen = bounds[0] <= offset < bounds[1]
            if is_chosen and timestamp >= bounds[3] and bounds[3] != _INT64_MAX:
                return _ENOUGH
            is_chosen = is_chosen and timestamp >= bounds[2] and bounds[4] != _NO_RECORD
            end = cursors[2]
            if is_chosen and (
                bounds[4] != _THIS_KEY
                or (frame[4] == len(key) and is_equal(octets, frame[3], wanted, 0, len(key)))
            ):
                # The longest line that this record can become, so that no byte of it needs a check.
                room = _GROWTH_MAX * (frame[0] - position) + literal_ends[_LITERALS] + _ROOM_MIN
                if form != _NONE and room <= len(out) - end:
                    end = put_record(
                        octets, frame, offset, timestamp, form,
                        words, literal_ends, escaped, shown, out_bytes, end,
                    )  # fmt: skip
                # With lines in `out` the caller can empty it and come again; a record that does not
                # fit into an empty one is shown by the caller.
                elif form != _NONE and end > 0:
                    return _FULL
                else:
                    end = -1
                cursors[3] -= 1
            position = frame[0]
            cursors[0] = index + 1
            cursors[1] = position
            if end < 0:
                return _UNSHOWN
            cursors[2] = end
        return -_LEFTOVER if position != len(data) else 0
