"""Sequence numbers, epochs and transactions, as the brokers see them."""
# ruff: noqa: PT012 - a transaction is a block of several statements

import asyncio

import pytest

from tailrace.client.producer.errors import (
    DeliveryTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
    TransactionTimeoutError,
)
from tailrace.client.producer.identity.sequences import IDLE_S, NO_PRODUCER, ProducerIdAndEpoch
from tailrace.errors import TailraceError
from tailrace.model import PRODUCER_EPOCH_MAX, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T0, T1, Stage, check_empty, outcomes, play


def test_numbers_follow_each_other_in_each_partition() -> None:
    """Each batch has the id and epoch that the cluster gave, and its next number."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=100) as producer:
            stage.send(producer, 3, size=90)
            stage.send(producer, 2, size=90, partition=1)
            await producer.flush()
        for place, count in ((T0, 3), (T1, 2)):
            batches = [each for each in stage.cluster.sent if each.partition == place]
            assert [each.base_sequence for each in batches] == list(range(count))
            assert {(each.producer_id, each.producer_epoch) for each in batches} == {(1001, 0)}
            assert {each.error for each in batches} == {ErrorCode.NONE}

    play(main)


def test_several_batches_are_in_flight_and_numbered_at_once() -> None:
    """The second has its number before the first is answered, and each receipt its own offset."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=100) as producer:
            await stage.send(producer)[0]
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=1)
            receipts = stage.send(producer, 2, size=90)
            await stage.pass_time(0.5)
            assert producer.metrics()["batches-in-flight"] == 2
            assert not any(each.done() for each in receipts)
            await producer.flush()
            assert [each.offset for each in receipts] == [1, 2]
        assert [each.base_sequence for each in stage.cluster.sent] == [0, 1, 2]
        stage.check_log()

    play(main)


@pytest.mark.parametrize("in_flight", [1, 5])
def test_the_id_is_asked_for_until_it_is_given(in_flight: int) -> None:
    """Records wait for the producer id, asked for again after a pause when an answer is lost."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.INIT_PRODUCER_ID,
            FaultKind.ERROR,
            error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            times=2,
        )
        stage.cluster.script.add(ApiKey.INIT_PRODUCER_ID, FaultKind.CUT)
        async with stage.producer(
            max_in_flight_requests_per_connection=in_flight,
            retry_backoff_ms=500,
            retry_backoff_max_ms=500,
        ) as producer:
            await stage.send(producer)[0]
            assert stage.cluster.count(ApiKey.INIT_PRODUCER_ID) == 4
            # 500 ms less at most 20 in 100 of jitter, for each of the two refusals.
            assert stage.now >= 2 * 0.4

    play(main)


@pytest.mark.parametrize("in_flight", [1, 5])
def test_a_transaction_begins_while_metadata_is_asked_for(in_flight: int) -> None:
    """With one request in flight at a time the coordinator is asked when that one is answered."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.METADATA, FaultKind.DELAY, delay_s=2)
        async with stage.producer(
            transactional_id="x", max_in_flight_requests_per_connection=in_flight
        ) as producer:
            async with producer.transaction():
                (receipt,) = stage.send(producer)
            assert outcomes([receipt]) == [""]
        (batch,) = stage.cluster.sent
        assert (batch.producer_id, batch.producer_epoch) == (1001, 0)
        assert stage.cluster.coordinator.ends == [True]

    play(main)


def test_a_coordinator_that_takes_no_connection_for_long_is_waited_for() -> None:
    """Longer than `request.timeout.ms`; then it gives the id, and the transaction is committed."""

    async def main(stage: Stage) -> None:
        stage.cluster.kill(1)
        async with stage.producer(transactional_id="x", request_timeout_ms=1000) as producer:
            stage.outside.loop.call_later(3, stage.cluster.revive, 1)
            async with producer.transaction():
                stage.send(producer)
            assert stage.now >= 3
        assert len(stage.cluster.log().visible()) == 1

    play(main)


@pytest.mark.parametrize(
    "how", [FaultKind.ERROR, FaultKind.ERROR_AFTER], ids=["missing", "written"]
)
def test_an_answer_to_the_second_batch_that_comes_first_changes_no_order(how: FaultKind) -> None:
    """The old leader still owes one for the first; both are written once, in their order."""
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=100, metadata_max_age_ms=1000) as producer:
            await stage.send(producer)[0]
            await stage.send(producer, partition=1)[0]
            stage.cluster.script.add(ApiKey.PRODUCE, how, error=refused, delay_s=5)
            (first,) = stage.send(producer, size=90)
            await stage.pass_time(0.5)
            stage.cluster.move(T0, 2)
            await stage.pass_time(1.5)
            (second,) = stage.send(producer, size=90)
            await stage.pass_time(1)
            one, two = stage.cluster.sent[2:]
            assert [(each.node_id, each.base_sequence) for each in (one, two)] == [(1, 1), (2, 2)]
            is_written = how is FaultKind.ERROR_AFTER
            assert (two.error is ErrorCode.NONE) == is_written
            assert (first.done(), second.done()) == (False, is_written)
            await producer.flush()
            assert [first.offset, second.offset] == [1, 2]
            assert {each.producer_epoch for each in stage.cluster.sent} == {0}
        stage.check_log()

    play(main, nodes=2)


@pytest.mark.parametrize("is_forced", [True, False])
def test_a_close_while_a_new_id_is_asked_for_ends_every_receipt(is_forced: bool) -> None:  # noqa: FBT001
    """After the last epoch the batches wait for an id; a close waits for it, or for nothing."""

    async def main(stage: Stage) -> None:
        producer = stage.producer()
        await stage.send(producer)[0]
        await stage.send(producer, partition=1)[0]
        manager = producer._engine.transactions
        assert manager is not None
        sequences = manager.sequences
        for place in (T0, T1):
            sequences.of(place).producer = ProducerIdAndEpoch(1001, PRODUCER_EPOCH_MAX)
            stage.cluster.log(partition=place.partition).producers[1001].epoch = PRODUCER_EPOCH_MAX
        sequences.producer = ProducerIdAndEpoch(1001, PRODUCER_EPOCH_MAX)
        stage.cluster.script.add(
            ApiKey.PRODUCE,
            FaultKind.ERROR,
            error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            partition=T0,
        )
        stage.cluster.script.add(ApiKey.INIT_PRODUCER_ID, FaultKind.DELAY, delay_s=5)
        receipts = stage.send(producer) + stage.send(producer, partition=1)
        await stage.pass_time(1)
        assert sequences.producer == NO_PRODUCER
        began = stage.now
        await producer.close(0 if is_forced else None)
        if is_forced:
            assert stage.now == began
            assert outcomes(receipts)[0] == "ClosedProducerError"
            assert receipts[1].done()
        else:
            assert outcomes(receipts) == ["", ""]
            assert stage.cluster.sent[-1].producer_id == 1002
        stage.check_log()

    play(main)


def test_an_id_that_is_refused_fails_what_waits_and_is_asked_for_again() -> None:
    """Without rights the records fail, and once the rights are there records are written."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.INIT_PRODUCER_ID,
            FaultKind.ERROR,
            error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            delay_s=1,
        )
        async with stage.producer() as producer:
            receipts = stage.send(producer, 2)
            await stage.pass_time(5)
            assert outcomes(receipts) == ["AuthorizationError"] * 2
            await stage.send(producer)[0]

    play(main)


def test_a_gap_that_is_real_starts_a_new_epoch() -> None:
    """Out of order for the first batch in flight: all go on in a new epoch, from number 0."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=100) as producer:
            await stage.send(producer)[0]
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            )
            receipts = stage.send(producer, 3, size=90)
            await producer.flush()
            assert outcomes(receipts) == [""] * 3
        stage.check_log()
        last = stage.cluster.sent[-1]
        assert (last.producer_epoch, last.base_sequence) == (1, 2)

    play(main)


def test_a_refused_batch_moves_the_numbers_of_those_behind_it() -> None:
    """After a batch that the broker does not take, the others are written with other numbers."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=100) as producer:
            await stage.send(producer)[0]
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.MESSAGE_TOO_LARGE, skip=1
            )
            receipts = stage.send(producer, 4, size=90)
            await producer.flush()
            assert outcomes(receipts) == ["", "RejectedRecordError", "", ""]
        stage.check_log()

    play(main)


def test_a_leader_that_forgot_the_producer_takes_its_records_again() -> None:
    """After UNKNOWN_PRODUCER_ID numbers restart, and no record is lost or duplicated."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            await stage.send(producer)[0]
            stage.cluster.log().forget_producers()
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.UNKNOWN_PRODUCER_ID
            )
            await stage.send(producer)[0]
            assert stage.cluster.sent[-1].producer_epoch == 1
            assert stage.cluster.sent[-1].base_sequence == 0
        stage.check_log()

    play(main)


def test_after_a_pause_a_leader_that_forgot_the_producer_keeps_the_order() -> None:
    """It refuses the first batch for a moment, and would take the second under any number."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=100) as producer:
            await stage.send(producer)[0]
            await stage.pass_time(IDLE_S)
            stage.cluster.log().forget_producers()
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
            receipts = stage.send(producer, 3, size=90)
            await producer.flush()
            assert outcomes(receipts) == [""] * 3
        stage.check_log()

    play(main)


def test_a_batch_is_not_repeated_after_the_leader_has_forgotten_it() -> None:
    """It was written and not acknowledged; those after it were, so others could follow them."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=100) as producer:
            await stage.send(producer)[0]
            script = stage.cluster.script
            script.add(ApiKey.PRODUCE, FaultKind.ERROR_AFTER, error=ErrorCode.REQUEST_TIMED_OUT)
            # What it gets when it is sent again, after four others.
            script.add(ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.NOT_ENOUGH_REPLICAS, skip=4)
            receipts = stage.send(producer, 12, size=90)
            await producer.flush()
            assert outcomes(receipts) == [""] * 12
        stage.check_log()

    play(main)


def test_a_duplicate_is_an_acknowledgement() -> None:
    """DUPLICATE_SEQUENCE_NUMBER says that the record is there, though not where."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.PRODUCE, FaultKind.ERROR_AFTER, error=ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        )
        async with stage.producer() as producer:
            assert (await stage.send(producer)[0]).offset == -1
            await stage.send(producer)[0]
        stage.check_log()

    play(main)


def test_after_a_batch_of_unknown_fate_the_numbers_go_on() -> None:
    """A batch expired in flight: the next ones are written, in the old epoch or in a new one."""

    async def main(stage: Stage) -> None:
        async with stage.producer(delivery_timeout_ms=3000, request_timeout_ms=1000) as producer:
            await stage.send(producer)[0]
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.LOSE, times=9)
            (lost,) = stage.send(producer)
            await producer.flush()
            assert outcomes([lost]) == ["DeliveryTimeoutError"]
            stage.cluster.script.heal()
            await stage.send(producer)[0]
            check_empty(producer)
        stage.check_log()

    play(main)


def test_an_unsent_batch_that_expires_takes_no_number() -> None:
    """Records that never left change nothing for those after them."""

    async def main(stage: Stage) -> None:
        async with stage.producer(delivery_timeout_ms=3000, request_timeout_ms=1000) as producer:
            stage.cluster.move(T0, -1)
            await stage.send(producer, partition=1)[0]
            (lost,) = stage.send(producer)
            await producer.flush()
            assert outcomes([lost]) == ["DeliveryTimeoutError"]
            stage.cluster.move(T0, 1)
            await stage.send(producer)[0]
            assert stage.cluster.sent[-1].base_sequence == 0
            assert stage.cluster.sent[-1].producer_epoch == 0

    play(main)


def test_a_committed_transaction_is_visible_and_an_aborted_one_is_not() -> None:
    """Records appear with the commit; an exception in the block aborts and goes on up."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x") as producer:
            async with producer.transaction():
                await stage.send(producer, 1)[0]
                stage.send(producer, 1, partition=1)
                assert not stage.cluster.log().visible()
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await stage.send(producer)[0]
                    raise ZeroDivisionError
            async with producer.transaction():
                stage.send(producer)
        assert [each.value for each in stage.cluster.log().visible()] == [b"0", b"3"]
        assert [each.value for each in stage.cluster.log(partition=1).visible()] == [b"1"]
        assert stage.cluster.coordinator.ends == [True, False, True]

    play(main)


def test_a_commit_does_not_linger_and_waits_for_all_records() -> None:
    """The end is asked for when every batch has its outcome, which is at once."""

    async def main(stage: Stage) -> None:
        async with stage.producer(
            transactional_id="x", linger_ms=60_000, delivery_timeout_ms=200_000
        ) as producer:
            async with producer.transaction():
                receipts = stage.send(producer, 3)
            assert outcomes(receipts) == [""] * 3
            assert stage.now < 1
            async with producer.transaction():
                stage.send(producer)
                await stage.pass_time(30)
                # A new transaction lingers as ever.
                assert len(stage.cluster.sent) == 1
            assert len(stage.cluster.sent) == 2

    play(main)


def test_an_orderly_close_sees_a_commit_through() -> None:
    """The end that the coordinator was not asked for yet is asked for before `close` returns."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(transactional_id="x")

        async def commit() -> None:
            async with producer.transaction():
                await stage.send(producer)[0]
                stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=2)
                stage.send(producer)

        task = asyncio.ensure_future(commit())
        await stage.pass_time(1)
        assert stage.cluster.coordinator.ends == []
        await producer.close()
        await task
        assert stage.cluster.coordinator.ends == [True]
        assert len(stage.cluster.log().visible()) == 2

    play(main)


def test_a_batch_of_unknown_fate_fails_its_transaction_and_not_the_producer() -> None:
    """One that expired in flight, whatever its late answer says: after the abort all goes on."""

    async def main(stage: Stage) -> None:
        async with stage.producer(
            transactional_id="x",
            delivery_timeout_ms=3000,
            request_timeout_ms=3000,
            metadata_max_age_ms=60_000,
        ) as producer:
            async with producer.transaction():
                await stage.send(producer)[0]
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.INVALID_TXN_STATE, delay_s=4
            )
            with pytest.raises(DeliveryTimeoutError):
                async with producer.transaction():
                    (late,) = stage.send(producer)
                    await stage.pass_time(1)
                    (behind,) = stage.send(producer)
            await stage.pass_time(5)
            assert outcomes([late]) == ["DeliveryTimeoutError"]
            assert behind.done()
            async with producer.transaction():
                await stage.send(producer)[0]
            check_empty(producer)
        assert stage.cluster.coordinator.ends == [True, False, True]
        assert [each.value for each in stage.cluster.log().visible()] == [b"0", b"3"]

    play(main)


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_RECORD]
)
def test_a_batch_that_fails_fails_its_transaction(code: ErrorCode) -> None:
    """The commit raises, the transaction is aborted, and the next one can be committed."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.ERROR, error=code)
        async with stage.producer(transactional_id="x") as producer:
            with pytest.raises(TailraceError, match=code.name):
                async with producer.transaction():
                    stage.send(producer)
            async with producer.transaction():
                stage.send(producer)
        assert [each.value for each in stage.cluster.log().visible()] == [b"1"]

    play(main)


@pytest.mark.parametrize("topic", ["nowhere", "not legal", "t"])
def test_a_record_that_cannot_be_sent_fails_its_transaction(topic: str) -> None:
    """A transaction that lacks a record is not committed."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x", max_block_ms=1000) as producer:
            with pytest.raises(TransactionAbortableError):
                async with producer.transaction():
                    producer.send(topic, b"x" * (2_000_000 if topic == "t" else 1), partition=0)
            async with producer.transaction():
                stage.send(producer)
        assert len(stage.cluster.log().visible()) == 1

    play(main)


def test_records_in_line_belong_to_their_transaction() -> None:
    """A record that waits for metadata when its transaction is aborted is never written."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x") as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    (receipt,) = stage.send(producer)
                    raise ZeroDivisionError
            async with producer.transaction():
                pass
            assert outcomes([receipt]) == ["TransactionAbortedError"]
        assert not stage.cluster.log().records

    play(main)


def test_an_id_that_took_too_long_is_waited_for_again() -> None:
    """After a TransactionTimeoutError of the first transaction, the next one begins."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x", max_block_ms=1000) as producer:
            stage.cluster.script.add(ApiKey.INIT_PRODUCER_ID, FaultKind.DELAY, delay_s=2)
            with pytest.raises(TransactionTimeoutError):
                async with producer.transaction():
                    pass
            await stage.pass_time(2)
            async with producer.transaction():
                stage.send(producer)
        assert len(stage.cluster.log().visible()) == 1

    play(main)


def test_a_coordinator_that_dies_is_looked_up_again() -> None:
    """The transaction goes on with the new coordinator."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x") as producer:
            async with producer.transaction():
                await stage.send(producer)[0]
                stage.cluster.kill(1)
                await stage.pass_time(1)
            assert stage.cluster.coordinator.ends == [True]
            assert stage.now < 10

    play(main, nodes=2)


def test_a_successor_fences_its_predecessor() -> None:
    """The older producer gets ProducerFencedError, and its records are not in the log."""

    async def main(stage: Stage) -> None:
        old = stage.producer(transactional_id="x")
        async with old.transaction():
            await stage.send(old)[0]
        with pytest.raises(ProducerFencedError):
            async with old.transaction():
                await stage.send(old)[0]
                async with stage.producer(transactional_id="x") as new, new.transaction():
                    stage.send(new)
        await old.close()
        assert [each.value for each in stage.cluster.log().visible()] == [b"0", b"2"]

    play(main)


def test_offsets_are_committed_with_the_transaction() -> None:
    """A group's offsets are there after the commit, and only then."""
    place = TopicPartition("in", 0)

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x") as producer:
            async with producer.transaction():
                stage.send(producer)
                await producer.send_offsets_to_transaction({place: 7}, "group")
                assert not stage.cluster.coordinator.offsets
            assert stage.cluster.coordinator.offsets == {("group", place): 7}
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({place: 9}, "group")
                    raise ZeroDivisionError
            assert stage.cluster.coordinator.offsets == {("group", place): 7}

    play(main)


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.FIND_COORDINATOR,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
    ],
    ids=lambda key: key.name,
)
def test_a_forced_close_ends_a_transaction_that_waits(key: ApiKey) -> None:
    """A call that waits for an answer raises; for a commit, that its outcome is unknown."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(key, FaultKind.LOSE)
        producer = stage.producer(transactional_id="x")

        async def commit() -> None:
            async with producer.transaction():
                stage.send(producer)
                await producer.send_offsets_to_transaction({T1: 3}, "group")

        task = asyncio.ensure_future(commit())
        await stage.pass_time(1)
        assert stage.cluster.count(key) == 1
        await producer.close(0)
        async with asyncio.timeout(1):
            (error,) = await asyncio.gather(task, return_exceptions=True)
        if key is ApiKey.END_TXN:
            assert isinstance(error, TransactionOutcomeUnknownError)
            assert error.is_final
        else:
            assert type(error).__name__ in {"ClosedProducerError", "TransactionStateError"}
        with pytest.raises(TailraceError):
            async with producer.transaction():
                pass
        assert stage.cluster.coordinator.ends == []

    play(main)


def test_an_orderly_close_of_an_open_transaction_leaves_none_of_its_records_visible() -> None:
    """The block raises at its end, and the coordinator is asked to abort."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(transactional_id="x")
        goes_on = asyncio.Event()

        async def transact() -> None:
            async with producer.transaction():
                await stage.send(producer)[0]
                await goes_on.wait()

        task = asyncio.ensure_future(transact())
        await stage.pass_time(1)
        async with asyncio.timeout(10):
            await producer.close()
        goes_on.set()
        (error,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(error, TailraceError)
        assert stage.cluster.coordinator.ends == [False]
        assert not stage.cluster.log().visible()

    play(main)


def test_an_abort_gives_up_what_was_not_sent_and_waits_for_what_was() -> None:
    """A batch in flight keeps its outcome; the one behind it is never written."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=2)
        async with stage.producer(transactional_id="x", batch_size=100) as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    receipts = stage.send(producer, 2, size=90)
                    await stage.pass_time(0.5)
                    raise ZeroDivisionError
            assert stage.now >= 2
            assert outcomes(receipts) == ["", "TransactionAbortedError"]
            assert len(stage.cluster.sent) == 1
            assert stage.cluster.coordinator.ends == [False]
            check_empty(producer)

    play(main)


def test_a_partition_that_is_refused_fails_all_that_was_not_sent() -> None:
    """Unsent records fail, even those for added partitions; the next transaction can commit."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=2)
        async with stage.producer(transactional_id="x", batch_size=100) as producer:
            with pytest.raises(TailraceError):
                async with producer.transaction():
                    sent, unsent = stage.send(producer, 2, partition=1, size=90)
                    await stage.pass_time(0.5)
                    assert stage.cluster.coordinator.transactions["x"].partitions == {T1}
                    stage.cluster.script.add(
                        ApiKey.ADD_PARTITIONS_TO_TXN,
                        FaultKind.ERROR,
                        error=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    )
                    (refused,) = stage.send(producer)
                    await stage.pass_time(0.5)
                    assert outcomes([unsent, refused]) == ["AuthorizationError"] * 2
                    assert not sent.done()
            assert outcomes([sent]) == [""]
            assert len(stage.cluster.sent) == 1
            assert stage.cluster.coordinator.ends == [False]
            async with producer.transaction():
                stage.send(producer)
        assert [each.value for each in stage.cluster.log().visible()] == [b"3"]

    # The coordinator is on the other node, so it answers while the batch waits for its own.
    play(main, nodes=2)


def test_a_transaction_begins_on_a_node_that_throttles() -> None:
    """The pause that it asked for is waited for, and then the coordinator is asked."""

    async def main(stage: Stage) -> None:
        stage.cluster.throttle_ms = 5000
        async with stage.producer(request_timeout_ms=1000) as plain:
            await stage.send(plain)[0]
        async with stage.producer(transactional_id="x", request_timeout_ms=1000) as producer:
            async with producer.transaction():
                await stage.send(producer)[0]
                began = stage.now
            assert stage.now - began >= 5
            async with producer.transaction():
                stage.send(producer)
        assert stage.cluster.coordinator.ends == [True, True]

    play(main)


def test_a_transaction_has_the_partitions_that_its_records_went_to() -> None:
    """The transaction has every partition that got records, keyless ones included, and no other."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x", batch_size=200) as producer:
            for _ in range(8):
                async with producer.transaction():
                    receipts = stage.send(producer, 5, partition=None, size=90)
                    for each in receipts:
                        await each
                    added = stage.cluster.coordinator.transactions["x"].partitions
                    assert {each.partition for each in added} == {
                        each.partition for each in receipts
                    }
        written = {each.partition.partition for each in stage.cluster.sent}
        assert len(written) > 1
        visible = sum(len(stage.cluster.log(partition=each).visible()) for each in range(4))
        assert visible == 40

    play(main, partitions=4)


def test_transactions_need_their_setting_and_records_need_a_transaction() -> None:
    """Calls that do not fit are refused with TransactionStateError."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            with pytest.raises(TransactionStateError):
                async with producer.transaction():
                    pass
        async with stage.producer(transactional_id="x") as producer:
            receipt = producer.send("t", b"v", partition=0)
            await stage.pass_time(1)
            assert outcomes([receipt]) == ["TransactionStateError"]

    play(main)


def test_a_batch_of_a_transaction_is_split_too() -> None:
    """Parts of a batch that was too large are committed together."""

    async def main(stage: Stage) -> None:
        stage.cluster.log().batch_bytes_max = 250
        async with stage.producer(transactional_id="x") as producer, producer.transaction():
            receipts = stage.send(producer, 12, size=50)
        assert outcomes(receipts) == [""] * 12
        assert len(stage.cluster.log().visible()) == 12
        stage.check_log()

    play(main)


def test_a_batch_that_may_be_written_is_not_cut_in_two() -> None:
    """Written, its answer lost, then called too large: its parts would be written again."""

    async def main(stage: Stage) -> None:
        async with stage.producer(linger_ms=5, request_timeout_ms=1000) as producer:
            await stage.send(producer)[0]
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.LOSE_REPLY)
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.MESSAGE_TOO_LARGE
            )
            receipts = stage.send(producer, 2)
            await producer.flush()
            assert outcomes(receipts) == ["RejectedRecordError"] * 2
        stage.check_log()

    play(main)
