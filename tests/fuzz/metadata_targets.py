"""Fuzz the batches of a metadata log and its snapshots, with checksums made good again.

The mutations reach the records: a checksum that does not hold would end each of them.
"""

from pathlib import Path

import crc32c

from tailrace.cluster.metadata.delta import MetadataFaultError
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.quorum_state import read_quorum_state, write_quorum_state
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot import Snapshot, read_snapshot, write_snapshot
from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.protocol.errors import UnknownRecordError
from tailrace.protocol.metadata_records.voters import VotersRecord
from tailrace.records import layout
from tailrace.records.batch import UnsupportedMagicError, read_batches
from tailrace.storage.checkpoints import write_whole
from tailrace.testing import MemoryFiles
from tests.fuzz.engine import FuzzTarget

_REFUSALS = (
    CorruptionError,
    UnknownRecordError,
    UnsupportedCodecError,
    UnsupportedMagicError,
    MetadataFaultError,
)
_TIME = 1_700_000_000_000


def _with_checksums(data: bytes) -> memoryview:
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
    for _, batch in read_batches(_with_checksums(data)):
        replay.see(batch)
    stored = write_snapshot(Snapshot(image=replay.image, log_timestamp=0), epoch=0, timestamp=0)
    read_snapshot(memoryview(stored))
    return replay.image


def replay_snapshot(data: bytes) -> object:
    """Read a snapshot."""
    return read_snapshot(_with_checksums(data))


def remember_quorum(data: bytes) -> object:
    """Read a `quorum-state`; what it says can be written and read again."""
    files = MemoryFiles()
    write_whole(files, "quorum-state", data, is_synced=False)
    found = read_quorum_state(files, ".")
    assert found is not None
    write_quorum_state(files, ".", found)
    assert read_quorum_state(files, ".") == found
    return found


_GOLDEN = Path(__file__).parents[1] / "golden" / "kraft" / "logs" / "__cluster_metadata-0"
_IMAGE = MetadataImage(features={"metadata.version": 30}, next_producer_id=1000)

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
