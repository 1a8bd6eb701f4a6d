"""A repeated Fetch is known by its bytes, and answered without being decoded."""

import random
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.handlers.fetch import handle_fetch
from tailrace.handlers.fetch_sessions import FetchSessionLimits, FetchSessions
from tailrace.handlers.repeated_fetch import RepeatedFetch
from tailrace.model import IsolationLevel
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.frames import (
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
    ForgottenTopic,
)
from tailrace.security.quotas import ClientQuotas, QuotaConfig
from tailrace.storage.records_file import LogSlice
from tailrace.testing import Outside
from tests.unit.broker.brokers import (
    batch,
    connect,
    create_topic,
    fetch,
    fetch_request,
    produce,
    running,
)
from tests.unit.broker.transactional import begin

API = APIS[ApiKey.FETCH]
IDS_SINCE = 13
LIMIT = 10_000_000
RECORD_BYTES = len(batch(b"x"))


REAL_REQUEST = (
    "0001 {version:04x} {id:08x} {client} 00 000001f4 00000001 03200000 00 {session} 02 {topic} 02"
    "00000000 00000000 {offset:016x} ffffffff ffffffffffffffff 00100000 00 00 01 01 00"
)
"""A request of librdkafka 2.16 or Apache Kafka 4.3.1, in hexadecimal digits, without its size."""


class Connection:
    """A consumer's connection to a broker, and the request that it has learned."""

    def __init__(self, outside: Outside, broker: RunningBroker) -> None:
        self.outside = outside
        self.broker = broker
        limits = FetchSessionLimits(slot_count=10, eviction_s=100)
        self.services = cast(
            "Any",
            SimpleNamespace(
                authorizer=None,
                find_topic=self._find_topic,
                replicas=broker.replicas,
                fetch_sessions=FetchSessions(limits, random.Random(0)),
                sends_to_nearest=False,
                quotas=ClientQuotas(
                    lambda: broker.cluster.metadata.quotas, outside.clock, QuotaConfig()
                ),
                fetch_bytes_max=1 << 20,
                fetch_wait_ms_max=1000,
            ),
        )
        self.repeated = RepeatedFetch(self.services)
        self.session_id, self.epoch = 0, -1
        self._sent = 0

    def _find_topic(self, name: str, topic_id: object) -> object:
        topics = self.broker.controller.image.topics.values()
        return next(
            (each for each in topics if name == each.name or topic_id == each.topic_id), None
        )

    def frame(self, offset: int, *, version: int, topic: str = "t", **changes: Any) -> bytes:
        """A consumer's request for one partition, the next one of its session."""
        self._sent += 1
        wanted = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=changes.pop("bytes_max", 1 << 20)
        )
        by_id = self.broker.controller.image.topics[topic].topic_id
        usual: dict[str, Any] = {
            "max_wait_ms": 500, "min_bytes": 1, "session_id": self.session_id,
            "session_epoch": self.epoch,
            "topics": (
                FetchTopic(
                    topic="" if version >= IDS_SINCE else topic,
                    topic_id=by_id if version >= IDS_SINCE else NO_UUID,
                    partitions=(wanted,),
                ),
            ),
        }  # fmt: skip
        return encode_request(
            API,
            FetchRequest(**{**usual, **changes}),
            version=version,
            correlation_id=self._sent,
            client_id="c",
        )

    async def ask(self, frame: bytes) -> bytes:
        """The answer of the general path, from which the connection learns if it comes at once."""
        body = memoryview(frame)[4:]
        header, position = read_request_header(body)
        request = cast("FetchRequest", decode_request(header, body, position))
        answer = handle_fetch(self.services, header, request)
        if isinstance(answer, Awaitable):
            answer = await answer
        else:
            self.repeated.learn(header, request, answer=answer, frame=body)
        if answer.session_id:
            self.session_id, self.epoch = answer.session_id, request.session_epoch + 1
        return joined(
            response_buffers(
                API, answer, version=header.api_version, correlation_id=header.correlation_id
            )
        )

    def take(self, frame: bytes) -> bytes | None:
        """The answer to a repetition, or None."""
        received = bytearray(b"before" + frame + b"behind")
        limit = len(received) - len(b"behind")
        taken = self.repeated.take(received, len(b"before"), limit, frame_bytes_max=LIMIT)
        if taken is None:
            return None
        assert taken[0] == limit
        if self.session_id:
            self.epoch += 1
        return joined(taken[1])


def joined(buffers: Any) -> bytes:
    """The bytes of a frame, with those that are in files."""
    return b"".join(
        [bytes(each.read() if isinstance(each, LogSlice) else each) for each in buffers]
    )


def offsets_in(answer: bytes | None, version: int) -> tuple[int, int]:
    """The high watermark in an answer, and the bytes of records."""
    assert answer is not None
    found = decode_response(API, version, memoryview(answer)[4:])
    assert isinstance(found, FetchResponse)
    (partition,) = found.responses[0].partitions
    return partition.high_watermark, len(partition.records or b"")


@asynccontextmanager
async def connected(
    outside: Outside, *, version: int, has_session: bool
) -> AsyncIterator[Connection]:
    """A connection on which a consumer has sent what it will repeat, for a topic of 5 batches."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        for _ in range(5):
            await produce(peer, "t", batch(b"x"))
        connection = Connection(outside, broker)
        if has_session:
            connection.epoch = 0
            await connection.ask(connection.frame(0, version=version))
            assert connection.session_id
        for offset in range(2):
            await connection.ask(connection.frame(offset, version=version))
        yield connection


@pytest.mark.parametrize("has_session", [False, True])
@pytest.mark.parametrize("version", range(7, 19))
async def test_a_repeated_fetch_is_answered_without_decoding(
    outside: Outside, *, version: int, has_session: bool
) -> None:
    """The third and later ones, with or without a session, with what is in the log by then."""
    async with connected(outside, version=version, has_session=has_session) as connection:
        for offset in (2, 0, 4):
            answer = connection.take(connection.frame(offset, version=version))
            assert offsets_in(answer, version) == (5, (5 - offset) * RECORD_BYTES)
        await produce(connect(outside, connection.broker), "t", batch(b"x", b"y"))
        answer = connection.take(connection.frame(4, version=version))
        size = RECORD_BYTES + len(batch(b"x", b"y"))
        assert offsets_in(answer, version) == (7, size)
        # The general path continues where the repetitions were.
        again = await connection.ask(connection.frame(4, version=version))
        assert offsets_in(again, version) == (7, size)


@pytest.mark.parametrize(("client", "version"), [("rdkafka", 16), ("console-consumer", 18)])
@pytest.mark.parametrize("has_session", [False, True])
async def test_requests_of_other_clients_are_known_by_their_bytes(
    outside: Outside, *, client: str, version: int, has_session: bool
) -> None:
    """Theirs, too, are answered without decoding from the third on."""
    async with connected(outside, version=version, has_session=has_session) as connection:
        topic_id = connection.broker.controller.image.topics["t"].topic_id

        def frame(offset: int) -> bytes:
            body = bytes.fromhex(
                REAL_REQUEST.format(
                    version=version,
                    id=offset,
                    client=f"{len(client):04x} {client.encode().hex()}",
                    session=f"{connection.session_id:08x} {connection.epoch & 0xFFFFFFFF:08x}",
                    topic=topic_id.hex,
                    offset=offset,
                )
            )
            return len(body).to_bytes(4) + body

        for offset in range(2):
            assert connection.take(frame(offset)) is None
            await connection.ask(frame(offset))
        for offset in range(2, 5):
            answer = connection.take(frame(offset))
            assert offsets_in(answer, version) == (5, (5 - offset) * RECORD_BYTES)


@pytest.mark.parametrize("has_session", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {"bytes_max": 100},
        {"max_wait_ms": 400},
        {"min_bytes": 2},
        {"isolation_level": 1},
        {"rack_id": "r"},
        {"topics": ()},
        {"forgotten_topics_data": (ForgottenTopic(topic="t", partitions=(0,)),)},
    ],
    ids=str,
)
async def test_another_fetch_is_decoded(
    outside: Outside, *, changes: dict[str, Any], has_session: bool
) -> None:
    """Whatever differs from the earlier request but its offset."""
    async with connected(outside, version=12, has_session=has_session) as connection:
        assert connection.take(connection.frame(2, version=12, **changes)) is None
        assert connection.take(connection.frame(2, version=12)) is not None


@pytest.mark.parametrize("offset", [5, 6, -1])
async def test_a_fetch_that_waits_or_fails_is_decoded(outside: Outside, offset: int) -> None:
    """At the end of the log, behind it, and before its start."""
    async with connected(outside, version=12, has_session=False) as connection:
        assert connection.take(connection.frame(offset, version=12)) is None


async def test_a_fetch_that_a_device_has_to_answer_is_decoded(outside: Outside) -> None:
    """Nothing waits for a device here; when the page cache has the records, they are sent."""
    async with connected(outside, version=12, has_session=False) as connection:
        outside.files.make_cold()
        assert connection.take(connection.frame(2, version=12)) is None
        await fetch(connect(outside, connection.broker), fetch_request("t", 0))
        assert connection.take(connection.frame(2, version=12)) is not None


async def test_a_request_of_a_session_is_answered_once(outside: Outside) -> None:
    """A second one of the same epoch, or one after the session has ended, is refused as usual."""
    async with connected(outside, version=12, has_session=True) as connection:
        frame = connection.frame(2, version=12)
        assert connection.take(frame) is not None
        assert connection.take(frame) is None
        ended = connection.frame(2, version=12, session_epoch=-1)
        assert connection.take(ended) is None
        await connection.ask(ended)
        assert connection.take(connection.frame(2, version=12)) is None


async def test_the_session_remembers_where_a_repetition_was(outside: Outside) -> None:
    """A request that names no partition is answered from the offset of the last repetition."""
    async with connected(outside, version=12, has_session=True) as connection:
        assert connection.take(connection.frame(3, version=12)) is not None
        rest = await connection.ask(connection.frame(0, version=12, topics=()))
        assert offsets_in(rest, 12) == (5, 2 * RECORD_BYTES)


async def test_a_fetch_with_aborted_transactions_is_decoded(outside: Outside) -> None:
    """A repetition tells of no aborted transactions, so it has no records of any."""
    async with running(outside) as broker:
        client = await begin(outside, broker)
        for _ in range(3):
            await produce(connect(outside, broker), "d", batch(b"x"))
        connection = Connection(outside, broker)
        committed: dict[str, Any] = {"topic": "d", "isolation_level": IsolationLevel.READ_COMMITTED}
        for offset in range(2):
            await connection.ask(connection.frame(offset, version=12, **committed))
        assert connection.take(connection.frame(2, version=12, **committed)) is not None
        await client.add(0)
        await client.send(b"aborted")
        await client.end(is_commit=False)
        assert connection.take(connection.frame(2, version=12, **committed)) is None
