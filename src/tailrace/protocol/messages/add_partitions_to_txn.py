"""AddPartitionsToTxn (24): a producer adds partitions to its transaction before it writes to them.

    v2   PRODUCER_FENCED                    v3   flexible

v0 to v3 are for producers; v4 and later are for brokers, with many transactions in one request
(KIP-890).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnTopic:
    name: str = wire("string")
    partitions: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnTransaction:
    """The partitions of one transaction, from v4."""

    transactional_id: str = wire("string", since=4)
    producer_id: int = wire("int64", since=4)
    producer_epoch: int = wire("int16", since=4)
    # Whether to check that they are in the transaction, and to add none.
    verify_only: bool = wire("bool", since=4)
    topics: tuple[AddPartitionsToTxnTopic, ...] = wire_array(AddPartitionsToTxnTopic, since=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnRequest:
    first_version, last_version, flexible_since = 0, 5, 3
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = wire_array(
        AddPartitionsToTxnTransaction, since=4
    )
    v3_and_below_transactional_id: str = wire("string", until=3)
    v3_and_below_producer_id: int = wire("int64", until=3)
    v3_and_below_producer_epoch: int = wire("int16", until=3)
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = wire_array(
        AddPartitionsToTxnTopic, until=3
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnPartitionResult:
    partition_index: int = wire("int32")
    partition_error_code: int = wire("int16")  # 0, or why it is not in the transaction.


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnTopicResult:
    name: str = wire("string")
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = wire_array(
        AddPartitionsToTxnPartitionResult
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnResult:
    """The results for one transaction, from v4."""

    transactional_id: str = wire("string", since=4)
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = wire_array(
        AddPartitionsToTxnTopicResult, since=4
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnResponse:
    """The result for each partition: all are added, or none is."""

    first_version, last_version, flexible_since = 0, 5, 3
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16", since=4)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = wire_array(
        AddPartitionsToTxnResult, since=4
    )
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = wire_array(
        AddPartitionsToTxnTopicResult, until=3
    )
