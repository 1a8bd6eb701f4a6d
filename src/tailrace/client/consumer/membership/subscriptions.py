"""Subscriptions and assignments of a classic group, between objects and the members' bytes.

    subscription   int16 version, ConsumerProtocolSubscription   member -> leader, in JoinGroup
    assignment     int16 version, ConsumerProtocolAssignment     leader -> member, in SyncGroup

    user data in subscriptions, without a version:
        sticky               topics[]{string topic, int32 partitions[]}, int32 generation (since v1)
        cooperative-sticky   int32 generation

A reader takes a newer version for the newest that it knows, as Kafka does. The bytes were made by
other members of the group, which may be any program.

Invariant: any bytes end in a value or in a `MalformedGroupDataError`, in bounded memory.
"""

from collections.abc import Iterable
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from tailrace.client.consumer.membership.errors import MalformedGroupDataError
from tailrace.model import TopicPartition
from tailrace.protocol.codec import decode, encode
from tailrace.protocol.errors import MalformedMessageError
from tailrace.protocol.fields import NO_VERSION, Message, wire, wire_array
from tailrace.protocol.java_strings import hash_map_order, java_hash, java_order
from tailrace.protocol.messages import consumer_protocol_assignment, consumer_protocol_subscription
from tailrace.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from tailrace.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from tailrace.values import dataclass

NO_GENERATION: Final = -1
"""Generation of a member that knows of none."""

_GENERATION: Final = Struct(">i")

M = TypeVar("M", bound=Message)

VERSION: Final = Struct(">h")

PARTS_MAX: Final = 1_000_000
"""Most topics and partitions in the bytes of one member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """A member's subscription, and the partitions that it owns, for the leader."""

    topics: tuple[str, ...]
    """The topics, each once."""
    owned: tuple[TopicPartition, ...] = ()
    """Partitions that it owns and has not revoked."""
    generation: int | None = None
    """The generation in which it got them; None if it is not known."""
    user_data: bytes | None = None
    """Bytes of the assignor's own."""
    rack: str | None = None
    """The member's rack."""
    instance_id: str | None = None
    """Its instance id, which the coordinator sends beside the bytes."""


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """The bytes of a subscription in the newest version."""
    partitions = sorted(set(subscription.owned), key=_partition_order)
    generation = subscription.generation
    message = ConsumerProtocolSubscription(
        topics=tuple(sorted(subscription.topics, key=java_order)),
        user_data=subscription.user_data,
        owned_partitions=tuple(
            consumer_protocol_subscription.TopicPartition(
                topic=topic, partitions=tuple(each.partition for each in group)
            )
            for topic, group in groupby(partitions, key=lambda each: each.topic)
        ),
        # Since version 2 the leader sees here whose claim is older (KIP-792).
        generation_id=-1 if generation is None else generation,
        rack_id=subscription.rack,
    )
    return _encoded(message)


def decode_subscription(
    data: bytes, *, member_id: str, instance_id: str | None = None
) -> MemberSubscription:
    """A member's subscription.

    Raises:
        MalformedGroupDataError: the bytes are none.
    """
    found = _decoded(ConsumerProtocolSubscription, data, what=f"the subscription of {member_id!r}")
    return MemberSubscription(
        # A client may name a topic twice.
        topics=tuple(dict.fromkeys(found.topics)),
        owned=tuple(
            TopicPartition(topic.topic, number)
            for topic in found.owned_partitions
            for number in topic.partitions
        ),
        generation=None if found.generation_id < 0 else found.generation_id,
        user_data=found.user_data,
        rack=found.rack_id or None,
        instance_id=instance_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(each.partition)
    return _encoded(
        ConsumerProtocolAssignment(
            assigned_partitions=tuple(
                consumer_protocol_assignment.TopicPartition(topic=topic, partitions=tuple(numbers))
                for topic, numbers in by_topic.items()
            )
        )
    )


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """The partitions that the leader has assigned to this member.

    Raises:
        MalformedGroupDataError: the bytes are no assignment; empty ones are none either.
    """
    what = "the assignment by the leader"
    found = _decoded(ConsumerProtocolAssignment, data, what=what)
    partitions = frozenset(
        TopicPartition(topic.topic, number)
        for topic in found.assigned_partitions
        for number in topic.partitions
    )
    negative = next((each for each in partitions if each.partition < 0), None)
    if negative is not None:
        raise MalformedGroupDataError(
            f"{what} has partition {negative.partition} of topic {negative.topic!r}: a partition "
            "has a number from 0 on; look at the assignor of the group's leader"
        )
    return partitions


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
    by_topic: dict[str, list[int]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(each.partition)
    message = StickyUserData(
        previous_assignment=tuple(
            consumer_protocol_assignment.TopicPartition(
                topic=topic, partitions=tuple(by_topic[topic])
            )
            # The order in which Kafka's client writes them, for equal bytes.
            for topic in hash_map_order(by_topic, java_hash)
        ),
        generation=generation,
    )
    out = bytearray()
    encode(message, StickyUserData.last_version, out)
    return bytes(out)


def decode_sticky(data: bytes | None) -> OwnedPartitions:
    # Bytes that cannot be read count as no partitions, as in Kafka: a member that is not understood
    # costs moves, and not the group.
    if not data:
        return OwnedPartitions((), None)
    # No version is in front: Kafka tries the form with a generation first (KIP-341).
    for version in (1, 0):
        try:
            # The bytes are another program's: a count in them must not allocate memory.
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
    return _GENERATION.pack(generation)


def decode_generation(data: bytes | None) -> int | None:
    if data is None:
        return None
    if len(data) < _GENERATION.size:
        return NO_GENERATION
    generation: int = _GENERATION.unpack_from(data)[0]
    return generation


def _partition_order(partition: TopicPartition) -> tuple[bytes, int]:
    return java_order(partition.topic), partition.partition


def _encoded(message: Message) -> bytes:
    out = bytearray(VERSION.pack(message.last_version))
    encode(message, message.last_version, out)
    return bytes(out)


def _decoded(message: type[M], data: bytes, *, what: str) -> M:
    if len(data) < VERSION.size:
        raise MalformedGroupDataError(
            f"{what} has {len(data)} bytes, and its version alone takes {VERSION.size}"
        )
    (version,) = VERSION.unpack_from(data)
    if version < message.first_version:
        raise MalformedGroupDataError(f"{what} has version {version}; the first is 0")
    try:
        found, _ = decode(
            message,
            # New fields come after the old ones, so a newer version can be read as the last known
            # one.
            min(version, message.last_version),
            memoryview(data),
            position=VERSION.size,
            parts_max=PARTS_MAX,
        )
    except MalformedMessageError as error:
        raise MalformedGroupDataError(
            f"{what} cannot be read: {error}; all members of the group have to be consumers"
        ) from error
    return found
