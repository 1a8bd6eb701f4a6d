"""Partitions by key, by turns, by chance, and the sticky ones of records without a key."""

import random
import zlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.producer.partitioners import (
    KEY_RULES,
    NO_PARTITION,
    Partitioner,
    RoundRobinPartitioner,
    fnv1a,
)
from tailrace.client.producer.partitioning import StickyPartitioner
from tailrace.kernels.encoding import choose_partition, murmur2
from tests.kernels.test_encoding_kernels import MURMUR2


def sticky(batch_size: int) -> StickyPartitioner:
    """A sticky partitioner with chance from a fixed seed."""
    return StickyPartitioner(batch_size, random.Random(7))


def choices(partitioner: StickyPartitioner, count: int, available: tuple[int, ...]) -> Counter[int]:
    """Count the choices of each partition in a thousand changes."""
    found: Counter[int] = Counter()
    for _ in range(1000):
        found[partitioner.partition("t", count, available)] += 1
        partitioner.appended("t", 1, has_open_batch=False)
    return found


def slow_murmur2(data: bytes) -> int:
    """MurmurHash2 step by step, byte by byte, from its definition."""
    mixed = (0x9747B28C ^ len(data)) & 0xFFFFFFFF
    for start in range(0, len(data) - len(data) % 4, 4):
        word = sum(data[start + each] << 8 * each for each in range(4))
        word = word * 0x5BD1E995 % 2**32
        word ^= word >> 24
        word = word * 0x5BD1E995 % 2**32
        mixed = mixed * 0x5BD1E995 % 2**32 ^ word
    rest = data[len(data) - len(data) % 4 :]
    for index, each in enumerate(rest):
        mixed ^= each << 8 * index
    if rest:
        mixed = mixed * 0x5BD1E995 % 2**32
    mixed ^= mixed >> 13
    mixed = mixed * 0x5BD1E995 % 2**32
    mixed ^= mixed >> 15
    return mixed - 2**32 if mixed >= 2**31 else mixed


@pytest.mark.parametrize(("key", "expected"), MURMUR2.items())
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    """The hashes are those of Kafka's own tests."""
    assert murmur2(key) == expected


@given(st.binary(max_size=100))
def test_murmur2_follows_its_definition(key: bytes) -> None:
    """Keys of any length hash as the definition says, read byte by byte."""
    assert murmur2(key) == slow_murmur2(key)


@given(st.binary(max_size=100), st.integers(1, 1000))
def test_a_key_always_goes_to_the_same_partition(key: bytes, partition_count: int) -> None:
    """Partition of a key: the hash without its sign, modulo the number of all partitions."""
    expected = (slow_murmur2(key) & 0x7FFFFFFF) % partition_count
    assert choose_partition(key, partition_count) == expected
    assert choose_partition(bytes(bytearray(key)), partition_count) == expected


def test_a_partition_is_kept_for_a_batchs_worth_of_bytes() -> None:
    """The partition changes after batch.size bytes and not before."""
    partitioner = sticky(300)
    changes = 0
    for _ in range(50):
        first = partitioner.partition("t", 100, ())
        for size in (100, 100, 99):
            partitioner.appended("t", size, has_open_batch=False)
            assert partitioner.partition("t", 100, ()) == first
        partitioner.appended("t", 1, has_open_batch=False)
        changes += partitioner.partition("t", 100, ()) != first
    # One choice in a hundred falls on the same partition.
    assert changes > 40
    found = choices(sticky(1), 100, ())
    assert len(found) == 100


def test_an_open_batch_delays_the_change_up_to_twice_its_size() -> None:
    """The partition changes at a full batch, or after twice batch.size bytes."""
    partitioner = sticky(100)
    partitioner.partition("t", 1000, ())
    first = partitioner.partition("t", 1000, ())
    partitioner.appended("t", 199, has_open_batch=True)
    assert partitioner.partition("t", 1000, ()) == first
    partitioner.appended("t", 1, has_open_batch=True)
    assert partitioner.partition("t", 1000, ()) != first


def test_topics_have_partitions_of_their_own() -> None:
    """Bytes of one topic do not count for another."""
    partitioner = sticky(10)
    first = partitioner.partition("a", 1000, ())
    partitioner.partition("b", 1000, ())
    partitioner.appended("b", 10, has_open_batch=False)
    assert partitioner.partition("a", 1000, ()) == first


def test_partitions_without_a_leader_are_not_chosen() -> None:
    """Only available partitions are chosen, all of them alike; any if none is available."""
    found = choices(sticky(1), 3, (0, 2))
    assert set(found) == {0, 2}
    assert min(found.values()) > 400
    assert set(choices(sticky(1), 3, ())) == {0, 1, 2}
    assert set(choices(sticky(1), 2, (1,))) == {1}
    assert set(choices(sticky(1), 1, ())) == {0}


def test_short_queues_are_chosen_more_often() -> None:
    """Frequencies are the longest queue plus one, minus each partition's own."""
    partitioner = sticky(1)
    partitioner.update_load("t", {0: 5, 1: 0, 2: 3, 3: 0, 4: 1})
    found = choices(partitioner, 5, (0, 1, 2, 3, 4))
    weights = {0: 1, 1: 6, 2: 3, 3: 6, 4: 5}
    for partition, weight in weights.items():
        assert found[partition] == pytest.approx(1000 * weight / 21, abs=45)


def test_a_partition_that_is_left_out_of_the_load_is_spared() -> None:
    """A slow leader's partition gets nothing, although it is available; nor does a lost one."""
    partitioner = sticky(1)
    partitioner.update_load("t", {0: 2, 2: 2, 9: 0})
    found = choices(partitioner, 3, (0, 1, 2))
    assert set(found) == {0, 2}
    assert min(found.values()) > 400


def test_without_sizes_the_choice_is_uniform() -> None:
    """An empty load says that nothing is known, so available partitions are chosen alike."""
    partitioner = sticky(1)
    partitioner.update_load("t", {0: 9, 1: 0})
    partitioner.update_load("t", {})
    assert min(choices(partitioner, 2, (0, 1)).values()) > 400


def test_a_topic_made_anew_with_fewer_partitions_gets_a_valid_one() -> None:
    """A partition that no longer exists is replaced at once."""
    partitioner = sticky(1000)
    partitioner.partition("t", 1, (0,))
    partitioner.update_load("t", {7: 0})
    partitioner.appended("t", 1000, has_open_batch=False)
    assert partitioner.partition("t", 8, (7,)) == 7
    assert partitioner.partition("t", 2, (0, 1)) in {0, 1}


def test_a_batch_size_of_nothing_is_refused() -> None:
    """A batch size of 0 is refused, since the partition would change for every record."""
    with pytest.raises(ValueError, match=r"batch\.size"):
        sticky(0)


@pytest.mark.parametrize("key", [b"key", None])
def test_turns_ignore_the_key_and_skip_partitions_without_a_leader(key: bytes | None) -> None:
    """Each available partition gets the same number of records; the topics have own turns."""
    partitioner: Partitioner = RoundRobinPartitioner()
    found: Counter[int] = Counter()
    for number in range(30):
        found[partitioner.partition("a", key, b"", partition_count=4, available=(0, 2, 3))] += 1
        if number % 5 == 0:
            partitioner.partition("b", key, b"", partition_count=4, available=(0, 2, 3))
    assert found == {0: 10, 2: 10, 3: 10}


def test_turns_go_through_all_partitions_if_none_has_a_leader() -> None:
    """Records are kept for partitions that will have a leader again."""
    partitioner = RoundRobinPartitioner()
    turns = [partitioner.partition("a", None, b"", partition_count=3, available=()) for _ in "1234"]
    assert turns == [0, 1, 2, 0]


FNV1A = {b"kafka": 0xD33C4E1, b"giberish123456789": 0x77A58295, b"1234": 0x23BDD03, b"": 0x7EE3623B}
"""Hashes that librdkafka's own tests name."""


def test_rules_have_librdkafkas_hashes() -> None:
    """CRC-32 and FNV-1a without its sign; records without a key go anywhere with `_random` only."""
    for key, expected in FNV1A.items():
        assert fnv1a(key) == expected
        assert KEY_RULES["fnv1a_random"](key, 17) == KEY_RULES["fnv1a"](key, 17) == expected % 17
    assert KEY_RULES["consistent_random"](b"key", 17) == zlib.crc32(b"key") % 17
    assert KEY_RULES["consistent_random"](b"", 17) == NO_PARTITION
    for name, rule in KEY_RULES.items():
        if name.endswith("random"):
            assert rule(None, 17) == NO_PARTITION
        else:
            assert rule(None, 17) == rule(b"", 17) >= 0
