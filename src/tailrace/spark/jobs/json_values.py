"""JSON values to typed columns, by a schema of Spark; Arrow parses all values of a chunk at once.

Arrow parses a stream of JSON objects and does not always say which of them is wrong, so each value
is put into a list in an object of its own line, `{"json":[VALUE]}`. A chunk that does not parse is
cut, around the row that Arrow names or else in the middle, until the values at fault are alone.
These get a null and a sentence, and the others their rows.

Strict: a value is at fault if it is not one JSON object in UTF-8, or if a field has another type
than its column, as a string where a number is due, or does not fit it exactly, as a time in a
column of dates. Fields that no column has are passed over, and columns that have no field are null,
as is the row of a tombstone. As `from_json` of Spark, Arrow takes `NaN`, `Infinity` and
`-Infinity` for floating-point numbers, which Python's `json` writes; it takes `Inf` too. Who writes
`]` after an object can have what follows passed over.

Invariant: as many rows come out as values went in, in their order.
"""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tailrace.errors import UNEXPECTED_JSON, ConfigError, FatalError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_WRAPPER: Final = "json"

_CUT_ROWS: Final = 2048
"""Values that are parsed again after each bad one among them."""

_ROW: Final = re.compile(r" in row (\d+)$")


class BadValue(NamedTuple):
    """A value that is not what its schema says."""

    row: int
    """The row's number, from 0."""
    reason: str


def parse_values(
    values: pa.BinaryArray, kind: pa.StructType
) -> tuple[pa.StructArray, list[BadValue]]:
    """One row for each value, null where there is none, and the values that do not fit."""
    present = pc.indices_nonzero(pc.is_valid(values))
    bad: list[BadValue] = []
    pieces = _parsed(values.drop_null(), kind, bad=bad)
    rows = pa.chunked_array(pieces, kind).combine_chunks()
    bad = [BadValue(present[each.row].as_py(), each.reason) for each in bad]
    # Arrow parses what is there; nulls get their rows back by position.
    if values.null_count:
        indexes = pc.if_else(
            pc.is_valid(values), pc.cumulative_sum(pc.is_valid(values).cast(pa.int64())), None
        )
        rows = rows.take(pc.subtract(indexes, 1))
    return rows, bad


def infer_type(values: Sequence[bytes]) -> pa.StructType | None:
    """The type of the objects among these values; None if there is none.

    Columns that are null throughout, and times, which Arrow would recognize, become strings: they
    then hold whatever comes.

    Raises:
        FatalError: a field has several types, or they nest by the hundred.
    """
    # Values that are not JSON do not spoil the schema of those that are.
    objects = [value for value in values if _is_object(value)]
    if not objects:
        return None
    lines = b"\n".join(b'{"%s":%s}' % (_WRAPPER.encode(), _one_line(each)) for each in objects)
    buffer = pa.py_buffer(lines)
    try:
        table = pj.read_json(buffer, read_options=_options(buffer.size))
    except pa.ArrowInvalid as error:
        raise FatalError(f"the JSON values have no common type: {error}; give a schema") from error
    try:
        return _settled(table.schema.field(_WRAPPER).type)
    except RecursionError as error:
        raise FatalError("the JSON values nest too deep for a type; give a schema") from error


def _parsed(
    values: pa.BinaryArray, kind: pa.StructType, *, bad: list[BadValue]
) -> list[pa.StructArray]:
    """The rows of values without nulls, in pieces: those that fail as a whole are cut smaller."""
    pieces: list[pa.StructArray] = []
    # A stack, not recursion: a chunk may have thousands of bad values.
    waiting = [(0, values)] if len(values) else []
    while waiting:
        start, part = waiting.pop()
        try:
            pieces.append(_parsed_whole(part, kind))
        except pa.ArrowInvalid as error:
            if len(part) == 1:
                bad.append(BadValue(start, str(error).removesuffix(" in row 0")))
                pieces.append(pa.nulls(1, kind))
                continue
            cuts = _cuts(len(part), str(error))
            # Reversed, so that the parts come off the stack in the order of their rows.
            waiting += [
                (start + first, part.slice(first, limit - first))
                for first, limit in reversed([*pairwise(cuts)])
                if first < limit
            ]
    return pieces


def _cuts(count: int, reason: str) -> list[int]:
    """Bounds at which to divide values, one of which is invalid: around it, if it is known."""
    # Small parts first: otherwise each bad value would have the whole chunk parsed again.
    if count > _CUT_ROWS:
        return [*range(0, count, _CUT_ROWS), count]
    # Not every error of Arrow names a row.
    named = _ROW.search(reason)
    if named is not None and int(named[1]) < count:
        return [0, int(named[1]), int(named[1]) + 1, count]
    return [0, count // 2, count]


def _parsed_whole(values: pa.BinaryArray, kind: pa.StructType) -> pa.StructArray:
    """All values at once.

    Raises:
        ArrowInvalid: one of them is at fault.
    """
    # A list around each value: two objects in one value are then a list of two, which is refused,
    # and not two rows.
    lines = pc.binary_join_element_wise(f'{{"{_WRAPPER}":[', values.cast(pa.string()), "]}\n", "")
    buffer = lines.buffers()[2]
    table = pj.read_json(
        buffer,
        read_options=_options(buffer.size),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([(_WRAPPER, pa.list_(_read_type(kind)))]),
            # As `from_json` does; the column `value` has them in any case.
            unexpected_field_behavior="ignore",
        ),
    )
    lists = table.column(_WRAPPER).combine_chunks()
    # One line cannot swallow the next: a brace is never what may follow a value.
    if len(lists) != len(values) or not pc.all(pc.equal(pc.list_value_length(lists), 1)).as_py():
        raise pa.ArrowInvalid("not one JSON value")
    # The cast is strict: a time in a column of dates raises, and so becomes a bad value.
    return lists.flatten().cast(kind)


def _options(size: int) -> pj.ReadOptions:
    """All in one block, as a row may not lie in two; Spark's cores are all in use."""
    return pj.ReadOptions(use_threads=False, block_size=size + 1)


def _read_type(kind: pa.DataType) -> pa.DataType:
    """The type that is parsed for a column: texts where Arrow's parser would take other times.

    It has no dates, and as a time without a zone it takes one with a zone, which it drops.
    """
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_read_type(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_read_type(kind.value_type)))
    is_local = pa.types.is_timestamp(kind) and kind.tz is None
    return pa.string() if pa.types.is_date32(kind) or is_local else kind


def _settled(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_settled(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    return pa.string() if pa.types.is_null(kind) or pa.types.is_timestamp(kind) else kind


def _is_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


def _one_line(value: bytes) -> bytes:
    return value.replace(b"\n", b" ")


_LEFT_OUT: Final = "leave it out, since the column value has every byte"

_INSTEAD: Final = {
    "binary": "use string",
    "char": "use string",
    "daytimeinterval": "use string",
    "interval": "use string",
    "map": "use a struct with the keys that you need",
    "struct": "name at least one column in it",
    "time": "use string",
    "varchar": "use string",
    "yearmonthinterval": "use string",
}
"""Advice for a type that typed columns cannot have, by Spark's name of the type."""


def schema_json(text: str) -> str:
    """A schema in Spark's DDL or JSON, as Spark's JSON; every column may be null there.

    Raises:
        ConfigError: it is neither.
    """
    # PySpark parses DDL in the JVM, whose errors come as Py4J's where it does not translate them.
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        if text.lstrip().startswith("{"):
            return str(_nullable(StructType.fromJson(json.loads(text))).json())
        return str(_nullable(StructType.fromDDL(text)).json())
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage())
        raise ConfigError([f"value_schema: neither DDL nor JSON of Spark: {reason}"]) from error
    except (PySparkException, *UNEXPECTED_JSON) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError([f"value_schema: neither DDL nor JSON of Spark: {reason}"]) from error


def arrow_type(text: str) -> pa.StructType:
    """The Arrow type of a schema in Spark's JSON.

    Raises:
        ConfigError: it has types that typed columns cannot have, or a name twice; all of them.
    """
    from pyspark.sql.types import StructType

    faults: list[str] = []
    kind = _arrow_struct("", StructType.fromJson(json.loads(text)), faults)
    if not len(kind):
        faults.append("value_schema: name at least one column")
    if faults:
        raise ConfigError(faults)
    return kind


def _nullable(kind: Any) -> Any:  # noqa: ANN401 - PySpark's types are Any here
    """A type whose columns may be null, as `from_json` of Spark takes it: values miss fields."""
    from pyspark.sql.types import ArrayType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType(
            [StructField(each.name, _nullable(each.dataType), True, each.metadata) for each in kind]  # noqa: FBT003 - Spark's
        )
    return ArrayType(_nullable(kind.elementType)) if isinstance(kind, ArrayType) else kind


def _arrow_struct(path: str, kind: "StructType", faults: list[str]) -> pa.StructType:
    known: dict[str, str] = {}
    for name in kind.names:
        # Spark finds columns by their names in any case, and then finds two.
        if name.lower() in known:
            faults.append(
                f"value_schema: {_below(path, name)} is the name of two columns in Spark, beside "
                f"{known[name.lower()]}; keep one of them"
            )
        known[name.lower()] = name
    return pa.struct(
        [(each.name, _arrow(_below(path, each.name), each.dataType, faults)) for each in kind]
    )


def _arrow(path: str, kind: "DataType", faults: list[str]) -> pa.DataType:
    """The Arrow type of one column; one of Spark's types without any is a fault."""
    from pyspark.sql.types import ArrayType, DecimalType, StructType

    if isinstance(kind, StructType) and kind.names:
        return _arrow_struct(path, kind, faults)
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow(f"{path}[]", kind.elementType, faults)))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    found = {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }.get(kind.typeName())
    if found is None:
        instead = _INSTEAD.get(kind.typeName(), _LEFT_OUT)
        faults.append(
            f"value_schema: {path} is {kind.simpleString()}, which a typed column cannot be; "
            f"{instead}"
        )
        return pa.null()
    return found


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
