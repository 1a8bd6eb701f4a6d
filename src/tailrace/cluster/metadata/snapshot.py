"""Snapshots of an image as bytes: the `.checkpoint` files of Kafka's metadata log (KIP-630).

    control batch   SnapshotHeader; with kraft.version 1 also KRaftVersion and Voters
    data batches    the records of the image, up to `RECORDS_MAX` in a batch
    control batch   SnapshotFooter

The records are in the order of Kafka's snapshots:

    features | state of a migration | brokers | controllers | each topic and its partitions |
    settings | quotas | producer ids | access control entries | SCRAM credentials |
    delegation tokens

Offsets count from 0. All batches have the epoch of the file's name.

Invariant: a snapshot that was read is whole: it begins with a header, ends with the footer, and
every batch between has passed its checksum.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from tailrace.cluster.metadata.batches import (
    BatchPlace,
    RecordToWrite,
    control_batch,
    data_batch,
    decoded_records,
)
from tailrace.cluster.metadata.delta import MetadataDelta
from tailrace.cluster.metadata.features import partition_version, register_broker_version
from tailrace.cluster.metadata.image import METADATA_VERSION, MetadataImage
from tailrace.errors import CorruptionError
from tailrace.protocol.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    KRaftVersionRecord,
    ProducerIdsRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    VotersRecord,
    ZkMigrationStateRecord,
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
    # Only where the log names the voters does a snapshot have to repeat them (KIP-853).
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
        # The footer proves that the file is whole, so nothing may be after it.
        if is_ended:
            raise CorruptionError("the snapshot continues after its footer", position=position)
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


def snapshot_records(image: MetadataImage) -> Iterator[RecordToWrite]:
    """The records that lead from the empty image to this one."""
    level = image.metadata_version
    if level:
        # First: it says which records may follow.
        yield _feature(METADATA_VERSION, level)
    for name, feature_level in image.features.items():
        if name != METADATA_VERSION:
            yield _feature(name, feature_level)
    if image.zk_migration_state is not None:
        record = ZkMigrationStateRecord(zk_migration_state=image.zk_migration_state)
        yield RecordToWrite(record, 0)
    for broker in image.brokers.values():
        yield RecordToWrite(broker, register_broker_version(level))
    for controller in image.controllers.values():
        yield RecordToWrite(controller, 0)
    version = partition_version(level)
    for topic in image.topics.values():
        yield RecordToWrite(TopicRecord(name=topic.name, topic_id=topic.topic_id), 0)
        for each in topic.partitions.values():
            yield RecordToWrite(each, version)
    yield from _settings(image)
    if image.next_producer_id is not None:
        # As in Kafka without the broker that had the last block: only the next id matters.
        yield RecordToWrite(
            ProducerIdsRecord(
                broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
            ),
            0,
        )
    for part in (image.acls, image.scram, image.tokens):
        for entry in part.values():
            yield RecordToWrite(entry, 0)


def _feature(name: str, level: int) -> RecordToWrite:
    return RecordToWrite(FeatureLevelRecord(name=name, feature_level=level), 0)


def _settings(image: MetadataImage) -> Iterator[RecordToWrite]:
    for resource, settings in image.configs.items():
        for name, text in settings.items():
            record = ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=text
            )
            yield RecordToWrite(record, 0)
    for entity, quotas in image.quotas.items():
        parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts)
        for key, limit in quotas.items():
            yield RecordToWrite(ClientQuotaRecord(entity=parts, key=key, value=limit), 0)
