"""A scripted cluster whose nodes can be read by a consumer, and a consumer on virtual time.

Each node answers Fetch, ListOffsets, OffsetForLeaderEpoch and OffsetFetch from `logs`, as the
leader or as a follower in `followers`. `queue` puts other answers for single partitions in front.
"""

from collections import defaultdict, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.client.consumer import AsyncConsumer, ConsumerRecord
from tailrace.model import NO_LEADER_EPOCH, SpecialTimestamp, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, Message
from tailrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tailrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from tailrace.records import layout
from tailrace.testing import Outside
from tailrace.testing.cluster import Request, ScriptedCluster, ScriptedNode
from tailrace.testing.script import Fault
from tests.unit.client.reading import ReadableLog

if TYPE_CHECKING:
    from uuid import UUID

SESSION = 7
"""Id of the fetch session that a node gives if it `has_sessions`."""


class Asked(NamedTuple):
    """A request that reached a node."""

    node: int
    version: int
    body: Any


class Leaders(ScriptedCluster):
    """Nodes 1 to `nodes` with the topic `t`, whose partitions they lead in turn.

    A round trip takes 10 ms, so that a node that has no records is asked a hundred times a second.
    """

    def __init__(self, outside: Outside, *, nodes: int = 1, partitions: int = 1) -> None:
        super().__init__(outside, nodes=nodes)
        outside.network.delay_s = 0.005
        self.logs: dict[TopicPartition, ReadableLog] = defaultdict(ReadableLog)
        self.ids: dict[str, UUID] = {}
        """Topics that have an id; Fetch names them by it from v13 on."""
        self.followers: dict[TopicPartition, set[int]] = defaultdict(set)
        """Nodes that answer for a partition beside its leader."""
        self.offline: dict[TopicPartition, tuple[int, ...]] = {}
        """Replicas that Metadata calls offline."""
        self.committed: dict[TopicPartition, tuple[int, int]] = {}
        """Offset and leader epoch that the group has stored."""
        self.has_sessions = False
        self.asked: list[Asked] = []
        self._queued: dict[tuple[ApiKey, TopicPartition], deque[Any]] = defaultdict(deque)
        self._session: dict[int, dict[tuple[str, UUID, int], FetchPartition]] = {}
        self.create_topic("t", partitions=partitions)
        self.start()

    def queue(self, api: ApiKey, partition: TopicPartition, *parts: Any) -> None:
        """Answer the next requests about a partition with these; a code is a refusal."""
        self._queued[api, partition] += parts

    def consumer(self, **settings: Any) -> AsyncConsumer:
        """A consumer that begins at the first record unless told so."""
        given: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "auto_offset_reset": "earliest",
        }
        return AsyncConsumer(runtime=self.outside.runtime, **(given | settings))

    def requests(self, kind: type) -> list[Asked]:
        """The requests of an API so far."""
        return [each for each in self.asked if isinstance(each.body, kind)]

    def fetched(self) -> list[tuple[int, int, int]]:
        """Node, partition and offset of all that was asked for by Fetch."""
        return [
            (each.node, part.partition, part.fetch_offset)
            for each in self.requests(FetchRequest)
            for topic in each.body.topics
            for part in topic.partitions
        ]

    def act(self, node: ScriptedNode, request: Request, fault: Fault | None) -> Message | None:
        """Answer as a broker does."""
        body = request.body
        self.asked.append(Asked(node.id, request.version, body))
        match body:
            case FetchRequest():
                return self._fetch(node, body, has_ids=request.version > 12)
            case ListOffsetsRequest():
                return self._list_offsets(node, body)
            case OffsetForLeaderEpochRequest():
                return self._epochs(node, body)
            case OffsetFetchRequest():
                return self._committed(body)
            case MetadataRequest():
                answer = super().act(node, request, fault)
                assert isinstance(answer, MetadataResponse)
                return self._with_replicas(answer)
        return super().act(node, request, fault)

    def refusal(self, node: ScriptedNode, place: TopicPartition) -> ErrorCode:
        """The reason why a node does not answer for a partition; NONE if it does."""
        led = self.partitions.get(place)
        if led is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_replica = node.id == led.leader or node.id in self.followers[place]
        return ErrorCode.NONE if is_replica else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _next(self, api: ApiKey, place: TopicPartition) -> Any:
        queued = self._queued[api, place]
        return queued.popleft() if queued else None

    def _fetch(self, node: ScriptedNode, body: FetchRequest, *, has_ids: bool) -> FetchResponse:
        names = {topic_id: name for name, topic_id in self.ids.items()}
        asked = {
            (names.get(topic.topic_id, "") if has_ids else topic.topic, topic.topic_id, each): part
            for topic in body.topics
            for part in topic.partitions
            for each in [part.partition]
        }
        if self.has_sessions and body.session_epoch >= 0:
            known = self._session.setdefault(node.id, {})
            if body.session_epoch == 0:
                known.clear()
            for forgotten in body.forgotten_topics_data:
                for each in list(known):
                    if each[0] == forgotten.topic or (has_ids and each[1] == forgotten.topic_id):
                        known.pop(each) if each[2] in forgotten.partitions else None
            known |= asked
            asked = dict(known)
        found: dict[tuple[str, UUID], list[PartitionData]] = {}
        for (name, topic_id, _), part in asked.items():
            data = self._data(node, TopicPartition(name, part.partition), part, body)
            is_news = data.records or data.error_code or data.preferred_read_replica >= 0
            if is_news or not self.has_sessions or body.session_epoch == 0:
                found.setdefault((name, topic_id), []).append(data)
        return FetchResponse(
            session_id=SESSION if self.has_sessions and body.session_epoch >= 0 else 0,
            responses=tuple(
                FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=tuple(parts))
                for (name, topic_id), parts in found.items()
            ),
            node_endpoints=tuple(
                NodeEndpoint(node_id=each.id, host=self.host, port=each.port)
                for each in self.nodes.values()
                if self.gives_hints
            ),
        )

    def _data(
        self, node: ScriptedNode, place: TopicPartition, part: FetchPartition, body: FetchRequest
    ) -> PartitionData:
        led = self.partitions.get(place)
        queued = self._next(ApiKey.FETCH, place)
        if isinstance(queued, PartitionData):
            return replace(queued, partition_index=place.partition)
        code = self.refusal(node, place) if queued is None else queued
        if code:
            hint = self.gives_hints and led is not None
            return PartitionData(
                partition_index=place.partition,
                error_code=code,
                current_leader=LeaderIdAndEpoch(leader_id=led.leader, leader_epoch=led.epoch)
                if hint and led is not None
                else LeaderIdAndEpoch(),
            )
        data = self.logs[place].data(
            part.fetch_offset,
            size_max=min(part.partition_max_bytes, body.max_bytes),
            isolation=body.isolation_level,
        )
        return replace(data, partition_index=place.partition)

    def _list_offsets(self, node: ScriptedNode, body: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        self._offset(node, TopicPartition(topic.name, each.partition_index), each)
                        for each in topic.partitions
                    ),
                )
                for topic in body.topics
            )
        )

    def _offset(
        self, node: ScriptedNode, place: TopicPartition, asked: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        queued = self._next(ApiKey.LIST_OFFSETS, place)
        if isinstance(queued, ListOffsetsPartitionResponse):
            return replace(queued, partition_index=place.partition)
        code = self.refusal(node, place) if queued is None else queued
        log = self.logs[place]
        offset = asked.timestamp
        if asked.timestamp == SpecialTimestamp.EARLIEST:
            offset = log.start
        elif asked.timestamp == SpecialTimestamp.LATEST:
            offset = log.end
        elif offset >= log.end:
            offset = -1
        return ListOffsetsPartitionResponse(
            partition_index=place.partition,
            error_code=code,
            offset=-1 if code else offset,
            timestamp=max(-1, asked.timestamp),
            leader_epoch=NO_LEADER_EPOCH if code else log.epoch,
        )

    def _epochs(
        self, node: ScriptedNode, body: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=tuple(
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=tuple(
                        self._end_of_epoch(node, TopicPartition(topic.topic, each.partition), each)
                        for each in topic.partitions
                    ),
                )
                for topic in body.topics
            )
        )

    def _end_of_epoch(
        self, node: ScriptedNode, place: TopicPartition, asked: OffsetForLeaderPartition
    ) -> EpochEndOffset:
        queued = self._next(ApiKey.OFFSET_FOR_LEADER_EPOCH, place)
        if isinstance(queued, EpochEndOffset):
            return replace(queued, partition=place.partition)
        code = self.refusal(node, place) if queued is None else queued
        if code:
            return EpochEndOffset(partition=place.partition, error_code=code)
        epoch, end = -1, -1
        for after, batch in self.logs[place].batches:
            [found] = layout.LEADER_EPOCH.unpack_from(batch, layout.LEADER_EPOCH_POSITION)
            if found <= asked.leader_epoch:
                epoch, end = found, after
        return EpochEndOffset(partition=place.partition, leader_epoch=epoch, end_offset=end)

    def _committed(self, body: OffsetFetchRequest) -> OffsetFetchResponse:
        [group] = body.groups
        return OffsetFetchResponse(
            groups=(
                OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=tuple(
                        OffsetFetchResponseTopics(
                            name=topic.name,
                            partitions=tuple(
                                self._committed_part(TopicPartition(topic.name, each))
                                for each in topic.partition_indexes
                            ),
                        )
                        for topic in group.topics or ()
                    ),
                ),
            )
        )

    def _committed_part(self, place: TopicPartition) -> OffsetFetchResponsePartitions:
        offset, epoch = self.committed.get(place, (-1, -1))
        return OffsetFetchResponsePartitions(
            partition_index=place.partition,
            committed_offset=offset,
            committed_leader_epoch=epoch,
            metadata="",
            error_code=self._next(ApiKey.OFFSET_FETCH, place) or ErrorCode.NONE,
        )

    def _with_replicas(self, answer: MetadataResponse) -> MetadataResponse:
        return replace(
            answer,
            topics=tuple(
                replace(
                    topic,
                    topic_id=self.ids.get(topic.name or "", NO_UUID),
                    partitions=tuple(
                        replace(
                            each,
                            replica_nodes=tuple(self.nodes),
                            isr_nodes=tuple(self.nodes),
                            offline_replicas=self.offline.get(
                                TopicPartition(topic.name or "", each.partition_index), ()
                            ),
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in answer.topics
            ),
        )


async def read(consumer: AsyncConsumer, count: int) -> list[ConsumerRecord]:
    """Poll until there are so many records."""
    found: list[ConsumerRecord] = []
    while len(found) < count:
        records = await consumer.poll(60)
        assert records, f"{len(found)} of {count} records came"
        found += records
    return found


def offsets(records: list[ConsumerRecord]) -> list[int]:
    """The offsets of records whose values are their offsets."""
    assert all(each.value == b"%d" % each.offset for each in records)
    return [each.offset for each in records]
