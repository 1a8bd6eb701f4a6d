"""The topics in the metadata that consumers hand to each other through the coordinator."""

from collections.abc import Iterable
from struct import Struct

from tailrace.protocol.codec import decode
from tailrace.protocol.errors import MalformedMessageError
from tailrace.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

_VERSION = Struct(">h")


def read_subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of these members; None if one of them is not a consumer's subscription.

    A subscription of any version begins as one of version 0 does, with the topics.
    """
    topics: set[str] = set()
    for each in metadata:
        try:
            subscription, _ = decode(
                ConsumerProtocolSubscription, 0, memoryview(each), position=_VERSION.size
            )
        except MalformedMessageError:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
