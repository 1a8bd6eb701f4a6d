"""`LogWriter`: puts batches of decisions on the device, those of many requests by one flush.

    loop     decide -> state changes -> put(batch) ........ written(offset) -> answer
    thread                     [a b c] -> append, flush -> [d e] -> append, flush
    another thread             a snapshot of the state after some group, for which nobody waits

The state of the controller is ahead of the device by the batches that wait here. No answer and no
observer sees them before their flush, so a crash takes nothing that anybody knows.

A device that fails ends the writer, as does all else for which a group is not written: what the
device has taken of it is not known, and the state cannot go back. The next start reads what is
there.

Invariant: batches reach the log in the order of `put`, and `image` is the state at `watermark`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.cluster.metadata.image import NOTHING_CHANGED, ImageChange, MetadataImage
from tailrace.cluster.metadata.log import MetadataLog
from tailrace.errors import RetriableError
from tailrace.runtime.threads import Threads

if TYPE_CHECKING:
    from tailrace.cluster.metadata.served import ServedMetadataLog

logger = logging.getLogger(__name__)

GROUP_BYTES_MAX: Final = 64 * 1024
"""Most bytes of one flush, so that the first of many decisions does not wait for all of them. They
become one batch, which a broker applies in one step: 500 partitions, some milliseconds."""


class NotWrittenError(RetriableError):
    """The controller ends before the change is known to be on the device; it may be there."""


class _Waiting(NamedTuple):
    """A batch that is decided and not on the device."""

    batch: bytes
    end_offset: int
    image: MetadataImage
    """The state after it."""
    change: ImageChange


class LogWriter:
    """Writes one metadata log, on a thread; for one loop."""

    def __init__(
        self,
        log: MetadataLog,
        threads: Threads,
        *,
        failed: Callable[[Exception], None],
    ) -> None:
        """`failed` is called when a batch could not be written; most often the device refuses."""
        self.served: ServedMetadataLog = log.served()
        self.image = log.image
        """The state that is on the device."""
        self.watermark = log.end_offset
        """The offset after the last record on the device."""
        self.on_written: Callable[[MetadataImage, ImageChange, int], None] = lambda *_: None
        """Called on the loop with the state on the device, what has changed, and its end offset."""
        self._log = log
        self._threads = threads
        self._failed = failed
        self._queue: deque[_Waiting] = deque()
        self._changed = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._snapshot: asyncio.Task[None] | None = None
        """The snapshot that is being written."""
        self._has_snapshot = False
        """Whether one was written since the log was tidied."""
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is written."""
        return self._is_closed

    def put(
        self, batch: bytes, *, end_offset: int, image: MetadataImage, change: ImageChange
    ) -> None:
        """Have a batch written, after those before it; `image` is the state with it.

        Raises:
            NotWrittenError: the writer is closed.
        """
        if self._is_closed:
            raise NotWrittenError("the controller ends")
        self._queue.append(_Waiting(batch, end_offset, image, change))
        self._work()

    async def written(self, end_offset: int) -> None:
        """Wait until all records below an offset are on the device.

        Raises:
            NotWrittenError: the writer has ended before that.
        """
        while self.watermark < end_offset:
            if self._is_closed:
                raise NotWrittenError("the controller has ended before the change was written")
            await self._changed.wait()

    async def changed(self) -> None:
        """Wait for the next flush, or the end of the writer."""
        await self._changed.wait()

    def tidy(self) -> None:
        """Write a snapshot if one is due, beside the groups; then delete what is too old."""
        if not self._is_closed and self._log.is_tidying_due():
            self._work()

    async def close(self) -> None:
        """Write what waits, and take no more."""
        while tasks := [each for each in (self._writing, self._snapshot) if each is not None]:
            await asyncio.wait(tasks)
        self.abandon()

    def abandon(self) -> None:
        """Write no more; a group that a thread has begun may still be written."""
        self._is_closed = True
        self._queue.clear()
        self._wake()

    def _work(self) -> None:
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._queue and not self._is_closed:
                await self._write(self._take_group())
            # After the decisions, which somebody waits for.
            if not self._is_closed:
                await self._tidy_if_due()
        except OSError as error:
            self.abandon()
            self._failed(error)
        finally:
            self._writing = None
        if self._queue and not self._is_closed:
            self._work()

    def _take_group(self) -> Sequence[_Waiting]:
        # All that waits: while a flush takes its time the next group grows by itself.
        group = [self._queue.popleft()]
        size = len(group[0].batch)
        while self._queue and size + len(self._queue[0].batch) <= GROUP_BYTES_MAX:
            group.append(self._queue.popleft())
            size += len(group[-1].batch)
        return group

    async def _write(self, group: Sequence[_Waiting]) -> None:
        last = group[-1]
        batches = [each.batch for each in group]
        try:
            await self._threads.run(lambda: self._log.save(batches, last.image))
        except Exception as error:  # noqa: BLE001 - no group may follow one that is missing
            self.abandon()
            self._failed(error)
        if self._is_closed:
            return
        self.watermark, self.image = last.end_offset, last.image
        change = NOTHING_CHANGED
        for each in group:
            change = change.with_later(each.change)
        self._wake()
        self.on_written(self.image, change, self.watermark)

    async def _tidy_if_due(self) -> None:
        if not self._has_snapshot and not self._log.is_tidying_due():
            return
        # Seconds, with a hundred thousand partitions.
        snapshot = None if self._has_snapshot else self._log.due_snapshot()
        if snapshot is None:
            self._has_snapshot = False
            await self._threads.run(self._tidy)
        elif self._snapshot is None:
            self._snapshot = asyncio.ensure_future(self._save(snapshot))

    async def _save(self, snapshot: Callable[[], None]) -> None:
        try:
            await self._threads.run(snapshot)
            self._has_snapshot = True
        except OSError as error:
            self._not_tidied(error)
        finally:
            self._snapshot = None
        # What is below the snapshot goes, between two groups.
        if self._has_snapshot and not self._is_closed:
            self._work()

    def _tidy(self) -> None:
        try:
            self._log.tidy()
            self.served.look_for_snapshots()
        except OSError as error:
            self._not_tidied(error)

    def _not_tidied(self, error: OSError) -> None:
        # The log is as usable as before; a full disk is noticed by the next decision.
        logger.warning("metadata_not_tidied reason=%s", error)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
