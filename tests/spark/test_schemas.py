"""Typed columns in a real session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.model import TopicPartition
from tailrace.schemas import AvroSerializer, ProtobufSerializer, SchemaRegistry
from tailrace.testing.registry import TestRegistry
from tests.spark.directories import batch_of, write_segment
from tests.unit.records.batches import record_at
from tests.unit.schemas.samples import AVRO, FLIGHT_VALUE, PROTO, PROTO_TEXT

pytestmark = pytest.mark.spark


@pytest.fixture
def double() -> Iterator[TestRegistry]:
    """An empty registry."""
    with TestRegistry() as found:
        yield found


def write(data: Path, values: list[bytes | None]) -> None:
    """The values as topic t."""
    records = [record_at(n, 0, None, each) for n, each in enumerate(values)]
    write_segment(data, TopicPartition("t", 0), 0, batch_of(records))


@pytest.mark.smoke
def test_sql_sees_the_fields_of_avro(
    spark: SparkSession, tmp_path: Path, double: TestRegistry
) -> None:
    """Decimals, times, lists and maps; what cannot be decoded is one null among the rows."""
    with SchemaRegistry(schema_registry_url=double.url) as registry:
        encode = AvroSerializer(registry, AVRO, topic="t")
        write(tmp_path, [encode(FLIGHT_VALUE | {"number": n}) for n in range(20)] + [b"x", None])
    reader = spark.read.format("tailrace").option("subscribe", "t").option("valueFormat", "avro")
    frame = reader.option("schemaRegistry", double.url).load(str(tmp_path))
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<number:int,carrier:string,fare:decimal(9,2),departed:timestamp,day:date,id:string,"
        "stops:array<string>,seats:map<string,int>>"
    )
    found = frame.selectExpr(
        "count(*) AS all", "sum(value.number) AS numbers", "sum(value.fare) AS fares",
        "max(unix_millis(value.departed)) AS departed", "max(value.seats['first']) AS seats",
        "max(value.stops[1]) AS stop", "max(value.day) AS day", "count(valueError) AS errors",
        "sum(int(value IS NULL)) AS nulls",
    ).first()  # fmt: skip
    assert found is not None
    assert (found["all"], found["numbers"], str(found["fares"])) == (22, 190, "2598.00")
    assert (found["departed"], found["seats"], found["stop"]) == (1357017420123, 8, "IAH")
    assert (str(found["day"]), found["errors"], found["nulls"]) == ("2013-01-01", 1, 2)


def test_a_stream_has_typed_columns_of_protobuf(spark: SparkSession, tmp_path: Path) -> None:
    """By a file, without a registry."""
    encode = ProtobufSerializer(schema=PROTO, message="Flight")
    write(tmp_path, [encode({"number": n, "legs": [{"to": "IAH"}]}) for n in range(5)])
    (tmp_path / "f.proto").write_text(PROTO_TEXT)
    frame = (
        spark.readStream.format("tailrace")
        .option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .option("valueFormat", "plain-protobuf")
        .option("schemaFile", f"{tmp_path / 'f.proto'}:Flight")
        .load(str(tmp_path))
    )
    query = (
        frame.selectExpr("value.number AS n", "value.legs[0].to AS at", "valueError")
        .writeStream.format("memory")
        .queryName("typed_flights")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.table("typed_flights").collect()
    assert sorted((row["n"], row["at"], row["valueError"]) for row in rows) == [
        (n, "IAH", None) for n in range(5)
    ]
