"""A digest of columns: the same for the same rows in the same order, however they are cut.

Each leaf of a column has a SHA-256 of its own, which takes the values of all rows one behind the
other: numbers as little-endian bytes, binaries and strings as their bytes, with their lengths in
another stream (-1 for null). So neither the borders of record batches nor the layout of a file
matter, and no row is ever an object. The digest of all is that of the leaves in their order.

Invariant: two tables with one digest have the same rows, as far as SHA-256 goes.
"""

import hashlib
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Hash: TypeAlias = "hashlib._Hash"


class Digest:
    """Takes tables with the same columns, in the order of their rows."""

    def __init__(self) -> None:
        self._hashes: dict[str, Hash] = {}

    def update(self, table: pa.Table) -> None:
        """Takes the next rows."""
        for name in table.column_names:
            for chunk in table.column(name).chunks:
                self._take(name, chunk)

    def hexdigest(self) -> str:
        """Of all rows so far."""
        whole = hashlib.sha256()
        for leaf, each in self._hashes.items():
            whole.update(leaf.encode() + b"\0" + each.digest())
        return whole.hexdigest()

    def _take(self, leaf: str, array: pa.Array) -> None:
        kind = array.type
        if pa.types.is_list(kind):
            self._feed(f"{leaf}.length", pc.fill_null(pc.list_value_length(array), -1))
            self._take(f"{leaf}.item", array.flatten())
        elif pa.types.is_struct(kind):
            self._feed(f"{leaf}.valid", pc.is_valid(array))
            for number, field in enumerate(kind):
                self._take(f"{leaf}.{field.name}", array.flatten()[number])
        elif pa.types.is_binary(kind) or pa.types.is_string(kind):
            self._feed(f"{leaf}.length", pc.fill_null(pc.binary_length(array), -1))
            self._hash(leaf).update(_content(array))
        elif pa.types.is_timestamp(kind):
            self._take(leaf, array.cast(pa.int64()))
        else:
            self._feed(f"{leaf}.valid", pc.is_valid(array))
            empty = pa.scalar(False if pa.types.is_boolean(kind) else 0, kind)
            self._feed(leaf, pc.fill_null(array, empty))

    def _feed(self, leaf: str, array: pa.Array) -> None:
        """Numbers or booleans without nulls."""
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.uint8())
        self._hash(leaf).update(array.to_numpy())

    def _hash(self, leaf: str) -> Hash:
        if leaf not in self._hashes:
            self._hashes[leaf] = hashlib.sha256(usedforsecurity=False)
        return self._hashes[leaf]


def _content(array: pa.Array) -> Any:  # noqa: ANN401 - a buffer
    """The bytes of all values, one behind the other; nulls have none."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return b""
    first, limit = memoryview(offsets).cast("i")[array.offset :: len(array)][:2]
    return memoryview(data)[first:limit]
