"""A partition on its leader: a log with the checks of leadership.

One node leads every partition and is the only replica, so the high watermark is the log end offset,
and the leader's own append satisfies `acks=all`.

A device error of an append or a read is handled here before the caller gets it: a full disk is
logged once and may recover, any other error takes the log directory out of service.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from tailrace.errors import (
    FatalError,
    OffsetOutOfRangeError,
    RetriableError,
    StorageError,
    TailraceError,
)
from tailrace.model import NO_LEADER_EPOCH, AppendOrigin, LeaderEpoch, Offset, TopicPartition
from tailrace.replication.device_reads import DeviceReads
from tailrace.replication.waiting import Watched
from tailrace.runtime.files import CutMeanwhileError
from tailrace.storage.appends import PlannedAppend
from tailrace.storage.checked_appends import CheckedBatches, append_checked
from tailrace.storage.directories import unusable
from tailrace.storage.epochs import EpochEnd
from tailrace.storage.log import Log, LogAppendInfo, append_built
from tailrace.storage.manager import is_shortage
from tailrace.storage.positions import ReadLimit
from tailrace.storage.reads import ReadSlice
from tailrace.storage.shrink import raise_log_start
from tailrace.storage.verification import VerificationGuard

T = TypeVar("T")

logger = logging.getLogger(__name__)

UP_TO_HIGH_WATERMARK: Final = Offset(-1)
"""The offset in DeleteRecords that means the high watermark."""


class FencedLeaderEpochError(RetriableError):
    """The client sent an older leader epoch: it must refresh its metadata."""


class UnknownLeaderEpochError(RetriableError):
    """The client sent a newer leader epoch than this broker has."""


class UnknownPartitionError(RetriableError, LookupError):
    """This broker has no such partition."""


class DeletionPolicyError(FatalError, ValueError):
    """DeleteRecords for a topic whose `cleanup.policy` is `compact` alone."""


class Partition:
    """One partition that this broker leads."""

    def __init__(self, log: Log, *, on_failure: Callable[[OSError], None]) -> None:
        self.log = log
        # At least that of its last batch; `lead` raises it when the cluster's state is read.
        self.leader_epoch = LeaderEpoch(max(log.epochs.latest, 0))
        self._on_failure = on_failure
        """Takes the log directory out of service."""
        self._is_refused = False
        """Whether the last append failed because the disk was full."""
        self.appended = Watched()
        """Changes when records become readable, and when the partition is closed."""
        self.takes_appends = asyncio.Event()
        """Not set for the short time in which a move completes; appends wait for it."""
        self.takes_appends.set()

    def lead(self, epoch: LeaderEpoch) -> None:
        """Lead in the epoch that the cluster's state has, from the next append on."""
        # The log may have a larger one, from a state that was lost, and epochs in a log only rise.
        self.leader_epoch = max(epoch, self.leader_epoch)

    @property
    def name(self) -> TopicPartition:
        return self.log.partition

    def exchange(self, log: Log, *, on_failure: Callable[[OSError], None]) -> None:
        """Serve the moved copy of the log, in another directory, from now on."""
        # A transaction that was verified before the move begins after it.
        log.producers.continue_verifications(self.log.producers)
        self.log = log
        self._on_failure = on_failure
        self.appended.changed()

    def append(
        self,
        records: memoryview,
        *,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        raises_epoch: bool = False,
    ) -> LogAppendInfo:
        """Append as leader and wake waiting fetches; arguments and errors as of `Log.append`.

        A full disk is logged once, and logged again when an append works.
        """
        return self._append(
            lambda: self.log.append(
                records,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                guard=guard,
                raises_epoch=raises_epoch,
            )
        )

    def append_planned(
        self, planned: PlannedAppend, *, now_ms: int, guard: VerificationGuard | None = None
    ) -> LogAppendInfo:
        """Append, as `append` does, what `plan_append` has checked; see `Log.append_planned`."""
        return self._append(
            lambda: self.log.append_planned(
                planned, leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard
            )
        )

    def append_built(
        self,
        built: memoryview,
        *,
        now_ms: int,
        guard: VerificationGuard | None = None,
        raises_epoch: bool = False,
    ) -> LogAppendInfo:
        """Append, as `append` does, what a coordinator has built; see `log.append_built`."""
        return self._append(
            lambda: append_built(
                self.log,
                built,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                guard=guard,
                raises_epoch=raises_epoch,
            )
        )

    def append_checked(self, batches: CheckedBatches, *, now_ms: int) -> bool:
        """Append batches that a kernel has checked (`storage.checked_appends`).

        False if nothing was appended: `append` handles what is in the way.
        """
        # Errors are not settled here: the general path meets them again, and answers them.
        try:
            is_done = append_checked(self.log, batches, now_ms=now_ms)
        except (TailraceError, OSError):
            return False
        if is_done:
            self._note_appended()
        return is_done

    def _append(self, append: Callable[[], LogAppendInfo]) -> LogAppendInfo:
        try:
            appended = append()
        except OSError as error:
            self.failed(error)
            raise
        self._note_appended()
        return appended

    def _note_appended(self) -> None:
        # The leader is the only in-sync replica, so what it has appended is committed. This is the
        # one place that says so: with followers the high watermark is the smallest log end of the
        # replicas in sync, and moves when they fetch.
        self.log.advance_high_watermark(self.log.end_offset)
        if self._is_refused:
            logger.info("append_recovered path=%s", self.log.folder.path)
            self._is_refused = False
        self.appended.changed()

    def read(
        self, offset: Offset, *, bytes_max: int, is_first_whole: bool, limit: ReadLimit
    ) -> ReadSlice:
        """Batches from an offset on, and the offsets of the log; raises as `Log.read` does.

        On the event loop; a device error is handled at once.
        """
        log = self.log
        try:
            found = log.read(
                offset, bytes_max=bytes_max, is_first_whole=is_first_whole, limit=limit
            )
        except OSError as error:
            self.failed(error)
            raise
        return self._owned(log, found)

    async def read_from_device(
        self,
        reads: DeviceReads,
        offset: Offset,
        *,
        bytes_max: int,
        is_first_whole: bool,
        limit: ReadLimit,
    ) -> ReadSlice:
        """Read as `read` does; on a worker thread if the page cache lacks the index or headers."""
        log, found = await self.look(
            reads,
            lambda log: (
                log,
                log.read(offset, bytes_max=bytes_max, is_first_whole=is_first_whole, limit=limit),
            ),
        )
        return self._owned(log, found)

    async def look(self, reads: DeviceReads, look: Callable[[Log], T]) -> T:
        """The result of `look` on the log, on a worker thread, which may wait for a device.

        A device error is handled on the event loop, because a thread must not close files. If the
        partition moves to another directory meanwhile, `look` is called again with the log there.

        Raises:
            CutMeanwhileError: as `DeviceReads.of_log`.
            CorruptionError, OSError: from `look`.
        """
        while True:
            log = self.log
            try:
                return await reads.of_log(log, partial(look, log))
            except OSError as error:
                if self.log is log:
                    self.failed(error)
                    raise

    def _owned(self, log: Log, found: ReadSlice) -> ReadSlice:
        """The slice, which reports a later device error to this partition."""
        if found.records is None:
            return found

        def failed(error: OSError) -> None:
            # After a move the error concerns the old directory, not the one in use.
            if self.log is log:
                self.failed(error)

        return found._replace(records=found.records.owned(failed))

    def delete_records(self, before_offset: Offset) -> Offset:
        """Raise the log start to an offset, or to the high watermark for -1; returns the log start.

        Retention deletes the files later. On the device with the next checkpoint of log starts.

        Raises:
            DeletionPolicyError: the topic's `cleanup.policy` is `compact` alone.
            OffsetOutOfRangeError: below -1, or above the high watermark.
            StorageError: the log has failed.
        """
        # A failed log must not promise a log start that it cannot save.
        self.log.check_usable()
        config = self.log.config
        if config.is_compacted and not config.is_deleted_from:
            raise DeletionPolicyError(
                f"records of {self.name} cannot be deleted: its cleanup.policy is compact; add "
                "delete to it"
            )
        # Not the log end: a record that may still be lost is not there to be deleted (KIP-107).
        high_watermark = self.log.positions.high_watermark
        offset = high_watermark if before_offset == UP_TO_HIGH_WATERMARK else before_offset
        if offset < 0:
            raise OffsetOutOfRangeError(
                offset, log_start_offset=self.log.start_offset, log_end_offset=high_watermark
            )
        if raise_log_start(self.log, offset):
            path = self.log.folder.path
            logger.info("log_start_raised path=%s offset=%d reason=DeleteRecords", path, offset)
        return self.log.start_offset

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        """Check the leader epoch that a client sent along (KIP-320); -1 is not checked.

        Raises:
            FencedLeaderEpochError: it is older than the partition's.
            UnknownLeaderEpochError: it is newer.
        """
        if epoch == NO_LEADER_EPOCH:
            return  # A client of an old version, or one that does not know the epoch.
        if epoch < self.leader_epoch:
            raise FencedLeaderEpochError(
                f"leader epoch {epoch} is older than the current one, {self.leader_epoch}; refresh "
                "the metadata"
            )
        # The client has newer metadata than this broker, which will catch up: it asks here again.
        if epoch > self.leader_epoch:
            raise UnknownLeaderEpochError(
                f"leader epoch {epoch} is newer than the one of this broker, {self.leader_epoch}"
            )

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        """The newest epoch at or below `epoch`, and where it ends; see `end_offset_for`.

        The leader's own epoch is known, and ends at the log end, before its first record too.
        """
        log_end = self.log.end_offset
        # The leader's own epoch has no entry before its first record.
        if epoch == self.leader_epoch:
            return EpochEnd(epoch, log_end)
        return self.log.epochs.end_offset_for(epoch, log_end=log_end)

    def divergence(self, offset: Offset, last_epoch: LeaderEpoch) -> EpochEnd | None:
        """The end of the last epoch that another log has in common (KIP-595); None: both are equal.

        The other log ends at `offset`, with a record of `last_epoch`; a negative one is not
        checked.

        Raises:
            OffsetOutOfRangeError: this log does not know the epoch, or begins after the offset.
        """
        if last_epoch < 0:
            return None
        end = self.end_of_epoch(last_epoch)
        if end.epoch < 0 or offset < self.log.start_offset:
            raise OffsetOutOfRangeError(
                offset, log_start_offset=self.log.start_offset, log_end_offset=self.log.end_offset
            )
        return end if end.epoch < last_epoch or end.end_offset < offset else None

    def failed(self, error: OSError) -> None:
        """Handle a device error: log a full disk, else take the directory out of service.

        On the event loop only: this may close files and stop the broker. Not a failure: a log that
        had failed before, a read that would have to wait, and a read during a cut.
        """
        if isinstance(error, StorageError | BlockingIOError | CutMeanwhileError):
            return
        # A full disk has not failed: consumers read on, and retention may make room.
        if not is_shortage(error):
            self._on_failure(error)
        elif not self._is_refused:
            logger.error("append_refused reason=%s", unusable(self.log.folder.path, error))
            self._is_refused = True
