"""`Count`: what a counter in the cluster says, and the names of the counters of a query or job.

A counter is a transactional id that never has a transaction. Its value is the identity that
InitProducerId gave out last: each request raises the epoch by one, and no two callers get the same
value. After epoch 32766 the next value is epoch 0 of another producer id.

    tailrace-WORK            the fencing token: the newest driver's tasks may write
    tailrace-WORK.SLOT       the tickets of a slot: one for each attempt that is about to write
    tailrace-WORK.commits    the batches that were promised; raised before any of it is committed

Not here: the requests (`cluster`), and what the counts decide (`commits`).

Invariant: no counter's name begins as the transactional ids of attempts do, `tailrace-WORK-`, which
the driver fences.
"""

from typing import Final, NamedTuple

PREFIX: Final = "tailrace-"
"""Transactional ids of the sink begin so; a user needs WRITE and DESCRIBE on this prefix."""

EPOCH_LAST: Final = 32766
"""The last epoch of a producer id (Kafka keeps 32767 to fence it)."""


class Count(NamedTuple):
    """A value of a counter."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    def follows(self, before: "Count") -> bool:
        """Whether no other value lies between."""
        if before == NO_COUNT:
            return self.producer_epoch == 0
        if self.producer_id == before.producer_id:
            return self.producer_epoch == before.producer_epoch + 1
        return self.producer_epoch == 0 and before.producer_epoch == EPOCH_LAST


NO_COUNT: Final = Count(-1, -1)
"""There is no such counter, or none any more: brokers forget one after a week without use
(`transactional.id.expiration.ms`)."""


def attempts_prefix(work_id: str) -> str:
    """The beginning of the transactional ids of all attempts."""
    return f"{PREFIX}{work_id}-"


def token_name(work_id: str) -> str:
    """The counter whose newest value the tasks of the newest driver have."""
    return f"{PREFIX}{work_id}"


def tickets_name(work_id: str, slot: int) -> str:
    """The counter that gives each attempt at a slot a number of its own."""
    return f"{PREFIX}{work_id}.{slot}"


def commits_name(work_id: str) -> str:
    """The counter of the batches that were promised."""
    return f"{PREFIX}{work_id}.commits"
