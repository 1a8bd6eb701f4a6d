"""Errors of logs that are gone while a query reads them, and reports of damage that is skipped.

The names of errors follow Spark's. With `onCorruption=skip` each task writes what it leaves out as
lines of JSON:

    {"topic": "flights", "partition": 0, "file": "…/00000000000000000000.log", "position": 1204,
     "first_offset": 10, "next_offset": 20, "reason": "the stored CRC-32C is 1, the bytes have 2",
     "records": 10, "size_bytes": 645}

Offsets from `first_offset` up to below `next_offset` have no row; `records` is how many records
they had, markers of transactions included, and null if nobody knows. The driver writes a file too,
about what is damaged at the end of a log: no task reads there, and `next_offset` is null.

Not here: whether a loss is an error (`failOnDataLoss`), and how a stream finds one (`progress`).

Invariant: a report has the name of what it is about, so a task that runs again writes its own once
more, and nobody else's.
"""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.reading.located import Skipped
from tailrace.spark.planning import OffsetRange

logger = logging.getLogger(__name__)

LOST: Final = "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE]"
"""Spark's name for a range that cannot be read any more."""

GONE: Final = "[KAFKA_DATA_LOSS.PARTITIONS_DELETED]"
"""Spark's name for a partition that is not there any more."""

TopicIds = Mapping[TopicPartition, UUID]
"""The topic ids of partitions, as far as their logs have them."""


class PartitionGoneError(FatalError):
    """A partition is gone; `failOnDataLoss=false` continues without it."""


def lost(
    wanted: OffsetRange, reason: str, *, where: str, fails_on_data_loss: bool = True
) -> FatalError:
    """The error for a range that was there when the query was planned and is not any more."""
    advice = (
        "Load again, or set failOnDataLoss=false to read what is there"
        if fails_on_data_loss
        else "Load again when the log keeps still"
    )
    return FatalError(
        f"{LOST} {where}: offsets {wanted.start} to {wanted.limit} were planned, but {reason}; "
        f"retention or compaction may have been at work. {advice}"
    )


def warn_of_skipped(wanted: OffsetRange, start: int, limit: int, *, where: str) -> None:
    """Log the part of a range between two offsets that is gone, if there is one."""
    start, limit = max(start, wanted.start), min(limit, wanted.limit)
    if start < limit:
        logger.warning(
            "Skipped: %s %s: offsets %d to %d were planned, of which %d to %d are gone: %d offsets",
            LOST, where, wanted.start, wanted.limit, start, limit, limit - start,
        )  # fmt: skip


def gone(partition: TopicPartition, where: str) -> PartitionGoneError:
    return PartitionGoneError(
        f"{GONE} {where}: {partition} is gone; failOnDataLoss=false continues without it"
    )


def is_other_topic(known: UUID | None, found: UUID | None) -> bool:
    """Whether two topics of one name are not the same; without both ids nobody knows."""
    return known is not None and found is not None and known != found


def report_name(first: OffsetRange) -> str:
    """The file of a task that begins with this range."""
    return f"{first.partition}-{first.start:020}.jsonl"


def write_report(directory: str, name: str, skipped: Sequence[Skipped]) -> None:
    """Write a report, over an older one of that name; none if nothing was skipped.

    `directory` is a path, or a URI that PyArrow's file systems know.

    Raises:
        OSError: the directory cannot be made or written to.
    """
    if not skipped:
        return
    from pyarrow import fs

    # PyArrow refuses a relative path as a URI.
    uri = directory if "://" in directory else os.path.abspath(directory)
    system, path = fs.FileSystem.from_uri(uri)
    system.create_dir(path, recursive=True)
    with system.open_output_stream(f"{path}/{name}") as stream:
        for partition, *rest in skipped:
            line = partition._asdict() | dict(zip(Skipped._fields[1:], rest, strict=True))
            stream.write(json.dumps(line).encode() + b"\n")
