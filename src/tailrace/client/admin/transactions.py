"""Transactions of a cluster, seen from outside: list, describe, end, fence, abort hanging ones.

A transaction hangs if a partition has one open that its coordinator does not know (any more): the
partition's last stable offset stays where it began, and readers of committed records wait for ever.

    partition   one open since offset 120, of producer 7 epoch 2   } open for longer than any
    coordinator producer 7 has none open, or not with the partition } transaction may last

Not here: the transactions of our own producer; see `client.producer.identity`.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tailrace.client.admin.cluster import brokers_of
from tailrace.client.admin.items import (
    ItemRequest,
    all_of,
    by_topic,
    for_each,
    names,
    of_partitions,
    partitions_in,
)
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call, address_of
from tailrace.client.config import BrokerAddress
from tailrace.client.drive.steps import Steps
from tailrace.client.nodes.versions import BEFORE_KIP_890
from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.client.routes import Target, broker, leader, transaction_coordinator
from tailrace.client.short_repr import short_repr
from tailrace.errors import FatalError, TailraceError
from tailrace.model import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tailrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tailrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tailrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tailrace.values import dataclass

TRANSACTION_TIMEOUT_MAX_MS = 15 * 60 * 1000
"""Longest time that a broker lets a transaction last by default (transaction.max.timeout.ms)."""

FENCING_TIMEOUT_MS = 30_001
"""The transaction timeout that fencing declares.

No transaction follows, but the coordinator of Apache Kafka gives its followers only so long to copy
what it writes, and otherwise answers COORDINATOR_NOT_AVAILABLE (KAFKA-16047). So it is the default
of `request.timeout.ms`, as in Kafka's client, and one more, by which the sink of Spark tells who
was fenced from who may still write.
"""


class NoSuchTransactionError(FatalError, LookupError):
    """There is no such transactional id, or no open transaction at an offset."""


class UnknownStateError(FatalError, ValueError):
    """A state of transactions that a broker does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id in a list."""

    transactional_id: str
    producer_id: ProducerId
    """The producer that uses it."""
    state: str
    """`Ongoing`, `Empty`, `CompleteCommit`, ..."""
    coordinator: BrokerAddress
    """The broker that keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id, and the transaction that is open under it."""

    transactional_id: str
    producer_id: ProducerId
    """The producer that uses it."""
    producer_epoch: ProducerEpoch
    state: str
    """`Ongoing`, `Empty`, `CompleteCommit`, ..."""
    timeout_ms: int
    """Longest time that a transaction may be open."""
    start_ms: int
    """When the open transaction began, in milliseconds since 1970; -1 if none is open."""
    partitions: tuple[TopicPartition, ...]
    """The partitions of the open transaction, in order."""
    coordinator: BrokerAddress
    """The broker that keeps it."""

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """A producer as a partition's leader knows it."""

    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_timestamp: int
    """The largest timestamp that it has produced, in milliseconds; -1 if not known."""
    coordinator_epoch: LeaderEpoch
    """The epoch of the coordinator that ended its last transaction; -1 if none has."""
    transaction_start_offset: int
    """The first offset of its open transaction; -1 if none is open."""


class FencedProducer(NamedTuple):
    """The identity that the next producer with a transactional id gets."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    """Its epoch; producers with a lower one are fenced."""


def list_transactions(
    call: Call,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    open_for_ms: int = -1,
    pattern: str | None = None,
    brokers: Iterable[int] | None = None,
) -> Steps[list[TransactionListing]]:
    """All transactional ids of the cluster, ordered; or those that match.

    `states` are Kafka's, as `Ongoing`; `open_for_ms` takes transactions that are open for longer
    (Kafka 3.8), `pattern` ids that match a regular expression (Kafka 4.1). Every broker is asked,
    or `brokers` alone: a list without the ids of one would be no list, so its error is raised.

    Raises:
        UnsupportedBrokerError: a broker cannot tell (before Kafka 3.0), or lacks a filter.
        UnknownStateError: a broker does not know one of the states.
        RemoteFatalError: a broker refuses.
        OperationTimeoutError: a broker does not answer within the time limit.
    """
    # Each coordinator lists its own ids, so all brokers are asked.
    asked = ListTransactionsRequest(
        state_filters=tuple(names(states, what="states")),
        producer_id_filters=tuple(producer_ids),
        duration_filter=open_for_ms,
        transactional_id_pattern=pattern,
    )

    def unknown_state(number: int, answer: ListTransactionsResponse) -> UnknownStateError | None:
        # A broker passes over a state that it does not know: the list would be short, and look
        # whole.
        if answer.error_code or not answer.unknown_state_filters:
            return None
        unknown = ", ".join(answer.unknown_state_filters)
        return UnknownStateError(f"broker {number} knows no such state: {unknown}")

    request: ItemRequest[int, list[TransactionListing], ListTransactionsResponse] = ItemRequest(
        what="the transactions of broker",
        target=broker,
        request=lambda _: asked,
        response=ListTransactionsResponse,
        special=unknown_state,
        value=lambda number, answer: [
            TransactionListing(
                transactional_id=each.transactional_id,
                producer_id=ProducerId(each.producer_id),
                state=each.transaction_state,
                coordinator=_address(call, broker(number)),
            )
            for each in answer.transaction_states
        ],
        first_version=2 if pattern is not None else 1 if open_for_ms >= 0 else 0,
        is_single=True,
    )
    listed = yield from for_each(call, (yield from brokers_of(call, brokers)), request)
    found = [each for some in listed.complete().values() for each in some]
    return sorted(found, key=lambda each: each.transactional_id)


def describe_transactions(
    call: Call, transactional_ids: Iterable[str]
) -> Steps[Outcomes[str, TransactionDescription]]:
    """The state of transactional ids.

    One that no coordinator knows has a NoSuchTransactionError. Repeated after a lost connection.

    Raises:
        TypeError: `transactional_ids` is no list of names.
    """

    def absent(name: str, found: TransactionState) -> NoSuchTransactionError | None:
        # An id is forgotten after `transactional.id.expiration.ms` without a transaction, seven
        # days by default.
        if found.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        return NoSuchTransactionError(
            f"transactional id {name!r} does not exist: no producer has used it, or not for "
            "transactional.id.expiration.ms"
        )

    request: ItemRequest[str, TransactionDescription, DescribeTransactionsResponse] = ItemRequest(
        what="transactional id",
        target=transaction_coordinator,
        request=lambda batch: DescribeTransactionsRequest(transactional_ids=tuple(batch)),
        response=DescribeTransactionsResponse,
        entries=lambda answer, _: (
            (each.transactional_id, each) for each in answer.transaction_states
        ),
        special=absent,
        value=lambda name, each: TransactionDescription(
            transactional_id=name,
            producer_id=ProducerId(each.producer_id),
            producer_epoch=ProducerEpoch(each.producer_epoch),
            state=each.transaction_state,
            timeout_ms=each.transaction_timeout_ms,
            start_ms=each.transaction_start_time_ms,
            partitions=tuple(
                sorted(
                    TopicPartition(topic.topic, number)
                    for topic in each.topics
                    for number in topic.partitions
                )
            ),
            coordinator=_address(call, transaction_coordinator(name)),
        ),
    )
    wanted = names(transactional_ids, what="transactional_ids")
    return (yield from for_each(call, wanted, request))


def _address(call: Call, target: Target) -> BrokerAddress:
    node = call.routes.known(target)
    return BrokerAddress("", -1) if node is None else address_of(node)


def describe_producers(
    call: Call, partitions: Iterable[TopicPartition]
) -> Steps[Outcomes[TopicPartition, tuple[ProducerState, ...]]]:
    """The producers that the leaders of these partitions know.

    Repeated after a lost connection.
    """
    request: ItemRequest[TopicPartition, tuple[ProducerState, ...], DescribeProducersResponse]
    # The leader, since followers have the same producers a fetch later.
    request = ItemRequest(
        what="the producers of",
        target=leader,
        request=lambda batch: DescribeProducersRequest(
            topics=tuple(
                TopicRequest(name=name, partition_indexes=tuple(numbers))
                for name, numbers in by_topic(batch).items()
            )
        ),
        response=DescribeProducersResponse,
        entries=lambda answer, _: of_partitions(answer.topics),
        value=lambda partition, found: tuple(
            ProducerState(
                partition=partition,
                producer_id=ProducerId(each.producer_id),
                producer_epoch=ProducerEpoch(each.producer_epoch),
                last_timestamp=each.last_timestamp,
                coordinator_epoch=LeaderEpoch(each.coordinator_epoch),
                transaction_start_offset=each.current_txn_start_offset,
            )
            for each in found.active_producers
        ),
    )
    return (yield from for_each(call, partitions_in(partitions), request))


def find_hanging_transactions(
    call: Call,
    partitions: Collection[TopicPartition],
    *,
    now_ms: int,
    open_for_ms: int = TRANSACTION_TIMEOUT_MAX_MS,
    brokers: Iterable[int] | None = None,
) -> Steps[list[ProducerState]]:
    """Transactions in these partitions that nobody will end, ordered by partition.

    Only those whose last record is older than `open_for_ms` are looked at: a younger one may be on
    its way from its coordinator to the partition. `now_ms` is the time, in milliseconds since 1970.
    Every broker is asked for what it coordinates, or `brokers` alone: a transaction that none of
    these knows is left out then, as another broker may know it.

    Raises: the error of a partition, or of a broker: what was not looked at may hang too.
    """
    known_states = (yield from describe_producers(call, partitions)).complete()
    # The partition alone does not know whether a coordinator will end the transaction.
    # KIP-664: a transaction hangs if its coordinator does not know it, and then holds the last
    # stable offset for ever. A coordinator aborts after `transaction.max.timeout.ms` at most.
    candidates = [
        each
        for states in known_states.values()
        for each in states
        if each.transaction_start_offset >= 0 and now_ms - each.last_timestamp > open_for_ms
    ]
    if not candidates:
        return []
    listed = yield from list_transactions(
        call, producer_ids={each.producer_id for each in candidates}, brokers=brokers
    )
    described = yield from describe_transactions(call, [each.transactional_id for each in listed])
    known: dict[int, TransactionDescription] = {}
    for each in listed:
        found = described[each.transactional_id]
        if isinstance(found, TransactionDescription):
            known[each.producer_id] = found
        elif not isinstance(found, NoSuchTransactionError):
            raise found
        # Otherwise it has expired since it was listed.

    def is_hanging(state: ProducerState) -> bool:
        transaction = known.get(state.producer_id)
        if transaction is None:
            return brokers is None
        # The producer may have begun another transaction, which does not include this partition.
        return state.partition not in transaction.partitions

    return sorted(filter(is_hanging, candidates), key=lambda each: each.partition)


def abort_transaction(
    call: Call, partition: TopicPartition, start_offset: int
) -> Steps[ProducerState]:
    """Abort the transaction that a partition has open since an offset; returns what it was.

    Meant for one that hangs: its producer, if it is alive, gets no notice. Repeated after a lost
    connection: a second marker changes nothing.

    Raises:
        NoSuchTransactionError: none is open there since that offset.
        UnsupportedBrokerError: the leader cannot do it (before Kafka 2.8).
        RemoteFatalError: the leader refuses.
        OperationTimeoutError: the leader does not answer within the time limit.
    """
    place = TopicPartition(*partition)
    # The marker needs the epochs that the partition knows, or it is refused.
    states = (yield from describe_producers(call, [place])).result(place)
    open_ones = [each for each in states if each.transaction_start_offset >= 0]
    for each in open_ones:
        if each.transaction_start_offset == start_offset:
            # To the partition's leader and not to a coordinator, none of which knows the
            # transaction.
            (yield from for_each(call, [place], _abort_request(each))).results()
            return each
    offsets = sorted(each.transaction_start_offset for each in open_ones)
    listed = ", ".join(map(str, offsets))
    there_are = f"those that are open begin at {listed}" if offsets else "none is open"
    raise NoSuchTransactionError(
        f"no transaction of {place} begins at offset {start_offset}; {there_are}"
    )


def fence_producers(
    call: Call, transactional_ids: Iterable[str]
) -> Steps[Outcomes[str, FencedProducer]]:
    """Fence the producers with these transactional ids, and abort their open transactions.

    They get PRODUCER_FENCED for what they send next. Repeated after a lost connection: a second
    request fences once more.

    Raises:
        TypeError: `transactional_ids` is no list of names.
    """
    wanted = names(transactional_ids, what="transactional_ids")
    return (yield from for_each(call, wanted, _init_request()))


def raise_epoch(
    call: Call, transactional_id: str, *, producer_id: int, epoch: int
) -> Steps[Outcomes[str, FencedProducer]]:
    """Give a transactional id the epoch after this one, unless its producer has another.

    Then it has a RemoteFatalError with PRODUCER_FENCED. Repeated after a lost connection: a second
    request changes nothing, as long as the coordinator stays (KIP-360).
    """
    request = _init_request(producer_id=producer_id, producer_epoch=epoch)
    return (yield from for_each(call, [transactional_id], request))


def _init_request(
    *, producer_id: int = -1, producer_epoch: int = -1
) -> ItemRequest[str, FencedProducer, InitProducerIdResponse]:
    return ItemRequest(
        what="transactional id",
        target=transaction_coordinator,
        request=lambda batch: InitProducerIdRequest(
            transactional_id=batch[0],
            # InitProducerId fences the producer that had the id, and aborts its transaction.
            transaction_timeout_ms=FENCING_TIMEOUT_MS,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        ),
        response=InitProducerIdResponse,
        value=lambda _, answer: FencedProducer(
            ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch)
        ),
        # InitProducerId and EndTxn have one transactional id in a request.
        is_single=True,
    )


def end_transactions(
    call: Call, transactions: Iterable[PreparedTransaction], *, commit: bool
) -> Steps[Outcomes[PreparedTransaction, None]]:
    """Commit or abort transactions that their producers have prepared.

    Returns when the coordinators have decided; readers see it as soon as they have informed the
    partitions. Repeated after a lost connection: the same end of the same transaction once more
    changes nothing. One that is not open any more, because it took longer than its
    `transaction.timeout.ms` or another producer uses its transactional id, has a RemoteFatalError
    with INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING or INVALID_TXN_STATE;
    so has one that was ended as asked, if its transactional id was used again since.

    Raises:
        TypeError: `transactions` is no list of prepared transactions.
    """
    wanted = all_of(PreparedTransaction, transactions, what="transactions")
    found: dict[PreparedTransaction, TailraceError | None] = {}
    # In two rounds: the version of the request says under which rules the transaction ends.
    for is_v2 in (False, True):
        request: ItemRequest[PreparedTransaction, None, EndTxnResponse] = ItemRequest(
            what="the transaction of",
            target=lambda each: transaction_coordinator(each.transactional_id),
            request=lambda batch: EndTxnRequest(
                transactional_id=batch[0].transactional_id,
                producer_id=batch[0].producer_id,
                producer_epoch=batch[0].producer_epoch,
                # An EndTxn with another result than the one decided is refused with
                # INVALID_TXN_STATE.
                committed=commit,
            ),
            response=EndTxnResponse,
            is_single=True,
            # From version 5 on the coordinator raises the epoch, as transactions of version 2 want.
            last_version=None if is_v2 else BEFORE_KIP_890[ApiKey.END_TXN],
        )
        chosen = [each for each in wanted if (each.transaction_version > 0) is is_v2]
        found |= yield from for_each(call, chosen, request)
    return Outcomes({each: found[each] for each in wanted})


def force_terminate_transaction(call: Call, transactional_id: str) -> Steps[FencedProducer]:
    """Abort the transaction of one transactional id and fence its producer (KIP-939).

    Raises:
        RemoteFatalError: the coordinator refuses: TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        OperationTimeoutError: the coordinator does not answer within the time limit.
    """
    # Without keep_prepared_txn, so that a prepared transaction is aborted as well.
    fenced = yield from fence_producers(call, [transactional_id])
    return fenced.result(transactional_id)


def _abort_request(
    state: ProducerState,
) -> ItemRequest[TopicPartition, None, WriteTxnMarkersResponse]:
    topic, number = state.partition
    marker = WritableTxnMarker(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        # False aborts: a commit would show records that their producer never confirmed.
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=(number,)),),
        # A partition that has seen no marker of this producer knows no epoch, and takes any.
        coordinator_epoch=max(state.coordinator_epoch, 0),
    )
    return ItemRequest(
        what="the marker for",
        target=leader,
        request=lambda _: WriteTxnMarkersRequest(markers=(marker,)),
        response=WriteTxnMarkersResponse,
        entries=lambda answer, _: (
            (TopicPartition(topic.name, each.partition_index), each)
            for written in answer.markers
            if written.producer_id == state.producer_id
            for topic in written.topics
            for each in topic.partitions
        ),
    )
