"""Commits whose outcome nobody knows: what is said of them, and how to ask again."""
# ruff: noqa: PT012 - a transaction is a block of several statements

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import confluent_kafka
import pytest

from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.errors import (
    DeliveryTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
    TransactionTimeoutError,
)
from tailrace.client.producer.producer import Producer
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.cluster import ScriptedCluster
from tailrace.testing.real_cluster import real_cluster
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T0, Stage, play, transaction_version

SHORT = {"transactional_id": "x", "max_block_ms": 2000, "request_timeout_ms": 1000}
ALWAYS = 1 << 30
OPAQUE = confluent_kafka.Consumer({"group.id": "g"}).consumer_group_metadata()
"""Metadata of a consumer group that only librdkafka can read."""


@pytest.fixture(autouse=True, params=[0, 2], ids=["classic", "KIP-890"])
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every claim holds in clusters of both levels of `transaction.version`."""
    token = transaction_version.set(request.param)
    yield
    transaction_version.reset(token)


def visible(stage: Stage) -> list[bytes | None]:
    """Return the values that readers of committed records see."""
    return [each.value for each in stage.cluster.log().visible()]


async def commit(stage: Stage, producer: AsyncProducer) -> None:
    """A transaction of one record."""
    async with producer.transaction():
        stage.send(producer)


@pytest.mark.parametrize("how", [FaultKind.LOSE, FaultKind.LOSE_REPLY, FaultKind.CUT_AFTER])
def test_a_transaction_whose_commit_is_late_is_written_once(how: FaultKind) -> None:
    """The error is not retriable, and finish_transaction reports that the commit succeeded."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer:
            stage.cluster.script.add(ApiKey.END_TXN, how, times=ALWAYS)
            with pytest.raises(TransactionOutcomeUnknownError, match="finish_transaction") as found:
                await commit(stage, producer)
            assert not isinstance(found.value, RetriableError | TimeoutError)
            assert not found.value.is_final
            with pytest.raises(TransactionOutcomeUnknownError):
                await producer.finish_transaction()
            stage.cluster.script.heal()
            await producer.finish_transaction()
            assert visible(stage) == [b"0"]
            await commit(stage, producer)
        assert visible(stage) == [b"0", b"1"]

    play(main)


def test_a_new_transaction_does_not_pass_over_an_unknown_outcome() -> None:
    """The next transaction raises until finish_transaction is called, even after a success."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer:
            stage.cluster.script.add(ApiKey.END_TXN, FaultKind.DELAY, delay_s=2.5, times=1)
            stage.cluster.script.add(ApiKey.END_TXN, FaultKind.LOSE, times=2)
            with pytest.raises(TransactionOutcomeUnknownError):
                await commit(stage, producer)
            for _ in range(2):
                with pytest.raises(TransactionOutcomeUnknownError):
                    await commit(stage, producer)
                await stage.pass_time(60)
            assert visible(stage) == [b"0"]
            await producer.finish_transaction()
            await commit(stage, producer)
        assert visible(stage) == [b"0", b"1"]

    play(main)


def test_a_late_commit_that_was_refused_may_be_done_again() -> None:
    """The coordinator says for sure that it did not commit: an abort, and an error that retries."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer:
            stage.cluster.script.add(
                ApiKey.END_TXN,
                FaultKind.ERROR,
                error=ErrorCode.CONCURRENT_TRANSACTIONS,
                times=ALWAYS,
            )
            with pytest.raises(TransactionOutcomeUnknownError):
                await commit(stage, producer)
            stage.cluster.script.heal()
            stage.cluster.script.add(
                ApiKey.END_TXN, FaultKind.ERROR, error=ErrorCode.TRANSACTION_ABORTABLE
            )
            with pytest.raises(TransactionAbortableError):
                await producer.finish_transaction()
            await commit(stage, producer)
        assert visible(stage) == [b"1"]

    play(main)


PERHAPS_COMMITTED = (
    (FaultKind.LOSE_REPLY, ErrorCode.NONE),
    (FaultKind.ERROR, ErrorCode.NOT_COORDINATOR),
    (FaultKind.ERROR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (FaultKind.ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
)
"""Answers to a commit that the coordinator may have written to its log."""


@pytest.mark.parametrize(("how", "code"), PERHAPS_COMMITTED)
def test_fenced_after_a_commit_was_perhaps_done_is_not_called_uncommitted(
    how: FaultKind, code: ErrorCode
) -> None:
    """A successor that fences this producer completes a commit that is in the coordinator's log."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(**SHORT)
        stage.cluster.script.add(ApiKey.END_TXN, how, error=code)
        stage.cluster.script.add(ApiKey.END_TXN, FaultKind.ERROR, error=ErrorCode.PRODUCER_FENCED)
        with pytest.raises(TransactionOutcomeUnknownError) as found:
            await commit(stage, producer)
        assert found.value.is_final
        assert isinstance(found.value.__cause__, ProducerFencedError)
        with pytest.raises(TransactionStateError, match="no commit"):
            await producer.finish_transaction()
        await producer.close()

    play(main)


@pytest.mark.parametrize(("how", "code"), PERHAPS_COMMITTED)
def test_closed_after_a_commit_was_perhaps_done_is_not_called_uncommitted(
    how: FaultKind, code: ErrorCode
) -> None:
    """The close comes before the commit is sent again, and the first answer left it open."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(**SHORT, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
        await commit(stage, producer)
        stage.cluster.script.add(ApiKey.END_TXN, how, error=code)
        work = asyncio.ensure_future(commit(stage, producer))
        await stage.pass_time(1.5)
        await producer.close(0)
        with pytest.raises(TransactionOutcomeUnknownError) as found:
            await work
        assert found.value.is_final

    play(main)


def test_fenced_before_the_commit_was_sent_is_told_as_such() -> None:
    """A commit that the coordinator refuses at once was not done, and needs no look at the log."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(**SHORT)
        stage.cluster.script.add(ApiKey.END_TXN, FaultKind.ERROR, error=ErrorCode.PRODUCER_FENCED)
        with pytest.raises(ProducerFencedError):
            await commit(stage, producer)
        await producer.close()

    play(main)


def test_a_commit_that_is_cancelled_has_an_unknown_outcome() -> None:
    """A timeout around the block cuts the wait for the commit, not the commit."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer:
            stage.cluster.script.add(ApiKey.END_TXN, FaultKind.DELAY, delay_s=0.5)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await commit(stage, producer)
            with pytest.raises(TransactionOutcomeUnknownError, match="previous transaction"):
                await commit(stage, producer)
            await producer.finish_transaction()
        assert visible(stage) == [b"0"]

    play(main)


def test_after_a_close_the_outcome_is_told_if_it_came() -> None:
    """After a close, a commit answered meanwhile has its outcome; any other error is final."""

    async def main(stage: Stage) -> None:
        for end, ends in ((FaultKind.DELAY, True), (FaultKind.LOSE, False)):
            producer = stage.producer(**SHORT)
            stage.cluster.script.add(ApiKey.END_TXN, end, delay_s=0.9, times=ALWAYS)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await commit(stage, producer)
            await producer.close(1)
            if ends:
                await producer.finish_transaction()
            else:
                with pytest.raises(TransactionOutcomeUnknownError) as found:
                    await producer.finish_transaction()
                assert found.value.is_final
            stage.cluster.script.heal()

    play(main)


def test_an_abort_that_is_late_is_waited_for_and_its_work_is_done_again() -> None:
    """An aborted transaction has committed nothing, so the program may retry its work."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer:
            stage.cluster.script.add(ApiKey.END_TXN, FaultKind.LOSE_REPLY, times=ALWAYS)
            with pytest.raises(TransactionTimeoutError):
                async with producer.transaction():
                    await stage.send(producer)[0]
                    raise LookupError
            with pytest.raises(TransactionStateError, match="no commit"):
                await producer.finish_transaction()
            stage.cluster.script.heal()
            await commit(stage, producer)
        assert visible(stage) == [b"1"]

    play(main)


def test_asking_in_an_open_transaction_changes_nothing() -> None:
    """finish_transaction without an unknown outcome is refused, and the transaction goes on."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer:
            async with producer.transaction():
                stage.send(producer)
                with pytest.raises(TransactionStateError):
                    await producer.finish_transaction()
            assert visible(stage) == [b"0"]

    play(main)


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    """A cluster on real sockets, with a topic `t`."""
    with real_cluster() as found:
        found.create_topic("t")
        yield found


def test_a_late_commit_of_threads_is_written_once(cluster: ScriptedCluster) -> None:
    """A Producer says the same as an AsyncProducer, and its next transaction does not go on."""

    def write() -> None:
        with producer.transaction():
            producer.send("t", b"once", partition=0)

    with Producer(
        bootstrap_servers=cluster.bootstrap,
        transactional_id="x",
        max_block_ms=500,
        request_timeout_ms=100,
        reconnect_backoff_max_ms=50,
        retry_backoff_ms=50,
    ) as producer:
        with producer.transaction():
            producer.send("t", b"first", partition=0)
        cluster.script.add(ApiKey.END_TXN, FaultKind.LOSE_REPLY, times=ALWAYS)
        with pytest.raises(TransactionOutcomeUnknownError):
            write()
        with pytest.raises(TransactionOutcomeUnknownError):
            write()
        with pytest.raises(TransactionOutcomeUnknownError):
            producer.finish_transaction()
        cluster.script.heal()
        is_known = False
        while not is_known:
            with suppress(TransactionOutcomeUnknownError):
                producer.finish_transaction()
                is_known = True
        with pytest.raises(TransactionStateError):
            producer.finish_transaction()
    assert [each.value for each in cluster.log().visible()] == [b"first", b"once"]


PLACE = TopicPartition("in", 0)
WRONG: dict[str, tuple[Any, Any]] = {
    "group is a bytes; .* confluent-kafka gives cannot be read": ({PLACE: 1}, OPAQUE),
    "group is an int": ({PLACE: 1}, 5),
    "the id of group is a bytes": ({PLACE: 1}, ConsumerGroupMetadata(cast("Any", b"g"))),
    "the generation of group is a str": ({PLACE: 1}, ConsumerGroupMetadata("g", cast("Any", "1"))),
    "the id of group is a str that UTF-8": ({PLACE: 1}, "\ud800"),
    "the member id of group has 40000 bytes": (
        {PLACE: 1},
        ConsumerGroupMetadata("g", member_id="m" * 40_000),
    ),
    "the offset of in-0 is a float": ({PLACE: 1.0}, "g"),
    "the offset of in-0 is a bool": ({PLACE: True}, "g"),
    "the offset of in-0 is a NoneType": ({PLACE: None}, "g"),
    "the offset of in-0 is -1": ({PLACE: -1}, "g"),
    "the offset of in-0 is 9223372036854775808": ({PLACE: 1 << 63}, "g"),
    "the leader epoch in .* is a str": ({PLACE: OffsetAndMetadata(1, cast("Any", "2"))}, "g"),
    "the metadata in .* is a dict": ({PLACE: OffsetAndMetadata(1, 2, cast("Any", {}))}, "g"),
    "the partition of an offset is a str": ({("in", "0"): 1}, "g"),
    "the topic of an offset is an int": ({(1, 0): 1}, "g"),
    "a key of offsets is a str": ({"in": 1}, "g"),
    "offsets is a list": ([(PLACE, 1)], "g"),
}
"""Offsets and a group, by the beginning of the error."""


@pytest.mark.parametrize("words", WRONG)
def test_offsets_of_a_wrong_type_harm_nothing(words: str) -> None:
    """The call is refused in one sentence, and its transaction goes on and is committed."""
    offsets, group = WRONG[words]

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer:
            async with producer.transaction():
                stage.send(producer)
                with pytest.raises((TypeError, ValueError), match=f"^{words}"):
                    await producer.send_offsets_to_transaction(offsets, group)
                await producer.send_offsets_to_transaction({PLACE: 7}, "g")
            assert visible(stage) == [b"0"]
            assert stage.cluster.coordinator.offsets == {("g", PLACE): 7}

    play(main)


def test_no_offsets_are_no_requests() -> None:
    """An empty mapping of offsets sends no request to the coordinators, as in Kafka's producer."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer, producer.transaction():
            await producer.send_offsets_to_transaction({}, "g")
        assert stage.cluster.count(ApiKey.ADD_OFFSETS_TO_TXN) == 0
        assert stage.cluster.count(ApiKey.TXN_OFFSET_COMMIT) == 0

    play(main)


def test_no_offsets_of_threads_are_no_requests(cluster: ScriptedCluster) -> None:
    """A Producer of threads sends no request for no offsets either."""
    with (
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id="x") as producer,
        producer.transaction(),
    ):
        producer.send_offsets_to_transaction({}, "g")
    assert cluster.count(ApiKey.ADD_OFFSETS_TO_TXN) == 0


async def fail_before_the_end_is_sent(stage: Stage, producer: AsyncProducer) -> None:
    """A transaction whose commit waits for a record that is never written."""
    with pytest.raises(TransactionOutcomeUnknownError):
        async with producer.transaction():
            await stage.send(producer, partition=1)[0]
            await stage.send(producer)[0]
            stage.cluster.move(T0, -1)
            stage.send(producer)
    assert stage.cluster.count(ApiKey.END_TXN) == 0


@pytest.mark.parametrize("is_expired", [True, False])
def test_a_close_aborts_a_transaction_whose_commit_has_failed(*, is_expired: bool) -> None:
    """The record expires before the close or in it; its failure can still be asked for."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(**SHORT, delivery_timeout_ms=3000)
        await fail_before_the_end_is_sent(stage, producer)
        if is_expired:
            await stage.pass_time(5)
        await producer.close()
        assert stage.cluster.coordinator.ends == [False]
        with pytest.raises(DeliveryTimeoutError):
            await producer.finish_transaction()

    play(main)


def test_a_close_of_threads_aborts_a_transaction_whose_commit_has_failed(
    cluster: ScriptedCluster,
) -> None:
    """A Producer of threads aborts such a transaction at its close too."""
    producer = Producer(
        bootstrap_servers=cluster.bootstrap,
        transactional_id="x",
        linger_ms=0,
        max_block_ms=500,
        request_timeout_ms=100,
        delivery_timeout_ms=1000,
    )
    with pytest.raises(TransactionOutcomeUnknownError), producer.transaction():
        producer.send("t", b"written", partition=0).result(30)
        cluster.move(T0, -1)
        producer.send("t", b"stuck", partition=0)
    producer.close()
    assert cluster.coordinator.ends == [False]
