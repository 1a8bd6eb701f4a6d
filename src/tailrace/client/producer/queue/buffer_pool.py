"""`BufferPool`: limits the memory of waiting records, and reuses blocks for encoded batches.

Both are bounded by `buffer.memory`: a count of bytes, from which `allocate` takes and to which
`deallocate` returns, and a free list of blocks of `batch.size` bytes, so that encoding a batch
needs no new allocation.

When no memory is left, `wait` adds a waiter to a queue. Waiters are served strictly in order, and
`allocate` fails while there is one, so that small requests cannot starve a large one. The pool does
not block; it calls `granted`, and the caller blocks its thread or task until then.

Invariant: `available` and the bytes granted and not yet returned add up to `total`.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tailrace.client.producer.errors import ClosedProducerError
from tailrace.errors import RecordTooLargeError

Granted = Callable[[Exception | None], None]
"""Called with None when the bytes are granted, or with the error why they never will be.

Called from within `wait`, `cancel`, `deallocate` or `close`; it may not call the pool itself.
"""


class Waiter:
    """A caller that waits for `size` bytes."""

    __slots__ = ("granted", "size")

    def __init__(self, size: int, granted: Granted) -> None:
        self.size = size
        self.granted = granted


class BufferPool:
    """`total` bytes to give out, and a free list of blocks of `block_size` bytes."""

    def __init__(self, total: int, block_size: int) -> None:
        self.total = total
        self.block_size = block_size
        self.available = total
        """Bytes that are not given out."""
        self._line: deque[Waiter] = deque()
        self._blocks: list[bytearray] = []
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """The number of waiters."""
        return len(self._line)

    def allocate(self, size: int) -> bool:
        """Take `size` bytes at once; False if there are not enough, or there is a waiter.

        Raises:
            RecordTooLargeError: `size` is larger than the pool.
            ClosedProducerError: after `close`.
        """
        self._check(size)
        if self._line or size > self.available:
            return False
        self.available -= size
        return True

    def wait(self, size: int, granted: Granted) -> Waiter:
        """Wait for `size` bytes; `granted` is called once, unless `cancel` is called first.

        Raises:
            RecordTooLargeError: `size` is larger than the pool.
            ClosedProducerError: after `close`.
        """
        self._check(size)
        waiter = Waiter(size, granted)
        self._line.append(waiter)
        self._serve()
        return waiter

    def cancel(self, waiter: Waiter) -> bool:
        """Stop waiting; False if `granted` was called already."""
        try:
            self._line.remove(waiter)
        except ValueError:
            return False
        self._serve()
        return True

    def deallocate(self, size: int) -> None:
        """Return bytes, also after `close`, and serve waiters."""
        self.available += size
        assert self.available <= self.total, "more was given back than taken"
        self._serve()

    @contextmanager
    def returning(self, granted: int) -> Iterator[None]:
        """Return `granted` bytes if the block raises."""
        try:
            yield
        except BaseException:
            self.deallocate(granted)
            raise

    def take_block(self) -> bytearray:
        """A block of `block_size` bytes with any content; give it back or drop it."""
        return self.take_used_block() or bytearray(self.block_size)

    def take_used_block(self) -> bytearray | None:
        """A block that was given back, or None if there is none."""
        return self._blocks.pop() if self._blocks else None

    def give_block(self, block: bytearray) -> None:
        """Keep a block for reuse, if it has the right size and there are not too many."""
        if len(block) == self.block_size and len(self._blocks) < self.total // self.block_size:
            self._blocks.append(block)

    def close(self) -> None:
        """Grant nothing more: waiters and later callers get a `ClosedProducerError`."""
        self._is_closed = True
        self._blocks.clear()
        line, self._line = self._line, deque()
        for waiter in line:
            waiter.granted(ClosedProducerError("the producer was closed while a record waited"))

    def _check(self, size: int) -> None:
        if self._is_closed:
            raise ClosedProducerError("the producer is closed")
        if size > self.total:
            raise RecordTooLargeError(size, limit=self.total, setting="buffer.memory")

    def _serve(self) -> None:
        while self._line and self._line[0].size <= self.available:
            waiter = self._line.popleft()
            self.available -= waiter.size
            waiter.granted(None)
