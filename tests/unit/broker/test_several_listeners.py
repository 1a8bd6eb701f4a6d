"""A broker with several listeners: each client learns the addresses of the one that it came by."""

import asyncio

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from tailrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.protocol.messages.produce import ProduceResponse
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import (
    BY_NAME_PRODUCE,
    batch,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    running,
)
from tests.unit.broker.clusters import Cluster, running_cluster

INSIDE, OUTSIDE, HIDDEN = "INSIDE", "OUTSIDE", "HIDDEN"
NAMED = {
    "listener.security.protocol.map": (
        "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,HIDDEN:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": INSIDE,
}
SEVERAL = {
    **NAMED,
    "listeners": "OUTSIDE://memory:0,INSIDE://memory:0,HIDDEN://memory:0",
    "advertised.listeners": "OUTSIDE://example.com:19094,INSIDE://memory:0",
}


def connect_by(outside: Outside, broker: RunningBroker, listener: str) -> Peer:
    """A new connection to one of the broker's listeners."""
    port = broker.port_of(listener)
    assert port is not None
    return Peer(outside.network.open(port))


async def metadata(peer: Peer, *names: str, version: int | None = None) -> MetadataResponse:
    wanted = tuple(MetadataRequestTopic(name=name) for name in names)
    request = MetadataRequest(topics=wanted)
    return await peer.ask(ApiKey.METADATA, request, MetadataResponse, version=version)


async def addresses(peer: Peer) -> list[tuple[str, int]]:
    """Whom each answer that has addresses names, for a broker alone."""
    listed = await metadata(peer)
    found = [(each.host, each.port) for each in listed.brokers]
    described = await peer.ask(
        ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), DescribeClusterResponse
    )
    found += [(each.host, each.port) for each in described.brokers]
    coordinators = await coordinator(peer)
    found += [(each.host, each.port) for each in coordinators if not each.error_code]
    quorum = await peer.ask(
        ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(topics=()), DescribeQuorumResponse
    )
    return found + [(each.host, each.port) for node in quorum.nodes for each in node.listeners]


async def coordinator(peer: Peer) -> tuple[Coordinator, ...]:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=("g",))
    return (await peer.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse)).coordinators


# -- a broker alone ---------------------------------------------------------------------------


async def test_a_client_learns_the_addresses_of_its_listener(outside: Outside) -> None:
    """Brokers, coordinators and voters; of a listener that is not advertised nobody learns any."""
    async with running(outside, SEVERAL) as broker:
        inside = ("memory", broker.port_of(INSIDE))
        for listener, wanted in (
            (INSIDE, [inside] * 4),
            (OUTSIDE, [("example.com", 19094)] * 4),
            (HIDDEN, []),
        ):
            assert await addresses(connect_by(outside, broker, listener)) == wanted


async def test_a_listener_that_is_not_advertised_has_no_leaders(outside: Outside) -> None:
    """LISTENER_NOT_FOUND, which clients before v6 do not know; who knows better is served."""
    async with running(outside, SEVERAL) as broker:
        hidden = connect_by(outside, broker, HIDDEN)
        assert (await create_topic(hidden, "t")).error_code == ErrorCode.NONE
        for version, code in (
            (6, ErrorCode.LISTENER_NOT_FOUND),
            (5, ErrorCode.LEADER_NOT_AVAILABLE),
        ):
            [topic] = (await metadata(hidden, "t", version=version)).topics
            [part] = topic.partitions
            assert (part.error_code, part.leader_id, part.offline_replicas) == (code, -1, (1,))
        [topic] = (await metadata(connect_by(outside, broker, INSIDE), "t")).topics
        assert (topic.partitions[0].error_code, topic.partitions[0].leader_id) == (0, 1)
        [found] = await coordinator(hidden)
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await produce(hidden, "t", batch(b"x"))).error_code == ErrorCode.NONE
        read = await fetch(connect_by(outside, broker, OUTSIDE), fetch_request("t", 0))
        assert read.high_watermark == 1


async def test_the_settings_have_the_ports_that_are_open(outside: Outside) -> None:
    """DescribeConfigs shows each port that was chosen instead of 0, as in Kafka."""
    async with running(outside, SEVERAL) as broker:
        resource = DescribeConfigsResource(
            resource_type=ResourceType.BROKER,
            resource_name="1",
            configuration_keys=("listeners", "inter.broker.listener.name"),
        )
        found = await connect_by(outside, broker, OUTSIDE).ask(
            ApiKey.DESCRIBE_CONFIGS,
            DescribeConfigsRequest(resources=(resource,)),
            DescribeConfigsResponse,
        )
        values = {each.name: each.value for each in found.results[0].configs}
        assert values["listeners"] == ",".join(
            f"{name}://memory:{broker.port_of(name)}" for name in (OUTSIDE, INSIDE, HIDDEN)
        )
        assert values["inter.broker.listener.name"] == INSIDE


async def test_all_that_is_advertised_is_registered(outside: Outside) -> None:
    """The metadata log names each listener, so that a Kafka that gets the directory reads it."""
    async with running(outside, SEVERAL) as broker:
        while not broker.cluster.metadata.brokers:
            await outside.pass_time(0.01)
        [registered] = broker.cluster.metadata.brokers.values()
        assert {each.name: (each.host, each.port) for each in registered.end_points} == {
            OUTSIDE: ("example.com", 19094),
            INSIDE: ("memory", broker.port_of(INSIDE)),
        }
        assert broker.bootstrap_servers == "example.com:19094"
        listening = [
            f"{each}://memory:{broker.port_of(each)}" for each in (OUTSIDE, INSIDE, HIDDEN)
        ]
        assert broker.addresses == (
            f"{','.join(listening)}, advertised as OUTSIDE://example.com:19094,{listening[1]}"
        )


async def test_an_address_in_use_ends_the_start(outside: Outside) -> None:
    """None of the other listeners stays open then."""
    outside.network.listen("memory", 700, lambda _: None)
    settings = {**SEVERAL, "listeners": "OUTSIDE://memory:699,INSIDE://memory:700"}
    with pytest.raises(OSError, match="memory:700"):
        async with running(outside, settings):
            raise AssertionError("it must not start")
    assert 699 not in outside.network.ports


# -- limits -----------------------------------------------------------------------------------


async def is_served(outside: Outside, peer: Peer) -> bool:
    """Whether a connection is accepted; if not, it waits."""
    answer = asyncio.ensure_future(metadata(peer))
    await outside.pass_time(1)
    if not answer.done():
        answer.cancel()
        return False
    return bool(await answer)


async def test_a_listener_may_have_a_limit_of_its_own(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """New connections to it wait, and those to others do not; the line has its own count."""
    settings = {**SEVERAL, "listener.name.outside.max.connections": "2"}
    async with running(outside, settings) as broker:
        peers = [connect_by(outside, broker, OUTSIDE) for _ in range(3)]
        assert [await is_served(outside, each) for each in peers] == [True, True, False]
        assert await is_served(outside, connect_by(outside, broker, HIDDEN))
        counts = broker.statistics().server.connections
        assert dict(counts) == {OUTSIDE: 2, INSIDE: 0, HIDDEN: 1}
        [line] = [each for each in caplog.messages if each.startswith("connections_full")]
        assert "listener=OUTSIDE count=2 " in line
        assert "listener.name.outside.max.connections" in line
        waiting = asyncio.ensure_future(metadata(connect_by(outside, broker, OUTSIDE)))
        for each in peers:
            each.socket.close()
        assert (await waiting).brokers


async def test_the_limit_of_all_does_not_keep_brokers_out(outside: Outside) -> None:
    """A client that has been silent for the longest time makes room (KIP-402)."""
    async with running(outside, {**SEVERAL, "max.connections": "3"}) as broker:
        clients = [connect_by(outside, broker, OUTSIDE) for _ in range(2)]
        for each in reversed(clients):
            assert await is_served(outside, each)
        of_brokers = [connect_by(outside, broker, INSIDE) for _ in range(2)]
        assert await is_served(outside, of_brokers[0])
        assert not await is_served(outside, connect_by(outside, broker, OUTSIDE))
        assert await is_served(outside, of_brokers[1])
        assert await clients[1].is_closed()
        assert await is_served(outside, clients[0])
        assert await is_served(outside, of_brokers[0])


# -- in a cluster -----------------------------------------------------------------------------


async def join(cluster: Cluster, broker_id: int, *, has_outside: bool = True) -> RunningBroker:
    """Start a broker that listens for brokers, and for clients outside if it `has_outside`."""
    settings = {**NAMED, "listeners": "INSIDE://memory:0,OUTSIDE://memory:0"}
    settings["advertised.listeners"] = "INSIDE://memory:0" + has_outside * (
        f",OUTSIDE://outside-{broker_id}:{19090 + broker_id}"
    )
    return await cluster.start(broker_id, settings)


async def test_brokers_meet_by_one_listener_and_clients_by_another(outside: Outside) -> None:
    """Records are replicated inside; outside a broker without that listener leads nothing."""
    async with running_cluster(outside) as cluster:
        brokers = [await join(cluster, each, has_outside=each != 3) for each in (1, 2, 3)]
        registered = cluster.controller.image.brokers[1].end_points
        assert [each.name for each in registered] == [INSIDE, OUTSIDE]
        await cluster.add_topic("t", replicas=(1, 2, 3))
        await cluster.add_topic("u", replicas=(3, 1))
        client = connect_by(outside, brokers[0], OUTSIDE)
        assert (await produce(client, "t", batch(b"x"))).error_code == ErrorCode.NONE
        assert [cluster.end(each) for each in (1, 2, 3)] == [1, 1, 1]
        for peer, nodes, error in (
            (
                client,
                {1: ("outside-1", 19091), 2: ("outside-2", 19092)},
                ErrorCode.LISTENER_NOT_FOUND,
            ),
            (
                connect_by(outside, brokers[2], INSIDE),
                {each.config.node_id: ("memory", each.port_of(INSIDE)) for each in brokers},
                ErrorCode.NONE,
            ),
        ):
            found = await metadata(peer, "t", "u")
            assert {each.node_id: (each.host, each.port) for each in found.brokers} == nodes
            assert found.controller_id in nodes
            assert [each.partitions[0].error_code for each in found.topics] == [0, error]
            described = await peer.ask(
                ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), DescribeClusterResponse
            )
            assert {each.broker_id: (each.host, each.port) for each in described.brokers} == nodes


async def test_who_asks_the_wrong_broker_learns_the_address_of_the_leader(outside: Outside) -> None:
    """On the listener of the request; none if the leader does not have it (KIP-951)."""
    async with running_cluster(outside) as cluster:
        for each in (1, 2, 3):
            await join(cluster, each, has_outside=each != 3)
        await cluster.add_topic("t", replicas=(2, 1))
        await cluster.add_topic("u", replicas=(3, 1))
        for listener, of_second in (
            (OUTSIDE, [("outside-2", 19092)]),
            (INSIDE, [("memory", cluster.brokers[2].port_of(INSIDE))]),
        ):
            peer = connect_by(outside, cluster.brokers[1], listener)
            for name, leader in (("t", 2), ("u", 3)):
                wanted = of_second
                if leader == 3:
                    port = cluster.brokers[3].port_of(INSIDE)
                    wanted = [("memory", port)] if listener == INSIDE else []
                assert await told_by_produce(cluster, peer, name) == (leader, wanted)


async def told_by_produce(
    cluster: Cluster, peer: Peer, name: str
) -> tuple[int, list[tuple[str, int]]]:
    """The leader that a Produce to another broker is answered with, and the addresses."""
    await cluster.until(lambda: cluster.end(1, TopicPartition(name, 0)) >= 0)
    request = produce_request(name, batch(b"x"))
    found = await peer.ask(ApiKey.PRODUCE, request, ProduceResponse, version=BY_NAME_PRODUCE)
    [part] = found.responses[0].partition_responses
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert part.current_leader is not None
    return part.current_leader.leader_id, [(each.host, each.port) for each in found.node_endpoints]


async def test_a_listener_that_a_broker_gets_is_known_at_once(outside: Outside) -> None:
    """A broker that comes back with it leads for the clients outside, too."""
    async with running_cluster(outside) as cluster:
        first = await join(cluster, 1)
        await join(cluster, 2, has_outside=False)
        await cluster.add_topic("t", replicas=(2, 1))
        client = connect_by(outside, first, OUTSIDE)
        before = await metadata(client, "t")
        assert [each.node_id for each in before.brokers] == [1]
        await cluster.stop(2)
        await join(cluster, 2)
        while len((await metadata(client, "t")).brokers) < 2:
            await outside.pass_time(0.01)
