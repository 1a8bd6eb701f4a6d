"""A DataFrame of topics: planned on the driver as ranges of offsets, read in Spark's tasks.

The stream (`streaming`) plans and reads each of its micro-batches in the same way, and so do tasks
of jobs. Columns and types are those of `tailrace.reading.columns`; Spark demands that every record
batch has exactly the declared schema.

Invariant: rows leave in the order of their offsets within a partition.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tailrace.model import TopicPartition
from tailrace.runtime.threads import usable_core_count
from tailrace.spark.brief_errors import brief_errors
from tailrace.spark.losses import PartitionGoneError, report_name, write_report
from tailrace.spark.offsets import choose_partitions, find_late_starts, resolve_ranges
from tailrace.spark.options import SourceOptions
from tailrace.spark.planning import OffsetRange, ScanTask, plan_tasks
from tailrace.spark.stores import LogStore, measure_ranges, open_store
from tailrace.spark.typed import TypedColumns

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


@brief_errors
class TailraceReader(DataSourceReader):  # type: ignore[misc]  # PySpark is untyped here
    """Plans on the driver, reads in tasks; Spark sends it there, so it holds options only."""

    def __init__(
        self, options: SourceOptions, *, columns: Sequence[str], typed: TypedColumns | None = None
    ) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._typed = typed or TypedColumns(decodings={}, is_strict=False)

    def partitions(self) -> list[InputPartition]:
        """The tasks, each with explicit ranges of offsets.

        Raises:
            ConfigError: topics that do not exist, offsets that the logs do not have.
            DirectoryError: the directory cannot be read.
            UnreachableBrokerError: no broker of the list answers.
        """
        core_count = usable_core_count()
        # The driver's cores: Spark does not tell a source those of its cluster.
        tasks = plan_scan(self._options, open_store(self._options), core_count=core_count)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of one task as Arrow record batches."""
        # If there are no partitions, Spark makes an empty one; before 4.2 that is None.
        task = getattr(partition, "value", None) or ScanTask(ranges=())
        batches = read_task(
            task,
            open_store(self._options),
            columns=self._typed.stored(self._columns),
            fails_on_data_loss=self._options.fails_on_data_loss,
            corruption_report=self._options.corruption_report,
        )
        return self._typed.decode(batches, self._columns) if self._typed.decodings else batches


def plan_scan(options: SourceOptions, store: LogStore, *, core_count: int) -> list[ScanTask]:
    """The tasks that read what the options say, as the logs are now; closes `store`.

    Raises:
        ConfigError: topics that do not exist, offsets that the logs do not have.
        PartitionGoneError: a partition was deleted meanwhile.
    """
    try:
        ranges = _planned_ranges(options, store)
    finally:
        store.close()
    # Ends of logs are read by the plan, and by no task.
    if options.corruption_report is not None:
        write_report(options.corruption_report, "log-ends.jsonl", store.skipped or ())
    return plan_ranges(options, ranges, core_count=core_count)


def _planned_ranges(options: SourceOptions, store: LogStore) -> list[OffsetRange]:
    try:
        found = _found_ranges(options, store)
    except PartitionGoneError:
        if options.fails_on_data_loss:
            raise
        store.close()
        found = _found_ranges(options, store)  # It was deleted meanwhile, and is not listed now.
    return measure_ranges(store, found, fails_on_data_loss=options.fails_on_data_loss)


def _found_ranges(
    options: SourceOptions, store: LogStore
) -> Mapping[TopicPartition, tuple[int, int]]:
    chosen = choose_partitions(options.selection, store.partitions(options.selection))
    extents = store.extents(chosen)
    found = resolve_ranges(options, extents, offset_at=store.offset_at)
    for late in find_late_starts(options.starting, extents):
        logger.warning("Skipped: %s", late)
    return found


def plan_ranges(
    options: SourceOptions, ranges: Sequence[OffsetRange], *, core_count: int
) -> list[ScanTask]:
    """The tasks that read these ranges, as large as the options allow."""
    return plan_tasks(
        ranges,
        core_count=core_count,
        task_count_min=options.task_count_min,
        task_records_max=options.task_records_max,
        task_bytes_max=options.task_bytes_max,
    )


def read_task(
    task: ScanTask,
    store: LogStore,
    *,
    columns: Sequence[str],
    fails_on_data_loss: bool,
    corruption_report: str | None = None,
) -> "Iterator[pa.RecordBatch]":
    """The records of a task; closes `store` in the end, also when not all are taken.

    What a store skips because it is damaged is written to the directory `corruption_report`.

    Raises:
        CorruptionError: a batch is damaged; with its file and position.
        FatalError: the log no longer has a range, or cannot be read.
        OSError: the report cannot be written.
    """
    # Here, so that planning loads neither PyArrow nor the kernels.
    from tailrace.reading.columns import decode
    from tailrace.runtime.memory import keep_large_buffers

    # A setting of glibc for the whole worker, which the user's functions share: it keeps up to
    # 32 MiB more, and spares each Arrow buffer its page faults, half the time of decoding it.
    keep_large_buffers()
    tell = None if store.skipped is None else store.skipped.append
    try:
        for wanted in task.ranges:
            pieces = store.pieces(wanted, fails_on_data_loss=fails_on_data_loss)
            yield from decode(pieces, wanted, columns=columns, on_skip=tell)
    finally:
        store.close()
        if corruption_report is not None and store.skipped:
            write_report(corruption_report, report_name(task.ranges[0]), store.skipped)
