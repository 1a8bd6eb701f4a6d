"""Produce requests that repeat an earlier one of their connection, but for their records.

A producer sends the same request again and again: the same client, acks, topic and partition, with
another correlation id and other records. So the bytes around these are compared with those of an
earlier request and not decoded, and the answer is that request's with another correlation id and
another base offset. One kernel call takes all such requests that have been received, and one write
appends their batches. It costs a tenth of the general path (decision 37).

`handlers.produce` says what a request means. Here a request is answered only as it would be
answered there, byte by byte, and the log is then the same; every other request goes there. That is:

    learn   a request for one partition was answered there without an error, or has to wait only
            for followers
    take    each byte of the next one that stands for anything else is equal; the topic, its
            settings, the partition and the producer are looked up at each call

Their bytes are counted where the client has a quota. Where they could exceed it, none is taken: an
answer with a throttle time is made there.

Invariant: nothing of a topic is remembered but its name, so that no change of it is missed.
"""

from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from tailrace import kernels
from tailrace.errors import TailraceError
from tailrace.handlers.produce import refused_response
from tailrace.handlers.services import Services
from tailrace.kernels import ENTRY_WIDTH, Taking
from tailrace.model import NO_PRODUCER_ID, NO_TIMESTAMP, Acks, Offset, ProducerId, TopicPartition
from tailrace.protocol.answers import Answer, Deferred
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message, Records, received_records
from tailrace.protocol.frames import (
    SIZE_BYTES,
    RequestHeader,
    encode_response,
    request_buffers,
    response_buffers,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.records.batch import Batch
from tailrace.records.layout import HEADER_SIZE
from tailrace.replication.partition import Partition
from tailrace.replication.waiting import expire
from tailrace.security.quotas import QuotaKind
from tailrace.storage.checked_appends import CheckedBatches, allows_checked, plan_checked
from tailrace.storage.segment import DueEntry
from tailrace.values import replace

if TYPE_CHECKING:
    import asyncio

    from tailrace.cluster.image import ClusterImage

# A producer sends to the partitions of a broker by turns, so one request is not enough.
KNOWN_MAX: Final = 8
"""Requests that are remembered of each connection: looking for one takes 0.1 us."""

BYTES_MAX: Final = 64 * 1024
"""Room for batches and for answers of one call; the input of a connection holds no more."""

TAKEN_MAX: Final = 1024
"""Most requests of one call."""

ENTRIES_MAX: Final = 32
"""Most index entries of one call: twice as many as 64 KiB have with the usual interval."""

_FRAME: Final = Struct(f"={Taking.FRAME_BYTES_MAX + 1}q")
"""The places of the kernel's state up to `Taking.FRAME_BYTES_MAX`."""

_HEAD: Final = Struct(">ii")
"""Size and correlation id of an answer."""

_TAKEN_FROM: Final = int(Taking.BYTES_BEFORE_ENTRY)
"""From this place of its state on, the kernel says what it took."""

_CONSTANT_FROM: Final = 8
"""From this position of a request on, after the correlation id, its head is constant."""


class _Known(NamedTuple):
    """The parts of a request that its repetitions have too, and what their answers rest on."""

    version: int
    client_id: str | None
    acks: int
    timeout_ms: int
    topic: str
    topic_id: UUID
    partition: int
    producer_id: ProducerId
    log_start_offset: int
    user: str


class _Repeat(NamedTuple):
    """The frame of a request, cut by what may differ, and its answer."""

    head: bytes
    """From the key to before the length of the records."""
    tail: bytes
    """After the records."""
    constant: bytes
    """The head from after the correlation id."""
    is_flexible: bool
    answer: bytes
    """The whole frame; empty with acks 0."""
    offset_at: int
    """Position of the base offset in the answer."""


class ProduceBuffers:
    """Memory that all connections of an event loop share: it is used within one call only."""

    def __init__(self) -> None:
        self.state = kernels.int64s(len(Taking))
        self.starts = kernels.int64s(TAKEN_MAX)
        self.entries = kernels.int64s(ENTRIES_MAX * ENTRY_WIDTH)
        self.batches = memoryview(bytearray(BYTES_MAX))
        self.answers = memoryview(bytearray(BYTES_MAX))


class RepeatedProduce:
    """The produce requests that one connection has sent, to answer the same again."""

    def __init__(self, services: Services, buffers: ProduceBuffers) -> None:
        self._services = services
        self._buffers = buffers
        self._repeats: dict[_Known, _Repeat] = {}
        self.taken = 0
        """See `Repeats`."""
        self._last: _Known | None = None
        """The last request that was looked at."""
        self._image: ClusterImage | None = None
        """The cluster's image when `_names` was empty; each change of a topic makes a new one."""
        self._names: dict[bytes, TopicPartition] = {}
        """The partitions of requests, by the constant part of the request."""

    def learn(
        self, header: RequestHeader, request: Message, *, answer: Answer, frame: memoryview
    ) -> None:
        """Remember a request that was answered at once, if it can be answered without decoding.

        `frame` has the size in front cut off. If as many as possible are known, it takes the place
        of the oldest when it comes twice in a row.
        """
        if not isinstance(request, ProduceRequest) or not _may_repeat(request, answer):
            return
        topic = request.topic_data[0]
        found = self._services.find_topic(topic.name, topic.topic_id)
        name = TopicPartition("" if found is None else found.name, topic.partition_data[0].index)
        partition = self._services.replicas.get(name)
        # An answer that waits for a flush is made by the general path.
        is_flushed = request.acks == Acks.ALL and self._services.is_durable
        if partition is None or is_flushed or not allows_checked(partition.log.config):
            return
        known = _Known(
            version=header.api_version,
            client_id=header.client_id,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=name.partition,
            producer_id=_batch_of(request).producer_id,
            log_start_offset=partition.log.start_offset,
            user=header.caller.principal.name,
        )
        was_last, self._last = known == self._last, known
        # While there is room each request is remembered. Later it must come twice in a row: a
        # producer for many partitions would otherwise push out each request before it comes back.
        if known not in self._repeats and (was_last or len(self._repeats) < KNOWN_MAX):
            repeat = _repeat_or_none(header, request, answer=answer, frame=frame)
            if repeat is not None:
                for each in tuple(self._repeats):
                    # The answers of these have a log start that has moved.
                    if each._replace(log_start_offset=known.log_start_offset) == known:
                        del self._repeats[each]
                while len(self._repeats) >= KNOWN_MAX:
                    del self._repeats[next(iter(self._repeats))]
                self._repeats[known] = repeat

    def take(
        self, received: bytearray, start: int, limit: int, *, frame_bytes_max: int
    ) -> tuple[int, bytes | Deferred[list[Records]]] | None:
        """Answer the requests at `start` that repeat a known one; None if the first does not.

        Returns the position after the last of them, and their answers. The log is as if each had
        been answered by `handle_produce`. Where followers have to acknowledge the batches, they
        do so for all of one call together, or all are refused.
        """
        # The correlation id before it differs each time. The kernel compares the bytes around it.
        at = start + SIZE_BYTES + _CONSTANT_FROM
        for known, repeat in self._repeats.items():
            if received.startswith(repeat.constant, at):
                _FRAME.pack_into(
                    self._buffers.state, 0, repeat.is_flexible, repeat.offset_at, frame_bytes_max
                )
                taken = self._take(known, repeat, received, place=(start, limit))
                if taken is not None:
                    return taken
        return None

    def _take(
        self, known: _Known, repeat: _Repeat, received: bytearray, *, place: tuple[int, int]
    ) -> tuple[int, bytes | Deferred[list[Records]]] | None:
        services, (start, limit) = self._services, place
        partition = self._find(known, repeat.constant)
        # The log start is part of the answer, and DeleteRecords or retention may have raised it.
        if partition is None or partition.log.start_offset != known.log_start_offset:
            return None
        quotas = services.quotas
        quota = quotas.find(QuotaKind.PRODUCE, known.user, known.client_id)
        # These answers have no throttle time: near the limit each request is counted alone.
        quota_ms = 0 if quota is None else int(quotas.clock.monotonic_s() * 1000)
        if quota is not None and not quota.has_room(limit - start, quota_ms):
            return None
        # A reassignment may have added followers since, or one may have left the ISR.
        is_awaited = partition.leadership is not None and known.acks == Acks.ALL
        if is_awaited and partition.insync_spare < 0:
            return None
        buffers, now_ms = self._buffers, services.clock.now_ms()
        state = buffers.state
        try:
            # Settings, producer state and the next offset are asked of the log each time, so
            # nothing has to be forgotten when they change (decision 37).
            is_planned = plan_checked(
                partition.log,
                state,
                leader_epoch=partition.leader_epoch,
                now_ms=now_ms,
                producer_id=known.producer_id,
            )
        except TailraceError:
            return None
        if not is_planned:
            return None
        # All that were received together, as one call and one write: 16 small requests cost 1.7 us
        # each then, and 18 us one at a time (decision 71).
        count = kernels.take_produces(
            received, start, limit, repeat.head, repeat.tail, repeat.answer,
            state, buffers.batches, buffers.answers, buffers.starts, buffers.entries, TAKEN_MAX,
        )  # fmt: skip
        if not count:
            return None
        (
            before, next_offset, position, size, answers_size, timestamp, timestamp_offset, due
        ) = state[_TAKEN_FROM:]  # fmt: skip
        batches = CheckedBatches(
            buffers.batches[:size],
            buffers.starts[:count],
            next_offset,
            timestamp,
            timestamp_offset,
            known.producer_id,
            _due_entries(buffers.entries, due) if due else (),
            before,
        )
        # The kernel has written to buffers only. What was received is as it was, and the general
        # path can begin with the same bytes.
        if not partition.append_checked(batches, now_ms=now_ms):
            return None
        self.taken = count
        partition.traffic.produce_requests += count
        if quota is not None:
            quota.record(position - start - count * SIZE_BYTES, quota_ms)
        # A copy, since the buffers belong to all connections.
        answers = bytes(buffers.answers[:answers_size])
        awaited = partition.acknowledged(Offset(next_offset)) if is_awaited else None
        if awaited is None:
            return position, answers
        respond = partial(self._respond, known, answers, size=len(repeat.answer), awaited=awaited)
        end = expire([awaited], timeout_ms=known.timeout_ms)
        return position, Deferred([awaited], respond, end=end)

    def _respond(
        self, known: _Known, answers: bytes, *, size: int, awaited: "asyncio.Future[None]"
    ) -> list[Records]:
        """The answers, each of `size` bytes, once followers have the batches or will not."""
        try:
            awaited.result()
        except TailraceError as error:
            data = PartitionProduceData(index=known.partition)
            topic = TopicProduceData(
                name=known.topic, topic_id=known.topic_id, partition_data=(data,)
            )
            refused = []
            for at in range(0, len(answers), size):
                _, correlation_id = _HEAD.unpack_from(answers, at)
                header = RequestHeader(
                    ApiKey.PRODUCE, known.version, correlation_id, known.client_id
                )
                refused += response_buffers(
                    APIS[ApiKey.PRODUCE],
                    refused_response(self._services, header, topic, error=error),
                    version=known.version,
                    correlation_id=correlation_id,
                )
            return refused
        return [answers]

    def _find(self, known: _Known, constant: bytes) -> Partition | None:
        """The partition of a known request, if requests for it can be answered at once."""
        services = self._services
        # Each change of a topic makes a new image; until then a name stays right.
        if self._image is not services.cluster.image:
            self._image = services.cluster.image
            self._names.clear()
        name = self._names.get(constant)
        if name is None:
            topic = services.find_topic(known.topic, known.topic_id)
            if topic is None or topic.is_internal:
                return None
            name = self._names[constant] = TopicPartition(topic.name, known.partition)
        # Some partition moves or has no log yet. That lasts for moments, so it is not asked which.
        if services.replicas.held:
            return None
        try:
            return services.replicas.find(name)
        except TailraceError:
            return None


def _due_entries(entries: Sequence[int], count: int) -> list[DueEntry]:
    rows = [entries[at : at + ENTRY_WIDTH] for at in range(0, count * ENTRY_WIDTH, ENTRY_WIDTH)]
    return [
        DueEntry(position, Offset(last_offset), timestamp, Offset(timestamp_offset))
        for position, last_offset, timestamp, timestamp_offset in rows
    ]


def _batch_of(request: ProduceRequest) -> Batch:
    return Batch(received_records(request.topic_data[0].partition_data[0].records))


def _may_repeat(request: ProduceRequest, answer: Answer) -> bool:
    """Whether a request is for one partition, and was answered as its repetitions will be."""
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return False
    # The coordinator may have to be asked first (KIP-890).
    if request.transactional_id is not None:
        return False
    if isinstance(answer, ProduceResponse):
        answered = answer.responses[0].partition_responses[0]
        # The answer to a batch that is in the log already has that batch's timestamp.
        if answered.error_code != ErrorCode.NONE or answered.log_append_time_ms != NO_TIMESTAMP:
            return False
    elif answer is not None:
        return False
    records = request.topic_data[0].partition_data[0].records
    if records is None or not HEADER_SIZE < len(records) < BYTES_MAX:
        return False
    batch = _batch_of(request)
    # No codec, no transaction, CreateTime: the kernel walks plain records only.
    return not batch.attributes and batch.producer_id >= NO_PRODUCER_ID


def _repeat_or_none(
    header: RequestHeader, request: ProduceRequest, *, answer: Answer, frame: memoryview
) -> _Repeat | None:
    """The request cut apart; None if its client encodes it in another way than we do."""
    api, version, correlation_id = APIS[ApiKey.PRODUCE], header.api_version, header.correlation_id
    first, records, *rest = request_buffers(
        api, request, version=version, correlation_id=correlation_id, client_id=header.client_id
    )
    tail = b"".join(rest)
    # By this comparison the request is cut apart without a second parser.
    if b"".join((first, records, tail))[SIZE_BYTES:] != frame:
        return None
    is_flexible = api.is_flexible(version)
    length_size = ((len(records) + 1).bit_length() + 6) // 7 if is_flexible else 4
    head = bytes(first[SIZE_BYTES:-length_size])
    answered, offset_at = b"", 0
    if isinstance(answer, ProduceResponse):
        answered, other = (
            encode_response(
                api, _with_base_offset(answer, offset), version=version, correlation_id=0
            )
            for offset in (0, -1)
        )
        offset_at = next(at for at, byte in enumerate(answered) if byte != other[at])
    return _Repeat(head, tail, head[_CONSTANT_FROM:], is_flexible, answered, offset_at)


def _with_base_offset(answer: ProduceResponse, base_offset: int) -> ProduceResponse:
    topic = answer.responses[0]
    partition = replace(topic.partition_responses[0], base_offset=base_offset)
    return replace(answer, responses=(replace(topic, partition_responses=(partition,)),))
