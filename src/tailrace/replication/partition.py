"""A partition on its leader: the checks of leadership around a log.

One node leads every partition and is the only replica, so the high watermark is the log end
offset and `acks=all` is met by the leader's own append.
"""

import logging

from tailrace.errors import RetriableError
from tailrace.model import NO_LEADER_EPOCH, TopicPartition
from tailrace.replication.waiting import Watched
from tailrace.storage.directories import unusable
from tailrace.storage.log import Appended, Log

logger = logging.getLogger(__name__)


class FencedLeaderEpochError(RetriableError):
    """The client believes in an older leader epoch: it must refresh its metadata."""


class UnknownLeaderEpochError(RetriableError):
    """The client believes in a newer leader epoch than this broker knows."""


class Partition:
    """One partition that this broker leads."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.leader_epoch = max(log.epochs.latest, 0)
        self._is_refused = False
        """Whether the device took no record the last time."""
        self.appended = Watched()
        """Changes whenever records become readable, and when the partition goes away."""

    @property
    def name(self) -> TopicPartition:
        """Topic and number."""
        return self.log.partition

    def append(self, records: memoryview, *, now_ms: int) -> Appended:
        """Append as leader and wake whoever waits for records; raises as `Log.append` does.

        A device that refuses is told to the operator once, and once again when it takes records.
        """
        try:
            appended = self.log.append(records, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except OSError as error:
            if not self._is_refused:
                logger.error("append_refused reason=%s", unusable(self.log.directory, error))  # noqa: TRY400 - the trace says nothing
            self._is_refused = True
            raise
        if self._is_refused:
            logger.info("append_works_again path=%s", self.log.directory)
            self._is_refused = False
        self.appended.changed()
        return appended

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
