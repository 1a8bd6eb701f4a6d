"""Damage of several files at once, as mutation has found it: each is told, and mended in one go."""

from tailrace.model import Codec
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.offline.repair import apply_repair
from tailrace.offline.repair_plan import plan_repair
from tailrace.offline.verify import verify
from tailrace.reading.damage import OnDamage
from tailrace.reading.directory import find_partitions
from tailrace.records.legacy import read_all_batches
from tailrace.storage import names
from tailrace.testing import MemoryFiles
from tests.fuzz.directories import ROOT, Directory, all_paths, directories
from tests.unit.storage.builders import FOLDER, SetClock, flip, path


def of_kind(name: str) -> tuple[Directory, MemoryFiles]:
    """A directory of that kind and a copy of its files."""
    directory = next(each for each in directories() if each.name == name)
    return directory, directory.copy()


def faults(files: MemoryFiles) -> list[Finding]:
    """Findings that are more than information, gaps in sequences apart."""
    return [
        each
        for each in verify(files, find_partitions(files, ROOT))
        if each.severity is not Severity.INFO and each.rule is not Rule.SEQUENCE
    ]


def repaired(files: MemoryFiles, on_damage: OnDamage = OnDamage.SKIP) -> list[Finding]:
    """Repair once, and return the faults that are left."""
    plan = plan_repair(files, find_partitions(files, ROOT), on_damage)
    assert apply_repair(files, plan, clock=SetClock()) == []
    return faults(files)


def test_a_partition_that_has_lost_all_its_logs_is_told() -> None:
    """The recovery point knows of offsets, and no file holds them; a repair takes it back."""
    _, files = of_kind("plain")
    for each in all_paths(files):
        if each.startswith(FOLDER) and not each.endswith(names.PARTITION_METADATA):
            files.remove(each)
    (found,) = faults(files)
    assert found.rule is Rule.CHECKPOINT
    assert found.path == f"{ROOT}/{names.RECOVERY_POINTS}"
    assert found.offset == 31
    assert repaired(files) == []


def test_a_transaction_whose_end_is_in_a_missing_segment_is_no_fault_of_the_next_one() -> None:
    """The index entry of the next one is right, although the first was never seen to end."""
    _, files = of_kind("transactions")
    files.remove(path(10, names.LOG_SUFFIX))
    assert {each.rule for each in faults(files)} == {Rule.ORPHAN}
    assert repaired(files) == []


def test_a_snapshot_at_the_end_may_know_what_a_missing_segment_had() -> None:
    """A segment is gone and the last one is cut to nothing: the state before it is no fault."""
    _, files = of_kind("compacted")
    files.remove(path(10, names.LOG_SUFFIX))
    flip(files, path(44, names.LOG_SUFFIX), 70)
    files.overwrite(path(44, names.LOG_SUFFIX), files.content(path(44, names.LOG_SUFFIX))[:100])
    assert repaired(files) == []


def test_a_file_of_no_segment_is_no_leftover_of_a_compaction() -> None:
    """A broker leaves such a file alone, so verify does not say that it will be removed."""
    _, files = of_kind("plain")
    for suffix in (names.CLEANED_SUFFIX, names.SWAP_SUFFIX):
        files.open(f"{FOLDER}/{names.PARTITION_METADATA}{suffix}", create=True)
    assert faults(files) == []


def test_the_directories_that_are_damaged_are_sound_themselves() -> None:
    """They have no finding before they are damaged, and every codec and format among them."""
    codecs, magics = set(), set()
    for directory in directories():
        assert faults(directory.copy()) == []
        for each in all_paths(directory.files):
            if each.endswith(names.LOG_SUFFIX):
                for _, found in read_all_batches(memoryview(directory.files.content(each))):
                    codecs.add(found.codec)
                    magics.add(2 if found.legacy is None else found.legacy.magic)
    assert codecs == set(Codec)
    assert magics == {0, 1, 2}
