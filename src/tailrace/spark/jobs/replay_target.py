"""The topic that a replay writes to: what its logs hold, and batches for them.

Batches go through the producer of this project, under an identity that the replay owns: its
sequence numbers outlive the process. The producer has the connections, the leaders, the retries and
the rule that a partition's first batch is sent alone.

Not here: which batches; see `replay_send`.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from tailrace.client import ClusterReader, fetch_batches
from tailrace.client.errors import RemoteRetriableError, raise_for
from tailrace.client.producer import OwnedIdentity, Producer
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.producer.errors import (
    OutOfOrderSequenceError,
    ProducerError,
    TransactionStateError,
)
from tailrace.errors import FatalError, OffsetOutOfRangeError, RetriableError
from tailrace.model import NO_TIMESTAMP, SpecialTimestamp, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.records.batch import Batch
from tailrace.spark.jobs.identities import TopicIdentity
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.client.producer.intake.slices import ColumnSlice
    from tailrace.client.producer.outcome import BatchOutcome

T = TypeVar("T")

PlacedCallback = Callable[[int, int, int], None]
"""Takes the index of a record in its batch, its offset, and how many records follow on each other
from there on."""


class OvertakenError(RetriableError):
    """Another attempt has sent records meanwhile, so the target has to be looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """Settings of a replay's writes."""

    bootstrap: str
    producer_settings: Mapping[str, object] = field(repr=False)
    """Settings by Kafka's names; there may be a password among them."""
    batch_size: int
    """Bytes that a batch is filled up to."""
    request_size_max: int
    """Bytes that a batch with one record may have."""


class Target(Protocol):
    """The logs of a topic."""

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset, and the one after the last that can be read."""
        ...

    def batches(self, partition: TopicPartition, start: int, limit: int) -> Iterator[Batch]:
        """The checked batches between two offsets of the log."""
        ...

    def begin(self, identity: OwnedIdentity) -> None:
        """Send under this identity from now on; what was sent before is not waited for."""
        ...

    def send(self, topic: str, rows: "ColumnSlice", placed: PlacedCallback) -> None:
        """Have a batch appended; `placed` is called for all of its records, later or in `settle`.

        Raises:
            OvertakenError: the number of a batch that was sent is not the next one.
            RetriableError, FatalError: one that was sent is not in the log, as far as is known.
        """
        ...

    def settle(self) -> int:
        """Wait until each batch that was sent is in the log; raises as `send`.

        Returns the bytes of the batches, each time that they were sent.
        """
        ...


class _Sent(NamedTuple):
    """A batch whose outcome is awaited."""

    rows: "ColumnSlice"
    outcome: "BatchOutcome"
    placed: PlacedCallback


class BrokerTarget:
    """A topic of a cluster."""

    def __init__(self, settings: TargetSettings) -> None:
        """Connects when it is first asked."""
        self._settings = settings.producer_settings
        self._cluster = ClusterReader(parse_producer_config(self._settings), has_topic_ids=True)
        self._producer: Producer | None = None
        self._under_way: deque[_Sent] = deque()

    def partitions(self, topics: Collection[str]) -> dict[str, int]:
        """Return the number of partitions of each of these topics that exists."""
        return {name: len(each) for name, each in self._cluster.partitions(topics).items()}

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """The identity of each of these topics that exists."""
        found = self._cluster.topics(topics)
        cluster_id = self._cluster.cluster_id
        return {
            name: TopicIdentity(topic_id=each.topic_id, cluster_id=cluster_id)
            for name, each in found.items()
        }

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

    def begin(self, identity: OwnedIdentity) -> None:
        """Make a producer of this identity; one before it is closed."""
        self._end_sending()
        self._producer = Producer(self._settings, identity=identity)

    def send(self, topic: str, rows: "ColumnSlice", placed: PlacedCallback) -> None:
        """Queue the batch at the producer; waits while its memory is full."""
        assert self._producer is not None, "begin comes first"
        self._take_outcomes()
        try:
            outcome = self._producer.send_slice(topic, rows)
        except TransactionStateError:
            self.settle()  # The batch that failed meanwhile says why.
            raise
        self._under_way.append(_Sent(rows, outcome, placed))

    def settle(self) -> int:
        """Wait for all batches, for `delivery.timeout.ms` at most."""
        assert self._producer is not None, "begin comes first"
        self._producer.flush()
        self._take_outcomes()
        return int(self._producer.metrics()["byte-total"])

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Call `attempt`, again with new connections after a retriable error.

        But once if the producer gave up: it has tried for long.
        """

        def try_once() -> T | ProducerError:
            try:
                return attempt()
            except BaseException as error:
                # Batches that were sent may still arrive; nobody waits for their answers any more.
                self.close()
                if isinstance(error, ProducerError):
                    return error
                raise

        outcome = self._cluster.retrying(try_once)
        if isinstance(outcome, ProducerError):
            raise outcome
        return outcome

    def close(self) -> None:
        """Close the connections."""
        self._end_sending()
        self._cluster.close()

    def _end_sending(self) -> None:
        self._under_way.clear()
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(0)

    def _take_outcomes(self) -> None:
        """Take the outcomes that are there, in the order in which the batches were sent."""
        while self._under_way and self._under_way[0].outcome.is_done:
            _take_outcome(self._under_way.popleft())


def _take_outcome(sent: _Sent) -> None:
    rows, outcome, placed = sent
    topic = outcome.partition.topic
    timestamps = rows.timestamps()
    for first, count, part in outcome.undivided(0, rows.record_count):
        is_repeated = part.failure is None and part.base_offset < 0
        if is_repeated or isinstance(part.failure, OutOfOrderSequenceError):
            raise OvertakenError(
                f"topic {topic!r}: another attempt to send the same records is ahead; "
                "it could not be caught up with"
            ) from part.failure
        if part.failure is not None:
            raise part.failure
        # A batch that was there already is answered with its own largest timestamp here.
        own = int(timestamps[first : first + count].max())
        if part.log_append_time not in {NO_TIMESTAMP, own}:
            raise FatalError(
                f"topic {topic!r} sets its own timestamps, so those of the source are lost; set "
                "its message.timestamp.type to CreateTime, and delete the sent records"
            )
        placed(first, part.base_offset, count)
