"""`spark.read.format("tailrace-metadata")`: the metadata log of a node, with no broker.

    spark.read.format("tailrace-metadata").load("data")
    spark.read.format("tailrace-metadata").option("view", "partitions").load("data")

One task reads it all: a metadata log is small, and each record counts only after those before it.

Not here: streams and writing, which Spark refuses for this format.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tailrace.errors import ConfigError
from tailrace.spark.brief_errors import brief_errors
from tailrace.spark.metadata.options import MetadataOptions, View, parse_metadata_options
from tailrace.spark.source import schema_faults

if TYPE_CHECKING:
    import pyarrow as pa


@brief_errors
class MetadataDataSource(DataSource):  # type: ignore[misc]  # PySpark is untyped here
    """The format `tailrace-metadata`; the base class is the interface that Spark asks for."""

    @classmethod
    def name(cls) -> str:
        """Name of the source in `format(…)`."""
        return "tailrace-metadata"

    def schema(self) -> StructType:
        """The columns of the view.

        Raises:
            ConfigError: the options have faults.
        """
        return _spark_schema(parse_metadata_options(self.options).view)

    def reader(self, schema: StructType) -> "MetadataReader":
        """The reader of these columns.

        Raises:
            ConfigError: the options have faults, or the schema has columns that the view does not
                have, or has as another type.
        """
        options = parse_metadata_options(self.options)
        types = {each.name: each.dataType for each in _spark_schema(options.view)}
        faults = schema_faults(schema, types)
        if faults:
            raise ConfigError(faults)
        return MetadataReader(options, columns=schema.names)


@brief_errors
class MetadataReader(DataSourceReader):  # type: ignore[misc]  # PySpark is untyped here
    """Looks for the end of the log on the driver, and reads in one task."""

    def __init__(self, options: MetadataOptions, *, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def partitions(self) -> list[InputPartition]:
        """One task, with the offset at which it ends.

        Raises:
            NoMetadataError, DirectoryError, CorruptionError: as `plan_limit`.
        """
        from tailrace.spark.metadata.reading import plan_limit

        # The end is fixed here, so that the task reads what was there when the query began.
        return [InputPartition(plan_limit(self._options))]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows as Arrow record batches; raises as `read_view`."""
        from tailrace.spark.metadata.reading import read_view

        return read_view(self._options, partition.value, columns=self._columns)


def _spark_schema(view: View) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    from tailrace.spark.metadata.views import view_schema

    return from_arrow_schema(view_schema(view))
