"""A repair dies, or the machine loses power, at every file operation; the next one completes it."""

import contextlib
import uuid
from collections.abc import Callable

import pytest

from tailrace.cluster.image import Topic
from tailrace.model import AppendOrigin, LeaderEpoch
from tailrace.offline.findings import Severity
from tailrace.offline.repair import apply_repair
from tailrace.offline.repair_plan import JOURNAL_FILE, plan_repair
from tailrace.offline.verify import verify
from tailrace.reading.damage import OnDamage
from tailrace.reading.directory import find_partitions
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import MemoryFiles, ProcessKilledError
from tests.crash.workloads import crash_all_ways
from tests.steps import Steps
from tests.unit.cluster.metadata_logs import save_topics
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    SetClock,
    append,
    batch,
    flip,
    open_at,
    path,
    records,
    settings,
    stop_cleanly,
)
from tests.unit.storage.producer_builders import ABORT, marker

SIZE = len(batch(b"value 0"))


def in_the_middle(files: MemoryFiles) -> None:
    """A batch in the middle of a segment."""
    flip(files, path(5, ".log"), 2 * SIZE + 70)


def at_the_end_of_a_segment(files: MemoryFiles) -> None:
    """To a broker, the bytes that were stepped over look like a tail that was lost."""
    flip(files, path(5, ".log"), len(files.content(path(5, ".log"))) - 1)


def in_two_segments(files: MemoryFiles) -> None:
    """Also the small files around them."""
    flip(files, path(0, ".log"), 70)
    flip(files, path(5, ".log"), 3 * SIZE + 3)
    flip(files, path(5, ".timeindex"), 3)
    files.overwrite(f"{FOLDER}/leader-epoch-checkpoint", b"?")


def set_aside_by_a_recovery(files: MemoryFiles) -> None:
    """Damage in the middle of the log, after which a broker has started and was killed."""
    flip(files, path(5, ".log"), 2 * SIZE + 70)
    log = open_at(files, config=settings(segment_bytes=400))
    assert log.end_offset == 7
    log.sync()
    log.close()


def in_the_log_start_checkpoint(files: MemoryFiles) -> None:
    """It is known from the leader epochs, and must not be forgotten halfway."""
    log = open_at(files, config=settings(segment_bytes=400), is_clean=True)
    raise_log_start(log, 7)
    log.close()
    files.open("data/log-start-offset-checkpoint", create=True).close()
    files.overwrite("data/log-start-offset-checkpoint", b"0\n7\nflights 0 7\n")


DAMAGES: tuple[Callable[[MemoryFiles], None], ...] = (
    in_the_middle,
    at_the_end_of_a_segment,
    in_two_segments,
    set_aside_by_a_recovery,
    in_the_log_start_checkpoint,
)


def damaged(damage: Callable[[MemoryFiles], None]) -> MemoryFiles:
    """A log of several segments with a producer and an aborted transaction, and damage."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=400))
    configs = {
        "internal.segment.bytes": "400",
        "segment.index.bytes": "120",
        "index.interval.bytes": "100",
    }
    topic = Topic(name="flights", topic_id=uuid.UUID(int=1), partitions=(0,), configs=configs)
    save_topics(files, topic)
    for number in range(5):
        append(log, batch(b"value %d" % number))
    for number in range(6):
        data = batch(b"value 9", producer_id=7, producer_epoch=0, base_sequence=number,
                     is_transactional=number > 2)  # fmt: skip
        append(log, data)
    ending = memoryview(bytearray(marker(ABORT).view))
    log.append(ending, leader_epoch=LeaderEpoch(0), now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    for number in range(5):
        append(log, batch(b"value %d" % number))
    stop_cleanly(log)
    for name in ("data/.kafka_cleanshutdown", "data/recovery-point-offset-checkpoint"):
        files.open(name, create=True).close()
    files.overwrite("data/recovery-point-offset-checkpoint", b"0\n1\nflights 0 3\n")
    damage(files)
    for folder in ("data", FOLDER):
        files.sync_directory(folder)
    return files.crash(keep_unsynced=True)


def repair(files: MemoryFiles, on_damage: OnDamage) -> None:
    """Plan and carry out."""
    plan = plan_repair(files, find_partitions(files, "data"), on_damage)
    apply_repair(files, plan, clock=SetClock())


def state(files: MemoryFiles) -> dict[str, bytes]:
    """Every file and what it holds; what is kept of a dropped piece counts once."""
    names = [f"{folder}/{name}" for folder in ("data", FOLDER) for name in files.list(folder)]
    return {name: files.content(name) for name in names if not files.is_directory(name)}


def offsets(files: MemoryFiles) -> list[int]:
    """Start a broker after a crash and return the offsets it finds; it must cut nothing."""
    checkpoint = read_offset_checkpoint(files, "data/recovery-point-offset-checkpoint")
    cuts: list[object] = []
    log = open_at(files, checkpoints=(checkpoint.get(PARTITION, 0), 0), report=cuts.append)
    assert not cuts
    return [record.offset for record in records(log)]


@pytest.mark.parametrize("on_damage", list(OnDamage))
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_a_repair_that_dies_anywhere_is_completed_by_the_next(
    damage: Callable[[MemoryFiles], None], on_damage: OnDamage, steps: Steps
) -> None:
    """The files and their content are the same, and the directory verifies and opens."""
    whole = damaged(damage)
    repair(whole, on_damage)
    expected, total = state(whole), len(whole.operations)
    assert total > 10
    for stop_at in steps(range(total)):
        files = damaged(damage)
        files.stop_at, files.stop_partial_bytes = stop_at, 30
        with contextlib.suppress(ProcessKilledError):
            repair(files, on_damage)
        for _, disk in crash_all_ways(files, seed=stop_at):
            repair(disk, on_damage)
            assert not disk.exists(f"data/{JOURNAL_FILE}")
            found = verify(disk, find_partitions(disk, "data"))
            assert [each for each in found if each.severity is not Severity.INFO] == [], stop_at
            assert state(disk) == expected, stop_at
    assert offsets(whole) == sorted(set(offsets(whole)))
