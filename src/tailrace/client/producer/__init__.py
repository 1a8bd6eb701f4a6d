"""The producer: records in, batches out, an outcome for each.

`Producer` is for threads and `AsyncProducer` for an event loop; both are `Face`s of one `Engine`.

    engine        one producer without a thread: how the rest is put together
    accumulator   batches that wait, by partition       sender       batches that go, and come back
    transactions/ identity, numbers, transactions       metadata     topics and leaders
    supply        memory of the batches                 gate         the shortest way into one
    encoding      records to bytes                      columns, slices, many    rows to batches
    driver, aio   who moves the bytes, and when      lines        records that wait for a batch

Not here: connections (`tailrace.client.nodes`).
"""

from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.hooks import BatchHook, BatchInfo
from tailrace.client.producer.interceptors import ProducerInterceptor
from tailrace.client.producer.many import SendSummary
from tailrace.client.producer.partitioners import (
    ConsistentRandomPartitioner,
    Partitioner,
    RoundRobinPartitioner,
)
from tailrace.client.producer.producer import Producer
from tailrace.client.producer.receipts import ProducerRecord, Receipt, RecordMetadata
from tailrace.client.producer.serializers import (
    serialize_double,
    serialize_json,
    serialize_long,
    serialize_uuid,
)
from tailrace.client.producer.transactions.requests import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
)

__all__ = [
    "AsyncProducer",
    "BatchHook",
    "BatchInfo",
    "ConsistentRandomPartitioner",
    "ConsumerGroupMetadata",
    "OffsetAndMetadata",
    "Partitioner",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "Receipt",
    "RecordMetadata",
    "RoundRobinPartitioner",
    "SendSummary",
    "serialize_double",
    "serialize_json",
    "serialize_long",
    "serialize_uuid",
]
