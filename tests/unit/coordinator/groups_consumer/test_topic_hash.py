"""The metadata hash, against numbers that Apache Kafka has computed."""

from uuid import UUID

from tailrace.coordinator.groups.subscribed_topics import group_hash, topic_hash
from tailrace.coordinator.groups.topics import Topic

T1 = Topic("t1", UUID("a829d7bb-f68b-4b3b-a7cc-9af2da2f3df4"), 6)


def test_the_hash_of_a_topic_and_of_a_group_are_those_of_kafka() -> None:
    """The numbers that a Kafka 4.3.1 broker has written for this topic."""
    assert topic_hash(T1) == 7611732034836022390
    assert group_hash([T1]) == 7464127687165662588


def test_the_hash_of_a_topic_with_racks_is_that_of_kafka() -> None:
    """The number that the steps of Kafka's `Utils.computeTopicHash` give with hash4j 0.22.0."""
    assert topic_hash(T1._replace(racks=(("rack-a", "éb"),) * 6)) == -5171753833730957193


def test_a_group_without_topics_has_the_hash_0() -> None:
    """It has the hash of a group whose topics do not exist."""
    assert group_hash([]) == 0


def test_the_hash_changes_with_everything_that_an_assignment_rests_on() -> None:
    """Name, id, partitions and racks; not with the order of topics and racks."""
    other = Topic("t0", UUID(int=7), 3)
    racked = T1._replace(racks=(("a", "b"),) * 6)
    changed = [
        T1,
        T1._replace(name="t2"),
        T1._replace(topic_id=UUID(int=8)),
        T1._replace(partition_count=7),
        racked,
        racked._replace(racks=(("a", "c"),) * 6),
    ]
    assert len({group_hash([each, other]) for each in changed}) == len(changed)
    assert group_hash([T1, other]) == group_hash([other, T1])
    assert topic_hash(racked) == topic_hash(racked._replace(racks=(("b", "a"),) * 6))
