"""Producers whose id, epoch and sequence numbers belong to the caller, and outlive the producer."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client.producer import OwnedIdentity
from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.errors import (
    DeliveryTimeoutError,
    OutOfOrderSequenceError,
    TransactionStateError,
)
from tailrace.client.producer.identity import adopt_identity
from tailrace.client.producer.receipts import Receipt
from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.cluster import ScriptedCluster
from tailrace.testing.script import FaultKind
from tests.examples import examples
from tests.simulation.stage import T0, T1, Stage, check_empty, outcomes, play
from tests.simulation.test_random import FAULT, TIMES, Step, disturb

ID = 4711
COUNT = 25
"""Records of each partition."""


def owning(stage: Stage, identity: OwnedIdentity, **settings: Any) -> AsyncProducer:
    """A producer on virtual time that has this identity, as `Producer` takes it."""
    producer = stage.producer(**settings)
    adopt_identity(producer._engine.transactions, identity)
    return producer


def owned(**first: int) -> OwnedIdentity:
    """The identity, with the first numbers of partitions `p0` and `p1`."""
    numbers = {TopicPartition("t", int(name[1:])): number for name, number in first.items()}
    return OwnedIdentity(producer_id=ID, producer_epoch=3, first_sequences=numbers)


def test_batches_have_the_owners_numbers_and_no_id_is_asked_for() -> None:
    """Id, epoch and first numbers are those that were given; 0 where none was."""

    async def main(stage: Stage) -> None:
        async with owning(stage, owned(p0=7), batch_size=100) as producer:
            receipts = stage.send(producer, 3, size=90) + stage.send(producer, 2, partition=1)
            await producer.flush()
            assert outcomes(receipts) == [""] * 5
            check_empty(producer)
        sent = stage.cluster.sent
        assert [each.base_sequence for each in sent if each.partition == T0] == [7, 8, 9]
        assert [each.base_sequence for each in sent if each.partition == T1] == [0]
        assert {(each.producer_id, each.producer_epoch) for each in sent} == {(ID, 3)}
        assert stage.cluster.count(ApiKey.INIT_PRODUCER_ID) == 0

    play(main)


def test_the_first_batch_of_a_partition_goes_alone() -> None:
    """A leader that does not know the producer would take the second one after it refused that."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.NOT_ENOUGH_REPLICAS
        )
        async with owning(stage, owned(p0=7), batch_size=100) as producer:
            stage.send(producer, 3, size=90)
            await producer.flush()
        assert [each.base_sequence for each in stage.cluster.sent] == [7, 7, 8, 9]
        stage.check_log()

    play(main)


async def take_numbers(stage: Stage, count: int) -> None:
    """Another sender writes records under the first numbers of partition 0, in one batch."""
    async with owning(stage, owned()) as rival:
        stage.send(rival, count)
        await rival.flush()


def test_a_number_that_the_log_has_fails_all_that_is_not_in_the_log() -> None:
    """No epoch is raised and nothing is numbered anew, so that the owner can look at the log."""

    async def main(stage: Stage) -> None:
        await take_numbers(stage, 4)
        sent_before = len(stage.cluster.sent)
        producer = owning(stage, owned(), batch_size=200)
        receipts = stage.send(producer, 5, size=90)
        await producer.flush()
        assert {type(each.exception()) for each in receipts} == {OutOfOrderSequenceError}
        assert len(stage.cluster.sent) == sent_before + 1
        with pytest.raises(TransactionStateError, match="the producer has failed, close it"):
            producer.send("t", b"more", partition=1).result()
        check_empty(producer)
        await producer.close()
        assert len(stage.cluster.log().records) == 4
        assert stage.cluster.count(ApiKey.INIT_PRODUCER_ID) == 0

    play(main)


def test_a_batch_that_expires_takes_the_later_ones_along() -> None:
    """Also those of other partitions; its number is not given to another batch."""

    async def main(stage: Stage) -> None:
        producer = owning(stage, owned(), batch_size=100, **TIMES)
        stage.cluster.move(T0, -1)
        receipts = stage.send(producer, 2, size=90)
        await stage.pass_time(TIMES["delivery_timeout_ms"] / 1000 - 1)
        stage.cluster.move(T1, -1)
        later = stage.send(producer, 1, partition=1)
        await producer.flush()
        kinds = [type(each.exception()) for each in [*receipts, *later]]
        assert kinds == [DeliveryTimeoutError] * 3
        stage.cluster.heal()
        await stage.pass_time(5)
        await producer.close()
        assert not any(led.log.records for led in stage.cluster.partitions.values())

    play(main)


def test_no_topic_is_created_for_it() -> None:
    """The numbers belong to a log, and a new topic has another one."""

    async def main(stage: Stage) -> None:
        answer, may_create = stage.cluster.answers[ApiKey.METADATA], []

        def noting(cluster: ScriptedCluster, node: Any, body: Any) -> Any:
            may_create.append(body.allow_auto_topic_creation)
            return answer(cluster, node, body)

        stage.cluster.answers[ApiKey.METADATA] = noting
        async with owning(stage, owned()) as producer:
            await stage.send(producer)[0]
        assert set(may_create) == {False}

    play(main)


@pytest.mark.parametrize(
    "settings", [{"transactional_id": "x"}, {"enable_idempotence": False}, {"acks": "1"}]
)
def test_it_needs_idempotence_and_no_transactions(settings: dict[str, Any]) -> None:
    """Other settings are refused when the producer is made."""

    async def main(stage: Stage) -> None:
        with pytest.raises(ConfigError, match="identity: "):
            owning(stage, owned(), **settings)

    play(main)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "first"), [(-1, 0, 0), (1, -1, 0), (1, 1 << 15, 0), (1, 0, 1 << 31)]
)
def test_numbers_out_of_range_are_refused(producer_id: int, epoch: int, first: int) -> None:
    """They would not fit a batch."""
    with pytest.raises(ValueError, match="there is no"):
        OwnedIdentity(producer_id=producer_id, producer_epoch=epoch, first_sequences={T0: first})


def value(place: TopicPartition, number: int) -> bytes:
    """The record of a number."""
    return (b"%d %d " % (place.partition, number)).ljust(90, b".")


def arrived(stage: Stage, place: TopicPartition) -> int:
    """The number after the last in the log."""
    known = stage.cluster.log(*place).producers.get(ID)
    return 0 if known is None else known.last_sequence + 1


def send_rest(
    stage: Stage, chosen: dict[str, Any]
) -> tuple[AsyncProducer, list[tuple[TopicPartition, int, Receipt]]]:
    """A producer that goes on where the log ends, in both partitions."""
    first = {place: arrived(stage, place) for place in (T0, T1)}
    identity = OwnedIdentity(producer_id=ID, producer_epoch=0, first_sequences=first)
    producer = owning(stage, identity, **TIMES, **chosen)
    receipts = [
        (place, number, producer.send("t", value(place, number), partition=place.partition))
        for number in range(COUNT)
        for place in (T0, T1)
        if number >= first[place]
    ]
    return producer, receipts


CHOSEN = st.fixed_dictionaries(
    {
        "batch_size": st.sampled_from([100, 250, 400, 1000]),
        "max_in_flight_requests_per_connection": st.sampled_from([1, 5]),
    }
)
ATTEMPT = st.tuples(
    CHOSEN,
    st.sampled_from([0.0, 0.001, 0.3, 2.0]),
    st.sampled_from([0.0, 0.001, 0.05, 1.0, 9.0]),
    st.lists(FAULT, max_size=4),
)


@settings(max_examples=examples(50))
@given(st.lists(ATTEMPT, max_size=4))
def test_attempts_under_one_identity_write_each_record_once(
    attempts: list[tuple[dict[str, Any], float, float, list[Step]]],
) -> None:
    """Attempts that are cut short, run at once and cut batches differently double and lose none."""

    def check_places(receipts: list[tuple[TopicPartition, int, Receipt]], stage: Stage) -> None:
        for place, number, receipt in receipts:
            if receipt.exception() is None and receipt.result().offset >= 0:
                assert receipt.result().offset == number
                assert stage.cluster.log(*place).values()[number] == value(place, number)

    async def attempt(
        stage: Stage, chosen: dict[str, Any], start: float, stop: float, faults: list[Step]
    ) -> None:
        await stage.pass_time(start)
        producer, receipts = send_rest(stage, chosen)
        for each in faults:
            disturb(stage, each)
        await stage.pass_time(stop)
        await producer.close(0)
        check_places(receipts, stage)

    async def main(stage: Stage) -> None:
        await asyncio.gather(*(attempt(stage, *each) for each in attempts))
        stage.cluster.heal()
        await stage.pass_time(10)
        producer, receipts = send_rest(stage, {"batch_size": 300})
        await producer.close()
        assert {type(each.exception()) for _, _, each in receipts} <= {type(None)}
        check_places(receipts, stage)
        for place in (T0, T1):
            expected = [value(place, number) for number in range(COUNT)]
            assert stage.cluster.log(*place).values() == expected

    play(main, nodes=3, partitions=3)
