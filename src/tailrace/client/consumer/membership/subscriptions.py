"""Subscriptions and assignments of a classic group, between objects and the members' bytes.

    subscription   int16 version, ConsumerProtocolSubscription   member -> leader, in JoinGroup
    assignment     int16 version, ConsumerProtocolAssignment     leader -> member, in SyncGroup

A reader takes a newer version for the newest that it knows, as Kafka does. The bytes were made by
other members of the group, which may be any program.

Not here: the user data of sticky assignors (`sticky`).

Invariant: any bytes end in a value or in a `MalformedGroupDataError`, in bounded memory.
"""

from collections.abc import Iterable
from itertools import groupby
from struct import Struct
from typing import Final, TypeVar

from tailrace.client.consumer.membership.errors import MalformedGroupDataError
from tailrace.model import TopicPartition
from tailrace.protocol.codec import decode, encode
from tailrace.protocol.errors import MalformedMessageError
from tailrace.protocol.fields import Message
from tailrace.protocol.java_strings import java_order
from tailrace.protocol.messages import consumer_protocol_assignment, consumer_protocol_subscription
from tailrace.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from tailrace.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from tailrace.values import dataclass

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
    """Its instance id, which stands beside the bytes."""


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
    """The bytes of an assignment in the newest version."""
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
