"""Work that ends half done says how far it came: closes, logins and send_many that raise."""
# ruff: noqa: PT012, PT031 - a transaction is a block of several statements

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.client.nodes import AuthenticationError
from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.errors import (
    BufferExhaustedError,
    ClosedProducerError,
    InvalidTopicError,
    MetadataTimeoutError,
    TransactionOutcomeUnknownError,
)
from tailrace.client.producer.producer import Producer
from tailrace.client.producer.results import SendSummary
from tailrace.errors import FatalError, RetriableError
from tailrace.protocol.apis import ApiKey
from tailrace.testing.cluster import ScriptedCluster
from tailrace.testing.real_cluster import real_cluster
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T0, Stage, outcomes, play

ALWAYS = 1 << 30
LOGIN: dict[str, Any] = {
    "transactional_id": "x",
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "wrong",
}
ROWS = 5000


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptedCluster]:
    """A cluster on real sockets, with a topic `t`."""
    with real_cluster() as found:
        found.create_topic("t")
        yield found


async def commit(stage: Stage, producer: AsyncProducer) -> None:
    """A transaction of one record."""
    async with producer.transaction():
        stage.send(producer)


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_close_aborts_the_open_transaction(*, is_sent: bool) -> None:
    """The abort marker is in the log, so readers of committed records get past it."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(transactional_id="x")
        await commit(stage, producer)
        with pytest.raises(ClosedProducerError):
            async with producer.transaction():
                (receipt,) = stage.send(producer, partition=1)
                if is_sent:
                    await receipt
                await producer.close()
        assert outcomes([receipt]) == ["" if is_sent else "TransactionAbortedError"]
        assert stage.cluster.coordinator.ends == [True, False]
        assert stage.now < 1

    play(main)


def test_a_close_waits_for_the_end_of_a_transaction_within_its_time() -> None:
    """A coordinator that does not answer holds up a close for its timeout, or `max.block.ms`."""

    async def main(stage: Stage) -> None:
        for timeout, limit_s in ((0.5, 0.5), (None, 2.0)):
            producer = stage.producer(transactional_id="x", max_block_ms=2000)
            with pytest.raises(ClosedProducerError):
                async with producer.transaction():
                    await stage.send(producer)[0]
                    stage.cluster.script.add(ApiKey.END_TXN, FaultKind.LOSE, times=ALWAYS)
                    began = stage.now
                    await producer.close(timeout)
                    assert limit_s <= stage.now - began < limit_s + 0.1
            stage.cluster.script.heal()

    play(main)


def test_an_error_of_the_block_is_not_hidden_by_the_close_in_it() -> None:
    """After a close inside the block, the block's own error is raised, and nothing more is sent."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(transactional_id="x")
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.close()
                raise ZeroDivisionError

    play(main)


@pytest.mark.parametrize("is_reached", [True, False])
def test_a_producer_that_is_dropped_ends_its_transaction(*, is_reached: bool) -> None:
    """A commit in progress is completed after the producer is collected, or else aborted.

    Its records have `delivery.timeout.ms`, as if the producer had not been dropped.
    """

    async def main(stage: Stage) -> None:
        producer = stage.producer(transactional_id="x", max_block_ms=1000)
        await commit(stage, producer)
        stage.cluster.move(T0, -1)
        with pytest.raises(TransactionOutcomeUnknownError):
            await commit(stage, producer)
        (late,) = (each.receipt for each in stage.sent[1:])
        dropped_at = stage.now
        with pytest.warns(ResourceWarning, match="1 record"):
            del producer
            gc.collect()
        if is_reached:
            stage.cluster.move(T0, 1)
        while not late.done():
            await stage.pass_time(0.01)
        assert outcomes([late]) == ["" if is_reached else "DeliveryTimeoutError"]
        assert stage.now - dropped_at < (1.1 if is_reached else 120)
        await stage.pass_time(1)
        assert stage.cluster.coordinator.ends == [True, is_reached]

    play(main)


def test_a_producer_that_is_dropped_tells_of_records_in_line() -> None:
    """The warning counts them, as it counts those in batches."""

    async def main(stage: Stage) -> None:
        producer = stage.producer()
        receipts = [producer.send("nowhere", b"v") for _ in range(3)]
        assert producer.held() == 3
        with pytest.warns(ResourceWarning, match="with 3 records"):
            del producer
            gc.collect()
        await stage.pass_time(1)
        assert outcomes(receipts) == ["ClosedProducerError"] * 3

    play(main)


def test_a_close_of_threads_aborts_the_open_transaction(cluster: ScriptedCluster) -> None:
    """A Producer does so too when an exception of another thread leaves its `with` block."""
    ends = len(cluster.coordinator.ends)
    producer = Producer(bootstrap_servers=cluster.bootstrap, transactional_id="closing")
    with pytest.raises(ClosedProducerError), producer.transaction():
        producer.send("t", b"aborted", partition=0).result(30)
        producer.close(30)
    assert cluster.coordinator.ends[ends:] == [False]


def test_a_wrong_password_is_told_at_once_in_a_transaction() -> None:
    """It is fatal and not waited for, now and the next time."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**LOGIN) as producer:
            for _ in range(2):
                with pytest.raises(AuthenticationError, match=r"sasl\.password") as found:
                    await commit(stage, producer)
                assert isinstance(found.value, FatalError)
                assert not isinstance(found.value, RetriableError)
                assert stage.now < 1

    play(main, nodes=3)


def test_one_node_that_refuses_the_login_is_not_all_of_them(cluster: ScriptedCluster) -> None:
    """With the right password the same settings work, in threads too."""
    login = LOGIN | {"transactional_id": "login"}
    with (
        Producer(bootstrap_servers=cluster.bootstrap, **login) as producer,
        pytest.raises(AuthenticationError),
        producer.transaction(),
    ):
        pass
    with (
        Producer(
            bootstrap_servers=cluster.bootstrap, **login | {"sasl_password": "secret"}
        ) as good,
        good.transaction(),
    ):
        receipt = good.send("t", b"x", partition=0)
    assert receipt.exception() is None


class GoneError(Exception):
    """The source of rows has failed."""


def failing(after: int) -> Iterator[bytes]:
    """Rows, and then an error."""
    for number in range(after):
        yield b"%d" % number
    raise GoneError


def summary_of(error: BaseException) -> SendSummary:
    """Return the summary that an error of send_many carries."""
    summary = vars(error)["summary"]
    assert isinstance(summary, SendSummary)
    return summary


def test_send_many_that_raises_tells_what_was_written() -> None:
    """Rows that are acknowledged, on their way and not sent come to all that were read."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=1000) as producer:
            with pytest.raises(GoneError) as found:
                await producer.send_many("t", failing(ROWS))
            summary = summary_of(found.value)
            # Rows that were read into a chunk which the source did not finish were never given.
            assert 0 < summary.row_count <= ROWS
            assert summary.pending_count > 0
            assert summary.unsent_count == 0
            assert "on their way" in repr(summary)
            await producer.flush()
            assert summary.settle()
            assert summary.acknowledged_count == summary.row_count
            assert summary.pending_count == 0
            written = sum(len(led.log.records) for led in stage.cluster.partitions.values())
            assert written == summary.row_count
            assert sum(last - first + 1 for first, last in summary.offsets.values()) == written

    play(main)


@pytest.mark.parametrize("kind", [BufferExhaustedError, asyncio.CancelledError])
def test_rows_that_found_no_memory_are_not_sent(kind: type[BaseException]) -> None:
    """Rows that got no memory are counted as unsent, apart from rows that wait to be sent."""

    async def main(stage: Stage) -> None:
        async with stage.producer(
            batch_size=1000, buffer_memory=10_000, max_block_ms=1000, delivery_timeout_ms=40_000
        ) as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, -1)
            work = asyncio.ensure_future(
                producer.send_many("t", {"value": [b"x" * 90] * ROWS, "partition": [0] * ROWS})
            )
            await stage.pass_time(0.2)
            if kind is asyncio.CancelledError:
                work.cancel()
            with pytest.raises(kind) as found:
                await work
            summary = summary_of(found.value)
            assert summary.acknowledged_count == 0
            assert 0 < summary.pending_count < 200
            assert summary.unsent_count == summary.row_count - summary.pending_count > 0
            stage.cluster.move(T0, 1)

    play(main)


@pytest.mark.parametrize("kind", [SystemExit, GoneError])
def test_a_block_that_ends_by_an_exit_or_an_error_sends_its_records(
    kind: type[BaseException],
) -> None:
    """`Producer` does so too: only a cancellation and Ctrl-C do not wait for brokers."""

    async def main(stage: Stage) -> None:
        with pytest.raises(kind):
            async with stage.producer(linger_ms=50) as producer:
                stage.send(producer, 10)
                raise kind
        assert set(outcomes([each.receipt for each in stage.sent])) == {""}
        stage.check_log()

    play(main)


def test_send_many_of_threads_tells_it_too(cluster: ScriptedCluster) -> None:
    """The account of a Producer, of an error of `progress` and of a topic that is not there."""

    def stop(_count: int) -> None:
        raise GoneError

    with Producer(
        bootstrap_servers=cluster.bootstrap, batch_size=1000, max_block_ms=100
    ) as producer:
        with pytest.raises(GoneError) as found:
            producer.send_many("t", [b"%d" % number for number in range(ROWS)], progress=stop)
        assert summary_of(found.value).acknowledged_count > 0
        with pytest.raises(MetadataTimeoutError) as missing:
            producer.send_many("nowhere", [b"x"])
        assert summary_of(missing.value).row_count == 0
        with pytest.raises(TypeError, match="topic is a list"):
            producer.send_many(["t"], [b"x"])  # type: ignore[arg-type]
        with pytest.raises(InvalidTopicError):
            producer.send_many("not legal", [b"x"])
