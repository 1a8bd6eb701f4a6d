"""Every tool names the same damage, because one walk decides what damage is."""

import random
from collections import Counter

import pytest

from tailrace.errors import CorruptionError, DirectoryError
from tailrace.offline.findings import Rule, Severity
from tailrace.offline.salvage import salvage_records
from tailrace.offline.verify import verify
from tailrace.reading.damage import OnDamage, find_damage
from tailrace.reading.directory import find_partitions, list_segments
from tailrace.storage.records_file import open_records_file
from tailrace.storage.segment_walk import Damage, Fault, walk_segment
from tests.fuzz.directories import ROOT, damage, directories

OF_BATCHES = {
    Rule.FRAME,
    Rule.CHECKSUM,
    Rule.RECORDS,
    Rule.OFFSET_ORDER,
    Rule.TAIL,
    Rule.TRANSACTION,
}
NAMES = [each.name for each in directories()]


@pytest.mark.parametrize("name", NAMES)
def test_verify_repair_and_salvage_agree_on_the_damage(name: str) -> None:
    """A repair would drop exactly the damage that they report."""
    directory = next(each for each in directories() if each.name == name)
    rules: Counter[Rule] = Counter()
    for seed in range(60):
        files = directory.copy()
        damage(random.Random(seed), files)
        try:
            found = find_partitions(files, ROOT)
            findings = [
                each
                for each in verify(files, found)
                if each.rule in OF_BATCHES
                and each.position is not None
                and (each.severity is Severity.ERROR or each.rule is Rule.TAIL)
                and each.severity is not Severity.INFO
            ]
            segments = {
                each: list_segments(files, folder)[0] for each, folder in found.partitions.items()
            }
            drops = [
                drop
                for each in segments.values()
                for drop in find_damage(files, each, OnDamage.SKIP).drops
            ]
            salvaged = salvage_records(files, dict(found.partitions), to=f"{ROOT}/salvaged")
        except DirectoryError:
            continue
        rules.update(each.rule for each in findings)
        places = {(each.path, each.position) for each in findings}
        assert {(each.path, each.position) for each in drops} == places, seed
        assert salvaged.ranges + salvaged.silent_ranges == len(drops), seed
    assert len(rules) >= 3, rules


@pytest.mark.parametrize("name", NAMES)
def test_a_recovery_keeps_what_is_before_the_first_damage(name: str) -> None:
    """Frames and checksums are checked by another, compiled loop there, with the same result."""
    directory = next(each for each in directories() if each.name == name)
    for seed in range(60):
        files = directory.copy()
        damage(random.Random(seed), files)
        try:
            partitions = find_partitions(files, ROOT).partitions.values()
            listed = [each for folder in partitions for each in list_segments(files, folder)[0]]
        except DirectoryError:
            continue
        for segment in listed:
            log = open_records_file(files, segment.path, read_only=True)
            end = 0
            try:
                for _, batch_end, *_ in log.checked():
                    end = batch_end
            except CorruptionError:
                pass
            finally:
                log.close()
            file = files.open(segment.path, read_only=True)
            walk = walk_segment(
                file,
                segment.path,
                base_offset=segment.base_offset,
                size=segment.size,
                reads_records=False,
            )
            bad = (
                each.position
                for each in walk
                # The order of offsets is checked by the recovery itself.
                if isinstance(each, Damage) and each.fault is not Fault.OFFSETS
            )
            assert next(bad, segment.size) == end, (seed, segment.path)
