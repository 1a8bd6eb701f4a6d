"""The producer: sends records in batches and reports an outcome for each record.

`Producer` is for threads and `AsyncProducer` for an event loop; both are built on one `Engine`.

    engine        one producer without its own thread; connects the parts below
    accumulator   batches that wait, by partition       sender       Produce requests and answers
    transactions/ producer id, sequences, transactions  metadata     topics and leaders
    supply        memory of the batches                 open_batches the fast path of `send`
    encoding      records to bytes                      columns, slices, many    rows to batches
    driver, aio   when bytes are sent, by whom          lines        records that wait for a batch

Not here: connections (`tailrace.client.nodes`).

A name below loads its module when it is first used: Spark's driver parses the settings, and sends
nothing.
"""

from importlib import import_module

TYPE_CHECKING = False
"""A copy of `typing.TYPE_CHECKING`, as in `tailrace`."""

if TYPE_CHECKING:
    from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
    from tailrace.client.prepared_transaction import PreparedTransaction
    from tailrace.client.producer.aio import AsyncProducer
    from tailrace.client.producer.batch_receipt import BatchReceipt
    from tailrace.client.producer.hooks import BatchHook, BatchInfo
    from tailrace.client.producer.identity import OwnedIdentity
    from tailrace.client.producer.intake.interceptors import ProducerInterceptor
    from tailrace.client.producer.intake.record import ProducerRecord
    from tailrace.client.producer.intake.serializers import (
        serialize_double,
        serialize_json,
        serialize_long,
        serialize_uuid,
    )
    from tailrace.client.producer.many import SendSummary
    from tailrace.client.producer.outcome import RecordMetadata
    from tailrace.client.producer.partitioners import (
        Partitioner,
        RoundRobinPartitioner,
    )
    from tailrace.client.producer.producer import Producer
    from tailrace.client.producer.producer_batch import ProducerBatch
    from tailrace.client.producer.receipts import Receipt

__all__ = [
    "AsyncProducer",
    "BatchHook",
    "BatchInfo",
    "BatchReceipt",
    "ConsumerGroupMetadata",
    "OffsetAndMetadata",
    "OwnedIdentity",
    "Partitioner",
    "PreparedTransaction",
    "Producer",
    "ProducerBatch",
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

_MODULES = {
    "AsyncProducer": "producer.aio",
    "BatchHook": "producer.hooks",
    "BatchInfo": "producer.hooks",
    "BatchReceipt": "producer.batch_receipt",
    "ConsumerGroupMetadata": "group_offsets",
    "OffsetAndMetadata": "group_offsets",
    "OwnedIdentity": "producer.identity",
    "Partitioner": "producer.partitioners",
    "PreparedTransaction": "prepared_transaction",
    "Producer": "producer.producer",
    "ProducerBatch": "producer.producer_batch",
    "ProducerInterceptor": "producer.intake.interceptors",
    "ProducerRecord": "producer.intake.record",
    "Receipt": "producer.receipts",
    "RecordMetadata": "producer.outcome",
    "RoundRobinPartitioner": "producer.partitioners",
    "SendSummary": "producer.many",
    "serialize_double": "producer.intake.serializers",
    "serialize_json": "producer.intake.serializers",
    "serialize_long": "producer.intake.serializers",
    "serialize_uuid": "producer.intake.serializers",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tailrace.client.producer' has no attribute {name!r}")
    return getattr(import_module(f"tailrace.client.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
