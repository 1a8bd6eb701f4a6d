"""`LeaderEnds`: the ends of logs that other brokers lead, for the lag of groups.

A scrape asks the leaders side by side, with ListOffsets in bulk, and waits for `WAIT_S` at most:
what has not come by then is left out. So only a broker whose metrics somebody reads asks others.

Invariant: leaders are asked every `INTERVAL_S` at most, however many scrapes there are, and an
offset is never older than that.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Final, Protocol, TypeVar

from tailrace.client.nodes import Node
from tailrace.cluster.state import ClusterState
from tailrace.errors import TailraceError
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.runtime.slices import Slices, gather_in_parts

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

INTERVAL_S: Final = 5.0
WAIT_S: Final = 1.0
TIMEOUT_MS: Final = 3_000
PARTITIONS_MAX: Final = 500
"""Most partitions of one request: encoding more would hold the loop for milliseconds."""

_CONSUMER: Final = -1
"""The `replica_id` of a client that gets what consumers may read."""


class Connections(Protocol):
    """Connections to other brokers; see `broker.peers.Peers`."""

    async def ask(self, node: Node, request: Message, answer: type[M], *, timeout_ms: int) -> M:
        """The answer of a node; raises as `Peers.ask`."""
        ...

    def close(self) -> None: ...


class LeaderEnds:
    """Asks the leaders of partitions; closes the connections at its own end."""

    def __init__(self, cluster: ClusterState, connections: Connections) -> None:
        self._cluster = cluster
        self._connections = connections
        self._found: dict[TopicPartition, int] = {}
        self._asking: asyncio.Future[None] | None = None
        self._due_s = 0.0

    async def find(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset after the last record that consumers may read, of those that are known."""
        loop = asyncio.get_running_loop()
        is_asking = self._asking is not None and not self._asking.done()
        if partitions and not is_asking and loop.time() >= self._due_s:
            self._due_s = loop.time() + INTERVAL_S
            # What a leader does not tell again is too old.
            self._found = {}
            self._asking = asyncio.ensure_future(self._ask(partitions, self._found))
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=WAIT_S)
        return self._found

    def close(self) -> None:
        """Ask nobody any more."""
        if self._asking is not None:
            self._asking.cancel()
        self._connections.close()

    async def _ask(
        self, partitions: Collection[TopicPartition], found: dict[TopicPartition, int]
    ) -> None:
        slices, by_leader = Slices(), dict[int, list[TopicPartition]]()
        for each in partitions:
            state = self._cluster.partition(each)
            if state is not None and state.leader not in (self._cluster.node_id, -1):
                by_leader.setdefault(state.leader, []).append(each)
            await slices.turn()
        await gather_in_parts(
            self._ask_leader(leader, sorted(led), found) for leader, led in by_leader.items()
        )

    async def _ask_leader(
        self, leader: int, led: Sequence[TopicPartition], found: dict[TopicPartition, int]
    ) -> None:
        endpoint = self._cluster.endpoint(leader)
        if endpoint is None:
            return
        node = Node(leader, endpoint.host, endpoint.port)
        loop = asyncio.get_running_loop()
        for start in range(0, len(led), PARTITIONS_MAX):
            # A slow leader's first answers are too old by now.
            if loop.time() >= self._due_s:
                return
            request = _request(led[start : start + PARTITIONS_MAX])
            try:
                answer = await self._connections.ask(
                    node, request, ListOffsetsResponse, timeout_ms=TIMEOUT_MS
                )
            except TailraceError as error:
                # Its own metrics, or their absence, say what is wrong with it.
                logger.debug("leader_ends_unknown leader=%s reason=%s", leader, error)
                return
            for topic in answer.topics:
                for each in topic.partitions:
                    if not each.error_code and each.offset >= 0:
                        found[TopicPartition(topic.name, each.partition_index)] = each.offset


def _request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=0,
        topics=tuple(
            ListOffsetsTopic(
                name=topic,
                partitions=tuple(
                    ListOffsetsPartition(
                        partition_index=each.partition, timestamp=SpecialTimestamp.LATEST
                    )
                    for each in own
                ),
            )
            for topic, own in groupby(partitions, key=lambda each: each.topic)
        ),
        timeout_ms=TIMEOUT_MS,
    )
