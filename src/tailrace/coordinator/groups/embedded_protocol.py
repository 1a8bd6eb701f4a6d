"""The consumer embedded protocol: messages of consumers to each other in JoinGroup and SyncGroup.

Each begins with its version, an int16. A newer version begins as the newest that is known.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import TypeVar

from tailrace.protocol.codec import decode, encode
from tailrace.protocol.errors import MalformedMessageError
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from tailrace.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

M = TypeVar("M", bound=Message)

_VERSION = Struct(">h")


def read_subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of these members; None if one of them is not a consumer's subscription."""
    topics: set[str] = set()
    for each in metadata:
        try:
            # A subscription of any version begins as one of version 0 does, with the topics. What
            # is after them may be the client's own, so it is not looked at.
            subscription, _ = decode(
                ConsumerProtocolSubscription, 0, memoryview(each), position=_VERSION.size
            )
        except MalformedMessageError:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """The subscription of a member.

    Raises:
        MalformedMessageError: the metadata is not a consumer's subscription.
    """
    return _read(ConsumerProtocolSubscription, metadata)


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """The assignment of a member; one without bytes has no partitions.

    Raises:
        MalformedMessageError: the bytes are not a consumer's assignment.
    """
    # A member whom the leader has given nothing has no bytes at all, not even a version.
    if not assignment:
        return ConsumerProtocolAssignment()
    return _read(ConsumerProtocolAssignment, assignment)


def write_assignment(partitions: Mapping[str, Iterable[int]], *, for_metadata: bytes) -> bytes:
    """An assignment in the version of the subscription that the member has sent.

    It has version 0 if that has none.
    """
    # Not newer than what the member has sent: an old client could not read it.
    try:
        version = _version(for_metadata)
    except MalformedMessageError:
        # Only the metadata for a member's favourite assignor was read when it joined. Its group
        # must not be held up by what it has sent for another one.
        version = 0
    out = bytearray(_VERSION.pack(version))
    assigned = tuple(
        TopicPartition(topic=topic, partitions=tuple(sorted(numbers)))
        for topic, numbers in partitions.items()
    )
    encode(ConsumerProtocolAssignment(assigned_partitions=assigned), version, out)
    return bytes(out)


def _read(message: type[M], data: bytes) -> M:
    version = min(_version(data), message.last_version)
    found, _ = decode(message, version, memoryview(data), position=_VERSION.size)
    return found


def _version(data: bytes) -> int:
    # A negative version: these are not bytes of the consumer's embedded protocol.
    if len(data) < _VERSION.size or data[0] >= 0x80:
        raise MalformedMessageError("a message of consumers has no version", position=0)
    return min(int(_VERSION.unpack_from(data)[0]), ConsumerProtocolAssignment.last_version)
