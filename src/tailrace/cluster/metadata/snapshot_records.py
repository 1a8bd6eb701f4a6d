"""The records that describe an image, in the order of Kafka's snapshots.

    features | state of a migration | brokers | controllers | each topic and its partitions |
    settings | quotas | producer ids | access control entries | SCRAM credentials |
    delegation tokens

The level of `metadata.version` says which version of a record is written: older nodes have to read
it (KIP-584).

Not here: the batches and the control records of a snapshot.
"""

from collections.abc import Iterator

from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import METADATA_VERSION, MetadataImage, TopicState
from tailrace.cluster.metadata.record_versions import partition_version, register_broker_version
from tailrace.protocol.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from tailrace.values import replace


def snapshot_records(image: MetadataImage) -> Iterator[RecordToWrite]:
    """The records that lead from the empty image to this one."""
    level = image.metadata_version
    if level:
        yield _feature(METADATA_VERSION, level)
    for name, feature_level in image.features.items():
        if name != METADATA_VERSION:
            yield _feature(name, feature_level)
    if image.zk_migration_state is not None:
        yield _migration(image.zk_migration_state)
    for broker in image.brokers.values():
        yield RecordToWrite(broker, register_broker_version(level))
    for controller in image.controllers.values():
        yield RecordToWrite(controller, 0)
    for topic in image.topics.values():
        yield from _topic(topic, partition_version(level))
    yield from _settings(image)
    if image.next_producer_id is not None:
        yield RecordToWrite(
            ProducerIdsRecord(
                broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
            ),
            0,
        )
    for part in (image.acls, image.scram, image.tokens):
        for record in part.values():
            yield RecordToWrite(record, 0)


def _feature(name: str, level: int) -> RecordToWrite:
    return RecordToWrite(FeatureLevelRecord(name=name, feature_level=level), 0)


def _migration(state: int) -> RecordToWrite:
    from tailrace.protocol.metadata_records import ZkMigrationStateRecord

    return RecordToWrite(ZkMigrationStateRecord(zk_migration_state=state), 0)


def _topic(topic: TopicState, version: int) -> Iterator[RecordToWrite]:
    yield RecordToWrite(TopicRecord(name=topic.name, topic_id=topic.topic_id), 0)
    for each in topic.partitions.values():
        yield RecordToWrite(_without_empty(each), version)


def _without_empty(record: PartitionRecord) -> PartitionRecord:
    """A partition without the tagged fields that hold nothing."""
    return replace(
        record,
        eligible_leader_replicas=record.eligible_leader_replicas or None,
        last_known_elr=record.last_known_elr or None,
    )


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
