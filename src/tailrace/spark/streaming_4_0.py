"""`spark.readStream.format("tailrace")` on PySpark 4.0 and 4.1.

There, Spark asks `latestOffset()` without telling where the last batch ended, so the reader keeps
it: Spark plans each batch through `partitions`, and after a restart it plans the empty range at the
end of the last batch before it asks for anything else.

With `Trigger.AvailableNow` a restarted query is asked before it learns where it was. It then
looks up its starting offsets again, which have to exist, and may run one batch without rows.

Not here: limits per trigger. These versions cannot say whether a batch has to take all that there
is, as `Trigger.AvailableNow` needs it, so limits are refused.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tailrace.errors import ConfigError
from tailrace.spark.options.names import LIMITS
from tailrace.spark.progress import INITIAL
from tailrace.spark.pyspark_versions import ReadAllAvailable
from tailrace.spark.streaming import StreamStatistics, TailraceStreamReader

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReaderWithoutStart(DataSourceStreamReader):  # type: ignore[misc]  # PySpark is untyped here
    """A `TailraceStreamReader` whose `latestOffset` does not learn where the last batch ended."""

    def __init__(self, reader: TailraceStreamReader) -> None:
        self._reader = reader
        self._start: Mapping[str, Any] = INITIAL

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as those below
        """`{}`, as for `TailraceStreamReader`."""
        return self._reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the end of the logs; raise as `TailraceStreamReader.latestOffset` does."""
        return self._reader.latestOffset(dict(self._start), ReadAllAvailable())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch; raises as `TailraceStreamReader.partitions`."""
        tasks = [] if start == end else self._reader.partitions(start, end)
        self._start = end
        return tasks

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of one task as Arrow record batches."""
        return self._reader.read(partition)

    def statistics(self) -> StreamStatistics:
        """Statistics of the reader inside; a batch of no offsets is not counted."""
        return self._reader.statistics()

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint has the offsets."""

    def stop(self) -> None:
        """Close connections."""
        self._reader.stop()


def refuse_limits(given: Mapping[str, str]) -> None:
    """Raise if the options have a limit per trigger.

    Raises:
        ConfigError: they have; a sentence for each limit.
    """
    named = {name.lower() for name in given}
    faults = [
        f"{name}: limits per trigger need PySpark 4.2 or later; leave it out or upgrade PySpark"
        for name in LIMITS
        if name.lower() in named
    ]
    if faults:
        raise ConfigError(faults)
