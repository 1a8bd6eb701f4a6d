"""Changes of a log that fail or are given up half way: a roll, a cut; and damage in their way."""

import errno

import pytest

from tailrace.errors import CorruptionError, StorageError
from tailrace.model import ProducerId
from tailrace.storage.log import Log
from tailrace.storage.shrink import truncate_fully_and_start_at, truncate_to, truncation
from tailrace.testing import DiskFault, MemoryFiles
from tests.naive import LegacyMessage, write_legacy
from tests.unit.storage.builders import (
    NOW,
    append,
    bases,
    batch,
    filled,
    flip,
    open_at,
    path,
    settings,
    stop_cleanly,
    values,
)
from tests.unit.storage.transactional import follow, replicated

LARGE = settings(segment_bytes=100_000)


def after_a_failed_roll(files: MemoryFiles) -> Log:
    """A follower's log of six records whose roll at offset 6 has failed once, and left a file."""
    log = open_at(files, config=settings())
    for number in range(6):
        follow(log, replicated(number, b"old %d" % number))
    files.faults.append(DiskFault(operation="open", path_part="6.index", error=errno.EMFILE))
    with pytest.raises(OSError, match="Too many open files"):
        follow(log, replicated(6, b"x" * 500))
    files.faults.clear()
    return log


def reopened(log: Log, files: MemoryFiles, *, start: int, how: str) -> Log:
    """The log after the end of its process: an orderly stop, a kill, or a power loss."""
    end = log.end_offset
    if how == "stop":
        stop_cleanly(log)
        return open_at(files, config=LARGE, is_clean=True, checkpoints=(end, start))
    if how == "kill":
        return open_at(files.crash(keep_unsynced=True), config=LARGE, checkpoints=(0, start))
    log.sync()
    return open_at(files.crash(), config=LARGE, checkpoints=(log.positions.recovery_point, start))


@pytest.mark.parametrize("how", ["stop", "kill", "power loss"])
@pytest.mark.parametrize(("start", "is_restarted"), [(4, False), (2, True), (100, True)])
def test_what_a_failed_roll_has_left_is_no_segment_after_a_cut(
    how: str, start: int, *, is_restarted: bool
) -> None:
    """The log grows past that offset in another segment, and the next start finds all of it."""
    files = MemoryFiles()
    log = after_a_failed_roll(files)
    if is_restarted:
        truncate_fully_and_start_at(log, start)
    else:
        truncate_to(log, start)
    log.config = LARGE
    for number in range(start, start + 10):
        follow(log, replicated(number, b"new %d" % number, leader_epoch=1))
    log.advance_high_watermark(log.end_offset)
    before = values(log)
    again = reopened(log, files, start=start if is_restarted else 0, how=how)
    assert again.end_offset == start + 10
    assert values(again) == before


@pytest.mark.parametrize("size", [20, 1000])
def test_a_log_whose_cut_was_given_up_takes_appends(size: int) -> None:
    """Its broker leads meanwhile; a segment has left, and the one before is finished."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=6 * (size + 80), segment_index_bytes=10_000))
    for number in range(5):
        follow(log, replicated(number, b"v" * size))
    # An answer of a leader that does not fit any more.
    follow(log, *(replicated(number, b"v" * size) for number in range(5, 9)))
    assert bases(log) == [0, 5]
    steps = truncation(log, 4)
    next(steps)()
    steps.close()
    assert (bases(log), log.end_offset) == ([0], 5)
    for number in range(3):
        append(log, batch(b"v" * size, timestamps=[NOW + number]))
    assert log.end_offset == 8
    stop_cleanly(log)
    again = open_at(files, is_clean=True, checkpoints=(8, 0))
    assert len(values(again)) == 8


def test_epochs_that_could_not_be_cleared_for_an_old_format_are_there_again() -> None:
    """The append was refused with the checkpoint, and the log is as it was."""
    files = MemoryFiles()
    log = open_at(files)
    follow(log, replicated(0, b"value", leader_epoch=3))
    log.sync()
    before = log.epochs.entries
    old = write_legacy(LegacyMessage(1, 1, b"k", b"v", NOW))
    files.faults.append(DiskFault(operation="write", path_part="epoch", error=errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        follow(log, old)
    assert (log.epochs.entries, log.end_offset) == (before, 1)
    files.faults.clear()
    follow(log, old)
    assert (log.epochs.entries, log.end_offset) == ((), 2)


def after_a_refused_batch_beyond_a_gap(files: MemoryFiles) -> Log:
    """A log of six records that has begun a segment at offset 100, and could not write there.

    Compaction has removed the offsets between on the leader.
    """
    log = open_at(files, config=settings(cleanup_policy="compact"))
    for number in range(6):
        follow(
            log,
            replicated(
                number, b"old %d" % number, producer_id=7, producer_epoch=0, base_sequence=number
            ),
        )
    files.faults.append(DiskFault(operation="write", path_part=".log", error=errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        follow(log, replicated(100, b"x" * 500))
    files.faults.clear()
    return log


def test_a_follower_that_could_not_write_beyond_a_gap_may_lead() -> None:
    """Its log goes on at its end, past the offset of the segment that it had begun."""
    files = MemoryFiles()
    log = after_a_refused_batch_beyond_a_gap(files)
    log.config = settings(cleanup_policy="compact", segment_bytes=100_000)
    for number in range(6, 110):
        sent = batch(b"new %d" % number, producer_id=7, producer_epoch=0, base_sequence=number)
        assert append(log, sent, epoch=1).base_offset == number
    before = values(log)
    assert len(before) == 110
    for again in (
        open_at(files.crash(keep_unsynced=True), config=log.config),
        reopened(log, files, start=0, how="stop"),
    ):
        assert values(again) == before
        known = again.producers.get(ProducerId(7))
        assert known is not None
        assert known.last_sequence == 109


@pytest.mark.parametrize("how", ["go on", "stop", "kill"])
def test_a_follower_that_could_not_write_beyond_a_gap_writes_there_later(how: str) -> None:
    """The leader sends the same batch again when there is room."""
    files = MemoryFiles()
    log = after_a_refused_batch_beyond_a_gap(files)
    if how != "go on":
        log = reopened(log, files, start=0, how=how)
    follow(log, replicated(100, b"x" * 500, producer_id=7, producer_epoch=0, base_sequence=6))
    assert (log.end_offset, len(values(log))) == (101, 7)
    known = log.producers.get(ProducerId(7))
    assert known is not None
    assert known.last_sequence == 6


def test_a_cut_over_damage_takes_the_log_out_of_service() -> None:
    """Its bytes are gone, and where it ends nobody knows: an offset must not follow another one."""
    files = MemoryFiles()
    log = filled(files, 20)
    segment = next(each for each in log.segments if each.base_offset)
    starts = [position for position, _ in segment.log.batches()]
    # The magic of the third batch.
    flip(files, path(segment.base_offset, ".log"), starts[2] + 16)
    with pytest.raises(CorruptionError):
        truncate_to(log, segment.base_offset + 4)
    with pytest.raises(StorageError):
        log.check_usable()


@pytest.mark.parametrize("place", [16, 100])
def test_damage_in_the_first_batch_keeps_no_other_from_being_appended(place: int) -> None:
    """After an orderly start it is found when it is read, and not by each append."""
    files = MemoryFiles()
    log = open_at(files, config=LARGE)
    for _ in range(3):
        append(log, batch(b"v" * 500))
    stop_cleanly(log)
    flip(files, path(0, ".log"), place)
    log = open_at(files, config=LARGE, is_clean=True, checkpoints=(3, 0))
    append(log, batch(b"x"))
    assert log.end_offset == 4
