"""Produce (0): append batches.

Versions: 3 to 13. Records are format v2, one batch per partition.
Behaviour:
  - Each partition is appended or refused on its own, in the order of the request; a batch is in
    the page cache and readable when its answer leaves.
  - acks 0 is not answered; if a partition failed the connection is closed, which is how Kafka
    tells such a client. acks 1 and -1 are the same on one node.
  - Internal topics are refused (INVALID_TOPIC_EXCEPTION).
  - A batch that an idempotent producer sends again is a success with the offset it got the first
    time (one of its last five); a gap is OUT_OF_ORDER_SEQUENCE_NUMBER, an old epoch
    INVALID_PRODUCER_EPOCH.
Version notes: zstd needs v7 (UNSUPPORTED_COMPRESSION_TYPE below); v8 adds the message; v13 names
    topics by id (UNKNOWN_TOPIC_ID).
Not done: transactions (INVALID_TXN_STATE), record errors one by one, quotas.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.cluster.image import Topic
from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.model import Acks, Codec, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tailrace.records.batch import Batch
from tailrace.records.layout import CODEC_MASK, HEADER_SIZE

ZSTD_SINCE = 7
NO_TRANSACTIONS = "this broker has no transactions yet; leave transactional.id unset"


@dataclass(frozen=True, slots=True)
class _Refusal:
    code: ErrorCode
    message: str | None = None


def handle_produce(
    services: Services, header: RequestHeader, request: ProduceRequest
) -> ProduceResponse:
    """Append every partition's batch; the caller decides what acks 0 means for the answer."""
    refusal = _refusal_of_all(request)
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=tuple(_produce(services, header, data, refusal=refusal)),
            )
            for data in request.topic_data
        )
    )


def first_error(response: ProduceResponse) -> ErrorCode:
    """The first error among the partitions, or NONE."""
    codes = (
        partition.error_code
        for topic in response.responses
        for partition in topic.partition_responses
    )
    return ErrorCode(next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE))


def _refusal_of_all(request: ProduceRequest) -> _Refusal | None:
    if request.acks not in (Acks.NONE, Acks.LEADER, Acks.ALL):
        return _Refusal(ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        return _Refusal(ErrorCode.INVALID_TXN_STATE, NO_TRANSACTIONS)
    return None


def _produce(
    services: Services, header: RequestHeader, data: TopicProduceData, *, refusal: _Refusal | None
) -> Iterator[PartitionProduceResponse]:
    topic = services.find_topic(data.name, data.topic_id)
    if refusal is None:
        refusal = _refusal_of_topic(topic, data)
    for partition_data in data.partition_data:
        if refusal is not None or topic is None:
            yield _refused(partition_data.index, refusal or _Refusal(ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            yield _append(services, header, topic, data=partition_data)


def _refusal_of_topic(topic: Topic | None, data: TopicProduceData) -> _Refusal | None:
    if topic is None:
        is_by_name = data.topic_id == NO_UUID
        return _Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_by_name else ErrorCode.UNKNOWN_TOPIC_ID
        )
    if topic.is_internal:
        return _Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is written by brokers only"
        )
    return None


def _append(
    services: Services, header: RequestHeader, topic: Topic, *, data: PartitionProduceData
) -> PartitionProduceResponse:
    partition = services.replicas.get(TopicPartition(topic.name, data.index))
    if partition is None:
        return _refused(data.index, _Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    records = memoryview(data.records or b"")
    refusal = _refusal_of_batch(records, header.api_version)
    if refusal is not None:
        return _refused(data.index, refusal)
    try:
        appended = partition.append(records, now_ms=services.clock.now_ms())
    except (TailraceError, OSError) as error:
        return _refused(data.index, _Refusal(error_code(error), str(error)))
    return PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time,
        log_start_offset=appended.log_start_offset,
    )


def _refusal_of_batch(records: memoryview, version: int) -> _Refusal | None:
    """Why a batch may not travel in this version, or may not travel at all."""
    if len(records) < HEADER_SIZE:
        return None
    batch = Batch(records)
    if batch.is_transactional:
        return _Refusal(ErrorCode.INVALID_TXN_STATE, NO_TRANSACTIONS)
    if version < ZSTD_SINCE and batch.attributes & CODEC_MASK == Codec.ZSTD:
        return _Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return None


def _refused(index: int, refusal: _Refusal) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=refusal.code,
        base_offset=-1,
        error_message=refusal.message or refusal.code.message,
    )
