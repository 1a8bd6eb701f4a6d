"""A follower's log and the answers of a leader."""

import pytest

from tailrace.errors import CorruptionError
from tailrace.model import LeaderEpoch, Offset
from tailrace.replication.follower_log import (
    EarlyBatchError,
    FetchedPartition,
    FetchPosition,
    MisplacedAnswerError,
    append_fetched,
    cut_diverged,
    position_of,
    settle_range,
)
from tailrace.storage.epochs import EpochEnd
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit
from tailrace.storage.shrink import raise_log_start, restart, take_steps
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import NOW, append, batch, open_at, values


def log_of(*epochs: int) -> Log:
    """A log with one record in each of these leader epochs, all of them committed."""
    log = open_at(MemoryFiles())
    for number, epoch in enumerate(epochs):
        append(log, batch(b"value %d" % number), epoch=epoch)
    return log


def answer(leader: Log, offset: int, *, high_watermark: int | None = None) -> FetchedPartition:
    """The answer that the leader sends for an offset."""
    found = leader.read(offset, bytes_max=1 << 20, is_first_whole=True, limit=ReadLimit.LOG_END)
    data = b"" if found.records is None else bytes(found.records.read())
    known = leader.positions.high_watermark if high_watermark is None else high_watermark
    return FetchedPartition(memoryview(data), known, leader.start_offset)


def take(log: Log, fetched: FetchedPartition, *, epoch: int = 9) -> int:
    return append_fetched(
        log, fetched, asked=position_of(log), epoch=LeaderEpoch(epoch), now_ms=NOW
    )


def cut(log: Log, epoch: int, end: int, *, fallback: int = 0) -> int:
    """The log end after the leader has said that the logs diverge."""
    diverged = EpochEnd(LeaderEpoch(epoch), Offset(end))
    take_steps(cut_diverged(log, diverged, asked=position_of(log), fallback=Offset(fallback)))
    return log.end_offset


def settle(log: Log, *, leader_start: int, leader_end: int) -> tuple[int, int]:
    """Both ends of the log after it was out of the leader's range."""
    steps = settle_range(
        log, leader_start=leader_start, leader_end=leader_end, asked=position_of(log)
    )
    if steps is not None:
        take_steps(steps)
    return log.start_offset, log.end_offset


def test_a_follower_has_the_leaders_bytes_and_epochs() -> None:
    """With its high watermark, as far as the follower has the records below it."""
    leader, follower = log_of(0, 0, 3), log_of()
    assert take(follower, answer(leader, 0, high_watermark=2)) == leader.size
    assert values(follower) == values(leader)
    assert follower.epochs.entries == leader.epochs.entries
    assert follower.positions.high_watermark == 2
    assert take(follower, answer(leader, 3, high_watermark=7)) == 0
    assert follower.positions.high_watermark == 3


def test_the_log_start_follows_that_of_the_leader() -> None:
    """Records that DeleteRecords removed there go here too, and never above the watermark."""
    leader, follower = log_of(0, 0, 0), log_of()
    take(follower, answer(leader, 0, high_watermark=1))
    raise_log_start(leader, 2)
    take(follower, answer(leader, 3, high_watermark=1))
    assert follower.start_offset == 1
    take(follower, answer(leader, 3))
    assert follower.start_offset == 2


def test_batches_of_a_newer_leader_are_left_out() -> None:
    """The follower does not know it yet, and the leader that it asks may be about to lose them."""
    leader, follower = log_of(0, 1, 2), log_of()
    take(follower, answer(leader, 0), epoch=1)
    assert values(follower) == values(leader)[:2]
    assert follower.end_offset == 2


def test_a_leader_that_begins_inside_a_batch_is_followed_from_there() -> None:
    """It sends the whole batch, which begins below its log start."""
    leader = open_at(MemoryFiles())
    append(leader, batch(b"a", b"b", b"c"))
    raise_log_start(leader, 2)
    follower = log_of()
    assert settle(follower, leader_start=2, leader_end=3) == (2, 2)
    with pytest.raises(EarlyBatchError) as raised:
        take(follower, answer(leader, 2))
    assert raised.value.first_offset == 0
    take_steps(restart(follower, raised.value.first_offset))
    take(follower, answer(leader, 2))
    assert follower.start_offset == 2
    assert follower.end_offset == 3
    assert len(values(follower)) == 3


def test_damaged_records_change_nothing() -> None:
    """The same is asked for again."""
    leader, follower = log_of(0, 0), log_of()
    fetched = answer(leader, 0)
    data = bytearray(fetched.records)
    data[-1] ^= 1
    with pytest.raises(CorruptionError):
        take(follower, fetched._replace(records=memoryview(data)))
    assert follower.end_offset == 0
    take(follower, answer(leader, 0))
    assert values(follower) == values(leader)


@pytest.mark.parametrize("kind", ["records", "diverging", "range"])
def test_an_answer_for_another_log_end_changes_nothing(kind: str) -> None:
    """It comes late, or twice; the log was cut or appended to meanwhile."""
    leader, follower = log_of(0, 0, 0), log_of(0)
    asked = FetchPosition(Offset(2), LeaderEpoch(0), Offset(0))

    def take() -> None:
        if kind == "records":
            append_fetched(
                follower, answer(leader, 2), asked=asked, epoch=LeaderEpoch(0), now_ms=NOW
            )
        elif kind == "diverging":
            end = EpochEnd(LeaderEpoch(0), Offset(0))
            cut_diverged(follower, end, asked=asked, fallback=Offset(0))
        else:
            settle_range(follower, leader_start=5, leader_end=9, asked=asked)

    with pytest.raises(MisplacedAnswerError, match=r"asked for offset 2 .* ends at 1"):
        take()
    assert follower.end_offset == 1


def test_records_after_the_leaders_end_of_an_epoch_are_cut() -> None:
    """This log has written on in an epoch that ends earlier at the leader (KIP-101)."""
    log = log_of(0, 0, 0, 0)
    assert cut(log, 0, 2) == 2


def test_an_epoch_that_this_log_lacks_is_approached_step_by_step() -> None:
    """Records after its newest older epoch cannot be the leader's; then it asks again (KIP-279)."""
    log = log_of(0, 0, 2, 2)
    assert cut(log, 1, 4) == 2
    assert cut(log, 0, 1) == 1


def test_without_a_common_epoch_the_fallback_counts() -> None:
    """The leader knows no epoch so old: what is above the old high watermark goes."""
    log = log_of(5, 5, 5)
    assert cut(log, -1, -1, fallback=1) == 1


def test_a_leader_without_epochs_gives_an_offset_alone() -> None:
    """Its log may be of a format that has none."""
    log = log_of(5, 5, 5)
    assert cut(log, -1, 2) == 2


def test_out_of_range_cuts_or_begins_anew() -> None:
    """To the leader's end where it is lower, at its start where that is higher, else not at all."""
    log = log_of(0, 0, 0)
    assert settle(log, leader_start=0, leader_end=2) == (0, 2)
    assert settle(log, leader_start=1, leader_end=9) == (0, 2)
    assert settle(log, leader_start=7, leader_end=9) == (7, 7)
