"""The numbers of a repair agree with what `cat` shows before and after it."""

import json
from collections.abc import Callable

import pytest

from tailrace.kernels.showing import Form
from tailrace.offline.cat import Choice, show_records
from tailrace.offline.repair import apply_repair
from tailrace.offline.repair_plan import RecordCounts, plan_repair
from tailrace.reading.damage import OnDamage
from tailrace.reading.directory import find_partitions
from tailrace.records import layout
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import (
    FOLDER,
    PARTITION,
    SetClock,
    append,
    batch,
    open_at,
    path,
    settings,
    stop_cleanly,
)

PER_BATCH = 3
SIZE = len(batch(b"a", b"b", b"c"))
Damage = Callable[[bytearray], bytes]


def a_log() -> MemoryFiles:
    """Twelve batches of three records in three segments: offsets 0, 12, 24."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=4 * SIZE + 10))
    for _ in range(12):
        append(log, batch(b"a", b"b", b"c"))
    stop_cleanly(log)
    return files


def shown(files: MemoryFiles) -> int:
    """Return the number of records that `cat` shows when it steps over damage."""
    pages = show_records(
        files, {PARTITION: FOLDER}, Choice(), form=Form.JSON, on_skip=lambda _: None
    )
    found = [json.loads(line)["offset"] for line in b"".join(pages).splitlines()]
    assert found == sorted(set(found))
    return len(found)


def put(position: int, data: bytes) -> Damage:
    """Other bytes in the second batch of the second segment."""

    def damage(content: bytearray) -> bytes:
        content[SIZE + position : SIZE + position + len(data)] = data
        return bytes(content)

    return damage


DAMAGES: dict[str, Damage] = {
    "a flipped value": put(SIZE - 2, b"\x55"),
    "a damaged length": put(layout.LENGTH_POSITION, b"\0\0\x40\0"),
    "a damaged checksum": put(layout.CRC_POSITION, b"\0\0\0\0"),
    "a damaged record count": put(layout.RECORD_COUNT_POSITION, b"\0\x7f\0\0"),
    "a record count that is too small": put(layout.RECORD_COUNT_POSITION + 3, b"\1"),
    "a damaged delta": put(layout.LAST_OFFSET_DELTA_POSITION, b"\0\x7f\0\0"),
    "a damaged magic": put(layout.MAGIC_POSITION, b"\x77"),
    "garbage between": lambda content: bytes(content[:SIZE] + b"\7" * 99 + content[SIZE:]),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("on_damage", list(OnDamage))
def test_what_is_rescued_set_aside_and_lost_adds_up(name: str, on_damage: OnDamage) -> None:
    """Shown before = shown after + set aside, and what is behind the damage is rescued or not."""
    damage, lost = DAMAGES[name], 0 if "between" in name else PER_BATCH
    files = a_log()
    files.overwrite(path(12, ".log"), damage(bytearray(files.content(path(12, ".log")))))
    before = shown(files)
    assert before == 36 - lost
    plan = plan_repair(files, find_partitions(files, "data"), on_damage)
    behind = before - 12 - PER_BATCH
    expected = (
        RecordCounts(rescued=behind, set_aside=0, lost=lost, unknown_ranges=0)
        if on_damage is OnDamage.SKIP
        else RecordCounts(rescued=0, set_aside=behind, lost=lost, unknown_ranges=0)
    )
    assert plan.record_counts == expected
    assert not apply_repair(files, plan, clock=SetClock())
    assert shown(files) == before - expected.set_aside


def test_counts_of_damaged_headers_never_exceed_the_offsets_that_are_missing() -> None:
    """A header may claim a thousand records where the batches around it leave room for three."""
    files = a_log()
    content = bytearray(files.content(path(12, ".log")))
    at = SIZE + layout.LAST_OFFSET_DELTA_POSITION
    content[at : at + 4] = (999).to_bytes(4, "big")
    at = SIZE + layout.RECORD_COUNT_POSITION
    content[at : at + 4] = (1000).to_bytes(4, "big")
    files.overwrite(path(12, ".log"), bytes(content))
    plan = plan_repair(files, find_partitions(files, "data"), OnDamage.SKIP)
    assert plan.record_counts.lost == 3


def test_a_sound_directory_counts_nothing() -> None:
    """All counts are zero."""
    files = a_log()
    plan = plan_repair(files, find_partitions(files, "data"), OnDamage.CUT)
    assert plan.record_counts == RecordCounts(rescued=0, set_aside=0, lost=0, unknown_ranges=0)
