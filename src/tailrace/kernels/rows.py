"""The kernels that read v2 records as Python objects: one finds the fields, two make objects.

    place_records    payloads -> offset, timestamp and places of key and value of each record
    put_octets       bytes and places -> a list of bytes objects
    put_records      nine lists -> a list of tuples

So each byte of a key or value is copied once, from the memory that was received into its object.
The last two call Python's C interface and keep the interpreter lock.

Invariant: `place_records` lists only places inside of its payloads, and `put_octets` copies nothing
from outside of `data`, whatever the places are.
"""

from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tailrace.kernels.kernel import kernel, put_bytes, put_tuple
from tailrace.kernels.records import (
    PAYLOAD_WIDTH,
    RECORD_SIZE_MIN,
    Payload,
    RecordFault,
    read_record,
    wrapping_sum,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from tailrace.kernels.records import Ints, Outputs

    Buffer = memoryview | bytes | npt.NDArray[np.integer[Any]]

PLACES_WIDTH: Final = 4
"""Places that `place_records` fills for each record: position and size of its key and its value."""

KEY_PLACE: Final = 0
VALUE_PLACE: Final = 2

COLUMN_COUNT: Final = 9
"""Items of each tuple of `put_records`."""

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


@kernel("bytes", "int64[:]", "int64", "int64", "int64[:]", "int64[:]", "int32[:]", "int64[:]")
def place_records(  # noqa: PLR0917 (a kernel takes its buffers by position)
    data: "Ints", payloads: "Outputs", count: int, start_offset: int,
    offsets: "Outputs", timestamps: "Outputs", places: "Outputs", totals: "Outputs",
) -> int:  # fmt: skip
    """Lists the records from `start_offset` on: their offsets, timestamps, keys and values.

    `payloads` and `count` are as in `decode_records`. `places` gets `PLACES_WIDTH` numbers for each
    record, with size -1 for null. `totals[0]` gets the number of headers of the records.

    Returns:
        How many records are listed, or minus a `RecordFault`.
    """
    row = 0
    header_count = 0
    left = count
    for at in range(0, len(payloads), PAYLOAD_WIDTH):
        position = payloads[at + _AT_POSITION]
        limit = payloads[at + _AT_LIMIT]
        record_count = payloads[at + _AT_RECORD_COUNT]
        base_offset = payloads[at + _AT_BASE_OFFSET]
        base_timestamp = payloads[at + _AT_BASE_TIMESTAMP]
        keeps_deltas = payloads[at + _AT_KEEPS_DELTAS]
        if record_count < 0 or record_count > (limit - position) // RECORD_SIZE_MIN:
            return -_RECORD_COUNT
        left -= record_count
        rows = row + record_count
        if (
            left < 0
            or len(offsets) < rows
            or len(timestamps) < rows
            or len(places) < rows * PLACES_WIDTH
        ):
            return -_NO_ROOM
        first_row = row
        for _ in range(record_count):
            end, delta, offset_delta, key_at, key_size, value_at, value_size, _, headers = (
                read_record(data, position, limit)
            )
            if end < 0:
                return end
            position = end
            offset = wrapping_sum(base_offset, offset_delta)
            if offset < start_offset:
                continue
            offsets[row] = offset
            timestamps[row] = wrapping_sum(base_timestamp, delta * keeps_deltas)
            places[PLACES_WIDTH * row] = key_at
            places[PLACES_WIDTH * row + 1] = key_size
            places[PLACES_WIDTH * row + 2] = value_at
            places[PLACES_WIDTH * row + 3] = value_size
            header_count += headers
            row += 1
        if position != limit:
            return -_LEFTOVER
        payloads[at + _AT_ROWS] = row - first_row
    totals[0] = header_count
    return row


@kernel("bytes", "int32[:]", "int64", "int64", "int64", "list")
def put_octets(  # noqa: PLR0917
    data: "Ints", places: "Outputs", which: int, start: int, count: int, found: "list[Any]"
) -> int:
    """Puts the keys or the values of `count` records, from row `start` on, into a list.

    `which` is `KEY_PLACE` or `VALUE_PLACE`. `found` has `count` items; those of null stay.

    Returns:
        0, or minus a `RecordFault`.

    Raises:
        MemoryError: there is no memory for an object.
    """
    if start < 0 or count > len(found) or (start + count) * PLACES_WIDTH > len(places):
        return -_NO_ROOM
    for index in range(count):
        place = PLACES_WIDTH * (start + index) + which
        position = int(places[place])
        size = int(places[place + 1])
        if size < 0:
            continue
        if position < 0 or size > len(data) - position:
            return -_NO_ROOM
        if put_bytes(found, index, data, position, size) == 0:
            break
    return 0


@kernel("object", "int64", "int64", *["list"] * (COLUMN_COUNT + 1))
def put_records(  # noqa: PLR0917
    kind: type, is_tracked: int, count: int, found: "list[Any]",
    a: "list[Any]", b: "list[Any]", c: "list[Any]", d: "list[Any]", e: "list[Any]",
    f: "list[Any]", g: "list[Any]", h: "list[Any]", i: "list[Any]",
) -> int:  # fmt: skip
    """Puts `count` tuples of the items of nine lists into a list of as many items.

    `kind` is their type, a subclass of `tuple` that adds no fields. The garbage collector does not
    look at them if `is_tracked` is 0.

    Returns:
        0, or minus a `RecordFault`.

    Raises:
        MemoryError: there is no memory for an object.
    """
    if (
        count > len(found)
        or count > len(a) or count > len(b) or count > len(c) or count > len(d) or count > len(e)
        or count > len(f) or count > len(g) or count > len(h) or count > len(i)
    ):  # fmt: skip
        return -_NO_ROOM
    for row in range(count):
        done = put_tuple(
            found, row, kind, is_tracked,
            a[row], b[row], c[row], d[row], e[row], f[row], g[row], h[row], i[row],
        )  # fmt: skip
        if done == 0:
            break
    return 0


def list_octets(
    data: "Buffer", places: "Buffer", *, which: int, start: int, count: int
) -> list[bytes | None]:
    """The keys or the values of `count` records as objects; `put_octets` has the arguments."""
    found: list[bytes | None] = [None] * count
    status = put_octets(data, places, which, start, count, found)
    assert status == 0, f"{RecordFault(-status)!r} of places that were checked"
    return found


def list_records(
    kind: type[TupleT], columns: "Sequence[list[Any]]", *, is_tracked: bool
) -> list[TupleT]:
    """Tuples of the items of nine lists, which have one size.

    They are no garbage for Python's collector to find unless they hold objects that can refer to
    them. Without that, `is_tracked` is False, and a program that keeps a million of them does not
    wait for the collector to look at each.
    """
    if not put_records.is_compiled:
        made: list[TupleT] = list(map(tuple.__new__, repeat(kind), zip(*columns, strict=True)))
        return made
    count = len(columns[0])
    found: list[Any] = [None] * count
    status = put_records(kind, is_tracked, count, found, *columns)
    assert status == 0, f"{RecordFault(-status)!r} of columns of one size"
    return found
