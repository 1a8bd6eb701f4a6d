"""Transactions of version 2 (KIP-890): brokers add partitions, and each has its own epoch."""

from collections.abc import Iterator

import pytest

from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from tailrace.client.producer.errors import (
    ProducerFencedError,
    RejectedRecordError,
)
from tailrace.model import PRODUCER_EPOCH_MAX
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T0, Stage, check_empty, outcomes, play, transaction_version

ADDING = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN)


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """Clusters use version 2 from the start."""
    token = transaction_version.set(2)
    yield
    transaction_version.reset(token)


def values(stage: Stage) -> list[bytes | None]:
    """The values that readers of committed records see in the first partition."""
    return [each.value for each in stage.cluster.log().visible()]


def epochs(stage: Stage) -> list[tuple[int, int]]:
    """Id and epoch of each batch that was sent."""
    return [(each.producer_id, each.producer_epoch) for each in stage.cluster.sent]


async def reconnect(stage: Stage) -> None:
    """Have clients connect anew, and so ask what the cluster has."""
    stage.cluster.kill(1)
    stage.cluster.revive(1)
    await stage.pass_time(2)


def test_a_transaction_needs_no_request_but_its_end() -> None:
    """The epoch of the next one comes with the end, and numbers begin at 0 again."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x") as producer:
            for _ in range(2):
                async with producer.transaction():
                    stage.send(producer)
            await producer.begin_transaction()
            stage.send(producer)
            await producer.flush()
            await producer.abort_transaction()
            async with producer.transaction():
                stage.send(producer)
            check_empty(producer)
        assert values(stage) == [b"0", b"1", b"3"]
        assert epochs(stage) == [(1001, 0), (1001, 1), (1001, 2), (1001, 3)]
        assert {each.base_sequence for each in stage.cluster.sent} == {0}
        assert [stage.cluster.count(each) for each in ADDING] == [0, 0]
        assert stage.cluster.count(ApiKey.INIT_PRODUCER_ID) == 1
        assert stage.cluster.count(ApiKey.END_TXN) == 4

    play(main)


def test_offsets_go_to_their_group_without_an_announcement() -> None:
    """Committed offsets are there, and those of an aborted transaction are not."""

    async def main(stage: Stage) -> None:
        group = ConsumerGroupMetadata("readers")
        async with stage.producer(transactional_id="x") as producer:
            async with producer.transaction():
                await producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, group)
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({T0: OffsetAndMetadata(9)}, group)
            await producer.abort_transaction()
        assert stage.cluster.coordinator.offsets == {("readers", T0): 5}
        assert stage.cluster.count(ApiKey.ADD_OFFSETS_TO_TXN) == 0

    play(main)


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN])
@pytest.mark.parametrize("how", [FaultKind.CUT, FaultKind.CUT_AFTER])
def test_a_lost_request_or_answer_changes_nothing(api: ApiKey, how: FaultKind) -> None:
    """A request that is sent again is recognised, an end by the epoch of its transaction."""

    async def main(stage: Stage) -> None:
        group = ConsumerGroupMetadata("readers")
        async with stage.producer(transactional_id="x") as producer:
            for number in range(3):
                stage.cluster.script.add(api, how)
                async with producer.transaction():
                    stage.send(producer)
                    await producer.send_offsets_to_transaction(
                        {T0: OffsetAndMetadata(number)}, group
                    )
        assert values(stage) == [b"0", b"1", b"2"]
        assert stage.cluster.coordinator.offsets == {("readers", T0): 2}
        assert stage.cluster.coordinator.ends == [True] * 3
        stage.check_log()

    play(main)


def test_a_failed_transaction_gets_its_epoch_from_the_abort() -> None:
    """No id is asked for after a batch that was refused."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x") as producer:
            async with producer.transaction():
                stage.send(producer)
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.INVALID_RECORD
            )
            with pytest.raises(RejectedRecordError):
                async with producer.transaction():
                    refused = stage.send(producer)
            async with producer.transaction():
                stage.send(producer)
            assert outcomes(refused) == ["RejectedRecordError"]
            check_empty(producer)
        assert values(stage) == [b"0", b"2"]
        assert epochs(stage) == [(1001, 0), (1001, 1), (1001, 2)]
        assert stage.cluster.count(ApiKey.INIT_PRODUCER_ID) == 1

    play(main)


def test_a_successor_fences_the_producer_before() -> None:
    """Its records do not get into the log, and its commit fails."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x") as first:
            async with first.transaction():
                stage.send(first)
            async with stage.producer(transactional_id="x") as second:
                async with second.transaction():
                    stage.send(second)
                with pytest.raises(ProducerFencedError):
                    async with first.transaction():
                        stage.send(first)
        assert values(stage) == [b"0", b"1"]

    play(main)


def test_after_the_last_epoch_the_end_brings_another_id() -> None:
    """The next transaction has the new id with epoch 0."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x") as producer:
            async with producer.transaction():
                stage.send(producer)
            stage.cluster.coordinator.transactions["x"].epoch = PRODUCER_EPOCH_MAX - 1
            sequences = producer._engine.transactions
            assert sequences is not None
            sequences.sequences.become(sequences.producer._replace(epoch=PRODUCER_EPOCH_MAX - 1))
            for _ in range(2):
                async with producer.transaction():
                    stage.send(producer)
        assert epochs(stage) == [(1001, 0), (1001, PRODUCER_EPOCH_MAX - 1), (1002, 0)]
        assert values(stage) == [b"0", b"1", b"2"]

    play(main)


def test_a_cluster_may_be_upgraded_and_downgraded_between_transactions() -> None:
    """An upgrade takes a new epoch first, so that no late record gets into a later transaction."""

    async def main(stage: Stage) -> None:
        stage.cluster.set_transaction_version(0)
        async with stage.producer(transactional_id="x") as producer:
            added = []
            for after in (0, 2, 2, 0, 0):
                await producer.begin_transaction()
                stage.send(producer)
                await producer.flush()
                stage.cluster.set_transaction_version(after)
                await reconnect(stage)
                await producer.commit_transaction()
                added.append(stage.cluster.count(ApiKey.ADD_PARTITIONS_TO_TXN))
            check_empty(producer)
        assert added == [1, 2, 2, 2, 3]
        assert stage.cluster.count(ApiKey.INIT_PRODUCER_ID) == 2
        found = epochs(stage)
        assert found == [(1001, 0), (1001, 0), (1001, 1), (1001, 2), (1001, 3)]
        assert len(values(stage)) == 5

    play(main)


def test_a_commit_is_told_although_the_epoch_after_it_is_refused() -> None:
    """The transaction is visible, and the next one asks for the epoch again."""

    async def main(stage: Stage) -> None:
        stage.cluster.set_transaction_version(0)
        async with stage.producer(transactional_id="x") as producer:
            await producer.begin_transaction()
            stage.send(producer)
            await producer.flush()
            stage.cluster.set_transaction_version(2)
            await reconnect(stage)
            stage.cluster.script.add(
                ApiKey.INIT_PRODUCER_ID,
                FaultKind.ERROR,
                error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            )
            await producer.commit_transaction()
            assert values(stage) == [b"0"]
            async with producer.transaction():
                stage.send(producer)
            assert values(stage) == [b"0", b"1"]
            assert stage.cluster.count(ApiKey.INIT_PRODUCER_ID) == 3

    play(main)


def test_a_producer_without_transactions_sends_as_before() -> None:
    """The feature is about transactions; sequence numbers go on as they do."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            for _ in range(3):
                await stage.send(producer)[0]
        assert [each.base_sequence for each in stage.cluster.sent] == [0, 1, 2]
        assert stage.cluster.asked_version == 11

    play(main)
