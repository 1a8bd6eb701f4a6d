"""The consumer: reads records of topics, alone or as a member of a group.

`Consumer` is for threads and `AsyncConsumer` for an event loop; both are built on one
`ConsumerEngine`.

    engine          one consumer without its own thread; connects the parts below
    subscription    topics, partitions, and the position in each
    metadata        brokers, topics, leaders                lookups     offsets from leaders
    fetching        Fetch requests, answers, positions      fetch_session   KIP-227
    fetched         from bytes to batches and records       columns         to Arrow
    handling        what the program has handled
    membership/     the member of a group, and commits      group       connects it
    calls           subscribe, seek, offsets                reading_calls   poll, commit, close
    consumer, aio   who runs these calls: a thread or an event loop

Not here: connections (`tailrace.client.nodes`).
"""

from importlib import import_module

TYPE_CHECKING = False
"""A copy of `typing.TYPE_CHECKING`, as in `tailrace`."""

if TYPE_CHECKING:
    from tailrace.client.cluster_metadata import PartitionInfo
    from tailrace.client.consumer.aio import AsyncConsumer
    from tailrace.client.consumer.consumer import Consumer
    from tailrace.client.consumer.errors import (
        BrokerRefusedError,
        ClosedConsumerError,
        ConcurrentCallError,
        ConsumerAuthenticationError,
        ConsumerDisconnectedError,
        ConsumerError,
        ConsumerMalformedAnswerError,
        ConsumerRequestTimedOutError,
        ConsumerTimeoutError,
        ConsumerUnsupportedVersionError,
        DamagedRecordsError,
        InvalidTopicNameError,
        LogTruncationError,
        NoOffsetForPartitionError,
        PositionOutOfRangeError,
        RecordDeserializationError,
        SubscriptionError,
        TopicAuthorizationError,
        UnknownTopicError,
        WakeupError,
    )
    from tailrace.client.consumer.membership.errors import (
        CommitFailedError,
        CommitRefusedError,
        FencedInstanceError,
        GroupAuthorizationError,
        GroupError,
        GroupRefusedError,
        GroupTimeoutError,
        MalformedGroupDataError,
        MemberFencedError,
        RebalanceInProgressError,
        RetriableCommitError,
    )
    from tailrace.client.consumer.metrics import ConsumerStatistics, PartitionStatistics
    from tailrace.client.consumer.records import ConsumerRecord, OffsetAndTimestamp
    from tailrace.client.consumer.subscription import RebalanceHooks
    from tailrace.client.group_offsets import OffsetAndMetadata
    from tailrace.client.keywords import ConsumerSettings
    from tailrace.model import TimestampType

__all__ = [
    "AsyncConsumer",
    "BrokerRefusedError",
    "ClosedConsumerError",
    "CommitFailedError",
    "CommitRefusedError",
    "ConcurrentCallError",
    "Consumer",
    "ConsumerAuthenticationError",
    "ConsumerDisconnectedError",
    "ConsumerError",
    "ConsumerMalformedAnswerError",
    "ConsumerRecord",
    "ConsumerRequestTimedOutError",
    "ConsumerSettings",
    "ConsumerStatistics",
    "ConsumerTimeoutError",
    "ConsumerUnsupportedVersionError",
    "DamagedRecordsError",
    "FencedInstanceError",
    "GroupAuthorizationError",
    "GroupError",
    "GroupRefusedError",
    "GroupTimeoutError",
    "InvalidTopicNameError",
    "LogTruncationError",
    "MalformedGroupDataError",
    "MemberFencedError",
    "NoOffsetForPartitionError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "PartitionStatistics",
    "PositionOutOfRangeError",
    "RebalanceHooks",
    "RebalanceInProgressError",
    "RecordDeserializationError",
    "RetriableCommitError",
    "SubscriptionError",
    "TimestampType",
    "TopicAuthorizationError",
    "UnknownTopicError",
    "WakeupError",
]

_MODULES = {
    "AsyncConsumer": "consumer.aio",
    "CommitFailedError": "consumer.membership.errors",
    "CommitRefusedError": "consumer.membership.errors",
    "Consumer": "consumer.consumer",
    "ConsumerRecord": "consumer.records",
    "ConsumerSettings": "keywords",
    "ConsumerStatistics": "consumer.metrics",
    "FencedInstanceError": "consumer.membership.errors",
    "GroupAuthorizationError": "consumer.membership.errors",
    "GroupError": "consumer.membership.errors",
    "GroupRefusedError": "consumer.membership.errors",
    "GroupTimeoutError": "consumer.membership.errors",
    "MalformedGroupDataError": "consumer.membership.errors",
    "MemberFencedError": "consumer.membership.errors",
    "OffsetAndMetadata": "group_offsets",
    "OffsetAndTimestamp": "consumer.records",
    "PartitionInfo": "cluster_metadata",
    "PartitionStatistics": "consumer.metrics",
    "RebalanceHooks": "consumer.subscription",
    "RebalanceInProgressError": "consumer.membership.errors",
    "RetriableCommitError": "consumer.membership.errors",
    "TimestampType": "consumer.records",
}


# Names are imported when they are asked for: who only produces does not pay for the consumer,
# and `import tailrace` takes milliseconds (decision 24).
def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tailrace.client.consumer' has no attribute {name!r}")
    return getattr(import_module(f"tailrace.client.{_MODULES.get(name, 'consumer.errors')}"), name)


def __dir__() -> list[str]:
    return __all__
