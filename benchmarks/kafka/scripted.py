"""Brokers without logs, for controllers alone: they register, send heartbeats, and do nothing else.

A controller with a hundred thousand partitions can be measured so on one machine. To the controller
they are brokers: it speaks the same protocol to them, and cannot know that they have no files.
"""

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Self
from uuid import UUID, uuid4

from compat.controllers import AHEAD
from compat.kafka import CLUSTER_ID
from tailrace.broker.kraft.lifecycle import supported_features
from tailrace.client.nodes import Node
from tailrace.cluster.metadata.folder import TOPIC_ID
from tailrace.model import METADATA_TOPIC
from tailrace.protocol.apis import APIS, BETWEEN_NODES, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message, received_records
from tailrace.protocol.frames import SIZE_BYTES, decode_response, encode_request
from tailrace.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tailrace.protocol.messages.broker_registration import BrokerRegistrationRequest, Listener
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from tailrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from tailrace.records.batch import read_batches

BEAT_SECONDS = 1.0
"""Half of Kafka's default, so that a machine that is slow for a moment ends no session."""
OBSERVER_ID = 4000
FETCH_BYTES = 1 << 20
"""Most bytes of an answer to an observer, as the brokers of both ask (default of Kafka)."""
PARTITIONS_TOGETHER = 2000
"""Partitions in a request that creates topics."""
TIMEOUT_SECONDS = 60

VERSIONS = {ApiKey.FETCH: 17, ApiKey.BROKER_HEARTBEAT: 1}
"""Versions in place of the newest, which not every level of `metadata.version` has."""


class Channel(AbstractContextManager["Channel"]):
    """A blocking connection to a controller, with one request under way."""

    def __init__(self, controller: Node) -> None:
        """Raises OSError: nobody listens there."""
        self._socket = socket.create_connection(
            (controller.host, controller.port), timeout=TIMEOUT_SECONDS
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, key: ApiKey, request: Message) -> Any:  # noqa: ANN401 - that of the API
        """The answer to a request.

        Raises:
            OSError: the connection ends.
        """
        api = APIS.get(key) or BETWEEN_NODES[key]
        version = VERSIONS.get(key, api.last_version)
        self._socket.sendall(
            encode_request(api, request, version=version, correlation_id=1, client_id="benchmark")
        )
        size = int.from_bytes(self._receive(SIZE_BYTES))
        return decode_response(api, version, memoryview(self._receive(size)))

    def _receive(self, size: int) -> bytes:
        received = bytearray(size)
        place = memoryview(received)
        while place:
            count = self._socket.recv_into(place)
            if not count:
                raise ConnectionError("the controller has closed the connection")
            place = place[count:]
        return bytes(received)


class LogEnd(NamedTuple):
    """The end of the metadata log."""

    offset: int
    epoch: int


class Seen(NamedTuple):
    """Records that an observer has fetched, and when."""

    at: float
    records: bytes


def log_end(channel: Channel) -> LogEnd:
    """The end of the controller's log, as it says itself."""
    topic = TopicData(topic_name=METADATA_TOPIC, partitions=(PartitionData(),))
    answer = channel.ask(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(topics=(topic,)))
    found = answer.topics[0].partitions[0]
    return LogEnd(found.high_watermark, found.leader_epoch)


def observe(channel: Channel, end: LogEnd, *, record_count: int) -> list[Seen]:
    """Follow the log from an end until batches of several records have brought this many records.

    A record that is alone in its batch does not count, as those that Kafka writes while it idles.

    Raises:
        TimeoutError: they do not come.
    """
    deadline = time.perf_counter() + TIMEOUT_SECONDS
    seen: list[Seen] = []
    offset = end.offset
    missing = record_count
    while missing > 0:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{missing} records have not come")
        wanted = FetchPartition(
            partition=0,
            current_leader_epoch=end.epoch,
            fetch_offset=offset,
            last_fetched_epoch=end.epoch,
            partition_max_bytes=FETCH_BYTES,
        )
        request = FetchRequest(
            cluster_id=CLUSTER_ID,
            replica_state=ReplicaState(replica_id=OBSERVER_ID),
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=(FetchTopic(topic_id=TOPIC_ID, partitions=(wanted,)),),
        )
        answer = channel.ask(ApiKey.FETCH, request)
        at = time.perf_counter()
        [partition] = answer.responses[0].partitions
        assert partition.error_code == ErrorCode.NONE, partition
        assert partition.snapshot_id.epoch < 0, "the log is whole, and no snapshot is fetched"
        records = received_records(partition.records)
        for _, batch in read_batches(records):
            offset = batch.next_offset
            # A metadata log has no gaps.
            count = batch.next_offset - batch.base_offset
            missing -= count if count > 1 else 0
        if records:
            seen.append(Seen(at, bytes(records)))
    return seen


class Brokers(AbstractContextManager["Brokers"]):
    """Brokers without logs, registered and unfenced; a thread sends their heartbeats."""

    def __init__(self, controller: Node, ids: Sequence[int]) -> None:
        self._controller = controller
        self._ids = ids
        self._epochs: dict[int, int] = {}
        self._directories = {each: uuid4() for each in ids}
        self._silent: set[int] = set()
        self._is_over = threading.Event()
        self._beating = threading.Lock()
        self._thread = threading.Thread(target=self._beat_all, daemon=True)

    def __enter__(self) -> Self:
        with Channel(self._controller) as channel:
            for each in self._ids:
                self.register(channel, each)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def register(self, channel: Channel, broker_id: int) -> None:
        """Register a broker as another life of it, and have it unfenced.

        Raises:
            OSError: the connection ends.
        """
        answer = channel.ask(
            ApiKey.BROKER_REGISTRATION,
            registration(broker_id, self._directories[broker_id], self._epochs.get(broker_id, -1)),
        )
        assert answer.error_code == ErrorCode.NONE, answer
        self._epochs[broker_id] = answer.broker_epoch
        self.speak(channel, broker_id)

    def speak(self, channel: Channel, broker_id: int) -> None:
        """Have a broker send heartbeats; it is unfenced on return."""
        while self.beat(channel, broker_id):
            time.sleep(0.01)
        self._silent.discard(broker_id)

    def be_silent(self, broker_id: int) -> None:
        """Have the thread send no more heartbeats of a broker."""
        # The lock: one that is on its way would begin another session.
        with self._beating:
            self._silent.add(broker_id)

    def beat(self, channel: Channel, broker_id: int, *, wants_fence: bool = False) -> bool:
        """Send one heartbeat; returns whether the broker is fenced, or the answer an error."""
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self._epochs[broker_id],
            current_metadata_offset=AHEAD,
            want_fence=wants_fence,
        )
        answer = channel.ask(ApiKey.BROKER_HEARTBEAT, request)
        # A controller that starts or stops refuses it.
        return bool(answer.is_fenced or answer.error_code)

    def _beat_all(self) -> None:
        channel: Channel | None = None
        while not self._is_over.wait(BEAT_SECONDS):
            try:
                channel = channel or Channel(self._controller)
                with self._beating:
                    for each in self._ids:
                        if each not in self._silent:
                            self.beat(channel, each)
            except OSError:
                # The controller starts again.
                channel = None


def registration(broker_id: int, directory: UUID, previous_epoch: int) -> BrokerRegistrationRequest:
    """The request of a broker that starts."""
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=uuid4(),
        listeners=(Listener(name="PLAINTEXT", host="127.0.0.1", port=9092),),
        features=supported_features(),
        log_dirs=(directory,),
        previous_broker_epoch=previous_epoch,
    )


def create_topics(
    channel: Channel, names: Sequence[str], *, partition_count: int, replication_factor: int
) -> None:
    """Create topics whose replicas the controller places."""
    together = max(PARTITIONS_TOGETHER // partition_count, 1)
    for first in range(0, len(names), together):
        topics = tuple(
            CreatableTopic(
                name=each, num_partitions=partition_count, replication_factor=replication_factor
            )
            for each in names[first : first + together]
        )
        answer = channel.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=topics))
        assert not any(each.error_code for each in answer.topics), answer.topics[0]


def delete_topics(channel: Channel, names: Sequence[str]) -> None:
    """Delete topics."""
    topics = tuple(DeleteTopicState(name=each) for each in names)
    answer = channel.ask(
        ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=topics, timeout_ms=60_000)
    )
    assert not any(each.error_code for each in answer.responses), answer.responses[0]
