"""Fuzz what a broker takes from a controller, and the folder that its next start finds.

An input is refused and nothing has changed, or it is there at the next start too.
"""

from collections.abc import Callable
from pathlib import Path

from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.delta import MetadataFaultError
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.observer import DivergedError, LeaderContradictionError
from tailrace.errors import (
    CorruptionError,
    DirectoryError,
    InvalidRecordError,
    UnsupportedCodecError,
)
from tailrace.protocol.errors import UnknownRecordError
from tailrace.protocol.metadata_records import BeginTransactionRecord, EndTransactionRecord
from tailrace.records.batch import UnsupportedMagicError, read_batches
from tailrace.storage.checkpoints import write_whole
from tailrace.testing import MemoryFiles
from tests.fuzz.engine import FuzzTarget
from tests.fuzz.metadata_targets import ordered, with_checksums
from tests.unit.cluster.metadata_logs import FOLDER, GOLDEN, LEVEL, setting
from tests.unit.cluster.observers import LEADER, Copy, Leader, follow, leader_of

_REFUSALS = (
    CorruptionError,
    InvalidRecordError,
    UnknownRecordError,
    UnsupportedCodecError,
    UnsupportedMagicError,
    MetadataFaultError,
    LeaderContradictionError,
    DirectoryError,
)


def take_batches(data: bytes) -> object:
    """Append and apply batches as an answer brings them; the next start has the same state."""
    copy = Copy()
    log = copy.open()
    log.follow(LEADER, 3)
    before, end = log.image, log.end_offset
    try:
        log.append(with_checksums(data))
        end = log.end_offset
        log.commit(end)
    except _REFUSALS:
        assert log.image is before
        assert log.end_offset == end
        raise
    found, next_offset = log.image, log.next_offset
    log.close()
    log = copy.open()
    log.commit(end)
    assert (log.image, log.next_offset) == (found, next_offset)
    return found


def take_snapshot(*, is_sealed: bool) -> Callable[[bytes], object]:
    """A target that installs a snapshot in two parts; the next start begins with it."""

    def run(data: bytes) -> object:
        copy, leader = Copy(), leader_of(1, 2)
        log = copy.open()
        follow(log, leader, committed=2)
        before = log.image
        download = log.begin_download(end_offset=9, epoch=1)
        content = bytes(with_checksums(data)) if is_sealed else data
        try:
            half = len(content) // 2
            for part in (content[:half], content[half:]):
                download.add(memoryview(part), position=download.position, size=len(content))
            log.install(download)
        except _REFUSALS:
            download.abandon()
            assert log.image is before
            assert (log.next_offset, log.end_offset) == (2, leader.end)
            follow(log, leader)
            raise
        found = log.image
        log.close()
        log = copy.open()
        assert (log.image, log.next_offset, log.end_offset) == (found, 9, 9)
        return found

    return run


def observe_on(name: str) -> Callable[[bytes], object]:
    """A target that follows on in Kafka's folder with one file replaced.

    A start that is refused has changed nothing; any other ends with the image of the leader.
    """

    def run(data: bytes) -> object:
        files = _FOLDER.crash(keep_unsynced=True)
        files.overwrite(f"{FOLDER}/{name}", data)
        before = files.state()
        try:
            log = Copy(files).open()
        except DirectoryError:
            assert files.state() == before
            raise
        follow(log, _LEADER)
        assert ordered(log.image) == _LAST
        assert log.next_offset == _LEADER.end
        return log.image

    return run


def remember_committed(data: bytes) -> object:
    """Start with another `committed`: it is reported as damaged, or what it says is never cut.

    Whatever it was, the file is right once the log has been followed.
    """
    files = _FOLLOWED.crash(keep_unsynced=True)
    files.overwrite(f"{FOLDER}/committed", data)
    copy, older = Copy(files), leader_of(1, 2, 3)
    older.lose_from(4)
    log = copy.open()
    assert log.end_offset == 5
    known = 0 if copy.told else int(data[:20])
    try:
        follow(log, older)
        assert known <= older.end == log.end_offset
    except DivergedError:
        assert known > older.end
    log.close()
    if copy.told:
        again = Copy(files)
        again.open().close()
        assert not again.told
        raise CorruptionError(copy.told[0])
    return known


def _followed_folder() -> MemoryFiles:
    copy = Copy()
    log = copy.open()
    follow(log, leader_of(1, 2, 3))
    log.close()
    return copy.files


def _golden_leader() -> Leader:
    leader = Leader()
    content = memoryview((GOLDEN / f"{0:020}.log").read_bytes())
    for _, batch in read_batches(content):
        leader.batches.append((batch.base_offset, batch.leader_epoch, bytes(batch.view)))
        leader.end, leader.epoch = batch.next_offset, batch.leader_epoch
    return leader


def _folder() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(FOLDER)
    for each in GOLDEN.iterdir():
        write_whole(files, f"{FOLDER}/{each.name}", each.read_bytes(), is_synced=True)
    return files


def _with_transaction() -> bytes:
    leader = leader_of(1)
    leader.write(RecordToWrite(BeginTransactionRecord(), 0), setting(2))
    leader.lead()
    leader.write(setting(3), RecordToWrite(EndTransactionRecord(), 0), LEVEL)
    return bytes(leader.since(0))


def _last_image() -> MetadataImage:
    log = Copy().open()
    follow(log, _LEADER)
    return ordered(log.image)


_FOLDER = _folder()
_FOLLOWED = _followed_folder()
_LEADER = _golden_leader()
_LAST = _last_image()
_FILES: tuple[Path, ...] = tuple(
    each for each in sorted(GOLDEN.iterdir()) if each.suffix not in (".index", ".timeindex")
)
_SNAPSHOTS = (leader_of(*range(4)).snapshot(6)[1], *(p.read_bytes() for p in GOLDEN.glob("*nt")))

TARGETS = (
    FuzzTarget(
        name="metadata as fetched, checksums good",
        seeds=(bytes(leader_of(1, 2, 3).since(0)), _with_transaction(), bytes(_LEADER.since(0))),
        run=take_batches,
        refusals=_REFUSALS,
        share=0.5,
    ),
    *(
        FuzzTarget(
            name=f"snapshot as fetched{', checksums good' if is_sealed else ''}",
            seeds=_SNAPSHOTS,
            run=take_snapshot(is_sealed=is_sealed),
            refusals=_REFUSALS,
            share=0.5,
        )
        for is_sealed in (False, True)
    ),
    *(
        FuzzTarget(
            name=f"followed metadata folder with {each.name}",
            seeds=(each.read_bytes(),),
            run=observe_on(each.name),
            refusals=(DirectoryError,),
            share=0.5,
        )
        for each in _FILES
    ),
    FuzzTarget(
        name="committed",
        seeds=(_FOLLOWED.content(f"{FOLDER}/committed"),),
        run=remember_committed,
        refusals=(CorruptionError,),
        share=0.5,
    ),
)
