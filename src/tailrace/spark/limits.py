"""Limits the part of a stream's backlog that one micro-batch takes; pure.

    maxOffsetsPerTrigger   divided in proportion to the backlogs, rounded down; a partition that
                           has a backlog gets at least one offset (the rule of Spark's Kafka source)
    maxBytesPerTrigger     divided in proportion to the bytes of the backlogs, likewise; with both,
                           a partition gets the lesser of the two
    minOffsetsPerTrigger   no batch until there are that many, or `maxTriggerDelay` has passed since
                           the last batch; the first batch of a run is not held back

Not here: finding out what the backlog is (`streaming`), and reading the options (`options`).

Invariant: a capped backlog begins where it began, ends no later than it did, and is empty only if
it was, so that a stream always comes to its end.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import TypeAlias

from tailrace.model import TopicPartition
from tailrace.values import dataclass

DELAY_MS_DEFAULT = 900_000
"""`maxTriggerDelay` of Spark's Kafka source: fifteen minutes."""

Backlog: TypeAlias = Mapping[TopicPartition, tuple[int, int]]
"""The next offset to read and the log's end offset, by partition."""

SizeBetween: TypeAlias = Callable[[TopicPartition, int, int], int]
"""About how many bytes the log has from an offset to a limit; never less for a higher limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Limits for the size of a micro-batch; None is no limit."""

    offsets_max: int | None = None
    """`maxOffsetsPerTrigger`: at most that many offsets, over all partitions."""
    offsets_min: int | None = None
    """`minOffsetsPerTrigger`: wait until there are that many, or the delay is over."""
    bytes_max: int | None = None
    """`maxBytesPerTrigger`: about that many bytes of log, over all partitions."""
    trigger_delay_ms: int = DELAY_MS_DEFAULT
    """`maxTriggerDelay`: longest wait for `offsets_min`."""

    @property
    def is_any(self) -> bool:
        """Whether there is a limit at all."""
        limits = (self.offsets_max, self.offsets_min, self.bytes_max)
        return any(limit is not None for limit in limits)


def is_worth_a_batch(limits: RateLimits, backlog: Backlog, *, waited_ms: float | None) -> bool:
    """Whether there is enough to read; `waited_ms` since the last batch, None if there was none."""
    if limits.offsets_min is None or waited_ms is None or waited_ms >= limits.trigger_delay_ms:
        return True
    return sum(limit - start for start, limit in backlog.values()) >= limits.offsets_min


def cap_offsets(backlog: Backlog, offsets_max: int) -> dict[TopicPartition, tuple[int, int]]:
    """The part of a backlog that has about `offsets_max` offsets."""
    return cap_bytes(backlog, offsets_max, size_between=lambda _, start, limit: limit - start)


def cap_bytes(
    backlog: Backlog, bytes_max: int, *, size_between: SizeBetween
) -> dict[TopicPartition, tuple[int, int]]:
    """The part of a backlog that has about `bytes_max` bytes."""
    sizes = {each: size_between(each, *span) for each, span in backlog.items()}
    total = sum(sizes.values())
    if total <= bytes_max:
        return dict(backlog)
    capped = {}
    for partition, (start, limit) in backlog.items():
        share = bytes_max * sizes[partition] // total
        count = bisect_right(
            range(start + 1, limit + 1),
            share,
            key=lambda end: size_between(partition, start, end),
        )
        capped[partition] = start, min(start + max(count, 1), limit)
    return capped
