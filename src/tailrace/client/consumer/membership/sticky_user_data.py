"""The user data of sticky assignors, in the subscriptions of members.

    sticky               topics[]{string topic, int32 partitions[]}, int32 generation (from v1 on)
    cooperative-sticky   int32 generation

There is no version in front. Bytes that cannot be read count as no partitions, as in Kafka: a
member that is not understood costs moves, and not the group.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from tailrace.client.consumer.membership.subscriptions import PARTS_MAX
from tailrace.model import TopicPartition
from tailrace.protocol.codec import decode, encode
from tailrace.protocol.errors import MalformedMessageError
from tailrace.protocol.fields import NO_VERSION, wire, wire_array
from tailrace.protocol.java_strings import hash_map_order, java_hash
from tailrace.protocol.messages import consumer_protocol_assignment
from tailrace.values import dataclass

NO_GENERATION: Final = -1
"""Generation of a member that knows of none."""

_GENERATION: Final = Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyUserData:
    """The previous assignment of a member, which `sticky` gives to the leader."""

    first_version, last_version, flexible_since = 0, 1, NO_VERSION
    previous_assignment: tuple[consumer_protocol_assignment.TopicPartition, ...] = wire_array(
        consumer_protocol_assignment.TopicPartition
    )
    """The partitions, by topic."""
    generation: int = wire("int32", since=1, default=NO_GENERATION)
    """The generation in which the member got them."""


class OwnedPartitions(NamedTuple):
    """The partitions that a member says it owned."""

    partitions: tuple[TopicPartition, ...]
    generation: int | None
    """The generation in which it got them; None if it does not say."""


def encode_sticky(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """The user data of `sticky`."""
    by_topic: dict[str, list[int]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(each.partition)
    message = StickyUserData(
        previous_assignment=tuple(
            consumer_protocol_assignment.TopicPartition(
                topic=topic, partitions=tuple(by_topic[topic])
            )
            for topic in hash_map_order(by_topic, java_hash)
        ),
        generation=generation,
    )
    out = bytearray()
    encode(message, StickyUserData.last_version, out)
    return bytes(out)


def decode_sticky(data: bytes | None) -> OwnedPartitions:
    """The partitions in the user data of `sticky`."""
    if not data:
        return OwnedPartitions((), None)
    for version in (1, 0):
        try:
            found, _ = decode(StickyUserData, version, memoryview(data), parts_max=PARTS_MAX)
        except MalformedMessageError:
            continue
        return OwnedPartitions(
            tuple(
                TopicPartition(topic.topic, number)
                for topic in found.previous_assignment
                for number in topic.partitions
            ),
            found.generation if version else None,
        )
    return OwnedPartitions((), NO_GENERATION)


def encode_generation(generation: int) -> bytes:
    """The user data of `cooperative-sticky`."""
    return _GENERATION.pack(generation)


def decode_generation(data: bytes | None) -> int | None:
    """The generation in the user data of `cooperative-sticky`."""
    if data is None:
        return None
    if len(data) < _GENERATION.size:
        return NO_GENERATION
    generation: int = _GENERATION.unpack_from(data)[0]
    return generation
