"""Subscriptions and assignments of classic groups, in the bytes that Kafka's clients write."""

import tracemalloc
from dataclasses import replace
from struct import pack
from typing import Any

import pytest

from tailrace.client.consumer.membership.errors import MalformedGroupDataError
from tailrace.client.consumer.membership.subscriptions import (
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tailrace.protocol.codec import encode
from tailrace.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from tailrace.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from tests.unit.client.consumer.member_stage import partitions
from tests.unit.protocol.strategies import full_message

FULL = MemberSubscription(
    topics=("airports", "flights"),
    owned=partitions(0, 2),
    generation=5,
    user_data=b"data",
    rack="r1",
)


def test_a_subscription_survives_its_bytes() -> None:
    """With all fields, and with none; the instance id stands beside the bytes."""
    assert decode_subscription(encode_subscription(FULL), member_id="m") == FULL
    first = replace(FULL, generation=0)
    assert decode_subscription(encode_subscription(first), member_id="m") == first
    bare = MemberSubscription(topics=())
    assert decode_subscription(encode_subscription(bare), member_id="m") == bare
    named = decode_subscription(encode_subscription(bare), member_id="m", instance_id="i")
    assert named.instance_id == "i"


def test_topics_and_owned_partitions_are_in_order() -> None:
    """So that equal subscriptions have equal bytes, by which a broker tells a change."""
    mixed = MemberSubscription(topics=("flights", "airports"), owned=partitions(2, 0))
    ordered = MemberSubscription(topics=("airports", "flights"), owned=partitions(0, 2))
    assert encode_subscription(mixed) == encode_subscription(ordered)


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_of_any_version_is_read(version: int) -> None:
    """Older ones have no owned partitions, generation or rack."""
    out = bytearray(pack(">h", version))
    message: Any = full_message(ConsumerProtocolSubscription, version)
    encode(message, version, out)
    found = decode_subscription(bytes(out), member_id="m")
    assert found.topics
    assert bool(found.owned) == (version >= 1)
    assert (found.generation is not None) == (version >= 2)
    assert (found.rack is not None) == (version >= 3)


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_of_any_version_is_read(version: int) -> None:
    """They are alike."""
    out = bytearray(pack(">h", version))
    message: Any = full_message(ConsumerProtocolAssignment, version)
    encode(message, version, out)
    assert decode_assignment(bytes(out))


def test_a_newer_version_is_read_as_the_newest_known_one() -> None:
    """Its further fields stand behind, and are not read."""
    newer = pack(">h", 100) + encode_subscription(FULL)[2:] + b"more"
    assert decode_subscription(newer, member_id="m") == FULL
    assigned = pack(">h", 100) + encode_assignment(partitions(0, 1))[2:] + b"more"
    assert decode_assignment(assigned) == frozenset(partitions(0, 1))


def test_an_assignment_survives_its_bytes() -> None:
    """Also one of no partitions, and without user data."""
    assert decode_assignment(encode_assignment(partitions(3, 1))) == frozenset(partitions(1, 3))
    assert decode_assignment(encode_assignment(())) == frozenset()


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1", b"\0\0{}"])
def test_other_bytes_are_refused(data: bytes) -> None:
    """Too few, with a negative version, or with lengths that lie; the member is named."""
    with pytest.raises(MalformedGroupDataError, match="'broken'"):
        decode_subscription(data, member_id="broken")
    with pytest.raises(MalformedGroupDataError):
        decode_assignment(data)


def test_a_negative_partition_is_refused() -> None:
    """With its topic."""
    with pytest.raises(MalformedGroupDataError, match="partition -1 of topic 'flights'"):
        decode_assignment(encode_assignment(partitions(-1)))


def test_more_partitions_than_a_group_has_are_refused_in_bounded_memory() -> None:
    """Two million in one assignment: no object is made for them."""
    count = 2_000_000
    data = pack(">hih1si", 0, 1, 1, b"t", count) + bytes(4 * count) + pack(">i", -1)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedGroupDataError, match="entries"):
            decode_assignment(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
