"""The kernels that read v2 records as Python objects: one finds the fields, two make objects.

    place_records    payloads -> offset, timestamp and places of key and value of each record
    put_octets       bytes and places -> a list of bytes objects
    put_records      nine lists -> a list of tuples

So each byte of a key or value is copied once, from the memory that was received into its object.
The last two make objects, so they keep the interpreter lock.

Invariant: `place_records` lists only places inside of its payloads, and `put_octets` copies nothing
from outside of `data`, whatever the places are.
"""

from typing import TYPE_CHECKING, Any, Final, TypeVar

import cython

from tailrace.kernels.records import PAYLOAD_WIDTH, Payload, RecordFault

if not cython.compiled:
    from tailrace.kernels.memory import address
    from tailrace.kernels.records import can_hold, read_record, wrapping_sum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.kernels.memory import Ints, Outputs

    tailrace_tuple: Any

PLACES_WIDTH: Final = 4
"""Places that `place_records` fills for each record: position and size of its key and its value."""

KEY_PLACE: Final = 0
VALUE_PLACE: Final = 2

COLUMN_COUNT: Final = 9
"""Items of each tuple of `put_records`."""

_PLACES_WIDTH: Final = PLACES_WIDTH
_PAYLOAD_WIDTH: Final = PAYLOAD_WIDTH
_AT_POSITION: Final = int(Payload.POSITION)
_AT_LIMIT: Final = int(Payload.LIMIT)
_AT_RECORD_COUNT: Final = int(Payload.RECORD_COUNT)
_AT_BASE_OFFSET: Final = int(Payload.BASE_OFFSET)
_AT_BASE_TIMESTAMP: Final = int(Payload.BASE_TIMESTAMP)
_AT_KEEPS_DELTAS: Final = int(Payload.KEEPS_DELTAS)
_AT_ROWS: Final = int(Payload.ROWS)
_RECORD_COUNT: Final = int(RecordFault.RECORD_COUNT)
_LEFTOVER: Final = int(RecordFault.LEFTOVER)
_NO_ROOM: Final = int(RecordFault.NO_ROOM)

TupleT = TypeVar("TupleT", bound="tuple[Any, ...]")


def place_records(
    data: "Ints", payloads: "Outputs", count: int, start_offset: int,
    offsets: "Outputs", timestamps: "Outputs", places: "Outputs", totals: "Outputs",
) -> int:  # fmt: skip
    """Lists the records from `start_offset` on: their offsets, timestamps, keys and values.

    `payloads` and `count` are as in `decode_records`. `places` gets `PLACES_WIDTH` numbers for each
    record, with size -1 for null. `totals[0]` gets the number of headers of the records.

    Returns:
        How many records are listed, or minus a `RecordFault`.
    """
    octets = address(data)
    with cython.nogil:
        row = 0
        header_count = 0
        left = count
        for batch in range(len(payloads) // _PAYLOAD_WIDTH):
            at = _PAYLOAD_WIDTH * batch
            position = payloads[at + _AT_POSITION]
            limit = payloads[at + _AT_LIMIT]
            record_count = payloads[at + _AT_RECORD_COUNT]
            base_offset = payloads[at + _AT_BASE_OFFSET]
            base_timestamp = payloads[at + _AT_BASE_TIMESTAMP]
            keeps_deltas = payloads[at + _AT_KEEPS_DELTAS]
            if not can_hold(position, limit, len(data), record_count):
                return -_RECORD_COUNT
            left -= record_count
            rows = row + record_count
            if (
                left < 0
                or len(offsets) < rows
                or len(timestamps) < rows
                or len(places) < rows * _PLACES_WIDTH
            ):
                return -_NO_ROOM
            first_row = row
            for _ in range(record_count):
                end, delta, offset_delta, key_at, key_size, value_at, value_size, _, headers = (
                    read_record(octets, position, limit)
                )
                if end < 0:
                    return end
                position = end
                offset = wrapping_sum(base_offset, offset_delta)
                if offset < start_offset:
                    continue
                offsets[row] = offset
                timestamps[row] = wrapping_sum(base_timestamp, delta * keeps_deltas)
                places[_PLACES_WIDTH * row] = key_at
                places[_PLACES_WIDTH * row + 1] = key_size
                places[_PLACES_WIDTH * row + 2] = value_at
                places[_PLACES_WIDTH * row + 3] = value_size
                header_count += headers
                row += 1
            if position != limit:
                return -_LEFTOVER
            payloads[at + _AT_ROWS] = row - first_row
        totals[0] = header_count
        return row


def put_octets(
    data: "Ints", places: "Outputs", which: int, start: int, count: int, found: "list[Any]"
) -> int:
    """Puts the keys or the values of `count` records, from row `start` on, into a list.

    `which` is `KEY_PLACE` or `VALUE_PLACE`. `found` has `count` items; those of null stay.

    Returns:
        0, or minus a `RecordFault`.

    Raises:
        MemoryError: there is no memory for an object.
    """
    if count < 0 or count > len(found) or start < 0 or start > len(places) // _PLACES_WIDTH - count:
        return -_NO_ROOM
    octets = address(data)
    for index in range(count):
        place = _PLACES_WIDTH * (start + index) + which
        position = places[place]
        size = places[place + 1]
        if size < 0:
            continue
        if position < 0 or size > len(data) - position:
            return -_NO_ROOM
        if cython.compiled:
            found[index] = octets[position : position + size]
        else:
            found[index] = bytes(octets[position : position + size])
    return 0


def list_octets(
    data: "Ints", places: "Ints", *, which: int, start: int, count: int
) -> list[bytes | None]:
    """The keys or the values of `count` records as objects; `put_octets` has the arguments."""
    found: list[bytes | None] = [None] * count
    status = put_octets(data, places, which, start, count, found)
    assert status == 0, f"{RecordFault(-status)!r} of places that were checked"
    return found


def list_records(
    kind: type[TupleT], columns: "Sequence[list[Any]]", *, is_tracked: bool
) -> list[TupleT]:
    """Tuples of the items of `COLUMN_COUNT` lists, which have one size.

    `kind` is a subclass of `tuple` that adds no fields. The tuples are no garbage for Python's
    collector to find unless they hold objects that can refer to them. Without that, `is_tracked` is
    False, and a program that keeps a million of them does not wait for the collector to look at
    each.

    Raises:
        ValueError: the lists do not have one size.
        MemoryError: there is no memory for an object.
    """
    made: list[TupleT] = put_records(kind, is_tracked, *columns)
    return made


def put_records(
    kind: type, is_tracked: int,
    a: "list[Any]", b: "list[Any]", c: "list[Any]", d: "list[Any]", e: "list[Any]",
    f: "list[Any]", g: "list[Any]", h: "list[Any]", i: "list[Any]",
) -> "list[Any]":  # fmt: skip
    """Tuples of the items of nine lists; `list_records` has the arguments."""
    if not issubclass(kind, tuple):
        raise TypeError(f"{kind!r} is no type of tuples")
    count = len(a)
    if not (
        len(b) == count and len(c) == count and len(d) == count and len(e) == count
        and len(f) == count and len(g) == count and len(h) == count and len(i) == count
    ):  # fmt: skip
        raise ValueError("the columns do not have one size")
    found: list[Any] = [None] * count
    for row in range(count):
        if cython.compiled:
            found[row] = tailrace_tuple(  # noqa: F821
                kind, is_tracked, a[row], b[row], c[row], d[row], e[row], f[row], g[row], h[row],
                i[row],
            )  # fmt: skip
        else:
            # Plain code cannot make a tuple that is not tracked.
            items = (a[row], b[row], c[row], d[row], e[row], f[row], g[row], h[row], i[row])
            found[row] = tuple.__new__(kind, items)
    return found
