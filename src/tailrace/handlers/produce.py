"""Produce (0): append batches.

Versions: 3 to 13. Records are format v2, one batch per partition.
Behaviour:
  - Each partition is appended or refused on its own, in the order of the request; a batch is in
    the leader's page cache when its response is sent.
  - acks 0 gets no response; if a partition failed, the connection is closed, as in Kafka. acks 1
    waits for the leader alone.
  - acks -1 waits until the high watermark has passed the batch: all replicas in sync have it, and
    they are at least `min.insync.replicas`. Fewer take no append (NOT_ENOUGH_REPLICAS). After the
    request's timeout the answer is REQUEST_TIMED_OUT, and the batch may still be committed; when
    another broker becomes leader it is NOT_LEADER_OR_FOLLOWER. Where the leader is the only
    replica, acks -1 and 1 are the same.
  - The next Produce of the connection is appended meanwhile, and answered after it.
  - With `tailrace.durability=sync` a response to acks -1 waits until the records are on the device;
    one flush serves all waiting requests. Acks 0 and 1 do not wait. A batch that reaches the
    topic's `flush.messages` waits for a flush too, with any acks. If a flush fails, all waiting
    requests get KAFKA_STORAGE_ERROR. Consumers may see records while their producer waits.
  - A batch that takes long to check or to compress again is checked on a worker thread
    (`replication.validation`). The batches of a request, and the requests of a connection, keep
    their order. LogAppendTime is the time of the append. Batches that wait while a move of their
    partition completes keep their order too.
  - Internal topics are refused (INVALID_TOPIC_EXCEPTION).
  - A duplicate of one of the last five batches of an idempotent producer is a success with its
    first offset; a gap is OUT_OF_ORDER_SEQUENCE_NUMBER, an old epoch INVALID_PRODUCER_EPOCH.
  - The response names each refused record, up to 1000 of a batch.
Version notes: zstd needs v7 (UNSUPPORTED_COMPRESSION_TYPE below); v8 adds the message and the
    refused records (KIP-467); v13 names topics by id (UNKNOWN_TOPIC_ID, also if the topic is
    deleted, or created again, while the request waits). From v10 on NOT_LEADER_OR_FOLLOWER comes
    with the leader and its address (KIP-951).
Transactions: before a transaction's first batch in a partition its coordinator is asked
    (`produce_transactions`). Transactional batches without a transactional id are refused
    (TRANSACTIONAL_ID_AUTHORIZATION_FAILED). A fenced producer gets INVALID_PRODUCER_EPOCH.
Quotas: the bytes of the request count when it is answered (`server.dispatch`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from tailrace.cluster.image import Topic
from tailrace.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    RecordError,
    TailraceError,
)
from tailrace.handlers.produce_refusals import Refusal, has_transactional
from tailrace.handlers.services import Services, error_code
from tailrace.model import Acks, Codec, Offset, TopicPartition
from tailrace.protocol.answers import Answer, CloseConnectionError, Deferred
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tailrace.records.layout import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_SIZE,
)
from tailrace.replication.flushes import Flushed
from tailrace.replication.partition import Partition, UnknownPartitionError
from tailrace.replication.validation import loop_share
from tailrace.replication.waiting import expire
from tailrace.runtime.slices import Slices
from tailrace.runtime.steps import run_eagerly
from tailrace.storage.log import LogAppendInfo
from tailrace.storage.verification import VerificationGuard
from tailrace.values import dataclass, replace

if TYPE_CHECKING:
    from tailrace.handlers.produce_transactions import Admission

# The codec came with this version (KIP-110); Kafka refuses it below, too.
ZSTD_SINCE = 7
# The first version whose answers name other leaders (KIP-951).
LEADERS_SINCE = 10
# The first version that names topics by their ids alone (KIP-516).
IDS_SINCE = 13
SHORT_COUNT_MAX = 32
"""Most batches of a request that is answered in one callback: each takes some 50 us."""
# A set of ints: the acks of a request are any int16, and `Acks(5)` would raise.
KNOWN_ACKS = frozenset(Acks)


@dataclass(slots=True)
class _PartitionResult:
    """The response for one partition, with what it waits for."""

    answer: PartitionProduceResponse
    flushed: Flushed | None = None
    """The flush to wait for, or None."""
    acknowledged: asyncio.Future[None] | None = None
    """The replicas in sync to wait for, or None."""

    @property
    def waiting(self) -> list[asyncio.Future[Any]]:
        return [each for each in (self.flushed, self.acknowledged) if each is not None]

    def settle(self) -> None:
        """Answer the error where what it has waited for has failed."""
        if self.flushed is not None and (error := self.flushed.result()) is not None:
            refusal = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            self.answer = _refused(self.answer.index, refusal)
        elif self.acknowledged is not None:
            try:
                self.acknowledged.result()
            except TailraceError as failure:
                refusal = Refusal(error_code(failure), str(failure))
                self.answer = _refused(self.answer.index, refusal)


class _TopicResult(NamedTuple):
    """The responses for a topic, without the records of the request."""

    name: str
    topic_id: UUID
    partitions: list[_PartitionResult]

    def response(self) -> TopicProduceResponse:
        return TopicProduceResponse(
            name=self.name,
            topic_id=self.topic_id,
            partition_responses=tuple([each.answer for each in self.partitions]),
        )


def handle_produce(
    services: Services, header: RequestHeader, request: ProduceRequest
) -> Answer | Awaitable[Answer] | Deferred[Answer]:
    """Append every partition's batch.

    Deferred where all were appended and have to be acknowledged: the next request may append.

    Raises (also from the awaitable):
        CloseConnectionError: acks 0 wants no answer and there is an error to tell.
    """
    response = _append_all(services, header, request)
    if isinstance(response, ProduceResponse):
        return _unless_unwanted(request.acks, response)
    if isinstance(response, Deferred):
        # Without the request, whose records are in memory that the next one gets.
        return response.then(partial(_unless_unwanted, request.acks))
    return _later_unless_unwanted(request.acks, response)


async def _later_unless_unwanted(acks: int, response: Awaitable[ProduceResponse]) -> Answer:
    return _unless_unwanted(acks, await response)


def _unless_unwanted(acks: int, response: ProduceResponse) -> Answer:
    if acks != Acks.NONE:
        return response
    # One failed partition is enough to close the connection, as in Kafka, though the batches of the
    # others are in the log.
    code = _first_error(response)
    if code != ErrorCode.NONE:
        # There is no response to carry the code. A closed connection is all that a producer with
        # acks 0 can see, and it makes it fetch new metadata, as with Kafka.
        raise CloseConnectionError(f"a produce with acks 0 failed: {code.name}")
    return None


def _append_all(
    services: Services, header: RequestHeader, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse] | Deferred[ProduceResponse]:
    refusal = _refusal_of_all(request)
    is_for_all = request.acks == Acks.ALL
    # One transactional batch makes the whole request wait for the coordinator: its order is kept.
    if refusal is None and has_transactional(request):
        return _produce_in_transaction(services, header, request, is_for_all=is_for_all)
    # A held partition moves between directories or has no log yet, and appends to it have to wait.
    if services.replicas.held or not _is_short(services, request):
        # A task is made only if a batch has to wait, or the request takes longer than a slice.
        return run_eagerly(
            _produce_in_slices(services, header, request, refusal=refusal, is_for_all=is_for_all)
        )
    outcomes = [
        _TopicResult(
            data.name,
            data.topic_id,
            _produce(services, header, data, refusal=refusal, is_for_all=is_for_all),
        )
        for data in request.topic_data
    ]
    # Without anything to wait for, the response is made in this callback: no task, no future.
    if not any(each.waiting for topic in outcomes for each in topic.partitions):
        return _response(services, header, [each.response() for each in outcomes])
    return _respond_when_settled(services, header, outcomes, timeout_ms=request.timeout_ms)


def _respond_when_settled(
    services: Services, header: RequestHeader, outcomes: list[_TopicResult], *, timeout_ms: int
) -> Deferred[ProduceResponse]:
    """The response when the batches, all of which were appended or refused, are acknowledged."""

    def respond() -> ProduceResponse:
        for topic in outcomes:
            for each in topic.partitions:
                each.settle()
        return _response(services, header, [topic.response() for topic in outcomes])

    waiting = [each for topic in outcomes for part in topic.partitions for each in part.waiting]
    return Deferred(
        waiting,
        respond,
        # A flush is not cancelled: other requests wait for it too.
        end=_expire(outcomes, timeout_ms),
        expected=_response(services, header, [each.response() for each in outcomes]),
    )


def _is_short(services: Services, request: ProduceRequest) -> bool:
    """Whether all batches together can be appended on the event loop within its budget."""
    if len(request.topic_data) > SHORT_COUNT_MAX:
        return False
    count, share = 0, 0.0
    for data in request.topic_data:
        topic = services.find_topic(data.name, data.topic_id)
        for each in data.partition_data:
            count += 1
            share += _loop_share(services, topic, each)
            if count > SHORT_COUNT_MAX or share > 1:
                return False
    return True


def _loop_share(services: Services, topic: Topic | None, data: PartitionProduceData) -> float:
    if not data.records:
        return 0.0
    name = TopicPartition("" if topic is None else topic.name, data.index)
    partition = services.replicas.get(name)
    return loop_share(data.records, None if partition is None else partition.log.config)


async def _produce_in_transaction(
    services: Services, header: RequestHeader, request: ProduceRequest, *, is_for_all: bool
) -> ProduceResponse:
    """Append the batches that the coordinator of the transaction admits."""
    # Producers without transactions need none of these modules.
    from tailrace.handlers.produce_transactions import admit

    admission = await admit(services, request, header.api_version)
    refusal = admission if isinstance(admission, Refusal) else None
    return await _produce_in_slices(
        services,
        header,
        request,
        refusal=refusal,
        is_for_all=is_for_all,
        admission=None if isinstance(admission, Refusal) else admission,
    )


async def _produce_in_slices(
    services: Services,
    header: RequestHeader,
    request: ProduceRequest,
    *,
    refusal: Refusal | None,
    is_for_all: bool,
    admission: "Admission | None" = None,
) -> ProduceResponse:
    """Append the batches in order, with other callbacks in between."""
    slices = Slices()
    outcomes: list[_TopicResult] = []
    for data in request.topic_data:
        outcomes.append(_TopicResult(data.name, data.topic_id, []))
        for each in data.partition_data:
            topic = await _find_free(services, data, each.index)
            refused, guard = refusal or _refusal_of_topic(topic, header), None
            if topic is not None and admission is not None:
                name = TopicPartition(topic.name, each.index)
                refused = refused or admission.refusals.get(name)
                guard = admission.guards.get(name)
            if refused is not None:
                outcome = _PartitionResult(_refused(each.index, refused))
            elif _loop_share(services, topic, each) > 1:
                assert topic is not None
                outcome = await _append_long(
                    services,
                    header,
                    topic,
                    named=data,
                    data=each,
                    is_for_all=is_for_all,
                    guard=guard,
                )
            else:
                assert topic is not None
                outcome = _append(
                    services, header, topic, data=each, is_for_all=is_for_all, guard=guard
                )
            outcomes[-1].partitions.append(outcome)
            await slices.turn()
        await slices.turn()
    return await _respond_in_slices(services, header, outcomes, timeout_ms=request.timeout_ms)


async def _find_free(services: Services, data: TopicProduceData, index: int) -> Topic | None:
    """Wait until the partition takes appends, then look up its topic.

    The topic may have been deleted meanwhile, and created again.
    """
    while True:
        topic = services.find_topic(data.name, data.topic_id)
        name = TopicPartition("" if topic is None else topic.name, index)
        if name not in services.replicas.held:
            return topic
        await services.replicas.wait_until_free(name)


async def _respond_in_slices(
    services: Services, header: RequestHeader, outcomes: list[_TopicResult], *, timeout_ms: int
) -> ProduceResponse:
    """The same for a request of many batches."""
    slices = Slices()
    responses = []
    end = _expire(outcomes, timeout_ms)
    try:
        for topic in outcomes:
            for each in topic.partitions:
                if each.waiting:
                    await asyncio.wait(each.waiting)
                each.settle()
                await slices.turn()
            responses.append(topic.response())
            await slices.turn()
    finally:
        end()
    return _response(services, header, responses)


def _expire(outcomes: list[_TopicResult], timeout_ms: int) -> Callable[[], None]:
    acknowledged = [each.acknowledged for topic in outcomes for each in topic.partitions]
    return expire([each for each in acknowledged if each is not None], timeout_ms=timeout_ms)


def refused_response(
    services: Services, header: RequestHeader, topic: TopicProduceData, *, error: TailraceError
) -> ProduceResponse:
    """The response where the only batch of a request was appended, and not acknowledged."""
    answer = _refused(topic.partition_data[0].index, Refusal(error_code(error), str(error)))
    result = _TopicResult(topic.name, topic.topic_id, [_PartitionResult(answer)])
    return _response(services, header, [result.response()])


def _response(
    services: Services, header: RequestHeader, topics: list[TopicProduceResponse]
) -> ProduceResponse:
    response = ProduceResponse(responses=tuple(topics))
    # A node that is its own controller leads every partition.
    if (
        services.controller is not None
        or header.api_version < LEADERS_SINCE
        or not _has_moved(response)
    ):
        return response
    return _with_leaders(services, response)


def _has_moved(response: ProduceResponse) -> bool:
    return any(
        each.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        for topic in response.responses
        for each in topic.partition_responses
    )


def _with_leaders(services: Services, response: ProduceResponse) -> ProduceResponse:
    """The response with the leaders of partitions that this broker does not lead."""
    cluster, listener, endpoints = services.cluster, services.listener, {}
    topics = []
    for topic in response.responses:
        found = services.find_topic(topic.name, topic.topic_id)
        answers = []
        for each in topic.partition_responses:
            leader = None
            if found is not None and each.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader = cluster.leader_of(TopicPartition(found.name, each.index), listener)
            if leader is None:
                answers.append(each)
                continue
            current = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)
            answers.append(replace(each, current_leader=current))
            if leader.endpoint is not None:
                endpoints[leader.node_id] = NodeEndpoint(
                    node_id=leader.node_id,
                    host=leader.endpoint.host,
                    port=leader.endpoint.port,
                    rack=cluster.rack_of(leader.node_id, listener),
                )
        topics.append(replace(topic, partition_responses=tuple(answers)))
    return replace(response, responses=tuple(topics), node_endpoints=tuple(endpoints.values()))


def _first_error(response: ProduceResponse) -> ErrorCode:
    """The first error among the partitions, or NONE."""
    codes = (
        partition.error_code
        for topic in response.responses
        for partition in topic.partition_responses
    )
    return ErrorCode(next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE))


def _refusal_of_all(request: ProduceRequest) -> Refusal | None:
    if request.acks not in KNOWN_ACKS:
        # As in Kafka each partition is refused with this code, and nothing is appended.
        return Refusal(ErrorCode.INVALID_REQUIRED_ACKS)
    return None


def _produce(
    services: Services,
    header: RequestHeader,
    data: TopicProduceData,
    *,
    refusal: Refusal | None,
    is_for_all: bool,
) -> list[_PartitionResult]:
    topic = services.find_topic(data.name, data.topic_id)
    refusal = refusal or _refusal_of_topic(topic, header)
    if refusal is not None:
        return [_PartitionResult(_refused(each.index, refusal)) for each in data.partition_data]
    assert topic is not None
    return [
        _append(services, header, topic, data=each, is_for_all=is_for_all)
        for each in data.partition_data
    ]


def _refusal_of_topic(topic: Topic | None, header: RequestHeader) -> Refusal | None:
    if topic is None:
        has_ids = header.api_version >= IDS_SINCE
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    if topic.is_internal:
        # Kafka lets a client write to them whose id is `__admin_client`. Here nobody may.
        return Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic.name} is an internal topic, which only brokers write to",
        )
    return None


def _append(
    services: Services,
    header: RequestHeader,
    topic: Topic,
    *,
    data: PartitionProduceData,
    is_for_all: bool,
    guard: VerificationGuard | None = None,
) -> _PartitionResult:
    records = memoryview(data.records or b"")
    refusal = _refusal_of_batch(records, header.api_version)
    if refusal is not None:
        _count(services, topic.name, is_failed=True)
        return _PartitionResult(_refused(data.index, refusal))
    try:
        partition = services.replicas.find(TopicPartition(topic.name, data.index))
        if is_for_all:
            partition.check_replicas()
        appended = partition.append(records, now_ms=services.clock.now_ms(), guard=guard)
    except (TailraceError, OSError) as error:
        return _failed(services, TopicPartition(topic.name, data.index), error)
    return _appended(services, partition, appended, index=data.index, is_for_all=is_for_all)


async def _append_long(
    services: Services,
    header: RequestHeader,
    topic: Topic,
    *,
    named: TopicProduceData,
    data: PartitionProduceData,
    is_for_all: bool,
    guard: VerificationGuard | None = None,
) -> _PartitionResult:
    """Append a batch as `_append` does, after checking it where it blocks nobody."""
    records = memoryview(data.records or b"")
    refusal = _refusal_of_batch(records, header.api_version)
    if refusal is not None:
        _count(services, topic.name, is_failed=True)
        return _PartitionResult(_refused(data.index, refusal))
    name, clock = TopicPartition(topic.name, data.index), services.clock
    try:
        partition = services.replicas.find(name)
        planned = await services.validation.plan(partition.log, records, now_ms=clock.now_ms())
        # A move may complete while the check runs, and it takes no appends meanwhile.
        await services.replicas.wait_until_free(name)
        # The check has run on a worker thread: meanwhile the topic may have been deleted.
        refusal = _refusal_of_topic(services.find_topic(named.name, named.topic_id), header)
        if refusal is not None:
            return _PartitionResult(_refused(data.index, refusal))
        if services.replicas.find(name) is not partition:
            raise UnknownPartitionError(f"{name} was deleted and created again meanwhile")
        if is_for_all:
            partition.check_replicas()
        # The clock is read again: LogAppendTime is the time of the append, not that of the check.
        appended = partition.append_planned(planned, now_ms=clock.now_ms(), guard=guard)
    except (TailraceError, OSError) as error:
        return _failed(services, name, error)
    return _appended(services, partition, appended, index=data.index, is_for_all=is_for_all)


_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Refusals in which Kafka leaves the log start out (ReplicaManager.appendRecordsToLeader)."""


def _failed(
    services: Services, name: TopicPartition, error: TailraceError | OSError
) -> _PartitionResult:
    record_errors: tuple[RecordError, ...] = ()
    if isinstance(error, InvalidRecordError | InvalidTimestampError):
        # KIP-467: Java's producer fails these records with their own messages, and says of the
        # others in the batch that they failed because of these.
        record_errors = error.record_errors
    refusal = Refusal(error_code(error), str(error), record_errors)
    partition = services.replicas.get(name)
    log_start = -1
    is_unusual = refusal.code not in _WITHOUT_LOG_START
    # As in Kafka these alone are failed requests; the others are part of a day.
    _count(services, name.topic, is_failed=is_unusual)
    # A producer whose sequence is refused can tell by it whether retention has taken the records
    # that it has sent before.
    if partition is not None and is_unusual:
        log_start = partition.log.start_offset
    return _PartitionResult(_refused(name.partition, refusal, log_start=log_start))


def _count(services: Services, topic: str, *, is_failed: bool) -> None:
    """Count a batch that was not appended."""
    traffic = services.replicas.traffic.find(topic)
    if traffic is not None:
        traffic.produce_requests += 1
        traffic.failed_produce_requests += is_failed


def _appended(
    services: Services,
    partition: Partition,
    appended: LogAppendInfo,
    *,
    index: int,
    is_for_all: bool,
) -> _PartitionResult:
    answer = PartitionProduceResponse(
        index=index,
        error_code=ErrorCode.NONE,
        base_offset=appended.base_offset,
        # -1 under CreateTime: the producer then takes the timestamps of its own records.
        log_append_time_ms=appended.log_append_time,
        # By this (since v5) a producer tells records that were deleted from lost ones, and raises
        # no needless OutOfOrderSequenceException.
        log_start_offset=appended.log_start_offset,
    )
    # Consumers may see the records while their producer waits for the flush.
    flushed = services.flushes.ask_before_answer(
        partition.log, is_durable=is_for_all and services.is_durable
    )
    if not is_for_all or partition.leadership is None:
        return _PartitionResult(answer, flushed)
    # Also of a batch that was appended before: its first answer may have been an error.
    return _PartitionResult(
        answer, flushed, partition.acknowledged(Offset(appended.last_offset + 1))
    )


def _refusal_of_batch(records: memoryview, version: int) -> Refusal | None:
    """Return the reason to refuse a batch in this version of the request, or None."""
    if len(records) < HEADER_SIZE:
        return None
    # The low byte of the attributes; a batch that is shorter than its header is refused by
    # `append`.
    codec = records[ATTRIBUTES_POSITION + 1] & CODEC_MASK
    if version < ZSTD_SINCE and codec == Codec.ZSTD:
        return Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return None


def _refused(index: int, refusal: Refusal, *, log_start: int = -1) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=refusal.code,
        base_offset=-1,
        log_start_offset=log_start,
        record_errors=tuple(
            BatchIndexAndErrorMessage(
                batch_index=each.index, batch_index_error_message=each.message
            )
            for each in refusal.record_errors
        ),
        # Kafka leaves the message empty for most codes; a user of a command line sees this one.
        error_message=refusal.message or refusal.code.message,
    )
