"""`ColumnDecoder`: a column of encoded values to a column of Arrow's types, a batch at a time.

The type of the column follows from one schema, the reader's (`plan_type`); values that were written
with others are read as that has them. The type is Avro's, JSON Schema's or Protobuf's own in Arrow;
what has no type there is JSON as text: unions of several types, a record within itself, JSON of any
shape.

Invariant: as many rows come out as went in, in their order. A value at fault is null and told, and
changes no other row.

Needs PyArrow.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

import pyarrow as pa

from tailrace.schemas.errors import SchemaError, UndecodableError
from tailrace.schemas.formats import Decoding
from tailrace.schemas.schema import SchemaType

Convert: TypeAlias = Callable[[Any], Any]

FIELDS_MAX: Final = 10_000
"""Most fields of a column's type, with those within others."""


class TypePlan(NamedTuple):
    """The type of a column, or of a part of it, and how Arrow takes its values."""

    type: pa.DataType
    convert: Convert | None = None
    """Makes what Arrow takes of a decoded value that is not None; None: Arrow takes it as it is."""


class BadValue(NamedTuple):
    """A value that could not be decoded."""

    row: int
    """The row's number, from 0."""
    reason: str


class ColumnDecoder:
    """Decodes the values of one column."""

    def __init__(self, decoding: Decoding) -> None:
        """`decoding` has a schema, which says the type.

        Raises:
            SchemaError: the schema has no type in Arrow, or cannot be used.
            ConfigError, MissingExtraError: as `Decoding.deserializer`.
        """
        self._plan = plan_type(decoding)
        self._decode = decoding.deserializer(is_for_columns=True).decode

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""
        return self._plan.type

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[BadValue]]:
        """A row for each value, null where there is none, and the values that are at fault.

        Raises:
            RegistryUnavailableError, RegistryRefusedError: the registry cannot be asked; no value
                is at fault for that.
        """
        convert = self._plan.convert
        found: list[Any] = values.to_pylist()
        bad: list[BadValue] = []
        for row, data in enumerate(found):
            if data is None:
                continue
            try:
                value = self._decode(data)
                found[row] = value if convert is None or value is None else convert(value)
            except (
                UndecodableError,
                ValueError,
                TypeError,
                OverflowError,
                RecursionError,
            ) as error:
                found[row] = None
                bad.append(BadValue(row, str(error)))
        try:
            return pa.array(found, self.type), bad
        except _REFUSALS:
            return self._one_by_one(found, bad), sorted(bad)

    def _one_by_one(self, found: list[Any], bad: list[BadValue]) -> pa.Array:
        """The column without the values that Arrow does not take, which are told."""
        for row, value in enumerate(found):
            if value is None:
                continue
            try:
                pa.array([value], self.type)
            except _REFUSALS as error:
                found[row] = None
                bad.append(BadValue(row, f"the value has no place in its column: {error}"))
        return pa.array(found, self.type)


_REFUSALS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, RecursionError)


def plan_type(decoding: Decoding) -> TypePlan:
    """The type of the column that a decoding gives.

    Raises:
        SchemaError: there is no schema, or it is larger than a table should be.
    """
    schema = decoding.schema
    if schema is None:
        raise SchemaError("the type of a column follows from a schema, and there is none")
    match schema.schema.type:
        case SchemaType.AVRO:
            from tailrace.schemas.avro import STORED_IN_COLUMNS, ParsedAvro
            from tailrace.schemas.avro_columns import plan_avro

            parsed = ParsedAvro(schema, without_logical=STORED_IN_COLUMNS)
            plan = plan_avro(parsed.parsed, parsed.named)
        case SchemaType.JSON:
            from tailrace.schemas.json_columns import plan_json
            from tailrace.schemas.json_schema import JsonSchemaCodec

            plan = plan_json(JsonSchemaCodec(schema).known)
        case SchemaType.PROTOBUF:
            from tailrace.schemas.protobuf import ProtobufFile
            from tailrace.schemas.protobuf_columns import plan_protobuf

            plan = plan_protobuf(ProtobufFile(schema).named(decoding.message).DESCRIPTOR)
        case _:
            assert_never(schema.schema.type)
    return plan


class FieldBudget:
    """Counts the fields of a type, which a schema that repeats its parts can multiply."""

    def __init__(self) -> None:
        self._left = FIELDS_MAX

    def take(self, count: int) -> None:
        """Count some fields.

        Raises:
            SchemaError: there are too many.
        """
        self._left -= count
        if self._left < 0:
            raise SchemaError(f"the type of the column has more than {FIELDS_MAX} fields")


def struct_of(fields: dict[str, TypePlan], get: Callable[[Any, str], Any]) -> TypePlan:
    """The plan of an object with these fields; `get` gives a field of a value, or None."""
    kind = pa.struct([(name, plan.type) for name, plan in fields.items()])
    converts = [(name, plan.convert) for name, plan in fields.items()]

    def convert(value: Any) -> dict[str, Any]:  # noqa: ANN401
        row = {}
        for name, change in converts:
            each = get(value, name)
            row[name] = each if change is None or each is None else change(each)
        return row

    return TypePlan(kind, convert)


def list_of(items: TypePlan) -> TypePlan:
    """The plan of a list."""
    change = items.convert
    if change is None:
        return TypePlan(pa.list_(items.type))
    return TypePlan(
        pa.list_(items.type),
        lambda value: [None if each is None else change(each) for each in value],
    )


def map_of(values: TypePlan) -> TypePlan:
    """The plan of a mapping with texts as keys."""
    change = values.convert
    if change is None:
        return TypePlan(pa.map_(pa.string(), values.type), lambda value: list(value.items()))
    return TypePlan(
        pa.map_(pa.string(), values.type),
        lambda value: [
            (name, None if each is None else change(each)) for name, each in value.items()
        ],
    )
