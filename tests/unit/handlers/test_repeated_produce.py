"""A repeated Produce is answered without being decoded, and waits for followers all the same."""

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from tailrace.handlers.produce import handle_produce
from tailrace.handlers.repeated_produce import ProduceBuffers, RepeatedProduce
from tailrace.model import Acks
from tailrace.protocol.answers import Deferred
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Records
from tailrace.protocol.frames import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.testing import Outside
from tailrace.values import replace
from tests.unit.handlers.replica_broker import BY_NAME, ME, SECOND, THIRD, Broker
from tests.unit.storage.builders import batch

if TYPE_CHECKING:
    from tailrace.protocol.answers import Answer

API = APIS[ApiKey.PRODUCE]


def decoded_answers(frames: bytes) -> list[PartitionProduceResponse]:
    """The answers for the one partition of each request."""
    found = []
    while frames:
        size = 4 + int.from_bytes(frames[:4], "big")
        response = decode_response(API, BY_NAME, memoryview(frames)[4:size])
        assert isinstance(response, ProduceResponse)
        found.append(response.responses[0].partition_responses[0])
        frames = frames[size:]
    return found


class Connection:
    """A producer's connection, which repeats one request."""

    def __init__(self, broker: Broker, acks: int) -> None:
        self.broker = broker
        self.acks = acks
        self.repeated = RepeatedProduce(broker.services, ProduceBuffers())

    def frame(self) -> bytes:
        data = PartitionProduceData(index=0, records=batch(b"value"))
        return encode_request(
            API,
            ProduceRequest(
                acks=self.acks,
                timeout_ms=1000,
                topic_data=(TopicProduceData(name="t", partition_data=(data,)),),
            ),
            version=BY_NAME,
            correlation_id=7,
            client_id="c",
        )

    async def ask(self) -> bytes:
        """The answer of the general path, which the request is learned by."""
        body = memoryview(bytearray(self.frame()))[4:]
        header, position = read_request_header(body)
        request = cast("ProduceRequest", decode_request(header, body, position))
        answer = handle_produce(self.broker.services, header, request)
        expected = answer.expected if isinstance(answer, Deferred) else answer
        self.repeated.learn(header, request, answer=cast("Answer", expected), frame=body)
        found = await answer if isinstance(answer, Deferred) else answer
        assert isinstance(found, ProduceResponse)
        return encode_response(API, found, version=BY_NAME, correlation_id=7)

    def take(self, count: int = 1) -> bytes | Deferred[list[Records]] | None:
        """The answers to repetitions that are received together; None if they are not taken."""
        frames = bytearray(self.frame() * count)
        taken = self.repeated.take(frames, 0, len(frames), frame_bytes_max=1 << 20)
        if taken is None:
            return None
        position, answers = taken
        assert position == len(frames)
        return answers

    async def answer(self, count: int = 1) -> bytes:
        """The same, when they have been acknowledged."""
        answers = self.take(count)
        assert answers is not None
        if isinstance(answers, bytes):
            return answers
        return b"".join(cast("list[bytes]", await answers))


@pytest.mark.parametrize("acks", [Acks.ALL, Acks.LEADER])
async def test_followers_have_the_short_way_wait_for_acks_all(outside: Outside, acks: int) -> None:
    """A leader alone answers at once, as with acks 1; followers may come and go."""
    broker = Broker(outside)
    partition = await broker.assign(replicas=[ME], isr=[ME])
    connection = Connection(broker, acks)
    await connection.ask()
    assert isinstance(connection.take(), bytes)
    assert partition.log.positions.high_watermark == 2
    await broker.assign(replicas=[ME, SECOND], isr=[ME, SECOND], epoch=1)
    answer = connection.take()
    assert isinstance(answer, Deferred) is (acks == Acks.ALL)
    assert partition.log.positions.high_watermark == 2
    broker.note_fetch(SECOND, 3)
    assert partition.log.positions.high_watermark == 3
    assert not isinstance(answer, Deferred) or answer.is_done
    await broker.assign(replicas=[ME], isr=[ME], epoch=1)
    assert isinstance(connection.take(), bytes)
    assert partition.log.positions.high_watermark == partition.log.end_offset == 4


async def test_repetitions_are_answered_when_followers_have_them(outside: Outside) -> None:
    """All of one call are answered together, with the bytes of the general path."""
    broker = Broker(outside)
    await broker.assign(isr=[ME, SECOND], replicas=[ME, SECOND])
    connection = Connection(broker, Acks.ALL)
    first = asyncio.ensure_future(connection.ask())
    await outside.pass_time(0.1)
    repeated = asyncio.ensure_future(connection.answer(3))
    await outside.pass_time(0.1)
    broker.note_fetch(SECOND, 3)
    await outside.pass_time(0.1)
    assert first.done()
    assert not repeated.done()
    broker.note_fetch(SECOND, 4)
    general = await first
    answers = decoded_answers(await repeated)
    assert [each.base_offset for each in answers] == [1, 2, 3]
    [as_before] = decoded_answers(general)
    assert [replace(each, base_offset=0) for each in answers] == [as_before] * 3


@pytest.mark.parametrize("is_late", [False, True])
async def test_repetitions_are_refused_as_on_the_general_path(
    outside: Outside, *, is_late: bool
) -> None:
    """Each with its error when the time is over, or when another broker leads: the same bytes."""
    broker = Broker(outside)
    await broker.assign()
    connection = Connection(broker, Acks.ALL)
    general = asyncio.ensure_future(connection.ask())
    await outside.pass_time(0.1)
    repeated = asyncio.ensure_future(connection.answer(2))
    await outside.pass_time(0.1)
    if is_late:
        await outside.pass_time(1)
    else:
        await broker.assign(leader=SECOND, epoch=2)
    refused = await general
    code = ErrorCode.REQUEST_TIMED_OUT if is_late else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [each.error_code for each in decoded_answers(refused)] == [code]
    assert await repeated == refused * 2


async def test_too_few_in_sync_end_the_short_way(outside: Outside) -> None:
    """The general path says NOT_ENOUGH_REPLICAS, and nothing is appended."""
    broker = Broker(outside, min_insync_replicas=2)
    partition = await broker.assign()
    connection = Connection(broker, Acks.ALL)
    general = asyncio.ensure_future(connection.ask())
    await outside.pass_time(0.1)
    for each in (SECOND, THIRD):
        broker.note_fetch(each, 1)
    await general
    await broker.assign(isr=[ME], epoch=1)
    assert connection.take() is None
    assert partition.log.end_offset == 1


async def test_a_flush_that_answers_wait_for_ends_the_short_way(outside: Outside) -> None:
    """With durability=sync, where the general path asks for it."""
    broker = Broker(outside, is_durable=True)
    await broker.assign(replicas=[ME], isr=[ME])
    connection = Connection(broker, Acks.ALL)
    await connection.ask()
    assert connection.take() is None


async def test_a_follower_takes_no_repetition(outside: Outside) -> None:
    """The general path says who leads."""
    broker = Broker(outside)
    partition = await broker.assign(replicas=[ME], isr=[ME])
    connection = Connection(broker, Acks.LEADER)
    await connection.ask()
    await broker.assign(leader=SECOND, epoch=2)
    assert connection.take() is None
    assert partition.log.end_offset == 1
