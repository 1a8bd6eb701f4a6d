"""`OpenBatch`: the batch of a partition that records are appended to.

Records are encoded as they come, so it keeps none of the caller's objects. `append` adds one on any
thread: the compiled kernel in a single step of the interpreter, or, in a batch that was opened
before the kernels were loaded, plain Python inside of the gate (`gate`).

Not here: which batch a record goes to (`accumulator`), and memory (`supply`).

Invariant: a record is in the batch as a whole, before the batch is sealed, or not at all.
"""

from typing import TYPE_CHECKING

from tailrace import kernels
from tailrace.client.producer.intake.encoding import (
    TIMESTAMP_SIZE,
    append_plainly,
    new_state,
    set_limit,
    state_of,
    timestamps_of,
)
from tailrace.client.producer.intake.record import Prepared
from tailrace.client.producer.outcome import BatchOutcome
from tailrace.client.producer.queue.gate import Gate
from tailrace.client.producer.queue.sealed_batch import EncodedRecords, SealedBatch
from tailrace.kernels.encoding import KEY_NULL, NOW, VALUE_NULL, append_record
from tailrace.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

_APPENDED_PER_WALKED = 2
"""Records that plain Python appends in the time in which it decodes one."""


class OpenBatch:
    """Records of one partition, and room for more."""

    __slots__ = (
        "append",
        "append_inside",
        "block",
        "count_limit",
        "created_at",
        "outcome",
        "reserved",
        "size_limit",
        "size_max",
        "state",
    )

    def __init__(
        self,
        outcome: BatchOutcome,
        *,
        created_at: float,
        size_limit: int,
        size_max: int,
        count_limit: int,
        reserved: int,
        gate: Gate,
        block: bytearray | None = None,
    ) -> None:
        """`block` is memory to use again, of at least `size_limit` bytes."""
        self.outcome = outcome
        self.created_at = created_at
        """Monotonic seconds; `delivery.timeout.ms` counts from here."""
        self.size_limit = size_limit
        """Bytes before compression for which memory is reserved."""
        self.size_max = size_max
        """Bytes that it may grow to."""
        self.count_limit = count_limit
        """Records for which memory is reserved."""
        self.reserved = reserved
        """Bytes taken from the buffer pool."""
        self.block = bytearray(size_limit) if block is None else block
        self.state = new_state(limit=size_limit, count_limit=count_limit)
        self.append_inside: Callable[..., int] = append_plainly
        """`append`, for callers that hold the gate."""
        self.append: Callable[..., int] = gate.append_plainly
        """Adds a record, with the parameters of the kernel `append_record`; returns its index, or
        `NO_ROOM` if there is no room, the batch is sealed, or the gate is held."""
        if append_record.is_compiled:
            self.append = self.append_inside = append_record.run

    @property
    def partition(self) -> TopicPartition:
        """The partition of all its records."""
        return self.outcome.partition

    @property
    def record_count(self) -> int:
        """Number of records until now."""
        return state_of(self.state).record_count

    @property
    def size(self) -> int:
        """Size in bytes of the batch until now, before compression."""
        return state_of(self.state).position

    def append_prepared(self, prepared: Prepared, now_ns: int) -> int:
        """Add a record and return its index, or `NO_ROOM`; inside of the gate."""
        key, value, timestamp = prepared.key, prepared.value, prepared.record.timestamp
        nulls = KEY_NULL * (key is None) | VALUE_NULL * (value is None)
        return self.append_inside(
            value or b"", key or b"", prepared.headers, self.block, self.state, nulls,
            NOW if timestamp is None else timestamp, now_ns, 1,
        )  # fmt: skip

    def grow(self, *, size_limit: int, count_limit: int) -> None:
        """Have room for so many bytes and records; memory is reserved already."""
        more = size_limit - len(self.block)
        if more > 0:
            self.block += bytes(more)
        self.state += bytes(TIMESTAMP_SIZE * (count_limit - self.count_limit))
        self.size_limit, self.count_limit = size_limit, count_limit
        set_limit(self.state, size_limit)

    def seal(self) -> SealedBatch:
        """The batch as it is sent; from now on no record gets into it. Inside of the gate."""
        set_limit(self.state, 0)
        found = state_of(self.state)
        if self.append_inside is append_plainly:
            kernels.add_plain_records(found.record_count // _APPENDED_PER_WALKED)
        self.outcome.timestamps = timestamps_of(self.state)
        return SealedBatch(
            outcome=self.outcome,
            records=EncodedRecords(
                self.block,
                stop=found.position,
                record_count=found.record_count,
                base_timestamp=found.base_timestamp,
                max_timestamp=found.max_timestamp,
            ),
            record_count=found.record_count,
            size=found.position,
            created_at=self.created_at,
            reserved=self.reserved,
        )
