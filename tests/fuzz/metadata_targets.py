"""Fuzz the batches of a metadata log and its snapshots, with checksums made good again.

The mutations reach the records: a checksum that does not hold would end each of them.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import crc32c

from tailrace.cluster import bootstrap
from tailrace.cluster.metadata.delta import MetadataFaultError
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.quorum_state import read_quorum_state, write_quorum_state
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot import Snapshot, read_snapshot, write_snapshot
from tailrace.errors import CorruptionError, DirectoryError, UnsupportedCodecError
from tailrace.protocol.errors import UnknownRecordError
from tailrace.protocol.metadata_records import VotersRecord
from tailrace.records import layout
from tailrace.records.batch import UnsupportedMagicError, read_batches
from tailrace.storage.checkpoints import write_whole
from tailrace.testing import MemoryFiles
from tests.fuzz.engine import FuzzTarget
from tests.unit.cluster.metadata_logs import FOLDER, Node, setting

_REFUSALS = (
    CorruptionError,
    UnknownRecordError,
    UnsupportedCodecError,
    UnsupportedMagicError,
    MetadataFaultError,
)
_TIME = 1_700_000_000_000


def with_checksums(data: bytes) -> memoryview:
    """The bytes with the checksum of each batch that has its frame."""
    fixed, position = bytearray(data), 0
    while len(fixed) - position >= layout.HEADER_SIZE:
        length = layout.FRAME.unpack_from(fixed, position)[1]
        end = position + layout.LOG_OVERHEAD + length
        if length < layout.LENGTH_MIN or end > len(fixed):
            break
        crc = crc32c.crc32c(memoryview(fixed)[position + layout.ATTRIBUTES_POSITION : end])
        layout.CRC.pack_into(fixed, position + layout.CRC_POSITION, crc)
        position = end
    return memoryview(fixed)


def replay_log(data: bytes) -> object:
    """Replay a log; its image can be written and read again."""
    replay = MetadataReplay()
    for _, batch in read_batches(with_checksums(data)):
        replay.see(batch)
    stored = write_snapshot(Snapshot(image=replay.image, log_timestamp=0), epoch=0, timestamp=0)
    read_snapshot(memoryview(stored))
    return replay.image


def replay_snapshot(data: bytes) -> object:
    """Read a snapshot."""
    return read_snapshot(with_checksums(data))


def remember_quorum(data: bytes) -> object:
    """Read a `quorum-state`; what it says can be written and read again."""
    files = MemoryFiles()
    write_whole(files, "quorum-state", data, is_synced=False)
    found = read_quorum_state(files, ".")
    assert found is not None
    write_quorum_state(files, ".", found)
    assert read_quorum_state(files, ".") == found
    return found


def begin_cluster(data: bytes) -> object:
    """Read a `bootstrap.checkpoint`; the image can be written as one and read again."""
    files = MemoryFiles()
    write_whole(files, bootstrap.FILE, bytes(with_checksums(data)), is_synced=False)
    image = bootstrap.first_image(files, ".", min_insync_replicas="1")
    write_whole(
        files, bootstrap.FILE, bootstrap.bootstrap_file(image, now_ms=_TIME), is_synced=False
    )
    assert bootstrap.first_image(files, ".", min_insync_replicas="2") == image
    return image


def start_on(name: str, *, is_sealed: bool) -> Callable[[bytes], object]:
    """A target that starts on the folder of Kafka with one file replaced, and starts again.

    `is_sealed` makes the checksums good again. A start that is refused has changed nothing.
    """

    def run(data: bytes) -> object:
        files = _FOLDER.crash(keep_unsynced=True)
        files.overwrite(f"{FOLDER}/{name}", bytes(with_checksums(data)) if is_sealed else data)
        before = files.state()
        try:
            log = Node(files).open()
        except DirectoryError:
            assert files.state() == before
            raise
        image = log.image
        assert is_sealed or ordered(image) in _HISTORY
        end_offset = log.end_offset
        after = log.append([setting(1)])
        log.close()
        again = Node(files.crash(keep_unsynced=True)).open()
        assert again.image == after
        assert again.end_offset > end_offset
        return image

    return run


def _history() -> list[MetadataImage]:
    """The states that the cluster of Kafka had, behind each of its batches."""
    replay = MetadataReplay()
    found = [ordered(replay.image)]
    for _, batch in read_batches(memoryview((_GOLDEN / f"{0:020}.log").read_bytes())):
        replay.see(batch)
        found.append(ordered(replay.image))
    return found


def ordered(image: MetadataImage) -> MetadataImage:
    """The image with the features of each broker by name: Kafka's snapshots have any order."""
    brokers = {
        broker: replace(state, features=tuple(sorted(state.features, key=lambda each: each.name)))
        for broker, state in image.brokers.items()
    }
    return replace(image, brokers=brokers)


def _folder() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(FOLDER)
    for each in _GOLDEN.iterdir():
        write_whole(files, f"{FOLDER}/{each.name}", each.read_bytes(), is_synced=True)
    return files


_GOLDEN = Path(__file__).parents[1] / "golden" / "kraft" / "logs" / "__cluster_metadata-0"
_IMAGE = MetadataImage(features={"metadata.version": 30}, next_producer_id=1000)

_FOLDER = _folder()
_HISTORY = _history()
_SNAPSHOTS = tuple(sorted(each.name for each in _GOLDEN.glob("*.checkpoint")))

_QUORUM_0 = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)
_QUORUM_1 = (
    b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",'
    b'"data_version":1}'
)

TARGETS = (
    FuzzTarget(
        name="bootstrap.checkpoint",
        seeds=(
            (_GOLDEN.parent / bootstrap.FILE).read_bytes(),
            bootstrap.bootstrap_file(bootstrap.new_image(), now_ms=_TIME),
            bootstrap.bootstrap_file(bootstrap.new_image(7), now_ms=_TIME),
        ),
        run=begin_cluster,
        refusals=(DirectoryError,),
    ),
    *(
        FuzzTarget(
            name=f"metadata folder with {name}{', checksums good' if is_sealed else ''}",
            seeds=((_GOLDEN / name).read_bytes(),),
            run=start_on(name, is_sealed=is_sealed),
            refusals=(DirectoryError,),
            share=0.5,
        )
        for name in (f"{0:020}.log", *_SNAPSHOTS)
        for is_sealed in (False, True)
    ),
    *(
        FuzzTarget(
            name=f"metadata folder with {name}",
            seeds=((_GOLDEN / name).read_bytes(),),
            run=start_on(name, is_sealed=False),
            refusals=(DirectoryError,),
            share=0.5,
        )
        for name in ("quorum-state", "leader-epoch-checkpoint", "partition.metadata")
    ),
    FuzzTarget(
        name="quorum-state",
        seeds=(_QUORUM_0, _QUORUM_1),
        run=remember_quorum,
        refusals=(CorruptionError,),
    ),
    FuzzTarget(
        name="metadata log",
        seeds=((_GOLDEN / f"{0:020}.log").read_bytes(),),
        run=replay_log,
        refusals=_REFUSALS,
    ),
    FuzzTarget(
        name="metadata snapshot",
        seeds=(
            *(each.read_bytes() for each in sorted(_GOLDEN.glob("*.checkpoint"))),
            write_snapshot(
                Snapshot(image=_IMAGE, log_timestamp=_TIME, voters=VotersRecord()),
                epoch=1,
                timestamp=_TIME,
            ),
        ),
        run=replay_snapshot,
        refusals=_REFUSALS,
    ),
)
