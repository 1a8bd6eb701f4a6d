"""The work of a Spark task: read ranges of offsets as Arrow record batches.

The columns and their types are those of `tailrace.reading.columns`; Spark demands that every record
batch has exactly the declared schema.

Invariant: rows leave in the order of their offsets within a partition.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tailrace.reading.columns import decode
from tailrace.runtime.memory import keep_large_buffers
from tailrace.spark.corruption import report_name, write_report
from tailrace.spark.planning import ScanTask
from tailrace.spark.stores import LogStore


def read_task(
    task: ScanTask,
    store: LogStore,
    *,
    columns: Sequence[str],
    fails_on_data_loss: bool,
    corruption_report: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a task; closes `store` in the end, also when not all are taken.

    What a store skips because it is damaged is written to the directory `corruption_report`.

    Raises:
        CorruptionError: a batch is damaged; with its file and position.
        FatalError: the log no longer has a range, or cannot be read.
        OSError: the report cannot be written.
    """
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
