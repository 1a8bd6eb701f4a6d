"""The kernels that read v2 records as Python objects.

    take_records          payloads, from a cursor on -> a list of tuples, one for each record
    deserialize_records   such tuples -> tuples with what a program makes of keys and values

Each byte of a key or value is copied once, from the memory that was received into its object. The
kernels make objects, so they keep the interpreter lock.

Invariant: a record is made of a payload only if all its records are sound, and nothing outside of
the payload is read, even if the bytes change meanwhile.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

import cython

from tailrace.kernels.records import PAYLOAD_WIDTH, Payload, RecordFault

if not cython.compiled:
    from tailrace.kernels.memory import address
    from tailrace.kernels.records import can_hold, read_record, read_varint, wrapping_sum

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailrace.kernels.memory import Ints, Outputs

    new_tuple: Any
    put_item: Any
    untrack: Any
    tailrace_name: Any
    tailrace_nine: Any
    tailrace_five: Any
    tailrace_with: Any


class RowCursor(IntEnum):
    """Places in the cursor of `take_records`, which is all zeros before the first record."""

    BATCH = 0
    """Index of the batch of the next record; the number of batches after the last record."""
    POSITION = 1
    """Position of the next record, if it is not the first of its batch."""
    PASSED = 2
    """Number of records of that batch that were passed."""


ROW_CURSOR_SIZE: Final = len(RowCursor)
_CURSOR_SIZE: Final = ROW_CURSOR_SIZE

KEY_INDEX: Final = 5
VALUE_INDEX: Final = 6
"""Places of the key and of the value in a tuple of nine items."""

_KEY_INDEX: Final = KEY_INDEX
_VALUE_INDEX: Final = VALUE_INDEX
_WIDTH: Final = 9

_PAYLOAD_WIDTH: Final = PAYLOAD_WIDTH
_AT_POSITION: Final = int(Payload.POSITION)
_AT_LIMIT: Final = int(Payload.LIMIT)
_AT_RECORD_COUNT: Final = int(Payload.RECORD_COUNT)
_AT_BASE_OFFSET: Final = int(Payload.BASE_OFFSET)
_AT_BASE_TIMESTAMP: Final = int(Payload.BASE_TIMESTAMP)
_AT_KEEPS_DELTAS: Final = int(Payload.KEEPS_DELTAS)
_AT_LEADER_EPOCH: Final = int(Payload.LEADER_EPOCH)
_RECORD_COUNT: Final = int(RecordFault.RECORD_COUNT)
_LEFTOVER: Final = int(RecordFault.LEFTOVER)
_NO_ROOM: Final = int(RecordFault.NO_ROOM)

TupleT = TypeVar("TupleT", bound="tuple[Any, ...]")


def take_records(
    data: "Ints", payloads: "Ints", cursor: "Outputs", start_offset: int, count: int,
    kind: "type[Any]", place: "tuple[Any, ...]", types: "tuple[Any, ...]", found: "list[Any]",
) -> int:  # fmt: skip
    """Appends the next records from `start_offset` on, up to `count`, to a list; the cursor moves.

    `payloads` are as in `decode_records`. `kind` is a subclass of `tuple` that adds no fields, and
    Python's garbage collector does not look at its objects, which refer to bytes and numbers alone.
    With a `place`, which is topic and partition, the items of a tuple are

        topic, partition, offset, timestamp (ms), timestamp type, key, value, headers, leader epoch

    and without one, which is an empty tuple, offset, timestamp, key, value and headers. `types` are
    the timestamp types of LogAppendTime and CreateTime. Headers are a tuple of names, with
    replacement characters for what is not UTF-8, and values.

    Returns:
        How many records were appended. If there is none because the cursor is at a batch with an
        unsound record, minus its `RecordFault`; the cursor stays there.

    Raises:
        TypeError: `kind` is no such type.
        MemoryError: there is no memory for an object.
    """
    check_kind(kind)
    is_placed = len(place) == 2
    if len(cursor) < _CURSOR_SIZE or len(types) != 2 or not (is_placed or len(place) == 0):
        return -_NO_ROOM
    topic, partition = place if is_placed else (None, None)
    octets = address(data)
    batch = cursor[0]
    position = cursor[1]
    passed = cursor[2]
    batches = len(payloads) // _PAYLOAD_WIDTH
    left = count
    status = 0
    before: tuple[Any, ...] = ()
    time = 0
    time_object: object = 0
    if batch < 0:
        return -_NO_ROOM
    while batch < batches and left > 0:
        at = _PAYLOAD_WIDTH * batch
        limit = payloads[at + _AT_LIMIT]
        record_count = payloads[at + _AT_RECORD_COUNT]
        if passed == 0:
            position = payloads[at + _AT_POSITION]
        if passed < 0 or passed > record_count:
            status = -_RECORD_COUNT
            break
        unread = record_count - passed
        if not can_hold(position, limit, len(data), unread):
            status = -_RECORD_COUNT
            break
        # The batch will be cut by `count`: walk it first, as its later records would be found
        # unsound when earlier ones had been given out.
        if passed == 0 and unread > left:
            status = check_payload(octets, position, limit, unread)
            if status < 0:
                break
        base_offset = payloads[at + _AT_BASE_OFFSET]
        base_timestamp = payloads[at + _AT_BASE_TIMESTAMP]
        keeps_deltas = payloads[at + _AT_KEEPS_DELTAS]
        kind_of_time = types[0] if keeps_deltas == 0 else types[1]
        epoch: object = payloads[at + _AT_LEADER_EPOCH]
        first = len(found)
        while unread > 0 and left > 0:
            (
                end,
                delta,
                offset_delta,
                key_at,
                key_size,
                value_at,
                value_size,
                names_at,
                headers,
            ) = read_record(octets, position, limit)
            if end < 0:
                status = end
                break
            position = end
            unread -= 1
            offset = wrapping_sum(base_offset, offset_delta)
            if offset < start_offset:
                continue
            timestamp = wrapping_sum(base_timestamp, delta * keeps_deltas)
            if timestamp != time:
                time = timestamp
                time_object = timestamp
            # Copied first: making other objects may run the garbage collector, and so any code.
            key = octets_or_none(octets, key_at, key_size)
            value = octets_or_none(octets, value_at, value_size)
            pairs: tuple[Any, ...] = ()
            if headers > 0:
                before = pairs = headers_of(octets, names_at, end, headers, before)
            if is_placed:
                record = nine(
                    kind, topic, partition, offset, time_object, kind_of_time, key, value, pairs,
                    epoch,
                )  # fmt: skip
            else:
                record = five(kind, offset, time_object, key, value, pairs)
            found.append(record)
            left -= 1
        if status == 0 and unread == 0 and position != limit:
            status = -_LEFTOVER
        if status < 0:
            left += len(found) - first
            # Records of an unsound batch must not be given out, not even those before the bad one.
            del found[first:]
            break
        cursor[1] = position
        passed = record_count - unread
        if unread == 0:
            batch += 1
            passed = 0
        cursor[0] = batch
        cursor[2] = passed
    return count - left if left < count else status


def check_payload(data: "Ints", position: int, limit: int, count: int) -> int:
    """0 if all records of a payload are sound, or minus a fault."""
    for _ in range(count):
        position, _, _, _, _, _, _, _, _ = read_record(data, position, limit)
        if position < 0:
            return position
    return 0 if position == limit else -_LEFTOVER


def octets_or_none(data: "Ints", position: int, size: int) -> Any:  # noqa: ANN401
    """The bytes of a field as an object; None for null."""
    if size < 0:
        return None
    if cython.compiled:
        return data[position : position + size]
    return bytes(data[position : position + size])


def headers_of(
    data: "Ints", position: int, end: int, count: int, before: "tuple[Any, ...]"
) -> "tuple[Any, ...]":
    """Names and values of headers, which `read_record` has checked.

    A name that is that of `before` in the same place is the same object: records of a topic mostly
    have the same headers.
    """
    if cython.compiled:
        found = new_tuple(count)  # noqa: F821
        untrack(found)  # noqa: F821
    else:
        found = []
    for index in range(count):
        size, position = read_varint(data, position, end)
        if position < 0 or size < 0 or size > end - position:
            raise ValueError(_CHANGED)
        if cython.compiled:
            name = tailrace_name(before, index, data + position, size)  # noqa: F821
        else:
            name = bytes(data[position : position + size]).decode(errors="replace")
        position += size
        size, position = read_varint(data, position, end)
        if position < 0 or size > end - position:
            raise ValueError(_CHANGED)
        pair = (name, octets_or_none(data, position, size))
        if size > 0:
            position += size
        if cython.compiled:
            untrack(pair)  # noqa: F821
            put_item(found, index, pair)  # noqa: F821
        else:
            found.append(pair)
    return found if cython.compiled else tuple(found)


_CHANGED: Final = "the bytes of a record have changed while it was read"


def check_kind(kind: "type[Any]") -> None:
    """Raise TypeError if a type is no subclass of `tuple`, or has fields of its own."""
    if not issubclass(kind, tuple) or kind.__basicsize__ != tuple.__basicsize__:
        raise TypeError(f"{kind!r} is no type of tuples without fields")


def nine(
    kind: "type[Any]", topic: Any, partition: Any, offset: int, timestamp: Any,  # noqa: ANN401
    kind_of_time: Any, key: Any, value: Any, headers: Any, epoch: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401  # fmt: skip
    """A tuple of nine items, which the garbage collector does not know."""
    if cython.compiled:
        return tailrace_nine(  # noqa: F821
            kind, topic, partition, offset, timestamp, kind_of_time, key, value, headers, epoch
        )
    # Plain code cannot make a tuple that is not tracked.
    items = (topic, partition, offset, timestamp, kind_of_time, key, value, headers, epoch)
    return tuple.__new__(kind, items)


def five(
    kind: "type[Any]", offset: int, timestamp: Any, key: Any, value: Any, headers: Any  # noqa: ANN401
) -> Any:  # noqa: ANN401  # fmt: skip
    """A tuple of five items, likewise."""
    if cython.compiled:
        return tailrace_five(kind, offset, timestamp, key, value, headers)  # noqa: F821
    return tuple.__new__(kind, (offset, timestamp, key, value, headers))


def deserialize_records(
    kind: "type[TupleT]",
    records: "list[TupleT]",
    key: "Callable[[bytes], Any] | None",
    value: "Callable[[bytes], Any] | None",
) -> "tuple[list[TupleT], int, Exception | None]":
    """The records of `take_records`, with the results of two functions in place of keys and values.

    The functions are called record by record, the one for the key first, and not for null. None
    leaves all keys, or values, as they are.

    Returns:
        The records before the first whose key or value a function has failed on, or all; then
        `KEY_INDEX` or `VALUE_INDEX`, whichever it was, and the exception, or None.

    Raises:
        TypeError: `kind` is no such type, or a record is no tuple of nine items.
        BaseException: a function has raised one that is no Exception.
    """
    check_kind(kind)
    made: list[Any] = []
    part = _KEY_INDEX
    rows: list[Any] = records
    for record in rows:
        if not isinstance(record, tuple) or len(record) != _WIDTH:
            raise TypeError(f"{record!r} is no record")
        first: object = record[_KEY_INDEX]
        second: object = record[_VALUE_INDEX]
        try:
            if key is not None and first is not None:
                part = _KEY_INDEX
                first = key(first)  # type: ignore[arg-type]
            if value is not None and second is not None:
                part = _VALUE_INDEX
                second = value(second)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - the caller raises it
            return made, part, error
        if cython.compiled:
            made.append(tailrace_with(kind, record, first, second))  # noqa: F821
        else:
            items = (*record[:_KEY_INDEX], first, second, *record[_VALUE_INDEX + 1 :])
            made.append(tuple.__new__(kind, items))
    return made, part, None
