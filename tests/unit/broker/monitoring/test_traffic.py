"""The traffic of topics that come and go."""

from tailrace.broker.broker import RunningBroker
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.records.builder import BatchBuilder
from tailrace.testing import Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running


async def delete(peer: Peer, name: str) -> None:
    """Delete a topic."""
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=name),), timeout_ms=1000)
    answer = await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
    assert [each.error_code for each in answer.responses] == [0]


def messages(broker: RunningBroker, topic: str) -> int | None:
    """Records that were appended to a topic; None: it is not counted."""
    found = broker.replicas.traffic.find(topic)
    return None if found is None else found.messages_in


def test_a_topic_that_is_made_again_begins_at_zero() -> None:
    """The counters of a deleted topic stay in the total alone, and its name starts anew."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", partitions=3)
            await produce(peer, "t", batch(b"x", b"y"))
            assert messages(broker, "t") == 2
            await delete(peer, "t")
            assert messages(broker, "t") is None
            assert broker.replicas.traffic.total().messages_in == 2
            await create_topic(peer, "t", partitions=1)
            assert messages(broker, "t") == 0
            await produce(peer, "t", batch(b"z"))
            assert messages(broker, "t") == 1
            assert broker.replicas.traffic.total().messages_in == 3

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_batch_that_is_sent_twice_is_counted_once() -> None:
    """An idempotent producer's repeated batch is in the log once, and in the counters too."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t")
            builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
            builder.append(b"k", b"x", timestamp=1)
            sent = builder.build()
            await produce(peer, "t", sent)
            await produce(peer, "t", sent)
            found = broker.replicas.traffic.find("t")
            assert found is not None
            assert (found.messages_in, found.bytes_in) == (1, len(sent))

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
