"""AddPartitionsToTxn and AddOffsetsToTxn: what begins a transaction, and what is in it."""

import pytest

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.add_partitions_to_txn import add_partitions_to_txn
from tailrace.coordinator.transactions.state import TransactionStatus
from tailrace.errors import RecordTooLargeError, RetriableError, StorageError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.unit.coordinator.transactions.stage import (
    PRODUCER,
    A,
    B,
    C,
    Stage,
    play,
    producer_at,
    stored,
)

IDLE = [
    TransactionStatus.EMPTY,
    TransactionStatus.COMPLETE_COMMIT,
    TransactionStatus.COMPLETE_ABORT,
]
PREPARED = [TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT]
OLD = producer_at(7, 2)
OTHER = producer_at(8, 3)


@pytest.mark.parametrize("status", IDLE)
def test_the_first_partition_begins_a_transaction(status: TransactionStatus) -> None:
    """It begins now, with these partitions alone, and is in the log."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(5)
        assert await stage.add(partitions=[A, B]) is ErrorCode.NONE
        state = stage.transaction()
        assert state.status is TransactionStatus.ONGOING
        assert state.partitions == {A, B}
        assert state.start_ms == state.updated_ms == stage.outside.clock.now_ms()
        assert (state.producer, state.timeout_ms) == (PRODUCER, 60_000)

    assert play(scenario, stored(status)).statuses() == [status, TransactionStatus.ONGOING]


def test_more_partitions_are_added_to_those_there_are() -> None:
    """The transaction has begun when its first one came."""

    async def scenario(stage: Stage) -> None:
        await stage.add(partitions=[A])
        start_ms = stage.transaction().start_ms
        await stage.outside.pass_time(5)
        assert await stage.add(partitions=[A, C]) is ErrorCode.NONE
        assert stage.transaction().partitions == {A, C}
        assert stage.transaction().start_ms == start_ms
        assert stage.transaction().updated_ms == start_ms + 5_000

    play(scenario, stored())


def test_partitions_that_are_in_the_transaction_write_nothing() -> None:
    """A repeated request costs no record."""

    async def scenario(stage: Stage) -> None:
        assert await stage.add(partitions=[A]) is ErrorCode.NONE
        assert await stage.add(partitions=[A, C]) is ErrorCode.NONE

    stage = play(scenario, stored(TransactionStatus.ONGOING, partitions=[A, C]))
    assert stage.statuses() == [TransactionStatus.ONGOING]


@pytest.mark.parametrize("producer", [PRODUCER, producer_at(1000, 0)])
@pytest.mark.parametrize("status", PREPARED)
def test_a_transaction_that_ends_takes_no_partitions(
    status: TransactionStatus, producer: TransactionalProducer
) -> None:
    """The client asks again, also with the producer id that it will have after this end."""

    async def scenario(stage: Stage) -> None:
        assert await stage.add(producer) is ErrorCode.CONCURRENT_TRANSACTIONS

    play(scenario, stored(status, next_producer_id=1000), are_markers_held=True)


@pytest.mark.parametrize(
    ("transactional_id", "producer", "error"),
    [
        ("t", OLD, ErrorCode.PRODUCER_FENCED),
        ("t", producer_at(7, 4), ErrorCode.PRODUCER_FENCED),
        ("t", OTHER, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("unknown", PRODUCER, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("", PRODUCER, ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("status", [TransactionStatus.EMPTY, TransactionStatus.ONGOING])
def test_partitions_of_another_producer_are_refused(
    status: TransactionStatus,
    transactional_id: str,
    producer: TransactionalProducer,
    error: ErrorCode,
) -> None:
    """By the id, then by the producer id, then by the epoch; nothing is written."""

    async def scenario(stage: Stage) -> None:
        assert await stage.add(producer, transactional_id=transactional_id) is error

    assert play(scenario, stored(status)).statuses() == [status]


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, ErrorCode.PRODUCER_FENCED),
        (3, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_producer_that_is_fenced_hears_it_as_its_version_knows_it(
    version: int, error: ErrorCode
) -> None:
    """Clients such as librdkafka send version 0, and rely on 47."""

    async def scenario(stage: Stage) -> None:
        assert await stage.add_by_version(version, OLD) == {A: error, C: error}
        assert await stage.add_by_version(version) == {A: ErrorCode.NONE, C: ErrorCode.NONE}
        assert stage.transaction().client_version == 0

    play(scenario, stored())


@pytest.mark.parametrize(
    "refusal", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_beside_a_partition_that_cannot_be_added_no_other_is_attempted(refusal: ErrorCode) -> None:
    """All partitions are added, or none."""

    async def scenario(stage: Stage) -> None:
        found = await stage.add_by_version(3, errors={C: refusal})
        assert found == {A: ErrorCode.OPERATION_NOT_ATTEMPTED, C: refusal}

    assert play(scenario, stored()).statuses() == [TransactionStatus.EMPTY]


def of_brokers(
    transactional_id: str, *, verify_only: bool, topic: str = A.topic
) -> AddPartitionsToTxnTransaction:
    """A transaction in a request of a broker, for partition 0 of a topic."""
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=PRODUCER.producer_id,
        producer_epoch=PRODUCER.producer_epoch,
        verify_only=verify_only,
        topics=(AddPartitionsToTxnTopic(name=topic, partitions=(0,)),),
    )


def test_a_broker_asks_for_many_transactions_at_once() -> None:
    """Each has its own result; those that are added count as transactions of KIP-890."""
    request = AddPartitionsToTxnRequest(
        transactions=(
            of_brokers("t", verify_only=False),
            of_brokers("u", verify_only=True),
            of_brokers("u", verify_only=True, topic=C.topic),
            of_brokers("unknown", verify_only=False),
            of_brokers("unknown", verify_only=True),
            of_brokers("", verify_only=True),
            of_brokers("t", verify_only=True, topic="gone"),
        )
    )

    async def scenario(stage: Stage) -> None:
        response = await add_partitions_to_txn(
            stage.coordinator,
            request,
            version=5,
            check=lambda partition: (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if partition.topic == "gone"
                else ErrorCode.NONE
            ),
        )
        found = [
            (result.transactional_id, topic.name, each.partition_error_code)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for each in topic.results_by_partition
        ]
        assert found == [
            ("t", "flights", ErrorCode.NONE),
            ("u", "flights", ErrorCode.NONE),
            ("u", "planes", ErrorCode.TRANSACTION_ABORTABLE),
            ("unknown", "flights", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            ("unknown", "flights", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            ("", "flights", ErrorCode.INVALID_REQUEST),
            ("t", "gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert stage.transaction("t").client_version == 2
        assert stage.transaction("u").partitions == {A}

    play(
        scenario,
        stored(),
        stored(TransactionStatus.ONGOING, transactional_id="u", partitions=[A]),
    )


@pytest.mark.parametrize(
    ("status", "producer", "error"),
    [
        (TransactionStatus.ONGOING, OLD, ErrorCode.PRODUCER_FENCED),
        (TransactionStatus.ONGOING, OTHER, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (TransactionStatus.PREPARE_COMMIT, PRODUCER, ErrorCode.CONCURRENT_TRANSACTIONS),
        (TransactionStatus.PREPARE_ABORT, PRODUCER, ErrorCode.CONCURRENT_TRANSACTIONS),
        (TransactionStatus.COMPLETE_COMMIT, PRODUCER, ErrorCode.TRANSACTION_ABORTABLE),
        (TransactionStatus.EMPTY, PRODUCER, ErrorCode.TRANSACTION_ABORTABLE),
        (TransactionStatus.ONGOING, PRODUCER, ErrorCode.NONE),
    ],
)
def test_a_write_is_verified_against_the_open_transaction(
    status: TransactionStatus, producer: TransactionalProducer, error: ErrorCode
) -> None:
    """It must be of the current producer, and not end meanwhile; nothing is written."""

    async def scenario(stage: Stage) -> None:
        found = await stage.verify(producer, [A])
        assert found == {A: error}

    stage = play(scenario, stored(status), are_markers_held=True)
    assert stage.statuses() == [status]


@pytest.mark.parametrize(
    ("version", "error"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)],
)
def test_offsets_of_a_group_are_a_partition_like_any_other(version: int, error: ErrorCode) -> None:
    """AddOffsetsToTxn adds the group's partition, which then gets a marker."""
    offsets = TopicPartition("__consumer_offsets", 42)

    async def scenario(stage: Stage) -> None:
        for epoch, expected in ((3, ErrorCode.NONE), (2, error)):
            request = AddOffsetsToTxnRequest(
                transactional_id="t", producer_id=7, producer_epoch=epoch, group_id="g1"
            )
            found = await stage.coordinator.add_offsets(request, version, partition=offsets)
            assert found.error_code == expected
        assert (await stage.end(version=3)).error is ErrorCode.NONE
        await stage.outside.pass_time(0.001)
        assert stage.partitions.ends == [(offsets, 7, 3, True)]

    play(scenario, stored())


def test_partitions_that_could_not_be_written_are_not_in_the_transaction() -> None:
    """The client asks again."""

    async def scenario(stage: Stage) -> None:
        stage.log.refusal = OSError(28, "no space left on device")
        assert await stage.add() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        stage.log.refusal = None
        assert stage.transaction().status is TransactionStatus.EMPTY
        assert await stage.verify(PRODUCER, [A]) == {A: ErrorCode.TRANSACTION_ABORTABLE}
        assert await stage.add() is ErrorCode.NONE

    play(scenario, stored())


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (OSError(28, "no space left on device"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (RetriableError("fewer replicas are in sync"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (StorageError("the directory is offline"), ErrorCode.NOT_COORDINATOR),
        (
            RecordTooLargeError(2_000_000, limit=1_000_000, setting="max.message.bytes"),
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
    ],
)
def test_a_client_is_told_what_to_do_when_nothing_could_be_written(
    refusal: Exception, error: ErrorCode
) -> None:
    """Ask again, ask elsewhere, or give up; the transaction is as it was, and can be aborted."""

    async def scenario(stage: Stage) -> None:
        stage.log.refusal = refusal
        assert await stage.add(partitions=[B]) is error
        stage.log.refusal = None
        assert stage.transaction().partitions == {A, C}
        assert (await stage.end(is_commit=False)).error is ErrorCode.NONE

    play(scenario, stored(TransactionStatus.ONGOING))
