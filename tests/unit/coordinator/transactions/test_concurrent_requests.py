"""Requests that come at the same time: one of them is the first, and the state is never half."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.state import Transaction, TransactionStatus
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tests.unit.coordinator.transactions.stage import (
    NOBODY,
    PRODUCER,
    A,
    Answer,
    Stage,
    play,
    producer_at,
    stored,
)

NEXT = producer_at(PRODUCER.producer_id, PRODUCER.producer_epoch + 1)
OVER_NEXT = producer_at(PRODUCER.producer_id, PRODUCER.producer_epoch + 2)
LAST = producer_at(PRODUCER.producer_id, 32_766)
"""The last epoch of a producer id; the next client gets another id."""
NEW = producer_at(1000, 0)
NEWER = producer_at(1000, 1)
FENCED = Answer(ErrorCode.PRODUCER_FENCED, NOBODY)


def granted(producer: TransactionalProducer) -> Answer:
    """An answer without an error."""
    return Answer(ErrorCode.NONE, producer)


def at_once(
    first: TransactionalProducer,
    second: TransactionalProducer,
    *transactions: Transaction,
    before: Callable[[Stage], Awaitable[object]] | None = None,
) -> tuple[Answer, Answer]:
    """The answers to two InitProducerId of one id, sent at once by clients that have these."""
    answers: list[Answer] = []

    async def scenario(stage: Stage) -> None:
        if before is not None:
            await before(stage)
        answers.extend(
            await asyncio.gather(stage.init(expected=first), stage.init(expected=second))
        )

    play(scenario, *transactions)
    return answers[0], answers[1]


def test_two_new_clients_of_a_used_up_producer_id_get_different_epochs() -> None:
    """The id is replaced once, and the client that comes second fences the first."""
    assert at_once(NOBODY, NOBODY, stored(epoch=32_766)) == (granted(NEW), granted(NEWER))


def test_a_new_client_fences_one_that_goes_on_at_the_same_time() -> None:
    """Whichever comes first: the new one is the newest, and no epoch is given twice."""
    assert at_once(PRODUCER, NOBODY, stored()) == (granted(NEXT), granted(OVER_NEXT))
    assert at_once(NOBODY, PRODUCER, stored()) == (granted(NEXT), FENCED)


def test_one_of_two_clients_of_an_expired_id_goes_on() -> None:
    """Both have a producer that nobody knows any more; the second is not the newest client."""
    unknown = producer_at(55, 10)
    assert at_once(unknown, unknown) == (granted(NEW), FENCED)


def test_a_repeated_request_and_a_new_client_at_the_same_time() -> None:
    """The repeated one gets the epoch that it was given, or is fenced by the new client."""

    async def go_on(stage: Stage) -> None:
        assert await stage.init(expected=PRODUCER) == granted(NEXT)

    found = at_once(PRODUCER, NOBODY, stored(), before=go_on)
    assert found == (granted(NEXT), granted(OVER_NEXT))
    found = at_once(NOBODY, PRODUCER, stored(), before=go_on)
    assert found == (granted(OVER_NEXT), FENCED)


def test_a_new_client_and_one_that_goes_on_use_up_a_producer_id_once() -> None:
    """The new one gets the id after that epoch of the other, or takes its place."""
    assert at_once(LAST, NOBODY, stored(epoch=32_766)) == (granted(NEW), granted(NEWER))
    first, second = at_once(NOBODY, LAST, stored(epoch=32_766))
    assert first == granted(NEW)
    assert second == FENCED


def test_a_repeated_request_for_the_next_producer_id_and_a_new_client_at_the_same_time() -> None:
    """The answer is the one that was lost, unless the new client has come before."""

    async def go_on(stage: Stage) -> None:
        assert await stage.init(expected=LAST) == granted(NEW)

    found = at_once(LAST, NOBODY, stored(epoch=32_766), before=go_on)
    assert found == (granted(NEW), granted(NEWER))
    found = at_once(NOBODY, LAST, stored(epoch=32_766), before=go_on)
    assert found == (granted(NEWER), FENCED)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_hundred_ids_go_through_their_transactions_together(is_commit: bool) -> None:  # noqa: FBT001
    """Each begins, is ended and is complete, with its own partition and its own marker."""
    ids = [f"id-{each}" for each in range(100)]

    async def live(stage: Stage, number: int) -> None:
        begun = await stage.init(ids[number])
        partition = TopicPartition("t", number)
        code = await stage.add(begun.producer, (partition,), transactional_id=ids[number])
        assert (begun.error, code) == (ErrorCode.NONE, ErrorCode.NONE)
        ended = await stage.end(begun.producer, is_commit=is_commit, transactional_id=ids[number])
        assert ended.error is ErrorCode.NONE

    async def scenario(stage: Stage) -> None:
        await asyncio.gather(*(live(stage, each) for each in range(100)))
        await stage.outside.pass_time(1)
        complete = (
            TransactionStatus.COMPLETE_COMMIT if is_commit else TransactionStatus.COMPLETE_ABORT
        )
        assert [stage.transaction(each).status for each in ids] == [complete] * 100
        marked = sorted(
            (partition.partition, commit) for partition, _, _, commit in stage.partitions.ends
        )
        assert marked == [(each, is_commit) for each in range(100)]

    play(scenario)


def test_a_transaction_that_times_out_while_its_client_ends_it_has_one_end() -> None:
    """The search for what is open for too long and EndTxn meet; the log has what was answered."""

    async def scenario(stage: Stage) -> None:
        stage.log.hold_commits()
        ending = asyncio.ensure_future(stage.end())
        await stage.outside.pass_time(75)
        stage.log.commit()
        assert (await ending).error is ErrorCode.NONE
        await stage.outside.pass_time(75)
        assert [commit for _, _, _, commit in stage.partitions.ends] == [True]
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT

    play(scenario, stored(TransactionStatus.ONGOING, partitions=(A,)))
