"""Write what `onCorruption=skip` leaves out as JSON lines, one file for each task.

    {"topic": "flights", "partition": 0, "file": "…/00000000000000000000.log", "position": 1204,
     "first_offset": 10, "next_offset": 20, "reason": "the stored CRC-32C is 1, the bytes have 2",
     "records": 10, "size_bytes": 645}

Offsets from `first_offset` up to below `next_offset` have no row; `records` is how many records
they had, markers of transactions included, and null if nobody knows. The driver writes a file too,
about what is damaged at the end of a log: no task reads there, and `next_offset` is null.

Invariant: a file has the name of what it reports on, so a task that runs again writes its own once
more, and nobody else's.
"""

import json
import os
from collections.abc import Sequence

from tailrace.reading.located import Skipped
from tailrace.spark.planning import OffsetRange


def report_name(first: OffsetRange) -> str:
    """The file of a task that begins with this range."""
    return f"{first.partition}-{first.start:020}.jsonl"


def write_report(directory: str, name: str, skipped: Sequence[Skipped]) -> None:
    """Write a report, over an older one of that name; nothing without anything to tell.

    `directory` is a path, or a URI that PyArrow's file systems know.

    Raises:
        OSError: the directory cannot be made or written to.
    """
    if not skipped:
        return
    from pyarrow import fs

    uri = directory if "://" in directory else os.path.abspath(directory)
    system, path = fs.FileSystem.from_uri(uri)
    system.create_dir(path, recursive=True)
    with system.open_output_stream(f"{path}/{name}") as stream:
        for partition, *rest in skipped:
            line = partition._asdict() | dict(zip(Skipped._fields[1:], rest, strict=True))
            stream.write(json.dumps(line).encode() + b"\n")
