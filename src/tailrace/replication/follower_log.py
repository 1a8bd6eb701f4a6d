"""A partition's log on a follower: what it asks of the leader, and what it does with the answer.

    position ─► Fetch ─► records            append, high watermark, log start
                     ├─► diverging epoch    cut where both logs are equal (KIP-101, KIP-595)
                     └─► out of range       begin where the leader's log begins, or cut to its end

Kafka's `ReplicaFetcherThread` for one partition, without requests and without time. Cuts are
generators of device steps (`storage.shrink`); after one the caller writes the checkpoints of the
directory before anything is appended.

Invariant: below the high watermark the log is a part of the leader's, and only an unclean election,
or a leader whose log begins later, takes anything away from there, which is logged.
"""

import logging
from typing import NamedTuple

from tailrace.errors import FatalError
from tailrace.model import LeaderEpoch, Offset
from tailrace.storage.appends import UnexpectedAppendOffsetError
from tailrace.storage.epochs import UNKNOWN_END, EpochEnd
from tailrace.storage.log import Log
from tailrace.storage.shrink import DeviceSteps, raise_log_start, restart, truncation

logger = logging.getLogger(__name__)


class FetchPosition(NamedTuple):
    """The end of a follower's log, as its Fetch says."""

    offset: Offset
    last_epoch: LeaderEpoch
    """The leader epoch of its last record; -1: it has none, or none with an epoch."""
    log_start: Offset


class FetchedPartition(NamedTuple):
    """The answer of a leader for a partition."""

    records: memoryview
    high_watermark: int
    log_start: int


class MisplacedAnswerError(FatalError):
    """The answer is for another log end than the log has: it was cut or appended to meanwhile."""


class UnfoundedCutError(FatalError):
    """The leader says that the logs differ, and names no offset or epoch that this log has."""


class EarlyBatchError(FatalError):
    """The leader's log begins inside of the first batch (DeleteRecords), and this log is empty.

    To be appended after `storage.shrink.restart` at `first_offset`.
    """

    def __init__(self, first_offset: Offset) -> None:
        self.first_offset = first_offset
        super().__init__(f"the first batch begins at offset {first_offset}, before this log")


def position_of(log: Log) -> FetchPosition:
    return FetchPosition(log.end_offset, log.epochs.latest, log.start_offset)


def _check_place(log: Log, asked: FetchPosition) -> None:
    # An answer that comes late, or twice, may fit the leader's epoch and not the log. Where offset
    # and epoch are the same again, so is all before them, and it is as good as new.
    now = position_of(log)
    if now[:2] != asked[:2]:
        raise MisplacedAnswerError(
            f"asked for offset {asked.offset} after epoch {asked.last_epoch}, and the log ends at "
            f"{now.offset} after epoch {now.last_epoch}"
        )


def append_fetched(
    log: Log, fetched: FetchedPartition, *, asked: FetchPosition, epoch: LeaderEpoch, now_ms: int
) -> int:
    """Append what a leader of `epoch` has sent; returns how many bytes of it count.

    `asked` is the position that it was asked with.

    Raises:
        MisplacedAnswerError: the log ends elsewhere by now; nothing has changed.
        EarlyBatchError: the log has to be restarted first; nothing has changed.
        CorruptionError, InvalidRecordError, RecordTooLargeError, UnexpectedAppendOffsetError: the
            bytes are no batches that can follow; the log is unchanged.
        OSError: as `Log.append`.
    """
    _check_place(log, asked)
    size_before = log.size
    try:
        log.append_as_follower(fetched.records, now_ms=now_ms, epoch_max=epoch)
    except UnexpectedAppendOffsetError as error:
        if log.end_offset == log.start_offset and error.last_offset >= log.end_offset:
            raise EarlyBatchError(Offset(error.first_offset)) from error
        raise
    log.advance_high_watermark(min(fetched.high_watermark, log.end_offset))
    # The leader's log start is at most its high watermark, and this log may not be there yet.
    raise_log_start(log, min(fetched.log_start, log.positions.high_watermark))
    return log.size - size_before


def cut_diverged(
    log: Log, leader: EpochEnd, *, asked: FetchPosition, fallback: Offset
) -> DeviceSteps:
    """Cut the log after the last record that both logs have, by what the leader says of its epochs.

    `leader` is the leader's newest epoch at or below the last one in `asked`, and its end there.
    `fallback` is the offset to cut to where the leader knows no such epoch: what was the high
    watermark when this log began to follow. Where the epochs here do not reach so far back, the
    next answer may say again that the logs diverge.

    Raises:
        MisplacedAnswerError: the log ends elsewhere by now; nothing has changed.
        UnfoundedCutError: nothing would go, so that the next answer would be the same.
        OSError: the device refused; the log refuses every further call.
    """
    _check_place(log, asked)
    offset = min(fallback, log.end_offset)
    if leader.end_offset >= 0:
        offset = log.epochs.divergence(leader, log_end=log.end_offset)
    entries = log.epochs.entries
    # An epoch without a record, in which this broker has led for a moment, is something to cut.
    is_cut = offset < log.end_offset or (entries and entries[-1].start_offset >= log.end_offset)
    if not is_cut and leader != UNKNOWN_END:
        raise UnfoundedCutError(
            f"the leader says that its log differs from offset {leader.end_offset} of epoch "
            f"{leader.epoch} on, and this log ends at {log.end_offset} with epoch "
            f"{log.epochs.latest}"
        )
    if offset < log.positions.high_watermark:
        _tell_lost(log, offset)
    if offset < log.end_offset:
        logger.info(
            "log_cut path=%s offset=%d log_end=%d leader_epoch=%d leader_end=%d",
            log.folder.path, offset, log.end_offset, leader.epoch, leader.end_offset,
        )  # fmt: skip
    return truncation(log, offset)


def _tell_lost(log: Log, offset: int) -> None:
    """Say that records go which were acknowledged."""
    logger.warning(
        "committed_records_cut path=%s offset=%d high_watermark=%d reason=the leader does not "
        "have them, after an unclean election",
        log.folder.path, offset, log.positions.high_watermark,
    )  # fmt: skip


def settle_range(
    log: Log, *, leader_start: int, leader_end: int, asked: FetchPosition
) -> DeviceSteps | None:
    """Bring the log end into the leader's range, which it is out of; None: it is not any more.

    Raises:
        MisplacedAnswerError: the log ends elsewhere by now; nothing has changed.
        OSError: the device refused; the log refuses every further call.
    """
    _check_place(log, asked)
    if leader_end < log.end_offset:
        # As Kafka: without epochs to compare by, offsets decide. Only after an unclean election.
        if leader_end < log.positions.high_watermark:
            _tell_lost(log, leader_end)
        logger.warning(
            "log_cut path=%s offset=%d log_end=%d reason=the leader's log ends there",
            log.folder.path, leader_end, log.end_offset,
        )  # fmt: skip
        return truncation(log, leader_end)
    if leader_start > log.end_offset:
        # The leader has deleted what would come next.
        logger.info(
            "log_restarted path=%s offset=%d log_end=%d reason=the leader's log begins there",
            log.folder.path, leader_start, log.end_offset,
        )  # fmt: skip
        return restart(log, leader_start)
    return None
