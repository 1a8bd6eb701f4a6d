"""New connections to a broker that come too fast: accepted later, or closed later."""

import asyncio

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.metadata_records import ClientQuotaRecord, EntityData
from tailrace.server.listener import SWEEP_S
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import connect, running
from tests.unit.broker.test_configs import set_to
from tests.unit.broker.test_dynamic_settings import changed

TWO = {
    "listeners": "OUTSIDE://memory:0,INSIDE://memory:0",
    "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}


def set_quota(broker: RunningBroker, address: str | None, rate: float | None) -> None:
    """Write the quota of an address; None removes it."""
    entity = (EntityData(entity_type="ip", entity_name=address),)
    record = ClientQuotaRecord(
        entity=entity, key="connection_creation_rate", value=rate or 0, remove=rate is None
    )
    broker.controller.write(lambda _: [RecordToWrite(record, 0)])


async def served_s(outside: Outside, peer: Peer) -> float:
    """The virtual seconds until the first answer on a connection that is new."""
    begun = outside.clock.monotonic_s()
    await peer.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), ApiVersionsResponse, version=0)
    return outside.clock.monotonic_s() - begun


async def closed_s(outside: Outside, port: int, address: str) -> float:
    """The virtual seconds until a new connection of an address is closed without an answer."""
    peer, begun = Peer(outside.network.open(port, address=address)), outside.clock.monotonic_s()
    peer.send(ApiKey.API_VERSIONS, ApiVersionsRequest(), version=0)
    assert await peer.is_closed()
    return outside.clock.monotonic_s() - begun


async def test_connections_are_accepted_at_the_rate(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The others wait; the log tells how many they were."""
    caplog.set_level("INFO", logger="tailrace")
    async with running(outside, {"max.connection.creation.rate": "2"}) as broker:
        peers = [connect(outside, broker) for _ in range(30)]
        begun = outside.clock.monotonic_s()
        times = await asyncio.gather(*(served_s(outside, each) for each in peers))
        assert times[:20] == [0] * 20
        assert times == sorted(times)
        assert 4 < times[-1] - begun < 10
        await outside.pass_time(SWEEP_S)
        lines = [each for each in caplog.messages if each.startswith("connections_delayed")]
        assert sum(int(each.split("count=")[1].split()[0]) for each in lines) == 10
        assert await served_s(outside, peers[0]) == 0


async def test_a_listener_that_waits_holds_up_no_other(outside: Outside) -> None:
    """Each has its own queue; open connections go on."""
    settings = {**TWO, "listener.name.outside.max.connection.creation.rate": "1"}
    async with running(outside, settings) as broker:
        ports = {name: broker.port_of(name) or 0 for name in ("OUTSIDE", "INSIDE")}
        peers = [Peer(outside.network.open(ports["OUTSIDE"])) for _ in range(13)]
        waiting = asyncio.ensure_future(served_s(outside, peers[-1]))
        assert await served_s(outside, peers[0]) == 0
        assert await served_s(outside, Peer(outside.network.open(ports["INSIDE"]))) == 0
        assert not waiting.done()
        assert await waiting > 2


@pytest.mark.parametrize(
    "name",
    [
        "max.connection.creation.rate",
        "listener.name.plaintext.max.connection.creation.rate",
    ],
)
async def test_a_rate_can_be_set_while_the_broker_runs(outside: Outside, name: str) -> None:
    """For the broker, and for a listener."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await changed(peer, set_to(name, "1"))
        peers = [connect(outside, broker) for _ in range(11)]
        assert await served_s(outside, peers[-1]) == 1
        await changed(peer, set_to(name, "1000"))
        assert await served_s(outside, connect(outside, broker)) == 0


async def test_an_address_that_connects_too_fast_is_closed(outside: Outside) -> None:
    """After a second without an answer; others come in, and it does itself when it may."""
    async with running(outside) as broker:
        set_quota(broker, "10.0.0.9", 1)
        port = broker.endpoint[1]
        count = broker.statistics().server.connection_count
        open_ones = [Peer(outside.network.open(port, address="10.0.0.9")) for _ in range(10)]
        assert [await served_s(outside, each) for each in open_ones] == [0] * 10
        assert await closed_s(outside, port, "10.0.0.9") == 1
        assert broker.statistics().server.connection_count == count + 10
        assert await served_s(outside, Peer(outside.network.open(port, address="10.0.0.8"))) == 0
        set_quota(broker, "10.0.0.9", None)
        assert await served_s(outside, Peer(outside.network.open(port, address="10.0.0.9"))) == 0


async def test_a_stop_waits_for_no_connection(outside: Outside) -> None:
    """Connections that would be accepted or closed later are closed with the port."""
    async with running(outside, {"max.connection.creation.rate": "3"}) as broker:
        set_quota(broker, "10.0.0.9", 1)
        port = broker.endpoint[1]
        of_one = [Peer(outside.network.open(port, address="10.0.0.9")) for _ in range(11)]
        peers = [connect(outside, broker) for _ in range(40)]
    assert await of_one[-1].is_closed()
    assert await peers[0].is_closed()
    assert outside.clock.monotonic_s() < 30


async def test_a_connection_that_is_due_needs_room_too(outside: Outside) -> None:
    """At the limit of connections it waits until one ends, after its delay."""
    settings = {"max.connection.creation.rate": "1", "max.connections": "11"}
    async with running(outside, settings) as broker:
        count = broker.statistics().server.connection_count
        peers = [connect(outside, broker) for _ in range(11 - count)]
        assert await served_s(outside, peers[-1]) <= 1
        waiting = asyncio.ensure_future(served_s(outside, connect(outside, broker)))
        await outside.pass_time(30)
        assert not waiting.done()
        peers[0].socket.close()
        assert await waiting >= 30
