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
    from tailrace.client.consumer.metrics import ConsumerStatistics, PartitionStatistics
    from tailrace.client.consumer.records import ConsumerRecord, OffsetAndTimestamp
    from tailrace.client.consumer.subscription import RebalanceHooks
    from tailrace.client.group_offsets import OffsetAndMetadata

__all__ = [
    "AsyncConsumer",
    "Consumer",
    "ConsumerRecord",
    "ConsumerStatistics",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "PartitionStatistics",
    "RebalanceHooks",
]

_MODULES = {
    "AsyncConsumer": "consumer.aio",
    "Consumer": "consumer.consumer",
    "ConsumerRecord": "consumer.records",
    "ConsumerStatistics": "consumer.metrics",
    "OffsetAndMetadata": "group_offsets",
    "OffsetAndTimestamp": "consumer.records",
    "PartitionInfo": "cluster_metadata",
    "PartitionStatistics": "consumer.metrics",
    "RebalanceHooks": "consumer.subscription",
}


# Names are imported when they are asked for: who only produces does not pay for the consumer,
# and `import tailrace` takes milliseconds (decision 24).
def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tailrace.client.consumer' has no attribute {name!r}")
    return getattr(import_module(f"tailrace.client.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
