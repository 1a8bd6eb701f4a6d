"""Tests of repairs after a compaction was interrupted while it exchanged segments."""

import pytest

from tailrace.offline.findings import Severity
from tailrace.offline.repair import apply_repair
from tailrace.offline.repair_plan import RepairPlan, plan_repair
from tailrace.offline.verify import verify
from tailrace.reading.damage import OnDamage
from tailrace.reading.directory import find_partitions
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import (
    FOLDER,
    SetClock,
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
SWAP = path(0, ".log.swap")


def put(files: MemoryFiles, name: str, content: bytes) -> None:
    """A file with this content."""
    files.open(name, create=True).close()
    files.overwrite(name, content)


def published() -> MemoryFiles:
    """Segments from 0, 5, 10 and 15 on, and what compaction has made of the first: no offset 0."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20, config=settings(segment_bytes=400)))
    put(files, SWAP, files.content(path(0, ".log"))[SIZE:])
    for suffix in (".index", ".timeindex"):
        put(files, path(0, f"{suffix}.swap"), b"")
    return files


def contents(files: MemoryFiles) -> dict[str, bytes]:
    """Every file of the partition."""
    return {name: files.content(f"{FOLDER}/{name}") for name in files.list(FOLDER)}


def repair(files: MemoryFiles, on_damage: OnDamage) -> RepairPlan:
    """One repair."""
    made = plan_repair(files, find_partitions(files, "data"), on_damage)
    apply_repair(files, made, clock=SetClock())
    return made


def offsets(files: MemoryFiles) -> list[int]:
    """Offsets of the records that a broker finds when it starts."""
    return [record.offset for record in records(open_at(files))]


@pytest.mark.parametrize("on_damage", OnDamage)
def test_no_file_is_changed_while_a_swap_file_is_damaged(on_damage: OnDamage) -> None:
    """The old segment holds the sound copies; the advice says how the log gets back to it."""
    files = published()
    flip(files, SWAP, 70)
    before = contents(files)
    made = repair(files, on_damage)
    assert contents(files) == before
    repair(files, on_damage)
    assert contents(files) == before
    told = next(each for each in made.advice if each.path == SWAP)
    assert "are there and sound: move all files" in told.sentence
    for name in before:
        if name.endswith(".swap"):
            files.remove(f"{FOLDER}/{name}")
    repair(files, on_damage)
    assert offsets(files) == list(range(20))


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_damaged_swap_file_without_sound_old_segments_needs_a_backup(*, is_gone: bool) -> None:
    """The repair changes nothing, and its advice does not promise that no record is lost."""
    files = published()
    flip(files, SWAP, 70)
    if is_gone:
        files.rename(path(0, ".log"), path(0, ".log.deleted"))
    else:
        flip(files, path(0, ".log"), 2 * SIZE + 70)
    before = contents(files)
    made = repair(files, OnDamage.SKIP)
    assert contents(files) == before
    told = next(each for each in made.advice if each.path == SWAP)
    assert "restore the partition from a replica or a backup" in told.sentence


def test_a_damaged_index_of_a_swap_file_is_rebuilt_after_the_exchange() -> None:
    """The first repair finishes the exchange, the second one rebuilds the index."""
    files = published()
    files.overwrite(path(0, ".index.swap"), b"\x00\x00\x00\x02\x00\x00\x00\x07")
    made = repair(files, OnDamage.CUT)
    assert any("repair again" in each.sentence for each in made.advice)
    assert not repair(files, OnDamage.CUT).is_empty
    found = verify(files, find_partitions(files, "data"))
    assert all(each.severity is Severity.INFO for each in found)
    assert offsets(files) == list(range(1, 20))


def test_old_segments_do_not_return_behind_a_cut() -> None:
    """Damage before a swap file: the exchange comes first, so that nothing is hidden behind it."""
    files = published()
    files.rename(SWAP, path(5, ".log.swap"))
    files.overwrite(path(5, ".log.swap"), files.content(path(5, ".log"))[SIZE:])
    for suffix in (".index", ".timeindex"):
        files.remove(path(0, f"{suffix}.swap"))
    flip(files, path(0, ".log"), 3 * SIZE + 70)
    sound = files.content(path(5, ".log.swap"))
    for _ in range(2):
        repair(files, OnDamage.CUT)
    left = contents(files)
    assert [name for name in left if name.endswith(".log")] == [f"{0:020d}.log"]
    assert sound in left.values()
    assert offsets(files) == [0, 1, 2]


def test_checkpoints_of_a_log_that_is_left_alone_stay() -> None:
    """The end of that log is known only after the exchange, so its log start must be kept."""
    files = published()
    flip(files, SWAP, 70)
    files.overwrite(path(15, ".log"), files.content(path(15, ".log"))[:-77])
    for name in ("log-start", "recovery-point"):
        put(files, f"data/{name}-offset-checkpoint", b"0\n1\nflights 0 20\n")
    repair(files, OnDamage.SKIP)
    for name in ("log-start", "recovery-point"):
        assert files.content(f"data/{name}-offset-checkpoint") == b"0\n1\nflights 0 20\n"
