"""`OpenBatch`: the batch of a partition that records are appended to.

It holds references to the caller's objects, in columns: values and times, and keys, headers and
timestamps only once there are any. It changes only inside of the gate (`gate`), and not any more
once it is sealed.

Not here: which batch a record goes to (`accumulator`), and memory (`supply`).
"""

from typing import Final

from tailrace.client.producer.intake.record import Prepared
from tailrace.client.producer.outcome import BatchOutcome, DeliveryCallback
from tailrace.client.producer.queue.sealed_batch import RecordColumns, SealedBatch
from tailrace.model import TopicPartition

RECORD_MEMORY: Final = 100
"""Bytes that a waiting record takes besides its key, value and headers: two Python objects and
their slots in the columns."""


class OpenBatch:
    """Records of one partition, and room for more."""

    __slots__ = (
        "bytes_left",
        "count_limit",
        "created_at",
        "explicit",
        "headers",
        "keys",
        "outcome",
        "reserved",
        "size_limit",
        "size_max",
        "times",
        "values",
    )

    def __init__(
        self,
        outcome: BatchOutcome,
        *,
        created_at: float,
        overhead: int,
        size_limit: int,
        size_max: int,
        count_limit: int,
        reserved: int,
    ) -> None:
        self.outcome = outcome
        self.created_at = created_at
        """Monotonic seconds; `delivery.timeout.ms` counts from here."""
        self.size_limit = size_limit
        """Bytes before compression for which memory is reserved."""
        self.bytes_left = size_limit - overhead
        """Unused part of `size_limit`."""
        self.size_max = size_max
        """Bytes that it may grow to."""
        self.count_limit = count_limit
        """Records for which memory is reserved."""
        self.reserved = reserved
        """Bytes taken from the buffer pool."""
        self.values: list[bytes | None] = []
        self.times: list[float] = []
        """Wall clock seconds at `send`."""
        self.keys: list[bytes | None] | None = None
        """Up to the last record that has a key; None if none has."""
        self.headers: dict[int, bytes] | None = None
        """Encoded with their count, by index."""
        self.explicit: dict[int, int] | None = None
        """Timestamps that callers gave, in ms, by index."""

    @property
    def partition(self) -> TopicPartition:
        """The partition of all its records."""
        return self.outcome.partition

    @property
    def record_count(self) -> int:
        """Number of records until now."""
        return len(self.values)

    @property
    def size(self) -> int:
        """Upper bound of the encoded size of the records until now, in bytes."""
        return self.size_limit - self.bytes_left

    def append(self, prepared: Prepared, wall_s: float) -> int:
        """Add a record and return its index; the caller has checked that there is room."""
        index = len(self.values)
        if prepared.key is not None:
            self.add_key(index, prepared.key)
        self.add_rare(index, headers=prepared.headers, timestamp=prepared.record.timestamp)
        self.times.append(wall_s)
        self.values.append(prepared.value)
        self.bytes_left -= prepared.size
        return index

    def add_key(self, index: int, key: bytes) -> None:
        """Set the key of the record that is being added."""
        keys = self.keys
        if keys is None:
            keys = self.keys = []
        if len(keys) < index:
            keys.extend([None] * (index - len(keys)))
        keys.append(key)

    def add_rare(
        self,
        index: int,
        *,
        headers: bytes,
        timestamp: int | None,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """Set the fields of the record that is being added which most records do not have."""
        if headers:
            if self.headers is None:
                self.headers = {}
            self.headers[index] = headers
        if timestamp is not None:
            if self.explicit is None:
                self.explicit = {}
            self.explicit[index] = timestamp
        if on_delivery is not None:
            self.outcome.callbacks.append((index, on_delivery))

    def remove_partial_append(self) -> None:
        """Remove a record that an interrupted `append` has added in part.

        A record is complete once its value is in `values`.
        """
        count = len(self.values)
        del self.times[count:]
        if self.keys is not None:
            del self.keys[count:]
        for sparse in (self.headers, self.explicit):
            if sparse is not None:
                sparse.pop(count, None)
        # Not by position: another thread may be adding the callback of an earlier record.
        callbacks = self.outcome.callbacks
        for each in [each for each in callbacks if each[0] >= count]:
            callbacks.remove(each)

    def seal(self) -> SealedBatch:
        """The batch as it is sent; no record may be appended after that."""
        count = len(self.values)
        if self.keys is not None:
            self.keys.extend([None] * (count - len(self.keys)))
        self.outcome.times, self.outcome.explicit = self.times, self.explicit
        return SealedBatch(
            outcome=self.outcome,
            records=RecordColumns(
                self.values, self.times, self.keys, headers=self.headers, explicit=self.explicit
            ),
            record_count=count,
            size=self.size,
            created_at=self.created_at,
            reserved=self.reserved,
        )
