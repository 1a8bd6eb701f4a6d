"""Tests of opening a log: indexes, snapshots, epochs and aborts are made anew."""

import contextlib
import errno
import random
import struct
import uuid

import pytest

from tailrace.model import AppendOrigin, LeaderEpoch, Offset, ProducerId
from tailrace.records.control import build_end_marker
from tailrace.storage import shrink
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.index.time import TimestampOffset
from tailrace.storage.index.transaction import AbortedTxn
from tailrace.storage.log import Log
from tailrace.storage.offset_lookup import find_offset
from tailrace.storage.producers import ProducerSequenceError
from tailrace.storage.reads import aborted_between
from tailrace.storage.segment import Segment
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import DiskFault, MemoryFiles, ProcessKilledError
from tests.naive import LegacyMessage, write_all_legacy
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    SetClock,
    append,
    append_values,
    bases,
    batch,
    filled,
    open_at,
    path,
    records,
    settings,
    stop_cleanly,
    values,
)

FAR = 3_000_000_000
"""More than an index can tell from 0."""


def of_producer(sequence: int, *, producer_id: int = 7, **options: object) -> bytearray:
    """A batch of one record of a producer in epoch 0."""
    return batch(
        b"%d" % sequence,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        **options,  # type: ignore[arg-type]
    )


def end(log: Log, *, producer_id: int, is_commit: bool, coordinator_epoch: int = 0) -> None:
    """Append the marker that ends a producer's transaction."""
    marker = build_end_marker(
        producer_id,
        0,
        is_commit=is_commit,
        coordinator_epoch=coordinator_epoch,
        timestamp=NOW,
    )
    log.append(
        memoryview(bytearray(marker)),
        leader_epoch=LeaderEpoch(0),
        now_ms=NOW,
        origin=AppendOrigin.COORDINATOR,
    )
    log.advance_high_watermark(log.end_offset)


def with_aborts(files: MemoryFiles) -> Log:
    """Transactions of producers 1 and 2 over several segments; every other one is aborted."""
    log = open_at(files, config=settings(segment_bytes=400))
    for number in range(8):
        producer_id = 1 + number % 2
        for sequence in (2 * (number // 2), 2 * (number // 2) + 1):
            append(log, of_producer(sequence, producer_id=producer_id, is_transactional=True))
        end(log, producer_id=producer_id, is_commit=number % 3 == 0)
    assert len(log.segments) > 3
    return log


def aborts(log: Log) -> list[AbortedTxn]:
    """All aborted transactions of a log."""
    return list(aborted_between(log.segments, Offset(log.start_offset), Offset(log.end_offset)))


def snapshots(files: MemoryFiles) -> list[int]:
    """Offsets of the snapshots in the folder."""
    return [int(name[:20]) for name in files.list(FOLDER) if name.endswith(".snapshot")]


def followed(files: MemoryFiles, offsets: list[int], *, records_each: int = 1) -> Log:
    """A replica of a log that compaction has left these base offsets of."""
    log = open_at(files)
    for offset in offsets:
        data = batch(*[b"value at %d" % offset] * records_each)
        struct.pack_into(">qii", data, 0, offset, len(data) - 12, 0)
        log.append_as_follower(memoryview(data), now_ms=NOW)
    log.advance_high_watermark(log.end_offset)
    return log


def test_snapshots_of_recovered_segments_are_written_anew_and_others_stay() -> None:
    """State below the recovery point comes from its snapshot; later batches are replayed."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=200))
    for sequence in range(10):
        append(log, of_producer(sequence))
    segment_bases = bases(log)
    log.close()
    trusted = segment_bases[2]
    old = files.content(path(trusted, ".snapshot"))
    files.operations.clear()
    again = open_at(files, config=settings(segment_bytes=200), checkpoints=(trusted, 0))
    assert snapshots(files) == [*segment_bases[1:], again.end_offset]
    written = {name for operation, name in files.operations if operation == "write"}
    assert path(trusted, ".snapshot") not in written
    assert {path(base, ".snapshot") for base in segment_bases[3:]} <= written
    assert files.content(path(trusted, ".snapshot")) == old
    known = again.producers.get(ProducerId(7))
    assert known is not None
    assert known.last_sequence == 9


def without_snapshots(files: MemoryFiles) -> MemoryFiles:
    """The folder of a version that wrote none."""
    for offset in snapshots(files):
        files.remove(path(offset, ".snapshot"))
    return files


@pytest.mark.parametrize(
    ("is_clean", "trusted"), [(True, 10), (False, 10), (False, 0)], ids=["clean", "synced", "not"]
)
def test_a_log_without_snapshots_gets_those_of_its_end(is_clean: bool, trusted: int) -> None:  # noqa: FBT001
    """After an orderly stop or not; so the next start, or a cut, has little to replay."""
    files = MemoryFiles()
    config = settings(segment_bytes=200)
    log = open_at(files, config=config)
    for sequence in range(10):
        append(log, of_producer(sequence))
    segment_bases = bases(log)
    assert len(segment_bases) >= 4
    log.finish()
    log.close()
    again = open_at(
        without_snapshots(files), config=config, is_clean=is_clean, checkpoints=(trusted, 0)
    )
    # Without an orderly stop the last segment is recovered, and the replay ends before it.
    replayed = {(True, 10): segment_bases[-2:], (False, 10): segment_bases[-3:]}
    assert snapshots(files) == [*replayed.get((is_clean, trusted), segment_bases[1:]), 10]
    before = again.producers.items()
    stop_cleanly(again)
    files.operations.clear()
    third = open_at(files, config=config, is_clean=True)
    assert third.producers.items() == [
        (producer_id, known._replace(batches=known.batches[-1:])) for producer_id, known in before
    ]
    assert not [name for _, name in files.operations if name.endswith(".snapshot")]


def test_a_full_disk_keeps_no_log_without_snapshots_from_opening() -> None:
    """They would only make the next start shorter; a torn one is not taken by it."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=200))
    for sequence in range(10):
        append(log, of_producer(sequence))
    log.finish()
    log.close()
    without_snapshots(files).faults.append(
        DiskFault(operation="write", path_part=".snapshot", error=errno.ENOSPC)
    )
    again = open_at(files, config=settings(segment_bytes=200), is_clean=True)
    expected = again.producers.items()
    again.close()
    files.faults.clear()
    assert snapshots(files)
    again = open_at(files, config=settings(segment_bytes=200), is_clean=True)
    assert again.producers.items() == expected


def test_a_log_without_producers_is_truncated_without_snapshots_behind_its_end() -> None:
    """There is no state to bring back, and none is left of offsets that are gone."""
    files = MemoryFiles()
    log = filled(files, 12)
    shrink.truncate_to(log, 5)
    assert len(log.producers) == 0
    assert all(offset <= 5 for offset in snapshots(files))
    log.roll()
    assert 5 in snapshots(files)


def test_a_coordinator_epoch_that_falls_is_taken_as_it_stands() -> None:
    """A marker in the log is a fact: recovery takes the last one, and does not stop at it."""
    files = MemoryFiles()
    log = open_at(files)
    for sequence, coordinator_epoch in ((0, 5), (1, 4)):
        append(log, of_producer(sequence, is_transactional=True))
        marker = build_end_marker(
            7, 0, is_commit=False, coordinator_epoch=coordinator_epoch, timestamp=NOW
        )
        stamped = bytearray(marker)
        struct.pack_into(">qii", stamped, 0, log.end_offset, len(stamped) - 12, 0)
        log.append_as_follower(memoryview(stamped), now_ms=NOW)
    log.close()
    again = open_at(files)
    known = again.producers.get(ProducerId(7))
    assert known is not None
    assert known.coordinator_epoch == 4
    assert [each.last_offset for each in aborts(again)] == [1, 3]


def test_producers_outlive_records_deleted_within_a_segment() -> None:
    """A producer outlives its records, at once and after a start."""
    files = MemoryFiles()
    log = open_at(files)
    append(log, of_producer(0, producer_id=1))
    append(log, of_producer(0, producer_id=2))
    before = log.producers.items()
    assert [(each, known.last_sequence) for each, known in before] == [(1, 0), (2, 0)]
    raise_log_start(log, 1)
    assert log.producers.items() == before
    log.close()
    again = open_at(files, checkpoints=(0, 1))
    assert (again.start_offset, [each.offset for each in records(again)]) == (1, [1])
    found = again.producers.items()
    assert [(each, known.last_sequence) for each, known in found] == [(1, 0), (2, 0)]
    with pytest.raises(ProducerSequenceError):
        append(again, of_producer(2, producer_id=1))
    append(again, of_producer(1, producer_id=1))


def test_producers_of_deleted_segments_are_forgotten() -> None:
    """A start forgets them, since it reads the remaining segments; the running log does not."""
    files = MemoryFiles()
    log = open_at(files)
    append(log, of_producer(0, producer_id=1))
    log.roll()
    append(log, of_producer(0, producer_id=2))
    raise_log_start(log, 1)
    assert [each.base_offset for each in shrink.delete_old_segments(log, NOW)] == [0]
    assert [each for each, _ in log.producers.items()] == [1, 2]
    log.close()
    again = open_at(files, checkpoints=(0, 1))
    [(left, known)] = again.producers.items()
    assert (left, known.last_sequence) == (2, 0)


def test_of_snapshots_between_segments_the_newest_stays() -> None:
    """Others than those of a segment's base offset are strays; the last one tells the most."""
    files = MemoryFiles()
    log = open_at(files)
    for sequence in range(6):
        append(log, of_producer(sequence))
        log.producers.write_snapshot(log.end_offset)
        if sequence == 2:
            log.roll()
    stop_cleanly(log)
    open_at(files, is_clean=True)
    assert snapshots(files) == [3, 6]


def index_entries(segment: Segment) -> tuple[int, int, TimestampOffset]:
    """Count the entries of a segment's indexes, and return the last one of its time index too."""
    offsets, times = segment.offset_index, segment.time_index
    return offsets.entries.count, times.entries.count, times.last


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_reopened_log_has_the_same_end_and_the_same_searches(is_clean: bool) -> None:  # noqa: FBT001
    """Indexes are as long and find the same; the recovery point waits for the next flush."""
    files = MemoryFiles()
    log = filled(files, 30)
    end_offset, found = log.end_offset, [find_offset(log, NOW + n) for n in range(30)]
    log.finish()
    entries = [index_entries(segment) for segment in log.segments]
    log.sync()
    log.close()
    again = open_at(files, is_clean=is_clean, checkpoints=(4, 0))
    assert again.end_offset == end_offset
    assert [find_offset(again, NOW + n) for n in range(30)] == found
    assert again.positions.recovery_point == 4
    again.sync()
    assert again.positions.recovery_point == end_offset
    # A recovered segment that goes on gets the last entry of its time index when it ends.
    again.finish()
    assert [index_entries(segment) for segment in again.segments] == entries


@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_lost_and_damaged_indexes_are_made_anew(damage: str) -> None:
    """After a kill, in every segment; each timestamp is found again."""
    files = MemoryFiles()
    log = filled(files, 20)
    log.close()
    chance = random.Random(3)
    for name in files.list(FOLDER):
        if name.endswith((".index", ".timeindex")):
            if damage == "gone":
                files.remove(f"{FOLDER}/{name}")
            else:
                files.overwrite(f"{FOLDER}/{name}", chance.randbytes(96))
    again = open_at(files)
    for number in range(20):
        found = find_offset(again, NOW + number)
        assert found is not None
        assert found[0].offset == number
        assert next(iter(again.batches(number))).base_offset == number


def test_messages_without_timestamps_give_an_empty_time_index() -> None:
    """Format v0 has none to note."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 0))
    old = write_all_legacy([LegacyMessage(0, offset, None, b"v" * 60) for offset in range(9)])
    files.overwrite(path(0, ".log"), old)
    log = open_at(files, config=settings(segment_bytes=2000))
    assert log.segments.active.offset_index.entries.count > 1
    assert log.segments.active.time_index.entries.count == 0


def test_a_log_is_truncated_after_a_restart() -> None:
    """End and segments are right, and the log takes records again."""
    files = MemoryFiles()
    log = filled(files, 20)
    log.close()
    log = open_at(files)
    shrink.truncate_to(log, 3)
    assert log.end_offset == 3
    assert bases(log)[-1] <= 3
    append_values(log, b"new")
    assert values(log)[-1] == b"new"
    log.close()
    assert open_at(files).end_offset == 4


@pytest.mark.parametrize("seed", range(50))
def test_garbage_behind_log_and_index_is_cut(seed: int) -> None:
    """The records are those that were appended, and the snapshots that follow are right."""
    chance = random.Random(seed)
    files = MemoryFiles()
    log = open_at(files)
    for sequence in range(chance.randint(1, 12)):
        append(log, of_producer(sequence))
    before = records(log)
    newest = bases(log)[-1]
    log.close()
    for suffix in (".log", ".index", ".timeindex"):
        name = path(newest, suffix)
        files.overwrite(name, files.content(name) + chance.randbytes(chance.randint(1, 90)))
    again = open_at(files)
    assert records(again) == before
    again.roll()
    stop_cleanly(again)
    assert snapshots(files)[-1] == again.end_offset


@pytest.mark.parametrize("records_each", [1, 3])
def test_a_heavily_compacted_log_is_opened_as_it_was(records_each: int) -> None:
    """Between offsets that lie too far apart for one index, a new segment begins."""
    files = MemoryFiles()
    offsets = [0, 5, FAR, FAR + 9, 3 * FAR]
    log = followed(files, offsets, records_each=records_each)
    assert bases(log) == [0, FAR, 3 * FAR]
    before = records(log)
    for is_clean in (False, True):
        stop_cleanly(log)
        log = open_at(files, config=settings(cleanup_policy="compact"), is_clean=is_clean)
        assert bases(log) == [0, FAR, 3 * FAR]
        assert records(log) == before
        assert log.end_offset == 3 * FAR + records_each


def test_a_clean_stop_is_believed_without_a_recovery_point() -> None:
    """No segment is read to its end, even if nothing says what is on the device."""
    files = MemoryFiles()
    log = filled(files, 12)
    stop_cleanly(log)
    middle = bases(log)[1]
    damaged = bytearray(files.content(path(middle, ".log")))
    damaged[-1] ^= 1
    files.overwrite(path(middle, ".log"), bytes(damaged))
    files.operations.clear()
    assert open_at(files, is_clean=True).end_offset == 12
    assert not [name for operation, name in files.operations if operation == "write"]


def test_a_last_segment_that_is_lost_after_a_clean_stop_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The checkpoint of recovery points had its end; no bytes are there that show the loss."""
    files = MemoryFiles()
    log = filled(files, 12)
    last = bases(log)[-1]
    stop_cleanly(log)
    for suffix in (".log", ".index", ".timeindex"):
        files.remove(path(last, suffix))
    assert open_at(files, is_clean=True, checkpoints=(12, 0)).end_offset == last
    assert any(
        line.startswith("log_end_lost") and f"log_end={last} flushed=12" in line
        for line in caplog.messages
    )


def test_leader_epochs_are_found_in_the_batches() -> None:
    """The checkpoint is lost with the machine; recovery notes each epoch where it begins."""
    files = MemoryFiles()
    log = open_at(files)
    for epoch in (1, 1, 2, 4, 4):
        append(log, batch(b"v"), epoch=epoch)
    log.close()
    assert not files.exists(f"{FOLDER}/leader-epoch-checkpoint")
    again = open_at(files)
    assert [tuple(entry) for entry in again.epochs.entries] == [(1, 0), (2, 2), (4, 3)]


def test_the_index_of_aborts_is_made_anew_in_every_segment() -> None:
    """All index files are gone; recovery from offset 0 finds each abort again."""
    files = MemoryFiles()
    log = with_aborts(files)
    before = aborts(log)
    assert before
    log.close()
    for name in files.list(FOLDER):
        if name.endswith(".txnindex"):
            files.remove(f"{FOLDER}/{name}")
    assert aborts(open_at(files, config=settings(segment_bytes=400))) == before


@pytest.mark.parametrize(
    "damage",
    [b"\0\7", b"\0\0" + bytes(16) + b"\x80", b"odd"],
    ids=["version", "last offset", "odd length"],
)
def test_a_damaged_index_of_aborts_is_made_anew_after_an_orderly_stop(damage: bytes) -> None:
    """One that contradicts itself is not trusted: it would show aborted records to readers."""
    files = MemoryFiles()
    log = with_aborts(files)
    before = aborts(log)
    stop_cleanly(log)
    for name in files.list(FOLDER):
        if name.endswith(".txnindex"):
            content = files.content(f"{FOLDER}/{name}")
            is_odd = len(damage) == 3
            changed = content + damage if is_odd else damage + content[len(damage) :]
            files.overwrite(f"{FOLDER}/{name}", changed)
    again = open_at(files, is_clean=True, config=settings(segment_bytes=400))
    assert aborts(again) == before


@pytest.mark.parametrize("has_snapshots", [True, False])
def test_the_last_segments_aborts_are_found_with_what_came_before(has_snapshots: bool) -> None:  # noqa: FBT001
    """Its transactions began in earlier segments, which a snapshot or a replay tells."""
    files = MemoryFiles()
    log = with_aborts(files)
    append(log, of_producer(8, producer_id=1, is_transactional=True))
    log.roll()
    end(log, producer_id=1, is_commit=False)
    before, last = aborts(log), bases(log)[-1]
    log.close()
    files.remove(path(last, ".txnindex"))
    for name in files.list(FOLDER):
        if name.endswith(".snapshot") and not has_snapshots:
            files.remove(f"{FOLDER}/{name}")
    files.operations.clear()
    again = open_at(files, config=settings(segment_bytes=400), checkpoints=(last, 0))
    assert aborts(again) == before
    written = {name for operation, name in files.operations if operation == "write"}
    assert {name for name in written if name.endswith(".txnindex")} == {path(last, ".txnindex")}


def test_snapshots_written_after_a_cut_outlive_the_removal_of_old_ones() -> None:
    """A tail is cut; the next roll writes a snapshot of a name that was there before."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=200))
    for sequence in range(9):
        append(log, of_producer(sequence))
    log.close()
    middle = bases(log)[2]
    data = files.content(path(middle, ".log"))
    files.overwrite(path(middle, ".log"), data[:-1])
    again = open_at(files, config=settings(segment_bytes=200))
    assert again.end_offset < 9
    known = again.producers.get(ProducerId(7))
    assert known is not None
    while again.end_offset < 9:
        append(again, of_producer(again.end_offset))
    again.folder.removals.remove_due(NOW + 10**9)
    assert set(bases(again)[1:]) <= set(snapshots(files))


def test_an_empty_active_segment_may_lack_its_indexes() -> None:
    """Another broker makes them when it has an entry for them."""
    files = MemoryFiles()
    log = filled(files, 3)
    log.roll()
    stop_cleanly(log)
    for suffix in (".index", ".timeindex"):
        files.remove(path(3, suffix))
    again = open_at(files, is_clean=True)
    assert (again.end_offset, bases(again)) == (3, [*bases(log)])
    append_values(again, b"next")
    assert values(again)[-1] == b"next"


def overflowed(offsets: list[int]) -> MemoryFiles:
    """A segment as Kafka before 1.0.2 compacted it: its offsets lie too far apart."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 0))
    content = bytearray()
    for offset in offsets:
        data = batch(b"value at %d" % offset)
        struct.pack_into(">qii", data, 0, offset, len(data) - 12, 0)
        content += data
    files.overwrite(path(0, ".log"), bytes(content))
    for suffix in (".index", ".timeindex"):
        files.remove(path(0, suffix))
    return files


@pytest.mark.parametrize("offsets", [[0, 9, FAR, FAR + 4, 3 * FAR], [FAR, FAR + 1], [5, FAR]])
def test_a_segment_with_offsets_too_far_apart_is_split(offsets: list[int]) -> None:
    """Every record stays, each segment can be searched, and the log takes records again."""
    files = overflowed(offsets)
    log = open_at(files, config=settings(cleanup_policy="compact"))
    assert [record.offset for record in records(log)] == offsets
    assert all(not each.size or each.can_hold(each.next_offset() - 1) for each in log.segments)
    assert [next(iter(log.batches(offset))).base_offset for offset in offsets] == offsets
    append_values(log, b"new")
    assert values(log)[-1] == b"new"
    assert log.end_offset == offsets[-1] + 2


def test_on_a_log_that_was_never_compacted_an_offset_too_far_is_damage() -> None:
    """No checksum covers a base offset: it is cut, and what is appended then outlasts a crash."""
    files = MemoryFiles()
    log = filled(files, 3)
    size = log.segments.active.size
    log.close()
    moved = bytearray(files.content(path(0, ".log")))
    moved[2 * size // 3] ^= 1
    files.overwrite(path(0, ".log"), bytes(moved))
    log = open_at(files)
    assert (log.end_offset, bases(log)) == (2, [0])
    append_values(log, b"next")
    log.close()
    assert values(open_at(files))[-1] == b"next"


def test_a_crash_at_any_operation_of_a_split_at_the_start_is_made_good() -> None:
    """Parts that are not complete are dropped and made again; those that are take its place."""
    offsets = [0, 9, FAR, FAR + 4, 3 * FAR]
    config = settings(cleanup_policy="compact")
    files = overflowed(offsets)
    open_at(files, config=config)
    total = len(files.operations)
    for stop_at in range(len(overflowed(offsets).operations), total):
        for is_kill in (True, False):
            files = overflowed(offsets)
            files.sync_directory(FOLDER)
            files.stop_at = stop_at + 1
            with contextlib.suppress(ProcessKilledError):
                open_at(files, config=config)
            after = files.crash(keep_unsynced=is_kill)
            log = open_at(after, config=config)
            assert [record.offset for record in records(log)] == offsets


def test_what_a_crash_left_is_checked_and_what_a_stop_left_is_not() -> None:
    """The mark decides; a start takes it away, so a crash while starting counts as one too."""
    files = MemoryFiles()

    def started(disk: MemoryFiles) -> DirectoryLogs:
        directory = open_log_directory(disk, "data", node_id=1, new_id=uuid.UUID(int=3))
        logs = DirectoryLogs.from_checkpoints(
            disk, directory, clock=SetClock(), chance=random.Random(0)
        )
        disk.operations.clear()
        logs.open(PARTITION, topic_id=uuid.UUID(int=4), config=settings())
        return logs

    def wrote_indexes(disk: MemoryFiles) -> bool:
        return ("write", path(newest, ".index")) in disk.operations

    logs = started(files)
    log = logs.get(PARTITION)
    assert log is not None
    append_values(log, *[b"value %d" % number for number in range(12)])
    newest = bases(log)[-1]
    logs.close()
    stopped = files.crash()
    started(stopped)
    assert not wrote_indexes(stopped)
    killed = stopped.crash(keep_unsynced=True)
    started(killed)
    assert wrote_indexes(killed)
