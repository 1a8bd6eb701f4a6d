"""Tests that a repair brings back what a recovery has set aside, if it fits behind the log."""

import struct
import tracemalloc

import pytest

from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.offline.leftovers import plan_restores
from tailrace.offline.repair import apply_repair
from tailrace.offline.repair_plan import RepairPlan, plan_repair
from tailrace.offline.verify import verify
from tailrace.reading.damage import OnDamage
from tailrace.reading.directory import find_partitions
from tailrace.records.batch import stamp
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.testing import MemoryFiles
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
CONFIG = settings(segment_bytes=400)
RECOVERY_POINTS = "data/recovery-point-offset-checkpoint"


def recovered(damage: str) -> MemoryFiles:
    """A log of segments 0, 5, 10 and 15 after a start that has set aside all from 5 or so on."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20, config=CONFIG))
    if damage == "torn":
        flip(files, path(5, ".log"), 2 * SIZE + 70)
    else:
        files.overwrite(path(5, ".log"), files.content(path(5, ".log"))[: 2 * SIZE])
    stop_cleanly(open_at(files, config=CONFIG))
    return files


def planned(files: MemoryFiles, on_damage: OnDamage = OnDamage.CUT) -> RepairPlan:
    """Plan a repair."""
    return plan_repair(files, find_partitions(files, "data"), on_damage)


def found(files: MemoryFiles) -> list[Finding]:
    """Return the findings of `verify` about files that were set aside."""
    told = verify(files, find_partitions(files, "data"))
    return [each for each in told if each.rule is Rule.SET_ASIDE]


def offsets_after_a_crash(files: MemoryFiles) -> list[int]:
    """Offsets of all records that a start finds, which believes the recovery point."""
    point = read_offset_checkpoint(files, RECOVERY_POINTS).get(PARTITION, 0)
    cuts: list[object] = []
    log = open_at(files, config=CONFIG, checkpoints=(point, 0), report=cuts.append)
    assert not cuts
    return [record.offset for record in records(log)]


@pytest.mark.parametrize("on_damage", OnDamage)
@pytest.mark.parametrize(
    ("damage", "back"), [("torn", list(range(8, 20))), ("gap", list(range(10, 20)))]
)
def test_all_that_is_sound_comes_back(damage: str, back: list[int], on_damage: OnDamage) -> None:
    """Under its offsets, segments by their names, the rest by copies; the next start keeps it."""
    files = recovered(damage)
    plan = planned(files, on_damage)
    assert [each.severity for each in found(files)] == [Severity.WARNING] * len(found(files))
    (made,) = plan.partitions
    assert sum(each.records for each in made.restores) == len(back)
    assert len(made.fixes) == len(made.restores)
    assert not apply_repair(files, plan, clock=SetClock())
    assert offsets_after_a_crash(files) == [*range(7), *back]
    assert all(each.severity is Severity.INFO for each in found(files))
    assert planned(files, on_damage).is_empty


def test_a_damaged_file_stays_with_all_of_its_bytes() -> None:
    """The sound part was copied, and the whole file is kept."""
    files = recovered("torn")
    torn = f"{FOLDER}/set-aside-{5:020d}-{2 * SIZE}.bytes"
    before = files.content(torn)
    apply_repair(files, planned(files), clock=SetClock())
    assert files.content(torn) == before
    assert [each.path for each in found(files)] == [torn]
    assert [each.path for each in planned(files).notes] == [torn]


def test_offsets_that_were_given_out_again_do_not_come_back() -> None:
    """Records at later offsets do come back, after what was appended since."""
    files = recovered("gap")
    log = open_at(files, config=CONFIG, is_clean=True, checkpoints=(7, 0))
    for number in range(6):
        append(log, batch(b"since %d" % number))
    stop_cleanly(log)
    plan = planned(files)
    assert not apply_repair(files, plan, clock=SetClock())
    log = open_at(files, config=CONFIG, is_clean=True, checkpoints=(20, 0))
    told = [(record.offset, record.value) for record in records(log)]
    assert told[5:15] == [
        *((5 + n, b"value %d" % (5 + n)) for n in range(2)),
        *((7 + n, b"since %d" % n) for n in range(6)),
        *((13 + n, b"value %d" % (13 + n)) for n in range(2)),
    ]
    assert [offset for offset, _ in told] == list(range(20))


def test_what_is_under_an_older_epoch_does_not_come_back() -> None:
    """A follower could not tell it from what another leader wrote."""
    files = recovered("gap")
    log = open_at(files, config=CONFIG, is_clean=True, checkpoints=(7, 0))
    append(log, batch(b"since"), epoch=1)
    stop_cleanly(log)
    assert planned(files).is_empty
    assert [each.severity for each in found(files)] == [Severity.INFO] * 2


def test_what_a_repair_has_dropped_does_not_come_back() -> None:
    """The user wanted that data dropped."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20, config=CONFIG))
    flip(files, path(5, ".log"), 2 * SIZE + 70)
    apply_repair(files, planned(files), clock=SetClock())
    assert any(name.startswith("quarantine-") for name in files.list(FOLDER))
    assert planned(files).is_empty
    assert not found(files)


def test_a_log_with_damage_is_repaired_first() -> None:
    """Its end is not known yet, so set-aside files are restored by the next repair."""
    files = recovered("gap")
    flip(files, path(0, ".log"), 70)
    plan = planned(files, OnDamage.SKIP)
    assert not plan.partitions[0].restores
    apply_repair(files, plan, clock=SetClock())
    apply_repair(files, planned(files, OnDamage.SKIP), clock=SetClock())
    assert offsets_after_a_crash(files) == [*range(1, 7), *range(10, 20)]


@pytest.mark.parametrize("offset", [2, 2**40, -1])
def test_a_batch_whose_offset_cannot_be_its_own_stays(offset: int) -> None:
    """No checksum covers it, so it is held against what stands around it."""
    files = recovered("gap")
    kept = f"{FOLDER}/set-aside-{15:020d}-0.bytes"
    data = bytearray(files.content(kept))
    struct.pack_into(">q", data, len(batch(b"value 15")), offset)
    files.overwrite(kept, bytes(data))
    apply_repair(files, planned(files), clock=SetClock())
    expected = [*range(7), *range(10, 20)]
    expected.remove(16)
    assert offsets_after_a_crash(files) == expected


def test_a_set_aside_file_is_planned_in_memory_that_does_not_grow_with_its_batches() -> None:
    """For ten thousand batches, the plan keeps their ranges and the first and last one."""
    data = batch(b"v")
    content = bytearray()
    for offset in range(10_000):
        stamp(memoryview(data), base_offset=offset, leader_epoch=0)
        content += data
    files = MemoryFiles()
    files.make_directory(FOLDER)
    name = f"set-aside-{0:020d}-0.bytes"
    files.open(f"{FOLDER}/{name}", create=True)
    files.overwrite(f"{FOLDER}/{name}", bytes(content))
    tracemalloc.start()
    try:
        [restore], _ = plan_restores(files, FOLDER, segments=[], listed=[name])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (restore.records, restore.ranges) == (10_000, ((0, len(content)),))
    assert peak < 3 * len(content), peak
