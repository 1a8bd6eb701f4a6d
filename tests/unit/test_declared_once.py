"""A new row of a table is all that a new codec, column or setting takes.

docs/ARCHITECTURE.md says which file has which table; each test here adds a row to one of them.
"""

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType

from tailrace.config import describe_settings, parse_settings
from tailrace.errors import ConfigError
from tailrace.reading.columns import arrow_schema, check_columns
from tailrace.records.codecs import Levels
from tailrace.records.columns import schema_of
from tailrace.records.schema import (
    Column,
    ColumnOrigin,
    ColumnType,
    DeclaredColumn,
    describe_columns,
    names_added_by,
)
from tailrace.spark.source import COLUMNS, spark_types
from tailrace.storage.config import level_setting


def test_levels_of_a_codec_are_its_topic_setting_and_its_document() -> None:
    """The levels of a codec in `FRAMINGS` give its topic setting, the errors, and the document."""
    setting = level_setting("brotli", Levels(default=6, low=0, high=11))
    name = "compression.brotli.level"
    assert parse_settings([setting], {}) == {name: 6}
    assert parse_settings([setting], {name: "11"}) == {name: 11}
    with pytest.raises(
        ConfigError, match=r"compression.brotli.level: 12 is out of range \(0 to 11\)"
    ):
        parse_settings([setting], {name: "12"})
    assert f"| `{name}` | 6 | 0 to 11 | Level for brotli. |" in describe_settings([setting])


class WiderColumn(DeclaredColumn):
    """A table of columns that has one more."""

    KEY = Column.KEY.value, Column.KEY.type, Column.KEY.origin, Column.KEY.text
    SIZE = "size", ColumnType.INT64, ColumnOrigin.BATCH, "bytes of its batch", "includeMetadata"


def test_a_row_of_a_column_gives_its_schemas_its_option_and_its_document() -> None:
    """One row gives the type in Arrow and in Spark, the option that adds it, and the document."""
    assert schema_of(WiderColumn) == pa.schema([("key", pa.binary()), ("size", pa.int64())])
    assert spark_types(WiderColumn) == {"key": BinaryType(), "size": LongType()}
    assert names_added_by(None, WiderColumn) == ("key",)
    assert names_added_by("includeMetadata", WiderColumn) == ("size",)
    row = "| `size` | `int64` | bytes of its batch | `includeMetadata` |"
    assert row in describe_columns(WiderColumn)


def test_every_declared_column_is_read() -> None:
    """Reader and Spark source have each declared column, by its declared type."""
    assert arrow_schema([each.value for each in Column]) == schema_of(Column)
    assert spark_types(Column) == COLUMNS
    for column in Column:
        assert check_columns([column.value]) == (column.value,)
