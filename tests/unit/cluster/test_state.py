"""The state of a cluster whose controllers are other nodes: `FollowedCluster`."""

import pytest

from tailrace.broker.coordinators import ImageTopics
from tailrace.cluster.metadata.image import NOTHING_CHANGED, ConfigResource
from tailrace.cluster.records import Endpoint
from tailrace.cluster.topic_rules import InvalidTopicNameError, TopicExistsError
from tailrace.model import TopicPartition
from tailrace.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
)
from tests.unit.cluster.followed import A, B, Followed, broker, topic


def test_all_partitions_are_shown_and_all_topics() -> None:
    """Also topics and partitions of which this broker has no replica."""
    made = Followed()
    made.publish(*topic("a", A, 3), *topic("b", B))
    image = made.cluster.image
    assert image.topics["a"].partitions == (0, 1, 2)
    assert image.topic_by_id(B) is image.topics["b"]
    assert made.cluster.features_epoch == 5


def test_a_change_of_the_isr_leaves_the_image_the_same_object() -> None:
    """Connections that remember their last request look by identity whether a topic changed."""
    made = Followed()
    made.publish(*topic("a", A))
    before = made.cluster.image
    change = PartitionChangeRecord(partition_id=0, topic_id=A, isr=(1,), leader=-2)
    made.publish(change, changed=NOTHING_CHANGED._replace(topics=frozenset({A})))
    assert made.cluster.image is before
    state = made.cluster.partition(TopicPartition("a", 0))
    assert state is not None
    assert state.isr == (1,)


def test_a_new_topic_leaves_the_others_the_same_objects() -> None:
    """A change costs what it changes."""
    made = Followed()
    made.publish(*topic("a", A))
    before = made.cluster.image.topics["a"]
    made.publish(*topic("b", B, 2), changed=NOTHING_CHANGED._replace(topics=frozenset({B})))
    assert made.cluster.image.topics["a"] is before
    found = made.cluster.image.topic_by_id(B)
    assert found is not None
    assert found.partition_count == 2


def test_a_topic_is_removed_and_made_again_in_one_image() -> None:
    """The name then has the new id, and the old id has no topic."""
    made = Followed()
    made.publish(*topic("a", A))
    made.publish(
        RemoveTopicRecord(topic_id=A),
        *topic("a", B, 4),
        changed=NOTHING_CHANGED._replace(topics=frozenset({A, B})),
    )
    assert made.cluster.image.topic_by_id(A) is None
    assert made.cluster.image.topics["a"].topic_id == B
    made.publish(
        RemoveTopicRecord(topic_id=B), changed=NOTHING_CHANGED._replace(topics=frozenset({B}))
    )
    assert not made.cluster.image.topics
    assert made.cluster.image.topic_by_id(B) is None


def test_new_partitions_are_shown() -> None:
    """A topic that grew has all its partitions."""
    made = Followed()
    made.publish(*topic("a", A))
    made.publish(*topic("a", A, 3)[2:], changed=NOTHING_CHANGED._replace(topics=frozenset({A})))
    assert made.cluster.image.topics["a"].partition_count == 3


def test_settings_of_topics_groups_and_brokers_are_shown() -> None:
    """Each from the image that has them: a topic's, a group's, and the defaults of brokers."""
    made = Followed()
    made.publish(*topic("a", A), *topic("b", B))
    other = made.cluster.image.topics["b"]
    owners = [ConfigResource(2, "a"), ConfigResource(32, "g"), ConfigResource(4, "")]
    values = [("retention.ms", "5"), ("consumer.session.timeout.ms", "50000")]
    values.append(("log.retention.ms", "7"))
    records = [
        ConfigRecord(resource_type=owner.type, resource_name=owner.name, name=name, value=value)
        for owner, (name, value) in zip(owners, values, strict=True)
    ]
    made.publish(*records, changed=NOTHING_CHANGED._replace(configs=frozenset(owners)))
    image = made.cluster.image
    assert image.topics["a"].configs == {"retention.ms": "5"}
    assert image.topics["b"] is other
    assert image.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}
    assert made.cluster.defaults.configs["retention.ms"] == "7"


def test_levels_of_features_are_shown() -> None:
    """With the topics that were there."""
    made = Followed()
    made.publish(*topic("a", A))
    record = FeatureLevelRecord(name="group.version", feature_level=1)
    made.publish(record, changed=NOTHING_CHANGED._replace(features=True))
    assert made.cluster.image.features == {"group.version": 1}
    assert set(made.cluster.image.topics) == {"a"}


def test_brokers_are_alive_unless_fenced() -> None:
    """Epoch, address and controlled shutdown as registered; a fenced broker has no address."""
    made = Followed()
    made.publish(broker(1), broker(2, fenced=True), broker(3, leaving=True))
    cluster = made.cluster
    assert [cluster.alive_epoch(number) for number in (1, 2, 3, 4)] == [101, None, 103, None]
    assert [cluster.is_shutting_down(number) for number in (1, 3, 4)] == [False, True, False]
    assert cluster.endpoint(1) == Endpoint("p1", 9092)
    assert cluster.endpoint(1, "INSIDE") == Endpoint("i1", 9092)
    assert cluster.endpoint(1, "OTHER") is None
    assert cluster.endpoint(2) is None
    assert [cluster.rack_of(number) for number in (1, 2, 4)] == ["r1", None, None]


def test_the_leader_of_a_partition_has_an_address_while_it_is_alive() -> None:
    """Leader and epoch are those of the image in either case."""
    made = Followed()
    made.publish(broker(1), broker(2, fenced=True), *topic("a", A, 2))
    assert made.cluster.leader_of(TopicPartition("a", 0)) == (1, 5, Endpoint("p1", 9092))
    assert made.cluster.leader_of(TopicPartition("a", 1)) == (2, 5, None)
    assert made.cluster.leader_of(TopicPartition("a", 2)) is None
    assert made.cluster.leader_of(TopicPartition("b", 0)) is None


def test_replicas_are_in_the_racks_of_their_brokers() -> None:
    """Also of brokers that are fenced: a restart of one is no reason for new assignments."""
    made = Followed()
    made.publish(broker(1), broker(2, fenced=True), *topic("a", A, 2), *topic("b", B))
    cluster = made.cluster
    assert cluster.racks_of(cluster.image.topics["a"]) == (("r1", "r2"), ("r1", "r2"))
    before = cluster.rack_changes
    brokers = NOTHING_CHANGED._replace(brokers=True)
    made.publish(broker(2), changed=brokers)
    change = PartitionChangeRecord(partition_id=0, topic_id=A, isr=(1,), leader=1)
    only_a = NOTHING_CHANGED._replace(topics=frozenset({A}))
    made.publish(change, changed=only_a)
    assert cluster.rack_changes == before
    moved = PartitionChangeRecord(partition_id=1, topic_id=A, replicas=(2, 9), leader=-2)
    made.publish(moved, changed=only_a)
    assert cluster.rack_changes == before + 1
    assert cluster.racks_of(cluster.image.topics["a"]) == (("r1", "r2"), ("r2",))
    made.publish(broker(9), changed=brokers)
    assert cluster.rack_changes == before + 2
    assert cluster.racks_of(cluster.image.topics["a"])[1] == ("r2", "r9")


def test_without_racks_nothing_changes_them() -> None:
    """The groups of such a cluster look at nothing that replicas do."""
    made = Followed()
    made.publish(broker(1, rack=None), *topic("a", A))
    moved = PartitionChangeRecord(partition_id=0, topic_id=A, replicas=(2, 9), leader=-2)
    made.publish(moved, changed=NOTHING_CHANGED._replace(topics=frozenset({A})))
    assert made.cluster.rack_changes == 0
    assert made.cluster.racks_of(made.cluster.image.topics["a"]) == ()


def test_groups_see_topics_with_the_racks_of_the_image() -> None:
    """Their version grows when replicas are in other racks, and not with leaders and the ISR."""
    made = Followed()
    made.publish(broker(1), broker(2), *topic("a", A))
    topics = ImageTopics(made.cluster, started_ms=7)
    before = topics.version
    found = topics.by_name("a")
    assert found is not None
    assert found.racks == (("r1", "r2"),)
    only_a = NOTHING_CHANGED._replace(topics=frozenset({A}))
    change = PartitionChangeRecord(partition_id=0, topic_id=A, isr=(1,), leader=1)
    made.publish(change, changed=only_a)
    assert (topics.version, topics.by_id(A)) == (before, found)
    moved = PartitionChangeRecord(partition_id=0, topic_id=A, replicas=(2,), leader=-2)
    made.publish(moved, changed=only_a)
    assert topics.by_id(A) == found._replace(racks=(("r2",),))
    assert topics.version == before + 1


def test_names_that_collide_are_refused() -> None:
    """Kafka's metrics turn dots into underscores."""
    made = Followed()
    made.publish(*topic("a.b", A))
    with pytest.raises(TopicExistsError):
        made.cluster.check_new_name("a.b")
    with pytest.raises(InvalidTopicNameError, match="collides"):
        made.cluster.check_new_name("a_b")
