"""Avro by fastavro: values come back, schemas evolve, and no bytes do harm."""

import json
import math
import time
from decimal import Decimal
from typing import Any

import pytest

from tailrace.schemas import Schema, SchemaError, SchemaType, UndecodableError, UnencodableError
from tailrace.schemas.avro import AvroCodec, ParsedAvro
from tailrace.schemas.avro_shape import DEPTH_MAX
from tailrace.schemas.schema import ResolvedSchema
from tests.unit.schemas.samples import AVRO, FLIGHT_VALUE

LIST = {
    "type": "record", "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}  # fmt: skip


def parsed(schema: Any, *used: Any) -> ParsedAvro:
    """A schema given as JSON, with those it uses."""
    text = schema.text if isinstance(schema, Schema) else json.dumps(schema)
    dependencies = tuple(("", json.dumps(each)) for each in used)
    return ParsedAvro(
        ResolvedSchema(schema=Schema(type=SchemaType.AVRO, text=text), dependencies=dependencies)
    )


def codec(schema: Any, *used: Any, reader: Any = None) -> AvroCodec:
    """The codec of a schema, and of a reader's."""
    return AvroCodec(parsed(schema, *used), None if reader is None else parsed(reader))


def record(*fields: tuple[Any, ...], name: str = "R") -> dict[str, Any]:
    """A record with these fields, of which a third part is the default."""
    keys = ("name", "type", "default")
    return {"type": "record", "name": name, "fields": [dict(zip(keys, f)) for f in fields]}  # noqa: B905


def test_values_come_back_as_python_has_them() -> None:
    """Decimals, times, dates, UUIDs, lists and maps."""
    found = codec(AVRO)
    assert found.name == "air.Flight"
    assert found.decode(b"12345" + found.encode(FLIGHT_VALUE), 5) == FLIGHT_VALUE


def test_a_decimal_of_fixed_size_may_be_wider_than_its_digits() -> None:
    """The bytes in front repeat the sign."""
    fixed = {"type": "fixed", "name": "D", "size": 16, "logicalType": "decimal", "precision": 4}
    found = codec(fixed)
    assert found.decode(found.encode(Decimal(-1234)), 0) == Decimal(-1234)


def decimal(precision: int) -> AvroCodec:
    """The codec of a decimal with two digits behind the point."""
    return codec({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2})


@pytest.mark.parametrize("text", ["0.00", "-0.01", "1234567.89", "-9999999.99"])
def test_decimals_keep_all_digits(text: str) -> None:
    """With the scale of their schema."""
    found = decimal(9)
    assert str(found.decode(found.encode(Decimal(text)), 0)) == text


@pytest.mark.parametrize(("precision", "size"), [(9, 6), (9, 5), (10**9, 500_000)])
def test_a_decimal_with_too_many_digits_is_refused(precision: int, size: int) -> None:
    """It is not rounded, and does not take minutes."""
    count = size << 1
    head = bytearray()
    while count > 127:
        head.append(count & 127 | 128)
        count >>= 7
    start = time.process_time()
    with pytest.raises(UndecodableError, match="has more than"):
        decimal(precision).decode(bytes(head) + bytes([count]) + b"\x7f" * size, 0)
    assert time.process_time() - start < 1


def test_types_of_other_schemas_are_known() -> None:
    """A schema may name a record that its reference defines."""
    found = codec(record(("inner", "Inner")), record(("n", "int"), name="Inner"))
    assert found.decode(found.encode({"inner": {"n": 5}}), 0) == {"inner": {"n": 5}}


def test_a_reader_sees_its_own_schema() -> None:
    """A field that is new has its default, one that is gone is passed over, an int is a long."""
    writer = record(("number", "int"), ("gone", "string"))
    reader = record(("number", "double"), ("new", "string", "none"))
    data = codec(writer).encode({"number": 3, "gone": "x"})
    assert codec(writer, reader=reader).decode(data, 0) == {"number": 3.0, "new": "none"}


def test_schemas_that_do_not_resolve_are_told() -> None:
    """The error is the record's, since others may have been written with another schema."""
    found = codec(record(("n", "string")), reader=record(("n", "int")))
    with pytest.raises(UndecodableError, match="are no value of the Avro schema R"):
        found.decode(b"\x02x", 0)


@pytest.mark.parametrize(
    "value",
    [
        {"n": "x"}, {}, {"n": 1, "extra": 2}, 7, {"n": 1 << 40},
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused(value: Any) -> None:
    """A wrong type, a missing field, one too many, no record, a number that is too large."""
    with pytest.raises(UnencodableError, match="does not fit the Avro schema R"):
        codec(record(("n", "int"))).encode(value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "EOFError|0 bytes"), (b"\x02\x02", "1 of 2 bytes are left after the value")],
)
def test_bytes_that_are_no_value_are_refused(data: bytes, reason: str) -> None:
    """Too few and too many."""
    with pytest.raises(UndecodableError, match=reason):
        codec("int").decode(data, 0)


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "fixed", "name": "F", "size": 0}, record(("n", "null")), record()],
)
def test_an_array_of_nothing_is_refused(items: Any) -> None:
    """Two bytes could claim 2^60 items."""
    with pytest.raises(SchemaError, match="items take no bytes"):
        codec({"type": "array", "items": items})


def test_an_array_cannot_claim_more_than_its_bytes() -> None:
    """A count of 2^60 ends where the bytes end."""
    found = codec({"type": "array", "items": "int"})
    with pytest.raises(UndecodableError):
        found.decode(b"\x80\x80\x80\x80\x80\x80\x80\x80\x20\x02", 0)


def test_records_that_double_at_each_level_are_bounded() -> None:
    """Thirty records of two of each other make a thousand million values of no byte."""
    levels: list[Any] = [record(("x", "null"), ("y", "null"), name="L0")]
    for number in range(1, 30):
        below = f"L{number - 1}"
        levels.append(record(("x", below), ("y", below), name=f"L{number}"))
    found = codec(record(("top", "L29"), ("n", "int")), *levels)
    with pytest.raises(UndecodableError, match="could become"):
        found.decode(b"\x02", 0)


@pytest.mark.parametrize("depth", [500, 5_000_000])
def test_a_record_within_itself_ends_with_an_error(depth: int) -> None:
    """However deep its bytes say it is, the process goes on."""
    found = codec(LIST)
    with pytest.raises(UndecodableError, match="RecursionError"):
        found.decode(b"\x02" * depth + b"\0", 0)


def test_a_record_within_itself_comes_back() -> None:
    """Twenty levels are more than people nest."""
    value: Any = None
    for _ in range(20):
        value = {"next": value}
    found = codec(LIST)
    assert found.decode(found.encode(value), 0) == value


def test_a_schema_that_is_too_deep_is_refused() -> None:
    """By brackets, and by names that lead to names."""
    nested: Any = "int"
    for _ in range(DEPTH_MAX):
        nested = {"type": "array", "items": nested}
    with pytest.raises(SchemaError, match="levels of brackets"):
        codec(nested)
    chain = [record(("x", "int"), name="L0")]
    chain += [record(("x", f"L{n - 1}"), name=f"L{n}") for n in range(1, DEPTH_MAX + 2)]
    with pytest.raises(SchemaError, match="types within each other"):
        codec(f"L{DEPTH_MAX + 1}", *chain)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "17", '"nothing"', '{"type": "record"}',
        '{"type": "enum", "name": "E"}', '{"type": "fixed", "name": "F", "size": "x"}',
        '{"type": "array"}', "[]", '["int", ["null"]]', "NaN",
        '{"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}',
        '{"type": "int", "__fastavro_parsed": true}', '{"type": {"type": {"type": "none"}}}',
    ],
)  # fmt: skip
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    """Whatever it lacks, the error is ours."""
    with pytest.raises(SchemaError):
        ParsedAvro(ResolvedSchema(schema=Schema(type=SchemaType.AVRO, text=text)))


def test_a_number_that_is_none_comes_back() -> None:
    """NaN and infinity are doubles."""
    found = codec("double")
    assert math.isnan(found.decode(found.encode(math.nan), 0))  # type: ignore[arg-type]


ORDER = {**record(("id", "int"), ("price", {
    "type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2,
}), name="Order"), "namespace": "x"}  # fmt: skip
KIND = {"type": "enum", "name": "Kind", "namespace": "x", "symbols": ["A", "B"]}
INVOICE = {**record(("order", "Order"), ("kind", "x.Kind"), name="Invoice"), "namespace": "x"}
NODE = {**LIST, "namespace": "x"}
ORDER_VALUE = {"id": 1, "price": Decimal("1.50")}
INVOICE_VALUE = {"order": ORDER_VALUE, "kind": "B"}


@pytest.mark.parametrize(
    ("root", "values"),
    [
        ("x.Order", [ORDER_VALUE]),
        ("x.Kind", ["A"]),
        ("x.Node", [{"next": {"next": None}}]),
        (["x.Order", "x.Invoice"], [ORDER_VALUE, INVOICE_VALUE]),
        (["null", "x.Invoice", "x.Node"], [None, INVOICE_VALUE, {"next": None}]),
        ({"type": "array", "items": "x.Order"}, [[], [ORDER_VALUE, ORDER_VALUE]]),
        ({"type": "array", "items": ["x.Kind", "x.Node"]}, [["A", {"next": None}]]),
        ({"type": "map", "values": ["x.Kind", "x.Invoice"]}, [{"a": "A", "b": INVOICE_VALUE}]),
        ({"type": "x.Order"}, [ORDER_VALUE]),
        (record(("o", {"type": "x.Order"}), ("k", {"type": "array", "items": {"type": "x.Kind"}})),
         [{"o": ORDER_VALUE, "k": ["B"]}]),
        (["null", record(("o", "x.Order"))], [None, {"o": ORDER_VALUE}]),
    ],
    ids=str,
)  # fmt: skip
def test_a_root_may_be_made_of_the_names_of_references(root: Any, values: list[Any]) -> None:
    """A bare name, a union, an array or a map of types that other schemas define."""
    found = codec(root, ORDER, KIND, INVOICE, NODE)
    for value in values:
        assert found.decode(found.encode(value), 0) == value


def test_a_reader_may_be_a_union_of_the_names_of_references() -> None:
    """A value of one type is read by a schema of several, and the other way round."""
    used = (ORDER, KIND, INVOICE)
    union, single = parsed(["x.Order", "x.Invoice"], *used), parsed("x.Invoice", *used)
    for writer, reader in ((single, union), (union, single)):
        found = AvroCodec(writer, reader)
        assert found.decode(found.encode(INVOICE_VALUE), 0) == INVOICE_VALUE


def test_records_of_a_union_are_named_where_that_is_asked_for() -> None:
    """A tuple of name and record comes out, and such a tuple goes in."""
    union = parsed(["x.Order", "x.Invoice"], ORDER, KIND, INVOICE)
    found = AvroCodec(union, names_records=True)
    for value in (("x.Order", ORDER_VALUE), ("x.Invoice", INVOICE_VALUE)):
        assert found.decode(found.encode(value), 0) == value
