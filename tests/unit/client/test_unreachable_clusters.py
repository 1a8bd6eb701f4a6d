"""A cluster that cannot be reached is logged as a warning, with the reason, and not in a flood."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tailrace import AsyncAdmin, AsyncConsumer, AsyncProducer, RetriableError
from tailrace.client.nodes.pool import UNREACHABLE_AFTER_S, UNREACHABLE_EVERY_S
from tailrace.testing import Outside, virtual_runtime
from tailrace.testing.cluster import ScriptedCluster
from tests.unit.client.nodes.stand_in import StandIn, stage

Call = Callable[[Outside, dict[str, Any]], Awaitable[object]]


async def produced(outside: Outside, settings: dict[str, Any]) -> object:
    """Send a record that has five minutes."""
    async with AsyncProducer(runtime=outside.runtime, max_block_ms=300_000, **settings) as producer:
        return await producer.send("t", b"x")


async def consumed(outside: Outside, settings: dict[str, Any]) -> object:
    """Read for five minutes."""
    async with AsyncConsumer(runtime=outside.runtime, group_id="g", **settings) as consumer:
        consumer.subscribe("t")
        return await consumer.poll(300)


async def assigned(outside: Outside, settings: dict[str, Any]) -> object:
    """Read a partition for five minutes, without a group."""
    async with AsyncConsumer(runtime=outside.runtime, **settings) as consumer:
        consumer.assign([("t", 0)])
        return await consumer.poll(300)


async def listed(outside: Outside, settings: dict[str, Any]) -> object:
    """Ask for the topics for five minutes."""
    async with AsyncAdmin(runtime=outside.runtime, **settings) as admin:
        return await admin.within(300_000).list_topics()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about a cluster that cannot be reached, at WARNING or above."""
    said = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    return [each for each in said if each.startswith("cluster_unreachable")]


@pytest.mark.parametrize("call", [produced, consumed, assigned, listed])
@pytest.mark.parametrize("why", ["nobody listens", "not known", "setup.timeout"])
def test_a_wrong_bootstrap_address_is_a_warning(
    call: Call, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every client says address and reason, at once and then once a minute; errors say the same."""
    caplog.set_level(logging.WARNING)
    with virtual_runtime() as outside:
        port = StandIn(outside).listener.port
        if why == "nobody listens":
            outside.network.ports.pop(port)
        elif why == "not known":
            outside.network.unknown_hosts.add("broker")
        else:
            outside.network.silent_ports.add(port)

        async def scene() -> str:
            try:
                await call(outside, {"bootstrap_servers": f"broker:{port}"})
            except RetriableError as error:
                return str(error)
            return ""

        said = outside.run(scene())
    found = warnings_of(caplog)
    assert f"servers=broker:{port} attempts=" in found[0]
    assert why in found[0]
    assert call in {consumed, assigned} or f"(broker:{port}): no connection" in said
    minutes = 300 / UNREACHABLE_EVERY_S
    # An attempt at an address that is silent takes half a minute.
    assert minutes - 2 <= len(found) <= minutes + 1


def test_a_cluster_with_one_broker_left_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A bootstrap list is long so that one of its brokers may be down."""
    caplog.set_level(logging.WARNING)
    with virtual_runtime() as outside:
        cluster = ScriptedCluster(outside, nodes=1)
        cluster.start()
        dead = StandIn(outside).listener.port
        outside.network.ports.pop(dead)

        async def scene() -> None:
            servers = f"broker:{dead},{cluster.bootstrap}"
            async with AsyncProducer(
                runtime=outside.runtime, bootstrap_servers=servers, metadata_max_age_ms=1000
            ) as producer:
                await producer.list_topics()
                await outside.pass_time(300)

        outside.run(scene())
    assert warnings_of(caplog) == []


def test_a_broker_that_restarts_at_once_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Only a cluster that stays away is; once it is back, a next failure is news again."""
    caplog.set_level(logging.INFO)
    with stage() as (outside, broker, client):

        async def outage(seconds: float) -> None:
            accept = outside.network.ports.pop(broker.listener.port)
            broker.channel.close()
            until = client.now + seconds
            while client.now < until:
                client.nodes.connect(node, client.now)
                await client.pass_time(0.1)
            outside.network.ports[node.port] = accept
            await client.become_ready(node)

        async def scene() -> None:
            await client.become_ready(node)
            await outage(UNREACHABLE_AFTER_S / 2)
            assert warnings_of(caplog) == []
            for _ in range(2):
                await outage(UNREACHABLE_AFTER_S * 3)

        node = broker.node()
        client.candidates.append(node)
        outside.run(scene())
    assert len(warnings_of(caplog)) == 2
    assert sum("cluster_reached" in each.getMessage() for each in caplog.records) == 2


def test_a_connection_that_was_not_needed_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """An idle client closes its only connection, and is still a client that reaches its cluster."""
    caplog.set_level(logging.WARNING)
    with stage() as (outside, broker, client):

        async def scene() -> None:
            await client.become_ready(node)
            await client.pass_time(3600)
            assert client.nodes.failure(node.id) is not None

        node = broker.node()
        client.candidates.append(node)
        outside.run(scene())
    assert warnings_of(caplog) == []
