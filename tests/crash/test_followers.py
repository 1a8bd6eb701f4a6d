"""A follower dies at every file operation; the next start opens its log and follows on.

The leader changes while it follows: records that the new leader lacks are cut, and the log is
restarted where the leader's begins later. Whatever the crash leaves, the log is a part of one that
some leader had, and ends equal to the leader's.
"""

import contextlib
import random
import uuid
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tailrace.model import NO_LEADER_EPOCH, LeaderEpoch, Offset
from tailrace.replication.follower_log import (
    EarlyBatchError,
    FetchedPartition,
    FetchPosition,
    append_fetched,
    cut_diverged,
    position_of,
    settle_range,
)
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.epochs import EpochEnd
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit
from tailrace.storage.shrink import raise_log_start, restart, take_steps, truncate_to
from tailrace.testing import MemoryFiles, ProcessKilledError
from tests.crash.workloads import CONFIG, IDS, ONE, crash_all_ways
from tests.steps import Steps
from tests.unit.storage.builders import NOW, SetClock, batch, open_at, settings

ROUNDS_MAX = 200
ANSWER_BYTES = 250


class Leader(NamedTuple):
    """A log in a leader epoch."""

    log: Log
    epoch: LeaderEpoch


class Follower:
    """A log directory with one log that follows, as a start opens it."""

    def __init__(self, files: MemoryFiles) -> None:
        directory = open_log_directory(files, "data", node_id=2, new_id=uuid.UUID(int=9))
        self.home = DirectoryLogs.from_checkpoints(
            files, directory, clock=SetClock(), chance=random.Random(0)
        )
        directory.take_mark()
        self.home.find_partitions()
        self.log = self.home.open(ONE, topic_id=IDS[ONE], config=CONFIG)
        # As with replicas: what the checkpoint says, not all that is there.
        self.log.positions.high_watermark = min(
            self.log.positions.high_watermark, self.log.end_offset
        )

    def cut(self, steps: object) -> None:
        """Take the steps of a cut, and write the checkpoints before anything is appended."""
        take_steps(steps)  # type: ignore[arg-type]
        self.home.offsets.write()

    def follow(self, leader: Leader, *, rounds: int = ROUNDS_MAX) -> None:
        """Fetch until there is nothing more, or for some rounds."""
        log, fallback = self.log, self.log.positions.high_watermark
        for _ in range(rounds):
            asked = position_of(log)
            diverging = divergence(leader, asked)
            if diverging is not None:
                self.cut(cut_diverged(log, diverging, asked=asked, fallback=fallback))
                continue
            start, end = leader.log.start_offset, leader.log.end_offset
            if not start <= asked.offset <= end:
                steps = settle_range(log, leader_start=start, leader_end=end, asked=asked)
                assert steps is not None
                self.cut(steps)
                continue
            if asked.offset == end:
                return
            found = leader.log.read(
                asked.offset, bytes_max=ANSWER_BYTES, is_first_whole=True, limit=ReadLimit.LOG_END
            )
            assert found.records is not None
            fetched = FetchedPartition(
                memoryview(bytearray(found.read())), leader.log.positions.high_watermark, start
            )
            try:
                append_fetched(log, fetched, asked=asked, epoch=leader.epoch, now_ms=NOW)
            except EarlyBatchError as early:
                self.cut(restart(log, early.first_offset))
                append_fetched(log, fetched, asked=position_of(log), epoch=leader.epoch, now_ms=NOW)


def divergence(leader: Leader, asked: FetchPosition) -> EpochEnd | None:
    """The end of the last epoch that both logs have, where the follower's goes further."""
    if asked.last_epoch < 0:
        return None
    end = leader.log.epochs.end_offset_for(asked.last_epoch, log_end=leader.log.end_offset)
    if end.epoch < 0:
        return EpochEnd(NO_LEADER_EPOCH, Offset(-1))
    return end if end.epoch < asked.last_epoch or end.end_offset < asked.offset else None


def leader_of(*epochs: int, keeps: Log | None = None, start: int = 0) -> Leader:
    """A leader with batches of two records in these epochs, after those of another log."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=500))
    if keeps is not None:
        for each in keeps.batches(0):
            log.append_as_follower(memoryview(bytearray(each.view)), now_ms=NOW)
    for number, epoch in enumerate(epochs):
        value = b"epoch %d, %d" % (epoch, number)
        log.append(memoryview(batch(value, value)), leader_epoch=LeaderEpoch(epoch), now_ms=NOW)
    log.advance_high_watermark(log.end_offset)
    raise_log_start(log, start)
    return Leader(log, LeaderEpoch(max(log.epochs.latest, 0)))


def after_a_cut() -> list[Leader]:
    """The second leader lacks the end of the first one's log, over several segments."""
    first = leader_of(*[0] * 12)
    kept = leader_of(*[0] * 12).log
    truncate_to(kept, 5)
    second = leader_of(*[2] * 6, keeps=kept)
    third = leader_of(*[3] * 3, keeps=second.log)
    return [first, second, third]


def after_two_cuts() -> list[Leader]:
    """An epoch that neither of the next leaders has, and one inside a segment."""
    first = leader_of(0, 0, 0, 1, 1, 1, 1, 1)
    return [first, leader_of(0, 0, 0, 2, 2), leader_of(0, 0, 4, 4, 4, 4)]


def after_deletion() -> list[Leader]:
    """The leader has deleted what would come next, up to the middle of a batch."""
    first = leader_of(*[0] * 3)
    return [first, leader_of(*[0] * 14, start=21), leader_of(*[0] * 14, 1, 1, start=25)]


def run(leaders: list[Leader], files: MemoryFiles) -> None:
    """Follow one leader after the other, with a checkpoint of the broker in between."""
    with contextlib.suppress(ProcessKilledError):
        follower = Follower(files)
        for leader in leaders:
            follower.follow(leader)
            follower.home.checkpoint()


def content(log: Log) -> list[bytes]:
    return [bytes(each.view) for each in log.batches(0)]


@pytest.mark.parametrize("history", [after_a_cut, after_two_cuts, after_deletion])
def test_a_follower_that_dies_anywhere_follows_on(
    history: Callable[[], list[Leader]], steps: Steps
) -> None:
    """After a kill or a power loss its log is a part of a leader's, and becomes the last one's."""
    leaders = history()
    known = [content(each.log) for each in leaders]
    whole = MemoryFiles()
    run(leaders, whole)
    for stop_at in steps(range(len(whole.operations) + 1)):
        files = MemoryFiles()
        files.stop_at, files.stop_partial_bytes = stop_at, 30
        run(leaders, files)
        for _, disk in crash_all_ways(files, seed=stop_at):
            follower = Follower(disk)
            found = content(follower.log)
            assert any(is_part(found, each) for each in known), (stop_at, found)
            for leader in leaders[-2:]:
                follower.follow(leader)
            last = leaders[-1].log
            assert content(follower.log) == content(last)[-len(content(follower.log)) :]
            assert follower.log.end_offset == last.end_offset
            assert follower.log.start_offset <= last.end_offset


def is_part(found: list[bytes], whole: list[bytes]) -> bool:
    """Whether these batches follow each other in a log."""
    return not found or any(
        whole[start : start + len(found)] == found for start in range(len(whole))
    )


def test_the_workloads_cut_and_restart() -> None:
    """Each of the histories changes what is there already."""
    for history in (after_a_cut, after_two_cuts, after_deletion):
        files = MemoryFiles()
        follower = Follower(files)
        first, second, _ = history()
        follower.follow(first)
        held, end = content(follower.log), Offset(follower.log.end_offset)
        follower.follow(second)
        assert content(follower.log)[: len(held)] != held or follower.log.start_offset >= end
