"""TxnOffsetCommit (28): a group's offsets, which count when their transaction is committed.

Versions: 0 to 5.
Behaviour: as OffsetCommit, with a producer. Before the first offsets of a transaction the
    transaction coordinator is asked, as for Produce. Until the marker the offsets are pending:
    OffsetFetch with `require_stable` answers UNSTABLE_OFFSET_COMMIT.
Version notes: below v2 a coordinator that loads is COORDINATOR_NOT_AVAILABLE; v3 has the member of
    the group, which is checked (KIP-447); below v4 a transaction without the group is
    INVALID_TXN_STATE, in v4 TRANSACTION_ABORTABLE; in v5 the group is added to it (KIP-890).
"""

from collections.abc import Callable
from functools import partial

from tailrace.coordinator.errors import CoordinatorNotAvailableError
from tailrace.coordinator.groups.commits import Commit, Committer, OffsetToCommit
from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.coordinator.transactions.state import CLASSIC, EPOCH_PER_TRANSACTION
from tailrace.errors import TailraceError
from tailrace.handlers.groups import unavailable_code
from tailrace.handlers.offset_commit import codes_of_commit
from tailrace.handlers.services import Services, error_code
from tailrace.handlers.transactions import ask_coordinator, error_of_verification
from tailrace.model import OFFSETS_TOPIC, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tailrace.storage.producers import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    ProducerSequenceError,
)

# KAFKA-7296: Java producers from 0.11 to before 2.0 could crash at the other code.
LOADING_SINCE = 2
# KIP-890: v4 knows TRANSACTION_ABORTABLE, v5 leaves AddOffsetsToTxn out.
ABORTABLE_SINCE = 4
ADDS_SINCE = 5

_REFUSALS = (InvalidProducerEpochError, InvalidTransactionStateError, ProducerSequenceError)
"""Errors of a log that refuses a producer: its epoch is old, or its transaction is over."""


async def handle_txn_offset_commit(
    services: Services, header: RequestHeader, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Commit what exists with the transaction, and answer for each partition."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def commit(found: list[OffsetToCommit]) -> list[ErrorCode]:
        answer = await _commit(services, request, found, version=header.api_version)
        return [answer] * len(found) if isinstance(answer, ErrorCode) else answer

    codes = await codes_of_commit(
        # No version of this request names topics by id, unlike OffsetCommit from v10 on.
        [
            (services.find_topic(topic.name, NO_UUID) or unknown, topic.partitions)
            for topic in request.topics
        ],
        commit,
    )
    return TxnOffsetCommitResponse(
        topics=tuple(
            [_answered(topic, code) for topic, code in zip(request.topics, codes, strict=True)]
        )
    )


async def _commit(
    services: Services,
    request: TxnOffsetCommitRequest,
    offsets: list[OffsetToCommit],
    *,
    version: int,
) -> list[ErrorCode] | ErrorCode:
    """A code for each offset, or one for all."""
    producer = TransactionalProducer(
        ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
    )
    commit = Commit(
        group_id=request.group_id,
        # KIP-447: a member that was replaced must not commit for its successor. Up to v2 there are
        # no such fields, and nothing is checked.
        committer=Committer(request.generation_id, request.member_id, request.group_instance_id),
        offsets=offsets,
        version=version,
        producer=producer,
    )
    # Unlike OffsetCommit, to which the empty id is a group, as in Kafka.
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    try:
        # The shard of the group and not that of the transactional id: its log gets the offsets, and
        # so the marker.
        shard = services.groups.shard_of(request.group_id)
        begin = partial(shard.begin_verification, producer, begins_at_zero=version >= ADDS_SINCE)
        # Before the coordinator is asked: an old epoch is known here even when the coordinator has
        # a new producer id (decision 61).
        guard = begin()
        if guard is not None and (
            # From v5 on the group is added whether verification is on or off: no AddOffsetsToTxn
            # has done it, and no marker would come.
            version >= ADDS_SINCE or services.transaction_settings.is_verifying
        ):

            def begin_again() -> None:
                nonlocal guard
                # A marker in between has made the first guard void.
                guard = begin()

            error = await _verified(
                services, request, producer, version=version, begin_again=begin_again
            )
            if error is not ErrorCode.NONE:
                return error
        return await shard.run(
            # In one turn, unlike OffsetCommit: the guard is good for one batch.
            lambda groups, now_ms: groups.commit(commit, now_ms)._replace(guard=guard)
        )
    except TailraceError as error:
        return _code_of(error, version)


async def _verified(
    services: Services,
    request: TxnOffsetCommitRequest,
    producer: TransactionalProducer,
    *,
    version: int,
    begin_again: Callable[[], None],
) -> ErrorCode:
    """Whether the group is in the transaction; in v5 it is added."""
    is_adding = version >= ADDS_SINCE
    # That of the shard, also where the topic has grown since: the marker goes there.
    number = services.groups.number_of(request.group_id)
    assert number is not None, "the shard of the group was found"
    partition = TopicPartition(OFFSETS_TOPIC, number)
    asked = AddPartitions(
        transactional_id=request.transactional_id,
        producer=producer,
        partitions=frozenset({partition}),
        # The version of the request tells which kind of transaction the client runs.
        client_version=EPOCH_PER_TRANSACTION if is_adding else CLASSIC,
    )
    errors = await ask_coordinator(services, asked, is_adding=is_adding, begin_again=begin_again)
    error = error_of_verification(errors[partition], knows_abortable=version >= ABORTABLE_SINCE)
    # Clients do not expect it here; as in Kafka they get one on which they ask again.
    if error is ErrorCode.NETWORK_EXCEPTION:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _for_version(error, version)


def _code_of(error: TailraceError, version: int) -> ErrorCode:
    if isinstance(error, CoordinatorNotAvailableError):
        # The log was there and has refused this producer. To call that unavailable would have the
        # client try it for ever.
        if isinstance(error.__cause__, _REFUSALS):
            return error_code(error.__cause__)
        return unavailable_code(error)
    return _for_version(error_code(error), version)


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _answered(
    topic: TxnOffsetCommitRequestTopic, codes: list[ErrorCode]
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=tuple(
            [
                TxnOffsetCommitResponsePartition(
                    partition_index=each.partition_index, error_code=code
                )
                for each, code in zip(topic.partitions, codes, strict=True)
            ]
        ),
    )
