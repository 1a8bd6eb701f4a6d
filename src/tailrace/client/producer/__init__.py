"""The producer: sends records in batches and reports an outcome for each record.

`Producer` is for threads and `AsyncProducer` for an event loop; both are built on one `Engine`.

    intake/       a record, or rows, until they can go into a batch
    queue/        batches: open, sealed, in flight; their queues and their memory
    identity/     producer id, sequence numbers, transactions
    sender        Produce requests and their answers
    engine        connects these parts, without a thread or an event loop
    calls, transaction_calls     the calls of both classes
    queued_records               records of an `AsyncProducer` that wait for a batch

Not here: connections (`tailrace.client.nodes`), and when bytes are sent (`tailrace.client.drive`).

A name below loads its module when it is first used: Spark's driver parses the settings, and sends
nothing.
"""

from importlib import import_module

TYPE_CHECKING = False
"""A copy of `typing.TYPE_CHECKING`, as in `tailrace`."""

if TYPE_CHECKING:
    from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
    from tailrace.client.keywords import ProducerSettings
    from tailrace.client.prepared_transaction import PreparedTransaction
    from tailrace.client.producer.aio import AsyncProducer
    from tailrace.client.producer.errors import (
        AuthorizationError,
        BrokerRefusedError,
        BufferExhaustedError,
        ClosedBatchError,
        ClosedProducerError,
        DeliveryTimeoutError,
        InvalidTopicError,
        MetadataTimeoutError,
        OutOfOrderSequenceError,
        ProducerAuthenticationError,
        ProducerDisconnectedError,
        ProducerError,
        ProducerFencedError,
        ProducerMalformedAnswerError,
        ProducerRequestTimedOutError,
        ProducerUnsupportedVersionError,
        ReentrantCallError,
        RejectedRecordError,
        SendCancelledError,
        SerializationError,
        TransactionAbortableError,
        TransactionAbortedError,
        TransactionOutcomeUnknownError,
        TransactionStateError,
        TransactionTimeoutError,
        UnknownTopicError,
    )
    from tailrace.client.producer.identity import OwnedIdentity
    from tailrace.client.producer.intake.slices import ColumnSlice
    from tailrace.client.producer.metrics import ProducerStatistics
    from tailrace.client.producer.outcome import RecordMetadata
    from tailrace.client.producer.partitioners import Partitioner, RoundRobinPartitioner
    from tailrace.client.producer.plugins import (
        BatchHook,
        BatchInfo,
        ProducerInterceptor,
        ProducerRecord,
        serialize_double,
        serialize_json,
        serialize_long,
        serialize_uuid,
    )
    from tailrace.client.producer.producer import Producer
    from tailrace.client.producer.producer_batch import ProducerBatch
    from tailrace.client.producer.receipts import Receipt
    from tailrace.client.producer.results import BatchReceipt, SendSummary

__all__ = [
    "AsyncProducer",
    "AuthorizationError",
    "BatchHook",
    "BatchInfo",
    "BatchReceipt",
    "BrokerRefusedError",
    "BufferExhaustedError",
    "ClosedBatchError",
    "ClosedProducerError",
    "ColumnSlice",
    "ConsumerGroupMetadata",
    "DeliveryTimeoutError",
    "InvalidTopicError",
    "MetadataTimeoutError",
    "OffsetAndMetadata",
    "OutOfOrderSequenceError",
    "OwnedIdentity",
    "Partitioner",
    "PreparedTransaction",
    "Producer",
    "ProducerAuthenticationError",
    "ProducerBatch",
    "ProducerDisconnectedError",
    "ProducerError",
    "ProducerFencedError",
    "ProducerInterceptor",
    "ProducerMalformedAnswerError",
    "ProducerRecord",
    "ProducerRequestTimedOutError",
    "ProducerSettings",
    "ProducerStatistics",
    "ProducerUnsupportedVersionError",
    "Receipt",
    "RecordMetadata",
    "ReentrantCallError",
    "RejectedRecordError",
    "RoundRobinPartitioner",
    "SendCancelledError",
    "SendSummary",
    "SerializationError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionOutcomeUnknownError",
    "TransactionStateError",
    "TransactionTimeoutError",
    "UnknownTopicError",
    "serialize_double",
    "serialize_json",
    "serialize_long",
    "serialize_uuid",
]

_MODULES = {
    "AsyncProducer": "producer.aio",
    "BatchHook": "producer.plugins",
    "BatchInfo": "producer.plugins",
    "BatchReceipt": "producer.results",
    "ColumnSlice": "producer.intake.slices",
    "ConsumerGroupMetadata": "group_offsets",
    "OffsetAndMetadata": "group_offsets",
    "OwnedIdentity": "producer.identity",
    "Partitioner": "producer.partitioners",
    "PreparedTransaction": "prepared_transaction",
    "Producer": "producer.producer",
    "ProducerBatch": "producer.producer_batch",
    "ProducerInterceptor": "producer.plugins",
    "ProducerRecord": "producer.plugins",
    "ProducerSettings": "keywords",
    "ProducerStatistics": "producer.metrics",
    "Receipt": "producer.receipts",
    "RecordMetadata": "producer.outcome",
    "RoundRobinPartitioner": "producer.partitioners",
    "SendSummary": "producer.results",
    "serialize_double": "producer.plugins",
    "serialize_json": "producer.plugins",
    "serialize_long": "producer.plugins",
    "serialize_uuid": "producer.plugins",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tailrace.client.producer' has no attribute {name!r}")
    return getattr(import_module(f"tailrace.client.{_MODULES.get(name, 'producer.errors')}"), name)


def __dir__() -> list[str]:
    return __all__
