"""No start loses a byte of a log: gaps stay, what leaves service is kept, small files mended."""

import struct
from collections.abc import Sequence

import pytest

from tailrace.errors import CorruptionError
from tailrace.model import LeaderEpoch, Offset
from tailrace.storage import names
from tailrace.storage.epochs import EpochEntry
from tailrace.storage.log import Log
from tailrace.storage.recovery import LogCut, open_log
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    append,
    bases,
    batch,
    filled,
    flip,
    folder_at,
    open_at,
    path,
    records,
    settings,
    stop_cleanly,
)

SIZE = len(batch(b"value 0"))
EPOCHS = f"{FOLDER}/leader-epoch-checkpoint"


def compacted(files: MemoryFiles, offsets: Sequence[int], *, rolls: Sequence[int]) -> Log:
    """A log with a batch of one record at each offset, and a new segment at each of `rolls`."""
    log = open_at(files)
    for offset in offsets:
        if offset in rolls:
            log.roll(offset)
        data = batch(b"value %d" % offset, timestamps=[NOW + offset])
        struct.pack_into(">q", data, 0, offset)
        struct.pack_into(">i", data, 12, 0)
        log.append_as_follower(memoryview(data), now_ms=NOW)
    return log


def offsets_of(log: Log) -> list[int]:
    """Offsets of all records."""
    return [record.offset for record in records(log)]


def open_unknown(files: MemoryFiles, *, log_start: int | None = 0) -> Log:
    """Open a folder of which the directory's checkpoints know nothing."""
    return open_log(
        folder_at(files),
        config=settings(),
        is_clean=False,
        checkpoints=(0, log_start),
        may_have_gaps=True,
    )


def log_bytes(files: MemoryFiles) -> int:
    """In logs and in what was set aside."""
    return sum(
        len(files.content(f"{FOLDER}/{name}").rstrip(b"\0"))
        for name in files.list(FOLDER)
        if name.endswith(names.LOG_SUFFIX) or names.parse_set_aside_file_name(name) is not None
    )


def test_gaps_between_segments_stay_where_nothing_is_known_of_the_log() -> None:
    """A compacted log without its checkpoints: all that Kafka serves is served, and none is cut."""
    files = MemoryFiles()
    offsets = [0, 1, 2, 10, 11, 20, 21, 22]
    compacted(files, offsets, rolls=(10, 20)).close()
    before = {name: files.content(f"{FOLDER}/{name}") for name in files.list(FOLDER)}
    log = open_unknown(files)
    assert (offsets_of(log), bases(log)) == (offsets, [0, 10, 20])
    log.close()
    logs = [name for name in before if name.endswith(".log")]
    assert [files.content(f"{FOLDER}/{name}") for name in logs] == [before[n] for n in logs]


TRACES: dict[str, Sequence[int]] = {
    "before the gap": [0, 2, 3, 10, 11],
    "behind the gap": [0, 1, 2, 10, 12],
}


@pytest.mark.parametrize("where", TRACES)
def test_a_trace_of_compaction_anywhere_in_a_log_excuses_its_gaps(where: str) -> None:
    """Offsets missing within a segment are never of a lost tail, so the gap need not be one."""
    files = MemoryFiles()
    offsets = TRACES[where]
    compacted(files, offsets, rolls=(10,)).close()
    assert offsets_of(open_at(files)) == offsets


def test_a_batch_with_fewer_records_than_offsets_excuses_gaps_too() -> None:
    """Compaction takes records out of the middle of a batch."""
    files = MemoryFiles()
    log = compacted(files, [0, 1, 10], rolls=(10,))
    data = batch(b"a", b"b")
    struct.pack_into(">q", data, 0, 11)
    struct.pack_into(">i", data, 12, 0)
    struct.pack_into(">i", data, 57, 1)
    del data[61 + (len(data) - 61) // 2 :]
    struct.pack_into(">i", data, 8, len(data) - 12)
    log.close()
    _recompute_crc(data)
    files.overwrite(path(10, ".log"), files.content(path(10, ".log")) + bytes(data))
    log = open_at(files)
    assert (bases(log), log.end_offset) == ([0, 10], 13)


def _recompute_crc(data: bytearray) -> None:
    import crc32c

    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))


def test_a_gap_in_a_log_that_is_known_and_has_no_trace_is_a_lost_tail() -> None:
    """The segments behind it leave service under other names, told with their records."""
    files = MemoryFiles()
    log = filled(files, 20)
    first, second, *_ = all_bases = bases(log)
    stop_cleanly(log)
    files.overwrite(path(first, ".log"), files.content(path(first, ".log"))[:-SIZE])
    size = log_bytes(files)
    cuts: list[LogCut] = []
    log = open_at(files, report=cuts.append)
    assert offsets_of(log) == list(range(second - 1))
    assert log_bytes(files) == size
    kept = {base: f"{FOLDER}/set-aside-{base:020d}-0.bytes" for base in all_bases[1:]}
    assert {cut.path: cut.kept for cut in cuts} == {path(base, ".log"): kept[base] for base in kept}
    assert sum(cut.records for cut in cuts) == 20 - second


@pytest.mark.parametrize("number", [1, -1])
def test_a_damaged_offset_is_no_trace_of_compaction(number: int) -> None:
    """No checksum covers it, and the batch or segment behind it says that it is wrong.

    So it does not excuse that a segment is lost, at the first start or at the second.
    """
    files = MemoryFiles()
    compacted(files, range(9), rolls=(2, 4, 7)).close()
    files.remove(path(2, ".log"))
    data = bytearray(files.content(path(4, ".log")))
    struct.pack_into(">q", data, range(0, 3 * SIZE, SIZE)[number], 1 << 40)
    files.overwrite(path(4, ".log"), bytes(data))
    for _ in range(2):
        log = open_at(files)
        assert offsets_of(log) == [0, 1]
        log.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_every_byte_that_is_cut_is_kept(is_clean: bool) -> None:  # noqa: FBT001 - a parameter
    """Damage in the last segment: the sound batches behind it are in the kept file too."""
    files = MemoryFiles()
    log = filled(files, 4, config=settings(segment_bytes=10**5))
    stop_cleanly(log)
    flip(files, path(0, ".log"), SIZE + 70)
    damaged = files.content(path(0, ".log"))
    cuts: list[LogCut] = []
    files.remove(path(0, ".index"))
    log = open_at(files, is_clean=is_clean, report=cuts.append)
    assert offsets_of(log) == [0]
    (cut,) = cuts
    assert cut.kept == f"{FOLDER}/set-aside-{0:020d}-{SIZE}.bytes"
    assert files.content(cut.kept) == damaged[SIZE:]


def test_all_records_that_a_start_cuts_are_counted() -> None:
    """Sound batches behind the damage count, and the damaged one that has lost its header."""
    files = MemoryFiles()
    log = filled(files, 20, config=settings(segment_bytes=5 * SIZE + 10))
    stop_cleanly(log)
    data = bytearray(files.content(path(0, ".log")))
    data[2 * SIZE : 2 * SIZE + 61] = bytes(61)
    files.overwrite(path(0, ".log"), bytes(data))
    cuts: list[LogCut] = []
    assert offsets_of(open_at(files, report=cuts.append)) == [0, 1]
    assert sorted((cut.offset, cut.records, cut.unknown_ranges) for cut in cuts) == [
        (2, 3, 0),
        (5, 5, 0),
        (10, 5, 0),
        (15, 5, 0),
    ]


def test_zeros_are_not_kept() -> None:
    """Zeros are dropped: they come from preallocation or from a lost machine."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 2))
    files.overwrite(path(0, ".log"), files.content(path(0, ".log")) + bytes(100))
    cuts: list[LogCut] = []
    open_at(files, report=cuts.append)
    assert [cut.kept for cut in cuts] == [None]
    assert not [name for name in files.list(FOLDER) if name.startswith("set-aside")]


def test_room_for_appends_is_no_cut() -> None:
    """A kill leaves it behind in a preallocated log, and nothing was in it."""
    files = MemoryFiles()
    config = settings(preallocate="true")
    end = filled(files, 2, config=config).end_offset
    killed = files.crash(keep_unsynced=True)
    cuts: list[LogCut] = []
    assert open_at(killed, config=config, report=cuts.append).end_offset == end
    assert cuts == []


def test_other_bytes_under_the_name_stay_and_the_same_are_not_kept_twice() -> None:
    """A second loss at the same place is kept too; a repeated start keeps nothing twice."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 2))
    sound = files.content(path(0, ".log"))
    for tail in (b"first", b"second", b"first", b"second"):
        files.overwrite(path(0, ".log"), sound + tail)
        open_at(files).close()
    kept = [name for name in files.list(FOLDER) if name.startswith("set-aside")]
    assert sorted(files.content(f"{FOLDER}/{name}") for name in kept) == [b"first", b"second"]
    assert all(names.parse_set_aside_file_name(name) == (0, 2 * SIZE) for name in kept)


def test_a_log_start_of_another_life_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    """A folder from a backup meets a checkpoint beyond its end: its records are served."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 12))
    log = open_at(files, checkpoints=(0, 100))
    assert (log.start_offset, offsets_of(log)) == (0, list(range(12)))
    assert any(line.startswith("log_start_rebuilt") for line in caplog.messages)
    assert append(log, batch(b"next")).base_offset == 12


def test_a_backup_with_a_log_start_of_its_own_keeps_that() -> None:
    """Its leader epochs say where it started; what lies below was deleted on request."""
    files = MemoryFiles()
    log = filled(files, 12)
    raise_log_start(log, 7)
    stop_cleanly(log)
    assert open_at(files, checkpoints=(0, 100)).start_offset == 7


@pytest.mark.parametrize("log_start", [0, 7])
def test_a_log_start_that_cannot_be_read_is_that_of_the_leader_epochs(log_start: int) -> None:
    """A malformed checkpoint does not undo a DeleteRecords."""
    files = MemoryFiles()
    log = filled(files, 12)
    raise_log_start(log, log_start)
    stop_cleanly(log)
    assert open_unknown(files, log_start=None).start_offset == log_start


def test_epochs_that_begin_late_hide_nothing_of_older_records() -> None:
    """Records from before there were epochs have none, and no log start has cut them."""
    files = MemoryFiles()
    log = open_at(files)
    for offset in range(4):
        data = batch(b"value", timestamps=[NOW])
        struct.pack_into(">q", data, 0, offset)
        struct.pack_into(">i", data, 12, -1 if offset < 2 else 3)
        log.append_as_follower(memoryview(data), now_ms=NOW)
    assert log.epochs.entries == (EpochEntry(LeaderEpoch(3), Offset(2)),)
    stop_cleanly(log)
    assert open_unknown(files, log_start=None).start_offset == 0


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("content", [b"garbage", b"0\n7\n0 0\n", b"0\n2\n5 3\n1 0\n", b"\xff"])
def test_malformed_leader_epochs_are_those_of_the_batches(
    content: bytes,
    is_clean: bool,  # noqa: FBT001 - a parameter
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All of them, not only those behind the recovery point; and it is said."""
    files = MemoryFiles()
    log = open_at(files)
    for number in range(12):
        append(log, batch(b"value %d" % number), epoch=number // 5)
    before, last = log.epochs.entries, bases(log)[-1]
    stop_cleanly(log)
    files.overwrite(EPOCHS, content)
    log = open_at(files, is_clean=is_clean, checkpoints=(last, 0))
    assert log.epochs.entries == before
    assert files.content(EPOCHS) == b"0\n3\n0 0\n1 5\n2 10\n"
    assert any(line.startswith("epochs_rebuilt") for line in caplog.messages)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_lost_leader_epochs_are_those_of_the_batches(
    is_there: bool,  # noqa: FBT001 - a parameter
    is_clean: bool,  # noqa: FBT001 - a parameter
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A leader without them would have followers cut to high watermarks, which may lag."""
    files = MemoryFiles()
    log = open_at(files)
    for number in range(12):
        append(log, batch(b"value %d" % number), epoch=number // 5)
    before, last = log.epochs.entries, bases(log)[-1]
    stop_cleanly(log)
    files.overwrite(EPOCHS, b"")
    if not is_there:
        files.remove(EPOCHS)
    log = open_at(files, is_clean=is_clean, checkpoints=(last, 0))
    assert log.epochs.entries == before
    assert files.content(EPOCHS) == b"0\n3\n0 0\n1 5\n2 10\n"
    assert any("has no epochs" in line for line in caplog.messages)


def test_a_negative_epoch_of_a_batch_is_none() -> None:
    """Damage has made it, and a checkpoint that had it would be malformed at each start."""
    files = MemoryFiles()
    log = filled(files, 3)
    stop_cleanly(log)
    data = bytearray(files.content(path(0, ".log")))
    struct.pack_into(">i", data, 12, -5)
    files.overwrite(path(0, ".log"), bytes(data))
    files.overwrite(EPOCHS, b"malformed")
    log = open_at(files, is_clean=True, checkpoints=(3, 0))
    assert log.epochs.entries == (EpochEntry(LeaderEpoch(0), Offset(1)),)
    assert offsets_of(log) == [0, 1, 2]


def test_malformed_leader_epochs_are_an_error_if_the_batches_contradict_each_other() -> None:
    """It is not guessed at, and the log is not touched."""
    files = MemoryFiles()
    log = open_at(files)
    for number in range(3):
        append(log, batch(b"value"), epoch=number)
    stop_cleanly(log)
    data = bytearray(files.content(path(0, ".log")))
    struct.pack_into(">i", data, 12, 9)
    files.overwrite(path(0, ".log"), bytes(data))
    files.overwrite(EPOCHS, b"garbage")
    files.operations.clear()
    with pytest.raises(CorruptionError, match="leader epoch 1 follows the higher epoch 9"):
        open_at(files)
    assert [each for each in files.operations if each[0] != "make_directory"] == []


def test_a_damaged_compaction_takes_nothing_away() -> None:
    """The replaced segments are still there when it is refused, `.deleted` ones too."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 12))
    files.open(path(0, ".log.swap"), create=True).close()
    files.overwrite(path(0, ".log.swap"), files.content(path(0, ".log")))
    flip(files, path(0, ".log.swap"), 70)
    files.rename(path(0, ".log"), path(0, ".log.deleted"))
    before = {name: files.content(f"{FOLDER}/{name}") for name in files.list(FOLDER)}
    with pytest.raises(CorruptionError, match="CRC"):
        open_at(files)
    assert {name: files.content(f"{FOLDER}/{name}") for name in files.list(FOLDER)} == before


def test_a_compaction_that_is_completed_leaves_strangers_alone() -> None:
    """A file that begins like a segment and is of none, say a copy that an operator made."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 2))
    files.rename(path(0, ".log"), path(0, ".log.swap"))
    files.open(path(0, ".backup"), create=True).close()
    open_at(files)
    assert files.exists(path(0, ".backup"))
