"""Listeners that come and go while a broker runs: by IncrementalAlterConfigs, as in Kafka."""

import logging
from pathlib import Path

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.security.errors import TlsError
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import connect, running
from tests.unit.broker.clusters import Cluster, running_cluster
from tests.unit.broker.test_configs import Change, resource, set_to
from tests.unit.broker.test_dynamic_settings import change, changed, deleted, described
from tests.unit.broker.test_sasl_listeners import log_in, shake_hands
from tests.unit.broker.tls_peers import encrypted, showing
from tests.unit.security.parties import party

NEW = "listener.name.outside."
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
MAP = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTSIDE:{}"
HIDDEN = {"advertised.listeners": "PLAINTEXT://memory:0"}
"""Settings of a broker whose other listeners are not advertised."""


def with_outside(protocol: str = "PLAINTEXT", *, port: int = 0) -> tuple[Change, ...]:
    """Changes that add the listener OUTSIDE."""
    return (
        set_to("listeners", f"PLAINTEXT://memory:0,OUTSIDE://memory:{port}"),
        set_to("listener.security.protocol.map", MAP.format(protocol)),
    )


def keystore(prefix: str = NEW) -> tuple[Change, ...]:
    """Changes that give a listener a certificate."""
    return tuple(set_to(f"{prefix}{name}", text) for name, text in party("broker").keystore.items())


def port_of(broker: RunningBroker, name: str) -> int:
    """The port of a listener that there is."""
    port = broker.port_of(name)
    assert port is not None
    return port


def by_controller(cluster: Cluster, *changes: Change) -> None:
    """Change settings of broker 1 by a controller, which looks at no file of the broker."""
    asked = resource(*changes, name="1", kind=ResourceType.BROKER)
    cluster.controller.do(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=(asked,))
    )


async def addresses(peer: Peer) -> list[tuple[str, int]]:
    """The brokers that the listener of this peer names."""
    answer = await peer.ask(ApiKey.METADATA, MetadataRequest(topics=()), MetadataResponse)
    return [(each.host, each.port) for each in answer.brokers]


async def test_a_listener_with_encryption_and_logins_comes_by_one_request(outside: Outside) -> None:
    """Its clients are sent to it, the others to theirs; no secret is shown; a start has it too."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await changed(
            peer,
            *with_outside("SASL_SSL"),
            *keystore(),
            set_to(f"{NEW}sasl.enabled.mechanisms", "PLAIN"),
            set_to(f"{NEW}plain.sasl.jaas.config", PLAIN),
        )
        port = port_of(broker, "OUTSIDE")
        other = await encrypted(outside, port)
        assert (await log_in(other)).error_code == ErrorCode.NONE
        assert await addresses(other) == [("memory", port)]
        assert await addresses(peer) == [("memory", broker.endpoint[1])]
        shown = await described(peer)
        assert (
            shown["listeners"].value
            == f"PLAINTEXT://memory:{broker.endpoint[1]},OUTSIDE://memory:{port}"
        )
        for name in ("plain.sasl.jaas.config", "ssl.keystore.key"):
            entry = shown[NEW + name]
            assert (entry.value, entry.is_sensitive, entry.read_only) == (None, True, False)
    async with running(outside) as broker:
        other = await encrypted(outside, port_of(broker, "OUTSIDE"))
        assert (await log_in(other)).error_code == ErrorCode.NONE


async def test_a_listener_that_is_removed_ends_its_connections(outside: Outside) -> None:
    """Only its own, and nobody can connect; its name may come again with other settings."""
    async with running(outside, HIDDEN) as broker:
        peer = connect(outside, broker)
        await changed(peer, *with_outside("SASL_PLAINTEXT"), *(
            set_to(f"{NEW}sasl.enabled.mechanisms", "PLAIN"),
            set_to(f"{NEW}plain.sasl.jaas.config", PLAIN),
        ))  # fmt: skip
        port = port_of(broker, "OUTSIDE")
        others = [Peer(outside.network.open(port)) for _ in range(50)]
        assert (await log_in(others[0])).error_code == ErrorCode.NONE
        await changed(peer, deleted("listeners"))
        for each in others:
            assert await each.is_closed()
        with pytest.raises(ConnectionRefusedError):
            outside.network.open(port)
        assert broker.port_of("OUTSIDE") is None
        assert await addresses(peer)
        await changed(peer, *with_outside(), deleted(f"{NEW}sasl.enabled.mechanisms"))
        other = Peer(outside.network.open(port_of(broker, "OUTSIDE")))
        # As in Kafka: advertised.listeners does not name it.
        assert await addresses(other) == []


REFUSED = [
    ((set_to("listeners", "OTHER://memory:0"), set_to("inter.broker.listener.name", "OTHER")),
     "Cannot update these configs dynamically: [inter.broker.listener.name]"),
    ((set_to("advertised.listeners", "PLAINTEXT://x:1"),),
     "Cannot update these configs dynamically: [advertised.listeners]"),
    ((set_to("listeners", "OTHER://memory:0"),
      set_to("listener.security.protocol.map", "OTHER:PLAINTEXT")),
     "Advertised listeners 'PLAINTEXT' must be a subset of listeners 'OTHER'"),
    ((set_to("listener.security.protocol.map", "PLAINTEXT:SASL_PLAINTEXT"),
      set_to("listener.name.plaintext.sasl.enabled.mechanisms", "SCRAM-SHA-256")),
     "Security protocol cannot be updated for existing listener PLAINTEXT"),
    ((set_to("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),),
     "Configs cannot be updated dynamically for existing listener PLAINTEXT, restart broker"),
    ((set_to("listeners", "PLAINTEXT://memory:0,OUTSIDE://memory:0"),),
     "listener.security.protocol.map does not say what OUTSIDE is"),
    (with_outside("SSL"), "listener OUTSIDE"),
    (with_outside("SASL_PLAINTEXT"), "GSSAPI needs Krb5LoginModule"),
    ((set_to(f"{NEW}sasl.enabled.mechanism", "PLAIN"),), "did you mean"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), REFUSED)
async def test_a_change_of_listeners_that_cannot_be_made_is_refused(
    outside: Outside, changes: tuple[Change, ...], words: str
) -> None:
    """With Kafka's words where Kafka refuses it too; for all brokers together none can be made."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        answer = await change(peer, *changes)
        assert answer.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
        assert words in (answer.error_message or "")
        assert await addresses(peer) == [("memory", broker.endpoint[1])]
        answer = await change(peer, *with_outside(), name="")
        assert "at default cluster level, broker id must be specified" in (
            answer.error_message or ""
        )


async def test_a_change_refers_to_no_value_elsewhere(outside: Outside) -> None:
    """It would be a password that everybody knows."""
    given = {
        "config.providers": "env",
        "config.providers.env.class": (
            "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
        ),
    }
    async with running(outside, given) as broker:
        wrong = PLAIN.replace('"secret"', '"${env:PASSWORD}"')
        answer = await change(
            connect(outside, broker),
            *with_outside("SASL_PLAINTEXT"),
            set_to(f"{NEW}sasl.enabled.mechanisms", "PLAIN"),
            set_to(f"{NEW}plain.sasl.jaas.config", wrong),
        )
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert "looked up at a start; give the value itself" in (answer.error_message or "")


async def test_a_port_that_is_taken_is_refused(outside: Outside) -> None:
    """Before anything is stored; the port of a listener that goes is free."""
    async with running(outside, HIDDEN) as broker:
        peer = connect(outside, broker)
        taken = outside.network.listen("memory", 5000, lambda accepted: accepted.close())
        answer = await change(peer, *with_outside(port=5000))
        assert "another listener has the port" in (answer.error_message or "")
        taken.close()
        await changed(peer, *with_outside(port=5000))
        moved = "PLAINTEXT://memory:0,OTHER://memory:5000"
        await changed(
            peer,
            set_to("listeners", moved),
            set_to("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"),
        )
        assert (broker.port_of("OUTSIDE"), broker.port_of("OTHER")) == (None, 5000)


async def test_a_port_that_is_taken_at_a_start_is_tried_again(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker serves on its other listeners, and an error says which one is missing."""
    async with running(outside) as broker:
        await changed(connect(outside, broker), *with_outside(port=5000))
    taken = outside.network.listen("memory", 5000, lambda accepted: accepted.close())
    with caplog.at_level(logging.ERROR):
        async with running(outside) as broker:
            peer = connect(outside, broker)
            assert broker.port_of("OUTSIDE") is None
            assert "listener_not_added name=OUTSIDE reason=cannot listen on" in caplog.text
            taken.close()
            await changed(peer, set_to("log.cleaner.backoff.ms", "15001"))
            assert broker.port_of("OUTSIDE") == 5000


async def test_settings_without_a_prefix_count_for_new_listeners(outside: Outside) -> None:
    """The open ones keep what they have, as in Kafka."""
    own = {
        "listeners": "PLAINTEXT://memory:0,SSL://memory:0",
        "listener.name.ssl.ssl.truststore.certificates": party("Bob").certificate,
        **{f"listener.name.ssl.{name}": text for name, text in party("broker").keystore.items()},
    }
    async with running(outside, own) as broker:
        peer = connect(outside, broker)
        names = ("PLAINTEXT", "SSL", "LOGINS", "OUTSIDE")
        await changed(
            peer,
            set_to("listeners", ",".join(f"{each}://memory:0" for each in names)),
            set_to(
                "listener.security.protocol.map",
                "PLAINTEXT:PLAINTEXT,SSL:SSL,LOGINS:SASL_PLAINTEXT,OUTSIDE:SSL",
            ),
            set_to("sasl.enabled.mechanisms", "PLAIN"),
            set_to("listener.name.logins.plain.sasl.jaas.config", PLAIN),
            set_to("ssl.client.auth", "required"),
            *keystore(),
            set_to(f"{NEW}ssl.truststore.certificates", party("Bob").certificate),
        )
        logins = Peer(outside.network.open(port_of(broker, "LOGINS")))
        assert (await shake_hands(logins, "GSSAPI")).mechanisms == ("PLAIN",)
        assert await addresses(await encrypted(outside, port_of(broker, "SSL")))
        refused = await encrypted(outside, port_of(broker, "OUTSIDE"))
        with pytest.raises(TlsError, match="CERTIFICATE_REQUIRED"):
            await refused.is_closed()
        shown = showing(party("Bob"))
        assert await addresses(await encrypted(outside, port_of(broker, "OUTSIDE"), shown))


async def test_a_listener_that_comes_again_has_nothing_of_before(
    outside: Outside, tmp_path: Path
) -> None:
    """Also where the certificate of another one could not be read when it went."""
    file = tmp_path / "broker.pem"
    both = "PLAINTEXT://memory:0,FILED://memory:0,OUTSIDE://memory:0"
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FILED:SSL,OUTSIDE:SSL"
    pem = party("broker").certificate + party("broker").key
    async with running_cluster(outside) as cluster:
        broker = await cluster.start(1, HIDDEN)
        file.write_text(pem)
        await changed(
            cluster.peer(1),
            set_to("listeners", both),
            set_to("listener.security.protocol.map", protocols),
            set_to("listener.name.filed.ssl.keystore.location", str(file)),
            *keystore(),
            set_to(f"{NEW}ssl.truststore.certificates", party("Bob").certificate),
        )
        await cluster.until(lambda: broker.port_of("OUTSIDE") is not None)
        file.unlink()
        by_controller(cluster, set_to("listeners", "PLAINTEXT://memory:0,FILED://memory:0"))
        await cluster.until(lambda: broker.port_of("OUTSIDE") is None)
        file.write_text(pem)
        peer = cluster.peer(1)
        await changed(peer, set_to("listeners", both), set_to(f"{NEW}ssl.client.auth", "required"))
        await cluster.until(lambda: broker.port_of("OUTSIDE") is not None)
        refused = await encrypted(outside, port_of(broker, "OUTSIDE"))
        with pytest.raises(TlsError, match="CERTIFICATE_REQUIRED"):
            await refused.is_closed()


async def test_a_change_that_contradicts_others_leaves_what_is_in_use(outside: Outside) -> None:
    """A controller takes it, which does not know the settings of the broker; as in Kafka."""
    async with running_cluster(outside) as cluster:
        broker = await cluster.start(1, HIDDEN)
        await changed(cluster.peer(1), *with_outside(), set_to("max.connections", "77"))
        await cluster.until(lambda: broker.port_of("OUTSIDE") is not None)
        by_controller(cluster, set_to("cordoned.log.dirs", "/elsewhere"))
        await outside.pass_time(1)
        assert await addresses(Peer(outside.network.open(port_of(broker, "OUTSIDE")))) == []
        assert broker.current.connection_limits.connections_max == 77
        await changed(cluster.peer(1), deleted("cordoned.log.dirs"), deleted("max.connections"))
        await cluster.until(lambda: broker.current.connection_limits.connections_max != 77)
        assert broker.port_of("OUTSIDE") is not None


async def test_a_cluster_learns_the_new_address(outside: Outside) -> None:
    """The broker registers again, in the same life: it leads on, and other brokers name it."""
    async with running_cluster(outside, 1, 2) as cluster:
        before = cluster.controller.image.brokers[1]
        for each in (1, 2):
            await changed(cluster.peer(each), *with_outside(), name=str(each))
        await cluster.until(
            lambda: all(
                len(each.end_points) == 2 for each in cluster.controller.image.brokers.values()
            )
        )
        after = cluster.controller.image.brokers[1]
        assert (after.broker_epoch, after.fenced) == (before.broker_epoch, False)
        ports = [port_of(cluster.brokers[each], "OUTSIDE") for each in (1, 2)]
        peer = Peer(outside.network.open(ports[0]))
        await cluster.until(lambda: len(cluster.brokers[1].cluster.metadata.brokers) == 2)
        await outside.pass_time(1)
        assert [port for _, port in await addresses(peer)] == ports
