"""Schemas of JSON values: the types that typed columns can have, and what is said of the others."""

import json

import pyarrow as pa
import pytest
from pyspark import __version__

from tailrace.errors import ConfigError
from tailrace.spark.jobs.json_values import arrow_type, schema_json


def schema(*fields: tuple[str, object], is_nullable: bool = True) -> str:
    """Spark's JSON of a schema."""
    columns = [
        {"name": name, "type": kind, "nullable": is_nullable, "metadata": {}}
        for name, kind in fields
    ]
    return json.dumps({"type": "struct", "fields": columns})


def array(kind: object) -> dict[str, object]:
    """Spark's JSON of an array."""
    return {"type": "array", "elementType": kind, "containsNull": False}


TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Arrow's types by Spark's."""


@pytest.mark.parametrize("name", TYPES)
def test_a_type_that_json_has_becomes_one_of_arrow(name: str) -> None:
    """Each of them alone, in an array and in a struct."""
    nested = json.loads(schema(("x", name)))
    kind = arrow_type(schema_json(schema(("a", name), ("b", array(name)), ("c", nested))))
    assert kind == pa.struct(
        [
            ("a", TYPES[name]),
            ("b", pa.list_(pa.field("element", TYPES[name]))),
            ("c", pa.struct([("x", TYPES[name])])),
        ]
    )


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("char(3)", "use string"),
        ("varchar(3)", "use string"),
        ("binary", "use string"),
        # Spark 4.0 has no such type.
        *([] if __version__.startswith("4.0.") else [("time(6)", "use string")]),
        ("interval day to second", "use string"),
        ("interval year to month", "use string"),
        ("void", "leave it out, since the column value has every byte"),
        ("variant", "leave it out, since the column value has every byte"),
    ],
)
def test_another_type_is_refused_with_what_to_use_instead(name: str, instead: str) -> None:
    """The sentence has the column and its type, also in an array in a struct."""
    nested = json.loads(schema(("x", array(name))))
    with pytest.raises(ConfigError) as caught:
        arrow_type(schema_json(schema(("a", name), ("s", nested))))
    assert caught.value.faults == [
        f"value_schema: {path} is {name}, which a typed column cannot be; {instead}"
        for path in ("a", "s.x[]")
    ]


def test_maps_and_empty_structs_are_refused() -> None:
    """Neither has columns that are known beforehand."""
    keyed = {
        "type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True,
    }  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        arrow_type(schema_json(schema(("m", keyed), ("s", {"type": "struct", "fields": []}))))
    of_map, of_struct = caught.value.faults
    assert of_map.startswith("value_schema: m is map<string,bigint>, ")
    assert of_map.endswith("; use a struct with the keys that you need")
    assert of_struct.startswith("value_schema: s is struct<>, ")
    assert of_struct.endswith("; name at least one column in it")
    with pytest.raises(ConfigError, match="value_schema: name at least one column"):
        arrow_type(schema_json(schema()))


def test_a_name_that_spark_would_find_twice_is_refused() -> None:
    """Spark does not tell upper from lower case in the names of columns."""
    nested = json.loads(schema(("x", "long"), ("X", "long")))
    with pytest.raises(ConfigError) as caught:
        arrow_type(schema_json(schema(("a", nested), ("a", "long"))))
    assert caught.value.faults == [
        "value_schema: a is the name of two columns in Spark, beside a; keep one of them",
        "value_schema: a.X is the name of two columns in Spark, beside x; keep one of them",
    ]


def test_columns_that_may_not_be_null_may_be_null() -> None:
    """A value may lack any field, and the row of a tombstone is null; `from_json` agrees."""
    strict = schema_json(schema(("a", array("long")), is_nullable=False))
    assert arrow_type(strict).field("a").nullable
    assert json.loads(strict)["fields"][0]["nullable"]
    assert json.loads(strict)["fields"][0]["type"]["containsNull"]


@pytest.mark.parametrize("text", ["{", "{}", '{"type": "struct"}', '{"type": "long"}'])
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    """The sentence names both forms."""
    with pytest.raises(ConfigError, match="value_schema: neither DDL nor JSON of Spark: "):
        schema_json(text)
