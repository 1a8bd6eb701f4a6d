"""Snapshots of an image as bytes: the `.checkpoint` files of Kafka's metadata log (KIP-630).

    control batch   SnapshotHeader; with kraft.version 1 also KRaftVersion and Voters
    data batches    the records of the image, up to `RECORDS_MAX` in a batch
    control batch   SnapshotFooter

Offsets count from 0. All batches have the epoch of the file's name.

Invariant: a snapshot that was read is whole: it begins with a header, ends with the footer, and
every batch between has passed its checksum.
"""

from itertools import islice
from typing import TYPE_CHECKING, Final

from tailrace.cluster.metadata.batches import (
    BatchPlace,
    control_batch,
    data_batch,
    decoded_records,
)
from tailrace.cluster.metadata.delta import MetadataDelta
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.snapshot_records import snapshot_records
from tailrace.errors import CorruptionError
from tailrace.protocol.metadata_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from tailrace.records.batch import read_batches
from tailrace.records.control import ControlType
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.protocol.fields import Message

RECORDS_MAX: Final = 1024
"""Records in a batch, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The content of a snapshot."""

    image: MetadataImage
    log_timestamp: int
    """Time of the last record that is in it, in milliseconds since 1970."""
    voters: VotersRecord | None = None
    """The voters, where the log names them (KIP-853)."""


def write_snapshot(snapshot: Snapshot, *, epoch: int, timestamp: int) -> bytes:
    """The bytes of a snapshot; `timestamp` is the time of writing in milliseconds since 1970."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=snapshot.log_timestamp)
    head: list[tuple[ControlType, Message]] = [(ControlType.SNAPSHOT_HEADER, header)]
    if snapshot.voters is not None:
        head.append((ControlType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=1)))
        head.append((ControlType.VOTERS, snapshot.voters))
    offset = 0
    out = bytearray(control_batch(head, BatchPlace(offset, epoch, timestamp)))
    offset += len(head)
    records = snapshot_records(snapshot.image)
    while part := list(islice(records, RECORDS_MAX)):
        out += data_batch(part, BatchPlace(offset, epoch, timestamp))
        offset += len(part)
    footer = [(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord())]
    return bytes(out + control_batch(footer, BatchPlace(offset, epoch, timestamp)))


def read_snapshot(data: memoryview) -> Snapshot:
    """The content of a snapshot.

    Raises:
        CorruptionError: it is damaged, or not whole.
        UnknownRecordError: a record of a type or version that is not known here.
        UnsupportedCodecError, UnsupportedMagicError: a batch that no metadata log has.
        MetadataFaultError: a record contradicts those before it.
    """
    delta = MetadataDelta(MetadataImage())
    header: SnapshotHeaderRecord | None = None
    voters: VotersRecord | None = None
    is_ended = False
    reader = read_batches(data)
    for position, batch in reader:
        if is_ended:
            raise CorruptionError("the snapshot goes on behind its footer", position=position)
        for _, found in decoded_records(batch):
            match found.record:
                case SnapshotHeaderRecord() as header:
                    pass
                case _ if header is None:
                    raise CorruptionError("the snapshot begins without a header", position=position)
                case VotersRecord() as voters:
                    pass
                case SnapshotFooterRecord():
                    is_ended = True
                case _ if not batch.is_control:
                    delta.replay(found.record)
    if header is None or not is_ended or reader.position != len(data):
        raise CorruptionError("the snapshot ends without its footer", position=reader.position)
    return Snapshot(
        image=delta.image(), log_timestamp=header.last_contained_log_timestamp, voters=voters
    )
