"""Keys and values as typed columns: which schema, which types, and what cannot be decoded."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.schemas import AvroSerializer, SchemaRegistry
from tailrace.spark.options import parse_job_options, parse_options
from tailrace.spark.source import TailraceDataSource
from tailrace.spark.typed import UndecodedError, plan_typed
from tailrace.testing.registry import TestRegistry
from tests.spark.directories import batch_of, write_segment
from tests.unit.records.batches import record_at

FLIGHT: dict[str, Any] = {"type": "record", "name": "F", "fields": [{"name": "n", "type": "int"}]}
WIDER = FLIGHT | {"fields": [*FLIGHT["fields"], {"name": "g", "type": "string", "default": "?"}]}


@pytest.fixture
def double() -> Iterator[TestRegistry]:
    """An empty registry."""
    with TestRegistry() as found:
        yield found


@pytest.fixture
def data(tmp_path: Path, double: TestRegistry) -> Path:
    """Three values in t-0: of two versions of a schema, and bytes that are none between them."""
    with SchemaRegistry(schema_registry_url=double.url) as registry:
        old = AvroSerializer(registry, FLIGHT, topic="t")({"n": 1})
        new = AvroSerializer(registry, WIDER, topic="t")({"n": 2, "g": "B"})
    records = [record_at(n, 0, b"k", each) for n, each in enumerate((old, b"\0bad\0", new))]
    write_segment(tmp_path, TopicPartition("t", 0), 0, batch_of(records))
    return tmp_path


def source(data: Path, **options: str) -> TailraceDataSource:
    """The source as Spark makes it."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    return TailraceDataSource({"path": str(data), "subscribe": "t", "valueFormat": "avro"} | named)


def rows(found: TailraceDataSource) -> list[dict[str, Any]]:
    """The rows, read as Spark does: the reader is sent to another process."""
    reader = found.reader(found.schema())
    sent = pickle.loads(pickle.dumps(reader))
    return [
        row
        for partition in reader.partitions()
        for batch in sent.read(partition)
        for row in batch.to_pylist()
    ]


def test_values_have_the_types_of_the_latest_version(data: Path, double: TestRegistry) -> None:
    """Whatever version they were written with; what cannot be decoded is null and told."""
    found = source(data, schemaRegistry=double.url)
    assert found.schema()["value"].dataType.simpleString() == "struct<n:int,g:string>"
    assert found.schema().names[-1] == "valueError"
    first, bad, last = rows(found)
    assert (first["value"], last["value"]) == ({"n": 1, "g": "?"}, {"n": 2, "g": "B"})
    assert (bad["value"], bad["key"], first["valueError"]) == (None, b"k", None)
    assert "the registry has no schema of this id" in bad["valueError"]


def test_values_have_the_types_of_a_file(data: Path, tmp_path: Path) -> None:
    """Without a registry, the ids are passed over."""
    (tmp_path / "f.avsc").write_text(json.dumps(FLIGHT))
    found = source(data, schemaFile=str(tmp_path / "f.avsc"), columns="valueError,offset")
    assert found.schema().simpleString() == "struct<valueError:string,offset:bigint>"
    told = [each["valueError"] for each in rows(found)]
    assert [each is None for each in told] == [True, False, False]
    assert "bytes are left after the value" in told[2]


def test_a_query_can_be_made_to_fail(data: Path, double: TestRegistry) -> None:
    """The error has topic, partition and offset."""
    found = source(data, schemaRegistry=double.url, mode="FAILFAST", columns="value")
    with pytest.raises(UndecodedError, match=r"t-0 offset 1: value: schema .*mode=PERMISSIVE"):
        rows(found)


def test_keys_are_decoded_by_their_own_format(data: Path, double: TestRegistry) -> None:
    """With a registry's setting, and a subject of another name."""
    double.add("other", json.dumps(FLIGHT))
    found = source(
        data, keyFormat="plain-json", keySchemaFile=str(data / "k.json"), schemaRegistry=double.url,
        valueSubject="other", schemaRegistry__basic__auth__user__info="a:b",
    )  # fmt: skip
    (data / "k.json").write_text('{"type": "string"}')
    assert found.schema()["key"].dataType.simpleString() == "string"
    assert found.schema()["value"].dataType.simpleString() == "struct<n:int>"
    assert double.requests[-1].authorization is not None
    assert [each["key"] for each in rows(found)] == [None] * 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "valueFormat: avro needs schemaRegistry or schemaFile"),
        ({"valueFormat": "plain-avro"}, "plain-avro needs schemaFile"),
        ({"valueFormat": "xml"}, "'xml' is not one of avro, json"),
        ({"valueFormat": "", "schemaRegistry": "http://a"}, "schemaRegistry: it needs valueFormat"),
        ({"valueFormat": "", "mode": "failfast"}, "mode: it needs valueFormat"),
        ({"valueFormat": "", "schemaFile": "a.avsc"}, "schemaFile: it needs valueFormat"),
        ({"schemaRegistry": "a"}, "schemaRegistry: 'a' is no URL"),
        ({"schemaRegistry": "http://a", "schemaRegistry.max.retries": "x"},
         "schemaRegistry.max.retries: 'x' is not a whole number"),
        ({"schemaRegistry": "http://a", "schemaRegistry.max.retrie": "1"},
         "did you mean schemaRegistry.max.retries?"),
        ({"schemaFile": "a.avsc", "schemaRegistry.max.retries": "1"},
         "schemaRegistry.max.retries: it needs schemaRegistry"),
        ({"schemaFile": "a", "valueSubject": "b"}, "schemaFile, valueSubject: give one of them"),
        ({"schemaFile": "/none.avsc"}, "schemaFile: /none.avsc: the schema cannot be read"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_told(
    tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    """With the name of the option, before anything is read."""
    given = {"path": str(tmp_path), "subscribe": "t", "valueFormat": "avro"} | options
    with pytest.raises(ConfigError) as caught:
        plan_typed(parse_options({name: each for name, each in given.items() if each}))
    assert sentence in str(caught.value)


def test_a_job_reads_what_is_stored(tmp_path: Path) -> None:
    """It refuses a format, which it would pass over."""
    given = {"path": str(tmp_path), "subscribe": "t", "valueFormat": "plain-json",
             "schemaFile": "a.json"}  # fmt: skip
    with pytest.raises(ConfigError, match="valueFormat: a job reads keys and values as they are"):
        parse_job_options(given)


def test_several_topics_have_no_type_of_their_own(data: Path, double: TestRegistry) -> None:
    """A subject has to be named."""
    with pytest.raises(ConfigError, match="name it by valueSubject, or give schemaFile"):
        source(data, subscribe="t,u", schemaRegistry=double.url).schema()


def test_a_declared_schema_has_to_be_that_of_the_values(data: Path, double: TestRegistry) -> None:
    """A type that has changed meanwhile is told, with the one that it is."""
    found = source(data, schemaRegistry=double.url)
    schema = found.schema()
    double.add("t-value", json.dumps(FLIGHT | {"fields": [{"name": "n", "type": "long"}]}))
    with pytest.raises(ConfigError, match=r"value is struct<n:bigint> here, not"):
        found.reader(schema)
