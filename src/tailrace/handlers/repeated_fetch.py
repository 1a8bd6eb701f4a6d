"""Fetch requests that repeat the one before on their connection, but for the offset.

A consumer of one partition sends the same request again and again. So the bytes around the offset
are compared with those of the earlier request and not decoded, and the answer is that request's
with other numbers and other records (decision 68).

    learn   a consumer's request for one partition came twice in a row, and was answered at once
            with records
    take    each other byte of the next one is equal, it is the next one of its session, and there
            are enough records in the page cache

What has to wait, fails, or tells of aborted transactions takes the general path, which begins
again: `take` changes nothing before it answers.

Invariant: nothing about the topic, the partition, its log and this broker's role in it is
remembered; all of it is looked up for each request.
"""

import asyncio
from struct import Struct
from typing import Final, NamedTuple, cast

from tailrace.errors import TailraceError
from tailrace.handlers.fetch import PARTITION_BYTES
from tailrace.handlers.fetch_sessions import (
    ANY_REPLICA_SINCE,
    CONSUMER,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    PartitionKey,
    WantedPartition,
    replica_id_of,
)
from tailrace.handlers.services import Services, read_limit
from tailrace.model import LeaderEpoch, Offset, TopicPartition
from tailrace.protocol.answers import Answer
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.fields import Buffer, Message, Records
from tailrace.protocol.frames import (
    SIZE_BYTES,
    RequestHeader,
    encode_request,
    layout_of,
    response_buffers,
)
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from tailrace.protocol.primitives import write_uvarint
from tailrace.replication.partition import Partition
from tailrace.runtime.files import without_waiting
from tailrace.security.quotas import QuotaKind
from tailrace.storage.positions import ReadLimit
from tailrace.storage.reads import ReadSlice
from tailrace.values import replace

FIRST_VERSION: Final = 7
"""The first version with sessions; before it a request has other fields."""

# Enough for one partition with the longest topic name (249) and a long client id.
BYTES_MAX: Final = 1024
"""Largest request that is remembered."""

_API: Final = APIS[ApiKey.FETCH]

_VARYING: Final = {4: "i", 8: "q"}
"""Struct format of bytes that may differ, by their count: correlation id, session epoch, offset."""

_HEAD: Final = Struct(">ii")
"""Size and correlation id of an answer."""

_OFFSETS: Final = Struct(">qqq")
"""High watermark, last stable offset and log start offset of an answer."""

_LENGTH: Final = Struct(">i")


class _Known(NamedTuple):
    """A request, cut by what may differ in its repetitions, and its answer."""

    request: FetchRequest
    user: str
    client_id: str | None
    key: PartitionKey
    wanted: FetchPartition
    limit: ReadLimit
    needs_leader: bool
    """Whether a follower refuses the request."""
    layout: Struct
    """Fields of the frame: constant bytes, correlation id, constant bytes, the session epoch and
    constant bytes if there is a session, the offset, constant bytes."""
    constants: tuple[bytes, ...]
    head: bytes
    """The frame of the answer up to the length of its records."""
    offsets_at: int
    """Position of `_OFFSETS` in it."""
    tail: bytes
    """The frame after the records."""
    is_flexible: bool


class RepeatedFetch:
    """The Fetch request that a connection repeats."""

    taken = 1
    """See `Repeats`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._last: tuple[object, ...] | None = None
        """The `_kind_or_none` of the last request that was looked at."""
        self._known: _Known | None = None

    def learn(
        self, header: RequestHeader, request: Message, *, answer: Answer, frame: memoryview
    ) -> None:
        """Remember a request that was answered at once, if the last one was the same.

        `frame` has the size in front cut off.
        """
        assert isinstance(request, FetchRequest)
        kind = None
        # KIP-392: each fetch of a consumer with a rack is decided alone, by the general path.
        may_go = request.rack_id and self._services.sends_to_nearest
        if len(frame) <= BYTES_MAX and not may_go:
            kind = _kind_or_none(header, request)
        # Twice in a row, since a request that is sent once is not worth the cutting.
        was_last, self._last = kind is not None and kind == self._last, kind
        if was_last and isinstance(answer, FetchResponse) and _has_records(answer):
            # An answer without records does not show where they would be.
            self._known = _known_or_none(header, request, answer=answer, frame=frame)

    def take(
        self,
        received: bytearray,
        start: int,
        limit: int,
        *,
        frame_bytes_max: int,  # noqa: ARG002 - the known request was within it
    ) -> tuple[int, list[Records]] | None:
        """Answer the request at `start`, if it repeats the known one; else None.

        Returns the position after it, and its answer. The session is then as if `handle_fetch`
        had answered.
        """
        known = self._known
        if known is None or limit - start < known.layout.size:
            return None
        fields = known.layout.unpack_from(received, start)
        # Constant and varying fields take turns, as `layout_of` groups neighbouring bytes.
        if fields[::2] != known.constants:
            return None
        correlation_id, *epoch, offset = fields[1::2]
        session = None
        if epoch:
            # KIP-227: the epoch has to be the next one. Another one is an error, for the general
            # path.
            session = self._services.fetch_sessions.find_single(
                known.request.session_id, epoch[0], known.key
            )
            if session is None:
                return None
        read = self._read_or_none(known, offset)
        if read is None:
            return None
        partition, found = read
        records = found.records
        if records is None:
            return None
        quotas = self._services.quotas
        quota = quotas.find(QuotaKind.FETCH, known.user, known.client_id)
        if quota is not None:
            size, now_ms = len(records) + PARTITION_BYTES, quotas.now_ms
            # An answer with a throttle time has no records: the general path makes it.
            if not quota.has_room(size, now_ms):
                return None
            quota.record(size, now_ms)
        # After everything that may fail: the general path must find the session as it was.
        if session is not None:
            session.repeat(
                WantedPartition(*known.key[:2], replace(known.wanted, fetch_offset=offset)),
                high_watermark=found.high_watermark,
                log_start_offset=found.log_start_offset,
                now_s=asyncio.get_running_loop().time(),
            )
        traffic = partition.traffic
        traffic.fetch_requests += 1
        traffic.bytes_out += len(records)
        head = _head(known, found, correlation_id=correlation_id, size=len(records))
        return start + known.layout.size, [head, records, known.tail]

    def _read_or_none(self, known: _Known, offset: int) -> tuple[Partition, ReadSlice] | None:
        """Records from an offset on, if they can be sent at once and there is no other news."""
        services, request, wanted = self._services, known.request, known.wanted
        topic = services.find_topic(known.key.topic, known.key.topic_id)
        # As for Produce: some partition moves or has no log yet, for moments.
        if topic is None or services.replicas.held:
            return None
        bytes_limit = min(request.max_bytes, services.fetch_bytes_max)
        try:
            find = services.replicas.find if known.needs_leader else services.replicas.find_replica
            partition = find(TopicPartition(topic.name, wanted.partition))
            # The epoch of the request is constant, but the partition may have a newer one by now.
            partition.check_epoch(LeaderEpoch(wanted.current_leader_epoch))
            # Nothing to send yet: only the general path can wait for records.
            if offset >= partition.log.positions.limit(known.limit):
                return None
            # A read from a device belongs on a thread, which the general path has (decision 19).
            with without_waiting:
                found = partition.read(
                    Offset(offset),
                    bytes_max=min(wanted.partition_max_bytes, bytes_limit),
                    # KIP-74: a batch that is larger than the limit is sent whole, or its reader
                    # would stop.
                    is_first_whole=True,
                    limit=known.limit,
                )
        except (TailraceError, OSError):
            return None
        # The answer that is copied has no room for a list of aborted transactions.
        if found.records is None or found.aborted:
            return None
        # Fewer than `fetch.min.bytes` have to wait for more, which only the general path can.
        is_enough = len(found.records) >= min(request.min_bytes, bytes_limit)
        return (partition, found) if is_enough or request.max_wait_ms <= 0 else None


def _head(known: _Known, found: ReadSlice, *, correlation_id: int, size: int) -> bytearray:
    """The frame of an answer up to its `size` bytes of records."""
    head = bytearray(known.head)
    _OFFSETS.pack_into(
        head,
        known.offsets_at,
        found.high_watermark,
        found.last_stable_offset,
        found.log_start_offset,
    )
    if known.is_flexible:
        # A compact length is one more than the size, as 0 means null.
        write_uvarint(head, size + 1)
    else:
        head += _LENGTH.pack(size)
    _HEAD.pack_into(head, 0, len(head) + size + len(known.tail) - SIZE_BYTES, correlation_id)
    return head


def _kind_or_none(header: RequestHeader, request: FetchRequest) -> tuple[object, ...] | None:
    """The values of a request that its repetitions have too; None if it has no repetitions."""
    topics = request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1 or request.forgotten_topics_data:
        return None
    is_in_session = request.session_id != NO_SESSION
    # Epoch 0 asks for a new session, and -1 within one ends it. Neither is repeated. Without a
    # session all requests have -1, as those of clients that use none.
    if request.session_epoch == INITIAL_EPOCH or is_in_session is (
        request.session_epoch == FINAL_EPOCH
    ):
        return None
    (wanted,) = topics[0].partitions
    # With the epoch of its last record a client asks for a truncation check too (KIP-595).
    if header.api_version < FIRST_VERSION or wanted.last_fetched_epoch >= 0:
        return None
    if replica_id_of(request) != CONSUMER or min(wanted.partition_max_bytes, request.max_bytes) < 0:
        return None
    return (
        header.api_version, header.client_id, topics[0].topic, topics[0].topic_id,
        wanted.partition, wanted.current_leader_epoch, wanted.partition_max_bytes,
        request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level,
        request.session_id,
    )  # fmt: skip


def _has_records(answer: FetchResponse) -> bool:
    """Whether an answer has records of its one partition, and nothing unusual."""
    return (
        not answer.error_code
        and len(answer.responses) == 1
        and not answer.responses[0].partitions[0].aborted_transactions
        and bool(answer.responses[0].partitions[0].records)
    )


def _known_or_none(
    header: RequestHeader, request: FetchRequest, *, answer: FetchResponse, frame: memoryview
) -> _Known | None:
    """The request cut apart; None if its client encodes it in another way than we do."""
    version = header.api_version
    zeros, ones = (_sent(header, request, number) for number in (0, -1))
    layout = layout_of(zeros, ones, _VARYING)
    constants = layout.unpack(zeros)[::2]
    sent = b"".join((len(frame).to_bytes(SIZE_BYTES), frame))
    if len(sent) != layout.size or layout.unpack(sent)[::2] != constants:
        return None
    # The first byte that differs is where the offsets of the log are.
    (head, _, tail), (other, _, _) = (_answered(answer, number, version) for number in (0, -1))
    is_flexible = _API.is_flexible(version)
    (topic,) = request.topics
    (wanted,) = topic.partitions
    return _Known(
        request=request,
        user=header.caller.principal.name,
        client_id=header.client_id,
        key=PartitionKey(topic.topic, topic.topic_id, wanted.partition),
        wanted=wanted,
        limit=read_limit(request.isolation_level),
        needs_leader=version < ANY_REPLICA_SINCE,
        layout=layout,
        constants=constants,
        # Without the length of the records, which each answer has of its own. It is one byte in a
        # flexible version, since `_answered` has one byte of records.
        head=head[: -1 if is_flexible else -_LENGTH.size],
        offsets_at=next(at for at, byte in enumerate(head) if byte != other[at]),
        tail=tail,
        is_flexible=is_flexible,
    )


def _sent(header: RequestHeader, request: FetchRequest, number: int) -> bytes:
    """The frame of a request, with this number wherever its repetitions may have another one."""
    (topic,) = request.topics
    wanted = replace(topic.partitions[0], fetch_offset=number)
    is_in_session = request.session_id != NO_SESSION
    return encode_request(
        _API,
        replace(
            request,
            session_epoch=number if is_in_session else request.session_epoch,
            topics=(replace(topic, partitions=(wanted,)),),
        ),
        version=header.api_version,
        correlation_id=number,
        client_id=header.client_id,
    )


def _answered(answer: FetchResponse, number: int, version: int) -> list[bytes]:
    """The frame of an answer with one byte of records, and this number as each offset of the log.

    Three parts: up to the records, the records, and what follows them.
    """
    (topic,) = answer.responses
    partition = replace(
        topic.partitions[0],
        high_watermark=number,
        last_stable_offset=number,
        log_start_offset=number,
        records=b"\0",
    )
    buffers = response_buffers(
        _API,
        replace(answer, responses=(replace(topic, partitions=(partition,)),)),
        version=version,
        correlation_id=0,
    )
    return [bytes(cast("Buffer", each)) for each in buffers]
