"""`chunks_of`: Arrow tables, mappings of columns, and iterables of rows, as columns for kernels.

The columns are the fields of a record. All but the value are optional, and the value too if there
is a key. Text is written as UTF-8.

    value, key   bytes or text; null for none
    headers      Arrow: list<struct<key, value>> or map; else sequences of (name, content)
    timestamp    milliseconds as integers, or timestamps or dates of Arrow or numpy; null for now,
                 and -1 for a record without a time, as `send` takes it
    partition    integers; null to have it chosen

A row of an iterable is a value, a pair of key and value, or a named tuple with these fields.

With interceptors or serializers (`rows`), keys and values may be of any type.

If a chunk lies within one Arrow buffer of its column, its data is not copied; only the offsets are
rewritten. Not here: the partition and the batch of a row (`slices`).

This module needs numpy, and pyarrow for Arrow data.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import accumulate, islice
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from tailrace.client.producer.errors import ProducerError, RejectedRecordError
from tailrace.client.producer.intake.records import plain_headers
from tailrace.config.settings import INT64_MAX
from tailrace.kernels import encoding
from tailrace.kernels.arrays import AnyArray, Int64s, UInt8s
from tailrace.kernels.record_block import NOW, pack_headers
from tailrace.runtime.extras import check_extra

Untyped: TypeAlias = Any
"""A column or a pyarrow object; pyarrow has no type annotations."""

COLUMNS: Final = ("value", "key", "headers", "timestamp", "partition")

CHUNK_SIZE: Final = 8 * 1024 * 1024
"""Target bytes of keys, values and headers in a chunk: enough for full batches."""

_ROWS_MAX: Final = 1 << 18
_CHANGED_ROWS_MAX: Final = 1 << 16
"""Likewise of rows that user code is called for: each may leave an error."""
_ROWS_FIRST: Final = 1024
"""Rows of the first chunk if the size of a row is not known."""

_HEADER_OVERHEAD: Final = 10
_COUNT_SIZE_MAX: Final = 5
_NONE: Final = np.empty(0, np.int64)

TOO_LARGE: Final = -(2**63) + 1
"""Stands for a number that does not fit 64 bits; such a row is refused."""

_NOT_A_TIME: Final = -(2**63)
"""numpy's NaT."""

_LONG_UNITS: Final = frozenset({"s", "m", "h", "D", "W", "M", "Y"})
"""numpy's units that are longer than a millisecond."""


class RefusedRow(NamedTuple):
    """A row that cannot be sent."""

    row: int
    """The row's number in the caller's data."""
    error: ProducerError


class Binaries(NamedTuple):
    """A column of binaries, in the format of `tailrace.kernels.encoding`."""

    data: UInt8s
    ends: Int64s
    """Empty for a missing column."""

    @property
    def sizes(self) -> Int64s:
        return np.diff(self.ends ^ (self.ends >> 63))

    def item(self, row: int) -> bytes | None:
        """A copy of one item; None for null, and for any row of a missing column."""
        if not len(self.ends) or self.ends[row + 1] < 0:
            return None
        start, end = int(self.ends[row]), int(self.ends[row + 1])
        return self.data[start if start >= 0 else ~start : end].tobytes()


ABSENT: Final = Binaries(np.frombuffer(b"", np.uint8), _NONE)


class Chunk(NamedTuple):
    """Consecutive rows of the caller's data."""

    first_row: int
    """The caller's number of the first row."""
    row_count: int
    values: Binaries
    keys: Binaries
    headers: Binaries
    """Each row's headers as encoded in a record, with their count."""
    timestamps: Int64s
    """Milliseconds, `NOW` for none; empty if no row has one."""
    partitions: Int64s
    """-1 for none; empty if no row has one."""
    refused: Sequence[RefusedRow] = ()
    """Rows that interceptors or serializers have failed on, or with a header without a key; nothing
    else is right about them."""

    @property
    def size(self) -> int:
        """Bytes of keys, values and headers."""
        columns = (self.values, self.keys, self.headers)
        return sum(int(column.sizes.sum()) for column in columns if len(column.ends))


Change: TypeAlias = Callable[[Mapping[str, Any], int], tuple[Mapping[str, Any], list[RefusedRow]]]
"""Takes columns and the number of their first row, and returns the columns to send."""


def chunks_of(
    source: object, change: Change | None = None, *, size: int = CHUNK_SIZE
) -> Iterator[Chunk]:
    """The rows of `source` in order, in chunks of about `size` bytes, after `change`.

    `source` is a pyarrow Table, RecordBatch or RecordBatchReader, or anything else that offers
    Arrow's C stream, such as a data frame of polars; a mapping of column names to sequences, numpy
    arrays or Arrow arrays; or an iterable of rows.

    Raises:
        TypeError: `source`, a column or a row has a type that records cannot be made from.
        ValueError: a column is unknown or missing, or columns differ in length.
    """
    if isinstance(source, Mapping):
        yield from _chunks_of_columns(dict(source), change, first_row=0, size=size)
    elif hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        yield from _chunks_of_arrow(source, change, size=size)
    elif isinstance(source, Iterable) and not isinstance(source, str | bytes | bytearray):
        # Not a single value, which would be sent byte by byte.
        yield from _chunks_of_rows(iter(source), change, size=size)
    else:
        raise TypeError(f"rows come as a table, columns or an iterable, not as {_kind(source)}")


def _chunks_of_arrow(source: Untyped, change: Change | None, *, size: int) -> Iterator[Chunk]:
    check_extra("arrow", "send_many() of a table", packages=("pyarrow",))
    import pyarrow as pa

    tables: Iterator[Untyped]
    if isinstance(source, pa.RecordBatchReader):
        # Batch by batch, since a reader may be larger than memory.
        tables = map(pa.Table.from_batches, ([batch] for batch in source))
    else:
        tables = iter((source if isinstance(source, pa.Table) else pa.table(source),))
    first_row = 0
    for table in tables:
        columns = dict(zip(table.column_names, table.columns, strict=True))
        yield from _chunks_of_columns(columns, change, first_row=first_row, size=size)
        first_row += table.num_rows


def _chunks_of_columns(
    columns: dict[Any, Any], change: Change | None, *, first_row: int, size: int
) -> Iterator[Chunk]:
    _check_names(columns)
    lengths = {name: len(column) for name, column in columns.items()}
    row_count = max(lengths.values())
    if min(lengths.values()) != row_count:
        raise ValueError(f"columns differ in length: {lengths}")
    rows = _ROWS_FIRST
    rows_max = _ROWS_MAX if change is None else _CHANGED_ROWS_MAX
    if row_count and all(hasattr(column, "nbytes") for column in columns.values()):
        # Arrow and numpy know the bytes of a column; for others the first chunk is a sample.
        seen = sum(column.nbytes for column in columns.values())
        rows = _rows_for(size, seen, row_count, rows_max=rows_max)
    start = 0
    while start < row_count:
        stop = min(start + rows, row_count)
        window = {name: column[start:stop] for name, column in columns.items()}
        chunk = _chunk_of(window, change, first_row=first_row + start, row_count=stop - start)
        yield chunk
        rows = _rows_for(size, chunk.size, chunk.row_count, rows_max=rows_max)
        start = stop


def _chunks_of_rows(rows: Iterator[object], change: Change | None, *, size: int) -> Iterator[Chunk]:
    first_row, wanted = 0, _ROWS_FIRST
    rows_max = _ROWS_MAX if change is None else _CHANGED_ROWS_MAX
    while piece := list(islice(rows, wanted)):
        columns = _columns_of(piece, first_row, takes_all=change is not None)
        _check_names(columns)
        chunk = _chunk_of(columns, change, first_row=first_row, row_count=len(piece))
        yield chunk
        wanted = _rows_for(size, chunk.size, chunk.row_count, rows_max=rows_max)
        first_row += len(piece)


def _rows_for(size: int, seen: int, count: int, *, rows_max: int) -> int:
    return max(1, min(rows_max, size * count // max(1, seen)))


def _columns_of(rows: list[Any], first_row: int, *, takes_all: bool) -> dict[str, Any]:
    """The rows as columns; all must be of the same kind, or values of any if `takes_all`."""
    kinds = set(map(type, rows))
    if kinds <= {bytes, bytearray, memoryview, str, type(None)}:
        return {"value": rows}
    if len(kinds) == 1:
        (kind,) = kinds
        if hasattr(kind, "_fields"):
            return _transposed(rows, kind._fields)
        if kind is tuple and set(map(len, rows)) == {2}:
            return _transposed(rows, ("key", "value"))
    if takes_all and not any(issubclass(kind, tuple) for kind in kinds):
        return {"value": rows}
    # The row that differs from the first one is the likely mistake.
    first = type(rows[0])
    index = next((i for i, row in enumerate(rows) if type(row) is not first), 0)
    raise TypeError(
        f"row {first_row + index} is a {_kind(rows[index])}; rows are all values, all (key, value) "
        "pairs, or all the same named tuple"
    )


def _transposed(rows: list[Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: list(map(itemgetter(index), rows)) for index, name in enumerate(names)}


def _check_names(columns: Mapping[Any, Any]) -> None:
    for name in columns:
        if name not in COLUMNS:
            near = get_close_matches(str(name), COLUMNS, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COLUMNS)}"
            raise ValueError(f"records have no column {name!r}; {meant}")
    if "value" not in columns and "key" not in columns:
        raise ValueError("there is neither a column 'value' nor a column 'key'")


def _chunk_of(
    columns: Mapping[str, Any], change: Change | None, *, first_row: int, row_count: int
) -> Chunk:
    refused: list[RefusedRow] = []
    if change is not None:
        columns, refused = change(columns, first_row)

    def binaries(name: str) -> Binaries:
        return _binaries(name, columns[name]) if name in columns else ABSENT

    def integers(name: str) -> Int64s:
        return integers_of(name, columns[name]) if name in columns else _NONE

    headers = ABSENT
    if "headers" in columns:
        headers, keyless = _headers(columns["headers"], first_row)
        refused = [*refused, *keyless]
    return Chunk(
        first_row=first_row,
        row_count=row_count,
        values=binaries("value"),
        keys=binaries("key"),
        headers=headers,
        timestamps=integers("timestamp"),
        partitions=integers("partition"),
        refused=refused,
    )


def _binaries(name: str, column: Untyped) -> Binaries:
    if _is_arrow(column):
        return _arrow_binaries(name, _one_array(column))
    items = items_of(column)
    if all(item is None for item in items):
        return ABSENT
    # Mostly all are bytes, and `b"".join` copies them without a look at each.
    try:
        data, ends = column_of(items)
    except TypeError:
        data, ends = column_of([_octets(name, item) for item in items])
    return Binaries(np.frombuffer(data, np.uint8), ends)


def _octets(name: str, item: object) -> bytes | None:
    if item is None or type(item) is bytes:
        return item
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    raise TypeError(f"column {name!r} has a {_kind(item)}; serialize it to bytes or text")


def items_of(column: Untyped) -> list[Any]:
    """The items of a column of any kind as Python objects."""
    if _is_arrow(column):
        return cast("list[Any]", _one_array(column).to_pylist())
    return column.tolist() if isinstance(column, np.ndarray) else list(column)


def absent(name: str) -> int:
    """The integer that means null in a column of integers."""
    return NOW if name == "timestamp" else -1


def integers_of(name: str, column: Untyped) -> Int64s:
    """Integers or milliseconds, `absent(name)` for null; a copy, so the kernels may write to it."""
    if _is_arrow(column):
        return _arrow_integers(name, _one_array(column))
    array = column if isinstance(column, np.ndarray) else None
    if array is None:
        if all(item is None for item in column):
            return _NONE
        array = np.array([absent(name) if item is None else item for item in column])
    if array.dtype.kind == "M" and name == "timestamp":
        return _datetimes(array)
    if array.dtype.kind not in "iu":
        raise TypeError(f"column {name!r} is {array.dtype}; it has to be integers")
    numbers = array.astype(np.int64)
    if array.dtype == np.uint64:
        numbers[array > INT64_MAX] = TOO_LARGE
    return numbers


def _datetimes(array: AnyArray) -> Int64s:
    """Milliseconds since 1970; `TOO_LARGE` if a time in a longer unit does not fit 64 bits."""
    times = array.astype("datetime64[ms]")
    numbers = times.astype(np.int64)
    if np.datetime_data(array.dtype)[0] in _LONG_UNITS:
        # On overflow numpy wraps around, and the conversion back gives another value.
        numbers[times.astype(array.dtype) != array] = TOO_LARGE
    numbers[np.isnat(array)] = NOW
    return numbers


def _headers(column: Untyped, first_row: int) -> tuple[Binaries, list[RefusedRow]]:
    """Headers as they are encoded in records, and the rows that cannot have theirs."""
    if _is_arrow(column):
        return _arrow_headers(_one_array(column), first_row)
    if not any(column):
        return ABSENT, []
    packed: list[bytes] = []
    try:
        for each in column:
            packed.append(pack_headers(plain_headers(each or ())))  # noqa: PERF401 - see below
    except TypeError as error:
        raise TypeError(f"row {first_row + len(packed)}: {error}") from error
    data, ends = column_of(packed)
    return Binaries(np.frombuffer(data, np.uint8), ends), []


def _is_arrow(column: object) -> bool:
    return hasattr(column, "__arrow_c_array__") or hasattr(column, "__arrow_c_stream__")


def _one_array(column: Untyped) -> Untyped:
    """The column in one piece, and without dictionary or extension type."""
    check_extra("arrow", "send_many() of Arrow columns", packages=("pyarrow",))
    import pyarrow as pa

    if not isinstance(column, pa.Array | pa.ChunkedArray):
        is_array = hasattr(column, "__arrow_c_array__")
        column = pa.array(column) if is_array else pa.chunked_array(column)
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    # Such as arrow.json and arrow.uuid, whose storage is text or bytes.
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _arrow_binaries(name: str, array: Untyped) -> Binaries:
    import pyarrow as pa

    types = pa.types
    if types.is_null(array.type):
        return ABSENT
    if any(
        test(array.type)
        for test in (types.is_fixed_size_binary, types.is_binary_view, types.is_string_view)
    ):
        array = array.cast(pa.large_binary())
    is_large = types.is_large_binary(array.type) or types.is_large_string(array.type)
    if not is_large and not types.is_binary(array.type) and not types.is_string(array.type):
        raise TypeError(
            f"column {name!r} is {array.type}; cast it to binary or string, or serialize it"
        )
    _, offsets, data = array.buffers()
    ends = _ends(array, offsets, dtype=np.int64 if is_large else np.int32)
    return Binaries(np.frombuffer(data or b"", np.uint8), ends)


def _ends(array: Untyped, offsets: Untyped, *, dtype: type) -> Int64s:
    """Arrow's offsets as ends; the end of a null is inverted (`~end`)."""
    if offsets is None:
        return np.zeros(1, np.int64)
    start = array.offset
    ends = np.frombuffer(offsets, dtype)[start : start + len(array) + 1].astype(np.int64)
    if array.null_count:
        nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)) + 1
        ends[nulls] = ~ends[nulls]
    return ends


def _arrow_integers(name: str, array: Untyped) -> Int64s:
    import pyarrow as pa

    if pa.types.is_null(array.type):
        return _NONE
    types = pa.types
    if name == "timestamp" and (types.is_timestamp(array.type) or types.is_date(array.type)):
        # numpy has the same units, so `datetime64` can view the integers of a timestamp.
        array = array.cast(pa.timestamp("ms")) if types.is_date(array.type) else array
        filled = array.cast(pa.int64()).fill_null(_NOT_A_TIME).to_numpy(zero_copy_only=False)
        return _datetimes(filled.astype(np.int64).view(f"datetime64[{array.type.unit}]"))
    if not types.is_integer(array.type):
        raise TypeError(f"column {name!r} is {array.type}; it has to be integers")
    # Arrow's cast to int64 raises for the whole column; one such row is refused alone.
    if types.is_uint64(array.type):
        kept = array.fill_null(0).to_numpy(zero_copy_only=False)
        numbers = np.where(kept > INT64_MAX, 0, kept).astype(np.int64)
        numbers[kept > INT64_MAX] = TOO_LARGE
        numbers[array.is_null().to_numpy(zero_copy_only=False)] = absent(name)
        return cast("Int64s", numbers)
    filled = array.cast(pa.int64()).fill_null(absent(name))
    return cast("Int64s", filled.to_numpy(zero_copy_only=False).astype(np.int64))


def _arrow_headers(array: Untyped, first_row: int) -> tuple[Binaries, list[RefusedRow]]:
    """Lists or maps of headers as encoded in records, and the rows with a header without a key."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_null(kind):
        return ABSENT, []
    is_large = pa.types.is_large_list(kind)
    if pa.types.is_map(kind):
        names, contents = array.keys, array.items
    elif (pa.types.is_list(kind) or is_large) and str(kind.value_type).startswith("struct<key: "):
        names, contents = array.values.flatten()
    else:
        raise TypeError(f"column 'headers' is {kind}; it has to be list<struct<key, value>> or map")
    row_ends = _ends(array, array.buffers()[1], dtype=np.int64 if is_large else np.int32)
    first, last = (int(end) ^ (int(end) >> 63) for end in (row_ends[0], row_ends[-1]))
    # `values` of a sliced array still has the elements of the whole array.
    row_ends += np.where(row_ends < 0, first, -first)
    keys = _arrow_binaries("headers.key", _one_array(names.slice(first, last - first)))
    values = _arrow_binaries("headers.value", _one_array(contents.slice(first, last - first)))
    # Encoded into one piece of memory that is large enough for any headers of these sizes.
    room = int(keys.sizes.sum() + values.sizes.sum()) + _HEADER_OVERHEAD * (last - first)
    output = np.empty(room + _COUNT_SIZE_MAX * len(array), np.uint8)
    ends = np.empty(len(array) + 1, np.int64)
    end = encoding.encode_headers(*keys, *values, row_ends, len(array), output, ends)
    refused: list[RefusedRow] = []
    if end < 0:
        keyless = _keyless_rows(keys, row_ends)
        refused = [
            RefusedRow(first_row + row, RejectedRecordError("a header has no key"))
            for row in keyless.tolist()
        ]
        # As null rows, whose ends say where the next row begins: after their headers.
        row_ends[keyless + 1] = ~row_ends[keyless + 1]
        end = encoding.encode_headers(*keys, *values, row_ends, len(array), output, ends)
    if end < 0:
        raise ValueError(f"row {first_row - end - 1}: a header is outside of its column")
    return Binaries(output[:end], ends), refused


def _keyless_rows(keys: Binaries, row_ends: Int64s) -> Int64s:
    """The rows with a header whose key is null."""
    bounds = row_ends ^ (row_ends >> 63)
    count = int(bounds[-1])
    keyless = np.flatnonzero(keys.ends[1:] < 0) if len(keys.ends) else np.arange(count)
    rows = np.unique(np.searchsorted(bounds, keyless, side="right") - 1)
    # Arrow may keep headers under a null row, which has none.
    return rows[row_ends[rows + 1] >= 0]


def _kind(item: object) -> str:
    return type(item).__name__


def column_of(items: Sequence[bytes | None]) -> tuple[bytes, Int64s]:
    """The data and the ends of a column of binaries; see `tailrace.kernels.encoding`.

    Raises:
        TypeError: an item is neither bytes nor None.
    """
    try:
        data = b"".join(items)  # type: ignore[arg-type]
        sizes: Iterator[int] = map(len, items)  # type: ignore[arg-type]
    except TypeError:
        data = b"".join([item for item in items if item is not None])
        sizes = (0 if item is None else len(item) for item in items)
    ends = np.fromiter(accumulate(sizes, initial=0), np.int64, len(items) + 1)
    if None in items:
        nulls = [index for index, item in enumerate(items, 1) if item is None]
        ends[nulls] = ~ends[nulls]
    return data, ends
