"""`AvroCodec`: values of one Avro schema, by fastavro.

Logical types become Python's: decimals `Decimal`, timestamps and dates `datetime` and `date` (UTC
where the type has a zone), times of day `time`, UUIDs `UUID`.

Decimals are read by a function of ours: fastavro's takes the square of their size in time, and
rounds those that have more digits than their schema says.

fastavro's compiled reader calls itself in C, so for a record that can be within itself the one in
Python is taken: that ends in a RecursionError where the other would end the process.

Needs fastavro.
"""

import io
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import fastavro

# fastavro does not document these modules, but it takes them itself where there is no C.
from fastavro import _read_py, _validation_py, _write_py
from fastavro.logical_readers import LOGICAL_READERS

from tailrace.schemas.avro_shape import measure_shape
from tailrace.schemas.errors import SchemaError, UndecodableError, UnencodableError
from tailrace.schemas.schema import ResolvedSchema, load_json

FREE_VALUES_MAX: Final = 10_000_000
"""Most values without bytes of their own that one message may become."""

DECIMAL_BYTES_MAX: Final = 1000
"""Largest decimal, of 2,400 digits; the time that one takes grows with the square of its size."""

_TYPES: Final = frozenset(
    {
        "null", "boolean", "int", "long", "float", "double", "bytes", "string",
        "record", "error", "enum", "array", "map", "fixed", "union", "error_union", "request",
    }
)  # fmt: skip
"""Words that name a kind of type; all others name a type that a schema defines."""

_DECIMAL: Final = "tailrace-decimal"
"""A logical type of fastavro's, as it lets programs add them; schemas never have it."""

STORED_IN_COLUMNS: Final = frozenset({"uuid", "time-millis", "time-micros"})
"""Logical types that columns have as text and numbers: Spark has no others for them."""

# A schema with these keys would pass without a check, so texts that have them are refused.
_CHECKED: Final = "__fastavro_parsed"
_NAMED: Final = "__named_schemas"
_PARSED: Final = (_CHECKED, _NAMED)
"""Keys by which fastavro takes a schema for one that it has checked, and knows its names."""


class ParsedAvro:
    """A checked schema, as fastavro takes it."""

    def __init__(
        self,
        schema: ResolvedSchema,
        *,
        without_logical: frozenset[str] = frozenset(),
    ) -> None:
        """Parse a schema; values of `without_logical` stay what they are stored as.

        Raises:
            SchemaError: it is no Avro schema, or one that no reader may have (`avro_shape`).
        """
        self.named: dict[str, Any] = {}
        """All types that have a name, by their full names."""
        for _, text in schema.dependencies:
            # fastavro adds the types that it defines to `named`, so each text sees those before it.
            _parse(text, self.named, without_logical)
        self.parsed = _rooted(_parse(schema.schema.text, self.named, without_logical), self.named)
        self.shape = measure_shape(self.parsed, self.named)
        self.readable = self.parsed
        """The same, with our reader of decimals."""
        texts = [text for _, text in schema.dependencies] + [schema.schema.text]
        if any('"decimal"' in text for text in texts):
            named: dict[str, Any] = {}
            for text in texts:
                self.readable = _parse(text, named, without_logical, decimals=_DECIMAL)
            self.readable = _rooted(self.readable, named)

    @property
    def name(self) -> str:
        """The full name; empty if the type has none."""
        parsed = self.parsed
        return str(parsed["name"]) if isinstance(parsed, dict) and "name" in parsed else ""


class AvroCodec:
    """Encodes values of a schema, and decodes them, also for a reader with another one."""

    def __init__(
        self,
        writer: ParsedAvro,
        reader: ParsedAvro | None = None,
        *,
        names_records: bool = False,
    ) -> None:
        """With `names_records` a record of a union is decoded to a tuple of its name and itself."""
        self.name = writer.name
        """The full name of the record; empty if the schema is no record."""
        self._writer: Any = writer.parsed
        self._written: Any = writer.readable
        self._reader: Any = None if reader is None else reader.readable
        self._free = writer.shape.free_values
        self._names_records = names_records
        self._validate: Any = None
        is_recursive = writer.shape.is_recursive
        # A value a million levels deep in C overflows the stack and ends the process (decision 41).
        self._read: Any = _read_py.schemaless_reader if is_recursive else fastavro.schemaless_reader
        self._write: Any = (
            _write_py.schemaless_writer if is_recursive else fastavro.schemaless_writer
        )
        # fastavro writes an int of 40 bits without a word, and no other program can read it. The
        # check takes longer than the writing, so schemas without an int are spared it.
        if writer.shape.has_int:
            self._validate = _validation_py.validate if is_recursive else fastavro.validate

    def encode(self, value: object) -> bytes:
        """The bytes of a value; a record has exactly the fields of the schema.

        Only a field that has a default may be left out.

        Raises:
            UnencodableError: the value does not fit the schema.
        """
        out = io.BytesIO()
        try:
            if self._validate is not None:
                self._validate(value, self._writer, raise_errors=True)
            # `strict_allow_default`: without it fastavro drops fields that the schema does not
            # have, and a misspelt name would be lost in silence.
            self._write(out, self._writer, value, strict_allow_default=True)
        # Any error: fastavro raises those of Python for what it did not expect, such as KeyError.
        except Exception as error:
            raise UnencodableError(
                f"a {type(value).__qualname__} does not fit the Avro schema {self.name}: "
                f"{_reason(error)}"
            ) from error
        return out.getvalue()

    def decode(self, data: bytes, position: int) -> object:
        """The value that takes all bytes from a position on.

        Raises:
            UndecodableError: there is none, or bytes are left after it.
        """
        size = len(data) - position
        # Before reading: memory would be gone before a limit within could say so.
        if self._free * (size + 1) > FREE_VALUES_MAX:
            raise UndecodableError(
                f"{size} bytes could become {self._free * (size + 1)} values that have none; at "
                f"most {FREE_VALUES_MAX} are decoded"
            )
        stream = io.BytesIO(data)
        stream.seek(position)
        try:
            value: object = self._read(
                stream, self._written, self._reader, return_record_name=self._names_records
            )
        except Exception as error:
            raise UndecodableError(
                f"{size} bytes are no value of the Avro schema {self.name}: {_reason(error)}"
            ) from error
        # Avro values do not say where they end. Bytes that remain are the one sign of a wrong
        # schema.
        left = len(data) - stream.tell()
        if left:
            raise UndecodableError(
                f"{left} of {size} bytes are left after the value of the Avro schema {self.name}; "
                "it was written with another schema"
            )
        return value


def _parse(
    text: str,
    named: dict[str, Any],
    without_logical: frozenset[str],
    *,
    decimals: str | None = None,
) -> Any:  # noqa: ANN401
    """A schema as fastavro takes it, with another name of the logical type of decimals."""
    if any(each in text for each in _PARSED):
        raise SchemaError(f"the Avro schema has the name {_PARSED[0]}, which no schema may have")
    try:
        given = _without_wraps(load_json(text))
        if without_logical or decimals:
            given = _stripped(given, without_logical, decimals)
        return fastavro.parse_schema(given, named_schemas=named)
    except Exception as error:
        raise SchemaError(f"this is no Avro schema: {_reason(error)}") from error


def _without_wraps(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """A schema in which a name is a text, and not `{"type": "x.Order"}`, which fastavro refuses."""
    match schema:
        case list():
            return [_without_wraps(each) for each in schema]
        case {"type": str(name)} if name not in _TYPES:
            return name
        case {"type": "record" | "error", "fields": list(fields)}:
            return {**schema, "fields": [_within(each, "type") for each in fields]}
        case {"type": "array"}:
            return _within(schema, "items")
        case {"type": "map"}:
            return _within(schema, "values")
        case _:
            return schema


def _within(schema: Any, name: str) -> Any:  # noqa: ANN401 - JSON
    """A schema, or a field, with another type under that name."""
    if not isinstance(schema, dict) or name not in schema:
        return schema
    return {**schema, name: _without_wraps(schema[name])}


def _rooted(parsed: Any, named: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """A parsed schema that brings its names along to each call of fastavro.

    Only a record, an enum and a fixed that are defined in the text do so by themselves. A root that
    is a name, or a union, array or map of names that other schemas define, does not.
    """
    match parsed:
        case list():
            return [_rooted(each, named) for each in parsed]
        case str() if parsed in named:
            return {**named[parsed], _CHECKED: True, _NAMED: named}
        case dict():
            return {**parsed, _CHECKED: True, _NAMED: named}
        case _:
            return parsed


def _stripped(schema: object, logical: frozenset[str], decimals: str | None) -> object:
    """A schema without some logical types, and with another name of decimals."""
    match schema:
        case Mapping():
            changed = {
                # A default is a value and not a schema: a record's field may well be called
                # logicalType.
                name: each if name == "default" else _stripped(each, logical, decimals)
                for name, each in schema.items()
                if not (name == "logicalType" and isinstance(each, str) and each in logical)
            }
            if decimals is not None and changed.get("logicalType") == "decimal":
                changed["logicalType"] = decimals
            return changed
        case list():
            return [_stripped(each, logical, decimals) for each in schema]
        case _:
            return schema


def _read_decimal(
    data: bytes, writer: dict[Any, Any] | None = None, _reader: object = None
) -> Decimal:
    """A decimal with all of its digits.

    Raises:
        ValueError: it has more digits than the schema says.
    """
    assert writer is not None
    precision, scale = int(writer["precision"]), int(writer.get("scale", 0))
    # Python's conversion to decimal digits takes the square of the size: 0.9 s for 100 KB.
    if len(data) > DECIMAL_BYTES_MAX:
        raise ValueError(f"a decimal has more than {DECIMAL_BYTES_MAX} bytes: {len(data)}")
    found = Decimal(int.from_bytes(data, "big", signed=True))
    if len(found.as_tuple().digits) > precision:
        raise ValueError(f"a decimal has more than {precision} digits")
    sign, digits, _ = found.as_tuple()
    return Decimal((sign, digits, -scale))


# Both readers of fastavro look there. The name is our own, so that others in this process keep
# fastavro's decimals.
LOGICAL_READERS[f"bytes-{_DECIMAL}"] = LOGICAL_READERS[f"fixed-{_DECIMAL}"] = _read_decimal


def _reason(error: Exception) -> str:
    """An error's own words, on one line."""
    words = " ".join(str(error).split())[:300]
    name = type(error).__name__
    return f"{name}: {words}" if words else name
