"""A partition checked segment by segment, in any order, gives what a walk in one step gives."""

import pickle
import random
from collections import Counter

import pytest

from tailrace.errors import DirectoryError
from tailrace.offline.findings import Finding, FindingLimit, Rule, Severity
from tailrace.offline.verify import (
    SegmentReport,
    check_segment,
    checkpoints_of,
    join_segments,
    list_partition,
    verify,
    verify_directory,
    verify_partition,
)
from tailrace.reading.directory import find_partitions
from tailrace.testing import MemoryFiles
from tests.fuzz.directories import ROOT, damage, directories
from tests.unit.storage.builders import FOLDER, filled, flip, path, stop_cleanly


def in_pieces(files: MemoryFiles) -> list[Finding]:
    """The findings of a directory whose every segment was checked by itself, the last one first."""
    found = find_partitions(files, ROOT)
    checkpoints, findings = verify_directory(files, found)
    limit = FindingLimit()
    told = list(limit.take(findings))
    for partition, folder in found.partitions.items():
        listed, faults = list_partition(
            files, folder, checkpoints=checkpoints_of(checkpoints, partition)
        )
        told += limit.take(faults)
        pairs = list(listed.with_following())
        reports = [
            check_segment(files, segment, following=following)
            for segment, following in reversed(pairs)
        ]
        # As they would travel from machine to machine.
        reports = pickle.loads(pickle.dumps(reports))
        told += limit.take(
            join_segments(files, listed, {each.base_offset: each for each in reports})
        )
        for each in reports:
            limit.add(each.excess)
    return [*told, *limit.rest()]


@pytest.mark.parametrize("name", [each.name for each in directories()])
def test_pieces_find_what_one_walk_finds(name: str) -> None:
    """They do so under damage of every kind, with every format, codec and kind of batch."""
    directory = next(each for each in directories() if each.name == name)
    rules: Counter[Rule] = Counter()
    for seed in range(150):
        files = directory.copy()
        damage(random.Random(seed), files)
        try:
            expected = list(verify(files, find_partitions(files, ROOT)))
        except DirectoryError:
            continue
        rules.update(each.rule for each in expected)
        assert sorted(map(str, in_pieces(files))) == sorted(map(str, expected)), seed
    assert len(rules) >= 8, rules


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_segment_that_is_lost_after_it_was_listed(is_gone: bool) -> None:  # noqa: FBT001
    """One that a broker has deleted is passed over; one that cannot be opened is named."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20))
    listed, _ = list_partition(files, FOLDER, checkpoints={})
    lost = listed.segments[1]
    files.remove(lost.path)
    if not is_gone:
        files.make_directory(lost.path)
    expected = list(verify_partition(files, listed))
    reports: dict[int, SegmentReport] = {
        segment.base_offset: check_segment(files, segment, following=following)
        for segment, following in listed.with_following()
    }
    assert list(map(str, join_segments(files, listed, reports))) == list(map(str, expected))
    unverified = [each.path for each in expected if each.severity is Severity.UNVERIFIED]
    assert unverified == ([] if is_gone else [lost.path])


def test_too_many_findings_are_counted_in_pieces_too() -> None:
    """Twenty of a rule in a file, and how many more; also where each piece had its own limit."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 30))
    entries = b"".join(number.to_bytes(4, "big") * 2 for number in range(50, 0, -1))
    files.overwrite(path(0, ".index"), entries)
    flip(files, path(0, ".log"), 70)
    expected = list(verify(files, find_partitions(files, FOLDER)))
    assert expected[-1].rule is Rule.MORE
    assert sorted(map(str, in_pieces(files))) == sorted(map(str, expected))
    assert any(each.severity is Severity.ERROR for each in expected)
