"""`ColumnDecoder`: a column of encoded values to a column of Arrow's types, a batch at a time.

The type of the column follows from one schema, the reader's (`plan_type`); values that were written
with others are read as that has them. The type is Avro's, JSON Schema's or Protobuf's own in Arrow;
what has no type there is JSON as text: unions of several types, a record within itself, JSON of any
shape.

Invariant: as many rows come out as went in, in their order. A value at fault is null and
reported, and changes no other row.

Needs PyArrow.
"""

from typing import Any, Final, NamedTuple, assert_never

import pyarrow as pa

from tailrace.schemas.column_types import TypePlan, plan_avro, plan_json, plan_protobuf
from tailrace.schemas.errors import SchemaError, UndecodableError
from tailrace.schemas.formats import Decoding
from tailrace.schemas.schema import SchemaType


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
                # Errors of the registry pass: with a null for each value an outage would look like
                # bad data.
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
            # Arrow refuses the whole array for one value, and does not say which: only then one at
            # a time.
            return pa.array(found, self.type), bad
        except _REFUSALS:
            # Rows that could not be decoded were added before those that Arrow refused.
            return self._one_by_one(found, bad), sorted(bad)

    def _one_by_one(self, found: list[Any], bad: list[BadValue]) -> pa.Array:
        """The column without the values that Arrow does not take, which are added to `bad`."""
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

            parsed = ParsedAvro(schema, without_logical=STORED_IN_COLUMNS)
            plan = plan_avro(parsed.parsed, parsed.named)
        case SchemaType.JSON:
            from tailrace.schemas.json_schema import JsonSchemaCodec

            plan = plan_json(JsonSchemaCodec(schema).known)
        case SchemaType.PROTOBUF:
            from tailrace.schemas.protobuf import ProtobufFile

            plan = plan_protobuf(ProtobufFile(schema).named(decoding.message).DESCRIPTOR)
        case _:
            assert_never(schema.schema.type)
    return plan
