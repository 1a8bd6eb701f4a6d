"""Requests of transactions from one broker to another: markers, and partitions that are added.

    MarkersElsewhere        WriteTxnMarkers, from a coordinator to the leaders of partitions
    CoordinatorsElsewhere   AddPartitionsToTxn v4 and later, from such a leader to a coordinator
                            (KIP-890)
      |
      '- BrokerQueues       one request at a time to each broker, with all that waits for it

As Kafka's TransactionMarkerChannelManager and AddPartitionsToTxnManager: while a request is under
way the next one collects, so that many transactions cost few requests. Not here: which broker is
the right one, and retries, by whose time another may be; and connections, which `AskMarkers` and
`AskCoordinator` have.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from tailrace.coordinator.transactions.markers import (
    Marker,
    MarkerFencedError,
    MarkerNotNeededError,
    MarkerRefusedError,
)
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.coordinator.transactions.state import NO_EPOCH
from tailrace.errors import TailraceError
from tailrace.model import ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tailrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ItemT = TypeVar("ItemT")

AskMarkers = Callable[[int, WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]
"""Asks a broker, by its id; raises a TailraceError where no answer comes."""

AskCoordinator = Callable[
    [int, AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse | None]
]
"""Likewise; None: the broker is so old that it does not have version 4 of the request."""

Verdicts = dict[TopicPartition, ErrorCode]
"""NONE, or an error, for each partition that a coordinator was asked about."""

ITEMS_MAX: Final = 1000
"""Most items of one request: it is made and read in one turn of the loop, of a few milliseconds."""

_NOT_NEEDED = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})

logger = logging.getLogger(__name__)


class BrokerQueues(Generic[ItemT]):
    """Items by the broker that they are for; `send` gets those of one, and never raises."""

    def __init__(self, send: Callable[[int, list[ItemT]], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: defaultdict[int, list[ItemT]] = defaultdict(list)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """One for each broker that has items; it owns the request that is under way."""

    def add(self, broker_id: int, item: ItemT) -> None:
        """Send an item with the next request to a broker."""
        self._waiting[broker_id].append(item)
        # The task begins after this turn of the loop: all partitions of a transaction, whose writes
        # begin in one turn, are in its request.
        if broker_id not in self._tasks:
            self._tasks[broker_id] = asyncio.ensure_future(self._run(broker_id))

    async def _run(self, broker_id: int) -> None:
        try:
            while waiting := self._waiting[broker_id]:
                self._waiting[broker_id] = waiting[ITEMS_MAX:]
                await self._send(broker_id, waiting[:ITEMS_MAX])
        finally:
            # Brokers come and go; what is left here after a cancelled task is asked for by nobody.
            del self._waiting[broker_id], self._tasks[broker_id]

    def close(self) -> None:
        """Send nothing more; the answer to a request that is under way is not waited for."""
        for task in tuple(self._tasks.values()):
            task.cancel()


class _QueuedMarker(NamedTuple):
    partition: TopicPartition
    marker: Marker
    written: "asyncio.Future[None]"
    """Cancelled where the coordinator has resigned: the marker is the next leader's then."""


class MarkersElsewhere:
    """Writes markers to partitions that other brokers lead."""

    def __init__(self, ask: AskMarkers) -> None:
        self._ask = ask
        self._queues = BrokerQueues(self._send)

    async def write(self, broker_id: int, partition: TopicPartition, marker: Marker) -> None:
        """Return when the marker is committed at the broker that leads a partition.

        A caller that is cancelled before the request leaves takes its marker out of it.

        Raises:
            MarkerRefusedError: it may be written later, perhaps by another broker; or it is
                written, and the answer has not come: a partition takes a marker twice.
            MarkerNotNeededError, MarkerFencedError: as `MarkerWriter.write`.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.add(broker_id, _QueuedMarker(partition, marker, written))
        await written

    def close(self) -> None:
        self._queues.close()

    async def _send(self, broker_id: int, queued: list[_QueuedMarker]) -> None:
        wanted = self._of_one_request(broker_id, queued)
        if not wanted:
            return
        try:
            answer = await self._ask(broker_id, _markers_request(wanted))
        except (TailraceError, OSError) as error:
            for each in wanted:
                _fail(each.written, MarkerRefusedError(f"broker {broker_id}: {error}"))
            return
        # Kafka's brokers answer once for each producer, however many markers of it there were.
        codes = {
            (marker.producer_id, topic.name, each.partition_index): each.error_code
            for marker in answer.markers
            for topic in marker.topics
            for each in topic.partitions
        }
        for each in wanted:
            code = codes.get((each.marker.producer_id, *each.partition))
            refusal = _marker_error(each.partition, code, broker_id)
            if refusal is not None:
                _fail(each.written, refusal)
            elif not each.written.done():
                each.written.set_result(None)

    def _of_one_request(self, broker_id: int, queued: list[_QueuedMarker]) -> list[_QueuedMarker]:
        """The markers that are still wanted, of one transaction for each producer."""
        wanted: list[_QueuedMarker] = []
        markers: dict[ProducerId, Marker] = {}
        for each in queued:
            if each.written.done():
                continue
            # The answer has producers and no epochs, so a second marker of one comes later.
            if markers.setdefault(each.marker.producer_id, each.marker) == each.marker:
                wanted.append(each)
            else:
                self._queues.add(broker_id, each)
        return wanted


def _markers_request(queued: Iterable[_QueuedMarker]) -> WriteTxnMarkersRequest:
    by_marker: defaultdict[Marker, list[TopicPartition]] = defaultdict(list)
    for each in queued:
        by_marker[each.marker].append(each.partition)
    return WriteTxnMarkersRequest(
        markers=tuple(
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=tuple(
                    WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
                    for name, numbers in _by_topic(partitions)
                ),
                coordinator_epoch=marker.coordinator_epoch,
                # A broker before KIP-1228 takes v1, which leaves it out, and checks less.
                transaction_version=marker.transaction_version,
            )
            for marker, partitions in by_marker.items()
        )
    )


def _marker_error(
    partition: TopicPartition, code: int | None, broker_id: int
) -> TailraceError | None:
    """Kafka's TransactionMarkerRequestCompletionHandler, but for codes that end its thread."""
    if code == ErrorCode.NONE:
        return None
    if code is None:
        return MarkerRefusedError(f"broker {broker_id} has not answered for {partition}")
    text = f"broker {broker_id} answers {_known_code(code).name} for {partition}"
    if code in _FENCED:
        return MarkerFencedError(text)
    # Its producer could not have written there either.
    if code in _NOT_NEEDED:
        return MarkerNotNeededError(text)
    # Also for codes that a coordinator should not get, as CLUSTER_AUTHORIZATION_FAILED: readers of
    # committed records stop at the open transaction until somebody has mended that.
    return MarkerRefusedError(text)


class _QueuedRequest(NamedTuple):
    request: AddPartitions
    is_adding: bool
    verdicts: "asyncio.Future[Verdicts]"

    def answer(self, code: ErrorCode) -> None:
        """The same code for each partition."""
        self.settle(dict.fromkeys(self.request.partitions, code))

    def settle(self, verdicts: Verdicts) -> None:
        if not self.verdicts.done():
            self.verdicts.set_result(verdicts)


class CoordinatorsElsewhere:
    """Asks other brokers, which coordinate them, whether partitions are in transactions."""

    def __init__(self, ask: AskCoordinator) -> None:
        self._ask = ask
        self._queues = BrokerQueues(self._send)
        self._silent: set[int] = set()
        """Brokers whose last request had no answer."""

    async def ask(self, broker_id: int, request: AddPartitions, *, is_adding: bool) -> Verdicts:
        """Whether partitions are in a transaction; with `is_adding` they are added, all or none.

        NETWORK_EXCEPTION where no answer has come: they may have been added.
        """
        verdicts: asyncio.Future[Verdicts] = asyncio.get_running_loop().create_future()
        self._queues.add(broker_id, _QueuedRequest(request, is_adding, verdicts))
        return await verdicts

    def close(self) -> None:
        self._queues.close()

    async def _send(self, broker_id: int, queued: list[_QueuedRequest]) -> None:
        wanted = self._of_one_request(broker_id, queued)
        if not wanted:
            return
        try:
            answer = await self._ask(broker_id, _add_partitions_request(wanted))
        except (TailraceError, OSError) as error:
            # Once: producers send again at once, for as long as the broker is away.
            if broker_id not in self._silent:
                logger.warning(
                    "transactions_not_verified broker=%d count=%d reason=%s; their producers send "
                    "again", broker_id, len(wanted), error,
                )  # fmt: skip
            self._silent.add(broker_id)
            for each in wanted:
                each.answer(ErrorCode.NETWORK_EXCEPTION)
            return
        if broker_id in self._silent:
            self._silent.discard(broker_id)
            logger.info("transactions_verified_again broker=%d", broker_id)
        if answer is None:
            _answer_unverified(wanted)
            return
        if answer.error_code:
            code = _known_code(answer.error_code)
            # Of this broker's right, and not of the client's, which it would take for its own.
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                code = ErrorCode.INVALID_TXN_STATE
            for each in wanted:
                each.answer(code)
            return
        codes = {
            (result.transactional_id, topic.name, each.partition_index): each.partition_error_code
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for each in wanted:
            transactional_id = each.request.transactional_id
            each.settle(
                {
                    # What the answer leaves out is not verified; its producer sends again.
                    partition: _known_code(
                        codes.get((transactional_id, *partition), ErrorCode.NETWORK_EXCEPTION)
                    )
                    for partition in each.request.partitions
                }
            )

    def _of_one_request(
        self, broker_id: int, queued: Sequence[_QueuedRequest]
    ) -> list[_QueuedRequest]:
        """The requests that are still wanted, one for each transactional id."""
        newest: dict[tuple[str, ProducerId], ProducerEpoch] = {}
        for each in queued:
            key = each.request.transactional_id, each.request.producer.producer_id
            newest[key] = max(newest.get(key, NO_EPOCH), each.request.producer.producer_epoch)
        wanted: dict[str, _QueuedRequest] = {}
        for each in queued:
            transactional_id, (producer_id, epoch) = (
                each.request.transactional_id, each.request.producer,
            )  # fmt: skip
            if each.verdicts.done():
                continue
            if epoch < newest[transactional_id, producer_id]:
                # The next producer of the id has been here already.
                each.answer(ErrorCode.INVALID_PRODUCER_EPOCH)
            elif wanted.setdefault(transactional_id, each) is not each:
                # The answer has one result for an id. Kafka answers the earlier request with
                # NETWORK_EXCEPTION, as if it were repeated. It may as well be the next one of
                # the producer, for another partition: both are answered, one after the other.
                self._queues.add(broker_id, each)
        return list(wanted.values())


def _answer_unverified(queued: Iterable[_QueuedRequest]) -> None:
    # A broker before KIP-890 verifies nothing. Its transactions were never safe from late records,
    # and Kafka takes these, too. But to add partitions needs `transaction.version` 2, which a
    # cluster with such a broker cannot have.
    for each in queued:
        each.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE if each.is_adding else ErrorCode.NONE)


def _add_partitions_request(queued: Iterable[_QueuedRequest]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=tuple(
            AddPartitionsToTxnTransaction(
                transactional_id=request.transactional_id,
                producer_id=request.producer.producer_id,
                producer_epoch=request.producer.producer_epoch,
                verify_only=not is_adding,
                topics=tuple(
                    AddPartitionsToTxnTopic(name=name, partitions=numbers)
                    for name, numbers in _by_topic(request.partitions)
                ),
            )
            for request, is_adding, _ in queued
        )
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, tuple[int, ...]]]:
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for each in sorted(partitions):
        numbers[each.topic].append(each.partition)
    return [(name, tuple(found)) for name, found in numbers.items()]


def _known_code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _fail(written: "asyncio.Future[None]", error: TailraceError) -> None:
    if not written.done():
        written.set_exception(error)
