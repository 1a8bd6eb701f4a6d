"""The load generator: prebuilt frames, blocking sockets, answers counted and thrown away.

It is the same for a broker and for its peer, so what it costs itself stands in both.
"""

import random
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tailrace.client import BrokerAddress
from tailrace.client.producer.intake.encoding import BATCH_OVERHEAD, RECORD_OVERHEAD
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.frames import SIZE_BYTES, decode_response, encode_request
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.records.builder import BatchBuilder

VALUE_BYTES = 100
IN_FLIGHT = 5
"""Requests on their way at a time: what librdkafka and the Java client allow by default."""

VERSIONS = {ApiKey.PRODUCE: 9, ApiKey.FETCH: 12}
"""Flexible, and by topic name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch as a producer sends it, with base offset 0."""

    data: bytes
    record_count: int


def build_batch(size_max: int, *, seed: int = 0) -> Batch:
    """Build a batch as full as a producer makes it for `size_max`: random values, no keys."""
    chance = random.Random(seed)
    timestamp = time.time_ns() // 1_000_000
    builder = BatchBuilder()
    for _ in range((size_max - BATCH_OVERHEAD) // (RECORD_OVERHEAD + VALUE_BYTES) or 1):
        builder.append(None, chance.randbytes(VALUE_BYTES), timestamp=timestamp)
    return Batch(data=builder.build(), record_count=builder.record_count)


def produce_frame(topic: str, batch: Batch, *, partition: int = 0) -> bytes:
    """A Produce request, acks 1, with one batch; a broker takes it as often as it is sent."""
    data = PartitionProduceData(index=partition, records=batch.data)
    return encode_request(
        APIS[ApiKey.PRODUCE],
        ProduceRequest(
            acks=1,
            timeout_ms=30_000,
            topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
        ),
        version=VERSIONS[ApiKey.PRODUCE],
        correlation_id=0,
        client_id="benchmark",
    )


def fetch_frame(topic: str, *, offset: int, bytes_max: int) -> bytes:
    """A Fetch request for one partition from `offset` on."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    return encode_request(
        APIS[ApiKey.FETCH],
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=0,
            session_id=0,
            topics=(FetchTopic(topic=topic, partitions=(wanted,)),),
            forgotten_topics_data=(),
            rack_id="",
        ),
        version=VERSIONS[ApiKey.FETCH],
        correlation_id=0,
        client_id="benchmark",
    )


@contextmanager
def connected(address: BrokerAddress) -> Iterator[socket.socket]:
    """A blocking connection that sends at once."""
    with socket.create_connection(address) as channel:
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield channel


def send_all(channel: socket.socket, frame: bytes, count: int) -> bytes:
    """Send a frame `count` times with `IN_FLIGHT` unanswered; returns the last answer.

    The answers must all have one size, as those to the same request do while nothing fails.

    Raises:
        ConnectionError: the other side closed.
    """
    answer = bytearray()
    for number in range(count):
        channel.sendall(frame)
        if number >= IN_FLIGHT - 1:
            answer = _answer_like(channel, answer)
    for _ in range(min(count, IN_FLIGHT - 1)):
        answer = _answer_like(channel, answer)
    return bytes(answer)


def require_appended(answer: bytes, batch: Batch, count: int) -> None:
    """Check by the last answer's base offset that a new topic took the batch `count` times."""
    found = require_taken(answer)
    assert found.base_offset == batch.record_count * (count - 1), found


def require_taken(answer: bytes) -> PartitionProduceResponse:
    """Check that the answer to a Produce request has no error; returns what it says."""
    response = decode_response(
        APIS[ApiKey.PRODUCE], VERSIONS[ApiKey.PRODUCE], memoryview(answer)[SIZE_BYTES:]
    )
    assert isinstance(response, ProduceResponse)
    found = response.responses[0].partition_responses[0]
    assert found.error_code == 0, found
    return found


def receive_all(channel: socket.socket, requests: Iterable[bytes], *, buffer: bytearray) -> int:
    """Send each request when the one before is answered; returns the bytes of all answers.

    Raises:
        ConnectionError: the other side closed.
    """
    total = 0
    for request in requests:
        channel.sendall(request)
        received = _received(channel.recv_into(buffer, SIZE_BYTES, socket.MSG_WAITALL))
        assert received == SIZE_BYTES
        remaining = int.from_bytes(buffer[:SIZE_BYTES])
        total += SIZE_BYTES + remaining
        while remaining:
            remaining -= _received(channel.recv_into(buffer, min(remaining, len(buffer))))
    return total


def _answer_like(channel: socket.socket, answer: bytearray) -> bytearray:
    """The next answer, in the memory of the last one; the first one tells its size."""
    if not answer:
        answer += channel.recv(SIZE_BYTES, socket.MSG_WAITALL)
        size = int.from_bytes(answer)
        answer += channel.recv(size, socket.MSG_WAITALL) if size else b""
        return answer
    expected = bytes(answer[:SIZE_BYTES])
    _received(channel.recv_into(answer, len(answer), socket.MSG_WAITALL))
    assert answer[:SIZE_BYTES] == expected, "an answer has another size; was a batch refused?"
    return answer


def _received(count: int) -> int:
    if not count:
        raise ConnectionError("the other side closed the connection")
    return count
