"""DescribeTransactions and ListTransactions."""

import pytest

from tailrace.coordinator.transactions.state import TransactionStatus
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_transactions import TopicData, TransactionState
from tailrace.protocol.messages.list_transactions import ListTransactionsRequest
from tests.unit.coordinator.transactions.stage import NOW, A, B, C, Stage, play, stored


def everybody(_: str) -> bool:
    """All topics and ids may be seen."""
    return True


async def listed(stage: Stage, request: ListTransactionsRequest) -> list[str]:
    """Ids and states of the transactions of a list."""
    found = await stage.coordinator.list_transactions(request, everybody)
    assert found.error_code == ErrorCode.NONE
    return [
        f"{each.transactional_id} {each.producer_id} {each.transaction_state}"
        for each in found.transaction_states
    ]


def test_a_transaction_is_described_with_its_partitions() -> None:
    """By topic, and only of topics that the client may see."""

    async def scenario(stage: Stage) -> None:
        assert await stage.coordinator.describe("t", lambda topic: topic == "flights") == (
            TransactionState(
                transactional_id="t",
                transaction_state="Ongoing",
                transaction_timeout_ms=60_000,
                transaction_start_time_ms=NOW,
                producer_id=7,
                producer_epoch=3,
                topics=(TopicData(topic="flights", partitions=(0, 1)),),
            )
        )

    play(scenario, stored(TransactionStatus.ONGOING, partitions=[B, A, C]))


@pytest.mark.parametrize(
    ("transactional_id", "error"),
    [("", ErrorCode.INVALID_REQUEST), ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)],
)
def test_an_id_that_is_not_known_is_not_described(transactional_id: str, error: ErrorCode) -> None:
    """By its error, with the id that was asked for."""

    async def scenario(stage: Stage) -> None:
        found = await stage.coordinator.describe(transactional_id, everybody)
        assert (found.transactional_id, found.error_code) == (transactional_id, error)

    play(scenario)


def test_transactions_are_listed_by_state_producer_and_duration() -> None:
    """States that no Kafka has are named in the reply, and match nothing."""
    names = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]

    async def scenario(stage: Stage) -> None:
        assert await listed(stage, ListTransactionsRequest()) == [
            f"{number} 7 {name}" for number, name in enumerate(names)
        ]
        request = ListTransactionsRequest(state_filters=("Ongoing", "Dead", "Asleep"))
        assert await listed(stage, request) == ["1 7 Ongoing"]
        found = await stage.coordinator.list_transactions(request, everybody)
        assert found.unknown_state_filters == ("Asleep",)
        only_unknown = ListTransactionsRequest(state_filters=("Asleep",))
        assert await listed(stage, only_unknown) == []
        assert await listed(stage, ListTransactionsRequest(producer_id_filters=(8,))) == []
        both = ListTransactionsRequest(producer_id_filters=(7, 8), state_filters=("Empty",))
        assert await listed(stage, both) == ["0 7 Empty"]

    play(
        scenario,
        *(stored(TransactionStatus(each), transactional_id=str(each)) for each in range(6)),
        are_markers_held=True,
    )


def test_long_transactions_are_listed_by_their_duration() -> None:
    """Longer than so many milliseconds since their begin."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(5)
        [transaction] = next(stage.shards.machines())
        open_ms = stage.outside.clock.now_ms() - transaction.start_ms
        for duration_ms, found in ((-1, 1), (0, 1), (open_ms - 1, 1), (open_ms, 0), (6_000, 0)):
            request = ListTransactionsRequest(duration_filter=duration_ms)
            assert len(await listed(stage, request)) == found

    play(scenario, stored(TransactionStatus.ONGOING))


def test_only_ids_that_the_client_may_see_are_listed() -> None:
    """The handler gives the predicate, since it knows the pattern of the request."""

    async def scenario(stage: Stage) -> None:
        found = await stage.coordinator.list_transactions(
            ListTransactionsRequest(), lambda transactional_id: transactional_id == "u"
        )
        assert [each.transactional_id for each in found.transaction_states] == ["u"]

    play(scenario, stored(), stored(transactional_id="u"))


def test_an_id_is_not_described_before_its_partition_is_loaded() -> None:
    """The client is told to ask again."""

    async def scenario(stage: Stage) -> None:
        await stage.shards.stop()
        stage.log.seconds_per_read = 5
        await stage.load()
        found = await stage.coordinator.describe("t", everybody)
        assert found.transactional_id == "t"
        assert found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    play(scenario, stored())


def test_a_list_waits_until_all_partitions_are_loaded() -> None:
    """A part of the transactions would look like all of them."""

    async def scenario(stage: Stage) -> None:
        await stage.shards.stop()
        stage.log.seconds_per_read = 5
        await stage.load()
        found = await stage.coordinator.list_transactions(ListTransactionsRequest(), everybody)
        assert found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await stage.outside.pass_time(6)
        assert await listed(stage, ListTransactionsRequest()) == ["t 7 Empty"]

    play(scenario, stored())


def test_a_partition_that_cannot_be_read_is_left_out_of_a_list() -> None:
    """The broker coordinates none of its ids."""

    async def scenario(stage: Stage) -> None:
        stage.log.content = [stage.log.content[0][:-1] + b"\xff"]
        await stage.restart()
        assert await listed(stage, ListTransactionsRequest()) == []
        assert (await stage.init()).error is ErrorCode.NOT_COORDINATOR

    play(scenario, stored())
