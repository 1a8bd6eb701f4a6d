"""Partitions that a broker follows, on devices that are slow, full or failing."""

import asyncio
import errno
import logging

import pytest

from tailrace.broker.schedule import Housekeeping
from tailrace.errors import StorageError
from tailrace.storage.cleaner.passes import CleaningAbortedError
from tailrace.testing import DiskFault, Outside
from tests.unit.broker.leaders import (
    Follower,
    ScriptedLeader,
    content,
    place,
)

SOON_S = 0.1
"""Enough for some answers, and less than any pause."""


async def test_a_full_disk_is_tried_again(
    outside: Outside,
    leader: ScriptedLeader,
    follower: Follower,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The directory stays in service, and the records come when there is room."""
    caplog.set_level(logging.INFO)
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    outside.files.faults.append(DiskFault(operation="write", path_part=".log", error=errno.ENOSPC))
    leader.write(b"a")
    await outside.pass_time(3)
    assert follower.log().end_offset == 0
    assert follower.following.statistics().delayed_count == 1
    outside.files.faults.clear()
    await outside.pass_time(3)
    assert follower.log().end_offset == 1
    assert caplog.text.count("append_refused") == 1
    assert caplog.text.count("append_recovered") == 1


async def test_a_device_that_fails_takes_its_directory_out_of_service(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """And nothing is fetched for it any more."""
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    outside.files.faults.append(DiskFault(operation="write", path_part=".log", error=errno.EIO))
    leader.write(b"a")
    await outside.pass_time(3)
    (directory,) = follower.manager.directories
    assert directory.failure is not None
    assert follower.following.statistics().failed_count == 1
    count = len(leader.requests)
    await outside.pass_time(10)
    assert len(leader.requests) == count


async def test_records_count_when_they_are_on_the_device(
    outside: Outside, leader: ScriptedLeader
) -> None:
    """With `tailrace.durability=sync` the leader hears of them after the flush."""
    follower = Follower(outside, is_durable=True)
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    outside.threads.seconds_per_run = 5.0
    leader.write(b"a")
    await outside.pass_time(4)
    assert follower.log().end_offset == 1
    assert leader.logs[place()].positions.high_watermark == 0
    await outside.pass_time(2)
    assert leader.logs[place()].positions.high_watermark == 1
    await follower.following.close()


async def test_a_flush_that_lacks_descriptors_is_tried_again(
    outside: Outside, leader: ScriptedLeader
) -> None:
    """The leader does not count the records until then, and what comes later is fetched."""
    follower = Follower(outside, is_durable=True)
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    outside.files.faults.append(DiskFault(operation="sync_directory", error=errno.EMFILE))
    leader.write(b"a")
    await outside.pass_time(10)
    assert follower.log().end_offset == 1
    assert leader.logs[place()].positions.high_watermark == 0
    assert follower.following.statistics().failed_count == 0
    outside.files.faults.clear()
    await outside.pass_time(5)
    assert leader.logs[place()].positions.high_watermark == 1
    leader.write(b"b")
    await outside.pass_time(SOON_S)
    assert content(follower.log()) == content(leader.logs[place()])
    await follower.following.close()


async def test_a_cut_is_on_the_device_before_the_next_records(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """With the checkpoints; appends wait, and the loop does not."""
    leader.write(b"a")
    leader.lead(epoch=1)
    leader.write(b"b")
    follower.write(b"a", b"lost", b"lost")
    outside.threads.seconds_per_run = 1.0
    follower.follow(leader, epoch=1)
    await outside.pass_time(0.5)
    assert follower.log().end_offset == 1
    assert not follower.partition().takes_appends.is_set()
    await outside.pass_time(10)
    assert follower.partition().takes_appends.is_set()
    assert content(follower.log()) == content(leader.logs[place()])


async def test_a_cut_that_a_full_disk_refuses_holds_appends_until_there_is_room(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """A start would trust the old checkpoints."""
    leader.write(b"a")
    leader.lead(epoch=1)
    leader.write(b"b")
    follower.write(b"a", b"lost", b"lost")
    outside.files.faults.append(
        DiskFault(operation="write", path_part="recovery-point", error=errno.ENOSPC)
    )
    follower.follow(leader, epoch=1)
    await outside.pass_time(5)
    assert follower.log().end_offset == 1
    assert not follower.partition().takes_appends.is_set()
    outside.files.faults.clear()
    await outside.pass_time(5)
    assert follower.partition().takes_appends.is_set()
    assert content(follower.log()) == content(leader.logs[place()])


@pytest.mark.parametrize(
    ("fault", "segment_count"),
    [
        (DiskFault(operation="sync_directory", error=errno.EMFILE), 1),
        (DiskFault(operation="sync_directory", error=errno.EMFILE), 11),
        (DiskFault(operation="list", path_part="flights-0", error=errno.EMFILE), 11),
        (DiskFault(operation="open_existing", path_part=".snapshot", error=errno.ENFILE), 11),
        (DiskFault(operation="remove", path_part=".snapshot", error=errno.ENOSPC), 11),
        (DiskFault(operation="open", path_part="leader-epoch", error=errno.EMFILE), 11),
        (DiskFault(operation="write", path_part="leader-epoch", error=errno.ENOSPC), 11),
        (DiskFault(operation="rename", path_part="leader-epoch", error=errno.EDQUOT), 11),
    ],
    ids=[
        "sync_directory of one segment",
        "sync_directory",
        "list",
        "open a snapshot",
        "remove",
        "open",
        "write",
        "rename",
    ],
)
async def test_a_cut_that_a_shortage_interrupts_is_done_when_it_ends(
    fault: DiskFault,
    segment_count: int,
    outside: Outside,
    leader: ScriptedLeader,
    follower: Follower,
) -> None:
    """Half a cut would end the log until the next start."""
    leader.write(b"a")
    leader.lead(epoch=1)
    leader.write(b"b")
    log = follower.partition(segment_bytes=1000).log
    follower.write(b"a", *[b"lost" * 100] * (2 * segment_count - 1))
    assert len(tuple(log.segments)) == segment_count
    outside.files.faults.append(fault)
    follower.follow(leader, epoch=1)
    await outside.pass_time(20)
    assert not follower.partition().takes_appends.is_set()
    outside.files.faults.clear()
    await outside.pass_time(5)
    assert follower.following.statistics().failed_count == 0
    assert content(follower.log()) == content(leader.logs[place()])


@pytest.mark.parametrize(
    "fault",
    [
        DiskFault(operation="open", path_part="00000003.log", error=errno.EMFILE),
        DiskFault(operation="open", path_part="00000003.timeindex", error=errno.EMFILE),
        DiskFault(operation="list", path_part="flights-0", error=errno.ENFILE),
        DiskFault(operation="sync_directory", error=errno.EMFILE),
    ],
    ids=["open the log", "open an index", "list", "sync_directory"],
)
async def test_a_log_that_begins_again_in_a_shortage_does_it_when_it_ends(
    fault: DiskFault, outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The leader has deleted what would come next, and the files of the old log are gone."""
    leader.write(b"a", b"b", b"c", b"d")
    leader.raise_log_start(3)
    follower.partition(segment_bytes=1000)
    follower.write(*[b"old" * 100] * 2)
    outside.files.faults.append(fault)
    follower.follow(leader)
    await outside.pass_time(20)
    assert not follower.partition().takes_appends.is_set()
    outside.files.faults.clear()
    await outside.pass_time(5)
    assert follower.following.statistics().failed_count == 0
    assert (follower.log().start_offset, follower.log().end_offset) == (3, 4)


async def test_a_new_leader_takes_appends_when_its_cut_is_no_longer_half_done(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The log has what it says it has, and nothing else."""
    leader.write(b"a")
    leader.lead(epoch=1)
    log = follower.partition(segment_bytes=1000).log
    follower.write(b"a", *[b"lost" * 100] * 9)
    outside.files.faults.append(
        DiskFault(operation="list", path_part="flights-0", error=errno.EMFILE)
    )
    follower.follow(leader, epoch=1)
    await outside.pass_time(5)
    follower.following.stop([place()])
    await outside.pass_time(5)
    assert not follower.partition().takes_appends.is_set()
    outside.files.faults.clear()
    await outside.pass_time(5)
    assert follower.partition().takes_appends.is_set()
    assert log.end_offset == sum(1 for _ in content(log)) == 2
    follower.write(b"new", epoch=2)
    assert log.end_offset == 3


async def test_a_broker_that_stops_within_a_cut_leaves_the_log_to_the_next_start(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The producers in memory are those of records that are gone."""
    leader.write(b"a")
    leader.lead(epoch=1)
    log = follower.partition(segment_bytes=1000).log
    follower.write(b"a", *[b"lost" * 100] * 9)
    outside.files.faults.append(
        DiskFault(operation="list", path_part="flights-0", error=errno.EMFILE)
    )
    follower.follow(leader, epoch=1)
    await outside.pass_time(5)
    await follower.following.close()
    with pytest.raises(StorageError, match="given up half way"):
        log.check_usable()


async def test_a_cut_whose_fsync_finds_no_room_takes_the_directory_out_of_service(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Nobody knows what it has dropped, and a replica that serves nobody must not be elected."""
    leader.write(b"a")
    leader.lead(epoch=1)
    leader.write(b"b")
    follower.write(b"a", b"lost", b"lost")
    outside.files.faults.append(DiskFault(operation="sync", path_part=".log", error=errno.ENOSPC))
    follower.follow(leader, epoch=1)
    await outside.pass_time(5)
    (directory,) = follower.manager.directories
    assert "a cut failed" in str(directory.failure)


async def test_a_full_disk_holds_a_new_leader_no_longer_than_it_is_full(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Nothing is fetched for it any more, and its checkpoints are tried again all the same."""
    leader.write(b"a")
    leader.lead(epoch=1)
    follower.write(b"a", b"lost", b"lost")
    outside.files.faults.append(
        DiskFault(operation="write", path_part="recovery-point", error=errno.ENOSPC)
    )
    follower.follow(leader, epoch=1)
    await outside.pass_time(SOON_S)
    follower.following.stop([place()])
    await outside.pass_time(5)
    assert not follower.partition().takes_appends.is_set()
    outside.files.faults.clear()
    await outside.pass_time(5)
    assert follower.partition().takes_appends.is_set()


async def test_a_cut_that_the_device_refuses_takes_the_directory_out_of_service(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The log takes nothing more until a start has looked at it."""
    leader.write(b"a")
    leader.lead(epoch=1)
    follower.write(b"a", b"lost")
    outside.files.faults.append(DiskFault(operation="sync", path_part=".log", error=errno.EIO))
    follower.follow(leader, epoch=1)
    await outside.pass_time(2)
    assert follower.manager.directories[0].failure is not None
    assert follower.following.statistics().failed_count == 1


async def test_a_cut_waits_for_retention(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """A log that begins again while old segments are renamed is no failure of the directory."""
    follower.partition(segment_bytes=300, retention_bytes=1)
    leader.write(*(b"new" for _ in range(12)))
    leader.raise_log_start(11)
    follower.write(*(b"old" * 20 for _ in range(9)))
    follower.log().advance_high_watermark(9)
    outside.threads.seconds_per_run = 1.0
    jobs = Housekeeping(
        follower.manager,
        follower.manager.directories[0],
        threads=outside.threads,
        clock=outside.clock,
        cleaner=follower.cleaner,
    )
    retention = asyncio.ensure_future(jobs.delete_old_segments())
    await outside.pass_time(SOON_S)
    follower.follow(leader)
    await outside.pass_time(10)
    await retention
    assert follower.manager.directories[0].failure is None
    assert content(follower.log()) == content(leader.logs[place()])


async def test_a_cut_waits_for_the_cleaner(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Its round is aborted: it would put back what was cut."""
    follower.partition(segment_bytes=300, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
    leader.write(b"a")
    leader.lead(epoch=1)
    follower.write(b"a", *(b"lost" * 20 for _ in range(9)))
    follower.log().advance_high_watermark(10)
    job = follower.cleaner.next_job()
    assert job is not None
    follower.follow(leader, epoch=1)
    await outside.pass_time(SOON_S)
    assert follower.log().end_offset == 10
    with pytest.raises(CleaningAbortedError) as aborted:
        job.map_keys()
    job.finish(aborted.value)
    await outside.pass_time(SOON_S)
    assert content(follower.log()) == content(leader.logs[place()])


async def test_a_step_that_fails_unexpectedly_is_logged_and_tried_again(
    outside: Outside,
    leader: ScriptedLeader,
    follower: Follower,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A defect here must not leave the partitions of a leader without it, and say nothing."""
    leader.write(b"a")
    leader.lead(epoch=1)
    follower.write(b"a", b"lost")
    offsets = follower.manager.directories[0].offsets
    faults = [RuntimeError("a defect")]
    write = offsets.write

    def write_later() -> None:
        if faults:
            raise faults.pop()
        write()

    offsets.write = write_later  # type: ignore[method-assign]
    follower.follow(leader, epoch=1)
    await outside.pass_time(5)
    assert caplog.text.count("a defect") == 1
    assert content(follower.log()) == content(leader.logs[place()])
    assert follower.partition().takes_appends.is_set()


async def test_a_partition_that_leads_meanwhile_is_cut_no_further(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Segments that were taken off stay off; the rest of the cut is left out."""
    follower.partition(segment_bytes=300)
    leader.write(b"a")
    leader.lead(epoch=1)
    follower.write(b"a", *(b"lost" * 20 for _ in range(9)))
    outside.threads.seconds_per_run = 1.0
    follower.follow(leader, epoch=1)
    await outside.pass_time(0.5)
    held = follower.log().end_offset
    assert 1 < held < 10
    follower.following.stop([place()])
    await outside.pass_time(10)
    assert follower.log().end_offset == held
    assert follower.partition().takes_appends.is_set()
