"""Transactions of a cluster, seen from outside: list, describe, find hanging ones, abort them.

A transaction hangs if a partition has one open that its coordinator does not know (any more): the
partition's last stable offset stays where it began, and readers of committed records wait for ever.

    partition   one open since offset 120, of producer 7 epoch 2   } open for longer than any
    coordinator producer 7 has none open, or not with the partition } transaction may last

Not here: the transactions of our own producer; see `producer.transactions`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tailrace.client.brokers import RemoteBroker
from tailrace.client.config import BrokerAddress
from tailrace.client.errors import raise_for
from tailrace.client.metadata import ClusterReader
from tailrace.errors import FatalError
from tailrace.model import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tailrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
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

TRANSACTION_TIMEOUT_MAX_MS = 15 * 60 * 1000
"""Longest time that a broker lets a transaction last by default (transaction.max.timeout.ms)."""


class NoSuchTransactionError(FatalError, LookupError):
    """There is no such transactional id, or no open transaction at an offset."""


class UnknownStateError(FatalError, ValueError):
    """A state of transactions that a broker does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id in a list."""

    transactional_id: str
    producer_id: ProducerId
    state: str
    """`Ongoing`, `Empty`, `CompleteCommit`, ..."""
    coordinator: BrokerAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id, and the transaction that is open under it."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    state: str
    timeout_ms: int
    start_ms: int
    """When the open transaction began, in milliseconds since 1970; -1 if none is open."""
    partitions: tuple[TopicPartition, ...]
    """The partitions of the open transaction, in order."""
    coordinator: BrokerAddress


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


def list_transactions(
    cluster: ClusterReader,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
) -> list[TransactionListing]:
    """All transactional ids of the cluster, or those in these states and of these producers.

    Raises:
        UnsupportedBrokerError: a broker cannot tell (before Kafka 3.0).
        UnreachableBrokerError: a broker does not answer.
        UnknownStateError: a broker does not know one of the states.
        RemoteRetriableError, RemoteFatalError: a broker refuses.
    """
    request = ListTransactionsRequest(
        state_filters=tuple(states), producer_id_filters=tuple(producer_ids)
    )

    def ask() -> list[TransactionListing]:
        found = []
        for broker in cluster.all_brokers():
            answer = broker.request(request, ListTransactionsResponse)
            raise_for(answer.error_code, about=f"{broker.address} was asked for its transactions")
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise UnknownStateError(f"{broker.address} knows no such state: {unknown}")
            found += [
                TransactionListing(
                    transactional_id=each.transactional_id,
                    producer_id=ProducerId(each.producer_id),
                    state=each.transaction_state,
                    coordinator=broker.address,
                )
                for each in answer.transaction_states
            ]
        return sorted(found, key=lambda each: each.transactional_id)

    return cluster.retrying(ask)


def describe_transaction(cluster: ClusterReader, transactional_id: str) -> TransactionDescription:
    """The state of a transactional id.

    Raises:
        NoSuchTransactionError: the coordinator does not know the id.
        UnsupportedBrokerError: the coordinator cannot tell (before Kafka 3.0).
        UnreachableBrokerError: the coordinator does not answer.
        RemoteRetriableError, RemoteFatalError: the coordinator refuses.
    """
    request = DescribeTransactionsRequest(transactional_ids=(transactional_id,))

    def ask() -> TransactionDescription:
        broker = cluster.coordinator(CoordinatorKeyType.TRANSACTION, transactional_id)
        (found,) = broker.request(request, DescribeTransactionsResponse).transaction_states
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise NoSuchTransactionError(
                f"transactional id {transactional_id!r} does not exist: no producer has used it, "
                "or not for transactional.id.expiration.ms"
            )
        about = f"transactional id {transactional_id!r} at {broker.address}"
        raise_for(found.error_code, about=about)
        return TransactionDescription(
            transactional_id=transactional_id,
            producer_id=ProducerId(found.producer_id),
            producer_epoch=ProducerEpoch(found.producer_epoch),
            state=found.transaction_state,
            timeout_ms=found.transaction_timeout_ms,
            start_ms=found.transaction_start_time_ms,
            partitions=tuple(
                sorted(
                    TopicPartition(topic.topic, number)
                    for topic in found.topics
                    for number in topic.partitions
                )
            ),
            coordinator=broker.address,
        )

    return cluster.retrying(ask)


def describe_producers(
    cluster: ClusterReader, partitions: Collection[TopicPartition]
) -> list[ProducerState]:
    """The producers that the leaders of these partitions know.

    Raises:
        UnsupportedBrokerError: a leader cannot tell (before Kafka 2.8).
        UnreachableBrokerError: a leader does not answer.
        RemoteRetriableError, RemoteFatalError: a leader refuses.
    """

    def ask() -> list[ProducerState]:
        by_leader: dict[RemoteBroker, dict[str, list[int]]] = {}
        for each in partitions:
            topics = by_leader.setdefault(cluster.leader(each), {})
            topics.setdefault(each.topic, []).append(each.partition)
        found: list[ProducerState] = []
        for broker, topics in by_leader.items():
            request = DescribeProducersRequest(
                topics=tuple(
                    TopicRequest(name=name, partition_indexes=tuple(numbers))
                    for name, numbers in topics.items()
                )
            )
            found += _producers_in(broker.request(request, DescribeProducersResponse), broker)
        return found

    return cluster.retrying(ask)


def find_hanging(
    cluster: ClusterReader,
    partitions: Collection[TopicPartition],
    *,
    now_ms: int,
    open_for_ms: int = TRANSACTION_TIMEOUT_MAX_MS,
) -> list[ProducerState]:
    """Transactions in these partitions that nobody will end, ordered by partition.

    Only those whose last record is older than `open_for_ms` are looked at: a younger one may be on
    its way from its coordinator to the partition.

    Raises: as `describe_producers`, `list_transactions` and `describe_transaction`.
    """
    candidates = [
        each
        for each in describe_producers(cluster, partitions)
        if each.transaction_start_offset >= 0 and now_ms - each.last_timestamp > open_for_ms
    ]
    if not candidates:
        return []
    listed = list_transactions(cluster, producer_ids={each.producer_id for each in candidates})
    known: dict[int, TransactionDescription] = {}
    for each in listed:
        try:
            known[each.producer_id] = describe_transaction(cluster, each.transactional_id)
        except NoSuchTransactionError:
            continue  # It has expired since it was listed.

    def is_hanging(state: ProducerState) -> bool:
        transaction = known.get(state.producer_id)
        return transaction is None or state.partition not in transaction.partitions

    return sorted(filter(is_hanging, candidates), key=lambda each: each.partition)


def abort_at(cluster: ClusterReader, partition: TopicPartition, start_offset: int) -> ProducerState:
    """Abort the transaction that a partition has open since an offset; returns what it was.

    Meant for one that hangs: its producer, if it is alive, is not told.

    Raises:
        NoSuchTransactionError: none is open there since that offset.
        UnsupportedBrokerError: the leader cannot do it (before Kafka 2.8).
        UnreachableBrokerError: the leader does not answer.
        RemoteRetriableError, RemoteFatalError: the leader refuses.
    """
    open_ones = [
        each
        for each in describe_producers(cluster, [partition])
        if each.transaction_start_offset >= 0
    ]
    for each in open_ones:
        if each.transaction_start_offset == start_offset:
            cluster.retrying(lambda: _write_abort(cluster, each))  # noqa: B023 - called now
            return each
    offsets = sorted(each.transaction_start_offset for each in open_ones)
    there_are = f"those that are open begin at {_listed(offsets)}" if offsets else "none is open"
    raise NoSuchTransactionError(
        f"no transaction of {partition} begins at offset {start_offset}; {there_are}"
    )


def _producers_in(
    answer: DescribeProducersResponse, broker: RemoteBroker
) -> Iterable[ProducerState]:
    for topic in answer.topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            raise_for(part.error_code, about=f"producers of {partition} at {broker.address}")
            for each in part.active_producers:
                yield ProducerState(
                    partition=partition,
                    producer_id=ProducerId(each.producer_id),
                    producer_epoch=ProducerEpoch(each.producer_epoch),
                    last_timestamp=each.last_timestamp,
                    coordinator_epoch=LeaderEpoch(each.coordinator_epoch),
                    transaction_start_offset=each.current_txn_start_offset,
                )


def _write_abort(cluster: ClusterReader, state: ProducerState) -> None:
    topic, number = state.partition
    marker = WritableTxnMarker(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=(number,)),),
        # A partition that has seen no marker of this producer knows no epoch, and takes any.
        coordinator_epoch=max(state.coordinator_epoch, 0),
    )
    broker = cluster.leader(state.partition)
    answer = broker.request(WriteTxnMarkersRequest(markers=(marker,)), WriteTxnMarkersResponse)
    for written in answer.markers:
        for each in written.topics:
            for part in each.partitions:
                raise_for(
                    part.error_code, about=f"marker for {state.partition} at {broker.address}"
                )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
