"""Requests and answers of one client: order, versions, time limits, throttling."""

import pytest

from tailrace.client.config import ClientConfig
from tailrace.client.nodes import DisconnectedError, RequestTimedOutError, UnsupportedVersionError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tailrace.protocol.messages.fetch import FetchRequest
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.testing import Outside
from tests.unit.client.nodes.stand_in import METADATA, OFFERED, Asked, Client, StandIn, stage


def produce(size: int = 10, *, acks: int = 1) -> ProduceRequest:
    """A request that carries `size` bytes."""
    partitions = (PartitionProduceData(index=0, records=bytes(size)),)
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=(TopicProduceData(name="t", partition_data=partitions),),
    )


def test_a_request_is_answered() -> None:
    """The sender gets the answer to its request, and the broker sees the client's id."""
    with stage(ClientConfig(client_id="me")) as (outside, broker, client):

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            client.ask(node)
            assert client.nodes.in_flight(node.id) == 1
            await client.settle()
            assert broker.asked[0].client_id == "me"
            broker.asked[0].answer(METADATA)
            await client.settle()
            assert client.outcomes == [METADATA]
            assert client.nodes.in_flight(node.id) == 0

        outside.run(main())


def test_a_node_that_is_not_ready_takes_no_request() -> None:
    """Sending to a node without a connection is a mistake of the caller, and is said so."""
    with stage() as (_outside, broker, client), pytest.raises(AssertionError, match="not ready"):
        client.ask(broker.node())


async def test_answers_come_in_the_order_of_the_requests(broker: StandIn, client: Client) -> None:
    """Up to five requests are in flight, and each gets its own answer, in order."""
    node = broker.node()
    await client.become_ready(node)
    for _ in range(5):
        assert client.nodes.is_ready(node.id, client.now)
        client.ask(node)
    assert not client.nodes.is_ready(node.id, client.now)
    await client.settle()
    assert len({asked.correlation_id for asked in broker.asked}) == 5
    for number, asked in enumerate(broker.asked):
        asked.answer(MetadataResponse(controller_id=number))
    await client.settle()
    found = [getattr(answer, "controller_id", None) for answer in client.outcomes]
    assert found == [0, 1, 2, 3, 4]
    assert client.nodes.is_ready(node.id, client.now)


async def test_requests_wait_for_room_and_arrive_whole(broker: StandIn, client: Client) -> None:
    """A request behind one that does not fit the kernel's buffer waits, and both arrive whole."""
    node = broker.node()
    await client.become_ready(node)
    broker.is_reading = False
    for size in (700_000, 10, 300_000):
        client.ask(node, produce(size))
    broker.is_reading = True
    await client.settle()
    sizes = []
    for asked in broker.asked:
        assert isinstance(asked.body, ProduceRequest)
        records = asked.body.topic_data[0].partition_data[0].records
        assert records is not None
        sizes.append(len(records))
    assert sizes == [700_000, 10, 300_000]


async def test_answers_come_whole_byte_by_byte(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """An answer that arrives one byte at a time is the same as one that arrives at once."""
    outside.network.receive_bytes_max = 1
    node = broker.node()
    await client.become_ready(node)
    for _ in range(2):
        client.ask(node)
    await client.settle()
    for asked in broker.asked:
        asked.answer(METADATA)
    await client.settle()
    assert client.outcomes == [METADATA, METADATA]


async def test_an_answer_may_be_large(outside: Outside, broker: StandIn, client: Client) -> None:
    """An answer larger than one receive is complete, and so is the next one."""
    large = MetadataResponse(cluster_id="c" * 30_000)
    outside.network.receive_bytes_max = 5_000
    node = broker.node()
    await client.become_ready(node)
    client.ask(node)
    client.ask(node)
    await client.settle()
    broker.asked[0].answer(large)
    broker.asked[1].answer(METADATA)
    await client.settle()
    assert client.outcomes == [large, METADATA]


async def test_a_request_without_an_answer_is_done_when_it_has_left(
    broker: StandIn, client: Client
) -> None:
    """With acks=0 the outcome is None, and a later request's answer is not taken for it."""
    node = broker.node()
    await client.become_ready(node)
    client.nodes.send(
        node.id,
        produce(acks=0),
        now=client.now,
        done=client.outcomes.append,
        timeout_ms=1000,
        has_answer=False,
    )
    client.ask(node)
    assert client.outcomes == []
    await client.settle()
    assert client.outcomes == [None]
    broker.asked[1].answer(METADATA)
    await client.settle()
    assert client.outcomes == [None, METADATA]


async def test_a_request_without_an_answer_waits_until_it_has_left(
    broker: StandIn, client: Client
) -> None:
    """A request with acks=0 that found no room is not done before the broker reads on."""
    node = broker.node()
    await client.become_ready(node)
    broker.channel.socket.watch_reads(None)
    client.nodes.send(
        node.id,
        produce(900_000, acks=0),
        now=client.now,
        done=client.outcomes.append,
        timeout_ms=1000,
        has_answer=False,
    )
    await client.settle()
    assert (client.outcomes, client.nodes.in_flight(node.id)) == ([], 1)
    broker.channel.socket.watch_reads(broker.channel.on_readable)
    await client.settle()
    assert (client.outcomes, client.nodes.in_flight(node.id)) == ([None], 0)


async def test_a_request_that_the_broker_does_not_take_is_not_sent(
    broker: StandIn, client: Client
) -> None:
    """A broker without a version of a request that we speak costs that request only."""
    few = tuple(each for each in OFFERED if each.api_key != ApiKey.FETCH)
    broker.rules[ApiKey.API_VERSIONS] = lambda asked: asked.answer(
        ApiVersionsResponse(api_keys=few)
    )
    node = broker.node()
    await client.become_ready(node)
    client.ask(node, FetchRequest())
    assert client.outcomes == []
    await client.settle()
    assert isinstance(client.outcomes[0], UnsupportedVersionError)
    assert broker.asked == []
    assert client.nodes.is_ready(node.id, client.now)
    with pytest.raises(UnsupportedVersionError, match="Fetch"):
        client.nodes.version_of(node.id, ApiKey.FETCH)


async def test_a_request_that_its_version_cannot_carry_is_not_sent(
    broker: StandIn, client: Client
) -> None:
    """A value that no field can hold costs its request only."""
    broken = MetadataRequest(topics=(MetadataRequestTopic(name="x" * 40_000),))
    node = broker.node()
    await client.become_ready(node)
    client.ask(node, broken)
    await client.settle()
    assert isinstance(client.outcomes[0], UnsupportedVersionError)
    client.ask(node)
    await client.settle()
    broker.asked[0].answer(METADATA)
    await client.settle()
    assert client.outcomes[1] == METADATA


async def test_the_versions_are_the_newest_that_tell_a_client_more(
    broker: StandIn, client: Client
) -> None:
    """Transactions go up to KIP-890, and stop before two-phase commits."""
    newest = tuple(
        ApiVersion(api_key=each.api_key, min_version=0, max_version=99) for each in OFFERED
    )
    broker.rules[ApiKey.API_VERSIONS] = lambda asked: asked.answer(
        ApiVersionsResponse(api_keys=newest)
    )
    node = broker.node()
    await client.become_ready(node)
    chosen = [
        client.nodes.version_of(node.id, key)
        for key in (
            ApiKey.PRODUCE,
            ApiKey.END_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.METADATA,
        )
    ]
    assert chosen == [12, 5, 5, 5, 13]


@pytest.mark.parametrize("timeout_ms", [30_000, 35_000])
async def test_a_request_without_an_answer_in_time_costs_the_connection(
    broker: StandIn, client: Client, timeout_ms: int
) -> None:
    """After its time a request has failed as disconnected, and so has all else in flight."""
    node = broker.node()
    await client.become_ready(node)
    client.ask(node, timeout_ms=timeout_ms)
    client.ask(node, timeout_ms=90_000)
    await client.pass_time(timeout_ms / 1000 - 1)
    assert client.outcomes == []
    assert client.nodes.is_ready(node.id, client.now)
    await client.pass_time(2)
    assert [type(error) for error in client.outcomes] == [RequestTimedOutError] * 2
    assert all(isinstance(error, DisconnectedError) for error in client.outcomes)
    assert not client.nodes.is_ready(node.id, client.now)
    assert "Metadata" in str(client.failure(node))
    assert broker.channel.is_closed


async def test_an_answer_before_its_time_limit_leaves_later_ones_their_time(
    broker: StandIn, client: Client
) -> None:
    """The time limit of each request counts from its own sending."""
    node = broker.node()
    await client.become_ready(node)
    client.ask(node, timeout_ms=10_000)
    await client.pass_time(6)
    client.ask(node, timeout_ms=10_000)
    broker.asked[0].answer(METADATA)
    await client.pass_time(6)
    assert client.outcomes == [METADATA]
    await client.pass_time(5)
    assert isinstance(client.outcomes[1], RequestTimedOutError)


async def test_a_throttled_node_is_left_alone_for_as_long_as_it_asks(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """An answer with a throttle time makes the node unready until that time has gone by."""
    node = broker.node()
    await client.become_ready(node)
    client.ask(node, produce())
    await client.settle()
    broker.asked[0].answer(ProduceResponse(throttle_time_ms=1000))
    await outside.pass_time(0)
    await outside.pass_time(0.001)
    assert client.outcomes == [ProduceResponse(throttle_time_ms=1000)]
    assert not client.nodes.connect(node, client.now)
    assert client.nodes.least_loaded([node], client.now) is None
    await client.pass_time(0.5)
    assert not client.nodes.is_ready(node.id, client.now)
    left = await client.until(lambda: client.nodes.is_ready(node.id, client.now))
    assert left == pytest.approx(0.5, abs=0.01)


async def test_a_broker_that_throttles_by_itself_is_not_waited_for(
    broker: StandIn, client: Client
) -> None:
    """A throttle time in an answer from before KIP-219 has gone by already."""
    old = tuple(
        ApiVersion(api_key=each.api_key, min_version=each.min_version, max_version=5)
        if each.api_key == ApiKey.PRODUCE
        else each
        for each in OFFERED
    )
    broker.rules[ApiKey.API_VERSIONS] = lambda asked: asked.answer(
        ApiVersionsResponse(api_keys=old)
    )
    node = broker.node()
    await client.become_ready(node)
    client.ask(node, produce())
    await client.settle()
    assert broker.asked[0].version == 5
    broker.asked[0].answer(ProduceResponse(throttle_time_ms=1000))
    await client.settle()
    assert client.nodes.is_ready(node.id, client.now)


async def test_requests_in_flight_get_the_time_of_throttling_back(
    broker: StandIn, client: Client
) -> None:
    """A request that waits while the broker throttles the client does not time out by that."""
    node = broker.node()
    await client.become_ready(node)
    client.ask(node, produce(), timeout_ms=1000)
    client.ask(node, produce(), timeout_ms=1000)
    await client.settle()
    broker.asked[0].answer(ProduceResponse(throttle_time_ms=1000))
    await client.pass_time(1.5)
    assert len(client.outcomes) == 1
    assert client.nodes.in_flight(node.id) == 1
    await client.pass_time(0.6)
    assert isinstance(client.outcomes[1], RequestTimedOutError)


async def test_what_is_done_may_ask_again(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """An outcome may lead to the next request at once, also on a connection that is lost."""
    broker.rules[ApiKey.METADATA] = lambda asked: asked.answer(METADATA)
    node = broker.node()
    await client.become_ready(node)

    def again(outcome: object) -> None:
        assert outcome == METADATA
        client.ask(node)
        outside.network.connections[-1].cut()

    client.nodes.send(node.id, MetadataRequest(), now=client.now, done=again, timeout_ms=1000)
    await client.settle()
    assert [type(error) for error in client.outcomes] == [DisconnectedError]


async def test_each_broker_event_stirs_the_driver(broker: StandIn, client: Client) -> None:
    """The driver hears of an answer without asking, and of nothing when nothing happens."""
    held: list[Asked] = []
    broker.rules[ApiKey.METADATA] = held.append
    node = broker.node()
    await client.become_ready(node)
    client.ask(node)
    await client.settle()
    before = client.woken_count
    await client.pass_time(1)
    assert client.woken_count == before
    held[0].answer(METADATA)
    await client.settle()
    assert client.woken_count > before
    assert client.outcomes == [METADATA]


async def test_an_answer_may_be_read_when_it_comes(outside: Outside, broker: StandIn) -> None:
    """A driver that reads in the socket's own callback is not woken for that."""
    client = Client(outside, reads_at_once=True)
    node = broker.node()
    await client.become_ready(node)
    client.ask(node)
    await client.settle()
    woken_count = client.woken_count
    broker.asked[0].answer(METADATA)
    await outside.pass_time(0.1)
    assert client.outcomes == [METADATA]
    assert client.woken_count == woken_count
