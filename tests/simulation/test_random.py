"""Whatever goes wrong when, each record is written once and in order, or has failed."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.errors import TransactionOutcomeUnknownError
from tailrace.client.producer.identity.sequences import IDLE_S
from tailrace.errors import RetriableError, TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.script import FaultKind
from tests.examples import examples
from tests.simulation.stage import Stage, check_empty, play

PARTITIONS = 3
NODES = 3

CODES = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_RECORD,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""Answers to Produce, retriable or not, that a broker gives before it appends or after it."""

BEFORE_OR_AFTER = {
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}

APIS = (ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID)
BREAKS = (
    FaultKind.LOSE,
    FaultKind.LOSE_REPLY,
    FaultKind.CUT,
    FaultKind.CUT_AFTER,
    FaultKind.TWICE,
    FaultKind.SWAP,
    FaultKind.GARBAGE,
    FaultKind.DELAY,
)

SEND = st.tuples(
    st.just("send"),
    st.integers(0, PARTITIONS - 1) | st.none(),
    st.integers(1, 6),
    st.sampled_from([0, 90, 300]),
)
FAULT = st.one_of(
    st.tuples(
        st.just("break"),
        st.sampled_from(APIS),
        st.sampled_from(BREAKS),
        st.integers(0, 3),
        st.sampled_from([0.01, 0.5, 1.5, 4.0]),
    ),
    st.tuples(
        st.just("error"),
        st.sampled_from(CODES),
        st.booleans(),
        st.integers(0, 4),
        st.integers(1, 3),
        st.integers(0, PARTITIONS - 1) | st.none(),
    ),
    st.tuples(
        st.just("move"), st.integers(0, PARTITIONS - 1), st.sampled_from([1, 2, 3, 1, 2, 3, -1])
    ),
    st.tuples(st.just("kill"), st.integers(1, NODES)),
    st.tuples(st.just("revive"), st.integers(1, NODES)),
    st.tuples(st.just("throttle"), st.sampled_from([0, 100, 1000])),
    st.tuples(st.just("hints"), st.booleans()),
)
FORGET = st.tuples(st.just("forget"))
PASS = st.tuples(st.just("pass"), st.sampled_from([0.0, 0.001, 0.05, 0.3, 1.0, 3.0]))
FLUSH = st.tuples(st.just("flush"))
STEPS = st.lists(st.one_of(SEND, SEND, SEND, FAULT, FAULT, PASS, PASS, FLUSH, FORGET), max_size=40)

SETTINGS = st.fixed_dictionaries(
    {
        "batch_size": st.sampled_from([100, 400, 16384]),
        "linger_ms": st.sampled_from([0, 5, 100]),
        "max_in_flight_requests_per_connection": st.integers(1, 5),
        "compression_type": st.sampled_from(["none", "lz4"]),
        "buffer_memory": st.sampled_from([20_000, 1 << 20]),
    }
)
TIMES: dict[str, Any] = {
    "request_timeout_ms": 2000,
    "delivery_timeout_ms": 8000,
    "max_block_ms": 8000,
}

Step = tuple[Any, ...]


def disturb(stage: Stage, step: Step) -> None:
    """Let something go wrong."""
    cluster = stage.cluster
    match step:
        case ("break", api, how, skip, delay_s):
            cluster.script.add(
                api, how, skip=skip, delay_s=delay_s if how is FaultKind.DELAY else 0.0
            )
        case ("error", code, is_after, skip, times, partition):
            how = FaultKind.ERROR_AFTER if is_after and code in BEFORE_OR_AFTER else FaultKind.ERROR
            place = None if partition is None else TopicPartition("t", partition)
            cluster.script.add(
                ApiKey.PRODUCE, how, error=code, skip=skip, times=times, partition=place
            )
        case ("move", partition, node_id):
            cluster.move(TopicPartition("t", partition), node_id)
        case ("kill", node_id):
            cluster.kill(node_id)
        case ("revive", node_id):
            cluster.revive(node_id)
        case ("throttle", ms):
            cluster.throttle_ms = ms
        case ("hints", gives_hints):
            cluster.gives_hints = gives_hints
        case _:
            raise AssertionError(f"nobody knows the step {step}")


async def act(stage: Stage, producer: AsyncProducer, step: Step) -> None:
    """Take one step."""
    match step:
        case ("send", partition, count, size):
            stage.send(producer, count, partition=partition, size=size)
        case ("pass", seconds):
            await stage.pass_time(seconds)
        case ("flush",):
            await producer.flush()
        case ("forget",):
            # A batch that is under way would be written again, as to a Kafka that has forgotten.
            if not producer.held():
                await stage.pass_time(IDLE_S)
                for led in stage.cluster.partitions.values():
                    led.log.forget_producers()
        case _:
            disturb(stage, step)
    metrics = producer.metrics()
    assert 0 <= metrics["buffer-available-bytes"] <= metrics["buffer-total-bytes"]


async def finish(stage: Stage, producer: AsyncProducer) -> None:
    """Check that every record ends when all times are over, and that new records go through."""
    limit_s = (TIMES["delivery_timeout_ms"] + TIMES["max_block_ms"]) / 1000 + 1
    began = stage.now
    await producer.flush()
    assert stage.now - began <= limit_s
    stage.cluster.heal()
    await stage.pass_time(10)
    for number in range(PARTITIONS):
        (receipt,) = stage.send(producer, partition=number)
        await receipt
    check_empty(producer)


@settings(max_examples=examples(50))
@given(STEPS, SETTINGS)
@example(
    # 0.3 + 0.05 + 0.05 is less than the 0.4 at which the lingering ends.
    steps=[
        ("break", ApiKey.PRODUCE, FaultKind.LOSE, 0, 0.01),
        ("pass", 0.3),
        ("send", None, 1, 0),
        ("pass", 0.05),
        ("pass", 0.05),
    ],
    chosen={
        "batch_size": 100,
        "linger_ms": 100,
        "max_in_flight_requests_per_connection": 1,
        "compression_type": "none",
        "buffer_memory": 20000,
    },
)
def test_each_record_is_once_in_the_log_or_has_failed(
    steps: list[Step], chosen: dict[str, Any]
) -> None:
    """Acknowledged records of an idempotent producer are in the log once and in order."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**TIMES, **chosen) as producer:
            for step in steps:
                await act(stage, producer, step)
            await finish(stage, producer)
        stage.check_log()

    play(main, nodes=NODES, partitions=PARTITIONS)


@settings(max_examples=examples(50))
@given(STEPS, SETTINGS)
def test_without_idempotence_nothing_acknowledged_is_lost(
    steps: list[Step], chosen: dict[str, Any]
) -> None:
    """A producer without idempotence may repeat records, and loses none that is acknowledged."""

    async def main(stage: Stage) -> None:
        async with stage.producer(enable_idempotence=False, **TIMES, **chosen) as producer:
            for step in steps:
                await act(stage, producer, step)
            await finish(stage, producer)
        stage.check_log(may_repeat=True, may_reorder=True)

    play(main, nodes=NODES, partitions=PARTITIONS)


@settings(max_examples=examples(50))
@given(STEPS, SETTINGS, st.sampled_from([None, 0, 0.5, 3]))
def test_a_close_at_any_time_ends_every_receipt(
    steps: list[Step], chosen: dict[str, Any], timeout: float | None
) -> None:
    """After any close every receipt has its outcome, and the log has no duplicates."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(**TIMES, **chosen)
        for step in steps:
            await act(stage, producer, step)
        began = stage.now
        await producer.close(timeout)
        assert stage.now - began <= (17 if timeout is None else timeout + 0.01)
        stage.check_log()
        check_empty(producer)

    play(main, nodes=NODES, partitions=PARTITIONS)


TRANSACTION_APIS = (
    ApiKey.PRODUCE,
    ApiKey.METADATA,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.FIND_COORDINATOR,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.END_TXN,
)
TRANSACTION_FAULT = st.one_of(
    FAULT,
    st.tuples(
        st.just("break"),
        st.sampled_from(TRANSACTION_APIS),
        st.sampled_from(BREAKS),
        st.integers(0, 2),
        st.sampled_from([0.01, 0.5, 1.5]),
    ),
)
TRANSACTION = st.tuples(
    st.lists(st.one_of(SEND, SEND, TRANSACTION_FAULT, PASS), max_size=8),
    st.booleans(),
)


class ChangedMindError(Exception):
    """A transaction's own reason to abort."""


async def transact(
    stage: Stage, producer: AsyncProducer, steps: list[Step], *, is_abort: bool
) -> bool | None:
    """Whether a transaction was committed; None if nobody can know.

    An error that may be retried says that it was not.
    """
    try:
        async with producer.transaction():
            for step in steps:
                await act(stage, producer, step)
            if is_abort:
                raise ChangedMindError
    except (ChangedMindError, RetriableError):
        return False
    except TransactionOutcomeUnknownError:
        return await ask_again(stage, producer)
    except TailraceError:
        return None
    return True


async def ask_again(stage: Stage, producer: AsyncProducer) -> bool | None:
    """Ask for the outcome of a commit until a cluster that is well in the end tells it."""
    while True:
        try:
            await producer.finish_transaction()
        except TransactionOutcomeUnknownError as error:
            if error.is_final:
                return None
            stage.cluster.heal()
        except RetriableError:
            return False
        except TailraceError:
            return None
        else:
            return True


@settings(max_examples=examples(50))
@given(st.lists(TRANSACTION, max_size=3), SETTINGS, st.sampled_from([0, 2]), st.booleans())
def test_a_transaction_is_visible_whole_or_not_at_all(
    transactions: list[tuple[list[Step], bool]],
    chosen: dict[str, Any],
    level: int,
    changes: bool,  # noqa: FBT001
) -> None:
    """Records of a committed transaction are all visible, once; those of an aborted one never.

    With both levels of `transaction.version`, which may change between transactions.
    """

    async def main(stage: Stage) -> None:
        stage.cluster.set_transaction_version(level)
        committed: list[tuple[bool | None, list[bytes]]] = []
        producer = stage.producer(transactional_id="x", **TIMES, **chosen)
        for steps, is_abort in transactions:
            first = len(stage.sent)
            outcome = await transact(stage, producer, steps, is_abort=is_abort)
            committed.append((outcome, [each.value for each in stage.sent[first:]]))
            if changes:
                stage.cluster.set_transaction_version(2 - stage.cluster.transaction_version)
        stage.cluster.heal()
        await stage.pass_time(10)
        recovered = [
            await transact(stage, producer, [("send", 0, 1, 0)], is_abort=False) for _ in range(3)
        ]
        assert recovered[-1] is True
        await producer.close()
        check_empty(producer)
        async with stage.producer(transactional_id="x") as successor, successor.transaction():
            pass
        stage.check_log()
        visible = [
            record.value
            for led in stage.cluster.partitions.values()
            for record in led.log.visible()
        ]
        assert len(visible) == len(set(visible))
        for outcome, values in committed:
            seen = set(values) & set(visible)
            if outcome is True:
                assert seen == set(values)
            elif outcome is False:
                assert not seen
            else:
                assert seen in (set(), set(values))

    play(main, nodes=NODES, partitions=PARTITIONS)
