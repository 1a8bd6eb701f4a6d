"""`spark.read.format("tailrace")`: topics as DataFrames, from a directory or from a broker.

    spark.read.format("tailrace").option("subscribe", "flights").load("data")
    spark.read.format("tailrace").option("kafka.bootstrap.servers", "localhost:9092")…

Columns and options are those of Spark's own Kafka source; see `tailrace.spark.options`. A schema
given with `.schema("offset BIGINT, value BINARY")` makes the source decode only these columns,
which Spark cannot find out by itself.

Not here: filters. Spark 4.3.0 mixes up the pushed filters of queries that share a DataFrame and
returns wrong rows, so they are left to Spark. Streams are in `streaming`, writing is in `sink`.

Invariant: the range of offsets is settled once per `load()`, on the driver. A DataFrame used
twice reads the same records twice; a new `load()` sees what came after. Spark 4.0 keeps no plan
of a source, so there the range is settled once per query.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.errors import ConfigError
from tailrace.records.schema import Column, ColumnType, DeclaredColumn
from tailrace.spark.brief_errors import brief_errors

if TYPE_CHECKING:
    from tailrace.spark.batch_reader import TailraceReader
    from tailrace.spark.sink.writers import (
        ExactlyOnceWriter,
        JobVersionWriter,
        TailraceStreamWriter,
        TailraceWriter,
    )
    from tailrace.spark.streaming import StreamReaderWithoutStart, TailraceStreamReader

log = logging.getLogger(__name__)

# By hand and not by PySpark's `from_arrow_type`, for which the process that asks for the schema
# would load PyArrow.
_TYPES: dict[ColumnType, DataType] = {
    ColumnType.BINARY: BinaryType(),
    ColumnType.STRING: StringType(),
    ColumnType.INT32: IntegerType(),
    ColumnType.INT64: LongType(),
    ColumnType.BOOL: BooleanType(),
    ColumnType.TIMESTAMP: TimestampType(),
    ColumnType.HEADERS: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def spark_types(columns: Iterable[DeclaredColumn]) -> dict[str, DataType]:
    """Columns by name, with their types in Spark."""
    return {column.value: _TYPES[column.type] for column in columns}


COLUMNS = spark_types(Column)
"""All columns of the source."""


# Its methods import what they need: Spark unpickles the class in a process of its own each to look
# it up, to create, to plan and to commit, and each of them needs another part.
@brief_errors
class TailraceDataSource(DataSource):  # type: ignore[misc]  # PySpark is untyped here
    """The format `tailrace`; the base class is the interface that Spark asks for."""

    @classmethod
    def name(cls) -> str:
        """Name of the source in `format(…)`."""
        return "tailrace"

    def schema(self) -> StructType:
        """The columns of Spark's Kafka source, or those that the options add or choose.

        With a format of keys or values it reads the schema's file or asks the registry.

        Raises:
            ConfigError: the options have faults, or a schema cannot be used.
            RegistryUnavailableError, RegistryRefusedError: the registry cannot be asked.
        """
        from tailrace.spark.options import parse_options
        from tailrace.spark.typed import plan_typed

        # Spark asks for the schema before it says whether a batch or a stream is wanted.
        try:
            options = parse_options(self.options)
        except ConfigError as of_batch:
            try:
                options = parse_options(self.options, is_stream=True)
            except ConfigError as of_stream:
                raise min(of_batch, of_stream, key=lambda error: len(error.faults)) from None
        types = COLUMNS | plan_typed(options).spark_types()
        return StructType([StructField(name, types[name]) for name in options.columns])

    def reader(self, schema: StructType) -> "TailraceReader":
        """The reader of these columns.

        Raises:
            ConfigError: the options have faults, or the schema has columns that the source does
                not have, or has as another type.
        """
        from tailrace.spark.batch_reader import TailraceReader
        from tailrace.spark.options import parse_options
        from tailrace.spark.typed import plan_typed

        options = parse_options(self.options)
        typed = plan_typed(options)
        faults = schema_faults(schema, COLUMNS | typed.spark_types())
        if faults:
            raise ConfigError(faults)
        # Spark's source ignores them in a batch too, so a program may set them for both.
        if options.limits.is_any:
            log.warning("limits per trigger are ignored: only streams have triggers")
        return TailraceReader(options, columns=schema.names, typed=typed)

    def streamReader(  # noqa: N802 - Spark's
        self, schema: StructType
    ) -> "TailraceStreamReader | StreamReaderWithoutStart":
        """The reader of these columns as a stream.

        Raises:
            ConfigError: as for `reader`; or a limit per trigger is given, and PySpark is older
                than 4.2.
        """
        from tailrace.spark.options import parse_options
        from tailrace.spark.pyspark_versions import HAS_READ_LIMITS
        from tailrace.spark.streaming import TailraceStreamReader
        from tailrace.spark.typed import plan_typed

        options = parse_options(self.options, is_stream=True)
        typed = plan_typed(options)
        faults = schema_faults(schema, COLUMNS | typed.spark_types())
        if faults:
            raise ConfigError(faults)
        reader = TailraceStreamReader(options, columns=schema.names, typed=typed)
        if HAS_READ_LIMITS:
            return reader
        from tailrace.spark.streaming import StreamReaderWithoutStart, refuse_limits

        refuse_limits(self.options)
        return StreamReaderWithoutStart(reader)

    def writer(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> "TailraceWriter | JobVersionWriter":
        """The writer of a DataFrame with this schema; raises as `open_writer`."""
        from tailrace.spark.sink.writers import open_writer

        return open_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - likewise
    ) -> "TailraceStreamWriter | ExactlyOnceWriter":
        """The writer of a stream of this schema; the output mode is append or complete.

        Raises:
            ConfigError: as for `writer`.
        """
        from tailrace.spark.sink.writers import open_stream_writer

        return open_stream_writer(self.options, schema, overwrite=overwrite)


def schema_faults(schema: StructType, columns: Mapping[str, DataType] = COLUMNS) -> list[str]:
    """Faults of a schema as a choice of the source's columns, as sentences."""
    faults = []
    if not schema.fields:
        faults.append("schema: name at least one column")
    if len(set(schema.names)) < len(schema.names):
        faults.append("schema: a column is named twice")
    for field in schema.fields:
        kind = columns.get(field.name)
        if kind is None:
            faults.append(f"schema: no column {field.name!r}; there are: {', '.join(columns)}")
        elif field.dataType != kind:
            faults.append(
                f"schema: {field.name} is {kind.simpleString()} here, not "
                f"{field.dataType.simpleString()}; convert it in a select"
            )
        # Spark would take the promise for granted and drop the checks for null; and PySpark would
        # refuse the batches, in whose schema every column may be null.
        elif not field.nullable:
            faults.append(f"schema: {field.name} may be null here; leave out NOT NULL")
    return faults
