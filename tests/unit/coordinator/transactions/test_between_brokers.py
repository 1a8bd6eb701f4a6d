"""Requests of transactions between brokers: what goes into one, and what its answer means."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tailrace.coordinator.transactions.between_brokers import (
    ITEMS_MAX,
    CoordinatorsElsewhere,
    MarkersElsewhere,
)
from tailrace.coordinator.transactions.markers import (
    LeaderMarkers,
    Marker,
    MarkerFencedError,
    MarkerNotNeededError,
    MarkerRefusedError,
)
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.errors import RetriableError, TailraceError
from tailrace.model import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tailrace.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tailrace.testing.outside import Outside, virtual_runtime
from tests.unit.coordinator.transactions.stage import A, B, C, producer_at

Codes = Mapping[TopicPartition, ErrorCode]


class LostError(RetriableError):
    """The connection was lost."""


def marker(producer_id: int = 7, epoch: int = 3, *, is_commit: bool = True) -> Marker:
    """The end of a producer's transaction."""
    return Marker(
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(epoch),
        is_commit=is_commit,
        coordinator_epoch=LeaderEpoch(9),
        transaction_version=2,
    )


def asked(
    partitions: set[TopicPartition], *, name: str = "t", epoch: int = 3, producer_id: int = 7
) -> AddPartitions:
    """A request for partitions of a transaction."""
    return AddPartitions(
        transactional_id=name,
        producer=producer_at(producer_id, epoch),
        partitions=frozenset(partitions),
    )


@dataclass
class Brokers:
    """The other brokers: they note requests, and answer each partition with its code."""

    codes: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    fault: TailraceError | None = None
    """The error of all requests."""
    whole_code: ErrorCode = ErrorCode.NONE
    is_old: bool = False
    is_free: asyncio.Event = field(default_factory=asyncio.Event)
    """Not set while answers have to wait."""
    silent: set[TopicPartition] = field(default_factory=set)
    """Partitions that answers leave out."""
    markers: list[tuple[int, WriteTxnMarkersRequest]] = field(default_factory=list)
    questions: list[tuple[int, AddPartitionsToTxnRequest]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.is_free.set()

    async def write(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """Answer WriteTxnMarkers as Kafka does: once for each producer."""
        self.markers.append((broker_id, request))
        await self.is_free.wait()
        if self.fault is not None:
            raise self.fault
        results: dict[int, list[WritableTxnMarkerTopicResult]] = {}
        for each in request.markers:
            results.setdefault(each.producer_id, []).extend(
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=tuple(
                        WritableTxnMarkerPartitionResult(
                            partition_index=number, error_code=self._code(topic.name, number)
                        )
                        for number in topic.partition_indexes
                        if TopicPartition(topic.name, number) not in self.silent
                    ),
                )
                for topic in each.topics
            )
        return WriteTxnMarkersResponse(
            markers=tuple(
                WritableTxnMarkerResult(producer_id=each, topics=tuple(topics))
                for each, topics in results.items()
            )
        )

    async def verify(
        self, broker_id: int, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse | None:
        """Answer AddPartitionsToTxn v4."""
        self.questions.append((broker_id, request))
        await self.is_free.wait()
        if self.fault is not None:
            raise self.fault
        if self.is_old:
            return None
        return AddPartitionsToTxnResponse(
            error_code=self.whole_code,
            results_by_transaction=tuple(
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=tuple(
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=tuple(
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=number,
                                    partition_error_code=self._code(topic.name, number),
                                )
                                for number in topic.partitions
                                if TopicPartition(topic.name, number) not in self.silent
                            ),
                        )
                        for topic in each.topics
                    ),
                )
                for each in request.transactions
            ),
        )

    def _code(self, topic: str, number: int) -> ErrorCode:
        return self.codes.get(TopicPartition(topic, number), ErrorCode.NONE)


def play(scenario: Callable[[Outside, Brokers], Coroutine[Any, Any, None]]) -> Brokers:
    """Run a scenario with other brokers."""
    with virtual_runtime() as outside:

        async def main() -> Brokers:
            brokers = Brokers()
            await scenario(outside, brokers)
            return brokers

        return outside.run(main())


def written(brokers: Brokers) -> list[tuple[int, list[tuple[int, list[TopicPartition]]]]]:
    """The requests: broker, and of each marker the producer and the partitions."""
    return [
        (
            broker_id,
            [
                (
                    each.producer_id,
                    [
                        TopicPartition(topic.name, number)
                        for topic in each.topics
                        for number in topic.partition_indexes
                    ],
                )
                for each in request.markers
            ],
        )
        for broker_id, request in brokers.markers
    ]


def test_one_request_has_all_markers_of_a_broker() -> None:
    """All transactions and partitions are in it, with epoch, end and version of each."""

    async def scenario(_: Outside, brokers: Brokers) -> None:
        markers = MarkersElsewhere(brokers.write)
        await asyncio.gather(
            markers.write(2, A, marker()),
            markers.write(2, C, marker()),
            markers.write(3, B, marker()),
            markers.write(2, A, marker(8, 5, is_commit=False)),
        )
        markers.close()

    brokers = play(scenario)
    assert written(brokers) == [(2, [(7, [A, C]), (8, [A])]), (3, [(7, [B])])]
    first, second = brokers.markers[0][1].markers
    assert (first.producer_epoch, first.transaction_result) == (3, True)
    assert (first.coordinator_epoch, first.transaction_version) == (9, 2)
    assert (second.producer_epoch, second.transaction_result) == (5, False)


def test_markers_collect_while_a_request_is_under_way() -> None:
    """The next request has them all; another broker is not waited for."""

    async def scenario(outside: Outside, brokers: Brokers) -> None:
        markers = MarkersElsewhere(brokers.write)
        brokers.is_free.clear()
        writes = [asyncio.ensure_future(markers.write(2, A, marker()))]
        await outside.pass_time(1)
        writes += [
            asyncio.ensure_future(markers.write(2, B, marker())),
            asyncio.ensure_future(markers.write(3, C, marker())),
        ]
        await outside.pass_time(1)
        writes.append(asyncio.ensure_future(markers.write(2, C, marker(8))))
        await outside.pass_time(1)
        assert written(brokers) == [(2, [(7, [A])]), (3, [(7, [C])])]
        brokers.is_free.set()
        await asyncio.gather(*writes)
        assert written(brokers)[2:] == [(2, [(7, [B]), (8, [C])])]

    play(scenario)


def test_a_marker_of_a_coordinator_that_has_resigned_is_not_sent() -> None:
    """Nor is a request that would have been for it alone; an answer that comes is ignored."""

    async def scenario(outside: Outside, brokers: Brokers) -> None:
        markers = MarkersElsewhere(brokers.write)
        brokers.is_free.clear()
        under_way = asyncio.ensure_future(markers.write(2, A, marker()))
        await outside.pass_time(1)
        queued = [asyncio.ensure_future(markers.write(2, each, marker())) for each in (B, C)]
        alone = asyncio.ensure_future(markers.write(3, C, marker()))
        await outside.pass_time(0)
        for each in (under_way, queued[0], alone):
            each.cancel()
        await outside.pass_time(1)
        brokers.is_free.set()
        await queued[1]
        assert written(brokers) == [(2, [(7, [A])]), (2, [(7, [C])])]

    play(scenario)


def test_two_markers_of_a_producer_have_a_request_each() -> None:
    """The answer would not tell them apart."""

    async def scenario(_: Outside, brokers: Brokers) -> None:
        markers = MarkersElsewhere(brokers.write)
        await asyncio.gather(
            markers.write(2, A, marker()), markers.write(2, A, marker(epoch=4, is_commit=False))
        )

    brokers = play(scenario)
    assert [request.markers[0].producer_epoch for _, request in brokers.markers] == [3, 4]


def test_a_request_has_a_limit() -> None:
    """More markers take several requests, one after the other."""
    partitions = [TopicPartition("many", each) for each in range(2 * ITEMS_MAX + 1)]

    async def scenario(_: Outside, brokers: Brokers) -> None:
        markers = MarkersElsewhere(brokers.write)
        await asyncio.gather(*(markers.write(2, each, marker()) for each in partitions))

    brokers = play(scenario)
    sent = [found for _, [(_, found)] in written(brokers)]
    assert [len(each) for each in sent] == [ITEMS_MAX, ITEMS_MAX, 1]
    assert [each for part in sent for each in part] == partitions


OUTCOMES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: MarkerRefusedError,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: MarkerRefusedError,
    ErrorCode.NOT_ENOUGH_REPLICAS: MarkerRefusedError,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: MarkerRefusedError,
    ErrorCode.REQUEST_TIMED_OUT: MarkerRefusedError,
    ErrorCode.KAFKA_STORAGE_ERROR: MarkerRefusedError,
    ErrorCode.INVALID_PRODUCER_EPOCH: MarkerFencedError,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: MarkerFencedError,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: MarkerNotNeededError,
    ErrorCode.UNSUPPORTED_VERSION: MarkerNotNeededError,
    # Kafka stops its sender at these.
    ErrorCode.UNKNOWN_SERVER_ERROR: MarkerRefusedError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: MarkerRefusedError,
    ErrorCode.CORRUPT_MESSAGE: MarkerRefusedError,
    ErrorCode.MESSAGE_TOO_LARGE: MarkerRefusedError,
    ErrorCode.RECORD_LIST_TOO_LARGE: MarkerRefusedError,
    ErrorCode.INVALID_REQUIRED_ACKS: MarkerRefusedError,
}


@pytest.mark.parametrize(("code", "outcome"), OUTCOMES.items())
def test_a_partition_that_does_not_take_its_marker(
    code: ErrorCode, outcome: type[Exception]
) -> None:
    """Its code says whether the marker is tried again; the others of the request are written."""

    async def scenario(_: Outside, brokers: Brokers) -> None:
        brokers.codes[A] = code
        markers = MarkersElsewhere(brokers.write)
        results = await asyncio.gather(
            markers.write(2, A, marker()), markers.write(2, C, marker()), return_exceptions=True
        )
        assert [type(each) for each in results] == [outcome, type(None)]
        assert code.name in str(results[0])

    play(scenario)


def test_markers_without_an_answer_are_tried_again() -> None:
    """The connection is lost, or the answer lacks the partition."""

    async def scenario(_: Outside, brokers: Brokers) -> None:
        markers = MarkersElsewhere(brokers.write)
        brokers.fault = LostError("connection lost")
        with pytest.raises(MarkerRefusedError, match="broker 2: connection lost"):
            await markers.write(2, A, marker())
        brokers.fault = None
        brokers.silent.add(A)
        with pytest.raises(MarkerRefusedError, match="has not answered for flights-0"):
            await markers.write(2, A, marker())
        brokers.silent.clear()
        await markers.write(2, A, marker())

    assert len(play(scenario).markers) == 3


@dataclass
class Leaders:
    """The cluster, as this broker knows it."""

    leaders: dict[TopicPartition, int | None]
    node_id: int = 1

    def has_partition(self, partition: TopicPartition) -> bool:
        return partition in self.leaders

    def leader_of(self, partition: TopicPartition) -> int | None:
        return self.leaders[partition]


class Own:
    """The partitions that this broker leads."""

    def __init__(self) -> None:
        self.written: list[TopicPartition] = []

    async def write(self, partition: TopicPartition, marker: Marker) -> None:  # noqa: ARG002
        """Take a marker."""
        self.written.append(partition)


def test_a_marker_goes_to_the_leader_of_the_moment() -> None:
    """This broker or another; without a leader it waits, and a deleted partition needs none."""

    async def scenario(_: Outside, brokers: Brokers) -> None:
        cluster, own = Leaders({A: 1, B: 2, C: None}), Own()
        markers = LeaderMarkers(own, cluster, elsewhere=MarkersElsewhere(brokers.write))
        await markers.write(A, marker())
        await markers.write(B, marker())
        with pytest.raises(MarkerRefusedError, match="planes-0 has no leader"):
            await markers.write(C, marker())
        cluster.leaders |= {A: 3, C: 1}
        await markers.write(A, marker())
        await markers.write(C, marker())
        del cluster.leaders[B]
        with pytest.raises(MarkerNotNeededError, match="flights-1 is deleted"):
            await markers.write(B, marker())
        assert own.written == [A, C]

    assert written(play(scenario)) == [(2, [(7, [B])]), (3, [(7, [A])])]


# -- AddPartitionsToTxn ----------------------------------------------------------------------


def questions(brokers: Brokers) -> list[tuple[int, list[tuple[str, bool]]]]:
    """The requests: broker, and of each transaction its id, and whether it is only verified."""
    return [
        (broker_id, [(each.transactional_id, each.verify_only) for each in request.transactions])
        for broker_id, request in brokers.questions
    ]


def test_one_request_has_all_transactions_of_a_coordinator() -> None:
    """Some are verified, some are added to; the answer goes to each."""

    async def scenario(_: Outside, brokers: Brokers) -> None:
        brokers.codes[C] = ErrorCode.TRANSACTION_ABORTABLE
        elsewhere = CoordinatorsElsewhere(brokers.verify)
        found = await asyncio.gather(
            elsewhere.ask(2, asked({A, B}), is_adding=False),
            elsewhere.ask(2, asked({A, C}, name="u"), is_adding=True),
            elsewhere.ask(3, asked({A}, name="v"), is_adding=True),
        )
        assert list(found) == [
            {A: ErrorCode.NONE, B: ErrorCode.NONE},
            {A: ErrorCode.NONE, C: ErrorCode.TRANSACTION_ABORTABLE},
            {A: ErrorCode.NONE},
        ]
        elsewhere.close()

    brokers = play(scenario)
    assert questions(brokers) == [(2, [("t", True), ("u", False)]), (3, [("v", False)])]
    first = brokers.questions[0][1].transactions[0]
    assert (first.producer_id, first.producer_epoch) == (7, 3)
    assert [(each.name, each.partitions) for each in first.topics] == [("flights", (0, 1))]


def test_a_second_request_of_an_id_waits_for_the_first() -> None:
    """The answer has one result for an id: a producer that begins two partitions gets both."""

    async def scenario(_: Outside, brokers: Brokers) -> None:
        brokers.codes[C] = ErrorCode.TRANSACTION_ABORTABLE
        elsewhere = CoordinatorsElsewhere(brokers.verify)
        found = await asyncio.gather(
            elsewhere.ask(2, asked({A}), is_adding=True),
            elsewhere.ask(2, asked({C}), is_adding=True),
        )
        assert list(found) == [{A: ErrorCode.NONE}, {C: ErrorCode.TRANSACTION_ABORTABLE}]

    assert questions(play(scenario)) == [(2, [("t", False)]), (2, [("t", False)])]


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_newer_epoch_fences_an_older_one_that_waits(is_reversed: bool) -> None:  # noqa: FBT001
    """Whichever came first; the epochs of another producer id are not compared."""

    async def scenario(_: Outside, brokers: Brokers) -> None:
        elsewhere = CoordinatorsElsewhere(brokers.verify)
        requests = [asked({A}, epoch=3), asked({B}, epoch=4)]
        found = await asyncio.gather(
            *(
                elsewhere.ask(2, each, is_adding=False)
                for each in (reversed(requests) if is_reversed else requests)
            ),
            elsewhere.ask(2, asked({C}, epoch=0, producer_id=8), is_adding=False),
        )
        assert {partition: code for each in found for partition, code in each.items()} == {
            A: ErrorCode.INVALID_PRODUCER_EPOCH,
            B: ErrorCode.NONE,
            C: ErrorCode.NONE,
        }

    play(scenario)


def test_requests_collect_while_one_is_under_way() -> None:
    """A caller whose client has gone is left out."""

    async def scenario(outside: Outside, brokers: Brokers) -> None:
        elsewhere = CoordinatorsElsewhere(brokers.verify)
        brokers.is_free.clear()
        calls = []
        for name in "tuv":
            calls.append(
                asyncio.ensure_future(elsewhere.ask(2, asked({A}, name=name), is_adding=False))
            )
            await outside.pass_time(1)
        calls[1].cancel()
        brokers.is_free.set()
        assert await calls[0] == await calls[2] == {A: ErrorCode.NONE}

    assert questions(play(scenario)) == [(2, [("t", True)]), (2, [("v", True)])]


def answer_of(
    prepare: Callable[[Brokers], None], *, is_adding: bool
) -> Mapping[TopicPartition, ErrorCode]:
    """The answer for A and C."""
    found: dict[TopicPartition, ErrorCode] = {}

    async def scenario(_: Outside, brokers: Brokers) -> None:
        prepare(brokers)
        call: Awaitable[Codes] = CoordinatorsElsewhere(brokers.verify).ask(
            2, asked({A, C}), is_adding=is_adding
        )
        found.update(await call)

    play(scenario)
    return found


@pytest.mark.parametrize("is_adding", [False, True])
def test_a_coordinator_that_does_not_answer(is_adding: bool) -> None:  # noqa: FBT001
    """Its partitions are not verified, and the producer sends again."""

    def lose(brokers: Brokers) -> None:
        brokers.fault = LostError("connection lost")

    def leave_out(brokers: Brokers) -> None:
        brokers.silent.add(C)

    lost = ErrorCode.NETWORK_EXCEPTION
    assert answer_of(lose, is_adding=is_adding) == {A: lost, C: lost}
    assert answer_of(leave_out, is_adding=is_adding) == {A: ErrorCode.NONE, C: lost}


def test_a_coordinator_before_kip_890_verifies_nothing() -> None:
    """Its producers may write, as with Kafka; but nothing can be added by it."""

    def age(brokers: Brokers) -> None:
        brokers.is_old = True

    assert set(answer_of(age, is_adding=False).values()) == {ErrorCode.NONE}
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert set(answer_of(age, is_adding=True).values()) == {unavailable}


@pytest.mark.parametrize(
    ("code", "answered"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_refusal_of_the_whole_request_is_for_each_partition(
    code: ErrorCode, answered: ErrorCode
) -> None:
    """The right that this broker lacks is not named to the client, which has none to do with it."""

    def refuse(brokers: Brokers) -> None:
        brokers.whole_code = code

    assert set(answer_of(refuse, is_adding=False).values()) == {answered}
