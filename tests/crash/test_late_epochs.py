"""The process dies, or the machine loses power, while the file of leader epochs is behind."""

import contextlib

from tailrace.model import LeaderEpoch
from tailrace.storage import evidence, names
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.storage.log import Log
from tailrace.testing import MemoryFiles, ProcessKilledError
from tests.crash.workloads import ONE, Broker, Oracle, crash_all_ways
from tests.steps import Steps
from tests.unit.storage.builders import NOW, batch

FOLDER = f"data/{ONE.topic}-{ONE.partition}"


def work(broker: Broker) -> None:
    """Epochs begin and records are deleted, with checkpoints of log starts between the flushes."""
    broker.create(ONE)
    log = broker.log(ONE)
    for epoch in range(1, 9):
        for number in range(3):
            data = memoryview(batch(b"value %d" % number * 5))
            log.append(data, leader_epoch=LeaderEpoch(epoch), now_ms=NOW)
        log.advance_high_watermark(log.end_offset)
        match epoch % 4:
            case 1:
                broker.delete_records(ONE, log.end_offset - 1)
                broker.logs.checkpoint_log_starts()
            case 2:
                broker.logs.checkpoint()
            case 3:
                broker.delete_records(ONE, log.end_offset)
                broker.logs.checkpoint_log_starts()
                broker.retain(ONE)
            case _:
                log.sync()
                broker.logs.checkpoint()
    broker.stop()


def entries_by_batches(log: Log, start: int) -> list[tuple[int, int]]:
    """Each epoch of the records from an offset on, and where it begins."""
    entries: list[tuple[int, int]] = []
    for each in log.batches(start):
        if not entries or entries[-1][0] != each.leader_epoch:
            entries.append((each.leader_epoch, max(each.base_offset, start)))
    return entries


def noted_log_start(files: MemoryFiles) -> int:
    """Return the log start in the checkpoint, or 0."""
    path = f"data/{names.LOG_START_OFFSETS}"
    return read_offset_checkpoint(files, path).get(ONE, 0) if files.exists(path) else 0


def test_a_crash_at_any_operation_finds_every_epoch_again(steps: Steps) -> None:
    """Epochs that the file lacks are found in the batches, and are noted before a log start is."""
    whole = MemoryFiles()
    work(Broker(whole, Oracle()))
    noted = set()
    for stop_at in steps(range(len(whole.operations) + 1)):
        files = MemoryFiles()
        files.stop_at, files.stop_partial_bytes = stop_at, 10
        oracle = Oracle()
        with contextlib.suppress(ProcessKilledError):
            work(Broker(files, oracle))
        for _, disk in crash_all_ways(files, seed=stop_at):
            log_start = noted_log_start(disk)
            noted.add(log_start)
            if log_start:
                assert (evidence.first_epoch_offset(disk, FOLDER) or 0) >= log_start, stop_at
            log = Broker(disk, Oracle()).logs.get(ONE)
            if log is not None and log.end_offset > log.start_offset:
                found = [tuple(entry) for entry in log.epochs.entries]
                # A log start that was asked for, and whose checkpoint was not written any more, has
                # moved the first one; if the tail is lost that far, it is gone.
                first = found[0][1] if found else log.end_offset
                assert log.start_offset <= first <= oracle.start_max.get(ONE, 0), stop_at
                assert found == entries_by_batches(log, first), stop_at
    assert len(noted) > 3
