"""Clusters whose nodes reach each other by TLS, each with a certificate of its own."""

import pytest

from tailrace.client.errors import AuthenticationError
from tailrace.errors import ConfigError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.testing import Outside
from tests.unit.broker.brokers import batch, produce
from tests.unit.broker.controller.own_clusters import OwnCluster
from tests.unit.broker.tls_peers import encrypted, showing
from tests.unit.security.parties import Party, authority, name_of, party

NAMED = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SSL,CONTROLLER:SSL",
    "ssl.client.auth": "required",
}
BROKER = {
    **NAMED,
    "listeners": "PLAINTEXT://memory:0,INSIDE://memory:0",
    "inter.broker.listener.name": "INSIDE",
}


def certified(who: Party) -> dict[str, str]:
    """The settings of a node with this certificate."""
    return {**who.keystore, **authority().truststore}


async def test_a_cluster_over_mutual_tls_replicates(outside: Outside) -> None:
    """Three brokers and a controller that ask each other for certificates acknowledge records."""
    cluster = OwnCluster(outside)
    await cluster.start_controller({**NAMED, **certified(party("controller"))})
    for number in (1, 2, 3):
        await cluster.start(number, {**BROKER, **certified(party(f"broker-{number}"))})
    await cluster.add_topic()
    # By all replicas: followers have fetched it, and the controller has their registrations.
    assert (await produce(cluster.peer(1), "t", batch(b"one"))).error_code == 0
    await cluster.wait(lambda: {cluster.end(each) for each in (1, 2, 3)} == {1})
    found = cluster.image.brokers[2].end_points
    assert {each.name: each.security_protocol for each in found} == {"INSIDE": 1, "PLAINTEXT": 0}
    for number in (3, 2, 1):
        await cluster.stop(number)
    await cluster.controller.stop()


async def test_a_node_of_both_roles_reaches_itself_by_tls(outside: Outside) -> None:
    """The broker of a combined node registers with its controller over an encrypted connection."""
    cluster = OwnCluster(outside)
    listeners = f"{BROKER['listeners']},CONTROLLER://memory:19093"
    await cluster.start_both(1, {**BROKER, "listeners": listeners, **certified(party("both"))})
    await cluster.start(2, {**BROKER, **certified(party("broker-2"))})
    await cluster.add_topic(replicas=(2, 1))
    assert (await produce(cluster.peer(2), "t", batch(b"one"))).error_code == 0
    for number in (2, 1):
        await cluster.stop(number)


async def test_a_stranger_joins_no_cluster(outside: Outside) -> None:
    """A broker whose certificate the controller does not trust does not register."""
    cluster = OwnCluster(outside)
    await cluster.start_controller({**NAMED, **certified(party("controller"))})
    own = authority("Stranger")
    stranger = Party(name_of("outsider"), signed_by=own)
    trusted = {"ssl.truststore.certificates": authority().certificate + own.certificate}
    with pytest.raises(AuthenticationError, match="unknown ca"):
        await cluster.start(1, {**BROKER, **stranger.keystore, **trusted})
    assert not cluster.image.brokers
    await cluster.controller.stop()


async def test_a_node_that_could_not_reach_itself_does_not_start(outside: Outside) -> None:
    """A truststore without the authority of the own certificate is an error of the start."""
    cluster = OwnCluster(outside)
    other = authority("Other").truststore
    with pytest.raises(ConfigError, match="listener INSIDE: nodes with these settings cannot"):
        await cluster.start(1, {**BROKER, **party("broker-1").keystore, **other})


async def test_clients_of_brokers_are_named_by_certificates_too(outside: Outside) -> None:
    """A client of the brokers' listener gets their addresses there, with a certificate only."""
    cluster = OwnCluster(outside)
    await cluster.start_controller({**NAMED, **certified(party("controller"))})
    broker = await cluster.start(1, {**BROKER, **certified(party("broker-1"))})
    port = broker.port_of("INSIDE")
    assert port is not None
    peer = await encrypted(outside, port, showing(party("admin")))
    answer = await peer.ask(ApiKey.METADATA, MetadataRequest(topics=()), MetadataResponse)
    assert [each.port for each in answer.brokers] == [port]
    await cluster.stop(1)
    await cluster.controller.stop()
