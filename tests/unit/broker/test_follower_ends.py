"""Followers whose logs are cut, or closed: nothing of before counts for the records that come."""

from tailrace.testing import Outside
from tests.unit.broker.leaders import Follower, ScriptedLeader, place
from tests.unit.storage.test_manager import offsets_in


async def test_what_comes_after_a_cut_is_not_taken_for_cleaned(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Else an old value below the old cleaner offset would be back when its tombstone goes."""
    follower.partition(cleanup_policy="compact")
    leader.write(b"a")
    leader.lead(epoch=1)
    leader.write(*(b"new" for _ in range(9)))
    follower.write(b"a", *(b"lost" for _ in range(9)))
    offsets = follower.manager.directories[0].offsets
    offsets.note_cleaned(place(), 8)
    follower.follow(leader, epoch=1)
    await outside.pass_time(0.1)
    assert follower.log().end_offset == 10
    assert offsets.cleaner_offset(place()) == 1
    assert offsets_in(outside.files, "data/cleaner-offset-checkpoint") == {"flights 0": 1}


async def test_nothing_is_followed_after_the_end(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """A log that is made while the broker stops has its files closed next."""
    leader.write(b"a")
    await follower.following.close()
    follower.follow(leader)
    await outside.pass_time(5)
    assert (leader.requests, follower.log().end_offset) == ([], 0)
