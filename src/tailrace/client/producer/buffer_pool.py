"""`BufferPool`: how much memory records that wait may take, and blocks to write batches into.

Two things in one place, since both are bounded by `buffer.memory`: an account of bytes, which
`allocate` takes from and `deallocate` gives back to, and a free list of blocks of `batch.size`
bytes, so that an encoded batch does not cost a new allocation.

Who finds the account empty gets in line with `wait`. The line is served strictly in order, and
nobody takes anything while somebody waits, so that a large request is not starved by small ones.
Waiting itself, on a thread or an event loop, is for the caller: the pool calls back.

Invariant: `available` and what has been granted and not given back add up to `total`.
"""

from collections import deque
from collections.abc import Callable

from tailrace.client.producer.errors import ClosedProducerError
from tailrace.errors import RecordTooLargeError

Granted = Callable[[Exception | None], None]
"""Told None when the bytes are the waiter's, or why they will never be.

Called from within `wait`, `cancel`, `deallocate` or `close`; it may not call the pool itself.
"""


class Waiter:
    """A place in the line."""

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
        """How many are in line."""
        return len(self._line)

    def allocate(self, size: int) -> bool:
        """Take `size` bytes at once; False if they are not there, or others wait for theirs.

        Raises:
            RecordTooLargeError: the pool is smaller than that.
            ClosedProducerError: after `close`.
        """
        self._check(size)
        if self._line or size > self.available:
            return False
        self.available -= size
        return True

    def wait(self, size: int, granted: Granted) -> Waiter:
        """Get in line for `size` bytes; `granted` is called once, unless `cancel` is.

        Raises:
            RecordTooLargeError: the pool is smaller than that.
            ClosedProducerError: after `close`.
        """
        self._check(size)
        waiter = Waiter(size, granted)
        self._line.append(waiter)
        self._serve()
        return waiter

    def cancel(self, waiter: Waiter) -> bool:
        """Leave the line; False if the waiter has its bytes, or its error, already."""
        try:
            self._line.remove(waiter)
        except ValueError:
            return False
        self._serve()
        return True

    def deallocate(self, size: int) -> None:
        """Give bytes back, also after `close`, and serve those who wait."""
        self.available += size
        assert self.available <= self.total, "more was given back than taken"
        self._serve()

    def take_block(self) -> bytearray:
        """A block of `block_size` bytes with anything in it, to be given back or dropped."""
        return self._blocks.pop() if self._blocks else bytearray(self.block_size)

    def give_block(self, block: bytearray) -> None:
        """Keep a block for use again, if it has the right size and there are not too many."""
        if len(block) == self.block_size and len(self._blocks) < self.total // self.block_size:
            self._blocks.append(block)

    def close(self) -> None:
        """Give out nothing more: who waits, and who asks later, gets a `ClosedProducerError`."""
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
