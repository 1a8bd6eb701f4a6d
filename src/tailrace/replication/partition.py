"""A partition on its leader: the checks of leadership around a log.

One node leads every partition and is the only replica, so the high watermark is the log end
offset and `acks=all` is met by the leader's own append.

What the device refuses comes by here on its way to whoever asked: a full disk is told once and may
pass, anything else is the end of the log directory.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tailrace.errors import FatalError, OffsetOutOfRangeError, RetriableError, StorageError
from tailrace.model import NO_LEADER_EPOCH, TopicPartition
from tailrace.replication.device_reads import DeviceReads
from tailrace.replication.waiting import Watched
from tailrace.runtime.files import CutMeanwhileError
from tailrace.storage.appends import PlannedAppend
from tailrace.storage.directories import unusable
from tailrace.storage.log import Appended, Log
from tailrace.storage.manager import is_shortage
from tailrace.storage.positions import ReadLimit
from tailrace.storage.reads import ReadSlice

T = TypeVar("T")

logger = logging.getLogger(__name__)

UP_TO_HIGH_WATERMARK = -1
"""What DeleteRecords sends to have all that can be deleted."""


class FencedLeaderEpochError(RetriableError):
    """The client believes in an older leader epoch: it must refresh its metadata."""


class UnknownLeaderEpochError(RetriableError):
    """The client believes in a newer leader epoch than this broker knows."""


class UnknownPartitionError(RetriableError, LookupError):
    """This broker has no such partition."""


class DeletionPolicyError(FatalError, ValueError):
    """Records of a topic may not be deleted whose `cleanup.policy` does not say so."""


class Partition:
    """One partition that this broker leads."""

    def __init__(self, log: Log, *, on_failure: Callable[[OSError], None]) -> None:
        self.log = log
        self.leader_epoch = max(log.epochs.latest, 0)
        self._on_failure = on_failure
        """Takes the log directory out of service."""
        self._is_refused = False
        """Whether the disk was full the last time."""
        self.appended = Watched()
        """Changes whenever records become readable, and when the partition goes away."""
        self.takes_appends = asyncio.Event()
        """Not set for the short while in which a move completes: who appends waits for it first."""
        self.takes_appends.set()

    @property
    def name(self) -> TopicPartition:
        """Topic and number."""
        return self.log.partition

    def exchange(self, log: Log, *, on_failure: Callable[[OSError], None]) -> None:
        """Serve another log, in another directory, which has all of this one."""
        self.log = log
        self._on_failure = on_failure
        self.appended.changed()

    def append(self, records: memoryview, *, now_ms: int) -> Appended:
        """Append as leader and wake whoever waits for records; raises as `Log.append` does.

        A full disk is told to the operator once, and once again when there is room.
        """
        return self._append(
            lambda: self.log.append(records, leader_epoch=self.leader_epoch, now_ms=now_ms)
        )

    def append_planned(self, planned: PlannedAppend, *, now_ms: int) -> Appended:
        """As `append`, of a batch that `plan_append` has looked at; as `Log.append_planned`."""
        return self._append(
            lambda: self.log.append_planned(planned, leader_epoch=self.leader_epoch, now_ms=now_ms)
        )

    def _append(self, append: Callable[[], Appended]) -> Appended:
        try:
            appended = append()
        except OSError as error:
            self.failed(error)
            raise
        # The only replica in sync is this one.
        self.log.advance_high_watermark(self.log.end_offset)
        if self._is_refused:
            logger.info("append_works_again path=%s", self.log.folder.path)
            self._is_refused = False
        self.appended.changed()
        return appended

    def read(
        self, offset: int, *, bytes_max: int, is_first_whole: bool, limit: ReadLimit
    ) -> ReadSlice:
        """Batches from an offset on, and where the log stands; raises as `Log.read` does.

        On the event loop, which settles at once what a device refuses.
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
        offset: int,
        *,
        bytes_max: int,
        is_first_whole: bool,
        limit: ReadLimit,
    ) -> ReadSlice:
        """As `read`, where the page cache does not have what finds the batches."""
        log, found = await self.look(
            reads,
            lambda log: (
                log,
                log.read(offset, bytes_max=bytes_max, is_first_whole=is_first_whole, limit=limit),
            ),
        )
        return self._owned(log, found)

    async def look(self, reads: DeviceReads, look: Callable[[Log], T]) -> T:
        """What `look` finds in the log, on a worker thread, where it may wait for a device.

        What the device refuses is settled when it is known on the event loop: a thread must not
        close files, and the loop may have closed some under it. If the partition moves to another
        directory meanwhile, `look` is called again with the log there.

        Raises:
            CutMeanwhileError: as `DeviceReads.of_log`.
            CorruptionError, OSError: what `look` raises.
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
        """What was read, whose bytes tell this partition when their device refuses."""
        if found.records is None:
            return found

        def failed(error: OSError) -> None:
            # After a move another directory has the partition, which has nothing to do with it.
            if self.log is log:
                self.failed(error)

        return replace(found, records=found.records.owned(failed))

    def delete_records(self, before_offset: int) -> int:
        """Have the log start at an offset, or at the high watermark for -1; the new log start.

        The files go when retention comes by. On the device with the next checkpoint of log starts.

        Raises:
            DeletionPolicyError: the topic's `cleanup.policy` does not contain `delete`.
            OffsetOutOfRangeError: below -1, or above the high watermark.
            StorageError: the log has failed.
        """
        self.log.check_usable()
        if not self.log.config.is_deleted_from:
            raise DeletionPolicyError(
                f"records of {self.name} cannot be deleted: its cleanup.policy is without delete"
            )
        high_watermark = self.log.positions.high_watermark
        offset = high_watermark if before_offset == UP_TO_HIGH_WATERMARK else before_offset
        if offset < 0:
            raise OffsetOutOfRangeError(
                offset, log_start_offset=self.log.start_offset, log_end_offset=high_watermark
            )
        self.log.raise_log_start(offset)
        return self.log.start_offset

    def check_epoch(self, epoch: int) -> None:
        """Check the leader epoch that a client sent along (KIP-320); -1 is not checked.

        Raises:
            FencedLeaderEpochError: it is older than the partition's.
            UnknownLeaderEpochError: it is newer.
        """
        if epoch == NO_LEADER_EPOCH:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpochError(f"epoch {epoch} is over; it is {self.leader_epoch} now")
        if epoch > self.leader_epoch:
            raise UnknownLeaderEpochError(f"epoch {epoch} is not known; it is {self.leader_epoch}")

    def failed(self, error: OSError) -> None:
        """Act on what the device has refused; of a log that had failed before, that was told.

        On the event loop only: this may close files, and tell the broker that it must stop.
        A read that would have had to wait is no failure, nor is one that met a cut.
        """
        if isinstance(error, StorageError | BlockingIOError | CutMeanwhileError):
            return
        if not is_shortage(error):
            self._on_failure(error)
        elif not self._is_refused:
            logger.error("append_refused reason=%s", unusable(self.log.folder.path, error))
            self._is_refused = True
