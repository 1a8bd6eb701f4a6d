"""Transactions that are begun and ended by calls, where a block does not fit."""

from collections.abc import Awaitable, Callable, Iterator

import pytest

from tailrace.client.producer import AsyncProducer, Producer
from tailrace.client.producer.errors import (
    ProducerFencedError,
    RejectedRecordError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
    TransactionTimeoutError,
)
from tailrace.protocol.apis import ApiKey
from tailrace.testing.real_cluster import real_cluster
from tailrace.testing.script import FaultKind
from tests.simulation.stage import Stage, check_empty, outcomes, play, transaction_version

SHORT = {"transactional_id": "x", "max_block_ms": 2000, "request_timeout_ms": 1000}
ALWAYS = 1 << 30


@pytest.fixture(autouse=True, params=[0, 2], ids=["classic", "KIP-890"])
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every claim holds in clusters of both levels of `transaction.version`."""
    token = transaction_version.set(request.param)
    yield
    transaction_version.reset(token)


def visible(stage: Stage) -> list[bytes | None]:
    """The values that readers of committed records see."""
    return [each.value for each in stage.cluster.log().visible()]


def test_a_committed_transaction_is_visible_and_an_aborted_one_is_not() -> None:
    """One after the other on one producer, with `init_transactions` as often as one likes."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer:
            await producer.init_transactions()
            await producer.init_transactions()
            await producer.begin_transaction()
            stage.send(producer, 2)
            await producer.commit_transaction()
            assert visible(stage) == [b"0", b"1"]
            await producer.begin_transaction()
            (receipt,) = stage.send(producer)
            await receipt
            await producer.abort_transaction()
            assert outcomes([receipt]) == [""]
            await producer.begin_transaction()
            stage.send(producer)
            await producer.commit_transaction()
            check_empty(producer)
        assert visible(stage) == [b"0", b"1", b"3"]

    play(main)


def test_blocks_and_calls_go_together() -> None:
    """A block may follow a call, and a call a block; one inside of the other is refused."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer:
            async with producer.transaction():
                stage.send(producer)
                with pytest.raises(TransactionStateError):
                    await producer.begin_transaction()
            await producer.begin_transaction()
            with pytest.raises(TransactionStateError):
                async with producer.transaction():
                    pass
            stage.send(producer)
            await producer.commit_transaction()
        assert visible(stage) == [b"0", b"1"]

    play(main)


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.commit_transaction(),
        lambda producer: producer.abort_transaction(),
        lambda producer: producer.send_offsets_to_transaction({}, "g"),
        lambda producer: producer.init_transactions(),
    ],
)
def test_a_producer_without_an_id_has_no_transactions(
    call: Callable[[AsyncProducer], Awaitable[None]],
) -> None:
    """The error names the setting."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            with pytest.raises(TransactionStateError, match=r"transactional\.id"):
                await call(producer)

    play(main)


def test_calls_in_a_wrong_order_change_nothing() -> None:
    """A commit or abort needs a begin, and a begin needs the end of the one before it."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer:
            for call in (producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(TransactionStateError):
                    await call()
            await producer.begin_transaction()
            with pytest.raises(TransactionStateError):
                await producer.begin_transaction()
            stage.send(producer)
            await producer.commit_transaction()
            with pytest.raises(TransactionStateError):
                await producer.commit_transaction()
            assert visible(stage) == [b"0"]

    play(main)


def test_a_commit_that_was_not_answered_can_be_called_again() -> None:
    """The second call waits for the same commit and commits nothing else."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer:
            await producer.begin_transaction()
            stage.send(producer)
            stage.cluster.script.add(ApiKey.END_TXN, FaultKind.LOSE, times=ALWAYS)
            for _ in range(2):
                with pytest.raises(TransactionOutcomeUnknownError):
                    await producer.commit_transaction()
            with pytest.raises(TransactionOutcomeUnknownError):
                await producer.begin_transaction()
            stage.cluster.script.heal()
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.abort_transaction()
        assert visible(stage) == [b"0"]

    play(main)


def test_an_abort_that_was_not_answered_can_be_called_again() -> None:
    """After it the next transaction begins as ever."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as producer:
            await producer.begin_transaction()
            (receipt,) = stage.send(producer)
            await receipt
            stage.cluster.script.add(ApiKey.END_TXN, FaultKind.LOSE, times=ALWAYS)
            with pytest.raises(TransactionTimeoutError):
                await producer.abort_transaction()
            stage.cluster.script.heal()
            await producer.abort_transaction()
            await producer.begin_transaction()
            stage.send(producer)
            await producer.commit_transaction()
        assert visible(stage) == [b"1"]

    play(main)


def test_a_failed_transaction_waits_for_its_abort() -> None:
    """A refused record fails the commit; nothing is aborted before the caller says so."""

    async def main(stage: Stage) -> None:
        async with stage.producer(max_request_size=1000, **SHORT) as producer:
            await producer.begin_transaction()
            stage.send(producer)
            refused = producer.send("t", bytes(2000))
            with pytest.raises(TransactionAbortableError):
                await producer.commit_transaction()
            assert isinstance(refused.exception(), RejectedRecordError)
            with pytest.raises(TransactionAbortableError, match="abort it"):
                await producer.begin_transaction()
            await producer.abort_transaction()
            await producer.begin_transaction()
            stage.send(producer)
            await producer.commit_transaction()
        assert visible(stage) == [b"1"]

    play(main)


def test_a_fenced_producer_can_only_be_closed() -> None:
    """A newer producer with the same id takes over at its `init_transactions`."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SHORT) as old, stage.producer(**SHORT) as new:
            await old.begin_transaction()
            (receipt,) = stage.send(old)
            await receipt
            await new.init_transactions()
            for call in (old.commit_transaction, old.abort_transaction, old.begin_transaction):
                with pytest.raises(ProducerFencedError):
                    await call()
        assert visible(stage) == []

    play(main)


def test_threads_have_the_same_calls() -> None:
    """`Producer` commits, aborts, and refuses a wrong order."""
    with real_cluster() as cluster:
        cluster.create_topic("t")
        with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"0")
            producer.commit_transaction()
            producer.begin_transaction()
            dropped = producer.send("t", b"1")
            producer.abort_transaction()
            assert dropped.done()
            assert dropped.exception() is None or isinstance(
                dropped.exception(), TransactionAbortedError
            )
            with pytest.raises(TransactionStateError):
                producer.commit_transaction()
        assert [each.value for each in cluster.log().visible()] == [b"0"]
