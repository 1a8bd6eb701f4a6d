"""`TransactionCoordinator`: the requests of clients, to the partitions that this broker leads.

Who may ask, and which topics there are, `handlers` knows and says in the arguments.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from tailrace.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from tailrace.coordinator.machine import Decision, TransactionalProducer
from tailrace.coordinator.shards import Shards
from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.coordinator.transactions.requests import (
    NO_PRODUCER,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerReply,
)
from tailrace.coordinator.transactions.settings import TransactionSettings
from tailrace.coordinator.transactions.state import (
    CLASSIC,
    EPOCH_PER_TRANSACTION,
    Transaction,
    TransactionStatus,
)
from tailrace.errors import RecordTooLargeError, StorageError
from tailrace.model import ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from tailrace.protocol.messages.describe_transactions import TopicData, TransactionState
from tailrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tailrace.protocol.messages.list_transactions import TransactionState as Listed
from tailrace.runtime.slices import Slices

T = TypeVar("T")

Unavailable = CoordinatorLoadInProgressError | CoordinatorNotAvailableError | NotCoordinatorError
_UNAVAILABLE = CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError

_STATUSES = {status.label: status for status in TransactionStatus}

ID_BYTES_MAX = 32_767
"""Size of a transactional id in UTF-8 that fits into the key of a record."""

Decide = Callable[[TransactionMachine, int, ProducerId | None], Decision[ProducerReply | None]]
"""Decides on a machine with the time of day and, the second time, a new producer id."""


class TransactionCoordinator:
    """The transactions of this broker; `new_producer_id` returns one that no producer has had.

    Where it cannot be obtained now, it raises CoordinatorLoadInProgressError.
    """

    def __init__(
        self,
        shards: Shards[TransactionMachine],
        new_producer_id: Callable[[], Awaitable[ProducerId]],
        settings: TransactionSettings,
    ) -> None:
        self._shards = shards
        self._new_producer_id = new_producer_id
        self._settings = settings

    async def init_producer_id(
        self, request: InitProducerIdRequest, version: int
    ) -> InitProducerIdResponse:
        """A producer id and epoch, for an idempotent producer or for a transactional id."""
        reply = await self._initialized(request)
        return InitProducerIdResponse(
            error_code=for_version(reply.error, version, fenced_since=4),
            producer_id=reply.producer.producer_id,
            producer_epoch=reply.producer.producer_epoch,
        )

    async def add_partitions(self, request: AddPartitions) -> ErrorCode:
        """Add partitions to a transaction, and begin it if none is open; all or none."""
        return await self._run(
            request.transactional_id,
            lambda machine, now_ms: machine.add_partitions(request, now_ms),
        )

    async def add_offsets(
        self, request: AddOffsetsToTxnRequest, version: int, *, partition: TopicPartition
    ) -> AddOffsetsToTxnResponse:
        """Add the `partition` of a group's offsets to a transaction."""
        error = await self.add_partitions(
            AddPartitions(
                transactional_id=request.transactional_id,
                producer=TransactionalProducer(
                    ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
                ),
                partitions=frozenset({partition}),
            )
        )
        return AddOffsetsToTxnResponse(error_code=for_version(error, version, fenced_since=2))

    async def verify_partitions(self, request: AddPartitions) -> dict[TopicPartition, ErrorCode]:
        """For each partition whether it is in the transaction: NONE or an error."""
        reply = await self._run(
            request.transactional_id, lambda machine, _: machine.verify_partitions(request)
        )
        if isinstance(reply, ErrorCode):
            return dict.fromkeys(request.partitions, reply)
        return reply

    async def end(self, request: EndTxnRequest, version: int) -> EndTxnResponse:
        """Commit or abort a transaction; the markers may be written after the response."""
        wanted = EndTransaction(
            transactional_id=request.transactional_id,
            producer=TransactionalProducer(
                ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
            ),
            is_commit=request.committed,
            client_version=CLASSIC if version < 5 else EPOCH_PER_TRANSACTION,
        )
        reply = await self._run_with_producer_id(
            wanted.transactional_id,
            lambda machine, now_ms, new: machine.end(wanted, now_ms, new_producer_id=new),
        )
        # The end is decided and will happen, so a shard that goes away meanwhile is no error.
        if reply.error is ErrorCode.NONE:
            with suppress(*_UNAVAILABLE):
                machine = self._shards.shard_of(wanted.transactional_id).machine
                await machine.wait_for_markers(wanted.transactional_id)
        return EndTxnResponse(
            error_code=for_version(reply.error, version, fenced_since=2),
            producer_id=reply.producer.producer_id,
            producer_epoch=reply.producer.producer_epoch,
        )

    async def describe(
        self, transactional_id: str, is_visible: Callable[[str], bool]
    ) -> TransactionState:
        """A transaction, with its partitions of the topics that are visible to the client."""
        reply = await self._run(
            transactional_id, lambda machine, _: machine.describe(transactional_id)
        )
        if isinstance(reply, ErrorCode):
            return TransactionState(transactional_id=transactional_id, error_code=reply)
        return _described(transactional_id, reply, is_visible)

    async def list_transactions(
        self, request: ListTransactionsRequest, is_listed: Callable[[str], bool]
    ) -> ListTransactionsResponse:
        """All transactions that the request asks for and whose id `is_listed`.

        `is_listed` says what the client may see, and whether the pattern of the request matches.
        """
        names = request.state_filters
        statuses = {_STATUSES[each] for each in names if each in _STATUSES}
        # Named in the answer and not refused (KIP-664): a newer tool may know more of them.
        unknown = tuple(each for each in names if each not in _STATUSES)
        producer_ids, duration_ms = frozenset(request.producer_id_filters), request.duration_filter

        def is_wanted(each: Transaction, now_ms: int) -> bool:
            return (
                (not names or each.status in statuses)
                and (not producer_ids or each.producer_id in producer_ids)
                # Longer, as in Kafka: one that begins in this millisecond has no duration yet.
                and (duration_ms < 0 or now_ms - each.start_ms > duration_ms)
                and is_listed(each.transactional_id)
            )

        slices = Slices()
        listed: list[Listed] = []
        for shard in self._shards:
            try:
                transactions, now_ms = await shard.run(_all)
            except NotCoordinatorError:
                continue  # It has gone elsewhere, or cannot be read.
            except _UNAVAILABLE as error:
                # A list without the transactions of a partition would look like a whole one.
                return ListTransactionsResponse(error_code=_code_for(error))
            for each in transactions:
                if is_wanted(each, now_ms):
                    listed.append(
                        Listed(
                            transactional_id=each.transactional_id,
                            producer_id=each.producer_id,
                            transaction_state=each.status.label,
                        )
                    )
                await slices.turn()
        return ListTransactionsResponse(
            unknown_state_filters=unknown, transaction_states=tuple(listed)
        )

    async def _initialized(self, request: InitProducerIdRequest) -> ProducerReply:
        expected = TransactionalProducer(
            ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
        )
        # A client names the producer that it was, or none (KIP-360).
        if (expected.producer_id < 0) != (expected.producer_epoch < 0):
            return ProducerReply(ErrorCode.INVALID_REQUEST)
        # An idempotent producer without transactions: any new id will do.
        if request.transactional_id is None:
            return await self._new_producer()
        error = self._fault(request)
        if error is not ErrorCode.NONE:
            return ProducerReply(error)
        wanted = InitProducerId(
            transactional_id=request.transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            expected=None if expected == NO_PRODUCER else expected,
        )
        return await self._run_with_producer_id(
            wanted.transactional_id,
            lambda machine, now_ms, new: machine.init_producer_id(
                wanted, now_ms, new_producer_id=new
            ),
        )

    def _fault(self, request: InitProducerIdRequest) -> ErrorCode:
        """The fault of a request for a transactional id, as far as the request alone shows it."""
        if request.transactional_id == "":
            return ErrorCode.INVALID_REQUEST
        # As Kafka 4.3 without `transaction.two.phase.commit.enable` (KIP-939).
        if request.enable2_pc:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.keep_prepared_txn:
            return ErrorCode.UNSUPPORTED_VERSION
        if not 0 < request.transaction_timeout_ms <= self._settings.timeout_ms_max:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.NONE

    async def _new_producer(self) -> ProducerReply:
        try:
            producer_id = await self._new_producer_id()
        except _UNAVAILABLE as error:
            return ProducerReply(_code_for(error))
        return ProducerReply(ErrorCode.NONE, TransactionalProducer(producer_id, ProducerEpoch(0)))

    async def _run(
        self, transactional_id: str, decide: Callable[[TransactionMachine, int], Decision[T]]
    ) -> T | ErrorCode:
        """The reply of the shard that has the id, or why there is none."""
        # Refused here: as the key of a record it would fail in the middle of a decision.
        if not transactional_id or len(transactional_id.encode()) > ID_BYTES_MAX:
            return ErrorCode.INVALID_REQUEST
        try:
            return await self._shards.shard_of(transactional_id).run(decide)
        except _UNAVAILABLE as error:
            return _code_for(error)

    async def _run_with_producer_id(self, transactional_id: str, decide: Decide) -> ProducerReply:
        """The reply to a request that may need a new producer id."""
        reply = await self._run(
            transactional_id, lambda machine, now_ms: decide(machine, now_ms, None)
        )
        if reply is None:
            # The first decision has changed nothing. If another request changes the transaction
            # while the id is obtained, the second one decides on that, and the id may be left over:
            # ids are never given out twice, and gaps between them mean nothing.
            new = await self._new_producer()
            if new.error is not ErrorCode.NONE:
                return new
            producer_id = new.producer.producer_id
            reply = await self._run(
                transactional_id, lambda machine, now_ms: decide(machine, now_ms, producer_id)
            )
        assert reply is not None
        return ProducerReply(reply) if isinstance(reply, ErrorCode) else reply


def for_version(error: ErrorCode, version: int, *, fenced_since: int) -> ErrorCode:
    """The error that a client of this version knows: a fenced one has an invalid epoch, before."""
    # PRODUCER_FENCED came with KIP-588; clients before it know only the other code.
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _code_for(error: Unavailable) -> ErrorCode:
    """The code by which a client asks again, asks elsewhere, or gives up."""
    match error:
        case CoordinatorLoadInProgressError():
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        case NotCoordinatorError() | CoordinatorNotAvailableError(__cause__=StorageError()):
            return ErrorCode.NOT_COORDINATOR
        case CoordinatorNotAvailableError(__cause__=RecordTooLargeError()):
            # It has too many partitions for a record, and will have as many the next time.
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _described(
    transactional_id: str, transaction: Transaction | None, is_visible: Callable[[str], bool]
) -> TransactionState:
    if transaction is None:
        return TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    topics: dict[str, list[int]] = defaultdict(list)
    for each in sorted(transaction.partitions):
        if is_visible(each.topic):
            topics[each.topic].append(each.partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.status.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )


def _all(machine: TransactionMachine, now_ms: int) -> Decision[tuple[tuple[Transaction, ...], int]]:
    return Decision(reply=(tuple(machine), now_ms))
