"""The metadata hash, against numbers that Apache Kafka and xxHash have computed."""

from uuid import UUID

import pytest

from tailrace.coordinator.groups.topic_hash import group_hash, topic_hash
from tailrace.coordinator.groups.topics import Topic
from tailrace.coordinator.groups.xxh3 import xxh3_64

T1 = Topic("t1", UUID("a829d7bb-f68b-4b3b-a7cc-9af2da2f3df4"), 6)

HASHES = [
    (4, 0xD3D60C1519014E89),
    (8, 0xB88DEE77F6BF6980),
    (9, 0x03688DCAD730D826),
    (16, 0x9DA23836ADF2BE1E),
    (17, 0xF34C3C9CF5A112D1),
    (128, 0x65F3C2C00FA93185),
    (129, 0x28065C6EC25F5B25),
    (240, 0x4917A75C0EF8EED7),
    (241, 0x541B19226F0052E8),
    (1024, 0xDC5ACF0B043C445B),
    (1025, 0xE1D9CD946277AE26),
    (5000, 0x6ABE8BE5ABCB2760),
]
"""XXH3-64 of the first bytes of 0, 7, 14, … modulo 256, by the reference implementation."""


@pytest.mark.parametrize(("size", "expected"), HASHES)
def test_xxh3_is_that_of_the_reference_implementation(size: int, expected: int) -> None:
    """At both ends of each of its ranges of lengths."""
    assert xxh3_64(bytes(index * 7 % 256 for index in range(size))) == expected


def test_the_hash_of_a_topic_and_of_a_group_are_those_of_kafka() -> None:
    """The numbers that a Kafka 4.3.1 broker has written for this topic."""
    assert topic_hash(T1) == 7611732034836022390
    assert group_hash([T1]) == 7464127687165662588


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
