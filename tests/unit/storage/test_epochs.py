"""Leader epochs: which entries a log keeps, what it answers, and what the checkpoint holds."""

import errno
from collections.abc import Callable

import pytest

from tailrace.errors import CorruptionError
from tailrace.model import LeaderEpoch, Offset
from tailrace.storage.checkpoints import read_epoch_checkpoint
from tailrace.storage.epochs import UNKNOWN_END, LeaderEpochs, open_leader_epochs
from tailrace.testing import DiskFault, MemoryFiles

FOLDER = "data"
CHECKPOINT = "data/leader-epoch-checkpoint"


@pytest.fixture
def files() -> MemoryFiles:
    """A disk with a partition folder."""
    disk = MemoryFiles()
    disk.make_directory(FOLDER)
    return disk


def epochs(files: MemoryFiles, *assigned: tuple[int, int]) -> LeaderEpochs:
    """The epochs of a log after these were assigned one after the other."""
    opened = open_leader_epochs(files, FOLDER)
    for epoch, start_offset in assigned:
        opened.assign(LeaderEpoch(epoch), Offset(start_offset))
    opened.save()
    return opened


THREE = ((2, 6), (3, 8), (4, 11))
ON_THE_LOOP: list[Callable[[LeaderEpochs], object]] = [
    lambda log: log.assign(LeaderEpoch(5), Offset(12)),
    lambda log: log.cut_start(Offset(9)),
    lambda log: log.cut_end(Offset(9)),
    lambda log: log.clear(),
]


def test_an_empty_log_has_no_epoch(files: MemoryFiles) -> None:
    """Latest and earliest are -1 and there are no entries."""
    empty = epochs(files)
    assert (empty.latest, empty.earliest, empty.entries) == (-1, -1, ())


def test_the_first_epoch_of_a_log(files: MemoryFiles) -> None:
    """The first epoch is the latest, has an entry, and ends with the log; it need not be 0."""
    first = epochs(files, (2, 10))
    assert first.latest == 2
    assert first.earliest == 2
    assert first.entries == ((2, 10),)
    assert first.end_offset_for(LeaderEpoch(2), log_end=Offset(11)) == (2, 11)


def test_the_latest_epoch_ends_at_the_end_of_the_log(files: MemoryFiles) -> None:
    """The latest epoch ends at the log end, also if it was assigned again at a later offset."""
    assert epochs(files, (2, 11), (2, 12)).end_offset_for(LeaderEpoch(2), log_end=Offset(14)) == (
        2,
        14,
    )


@pytest.mark.parametrize("assigned", [(), ((2, 11), (3, 12))])
@pytest.mark.parametrize("log_end", [0, 73])
def test_the_undefined_epoch_has_no_end(
    files: MemoryFiles, assigned: tuple[tuple[int, int], ...], log_end: int
) -> None:
    """A follower without an epoch asks for -1 and learns nothing, whatever the log holds."""
    assert epochs(files, *assigned).end_offset_for(LeaderEpoch(-1), log_end=Offset(log_end)) == (
        -1,
        -1,
    )


@pytest.mark.parametrize("epoch", [0, 7])
def test_a_log_without_epochs_knows_no_end(files: MemoryFiles, epoch: int) -> None:
    """Records of old formats have no epochs: the follower goes by its high watermark."""
    assert (
        epochs(files).end_offset_for(LeaderEpoch(epoch), log_end=Offset(0))
        == UNKNOWN_END
        == (-1, -1)
    )


def test_an_epoch_yet_to_come_has_no_end(files: MemoryFiles) -> None:
    """The log has never heard of it."""
    assert epochs(files, (2, 100)).end_offset_for(LeaderEpoch(3), log_end=Offset(100)) == (-1, -1)


@pytest.mark.parametrize("later_offset", [7, 10])
def test_the_start_of_an_epoch_is_noted_once(files: MemoryFiles, later_offset: int) -> None:
    """Later appends under the same epoch change nothing."""
    assert epochs(files, (2, 6), (2, later_offset)).entries == ((2, 6),)


def test_an_epoch_without_records_is_forgotten(files: MemoryFiles) -> None:
    """Two epochs never begin at one offset: the newer one has the records."""
    assert epochs(files, (2, 9), (3, 9)).entries == ((3, 9),)


def test_a_leader_that_begins_earlier_takes_over(files: MemoryFiles) -> None:
    """An epoch that begins before an older one removes it."""
    assert epochs(files, (2, 6), (3, 5)).entries == ((3, 5),)


def test_an_older_epoch_removes_newer_ones(files: MemoryFiles) -> None:
    """The log has contradicted itself; the last word counts and the order is kept."""
    cut = epochs(files, (1, 5), (2, 6), (1, 7))
    assert cut.latest == 1
    assert cut.entries == ((1, 7),)
    assert cut.end_offset_for(LeaderEpoch(1), log_end=Offset(8)) == (1, 8)
    assert cut.end_offset_for(LeaderEpoch(2), log_end=Offset(8)) == (-1, -1)


def test_the_latest_epoch_may_move_to_an_earlier_offset(files: MemoryFiles) -> None:
    """An epoch that moves to an earlier offset removes those that began there or behind."""
    moved = epochs(files, (5, 11), (6, 12), (7, 13), (7, 12))
    assert moved.entries == ((5, 11), (7, 12))
    assert moved.end_offset_for(LeaderEpoch(5), log_end=Offset(0)) == (5, 12)
    assert moved.end_offset_for(LeaderEpoch(6), log_end=Offset(0)) == (5, 12)


def test_an_epoch_ends_where_the_next_begins(files: MemoryFiles) -> None:
    """The start of the following epoch is the answer, not the end of the log."""
    filled = epochs(files, (1, 11), (1, 12), (2, 13), (2, 14), (3, 15), (3, 16))
    assert filled.end_offset_for(LeaderEpoch(2), log_end=Offset(17)) == (2, 15)


@pytest.mark.parametrize(
    ("requested", "expected"), [(0, (0, 13)), (1, (0, 13)), (2, (2, 17)), (3, (2, 17))]
)
def test_for_a_skipped_epoch_the_one_before_answers(
    files: MemoryFiles, requested: int, expected: tuple[int, int]
) -> None:
    """A leader may write nothing; the newest epoch up to the requested one is meant."""
    filled = epochs(files, (0, 10), (2, 13), (4, 17))
    assert filled.end_offset_for(LeaderEpoch(requested), log_end=Offset(0)) == expected


def test_an_epoch_older_than_the_log_ends_where_the_log_begins(files: MemoryFiles) -> None:
    """Its records were deleted, so a follower begins at the first that are left."""
    filled = epochs(files, (5, 11), (6, 12), (7, 13))
    assert filled.end_offset_for(LeaderEpoch(4), log_end=Offset(0)) == (4, 11)


def test_ends_while_leaders_change(files: MemoryFiles) -> None:
    """Epoch by epoch, with and without records in between."""
    log = epochs(files, (0, 0), (1, 0))
    assert log.latest == 1
    assert [log.end_offset_for(LeaderEpoch(epoch), log_end=Offset(0)) for epoch in (1, 0)] == [
        (1, 0),
        (0, 0),
    ]
    assert [log.end_offset_for(LeaderEpoch(epoch), log_end=Offset(5)) for epoch in (1, 0)] == [
        (1, 5),
        (0, 0),
    ]
    log.assign(LeaderEpoch(2), Offset(5))
    assert [log.end_offset_for(LeaderEpoch(epoch), log_end=Offset(10)) for epoch in (2, 1, 0)] == [
        (2, 10),
        (1, 5),
        (0, 0),
    ]


def test_ends_while_a_follower_receives_batches(files: MemoryFiles) -> None:
    """Each batch assigns its epoch; only the first of an epoch counts."""
    log = epochs(files)
    for offset, epoch in enumerate([0, 0, 0, 1, 1, 1, 2, 2, 2]):
        log.assign(LeaderEpoch(epoch), Offset(offset))
        assert log.latest == epoch
        assert log.end_offset_for(LeaderEpoch(epoch), log_end=Offset(offset + 1)) == (
            epoch,
            offset + 1,
        )
    assert log.end_offset_for(LeaderEpoch(0), log_end=Offset(9)) == (0, 3)
    assert log.end_offset_for(LeaderEpoch(1), log_end=Offset(9)) == (1, 6)


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_are_refused(
    files: MemoryFiles, epoch: int, start_offset: int
) -> None:
    """-1 means that there is none, so it cannot be assigned."""
    with pytest.raises(ValueError, match="negative"):
        epochs(files, (epoch, start_offset))


@pytest.mark.parametrize(
    ("log_end", "kept"),
    [
        (12, THREE),
        (11, THREE[:2]),
        (9, THREE[:2]),
        (8, THREE[:1]),
        (6, ()),
        (0, ()),
        (-1, THREE),
    ],
)
def test_cutting_the_end_removes_epochs_that_begin_there_or_behind(
    files: MemoryFiles, log_end: int, kept: tuple[tuple[int, int], ...]
) -> None:
    """An epoch whose first record is gone goes; -1 is no offset and cuts nothing."""
    log = epochs(files, *THREE)
    log.cut_end(Offset(log_end))
    assert log.entries == kept
    assert log.latest == (kept[-1][0] if kept else -1)


@pytest.mark.parametrize(
    ("log_start", "kept"),
    [
        (-1, THREE),
        (1, THREE),
        (6, THREE),
        (8, ((3, 8), (4, 11))),
        (9, ((3, 9), (4, 11))),
        (11, ((4, 11),)),
        (15, ((4, 15),)),
    ],
)
def test_cutting_the_start_lets_the_epoch_that_holds_it_begin_there(
    files: MemoryFiles, log_start: int, kept: tuple[tuple[int, int], ...]
) -> None:
    """Older epochs go, the latest never does, and -1 is no offset and cuts nothing."""
    log = epochs(files, *THREE)
    log.cut_start(Offset(log_start))
    assert log.entries == kept


def test_cutting_the_start_inside_the_first_epoch(files: MemoryFiles) -> None:
    """The first epoch stays with its new start."""
    log = epochs(files, (0, 0), (1, 7), (2, 10))
    log.cut_start(Offset(5))
    assert log.entries == ((0, 5), (1, 7), (2, 10))


def test_cutting_the_start_of_a_log_without_epochs(files: MemoryFiles) -> None:
    """There is nothing to cut and nothing is made up."""
    log = epochs(files)
    log.cut_start(Offset(7))
    assert log.entries == ()


def test_cutting_the_end_of_a_log_without_epochs(files: MemoryFiles) -> None:
    """There is nothing to cut."""
    log = epochs(files)
    log.cut_end(Offset(7))
    assert log.entries == ()


def test_clearing_forgets_every_epoch(files: MemoryFiles) -> None:
    """All epochs are removed in memory, and in the checkpoint when it is saved."""
    log = epochs(files, *THREE)
    log.clear()
    log.save()
    assert log.entries == ()
    assert read_epoch_checkpoint(files, CHECKPOINT) == []


def test_the_epoch_before_the_latest(files: MemoryFiles) -> None:
    """A log with fewer than two epochs has none, also after its end was cut."""
    log = epochs(files)
    assert log.previous(log.latest) is None
    log.assign(LeaderEpoch(2), Offset(10))
    assert log.previous(log.latest) is None
    log.assign(LeaderEpoch(4), Offset(15))
    assert log.previous(log.latest) == (2, 10)
    log.assign(LeaderEpoch(10), Offset(20))
    assert log.previous(log.latest) == (4, 15)
    log.cut_end(Offset(18))
    assert log.previous(log.latest) == (2, 10)


def test_the_epoch_before_another(files: MemoryFiles) -> None:
    """It is the newest older entry, whether or not the epoch itself is known."""
    assert epochs(files).previous(LeaderEpoch(2)) is None
    log = epochs(files, (2, 10), (4, 15), (10, 20))
    assert log.previous(LeaderEpoch(2)) is None
    assert log.previous(LeaderEpoch(4)) == (2, 10)
    assert log.previous(LeaderEpoch(10)) == (4, 15)
    assert log.previous(LeaderEpoch(9)) == (4, 15)


@pytest.mark.parametrize(
    ("epoch", "expected"), [(-1, (0, 0)), (0, (1, 100)), (1, (2, 200)), (2, None), (100, None)]
)
def test_the_epoch_after_another(
    files: MemoryFiles, epoch: int, expected: tuple[int, int] | None
) -> None:
    """The epoch after another is the oldest newer entry."""
    assert epochs(files, (0, 0), (1, 100), (2, 200)).next(LeaderEpoch(epoch)) == expected


@pytest.mark.parametrize(
    ("epoch", "expected"), [(2, (2, 100)), (3, (3, 500)), (4, None), (5, (5, 1000)), (6, None)]
)
def test_the_entry_of_an_epoch(
    files: MemoryFiles, epoch: int, expected: tuple[int, int] | None
) -> None:
    """A lookup returns the entry of exactly that epoch, or None."""
    assert epochs(files, (2, 100), (3, 500), (5, 1000)).entry(LeaderEpoch(epoch)) == expected


@pytest.mark.parametrize(
    ("offset", "epoch"), [(5, -1), (10, 0), (19, 0), (20, 1), (25, 1), (30, 5), (50, 5)]
)
def test_the_epoch_of_an_offset(files: MemoryFiles, offset: int, epoch: int) -> None:
    """The epoch whose range holds it; -1 for records older than all entries."""
    assert epochs(files, (0, 10), (1, 20), (5, 30)).at(Offset(offset)) == epoch


def test_epochs_outlive_the_process(files: MemoryFiles) -> None:
    """A second reader finds what the first has assigned."""
    epochs(files, (2, 6))
    assert open_leader_epochs(files, FOLDER).entries == ((2, 6),)


def test_cuts_are_written(files: MemoryFiles) -> None:
    """The checkpoint holds what is left after both ends were cut."""
    log = epochs(files, *THREE)
    log.cut_end(Offset(11))
    log.cut_start(Offset(8))
    log.save()
    assert read_epoch_checkpoint(files, CHECKPOINT) == [(3, 8)]


@pytest.mark.parametrize("change", ON_THE_LOOP)
def test_what_the_loop_changes_is_on_the_device_when_it_was_saved(
    files: MemoryFiles, change: Callable[[LeaderEpochs], object]
) -> None:
    """An epoch begins or ends, and a log start moves, without a call of the disk, until `save`."""
    files.sync_directory("")
    log = epochs(files, *THREE)
    calls = len(files.operations)
    change(log)
    assert len(files.operations) == calls
    assert log.entries != THREE
    log.save()
    assert open_leader_epochs(files.crash(), FOLDER).entries == log.entries


def test_a_save_that_fails_is_tried_again(files: MemoryFiles) -> None:
    """The next save writes what the failed one did not."""
    log = epochs(files, *THREE)
    log.assign(LeaderEpoch(5), Offset(12))
    files.faults.append(DiskFault(operation="write", path_part="leader", error=errno.ENOSPC))
    with pytest.raises(OSError, match="leader"):
        log.save()
    files.faults.clear()
    log.save()
    assert read_epoch_checkpoint(files, CHECKPOINT) == [*THREE, (5, 12)]


def test_nothing_is_written_when_nothing_changes(files: MemoryFiles) -> None:
    """An append under the same epoch costs no write, a cut outside of the log neither."""
    log = epochs(files, *THREE)
    files.faults.append(DiskFault(operation="write", path_part="leader", error=errno.ENOSPC))
    log.assign(LeaderEpoch(4), Offset(12))
    log.cut_end(Offset(12))
    log.cut_start(Offset(6))
    log.save()
    assert log.entries == THREE


def test_epochs_with_one_start_are_read_as_the_newer(files: MemoryFiles) -> None:
    """The older of two epochs with one start offset has no records and is dropped."""
    files.open(CHECKPOINT, create=True)
    files.overwrite(CHECKPOINT, b"0\n3\n0 0\n1 0\n2 5\n")
    assert open_leader_epochs(files, FOLDER).entries == ((1, 0), (2, 5))


def test_a_malformed_checkpoint_is_refused(files: MemoryFiles) -> None:
    """It is an error, not an empty checkpoint, which would lose the epochs."""
    files.open(CHECKPOINT, create=True)
    files.overwrite(CHECKPOINT, b"0\n2\n0 0\n")
    with pytest.raises(CorruptionError):
        open_leader_epochs(files, FOLDER)
