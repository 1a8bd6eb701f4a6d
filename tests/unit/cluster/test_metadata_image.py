"""The image of the metadata log: what each record changes, what is refused, and snapshots."""

import itertools
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.cluster.metadata.delta import MIGRATING, MetadataDelta, MetadataFaultError
from tailrace.cluster.metadata.image import (
    NOTHING_CHANGED,
    ConfigResource,
    ImageChange,
    MetadataImage,
    QuotaEntity,
    ScramUser,
)
from tailrace.cluster.metadata.snapshot import snapshot_records
from tailrace.protocol.fields import Message
from tailrace.protocol.metadata_log import decode_data, encode_data
from tailrace.protocol.metadata_records import (
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from tailrace.records.batch import read_batches
from tailrace.records.builder import records_of
from tailrace.values import replace

GOLDEN = Path(__file__).parents[2] / "golden" / "kraft" / "logs" / "__cluster_metadata-0"
ID, OTHER, DIRECTORY = (uuid.UUID(int=n) for n in (7, 8, 9))
TOPIC = TopicRecord(name="flights", topic_id=ID)
PARTITION = PartitionRecord(
    partition_id=0,
    topic_id=ID,
    replicas=(1, 2),
    isr=(1, 2),
    leader=1,
    leader_epoch=4,
    partition_epoch=6,
    directories=(DIRECTORY, OTHER),
)
BROKER = RegisterBrokerRecord(broker_id=1, broker_epoch=11, fenced=True)
ENTRY = AccessControlEntryRecord(id=ID, principal="User:ann")
CREDENTIAL = UserScramCredentialRecord(name="ann", mechanism=1)


def image_of(*records: Message, on: MetadataImage | None = None) -> MetadataImage:
    """The image after the records, on an empty one if none is given."""
    delta = MetadataDelta(on or MetadataImage())
    for each in records:
        delta.replay(each)
    return delta.image()


def again(image: MetadataImage) -> MetadataImage:
    """The image that a snapshot of this one gives, through its bytes."""
    values = [encode_data(*each) for each in snapshot_records(image)]
    return image_of(*(decode_data(each).record for each in values))


def partition(image: MetadataImage) -> PartitionRecord:
    """Partition 0 of the topic."""
    topic = image.topic("flights")
    assert topic is not None
    return topic.partitions[0]


def test_a_topic_is_found_by_name_and_goes_with_its_settings() -> None:
    """Partitions and settings of a removed topic are removed too, and its name is free again."""
    setting = ConfigRecord(resource_type=2, resource_name="flights", name="a", value="1")
    image = image_of(TOPIC, PARTITION, setting)
    found = image.topic("flights")
    assert found is not None
    assert (found.topic_id, list(found.partitions)) == (ID, [0])
    assert image.configs == {ConfigResource(2, "flights"): {"a": "1"}}
    removed = image_of(RemoveTopicRecord(topic_id=ID), on=image)
    assert (removed.topics, removed.topic_ids, removed.configs) == ({}, {}, {})
    assert image.topic("flights") is found
    assert image_of(TopicRecord(name="flights", topic_id=OTHER), on=removed).topic("flights")


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({}, {}),
        ({"isr": (1,)}, {"isr": (1,)}),
        ({"leader": 2}, {"leader": 2, "leader_epoch": 5}),
        ({"leader": 1}, {"leader": 1, "leader_epoch": 5}),
        ({"leader": -1}, {"leader": -1, "leader_epoch": 5}),
        ({"leader_recovery_state": 1}, {"leader_recovery_state": 1}),
        ({"eligible_leader_replicas": (2,)}, {"eligible_leader_replicas": (2,)}),
        ({"adding_replicas": (3,)}, {"adding_replicas": (3,)}),
        ({"directories": (OTHER, OTHER)}, {"directories": (OTHER, OTHER)}),
    ],
)
def test_a_change_of_a_partition_changes_what_it_tells(
    change: dict[str, Any], changed: dict[str, Any]
) -> None:
    """Null keeps, a leader raises the leader epoch, and each change the partition epoch."""
    before = partition(image_of(TOPIC, PARTITION))
    after = partition(
        image_of(TOPIC, PARTITION, PartitionChangeRecord(partition_id=0, topic_id=ID, **change))
    )
    names = ["isr", "leader", "leader_epoch", "replicas", "adding_replicas", "directories"]
    names += ["leader_recovery_state", "eligible_leader_replicas", "last_known_elr"]
    for name in names:
        assert getattr(after, name) == changed.get(name, getattr(before, name)), name
    assert after.partition_epoch == before.partition_epoch + 1


def test_replicas_of_old_partitions_have_no_directory_yet() -> None:
    """A partition without directories has one that is not known for each replica, as in Kafka."""
    old = PartitionRecord(topic_id=ID, partition_id=0, replicas=(1, 2))
    assert partition(image_of(TOPIC, old)).directories == (MIGRATING, MIGRATING)
    grown = PartitionChangeRecord(partition_id=0, topic_id=ID, replicas=(1, 2, 3))
    assert len(partition(image_of(TOPIC, old, grown)).directories) == 3


def test_eligible_leaders_are_forgotten_where_there_are_some() -> None:
    """The epoch of such partitions grows, and the others stay as they are."""
    eligible = PartitionChangeRecord(partition_id=0, topic_id=ID, eligible_leader_replicas=(2,))
    other = PartitionRecord(partition_id=1, topic_id=ID, replicas=(1,), partition_epoch=3)
    image = image_of(TOPIC, PARTITION, other, eligible, ClearElrRecord())
    found = partition(image)
    assert (found.eligible_leader_replicas, found.partition_epoch) == (None, 8)
    assert image.topics[ID].partitions[1].partition_epoch == 3


def test_a_registration_changes_by_records_of_its_epoch() -> None:
    """Fencing, controlled shutdown and directories; a new registration replaces all of it."""
    change = BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=11, fenced=-1, in_controlled_shutdown=1, log_dirs=(DIRECTORY,)
    )
    found = image_of(BROKER, change).brokers[1]
    assert (found.fenced, found.in_controlled_shutdown) == (False, True)
    assert found.log_dirs == (DIRECTORY,)
    unfenced = image_of(BROKER, UnfenceBrokerRecord(id=1, epoch=11))
    assert not unfenced.brokers[1].fenced
    assert image_of(FenceBrokerRecord(id=1, epoch=11), on=unfenced).brokers[1].fenced
    assert not image_of(UnregisterBrokerRecord(broker_id=1, broker_epoch=11), on=unfenced).brokers
    later = RegisterBrokerRecord(broker_id=1, broker_epoch=30)
    assert image_of(BROKER, change, later).brokers[1].log_dirs == ()


def test_settings_and_quotas_go_with_null_and_remove() -> None:
    """A resource without settings and an entity without quotas are not there."""
    setting = ConfigRecord(resource_type=4, resource_name="", name="a", value="1")
    gone = ConfigRecord(resource_type=4, resource_name="", name="a", value=None)
    assert image_of(setting, gone).configs == {}
    parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in (
        ("user", "ann"), ("client-id", None)
    ))  # fmt: skip
    quota = ClientQuotaRecord(entity=parts, key="request_percentage", value=50.0)
    image = image_of(quota)
    entity = QuotaEntity((("user", "ann"), ("client-id", None)))
    assert image.quotas == {entity: {"request_percentage": 50.0}}
    removed = ClientQuotaRecord(entity=parts[::-1], key="request_percentage", remove=True)
    assert image_of(removed, on=image).quotas == {}


def test_features_and_producer_ids_have_their_last_values() -> None:
    """Level 0 is no feature; the quorum's version is not one of them."""
    records: list[Message] = [
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="group.version", feature_level=0),
        FeatureLevelRecord(name="kraft.version", feature_level=1),
        ProducerIdsRecord(next_producer_id=1000),
        ProducerIdsRecord(next_producer_id=2000),
        NoOpRecord(),
    ]
    image = image_of(*records)
    assert image.features == {"metadata.version": 25}
    assert (image.metadata_version, image.next_producer_id) == (25, 2000)


def test_users_entries_and_tokens_come_and_go() -> None:
    """They are kept whole, by what names them."""
    token = DelegationTokenRecord(token_id="t", owner="User:ann")
    image = image_of(ENTRY, CREDENTIAL, token, RegisterControllerRecord(controller_id=3))
    assert image.acls == {ID: ENTRY}
    assert image.scram == {ScramUser(1, "ann"): CREDENTIAL}
    assert image.tokens == {"t": token}
    assert list(image.controllers) == [3]
    gone = image_of(
        RemoveAccessControlEntryRecord(id=ID),
        RemoveUserScramCredentialRecord(name="ann", mechanism=1),
        RemoveDelegationTokenRecord(token_id="t"),
        on=image,
    )
    assert (gone.acls, gone.scram, gone.tokens) == ({}, {}, {})


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([TOPIC, TopicRecord(name="flights", topic_id=OTHER)], "topic flights is created, but"),
        ([TOPIC, TopicRecord(name="other", topic_id=ID)], "topic other is created, but"),
        ([TopicRecord(name="../data", topic_id=ID)], "'../data' is no topic name"),
        ([TopicRecord(name="", topic_id=ID)], "'' is no topic name"),
        ([TopicRecord(name="__cluster_metadata", topic_id=ID)], "which is the metadata log"),
        ([TOPIC, replace(PARTITION, partition_id=-1)], "topic flights has partition -1"),
        ([RemoveTopicRecord(topic_id=ID)], "is removed, but there is none"),
        ([PARTITION], "a partition of topic .* changes, but there is none"),
        ([TOPIC, PartitionChangeRecord(topic_id=ID, partition_id=5)], "partition 5 of topic"),
        (
            [TOPIC, PartitionRecord(topic_id=ID, replicas=(1, 2), directories=(DIRECTORY,))],
            "2 replicas in 1 directories",
        ),
        ([ClearElrRecord(topic_name="nonsuch")], "topic nonsuch is changed, but"),
        ([UnregisterBrokerRecord(broker_id=1)], "broker 1 changes, but is not registered"),
        ([BROKER, FenceBrokerRecord(id=1, epoch=3)], "epoch 3, but has epoch 11"),
        ([ProducerIdsRecord(next_producer_id=5)] * 2, "the next producer id is 5, but it was 5"),
        ([ENTRY, ENTRY], "is there already"),
        ([RemoveAccessControlEntryRecord(id=ID)], "is removed, but there is none"),
        ([RemoveUserScramCredentialRecord(name="ann")], "credential of ann is removed, but"),
        ([BeginTransactionRecord()], "BeginTransactionRecord cannot be replayed"),
    ],
)
def test_a_record_that_contradicts_the_others_is_a_fault(
    records: list[Message], reason: str
) -> None:
    """The error says what the record asks for, and what is there."""
    with pytest.raises(MetadataFaultError, match=reason):
        image_of(*records)


def golden_values() -> Iterator[tuple[Path, list[bytes]]]:
    """The data records of each snapshot that Kafka 4.3.1 wrote, as their bytes."""
    for path in sorted(GOLDEN.glob("*.checkpoint")):
        batches = read_batches(memoryview(path.read_bytes()))
        yield (
            path,
            [
                each.value or b""
                for _, batch in batches
                if not batch.is_control
                for each in records_of(batch)
            ],
        )


def test_kafkas_snapshots_are_written_again_alike() -> None:
    """The image of a snapshot that Kafka wrote gives the same records, byte for byte, in order."""
    for path, values in golden_values():
        image = image_of(*(decode_data(each).record for each in values))
        assert [encode_data(*each) for each in snapshot_records(image)] == values, path.name


@pytest.mark.parametrize(
    ("level", "versions"), [(7, (1, 0)), (16, (2, 0)), (22, (3, 1)), (30, (4, 2))]
)
def test_the_metadata_version_says_what_is_written(level: int, versions: tuple[int, int]) -> None:
    """Registrations and partitions have the version that the oldest allowed node reads."""
    feature = FeatureLevelRecord(name="metadata.version", feature_level=level)
    written = snapshot_records(image_of(feature, BROKER, TOPIC, PARTITION))
    found = {type(each.record): each.version for each in written}
    assert (found[RegisterBrokerRecord], found[PartitionRecord]) == versions


def test_the_state_of_a_migration_from_zookeeper_is_kept() -> None:
    """Kafka 3.5 to 3.9 have it in each snapshot, between features and nodes."""
    feature = FeatureLevelRecord(name="metadata.version", feature_level=21)
    records: list[Message] = [feature, ZkMigrationStateRecord(zk_migration_state=3), BROKER]
    image = image_of(*records)
    assert image.zk_migration_state == 3
    assert again(image) == image
    found = [type(each.record) for each in snapshot_records(image)]
    assert found == [FeatureLevelRecord, ZkMigrationStateRecord, RegisterBrokerRecord]


def random_record(chance: random.Random, ids: "itertools.count[int]") -> Message:
    """A record that may fit a small cluster."""
    number = chance.randrange(4)
    topic_id = uuid.UUID(int=100 + number)
    records: list[Message] = [
        TopicRecord(name=f"t{number}", topic_id=topic_id),
        RemoveTopicRecord(topic_id=topic_id),
        PartitionRecord(topic_id=topic_id, partition_id=chance.randrange(3), replicas=(1,)),
        PartitionChangeRecord(
            topic_id=topic_id, partition_id=chance.randrange(3), leader=chance.choice([-2, 1])
        ),
        ConfigRecord(
            resource_type=2,
            resource_name=f"t{number}",
            name=chance.choice("ab"),
            value=chance.choice(["1", None]),
        ),
        FeatureLevelRecord(name="metadata.version", feature_level=chance.choice([17, 30])),
        ProducerIdsRecord(next_producer_id=next(ids)),
        RegisterBrokerRecord(broker_id=number, broker_epoch=1),
        UnregisterBrokerRecord(broker_id=number, broker_epoch=1),
    ]
    return chance.choice(records)


@pytest.mark.parametrize("seed", range(50))
def test_any_history_and_its_snapshot_are_the_same_image(seed: int) -> None:
    """At every step the image equals its own snapshot, one delta for all records, and none is lost.

    Earlier images stay as they were: nothing that a reader holds changes under it.
    """
    chance, ids = random.Random(seed), itertools.count(1)
    image, accepted = MetadataImage(), list[Message]()
    held: list[tuple[MetadataImage, str]] = []
    for _ in range(60):
        record = random_record(chance, ids)
        try:
            image = image_of(record, on=image)
        except MetadataFaultError:
            continue
        accepted.append(record)
        held.append((image, repr(image)))
        if image.metadata_version >= 17:
            assert again(image) == image
    assert image_of(*accepted) == image
    assert all(repr(each) == text for each, text in held)


def differing(before: MetadataImage, after: MetadataImage) -> ImageChange:
    """The parts that are not equal in two images, by comparing all of them."""
    both: list[tuple[dict[Any, Any], dict[Any, Any]]] = [
        (dict(getattr(before, part)), dict(getattr(after, part))) for part in ("topics", "configs")
    ]
    topics, configs = (
        frozenset(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        for old, new in both
    )
    brokers, features = (
        getattr(before, part) != getattr(after, part) for part in ("brokers", "features")
    )
    return ImageChange(topics, brokers, configs, features)


@pytest.mark.parametrize("seed", range(50))
def test_a_change_names_all_that_differs(seed: int) -> None:
    """A reader who looks only at these misses nothing, however many records a delta has."""
    chance, ids = random.Random(seed), itertools.count(1)
    image = MetadataImage()
    for _ in range(20):
        delta = MetadataDelta(image)
        for _ in range(chance.randrange(5)):
            try:
                image_of(record := random_record(chance, ids), on=delta.image())
            except MetadataFaultError:
                continue
            delta.replay(record)
        after, change = delta.image(), delta.change()
        differs = differing(image, after)
        assert differs.topics is not None
        assert differs.configs is not None
        assert change.topics is not None
        assert change.configs is not None
        assert differs.topics <= change.topics
        assert differs.configs <= change.configs
        assert change.brokers >= differs.brokers
        assert change.features >= differs.features
        image = after


def test_a_change_names_nothing_that_no_record_has_touched() -> None:
    """One partition of one topic among many is one topic, and all other parts are the same."""
    image = image_of(BROKER, TOPIC, PARTITION, TopicRecord(name="other", topic_id=OTHER))
    delta = MetadataDelta(image)
    delta.replay(PartitionChangeRecord(topic_id=ID, partition_id=0, isr=(1,)))
    assert delta.change() == NOTHING_CHANGED._replace(topics=frozenset({ID}))
    after = delta.image()
    assert after.brokers is image.brokers
    assert after.topics[OTHER] is image.topics[OTHER]
    assert MetadataDelta(after).change() == NOTHING_CHANGED
