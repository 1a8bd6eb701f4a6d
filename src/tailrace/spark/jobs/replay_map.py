"""The offset map: where each record of a source is in the target; see docs/formats/offset-map.md.

A row stands for a run of records whose offsets rise by one on both sides, so a record's offset in
the target is exact, and a replay that keeps partitions has few rows.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.kernels.arrays import Int64s
from tailrace.spark.folder import Folder
from tailrace.spark.jobs.replay_plan import PlannedRange

NAME: Final = re.compile(r"topic=[^/]+/\d+-\d{20}-\d{20}\.parquet")
"""Names that a replay gives to its files."""

SCHEMA: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("target_topic", pa.string()),
        ("target_partition", pa.int32()),
        ("target_offset", pa.int64()),
        ("records", pa.int64()),
    ]
)


class Moved(NamedTuple):
    """The records of a range that went to one partition of the target."""

    partition: int
    sources: Int64s
    """Their offsets in the source, rising."""
    targets: Int64s
    """And in the target, rising; -1 for one that was there and is not any more."""


def runs_of(moved: Moved) -> tuple[Int64s, Int64s, Int64s]:
    """First offset in the source, first offset in the target, and records of each run."""
    sources, targets = moved.sources[moved.targets >= 0], moved.targets[moved.targets >= 0]
    is_break = (np.diff(sources) != 1) | (np.diff(targets) != 1)
    starts = np.concatenate(([0], np.flatnonzero(is_break) + 1)).astype(np.int64)
    if not len(sources):
        starts = starts[:0]
    return sources[starts], targets[starts], np.diff(starts, append=len(sources))


def write_map(folder: Folder, name: str, *, planned: PlannedRange, moved: Iterable[Moved]) -> None:
    """The rows of a range, in the order of the source's offsets, as a file that is on the device.

    Raises:
        OSError: it cannot be written.
    """
    tables = [SCHEMA.empty_table()]
    for each in moved:
        sources, targets, counts = runs_of(each)
        columns = {
            "partition": np.full(len(sources), planned.partition),
            "offset": sources,
            "target_topic": [planned.target] * len(sources),
            "target_partition": np.full(len(sources), each.partition),
            "target_offset": targets,
            "records": counts,
        }
        tables.append(pa.table(columns, schema=SCHEMA))
    with folder.sink(name) as sink:
        pq.write_table(pa.concat_tables(tables).sort_by("offset"), sink, compression="zstd")
    folder.seal(name)
