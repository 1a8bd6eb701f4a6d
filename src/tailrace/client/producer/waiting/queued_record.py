"""`QueuedRecord`: a record that waits in line for memory or metadata; see `lines`."""

from collections.abc import Callable
from typing import Final

from tailrace.client.producer.intake.record import Prepared
from tailrace.client.producer.outcome import (
    BatchOutcome,
    DeliveryOutcome,
    RecordMetadata,
    Waiting,
)
from tailrace.client.producer.partitioners import NO_PARTITION
from tailrace.model import TopicPartition

QUEUED_MEMORY: Final = 700
"""Bytes that a record in line takes besides its key, value and headers: its receipt, its callbacks,
and its entry in the line (630 were measured for one without callbacks)."""


class QueuedRecord(DeliveryOutcome):
    """The outcome of a record that is in line first, and in a batch later."""

    __slots__ = (
        "deadline",
        "index",
        "is_aside",
        "is_counted",
        "joined",
        "leave",
        "now_ns",
        "prepared",
        "request",
        "size",
    )

    def __init__(
        self,
        prepared: Prepared,
        waiting: Waiting,
        *,
        now_ns: int,
        deadline: float,
        leave: "Callable[[QueuedRecord], None]",
    ) -> None:
        super().__init__(TopicPartition(prepared.record.topic, NO_PARTITION), waiting)
        self.prepared: Prepared | None = prepared
        """The record, while it is in line."""
        self.size = prepared.size
        """Bytes it takes in a batch, at most."""
        self.is_counted = False
        """Its bytes are counted as bytes in line that nobody awaits."""
        self.is_aside = False
        """It is in the line of a partition that is not there."""
        self.request: int | None = None
        """The request for metadata that tells whether that partition has been added; one tells all
        records that were in line before it."""
        self.leave = leave
        """Called when a task begins to await it, and when the last one stops before it is sent."""
        self.deadline = deadline
        """The loop's time at which it fails if it is still in line."""
        self.now_ns = now_ns
        self.joined: BatchOutcome | None = None
        """The outcome of its batch, once it is in one."""
        self.index = 0

    def add_watcher(self, wake: Callable[[], None]) -> None:
        """Note that a task awaits it."""
        super().add_watcher(wake)
        self.leave(self)

    def remove_watcher(self, wake: Callable[[], None]) -> None:
        """Note that a task awaits it no more; without any, it leaves the line."""
        super().remove_watcher(wake)
        if self.prepared is not None and not self.watchers:
            self.leave(self)

    def place_of(self, index: int) -> RecordMetadata:
        """The record's partition, offset and timestamp, as far as known."""
        return super().place_of(index) if self.joined is None else self.joined.place_of(self.index)

    def error_of(self, index: int) -> Exception | None:
        """Return the record's error, or None."""
        return super().error_of(index) if self.joined is None else self.joined.error_of(self.index)
