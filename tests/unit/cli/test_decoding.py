"""`log cat`, `log export` and `consume` with formats of keys and values."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.model import TopicPartition
from tailrace.schemas import AvroSerializer, SchemaRegistry
from tailrace.testing.broker import TestBroker
from tailrace.testing.registry import TestRegistry
from tests.spark.directories import batch_of, write_segment
from tests.unit.cli.running import lines, run, said
from tests.unit.records.batches import record_at

FLIGHT = {"type": "record", "name": "F", "fields": [{"name": "n", "type": "int"}]}
SHOWN = ("--value-format", "avro", "--key-format", "plain-avro", "--key-schema")


@pytest.fixture
def double() -> Iterator[TestRegistry]:
    """An empty registry."""
    with TestRegistry() as found:
        yield found


@pytest.fixture
def values(double: TestRegistry) -> list[bytes | None]:
    """A value of the first version, bytes that are none, a tombstone, and a value with an id."""
    with SchemaRegistry(schema_registry_url=double.url) as registry:
        good = AvroSerializer(registry, FLIGHT, topic="t")
        return [good({"n": 1}), b"\xff\0\0\0\0", None, b"\0\0\0\0\x63x", good({"n": 2})]


@pytest.fixture
def data(tmp_path: Path, values: list[bytes | None]) -> Path:
    """The values in t-0, with the key `k` as Avro; beside it the schemas of key and value."""
    records = [record_at(n, 1000 * n, b"\x02k", each) for n, each in enumerate(values)]
    write_segment(tmp_path, TopicPartition("t", 0), 0, batch_of(records))
    (tmp_path / "key.avsc").write_text('"string"')
    (tmp_path / "value.avsc").write_text(json.dumps(FLIGHT))
    return tmp_path


def check_rows(rows: list[dict[str, Any]]) -> None:
    """The sound values are objects, and the others as they are stored, with a reason."""
    assert [each["key"] for each in rows] == ["k"] * 5
    assert [each["value"] for each in rows] == [
        {"n": 1}, {"hex": "ff00000000"}, None, "\0\0\0\0cx", {"n": 2},
    ]  # fmt: skip
    told = [each.get("valueError") for each in rows]
    assert [each is None for each in told] == [True, False, True, False, True]
    assert "the first byte is 255" in str(told[1])
    assert "schema 99: the registry has no schema of this id" in str(told[3])


def test_cat_decodes_by_a_registry(data: Path, double: TestRegistry) -> None:
    """A record that cannot be decoded is shown as it is stored, and the exit code is 1."""
    options = (*SHOWN, data / "key.avsc", "--schema-registry", double.url)
    result = run("log", "cat", "--data", data, "t", "--format", "json", *options)
    check_rows([json.loads(line) for line in result.stdout.splitlines()])
    assert result.exit_code == 1
    assert "not decoded: 2 keys and values" in result.stderr
    text = run("log", "cat", "--data", data, "t", *options).stdout.splitlines()
    assert 'key=k value={"n": 1}' in text[0]
    assert "value=0xff00000000 valueError=the first byte is 255" in text[1]
    assert "value=null" in text[2]


def test_cat_decodes_by_a_file_without_a_registry(data: Path) -> None:
    """The ids of the values are passed over."""
    result = run(
        "log", "cat", "--data", data, "t", "--value-format", "avro", "--schema",
        data / "value.avsc", "--limit", "1", "--format", "json",
    )  # fmt: skip
    [row] = [json.loads(line) for line in result.stdout.splitlines()]
    assert (row["key"], row["value"], result.exit_code) == ("\x02k", {"n": 1}, 0)


def test_export_writes_decoded_lines(data: Path, double: TestRegistry) -> None:
    """With the same fields as `cat`."""
    to = data / "out.jsonl"
    result = run(
        "log", "export", "--data", data, "t", "--to", to, *SHOWN, data / "key.avsc",
        "--schema-registry", double.url,
    )  # fmt: skip
    check_rows([json.loads(line) for line in to.read_text().splitlines()])
    assert (result.exit_code, result.stdout) == (1, f"{to}: 5 records\n")


def test_export_writes_typed_columns(data: Path, double: TestRegistry) -> None:
    """The types are those of the subject's latest version; what cannot be decoded is null."""
    to = data / "out.parquet"
    result = run(
        "log", "export", "--data", data, "t", "--to", to, "--value-format", "avro",
        "--schema-registry", double.url,
    )  # fmt: skip
    assert result.exit_code == 1
    table = pq.read_table(to)
    assert table.schema.field("value").type == pa.struct([("n", pa.int32())])
    assert table.schema.field("key").type == pa.binary()
    assert table.column("value").to_pylist() == [{"n": 1}, None, None, None, {"n": 2}]
    assert [each is None for each in table.column("valueError").to_pylist()] == [
        True, False, True, False, True,
    ]  # fmt: skip


def test_one_parquet_file_has_the_types_of_one_topic(data: Path, double: TestRegistry) -> None:
    """The registry may have several types for several topics."""
    write_segment(data, TopicPartition("u", 0), 0, batch_of([record_at(0, 0, None, b"x")]))
    sentence = said(
        "log", "export", "--data", data, "--to", data / "out.parquet", "--value-format", "avro",
        "--schema-registry", double.url,
    )  # fmt: skip
    assert "cannot have the schemas of 2 topics; name a TOPIC, give --schema" in sentence


def test_consume_decodes(values: list[bytes | None], double: TestRegistry, tmp_path: Path) -> None:
    """The output is JSON lines, or in a format as kcat's."""
    config = tmp_path / "registry.properties"
    config.write_text(f"schema.registry.url={double.url}\nmax.retries=0\n")
    with TestBroker() as broker:
        broker.create_topic("t", partitions=1)
        for each in values:
            broker.produce("t", each, key="k")
        read = ("consume", "t", "-b", broker.bootstrap_servers, "-e", "--value-format", "avro")
        result = run(*read, "--registry-config", config, "--json")
        check_rows([json.loads(line) for line in result.stdout.splitlines()])
        assert result.exit_code == 1
        result = run(*read, "--schema-registry", double.url, "-f", "%k %S %s\\n", "-c", "1")
        assert result.stdout == 'k 6 {"n": 1}\n'
        double.subjects.clear()
        double.answers = [(401, {})]
        assert "check basic.auth.user.info" in said(*read, "--schema-registry", double.url)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--schema", "a.avsc"), "--schema needs --value-format or --key-format"),
        (("--value-format", "avro"), "avro needs a schema registry or a schema file"),
        (("--value-format", "plain-avro"), "plain-avro needs a schema file"),
        (("--value-format", "avro", "--schema", "none.avsc"), "cannot be read"),
        (("--value-format", "avro", "--schema-registry", "x"), "--schema-registry: 'x' is no URL"),
        (("--key-format", "plain-json", "--schema", "a.json"), "--schema needs --value-format"),
        (
            ("--value-format", "plain-json", "--format", "hex"),
            "keys and values undecoded; leave it out",
        ),
    ],
)
def test_options_that_do_not_fit_are_told(
    data: Path, options: tuple[str, ...], sentence: str
) -> None:
    """One sentence with the flag."""
    assert sentence in said("log", "cat", "--data", data, "t", *options)


def test_help_has_the_formats() -> None:
    """Each of the three commands has them."""
    for command in (("consume",), ("log", "cat"), ("log", "export")):
        assert any("--value-format" in line for line in lines(*command, "--help"))
