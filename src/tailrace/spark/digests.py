"""A digest of columns: the same for the same rows in the same order, however they are cut.

Each leaf of a column has a SHA-256 of its own, which takes the values of all rows one after the
other: binaries and strings as their bytes, with their lengths in another stream (-1 for null);
numbers in blocks of `BLOCK_ROWS` rows, with their validity in another stream.

    01 value                    a block whose rows all have the same value, little-endian
    00 value value …            any other, and what is left after the last whole block

So columns that hardly ever change cost nothing, neither the borders of record batches nor the
layout of a file matter, and no row is ever an object. The digest of all is that of the leaves that
have a row, in the order of their names.

Invariant: two tables with one digest have the same rows, as far as SHA-256 goes.
"""

import hashlib
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.kernels.arrays import AnyArray

BLOCK_ROWS: Final = 16_384
"""Rows of which one value is hashed if they all have the same; never changes under a format."""


class Digest:
    """Takes tables with the same columns, in the order of their rows."""

    def __init__(self) -> None:
        self._leaves: dict[str, _Bytes | _Numbers] = {}

    def update(self, table: pa.Table) -> None:
        """Takes the next rows."""
        for name in table.column_names:
            for chunk in table.column(name).chunks:
                self._take(name, chunk)

    def hexdigest(self) -> str:
        """The digest of all rows so far."""
        whole = hashlib.sha256()
        for leaf, each in sorted(self._leaves.items()):
            whole.update(leaf.encode() + b"\0" + each.digest())
        return whole.hexdigest()

    def _take(self, leaf: str, array: pa.Array) -> None:
        kind = array.type
        if not len(array):
            return
        if pa.types.is_list(kind):
            self._feed(f"{leaf}.length", _filled(pc.list_value_length(array), -1))
            self._take(f"{leaf}.item", array.flatten())
        elif pa.types.is_struct(kind):
            self._feed_validity(leaf, array)
            for number, field in enumerate(kind):
                self._take(f"{leaf}.{field.name}", array.flatten()[number])
        elif _is_bytes(kind):
            # Large types, of spark.sql.execution.arrow.useLargeVarTypes, have lengths of 64 bits.
            lengths = _filled(pc.binary_length(array), -1)
            self._feed(f"{leaf}.length", lengths.cast(pa.int32()))
            self._leaves.setdefault(leaf, _Bytes()).take(_content(array))
        elif pa.types.is_timestamp(kind):
            self._take(leaf, array.cast(pa.int64()))
        else:
            self._feed_validity(leaf, array)
            self._feed(leaf, _filled(array, False if pa.types.is_boolean(kind) else 0))

    def _feed_validity(self, leaf: str, array: pa.Array) -> None:
        valid = array.is_valid() if array.null_count else np.ones(len(array), np.bool_)
        self._feed(f"{leaf}.valid", valid)

    def _feed(self, leaf: str, values: Any) -> None:  # noqa: ANN401 - an array of either library
        """Numbers or booleans without nulls."""
        self._leaves.setdefault(leaf, _Numbers()).take(np.asarray(values))


class _Bytes:
    """The bytes of values, one after the other."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(usedforsecurity=False)

    def take(self, content: Any) -> None:  # noqa: ANN401 - a buffer
        self._hash.update(content)

    def digest(self) -> bytes:
        return self._hash.digest()


class _Numbers:
    """Numbers of one width, in blocks."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(usedforsecurity=False)
        self._rest: list[AnyArray] = []
        """Less than a block."""
        self._rest_rows = 0

    def take(self, values: AnyArray) -> None:
        # Compare unsigned numbers, because 0.0 equals -0.0.
        self._rest.append(values.view(f"u{values.itemsize}"))
        self._rest_rows += len(values)
        if self._rest_rows < BLOCK_ROWS:
            return
        values = np.concatenate(self._rest)
        end = len(values) - len(values) % BLOCK_ROWS
        for block in values[:end].reshape(-1, BLOCK_ROWS):
            if (block == block[0]).all():
                self._hash.update(b"\1" + block[:1].tobytes())
            else:
                self._hash.update(b"\0")
                self._hash.update(block.data)
        self._rest, self._rest_rows = [values[end:].copy()], len(values) - end

    def digest(self) -> bytes:
        whole = self._hash.copy()
        whole.update(b"\0" + b"".join(each.data for each in self._rest))
        return whole.digest()


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_string(kind) or _is_large(kind)


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind) or pa.types.is_large_string(kind))


def _filled(array: pa.Array, value: int) -> pa.Array:
    """Return the array with its nulls filled; without nulls, filling would still copy it."""
    return array.fill_null(value) if array.null_count else array


def _content(array: pa.Array) -> Any:  # noqa: ANN401 - a buffer
    """The bytes of all values, one after the other; nulls have none."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return b""
    whole = memoryview(offsets)
    bounds = whole.cast("q") if _is_large(array.type) else whole.cast("i")
    first, limit = bounds[array.offset :: len(array)][:2]
    return memoryview(data)[first:limit]
