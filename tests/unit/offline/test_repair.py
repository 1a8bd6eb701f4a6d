"""Tests of what a repair drops, keeps and rebuilds, and that its plan says all of it."""

import uuid

import crc32c
import pytest

from tailrace.cluster.image import Topic
from tailrace.errors import DirectoryError
from tailrace.offline.findings import Finding, Severity
from tailrace.offline.repair import apply_repair, lock_directory
from tailrace.offline.repair_plan import JOURNAL_FILE, RepairPlan, plan_repair
from tailrace.offline.verify import verify
from tailrace.reading.damage import OnDamage
from tailrace.reading.directory import find_partitions
from tailrace.records import layout
from tailrace.records.batch import stamp
from tailrace.storage.checkpoints import read_epoch_checkpoint, read_offset_checkpoint
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import MemoryFiles
from tests.unit.cluster.metadata_logs import save_topics
from tests.unit.storage.builders import (
    FOLDER,
    PARTITION,
    SetClock,
    append,
    batch,
    filled,
    flip,
    open_at,
    path,
    records,
    settings,
    stop_cleanly,
)

SIZE = len(batch(b"value 0"))
CUT, SKIP = OnDamage.CUT, OnDamage.SKIP
RECOVERY_POINTS = "data/recovery-point-offset-checkpoint"


def put(files: MemoryFiles, name: str, content: bytes) -> None:
    """A file with this content."""
    files.open(name, create=True).close()
    files.overwrite(name, content)


def a_log(count: int = 20) -> MemoryFiles:
    """A cleanly closed log with batches of one record in segments of five, indexed densely."""
    files = MemoryFiles()
    stop_cleanly(filled(files, count, config=settings(segment_bytes=400)))
    return files


def plan(files: MemoryFiles, on_damage: OnDamage = CUT) -> RepairPlan:
    """Plan a repair, and check that this has changed nothing."""
    files.operations.clear()
    made = plan_repair(files, find_partitions(files, "data"), on_damage)
    assert not files.operations
    return made


def repair(files: MemoryFiles, on_damage: OnDamage = CUT) -> RepairPlan:
    """Repair, and check that nothing is left to do or to find."""
    made = plan(files, on_damage)
    assert not apply_repair(files, made, clock=SetClock())
    assert wrong(files) == []
    assert plan(files, on_damage).is_empty
    return made


def wrong(files: MemoryFiles) -> list[Finding]:
    """Return the findings of `verify` that are not just information."""
    found = verify(files, find_partitions(files, "data"))
    return [each for each in found if each.severity is not Severity.INFO]


def offsets(files: MemoryFiles, *, is_clean: bool = False) -> list[int]:
    """Offsets of the records that a broker finds when it starts; it must not cut anything."""
    point = read_offset_checkpoint(files, RECOVERY_POINTS).get(PARTITION, 0)
    cuts: list[object] = []
    log = open_at(files, is_clean=is_clean, checkpoints=(point, 0), report=cuts.append)
    found: list[int] = [record.offset for record in records(log)]
    log.close()
    assert not cuts
    return found


def quarantined(files: MemoryFiles) -> dict[str, bytes]:
    """The quarantine files of the partition."""
    named = [name for name in files.list(FOLDER) if name.startswith("quarantine-")]
    return {name: files.content(f"{FOLDER}/{name}") for name in named}


@pytest.mark.parametrize("damage", [b"garbage", b"0\n7\nflights 0 7\n"])
def test_a_malformed_log_start_checkpoint_is_rebuilt_from_the_leader_epochs(damage: bytes) -> None:
    """The repair does not undo a DeleteRecords, and keeps the old file."""
    files = MemoryFiles()
    log = filled(files, 20, config=settings(segment_bytes=400))
    raise_log_start(log, 7)
    stop_cleanly(log)
    put(files, "data/log-start-offset-checkpoint", damage)
    repair(files)
    assert files.content("data/log-start-offset-checkpoint") == b"0\n1\nflights 0 7\n"
    assert files.content("data/quarantine-log-start-offset-checkpoint.bytes") == damage


def test_a_log_start_beyond_the_end_stays_if_the_log_knows_of_it() -> None:
    """The log start stays, so no offset is reused; that of an earlier log is dropped."""
    files = a_log()
    put(files, "data/log-start-offset-checkpoint", b"0\n1\nflights 0 40\n")
    repair(files)
    assert files.content("data/log-start-offset-checkpoint") == b"0\n0\n"
    log = open_at(files, config=settings(segment_bytes=400), is_clean=True)
    raise_log_start(log, 20)
    stop_cleanly(log)
    files.overwrite(path(15, ".log"), files.content(path(15, ".log"))[:-77])
    put(files, "data/log-start-offset-checkpoint", b"0\n1\nflights 0 20\n")
    repair(files)
    assert files.content("data/log-start-offset-checkpoint") == b"0\n1\nflights 0 20\n"
    kept = b"".join(quarantined(files).values())
    assert all(b"value %d" % number in kept for number in range(19))
    log = open_at(files, checkpoints=(0, 20))
    assert (log.start_offset, log.end_offset) == (20, 20)


def test_a_sound_directory_is_left_alone() -> None:
    """The plan is empty, and nothing is done."""
    files = a_log()
    made = plan(files)
    assert made.is_empty
    apply_repair(files, made, clock=SetClock())
    assert not files.operations


@pytest.mark.parametrize("is_clean", [False, True])
def test_cut_drops_all_behind_the_damage(is_clean: bool) -> None:  # noqa: FBT001
    """It cuts like a broker's recovery: the bytes are in quarantine, and the rest can be opened."""
    files = a_log()
    flip(files, path(5, ".log"), 2 * SIZE + 70)
    damaged = files.content(path(5, ".log"))
    later = {base: files.content(path(base, ".log")) for base in (10, 15)}
    (made,) = repair(files).partitions
    assert [(each.path, each.position, each.offset, each.records) for each in made.drops] == [
        (path(5, ".log"), 2 * SIZE, 7, 3),
        (path(10, ".log"), 0, 10, 5),
        (path(15, ".log"), 0, 15, 5),
    ]
    assert offsets(files, is_clean=is_clean) == list(range(7))
    assert quarantined(files) == {
        f"quarantine-{5:020d}-{2 * SIZE}.bytes": damaged[2 * SIZE :],
        **{f"quarantine-{base:020d}-0.bytes": content for base, content in later.items()},
    }


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("number", range(5))
def test_skip_drops_the_damaged_batch_alone(number: int, is_clean: bool) -> None:  # noqa: FBT001
    """The batch may be at any place in a segment, and later ones keep their offsets."""
    files = a_log()
    flip(files, path(5, ".log"), number * SIZE + 70)
    damaged = files.content(path(5, ".log"))[number * SIZE :][:SIZE]
    (made,) = repair(files, SKIP).partitions
    (drop,) = made.drops
    lost = 5 + number
    assert (drop.offset, drop.next_offset, drop.records) == (lost, lost + 1, 1)
    assert offsets(files, is_clean=is_clean) == [each for each in range(20) if each != lost]
    assert list(quarantined(files).values()) == [damaged]


@pytest.mark.parametrize("field", range(SIZE))
def test_any_flipped_byte_costs_one_batch_at_most(field: int) -> None:
    """The repair finds the next good header, be the byte in a frame or in records."""
    files = a_log()
    flip(files, path(5, ".log"), 2 * SIZE + field)
    repair(files, SKIP)
    left = offsets(files)
    # A leader epoch says nothing of the records, so it is put right and nothing is lost.
    is_epoch = 12 <= field < 16
    assert left == [each for each in range(20) if is_epoch or each != 7]


def test_garbage_of_any_length_is_stepped_over() -> None:
    """It leads nowhere, so the next header is searched for; nothing sound is lost."""
    files = a_log()
    name = path(5, ".log")
    content = files.content(name)
    files.overwrite(name, content[: 2 * SIZE] + b"\x02" * 777 + content[2 * SIZE :])
    (made,) = repair(files, SKIP).partitions
    assert [(each.position, each.size_bytes, each.records) for each in made.drops] == [
        (2 * SIZE, 777, 0)
    ]
    assert offsets(files) == list(range(20))


def test_a_torn_append_is_cut_in_both_ways() -> None:
    """At the end there is nothing to step over to."""
    for on_damage in OnDamage:
        files = a_log(3)
        name = path(0, ".log")
        files.overwrite(name, files.content(name) + bytes(batch())[:40])
        (made,) = repair(files, on_damage).partitions
        assert [(each.position, each.size_bytes) for each in made.drops] == [(3 * SIZE, 40)]
        assert list(quarantined(files).values()) == [bytes(batch())[:40]]
        assert offsets(files) == [0, 1, 2]


def test_zeros_behind_the_last_batch_are_no_damage() -> None:
    """A preallocated file may have a gigabyte of them, in use by a broker or after a kill."""
    files = a_log(3)
    name = path(0, ".log")
    files.overwrite(name, files.content(name) + bytes(500))
    assert not list(verify(files, find_partitions(files, "data")))
    assert plan_repair(files, find_partitions(files, "data"), SKIP).is_empty


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_wrong_index_is_rebuilt(suffix: str) -> None:
    """The rebuilt index equals the original, and the log does not change."""
    files = a_log()
    configs = {"index.interval.bytes": "100", "internal.segment.bytes": "400"}
    topic = Topic(name="flights", topic_id=uuid.UUID(int=1), partitions=(0,), configs=configs)
    save_topics(files, topic)
    log, before = files.content(path(5, ".log")), files.content(path(5, suffix))
    flip(files, path(5, suffix), 3)
    (made,) = repair(files).partitions
    assert not made.drops
    assert (files.content(path(5, ".log")), files.content(path(5, suffix))) == (log, before)


@pytest.mark.parametrize("position", [0, 3, 8])
def test_a_damaged_snapshot_is_replaced(position: int) -> None:
    """The state follows from the log."""
    files = a_log()
    before = files.content(path(20, ".snapshot"))
    flip(files, path(20, ".snapshot"), position)
    repair(files)
    assert files.content(path(20, ".snapshot")) == before


def test_a_damaged_checkpoint_is_set_aside() -> None:
    """A broker that starts without one recovers more than need be, and loses nothing."""
    files = a_log()
    put(files, RECOVERY_POINTS, b"0\n2\nflights 0 20\n")
    repair(files)
    assert not files.exists(RECOVERY_POINTS)
    kept = "data/quarantine-recovery-point-offset-checkpoint.bytes"
    assert files.content(kept) == b"0\n2\nflights 0 20\n"


def test_an_entry_behind_the_end_of_its_log_goes() -> None:
    """A repair removes such an entry of a checkpoint and keeps those of other partitions."""
    files = a_log()
    put(files, RECOVERY_POINTS, b"0\n2\nflights 0 99\nflights 1 5\n")
    repair(files)
    assert files.content(RECOVERY_POINTS) == b"0\n1\nflights 1 5\n"


@pytest.mark.parametrize("content", [b"0\n1\n5 0\n", b"1\n0\n", b"0\n1\n0 77\n"])
def test_a_wrong_epoch_checkpoint_is_rebuilt_from_the_batches(content: bytes) -> None:
    """A checkpoint is wrong if it is unreadable or has other epochs."""
    files = MemoryFiles()
    log = open_at(files)
    for number in range(8):
        append(log, batch(b"value"), epoch=3 + number // 4)
    stop_cleanly(log)
    put(files, f"{FOLDER}/leader-epoch-checkpoint", content)
    repair(files)
    found = read_epoch_checkpoint(files, f"{FOLDER}/leader-epoch-checkpoint")
    assert found == [(3, 0), (4, 4)]


def test_a_leader_epoch_that_falls_is_put_right_in_its_batch() -> None:
    """No checksum covers it; the records stay."""
    files = a_log()
    name = path(5, ".log")
    before = files.content(name)
    data = bytearray(before)
    stamp(memoryview(data)[SIZE:], base_offset=6, leader_epoch=9)
    files.overwrite(name, bytes(data))
    repair(files)
    assert files.content(name) == before


@pytest.mark.parametrize("content", [b"0\n1\n0 0\n", b"malformed"])
@pytest.mark.parametrize("count", [1, 5])
def test_a_negative_leader_epoch_is_put_right_in_its_batch(content: bytes, count: int) -> None:
    """It comes from damage, also where no epoch is before it, or where no batch has another."""
    files = a_log(5)
    name = path(0, ".log")
    before = files.content(name)
    data = bytearray(before)
    for position in range(0, len(data), SIZE)[:count]:
        data[position + layout.LEADER_EPOCH_POSITION] ^= 0xFF
    files.overwrite(name, bytes(data))
    put(files, f"{FOLDER}/leader-epoch-checkpoint", content)
    repair(files)
    assert files.content(name) == before
    assert files.content(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n1\n0 0\n"


def test_partition_metadata_comes_back_from_a_sibling_or_not_at_all() -> None:
    """Another partition of the topic has the same id; without one there is advice."""
    files = a_log()
    damaged = f"{FOLDER}/partition.metadata"
    put(files, damaged, b"version: 0\ntopic_id: short")
    made = plan(files)
    assert "remove the file" in made.advice[0].sentence
    good = b"version: 0\ntopic_id: EjRWeBI0QjSCNBI0VniavA"
    files.make_directory("data/flights-1")
    put(files, "data/flights-1/partition.metadata", good)
    put(files, "data/flights-1/00000000000000000000.log", b"")
    repair(files)
    assert files.content(damaged) == good


def test_what_cannot_be_mended_is_told_with_advice() -> None:
    """Without a cluster.id, the advice is to restore meta.properties from a backup."""
    files = a_log()
    put(files, "data/meta.properties", b"version=1\nnode.id=1\n")
    made = plan(files)
    assert made.is_empty
    assert "cluster.id missing; restore it from a backup" in made.advice[0].sentence


def test_a_header_that_knows_too_small_a_timestamp_is_told_and_kept() -> None:
    """Its checksum is right and its records are whole: to drop them would lose, not save."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 0))
    data = bytearray(batch(b"a", timestamps=[5]))
    data[35:43] = bytes(8)
    data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4, "big")
    files.overwrite(path(0, ".log"), bytes(data))
    made = plan(files, SKIP)
    assert made.partitions == []
    assert "so it stays" in made.advice[0].sentence


def test_the_mark_of_an_orderly_stop_survives_and_the_note_goes() -> None:
    """A start after the repair may trust what is there."""
    files = a_log()
    put(files, "data/.kafka_cleanshutdown", b"")
    flip(files, path(5, ".log"), 70)
    repair(files, SKIP)
    assert files.exists("data/.kafka_cleanshutdown")
    assert not files.exists(f"data/{JOURNAL_FILE}")


def test_checkpoints_do_not_know_what_was_cut() -> None:
    """The high watermark and the cleaner's progress among them."""
    files = a_log()
    named = ("recovery-point", "replication", "cleaner")
    for name in named:
        put(files, f"data/{name}-offset-checkpoint", b"0\n2\nflights 0 20\nflights 9 1\n")
    flip(files, path(5, ".log"), 70)
    repair(files)
    for name in named:
        assert (
            files.content(f"data/{name}-offset-checkpoint") == b"0\n2\nflights 0 5\nflights 9 1\n"
        )


def test_a_log_cut_below_its_start_begins_anew_there() -> None:
    """The log restarts at its log start, so deleted records do not come back."""
    files = a_log()
    put(files, "data/log-start-offset-checkpoint", b"0\n1\nflights 0 12\n")
    flip(files, path(5, ".log"), 70)
    repair(files)
    log = open_at(files, checkpoints=(0, 12))
    assert (log.start_offset, log.end_offset) == (12, 12)
    assert len(quarantined(files)) == 4


def test_a_directory_in_use_is_refused_in_one_line() -> None:
    """It is refused even for a plan, which a running broker would make obsolete at once."""
    files = a_log()
    files.lock("data/.lock")
    for is_read_only in (False, True):
        with pytest.raises(DirectoryError, match="in use by another process"):
            lock_directory(files, "data", is_read_only=is_read_only)


def test_a_second_damage_does_not_overwrite_the_first_quarantine() -> None:
    """Other bytes from the same place of the same segment go into another file."""
    files = a_log()
    for _ in range(2):
        flip(files, path(5, ".log"), 2 * SIZE + 70)
        repair(files, SKIP)
    assert offsets(files) == [each for each in range(20) if each not in {7, 8}]
    assert len(quarantined(files)) == 2
