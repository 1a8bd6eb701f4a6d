"""The high watermark of a log after a start and after a move, where there are other replicas."""

import pytest

from tailrace.model import AppendOrigin, LeaderEpoch
from tailrace.records.control import build_end_marker
from tailrace.storage import names
from tailrace.storage.log import Log
from tailrace.storage.moving import begin_move
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import DiskFault, MemoryFiles
from tests.unit.storage.builders import NOW, batch
from tests.unit.storage.test_manager import ID, ONE, create, manager, offsets_in, reopen

CHECKPOINT = f"data/{names.HIGH_WATERMARKS}"


def add(log: Log, value: bytes) -> None:
    """Append a record that no other replica has yet."""
    log.append(memoryview(batch(value)), leader_epoch=LeaderEpoch(0), now_ms=NOW)


def reopened(files: MemoryFiles, *, has_other_replicas: bool = True) -> Log:
    """The log after a start."""
    logs = manager(files, has_other_replicas=has_other_replicas)
    reopen(logs)
    log = logs.get(ONE)
    assert log is not None
    return log


def stopped(*, log_end: int, high_watermark: int, log_start: int = 0) -> MemoryFiles:
    """A disk after an orderly stop."""
    files = MemoryFiles()
    logs = manager(files, has_other_replicas=True)
    log = create(logs)
    for number in range(log_end):
        add(log, b"value %d" % number)
    log.advance_high_watermark(high_watermark)
    raise_log_start(log, log_start)
    logs.close()
    return files


def test_a_log_opens_with_the_high_watermark_of_its_checkpoint() -> None:
    """The leader may have replaced the records above it meanwhile."""
    files = stopped(log_end=5, high_watermark=3)
    log = reopened(files)
    assert (log.positions.high_watermark, log.positions.last_stable, log.end_offset) == (3, 3, 5)


def test_the_only_replica_opens_with_all_that_it_has() -> None:
    """The checkpoint is for others then."""
    files = stopped(log_end=5, high_watermark=3)
    assert reopened(files, has_other_replicas=False).positions.high_watermark == 5


@pytest.mark.parametrize("log_start", [0, 2])
def test_without_a_checkpoint_nothing_is_committed(log_start: int) -> None:
    """The high watermark is the log start."""
    files = stopped(log_end=5, high_watermark=4, log_start=log_start)
    files.remove(CHECKPOINT)
    assert reopened(files).positions.high_watermark == log_start


@pytest.mark.parametrize("name", [names.HIGH_WATERMARKS, names.CLEANER_OFFSETS])
def test_a_checkpoint_above_the_log_is_lowered_on_the_device(name: str) -> None:
    """Later records are not committed, and not cleaned; a refusal is an error of this start."""
    files = stopped(log_end=5, high_watermark=5)
    files.open(f"data/{name}", create=True).close()
    files.overwrite(f"data/{name}", b"0\n1\nflights 0 9\n")
    files.faults.append(DiskFault(operation="write", path_part=name))
    with pytest.raises(OSError, match=r"data/flights-0|high"):
        reopened(files)
    files = files.crash(keep_unsynced=True)
    assert reopened(files).positions.high_watermark == 5
    assert offsets_in(files, f"data/{name}") == {"flights 0": 5}


def test_only_what_has_moved_is_checkpointed() -> None:
    """An idle directory writes nothing; a refused checkpoint is written by the next call."""
    files = MemoryFiles()
    logs = manager(files, has_other_replicas=True)
    log = create(logs)
    home = logs.directories[0]
    add(log, b"value")
    log.advance_high_watermark(1)
    files.faults.append(DiskFault(operation="write", path_part=names.HIGH_WATERMARKS))
    with pytest.raises(OSError, match="Input/output"):
        home.checkpoint_high_watermarks()
    files.faults.clear()
    home.checkpoint_high_watermarks()
    assert offsets_in(files, CHECKPOINT) == {"flights 0": 1}
    before = len(files.operations)
    home.checkpoint_high_watermarks()
    assert len(files.operations) == before


def test_a_moved_log_keeps_its_high_watermark() -> None:
    """The copy is on this broker only, and so proves nothing of other replicas."""
    files = MemoryFiles()
    logs = manager(files, "one", "two", has_other_replicas=True)
    log = create(logs)
    add(log, b"first")
    log.advance_high_watermark(1)
    add(log, b"second")
    home = logs.home_of(log)
    [target] = [each for each in logs.directories if each is not home]
    move = begin_move(log, home=home, target=target, topic_id=ID, unique_id="3" * 32)
    move.catch_up()
    assert (move.future.end_offset, move.future.positions.high_watermark) == (2, 1)
    assert offsets_in(files, f"{target.path}/{names.HIGH_WATERMARKS}") == {"flights 0": 1}


def test_a_transaction_ends_when_its_marker_is_replicated() -> None:
    """Until then read_committed consumers see nothing of it, also after a start."""
    files = MemoryFiles()
    logs = manager(files, has_other_replicas=True)
    log = create(logs)
    data = batch(b"value", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append(memoryview(data), leader_epoch=LeaderEpoch(0), now_ms=NOW)
    log.advance_high_watermark(1)
    marker = build_end_marker(7, 0, is_commit=True, coordinator_epoch=0, timestamp=NOW)
    log.append(
        memoryview(marker),
        leader_epoch=LeaderEpoch(0),
        now_ms=NOW,
        origin=AppendOrigin.COORDINATOR,
    )
    logs.directories[0].checkpoint()
    log = reopened(files.crash(keep_unsynced=True))
    assert (log.positions.high_watermark, log.positions.last_stable) == (1, 0)
    log.advance_high_watermark(2)
    assert log.positions.last_stable == 2
