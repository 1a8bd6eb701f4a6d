"""The brokers that have a part in this broker's transactions: leaders of partitions, coordinators.

    a coordinator here    its markers go to the brokers that lead the transaction's partitions
    a partition here      its first batch of a transaction is verified by the coordinator (KIP-890)

Invariant: where a request goes is asked of the image each time, since leaders change while a marker
waits. What the image does not know yet ends in an error of the broker that is asked, and is asked
again.
"""

from typing import Final, Protocol, TypeVar

from tailrace.client.errors import UnreachableBrokerError, UnsupportedBrokerError
from tailrace.client.nodes import Node
from tailrace.cluster.state import ClusterState
from tailrace.coordinator.shards import partition_of
from tailrace.coordinator.transactions.between_brokers import (
    CoordinatorsElsewhere,
    MarkersElsewhere,
    Verdicts,
)
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.model import TRANSACTIONS_TOPIC, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from tailrace.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

M = TypeVar("M", bound=Message)

# A leader answers for its markers within Kafka's `request.timeout.ms` of a broker, 30 seconds by
# default. A little more, or a partition that lags would cost the connection each time, and the
# answers for all others.
TIMEOUT_MS: Final = 35_000

# KIP-890. Up to v3 the request is of a producer, for one transaction.
OF_BROKERS_SINCE: Final = 4


class Connections(Protocol):
    """Connections to other brokers; see `broker.peers.Peers`."""

    async def ask(
        self,
        node: Node,
        request: Message,
        answer: type[M],
        *,
        timeout_ms: int,
        first_version: int = 0,
    ) -> M:
        """The answer of a node; raises as `Peers.ask`."""
        ...

    def close(self) -> None: ...


class TransactionPeers:
    """Finds and asks the other brokers; also `coordinator.transactions.markers.Leaders`."""

    def __init__(
        self, cluster: ClusterState, *, to_leaders: Connections, to_coordinators: Connections
    ) -> None:
        """Closes the connections at its own end.

        They are two to each broker: it answers in the order of the requests, and a marker that
        waits for followers would hold up the producers that begin transactions.
        """
        self._cluster = cluster
        self._to_leaders = to_leaders
        self._to_coordinators = to_coordinators
        self.markers = MarkersElsewhere(self._write_markers)
        self._coordinators = CoordinatorsElsewhere(self._ask_coordinator)

    @property
    def node_id(self) -> int:
        """This broker."""
        return self._cluster.node_id

    def has_partition(self, partition: TopicPartition) -> bool:
        """Whether the cluster has a partition."""
        return self._cluster.image.has(partition)

    def leader_of(self, partition: TopicPartition) -> int | None:
        """The broker that leads a partition; None if there is none, or it is not alive."""
        state = self._cluster.partition(partition)
        if state is None:
            return None
        # This broker may be fenced, and writes to its own logs all the same.
        if state.leader == self.node_id or self._cluster.alive_epoch(state.leader) is not None:
            return state.leader
        return None

    async def verdicts(
        self, request: AddPartitions, *, partition_count: int, is_adding: bool
    ) -> Verdicts | None:
        """Whether partitions are in a transaction that another broker coordinates.

        With `is_adding` they are added to it, all or none. None: this broker coordinates it.
        `partition_count` is that of `__transaction_state`, 0 if there is none.
        """
        leader = None
        if partition_count:
            number = partition_of(request.transactional_id, partition_count)
            leader = self.leader_of(TopicPartition(TRANSACTIONS_TOPIC, number))
        if leader is None:
            return dict.fromkeys(request.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if leader == self.node_id:
            return None
        return await self._coordinators.ask(leader, request, is_adding=is_adding)

    def close(self) -> None:
        """Send nothing more; requests that are under way end with an error."""
        self.markers.close()
        self._coordinators.close()
        self._to_leaders.close()
        self._to_coordinators.close()

    async def _write_markers(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        return await self._to_leaders.ask(
            self._node(broker_id), request, WriteTxnMarkersResponse, timeout_ms=TIMEOUT_MS
        )

    async def _ask_coordinator(
        self, broker_id: int, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse | None:
        try:
            return await self._to_coordinators.ask(
                self._node(broker_id),
                request,
                AddPartitionsToTxnResponse,
                timeout_ms=TIMEOUT_MS,
                first_version=OF_BROKERS_SINCE,
            )
        except UnsupportedBrokerError:
            return None

    def _node(self, broker_id: int) -> Node:
        endpoint = self._cluster.endpoint(broker_id)
        if endpoint is None:
            raise UnreachableBrokerError(
                f"broker {broker_id} is not alive, or does not listen for brokers", address=""
            )
        return Node(broker_id, endpoint.host, endpoint.port)
