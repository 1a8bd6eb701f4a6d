"""Measures whole-log jobs: archive against Spark's Parquet writer, compaction against our cleaner.

Archive: both read the topic's files with our source's code and write every lossless column as
Parquet with Zstandard of level 1, by topic and date. Ours also keeps a digest of each file and a
manifest, and its files are at most 128 MB; the peer sorts by topic and date, as Spark does for any
partitioned write. The aim is for CPU seconds a row: a quarter of the peer's.

Compaction: one round over one partition of 16-byte keys, half of whose records are superseded, by
the job on Spark and by the broker's cleaner in this process, on one thread. Both start from a log
that was closed in order and open it; both must leave as many records. Its segments are 256 MB, so a
full run gives the job two work items a phase. Not here: logs whose keys do not fit the cleaner's
map, for which the job is made.
"""

import os
import shutil
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.macro.directories import (
    COMPACTED,
    MAP_BYTES,
    PARTITION,
    fill_keyed,
    opened,
)
from benchmarks.macro.spark import (
    TOPIC,
    Rows,
    all_cpu_seconds,
    compare,
    cost_of_everything,
    interleave_warm,
    seconds,
)
from benchmarks.measure import Bench, Cost, Figure
from tailrace.spark.jobs.archive import LOSSLESS, archive
from tailrace.spark.jobs.compact import compact
from tailrace.storage.cleaner.worker import CleanerConfig, LogCleaner, clean
from tailrace.storage.config import log_config

ARCHIVE_PEER = "Spark's Parquet writer"
ARCHIVE_AIM = 0.25

COMPACTION_BYTES = 500_000_000
COMPACTION_KEYS = 1_000_000
COMPACTION_PEER = "the cleaner in one process"


def measure_archive(bench: Bench, rows: Rows) -> list[Figure]:
    """Million rows per second, and CPU seconds of all processes per million rows."""
    bench.say("pipeline: archive")
    numbers = count()

    def measured(write: Callable[[Rows, Path], object]) -> Cost:
        target = bench.directory / f"archive-{next(numbers)}"
        cost = cost_of_everything(partial(write, rows, target))
        files = target.rglob("[!.]*.parquet")
        assert sum(pq.read_metadata(file).num_rows for file in files) == rows.count
        shutil.rmtree(target)
        return cost

    found = interleave_warm(
        bench, {"ours": partial(measured, _archive), "peer": partial(measured, _write_by_spark)}
    )
    millions = rows.count / 1e6
    figure = partial(compare, ours=found["ours"], peer=found["peer"], peer_name=ARCHIVE_PEER)
    return [
        figure("archive", "million rows/s", lambda cost: millions / cost.seconds),
        figure(
            "archive, CPU of all processes",
            "s/million rows",
            lambda cost: cost.cpu_seconds / millions,
            aim=ARCHIVE_AIM,
        ),
    ]


def measure_spark_compaction(bench: Bench, rows: Rows) -> list[Figure]:
    """Seconds, and CPU seconds of all processes."""
    size = bench.scaled(COMPACTION_BYTES, quick=20_000_000)
    keys = bench.scaled(COMPACTION_KEYS, quick=40_000)
    bench.say(f"pipeline: compaction, writing {size / 1e9:.2f} GB with {keys:,} keys")
    source = bench.directory / "dirty"
    fill_keyed(source, size, keys)
    numbers = count()
    left: list[int] = []

    def measured(work: Callable[[Path], object]) -> Cost:
        target = bench.directory / f"clean-{next(numbers)}"
        shutil.copytree(source, target)
        # Neither waits for the device to take the copy.
        os.sync()
        cost = cost_of_everything(partial(work, target))
        left.append(_record_count(target))
        shutil.rmtree(target)
        return cost

    found = interleave_warm(
        bench,
        {"ours": partial(measured, partial(_compact, rows)), "peer": partial(measured, _clean)},
    )
    assert len(set(left)) == 1, left
    assert 0 < left[0] <= keys, left
    figure = partial(compare, ours=found["ours"], peer=found["peer"], peer_name=COMPACTION_PEER)
    name = f"compaction on Spark of {size / 1e9:.1f} GB"
    return [
        figure(name, "s", seconds),
        figure(f"{name}, CPU of all processes", "s", all_cpu_seconds),
    ]


def _archive(rows: Rows, target: Path) -> None:
    summary = archive(rows.spark, {"path": str(rows.data), "subscribe": TOPIC}, str(target))
    assert summary.rows == rows.count, summary


def _write_by_spark(rows: Rows, target: Path) -> None:
    from pyspark.sql.functions import to_date

    frame = (
        rows.spark.read.format("tailrace")
        .option("path", str(rows.data))
        .option("subscribe", TOPIC)
        .option("columns", ",".join(("topic", *LOSSLESS)))
        .load()
    )
    (
        frame.withColumn("date", to_date("timestamp"))
        .write.partitionBy("topic", "date")
        .option("compression", "zstd")
        # PyArrow's, with which the archive is written; Spark's own is 3.
        .option("parquet.compression.codec.zstd.level", "1")
        .parquet(str(target))
    )


def _compact(rows: Rows, path: Path) -> None:
    compact(rows.spark, str(path), topics=[PARTITION.topic], settings=COMPACTED)


def _clean(path: Path) -> None:
    with opened(path) as directory:
        log = directory.open(config=log_config(COMPACTED))
        log.advance_high_watermark(log.end_offset)
        config = CleanerConfig(map_bytes_max=MAP_BYTES, io_bytes_per_second=1e12)
        cleaner = LogCleaner(directory.logs, config, directory.clock)
        while (job := cleaner.next_job()) is not None:
            clean(job)
        assert not cleaner.failures()
        directory.logs.close()


def _record_count(path: Path) -> int:
    with opened(path) as directory:
        log = directory.open(config=log_config(COMPACTED))
        return sum(batch.record_count for batch in log.batches(0))
