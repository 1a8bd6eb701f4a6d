"""One broker of a cluster of four, as its handlers see it, and requests of clients and the others.

The test publishes the images: it says who leads, and nothing happens by itself.
"""

import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

from tailrace.cluster.metadata.delta import MetadataDelta
from tailrace.cluster.metadata.image import EVERYTHING_CHANGED, MetadataImage
from tailrace.cluster.state import FollowedCluster
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.handlers.fetch import handle_fetch
from tailrace.handlers.fetch_sessions import FetchSessionLimits, FetchSessions
from tailrace.handlers.log_offsets import handle_list_offsets, handle_offset_for_leader_epoch
from tailrace.handlers.produce import handle_produce
from tailrace.handlers.repeated_fetch import RepeatedFetch
from tailrace.model import Acks, LeaderEpoch, Offset, TopicPartition
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.fields import NO_UUID, Message
from tailrace.protocol.frames import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    read_request_header,
    response_buffers,
)
from tailrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.protocol.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tailrace.replication.device_reads import DeviceReads
from tailrace.replication.flushes import Flushes
from tailrace.replication.partition import ClusterView, Partition
from tailrace.replication.quotas import ReplicationQuota
from tailrace.replication.replicas import Replicas
from tailrace.replication.validation import BatchValidation
from tailrace.security.quotas import ClientQuotas, QuotaConfig
from tailrace.storage.records_file import LogSlice
from tailrace.testing import Outside, virtual_runtime
from tests.unit.storage.builders import batch, settings
from tests.unit.storage.test_manager import manager

if TYPE_CHECKING:
    from tailrace.replication.leadership import IsrChange

ME, SECOND, THIRD, FOURTH = 1, 2, 3, 4
RACKS = {ME: "a", SECOND: "b", THIRD: "c", FOURTH: "c"}
FIRST = TopicPartition("t", 0)
TOPIC_ID = UUID(int=10)
IDS_SINCE, STATE_SINCE = 13, 15
NEWEST = APIS[ApiKey.FETCH].last_version
CONSUMER = -1
BY_NAME = 12
"""The last version of Produce that names topics."""

Wanted = TypeVar("Wanted", bound=Message)

_HANDLERS: dict[ApiKey, Callable[..., Any]] = {
    ApiKey.FETCH: handle_fetch,
    ApiKey.LIST_OFFSETS: handle_list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: handle_offset_for_leader_epoch,
}


def broker_epoch(broker_id: int) -> int:
    """The epoch with which a broker has registered."""
    return 100 * broker_id


class Broker:
    """Broker 1, with whatever partitions the last image gives it."""

    def __init__(
        self,
        outside: Outside,
        *,
        sends_to_nearest: bool = False,
        is_durable: bool = False,
        **configs: object,
    ) -> None:
        """`configs` are those of each log."""
        self.outside = outside
        self._configs = configs
        self.cluster = FollowedCluster(
            ME, defaults=TopicDefaults(partition_count=1, replication_factor=1, given={})
        )
        self.logs = manager(outside.files, "data")
        self.replicas = Replicas(
            self.logs,
            outside.threads,
            cluster=ClusterView(
                node_id=ME,
                brokers=self.cluster,
                has_partition=lambda name: self.cluster.partition(name) is not None,
                clock=outside.clock,
                lag_ms=30_000,
            ),
        )
        self.proposed: list[IsrChange] = []
        """Changes of the ISR that the broker would have asked for."""
        self.replicas.on_isr_change = lambda _, change: self.proposed.append(change)
        self.logs.on_failure = self.replicas.directory_failed
        self.sessions = FetchSessions(
            FetchSessionLimits(slot_count=10, eviction_s=100),
            random.Random(0),
            name_of=self._name_of,
        )
        self.services = cast(
            "Any",
            SimpleNamespace(
                authorizer=None,
                node_id=ME,
                listener=self.cluster.listener,
                cluster=self.cluster,
                find_topic=self._find_topic,
                has_partition=self._has_partition,
                controller=None,
                replicas=self.replicas,
                flushes=Flushes(self.logs, outside.threads),
                validation=BatchValidation(outside.threads),
                is_durable=is_durable,
                device_reads=DeviceReads(outside.threads),
                clock=outside.clock,
                fetch_sessions=self.sessions,
                sends_to_nearest=sends_to_nearest,
                leader_quota=ReplicationQuota(
                    "leader", outside.clock, node_id=ME, window_count=11, window_s=1
                ),
                quotas=ClientQuotas(
                    lambda: self.cluster.metadata.quotas, outside.clock, QuotaConfig()
                ),
                fetch_bytes_max=1 << 20,
                fetch_wait_ms_max=100_000,
            ),
        )
        self.repeated = RepeatedFetch(self.services)
        self._image = MetadataImage()
        self._states: dict[TopicPartition, PartitionRecord] = {}
        self._sent = 0
        for each in RACKS:
            self.register(each)

    # -- the controller's part ----------------------------------------------------------------

    def publish(self, *records: Message) -> None:
        """The next image, in which these records have come."""
        delta = MetadataDelta(self._image)
        for record in records:
            delta.replay(record)
        self._image = delta.image()
        self.cluster.publish(self._image, EVERYTHING_CHANGED, offset=0)

    def register(self, broker_id: int, *, epoch: int | None = None, fenced: bool = False) -> None:
        """A broker comes, or comes again."""
        host = BrokerEndpoint(
            name="PLAINTEXT", host=f"b{broker_id}", port=9092, security_protocol=0
        )
        self.publish(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=UUID(int=broker_id),
                broker_epoch=broker_epoch(broker_id) if epoch is None else epoch,
                end_points=(host,),
                rack=RACKS[broker_id],
                fenced=fenced,
            )
        )

    async def assign(
        self,
        leader: int = ME,
        *,
        name: TopicPartition = FIRST,
        topic_id: UUID = TOPIC_ID,
        isr: Sequence[int] = (ME, SECOND, THIRD),
        replicas: Sequence[int] = (ME, SECOND, THIRD),
        epoch: int | None = None,
    ) -> Partition:
        """A partition gets a leader, in a new leader epoch if no other is given."""
        known = self._states.get(name)
        if self.cluster.metadata.topic(name.topic) is None:
            self.publish(TopicRecord(name=name.topic, topic_id=topic_id))
        last = 0 if known is None else known.leader_epoch
        state = self._states[name] = PartitionRecord(
            partition_id=name.partition,
            topic_id=topic_id,
            replicas=tuple(replicas),
            isr=tuple(isr),
            leader=leader,
            leader_epoch=last + 1 if epoch is None else epoch,
            partition_epoch=1 if known is None else known.partition_epoch + 1,
        )
        self.publish(state)
        self.replicas.assign(name, topic_id, state, config=settings(**self._configs))
        await self.replicas.new_logs.wait_for(name)
        return self.replicas.find_replica(name)

    def delete(self, name: TopicPartition = FIRST, topic_id: UUID = TOPIC_ID) -> None:
        """A topic of one partition is deleted."""
        del self._states[name]
        self.publish(RemoveTopicRecord(topic_id=topic_id))
        self.replicas.close(name, unique_id="0" * 32)()

    # -- records ------------------------------------------------------------------------------

    def append(self, *values: bytes) -> None:
        """Append a batch as leader of the first partition."""
        self.replicas.find(FIRST).append(memoryview(batch(*values)), now_ms=self.now_ms)

    def follow_records(self, *values: bytes, epoch: int, watermark: int) -> None:
        """Append what a leader has sent to this follower, with its high watermark."""
        partition = self.replicas.find_replica(FIRST)
        partition.log.append(
            memoryview(batch(*values)), leader_epoch=LeaderEpoch(epoch), now_ms=self.now_ms
        )
        partition.log.advance_high_watermark(watermark)
        partition.followed()

    def note_fetch(
        self, broker_id: int, offset: int, *, name: TopicPartition = FIRST, log_start: int = 0
    ) -> None:
        """A fetch of a follower that has all records before `offset`, without its request."""
        partition = self.replicas.find(name)
        partition.note_fetch(
            broker_id,
            broker_epoch=broker_epoch(broker_id),
            offset=Offset(offset),
            log_start=Offset(log_start),
            log_end=partition.log.end_offset,
            now_ms=self.now_ms,
        )

    @property
    def now_ms(self) -> int:
        return self.outside.clock.now_ms()

    # -- requests -----------------------------------------------------------------------------

    def _find_topic(self, name: str, topic_id: UUID) -> object:
        image = self.cluster.image
        return image.topic_by_id(topic_id) if topic_id.int else image.topics.get(name)

    def _name_of(self, topic_id: UUID) -> str | None:
        topic = self.cluster.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def _has_partition(self, name: TopicPartition) -> bool:
        return self.cluster.partition(name) is not None

    async def ask(
        self, key: ApiKey, request: Message, answer_type: type[Wanted], *, version: int
    ) -> Wanted:
        """The answer to a request, which is encoded and decoded as on a connection."""
        frame = self.frame(key, request, version=version)
        body = memoryview(frame)[4:]
        header, position = read_request_header(body)
        received = decode_request(header, body, position)
        answer = _HANDLERS[key](self.services, header, received)
        if isinstance(answer, Awaitable):
            answer = await answer
        elif key is ApiKey.FETCH:
            self.repeated.learn(header, received, answer=answer, frame=body)
        return decoded(
            response_buffers(APIS[key], answer, version=version, correlation_id=0),
            answer_type,
            key=key,
            version=version,
        )

    async def produce(
        self,
        *numbers: int,
        acks: int = Acks.ALL,
        timeout_ms: int = 1000,
        version: int = BY_NAME,
        records: bytes | None = None,
    ) -> ProduceResponse:
        """The answer to a request with one record for each of the partitions, by default 0."""
        data = [
            PartitionProduceData(
                index=each, records=memoryview(bytearray(records or batch(b"value")))
            )
            for each in numbers or (0,)
        ]
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=(TopicProduceData(name=FIRST.topic, partition_data=tuple(data)),),
        )
        header = RequestHeader(ApiKey.PRODUCE, version, 1, "client")
        answer: Any = handle_produce(self.services, header, request)
        if isinstance(answer, Awaitable):
            answer = await answer
        assert isinstance(answer, ProduceResponse)
        return answer

    def frame(self, key: ApiKey, request: Message, *, version: int) -> bytes:
        """A request as it is on a connection, with the size before it."""
        self._sent += 1
        return encode_request(
            APIS[key], request, version=version, correlation_id=self._sent, client_id="c"
        )

    def take(self, frame: bytes, *, version: int) -> PartitionData | None:
        """The answer to a request that repeats the one that was learned, or None."""
        taken = self.repeated.take(bytearray(frame), 0, len(frame), frame_bytes_max=1 << 20)
        if taken is None:
            return None
        found = decoded(taken[1], FetchResponse, key=ApiKey.FETCH, version=version)
        return found.responses[0].partitions[0]

    async def fetch(
        self,
        offset: int,
        *,
        replica: int = CONSUMER,
        replica_epoch: int | None = None,
        version: int = NEWEST,
        **changes: Any,
    ) -> PartitionData:
        """The answer to a Fetch of the first partition alone."""
        request = fetch_request(
            offset, replica=replica, replica_epoch=replica_epoch, version=version, **changes
        )
        found = await self.ask(ApiKey.FETCH, request, FetchResponse, version=version)
        assert found.error_code == 0
        ((partition,),) = [each.partitions for each in found.responses]
        return partition


def fetch_request(
    offset: int,
    *,
    replica: int = CONSUMER,
    replica_epoch: int | None = None,
    version: int = NEWEST,
    topic_id: UUID = TOPIC_ID,
    **changes: Any,
) -> FetchRequest:
    """A Fetch for the first partition; by default it does not wait."""
    epoch = broker_epoch(replica) if replica_epoch is None else replica_epoch
    of_partition: dict[str, Any] = {
        each: changes.pop(each)
        for each in (
            "current_leader_epoch", "last_fetched_epoch", "log_start_offset", "partition_max_bytes",
        )
        if each in changes
    }  # fmt: skip
    wanted = FetchPartition(
        partition=FIRST.partition,
        fetch_offset=offset,
        **{"partition_max_bytes": 1 << 20, "log_start_offset": min(replica, 0), **of_partition},
    )
    has_state, has_ids = version >= STATE_SINCE, version >= IDS_SINCE
    usual: dict[str, Any] = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "replica_id": CONSUMER if has_state else replica,
        "replica_state": (
            ReplicaState(replica_id=replica, replica_epoch=epoch)
            if has_state and replica != CONSUMER
            else ReplicaState()
        ),
        "topics": (
            FetchTopic(
                topic="" if has_ids else FIRST.topic,
                topic_id=topic_id if has_ids else NO_UUID,
                partitions=(wanted,),
            ),
        ),
    }
    return FetchRequest(**{**usual, **changes})


def partition_answers(response: ProduceResponse) -> tuple[PartitionProduceResponse, ...]:
    return response.responses[0].partition_responses


def decoded(buffers: Any, answer_type: type[Wanted], *, key: ApiKey, version: int) -> Wanted:
    """The answer in a frame, with the records that are in files."""
    frame = b"".join(
        [bytes(each.read() if isinstance(each, LogSlice) else each) for each in buffers]
    )
    answer = decode_response(APIS[key], version, memoryview(frame)[4:])
    assert isinstance(answer, answer_type)
    return answer


def on_virtual_time(scenario: Callable[[Outside], Coroutine[Any, Any, None]]) -> float:
    """Seconds of virtual time that a test takes."""
    with virtual_runtime() as outside:
        outside.run(scenario(outside))
        return outside.loop.time()
