"""The topic that a replay writes to: batches under sequence numbers that the replay chooses.

The producer of this project numbers its batches itself and forgets the numbers with the process.
A replay needs them to outlive it, so it sends its own batches, over the client that reads.

Not here: which batches; see `replay_send`.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from tailrace.client import ClusterReader, UnreachableBrokerError, fetch_batches
from tailrace.client.errors import RemoteRetriableError, raise_for
from tailrace.errors import FatalError, OffsetOutOfRangeError, RetriableError
from tailrace.model import NO_TIMESTAMP, Acks, Codec, SpecialTimestamp, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.records.batch import Batch

if TYPE_CHECKING:
    from tailrace.client.brokers import PendingRequest

T = TypeVar("T")

PRODUCE_TIMEOUT_MS: Final = 30_000
"""Longest time that the replicas may take (Kafka: request.timeout.ms of a producer)."""

IN_FLIGHT_MAX: Final = 5
"""Batches under way: a broker tells a repeated one from a gap among a producer's last five."""

_OVERTAKEN: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}
)


class OvertakenError(RetriableError):
    """Another attempt has sent records meanwhile, so the target has to be looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """Settings of a replay's writes."""

    bootstrap: str
    client_settings: Mapping[str, str] = field(repr=False)
    """Settings of the connections by Kafka's names; there may be a password among them."""
    batch_size: int
    """Bytes that a batch is filled up to."""
    request_size_max: int
    """Bytes that a batch with one record may have."""
    codec: Codec
    level: int | None


class _Sent(NamedTuple):
    """A batch whose answer is awaited."""

    partition: TopicPartition
    pending: "PendingRequest"
    max_timestamp: int
    placed: Callable[[int], None]


class Target(Protocol):
    """The logs of a topic."""

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset, and the one after the last that can be read."""
        ...

    def batches(self, partition: TopicPartition, start: int, limit: int) -> Iterator[Batch]:
        """The checked batches between two offsets of the log."""
        ...

    def send(
        self, partition: TopicPartition, batch: memoryview, placed: Callable[[int], None]
    ) -> None:
        """Have a batch appended; `placed` is called with its base offset, soon or in `settle`.

        Raises:
            OvertakenError: its sequence number, or that of one before, is not the next.
            RetriableError, FatalError: one that was sent is not in the log, as far as is known.
        """
        ...

    def settle(self) -> None:
        """Wait until each batch that was sent is in the log; raises as `send`."""
        ...


class BrokerTarget:
    """A topic of a cluster."""

    def __init__(self, settings: TargetSettings) -> None:
        """Connects when it is first asked."""
        self._cluster = ClusterReader(settings.bootstrap, settings=settings.client_settings)
        self._under_way: deque[_Sent] = deque()

    def partitions(self, topics: Collection[str]) -> dict[str, int]:
        """Return the number of partitions of each of these topics that exists."""
        return {name: len(each) for name, each in self._cluster.partitions(topics).items()}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each."""
        return self._cluster.list_offsets(dict.fromkeys(partitions, SpecialTimestamp.LATEST))

    def new_producer(self) -> tuple[int, int]:
        """The id and epoch of a producer that nobody else is."""

        def ask() -> tuple[int, int]:
            broker = self._cluster.any_broker()
            answer = broker.request(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
                InitProducerIdResponse,
            )
            raise_for(answer.error_code, about=f"a producer id of {broker.address}")
            return answer.producer_id, answer.producer_epoch

        return self._cluster.retrying(ask)

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset and the one after the last, as ListOffsets answers."""
        return self._cluster.log_range(partition)

    def batches(self, partition: TopicPartition, start: int, limit: int) -> Iterator[Batch]:
        """The batches of a range, as Fetch answers."""
        try:
            yield from fetch_batches(
                self._cluster, partition, start_offset=start, limit_offset=limit
            )
        except OffsetOutOfRangeError as error:
            # Retention was faster than the fetch: where the log begins is asked again.
            raise RemoteRetriableError(
                ErrorCode.OFFSET_OUT_OF_RANGE, about=f"records of {partition}"
            ) from error

    def send(
        self, partition: TopicPartition, batch: memoryview, placed: Callable[[int], None]
    ) -> None:
        """Send with acks=all; waits for the oldest batch when `IN_FLIGHT_MAX` are under way."""
        leader = self._cluster.leader(partition)
        request = _request(partition, batch)
        if len(self._under_way) >= IN_FLIGHT_MAX:
            self._settle_one()
        while (pending := leader.send_nowait(request)) is None:
            if self._under_way:
                self._settle_one()
            else:
                leader.brokers.connect(leader.node)
        self._under_way.append(_Sent(partition, pending, Batch(batch).max_timestamp, placed))

    def settle(self) -> None:
        """Wait for all batches, in the order in which they were sent."""
        while self._under_way:
            self._settle_one()

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Call `attempt`, again with new connections after a retriable error."""

        def try_once() -> T:
            try:
                return attempt()
            except BaseException:
                # Batches that were sent may still arrive; nobody waits for their answers any more.
                self.close()
                raise

        return self._cluster.retrying(try_once)

    def close(self) -> None:
        """Close the connections."""
        self._under_way.clear()
        self._cluster.close()

    def _settle_one(self) -> None:
        sent = self._under_way.popleft()
        partition = sent.partition
        answer = _answer_of(sent.pending.result(ProduceResponse), partition)
        if answer.error_code in _OVERTAKEN:
            raise OvertakenError(
                f"{partition}: another attempt to send the same records is ahead; "
                "it could not be caught up with"
            )
        said = f": {answer.error_message}" if answer.error_message else ""
        raise_for(answer.error_code, about=f"a batch for {partition}{said}")
        # A batch that was there already is answered with its own largest timestamp here.
        if answer.log_append_time_ms not in {NO_TIMESTAMP, sent.max_timestamp}:
            raise FatalError(
                f"topic {partition.topic!r} sets its own timestamps, so those of the source are "
                "lost; set its message.timestamp.type to CreateTime, and delete the sent records"
            )
        sent.placed(answer.base_offset)


def _request(partition: TopicPartition, batch: memoryview) -> ProduceRequest:
    data = PartitionProduceData(index=partition.partition, records=batch)
    return ProduceRequest(
        acks=Acks.ALL,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=(TopicProduceData(name=partition.topic, partition_data=(data,)),),
    )


def _answer_of(response: ProduceResponse, partition: TopicPartition) -> PartitionProduceResponse:
    for topic in response.responses:
        for each in topic.partition_responses:
            if each.index == partition.partition:
                return each
    raise UnreachableBrokerError(
        f"the answer to a batch says nothing of {partition}", address=str(partition)
    )
