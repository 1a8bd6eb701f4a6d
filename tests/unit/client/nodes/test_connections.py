"""Connections of one client: made, lost, paused for, chosen, given up."""

import random
from functools import partial

import pytest

from tailrace.client.config import ClientConfig
from tailrace.client.nodes import (
    Backoff,
    DisconnectedError,
    Node,
    RequestOutcome,
    RequestTimedOutError,
)
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.testing import Outside
from tests.unit.client.nodes.stand_in import METADATA, Client, StandIn, stage

CONSTANT = ClientConfig(client_id="test", reconnect_backoff_ms=100, reconnect_backoff_max_ms=100)
"""Pauses that are all the same."""


async def test_a_host_without_an_address_is_not_reachable(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """A name that no look-up finds is a failure like any other, with its reason."""
    outside.network.unknown_hosts.add("nowhere")
    node = broker.node(host="nowhere")
    assert not client.nodes.connect(node, client.now)
    await client.settle()
    assert isinstance(client.failure(node), DisconnectedError)
    assert "not known" in str(client.failure(node))


async def test_a_refused_connection_is_tried_again_after_a_pause(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """A refused connection is a failure, and a broker that starts later is found."""
    accept = outside.network.ports.pop(broker.listener.port)
    node = broker.node()
    assert not client.nodes.connect(node, client.now)
    await client.settle()
    assert "nobody listens" in str(client.failure(node))
    assert client.nodes.failure_count == 1
    outside.network.ports[node.port] = accept
    assert not client.nodes.connect(node, client.now)
    await client.become_ready(node)
    assert client.nodes.failure(node.id) is None


async def test_closing_fails_the_requests_in_flight(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """After close no node is ready, no request is in flight, and the broker sees the end."""
    node = broker.node()
    await client.become_ready(node)
    client.ask(node)
    await client.settle()
    client.nodes.close()
    assert [type(error) for error in client.outcomes] == [DisconnectedError]
    assert client.nodes.in_flight(node.id) == 0
    assert not client.nodes.is_ready(node.id, client.now)
    assert client.nodes.next_deadline() is None
    await outside.pass_time(0.01)
    assert broker.channel.is_closed


async def test_a_connection_that_is_never_answered_times_out(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """Nodes that neither accept nor refuse fail after the setup timeout, and not before."""
    other = StandIn(outside)
    nodes = [broker.node(1), other.node(2)]
    outside.network.silent_ports.update(node.port for node in nodes)
    for node in nodes:
        client.nodes.connect(node, client.now)
    await client.pass_time(7.9)
    assert [client.nodes.failure(node.id) for node in nodes] == [None, None]
    await client.pass_time(4.2)
    for node in nodes:
        assert isinstance(client.failure(node), RequestTimedOutError)
        assert "setup.timeout" in str(client.failure(node))


async def test_the_time_for_setup_grows_with_failures(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """Each connection that never got ready gives the next more time, up to the longest."""
    node = broker.node()
    outside.network.silent_ports.add(node.port)
    times: list[float] = []
    for _ in range(4):
        await client.begin(node)
        times.append(await client.until(lambda: client.nodes.failure_count > len(times)))
    assert times[0] == pytest.approx(10, rel=0.2)
    assert times[1] == pytest.approx(20, rel=0.2)
    assert times[2] > 23
    assert times[3] < 30.002


async def test_a_broker_that_takes_the_connection_and_says_nothing_times_out(
    broker: StandIn, client: Client
) -> None:
    """A connection on which versions are never answered fails after the setup time."""
    node = await client.half_connect(broker)
    assert client.nodes.in_flight(node.id) == 1
    await client.pass_time(12.1)
    assert isinstance(client.failure(node), RequestTimedOutError)
    assert client.outcomes == []


async def test_the_least_loaded_node_is_one_that_can_be_asked(
    broker: StandIn, client: Client
) -> None:
    """A connecting node may be chosen, a ready one is, and none while its pause lasts."""
    node = broker.node()
    assert client.nodes.least_loaded([node], client.now) == node
    client.nodes.connect(node, client.now)
    assert client.nodes.least_loaded([node], client.now) == node
    await client.become_ready(node)
    assert client.nodes.least_loaded([node], client.now) == node
    broker.channel.close()
    await client.settle()
    assert not client.nodes.connect(node, client.now)
    assert client.nodes.least_loaded([node], client.now) is None
    assert client.nodes.least_loaded([], client.now) is None


def test_a_full_node_cannot_be_asked_until_it_answers() -> None:
    """A node with as many requests as are allowed is not chosen, nor connected to once more."""
    with stage(in_flight_max=1) as (outside, broker, client):

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            client.ask(node)
            await client.settle()
            assert client.nodes.least_loaded([node], client.now) is None
            assert not client.nodes.connect(node, client.now)
            broker.asked[0].answer(METADATA)
            await client.settle()
            assert client.nodes.least_loaded([node], client.now) == node
            assert len(broker.channels) == 1

        outside.run(main())


async def test_the_node_with_the_fewest_requests_is_chosen(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """A ready node with the fewest requests in flight is chosen before any that is not ready."""
    other = StandIn(outside)
    third = Node(3, "broker", 9)
    nodes = [broker.node(1), other.node(2), third]
    for node in nodes[:2]:
        await client.become_ready(node)
    client.ask(nodes[0])
    for _ in range(20):
        assert client.nodes.least_loaded(nodes, client.now) == nodes[1]
    client.ask(nodes[1])
    client.ask(nodes[1])
    for _ in range(20):
        assert client.nodes.least_loaded(nodes, client.now) == nodes[0]


async def test_nodes_that_cannot_be_reached_are_tried_in_turn(
    broker: StandIn, client: Client
) -> None:
    """Without any connection, the node that was tried longest ago is next."""
    nodes = [broker.node(number) for number in range(3)]
    broker.listener.close()
    for _ in range(10):
        chosen = []
        for _ in nodes:
            node = client.nodes.least_loaded(nodes, client.now)
            assert node is not None
            chosen.append(node)
            client.nodes.connect(node, client.now)
            await client.pass_time(2)
        assert sorted(chosen) == nodes


def test_there_is_no_pause_before_the_first_connection() -> None:
    """A node that was never tried is connected to at once, and then stays so."""
    for config in (None, CONSTANT):
        with stage(config) as (outside, broker, client):

            async def main(broker: StandIn = broker, client: Client = client) -> None:
                node = broker.node()
                assert await client.begin(node) == 0
                await client.become_ready(node)
                await client.pass_time(1)
                assert client.nodes.connect(node, client.now)
                assert len(broker.channels) == 1

            outside.run(main())


async def test_pauses_grow_with_failures(outside: Outside, broker: StandIn, client: Client) -> None:
    """The pause doubles with each failure, and starts from the first once a node is ready."""
    node = broker.node()
    await client.become_ready(node)
    accept = outside.network.ports.pop(node.port)
    broker.channel.close()
    pauses = [await client.begin(node) for _ in range(8)]
    for number, pause in enumerate(pauses[:5]):
        assert pause == pytest.approx(0.05 * 2**number, rel=0.2)
    assert max(pauses) < 1.002
    outside.network.ports[node.port] = accept
    await client.become_ready(node)
    broker.channel.close()
    assert await client.begin(node) == pytest.approx(0.05, rel=0.2)


def test_pauses_without_room_to_grow_are_constant() -> None:
    """With the same first and longest pause each one is exactly that long."""
    with stage(CONSTANT) as (outside, broker, client):

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            broker.listener.close()
            broker.channel.close()
            for _ in range(4):
                assert await client.begin(node) == pytest.approx(0.1, abs=0.002)

        outside.run(main())


def test_pauses_have_chance_and_limits() -> None:
    """A pause is within a fifth of its mean and never above the limit; a limit below wins."""
    pauses = Backoff(100, 1000, random.Random(1))
    first = {pauses.pause_s(0) for _ in range(100)}
    assert len(first) > 50
    assert 0.08 <= min(first) <= max(first) <= 0.12
    assert max(pauses.pause_s(1000) for _ in range(100)) == 1.0
    assert min(pauses.pause_s(1000) for _ in range(100)) >= 0.8
    assert Backoff(500, 200, random.Random(1)).pause_s(3) == 0.2
    assert Backoff(0, 100, random.Random(1)).pause_s(3) == 0


async def test_a_lost_connection_fails_what_is_in_flight_in_order(
    broker: StandIn, client: Client
) -> None:
    """Both requests of a connection that the broker ends fail as disconnected, oldest first."""
    order: list[tuple[int, RequestOutcome]] = []

    def take(number: int, outcome: RequestOutcome) -> None:
        order.append((number, outcome))

    node = broker.node()
    await client.become_ready(node)
    for number in range(2):
        client.nodes.send(
            node.id,
            MetadataRequest(),
            now=client.now,
            done=partial(take, number),
            timeout_ms=1000,
        )
    await client.settle()
    broker.channel.close()
    await client.settle()
    assert [(number, type(error)) for number, error in order] == [
        (0, DisconnectedError),
        (1, DisconnectedError),
    ]
    assert client.nodes.in_flight(node.id) == 0


async def test_a_cut_connection_fails_what_is_in_flight(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """A reset fails the requests in flight with its reason, and none is left."""
    node = broker.node()
    await client.become_ready(node)
    client.ask(node)
    await client.settle()
    outside.network.connections[-1].cut()
    await client.settle()
    assert [type(error) for error in client.outcomes] == [DisconnectedError]
    assert "cut" in str(client.outcomes[0])
    await client.become_ready(node)


async def test_a_connection_that_breaks_while_sending_fails_the_request(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """A request onto a connection that is gone already fails as disconnected, in a later poll."""
    node = broker.node()
    await client.become_ready(node)
    outside.network.connections[-1].cut()
    client.ask(node)
    assert client.outcomes == []
    await client.settle()
    assert [type(error) for error in client.outcomes] == [DisconnectedError]


async def test_a_lost_answer_costs_the_connection(broker: StandIn, client: Client) -> None:
    """An answer that never arrives, though the request did, ends in a timeout."""
    node = broker.node()
    await client.become_ready(node)
    theirs = broker.channel.socket
    theirs.loses_sends = True  # type: ignore[attr-defined]
    client.ask(node, timeout_ms=500)
    await client.settle()
    broker.asked[0].answer(METADATA)
    await client.pass_time(0.6)
    assert [type(error) for error in client.outcomes] == [RequestTimedOutError]


async def test_a_late_answer_is_still_an_answer(broker: StandIn, client: Client) -> None:
    """An answer that was held back on the way arrives when it is let go."""
    node = broker.node()
    await client.become_ready(node)
    client.ask(node)
    await client.settle()
    broker.channel.socket.hold()  # type: ignore[attr-defined]
    broker.asked[0].answer(METADATA)
    await client.pass_time(5)
    assert client.outcomes == []
    broker.channel.socket.release()  # type: ignore[attr-defined]
    await client.settle()
    assert client.outcomes == [METADATA]


async def test_each_loss_while_versions_are_asked_for_doubles_the_pause(
    broker: StandIn, client: Client
) -> None:
    """A connection lost in its setup calls no `done`, and the pauses grow."""
    broker.rules[ApiKey.API_VERSIONS] = lambda asked: asked.connection.close()
    node = broker.node()
    await client.begin(node)
    for number in range(5):
        assert await client.begin(node) == pytest.approx(0.05 * 2**number, rel=0.2)
        assert client.outcomes == []
        assert client.nodes.in_flight(node.id) == 0
    assert len(broker.channels) == 5


async def test_closing_during_the_setup_calls_no_done(broker: StandIn, client: Client) -> None:
    """Closing a connection that is not ready yet calls no `done`."""
    node = await client.half_connect(broker)
    assert client.nodes.in_flight(node.id) == 1
    client.nodes.close()
    assert client.nodes.in_flight(node.id) == 0
    await client.settle()
    assert client.outcomes == []


async def test_a_connection_that_is_given_up_is_made_again_after_a_pause(
    broker: StandIn, client: Client
) -> None:
    """A node that does not answer in time is not ready, says why, and is tried again later."""
    node = broker.node()
    await client.become_ready(node)
    client.ask(node, timeout_ms=100)
    await client.until(lambda: not client.nodes.is_ready(node.id, client.now))
    assert isinstance(client.failure(node), RequestTimedOutError)
    assert await client.begin(node) == pytest.approx(0.05, rel=0.2)
    await client.become_ready(node)
    assert client.nodes.failure(node.id) is None


async def test_an_attempt_that_was_given_up_leaves_nothing_behind(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """Giving up while connecting is clean: other nodes connect, and later the same one."""
    other = StandIn(outside)
    first, second = broker.node(1), other.node(2)
    outside.network.silent_ports.add(first.port)
    client.nodes.connect(first, client.now)
    await client.until(lambda: client.nodes.failure(first.id))
    await client.become_ready(second)
    outside.network.silent_ports.clear()
    await client.become_ready(first)
    assert client.nodes.is_ready(second.id, client.now)


async def test_a_connection_that_comes_too_late_is_closed(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """A connection that arrives in the turn in which the client is closed does not stay open."""
    node = broker.node()
    client.nodes.connect(node, client.now)
    while not broker.channels:
        await outside.pass_time(0)
    client.nodes.close()
    await client.settle()
    assert broker.channel.is_closed
    assert broker.asked == []


async def test_a_closed_client_begins_no_connection(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """A call that looks once more, before it learns that its client was closed, opens none."""
    client.nodes.close()
    assert not client.nodes.connect(broker.node(), client.now)
    await outside.pass_time(1)
    assert broker.channels == []


async def test_each_attempt_begins_with_another_address(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """Which of a host's addresses is tried first moves on with each attempt, lost or refused."""
    node = broker.node()
    accept = outside.network.ports.pop(node.port)
    for _ in range(2):
        client.nodes.connect(node, client.now)
        await client.pass_time(2)
    outside.network.ports[node.port] = accept
    await client.become_ready(node)
    broker.channel.close()
    await client.pass_time(2)
    await client.become_ready(node)
    assert outside.network.firsts == [0, 1, 2, 3]


def test_an_unused_connection_is_closed() -> None:
    """After connections.max.idle.ms without a request a connection ends; with one it stays."""
    with stage(ClientConfig(client_id="test", connections_max_idle_ms=60_000)) as (
        outside,
        broker,
        client,
    ):

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            await client.pass_time(50)
            client.ask(node, timeout_ms=200_000)
            await client.pass_time(100)
            broker.asked[0].answer(METADATA)
            await client.pass_time(59)
            assert client.nodes.is_ready(node.id, client.now)
            await client.pass_time(2)
            assert not client.nodes.is_ready(node.id, client.now)
            assert broker.channel.is_closed
            assert client.outcomes == [METADATA]
            await client.become_ready(node)

        outside.run(main())


async def test_a_node_that_moved_is_found_at_its_new_address(
    outside: Outside, broker: StandIn, client: Client
) -> None:
    """Once its old connection has ended, a node is looked for where it is said to be, at once."""
    other = StandIn(outside)
    await client.become_ready(broker.node(1))
    assert client.nodes.connect(other.node(1), client.now)
    broker.channel.close()
    await client.settle()
    client.nodes.connect(other.node(1), client.now)
    await client.settle()
    assert client.nodes.is_ready(1, client.now)
    assert len(other.channels) == 1


def test_statistics_tell_the_connection_to_each_node() -> None:
    """Ready with its requests in flight, or lost with the reason."""
    with stage() as (outside, broker, client):

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            client.ask(node)
            found = client.nodes.statistics().nodes[node.id]
            assert (found.node, found.is_ready, found.is_connecting) == (node, True, False)
            assert (found.in_flight_count, found.failure_count, found.failure) == (1, 0, None)
            broker.channel.close()
            await client.settle()
            found = client.nodes.statistics().nodes[node.id]
            assert (found.is_ready, found.in_flight_count, found.failure_count) == (False, 0, 1)
            assert found.failure is not None
            assert "the connection broke" in found.failure
            assert client.nodes.statistics().failure_count == 1

        outside.run(main())


def test_statistics_tell_a_connection_that_is_being_set_up() -> None:
    """It has begun, and is not ready."""
    with stage() as (outside, broker, client):

        async def main() -> None:
            node = await client.half_connect(broker)
            found = client.nodes.statistics().nodes[node.id]
            assert (found.is_ready, found.is_connecting) == (False, True)

        outside.run(main())
