"""A repeated Produce is answered without being decoded only where nothing has to be waited for."""

from typing import cast

import pytest

from tailrace.handlers.produce import handle_produce
from tailrace.handlers.repeated_produce import ProduceBuffers, RepeatedProduce
from tailrace.model import Acks
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.frames import decode_request, encode_request, read_request_header
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.testing import Outside
from tests.unit.handlers.replica_broker import BY_NAME, ME, SECOND, Broker
from tests.unit.storage.builders import batch

API = APIS[ApiKey.PRODUCE]


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

    def learn(self) -> None:
        """The request as it is answered at first."""
        body = memoryview(bytearray(self.frame()))[4:]
        header, position = read_request_header(body)
        request = cast("ProduceRequest", decode_request(header, body, position))
        answer = handle_produce(self.broker.services, header, request)
        assert isinstance(answer, ProduceResponse)
        self.repeated.learn(header, request, answer=answer, frame=body)

    def is_taken(self) -> bool:
        frame = bytearray(self.frame())
        return self.repeated.take(frame, 0, len(frame), frame_bytes_max=1 << 20) is not None


@pytest.mark.parametrize("acks", [Acks.ALL, Acks.LEADER])
async def test_followers_end_the_short_way_of_acks_all(outside: Outside, acks: int) -> None:
    """It is for a leader alone; acks 1 waits for nobody, and keeps it."""
    broker = Broker(outside)
    partition = await broker.assign(replicas=[ME], isr=[ME])
    connection = Connection(broker, acks)
    connection.learn()
    assert connection.is_taken()
    assert partition.log.positions.high_watermark == 2
    await broker.assign(replicas=[ME, SECOND], isr=[ME, SECOND], epoch=1)
    assert connection.is_taken() is (acks == Acks.LEADER)
    assert partition.log.positions.high_watermark == 2
    await broker.assign(replicas=[ME], isr=[ME], epoch=1)
    assert connection.is_taken()
    assert partition.log.positions.high_watermark == partition.log.end_offset


async def test_a_follower_takes_no_repetition(outside: Outside) -> None:
    """The general path says who leads."""
    broker = Broker(outside)
    partition = await broker.assign(replicas=[ME], isr=[ME])
    connection = Connection(broker, Acks.LEADER)
    connection.learn()
    await broker.assign(leader=SECOND, epoch=2)
    assert not connection.is_taken()
    assert partition.log.end_offset == 1
