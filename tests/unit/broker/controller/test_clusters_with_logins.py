"""Clusters whose nodes log in to each other by SASL."""

import pytest

from tailrace.broker.config import broker_config
from tailrace.client.errors import AuthenticationError
from tailrace.cluster.scram_arguments import parse_scram_users
from tailrace.errors import ConfigError
from tailrace.offline.formatting import Wanted, format_directories, levels_of
from tailrace.testing import Outside
from tests.unit.broker.brokers import batch, produce
from tests.unit.broker.controller.own_clusters import CONTROLLER, OwnCluster

MODULES = "org.apache.kafka.common.security"
SCRAM = f'{MODULES}.scram.ScramLoginModule required username="node" password="node-secret";'
PLAIN = (
    f"{MODULES}.plain.PlainLoginModule required "
    'username="node" password="node-secret" user_node="node-secret" user_other="x";'
)


def named(mechanism: str, jaas: str = "") -> dict[str, str]:
    """The settings of a node whose listeners of nodes have this mechanism."""
    entry = jaas or (PLAIN if mechanism == "PLAIN" else SCRAM)
    return {
        "listener.security.protocol.map":
            "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.mechanism.controller.protocol": mechanism,
        f"listener.name.inside.{mechanism.lower()}.sasl.jaas.config": entry,
        f"listener.name.controller.{mechanism.lower()}.sasl.jaas.config": entry,
    }  # fmt: skip


LISTENERS = {
    "listeners": "PLAINTEXT://memory:0,INSIDE://memory:0",
    "inter.broker.listener.name": "INSIDE",
}


def format_controller(cluster: OwnCluster, mechanism: str) -> None:
    """Format the controller's directory with the user of the nodes."""
    user = f'{mechanism}=[name=node,password="node-secret"]'
    runtime = cluster.runtime(CONTROLLER)
    wanted = Wanted(node_id=CONTROLLER, levels=levels_of(None, {}), scram=parse_scram_users([user]))
    format_directories(runtime.files, ["data"], wanted, clock=runtime.clock, chance=runtime.chance)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_cluster_with_logins_replicates(outside: Outside, mechanism: str) -> None:
    """Three brokers and a controller that log in to each other acknowledge and end sessions."""
    cluster = OwnCluster(outside)
    settings = named(mechanism)
    settings["connections.max.reauth.ms"] = "5000"
    format_controller(cluster, mechanism if mechanism != "PLAIN" else "SCRAM-SHA-256")
    await cluster.start_controller(settings)
    for number in (1, 2, 3):
        await cluster.start(number, {**LISTENERS, **settings})
    await cluster.add_topic()
    assert (await produce(cluster.peer(1), "t", batch(b"one"))).error_code == 0
    await cluster.wait(lambda: {cluster.end(each) for each in (1, 2, 3)} == {1})
    # Several sessions long: channels begin new ones before the old end.
    await outside.pass_time(30)
    assert not any(each.fenced for each in cluster.image.brokers.values())
    assert (await produce(cluster.peer(1), "t", batch(b"two"))).error_code == 0
    await cluster.wait(lambda: {cluster.end(each) for each in (1, 2, 3)} == {2})
    assert set(cluster.state().isr) == {1, 2, 3}
    protocols = {each.name: each.security_protocol for each in cluster.image.brokers[2].end_points}
    assert protocols == {"INSIDE": 2, "PLAINTEXT": 0}
    for number in (3, 2, 1):
        await cluster.stop(number)
    await cluster.controller.stop()


async def test_a_node_of_both_roles_logs_in_to_brokers(outside: Outside) -> None:
    """A combined node and a broker log in to each other."""
    cluster = OwnCluster(outside)
    settings = named("PLAIN")
    listeners = f"{LISTENERS['listeners']},CONTROLLER://memory:19093"
    await cluster.start_both(1, {**LISTENERS, **settings, "listeners": listeners})
    await cluster.start(2, {**LISTENERS, **settings})
    await cluster.add_topic(replicas=(2, 1))
    assert (await produce(cluster.peer(2), "t", batch(b"one"))).error_code == 0
    for number in (2, 1):
        await cluster.stop(number)


async def test_a_node_with_a_wrong_password_joins_no_cluster(outside: Outside) -> None:
    """A broker that the controller refuses does not register, and says why."""
    cluster = OwnCluster(outside)
    await cluster.start_controller(named("PLAIN"))
    wrong = named("PLAIN", PLAIN.replace('password="node-secret"', 'password="no"'))
    with pytest.raises(AuthenticationError, match="Invalid username or password"):
        await cluster.start(1, {**LISTENERS, **wrong})
    assert not cluster.image.brokers
    await cluster.controller.stop()


def test_a_node_without_a_login_is_a_fault() -> None:
    """A broker of a cluster needs the name and password by which it logs in."""
    settings = named("PLAIN", PLAIN.replace('username="node" ', ""))
    given = {
        "process.roles": "broker", "node.id": "1", "log.dirs": "data",
        "controller.quorum.bootstrap.servers": "c:1", "controller.listener.names": "CONTROLLER",
        **LISTENERS, **settings,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="needs username and password of this node") as refused:
        broker_config(given)
    assert len(refused.value.faults) == 2
    assert "secret" not in str(refused.value)
