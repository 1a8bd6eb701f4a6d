"""`MemoryPartitionLog`: a coordinator's partition in memory, whose commits can be late."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.shard import StoredBatches
from tailrace.model import TopicPartition
from tailrace.records.batch import Batch, stamp
from tailrace.records.untaken import TakeBatches
from tailrace.storage.verification import VerificationGuard

T = TypeVar("T")


class MemoryPartitionLog:
    """A partition of a coordinator's topic; another one can start on the batches of `content`."""

    def __init__(self, partition: TopicPartition, content: tuple[bytes, ...] = ()) -> None:
        self.partition = partition
        self.content = list(content)
        """The batches, as they are in the log."""
        self.refusal: Exception | None = None
        """The error that appends raise; None: they succeed."""
        self.is_free = asyncio.Event()
        """Not set while appends have to wait."""
        self.is_free.set()
        self.seconds_per_read = 0.0
        """Virtual time that a read takes."""
        self._held: asyncio.Future[None] | None = None

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return Batch(memoryview(self.content[-1])).last_offset + 1 if self.content else 0

    @property
    def commits_at_once(self) -> bool:
        """Whether it is free, and no commit is held."""
        return self.is_free.is_set() and self._held is None

    def wait_until_free(self) -> Awaitable[object] | None:
        """An awaitable for `is_free`; None: it is set."""
        return None if self.is_free.is_set() else self.is_free.wait()

    def begin_verification(
        self, producer: TransactionalProducer, *, begins_at_zero: bool
    ) -> VerificationGuard | None:
        """None: this log lets every transaction begin."""

    def append(
        self,
        batch: bytearray,
        *,
        guard: VerificationGuard | None = None,  # noqa: ARG002 - as above
        raises_epoch: bool = False,  # noqa: ARG002 - it has no state of producers
    ) -> int:
        """Append one batch; returns its base offset.

        Raises:
            Exception: `refusal`, if it is set; nothing is appended.
        """
        if self.refusal is not None:
            raise self.refusal
        offset = self.end_offset
        stamp(memoryview(batch), base_offset=offset, leader_epoch=0)
        self.content.append(bytes(batch))
        return offset

    def hold_commits(self) -> None:
        """Leave what is appended from now on uncommitted, until `commit` or `lose`."""
        self._held = asyncio.get_running_loop().create_future()

    def commit(self) -> None:
        """Commit everything."""
        assert self._held is not None
        self._held.set_result(None)
        self._held = None

    def lose(self, error: Exception) -> None:
        """Tell everyone who waits that it will never be committed."""
        assert self._held is not None
        self._held.set_exception(error)
        self._held = None

    def committed(self) -> "asyncio.Future[None] | None":
        """An awaitable that ends at `commit` or `lose`; None: all records are committed."""
        return None if self._held is None else asyncio.shield(self._held)

    async def read(self, replay: Callable[[StoredBatches], T]) -> T:
        """The result of `replay` on all batches, after `seconds_per_read`."""
        await asyncio.sleep(self.seconds_per_read)
        views = [memoryview(each) for each in self.content]

        def untaken(take: TakeBatches) -> Iterator[Batch]:
            return (Batch(view) for view in views if take(view, 0) < len(view))

        return replay(StoredBatches(sum(map(len, views)), untaken))
