"""Transactions as records of `__transaction_state`, as Apache Kafka 4.3 writes them.

docs/formats/transaction-records.md draws them. Values have version 1, which transaction version 1
has brought; version 0 is read.
"""

from itertools import groupby
from operator import attrgetter

from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.coordinator.transactions.state import NO_EPOCH, Transaction, TransactionStatus
from tailrace.errors import CorruptionError
from tailrace.model import ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.coordinator_records import (
    TransactionRecordType,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    record_type,
)
from tailrace.protocol.errors import MalformedRecordError, UnknownRecordError
from tailrace.protocol.records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

VALUE_VERSION = 1

_STORED = range(TransactionStatus.DEAD)
"""Statuses that a record can have."""


def transaction_record(transaction: Transaction) -> CoordinatorRecord:
    has_partitions = transaction.status is not TransactionStatus.EMPTY
    return CoordinatorRecord(
        TransactionLogKey(transactional_id=transaction.transactional_id),
        TransactionLogValue(
            producer_id=transaction.producer_id,
            previous_producer_id=transaction.previous_producer_id,
            next_producer_id=transaction.next_producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_status=transaction.status,
            # As Kafka writes it: null for an empty one, an empty list for a complete one.
            transaction_partitions=_by_topic(transaction.partitions) if has_partitions else None,
            transaction_last_update_timestamp_ms=transaction.updated_ms,
            transaction_start_timestamp_ms=transaction.start_ms,
            client_transaction_version=transaction.client_version,
        ),
    )


def transaction_tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)


def stored_transaction(transactional_id: str, value: TransactionLogValue) -> Transaction:
    return Transaction(
        transactional_id=transactional_id,
        producer_id=ProducerId(value.producer_id),
        producer_epoch=ProducerEpoch(value.producer_epoch),
        previous_producer_id=ProducerId(value.previous_producer_id),
        next_producer_id=ProducerId(value.next_producer_id),
        last_epoch=NO_EPOCH,
        timeout_ms=value.transaction_timeout_ms,
        status=TransactionStatus(value.transaction_status),
        partitions=frozenset(
            TopicPartition(each.topic, number)
            for each in value.transaction_partitions or ()
            for number in each.partition_ids
        ),
        updated_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
    )


class TransactionCodec:
    """See `coordinator.machine.RecordCodec`."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Key and value.

        Raises:
            UnencodableMessageError: a value does not fit its field.
        """
        key, value = record
        assert isinstance(key, TransactionLogKey)
        assert value is None or isinstance(value, TransactionLogValue)
        return encode_key(key), None if value is None else encode_value(value, VALUE_VERSION)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """The record; None if the type of its key is unknown.

        Raises:
            CorruptionError: the bytes are not such a record, or the value is of a version that a
                newer Kafka writes.
        """
        try:
            record_type(TransactionRecordType, key)
        except UnknownRecordError:
            return None  # Written by a newer Kafka, beside those of this type.
        try:
            found = None if value is None else decode_value(TransactionLogValue, value).value
        except UnknownRecordError as error:
            raise CorruptionError(
                f"{error}: a newer Kafka has written this record, and the producer ids and epochs "
                "of the partition cannot be known without it"
            ) from error
        if found is not None and found.transaction_status not in _STORED:
            raise MalformedRecordError(
                f"the status of a transaction is {found.transaction_status}, and not 0 to 5"
            )
        return CoordinatorRecord(decode_key(TransactionLogKey, key), found)


def _by_topic(partitions: frozenset[TopicPartition]) -> tuple[PartitionsSchema, ...]:
    # Sorted for `groupby`, and so that equal states have equal records.
    by_topic = groupby(sorted(partitions), attrgetter("topic"))
    return tuple(
        PartitionsSchema(topic=topic, partition_ids=tuple(each.partition for each in found))
        for topic, found in by_topic
    )
