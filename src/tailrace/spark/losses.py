"""Errors of a query whose logs no longer have what it was to read; names follow Spark's.

Not here: whether a loss is an error (`failOnDataLoss`), and how a stream finds one (`progress`).
"""

import logging
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from tailrace.errors import FatalError
from tailrace.model import TopicPartition
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
    """The error for a partition that was there before, and is not any more."""
    return PartitionGoneError(
        f"{GONE} {where}: {partition} is gone; failOnDataLoss=false continues without it"
    )


def is_other_topic(known: UUID | None, found: UUID | None) -> bool:
    """Whether two topics of one name are not the same; without both ids nobody knows."""
    return known is not None and found is not None and known != found
