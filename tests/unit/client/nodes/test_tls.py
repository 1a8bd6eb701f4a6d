"""Encrypted connections: who is trusted, what is told when nobody is, and every size of piece."""

import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tailrace.client.nodes import AuthenticationError, DisconnectedError
from tailrace.client.security import Security
from tailrace.errors import ConfigError
from tailrace.protocol.messages.metadata import MetadataResponse
from tailrace.runtime.network import Socket
from tailrace.security.tls import TlsSocket
from tailrace.security.tls_config import TlsConfig
from tailrace.security.tls_context import tls_context
from tests.unit.client.nodes.stand_in import METADATA, stage
from tests.unit.client.nodes.test_requests import produce
from tests.unit.security import certificates


def served(
    tmp_path: Path, *, who: str = "BROKER", asks_for_certificate: bool = False
) -> Callable[[Socket], Socket]:
    """Return a function that serves a connection with a broker's certificate."""
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    certificate.write_text(getattr(certificates, who))
    key.write_text(getattr(certificates, f"{who}_KEY"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if asks_for_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=certificates.BROKER)
    return lambda socket: TlsSocket(socket, partial(context.wrap_bio, server_side=True))


def trusting(tmp_path: Path, settings: TlsConfig = TlsConfig()) -> Security:  # noqa: B008
    """A client that trusts BROKER."""
    truststore = tmp_path / "trusted.pem"
    truststore.write_text(certificates.BROKER)
    context = tls_context(replace(settings, ssl_truststore_location=str(truststore)))
    return Security(tls=context)


@pytest.mark.parametrize("receive_bytes_max", [1, 7, 1 << 20])
def test_requests_and_answers_travel_encrypted(tmp_path: Path, receive_bytes_max: int) -> None:
    """Large requests and answers arrive whole, in whatever pieces, and never in the clear."""
    size = 300_000 if receive_bytes_max > 7 else 3_000
    large = MetadataResponse(cluster_id="secret" * 5_000)
    with stage(trusting(tmp_path), wrap=served(tmp_path)) as (outside, broker, client):
        outside.network.receive_bytes_max = receive_bytes_max

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            client.ask(node, produce(size))
            client.ask(node)
            client.ask(node)
            await client.settle()
            assert [asked.api.key.title for asked in broker.asked] == [
                "Produce",
                "Metadata",
                "Metadata",
            ]
            client.outcomes.clear()
            broker.asked[1].answer(large, correlation_id=broker.asked[0].correlation_id)
            await client.settle()
            assert len(client.outcomes) == 3

        outside.run(main())


def test_answers_of_every_size_arrive(tmp_path: Path) -> None:
    """Answers around the size of a TLS record and of the buffers arrive whole."""
    with stage(trusting(tmp_path), wrap=served(tmp_path)) as (outside, broker, client):

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            for size in (0, 1, 16_300, 16_384, 32_000, 32_767):
                client.ask(node)
                await client.settle()
                broker.asked[-1].answer(MetadataResponse(cluster_id="x" * size))
                await client.settle()
                assert client.outcomes[-1] == MetadataResponse(cluster_id="x" * size)

        outside.run(main())


def test_a_stranger_is_not_trusted(tmp_path: Path) -> None:
    """A certificate of an unknown authority is a fatal failure that names the setting."""
    with stage(trusting(tmp_path), wrap=served(tmp_path, who="STRANGER")) as (
        outside,
        broker,
        client,
    ):

        async def main() -> None:
            node = broker.node(host="stranger")
            client.nodes.connect(node, client.now)
            await client.settle()
            assert isinstance(client.failure(node), AuthenticationError)
            assert "ssl.truststore.location" in str(client.failure(node))
            assert broker.channel.is_closed

        outside.run(main())


@pytest.mark.parametrize("checks_host", [True, False])
def test_a_certificate_must_name_the_host(tmp_path: Path, checks_host: bool) -> None:  # noqa: FBT001
    """A trusted certificate of another host is refused unless the check is switched off."""
    algorithm = "https" if checks_host else ""
    settings = TlsConfig(ssl_endpoint_identification_algorithm=algorithm)
    with stage(trusting(tmp_path, settings), wrap=served(tmp_path)) as (outside, broker, client):

        async def main() -> None:
            node = broker.node(host="elsewhere")
            client.nodes.connect(node, client.now)
            await client.settle()
            assert client.nodes.is_ready(node.id, client.now) is not checks_host
            if checks_host:
                assert isinstance(client.failure(node), AuthenticationError)
                assert "ssl.endpoint.identification" in str(client.failure(node))

        outside.run(main())


def test_a_host_that_no_certificate_can_name_is_refused(tmp_path: Path) -> None:
    """A broker that is said to live at an impossible name is a failure, not a crash."""
    with stage(trusting(tmp_path), wrap=served(tmp_path)) as (outside, broker, client):

        async def main() -> None:
            node = broker.node(host=".broker")
            client.nodes.connect(node, client.now)
            await client.settle()
            assert isinstance(client.failure(node), AuthenticationError)

        outside.run(main())


@pytest.mark.parametrize("is_known", [True, False])
def test_a_broker_may_require_a_client_certificate(tmp_path: Path, is_known: bool) -> None:  # noqa: FBT001
    """A client with a certificate is accepted; one without gets an error that says so."""
    keystore, key = tmp_path / "client.crt", tmp_path / "client.key"
    keystore.write_text(certificates.BROKER)
    key.write_text(certificates.BROKER_LOCKED_KEY)
    settings = TlsConfig(
        ssl_keystore_location=str(keystore), ssl_key_location=str(key), ssl_key_password="secret"
    )
    with stage(
        trusting(tmp_path, settings if is_known else TlsConfig()),
        wrap=served(tmp_path, asks_for_certificate=True),
    ) as (outside, broker, client):

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            await client.settle()
            assert client.nodes.is_ready(node.id, client.now) is is_known
            assert (client.nodes.failure(node.id) is None) is is_known

        outside.run(main())


def test_a_port_without_tls_is_told(tmp_path: Path) -> None:
    """A broker that answers a handshake in the clear is a failure that says so."""
    with stage(trusting(tmp_path)) as (outside, broker, client):

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            while not broker.channels:
                await outside.pass_time(0)
            broker.channel.send(b"\0\0\0\4\0\0\0\0")
            await client.settle()
            assert isinstance(client.failure(node), AuthenticationError)
            assert "whether the port speaks TLS" in str(client.failure(node))

        outside.run(main())


@pytest.mark.parametrize("is_cut", [False, True])
def test_an_encrypted_connection_may_end_at_any_time(tmp_path: Path, is_cut: bool) -> None:  # noqa: FBT001
    """A connection that ends in its handshake or later fails as disconnected, and comes back."""
    with stage(trusting(tmp_path), wrap=served(tmp_path)) as (outside, broker, client):

        def end() -> None:
            if is_cut:
                outside.network.connections[-1].cut()
            else:
                broker.channel.close()

        async def main() -> None:
            node = broker.node()
            for turns in range(12):
                client.nodes.connect(node, client.now)
                while len(broker.channels) <= turns:
                    await outside.pass_time(0)
                for _ in range(turns):
                    await outside.pass_time(0)
                end()
                await client.pass_time(0.03)
                assert isinstance(client.failure(node), DisconnectedError)
                await client.pass_time(2)
            await client.become_ready(node)
            client.ask(node)
            await client.settle()
            end()
            await client.settle()
            assert [type(error) for error in client.outcomes] == [DisconnectedError]

        outside.run(main())


def test_a_client_says_goodbye(tmp_path: Path) -> None:
    """Closing sends close_notify, so the broker reads an end and not an error."""
    with stage(trusting(tmp_path), wrap=served(tmp_path)) as (outside, broker, client):

        async def main() -> None:
            await client.become_ready(broker.node())
            theirs = broker.channel.socket
            theirs.watch_reads(None)
            client.nodes.close()
            await outside.pass_time(0.01)
            assert theirs.receive_into(memoryview(bytearray(10))) == 0

        outside.run(main())


def test_files_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    """A file that is missing, is not PEM, or needs another password, is named with its setting."""
    garbage, keystore = tmp_path / "garbage.pem", tmp_path / "keystore.pem"
    garbage.write_text("not PEM")
    keystore.write_text(certificates.BROKER + certificates.BROKER_LOCKED_KEY)
    for settings, setting in (
        (TlsConfig(ssl_truststore_location=str(tmp_path / "missing")), "truststore"),
        (TlsConfig(ssl_truststore_location=str(garbage)), "truststore"),
        (TlsConfig(ssl_keystore_location=str(garbage)), "keystore"),
        (TlsConfig(ssl_keystore_location=str(keystore), ssl_key_password="wrong"), "keystore"),
        (TlsConfig(ssl_keystore_location=str(keystore)), "keystore"),
    ):
        with pytest.raises(ConfigError, match=rf"ssl\.{setting}\.location"):
            tls_context(settings)
    tls_context(TlsConfig(ssl_keystore_location=str(keystore), ssl_key_password="secret"))


def test_an_answered_request_stays_answered(tmp_path: Path) -> None:
    """An answer that arrives together with the end of the connection is still taken."""
    with stage(trusting(tmp_path), wrap=served(tmp_path)) as (outside, broker, client):

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            client.ask(node)
            await client.settle()
            broker.asked[0].answer(METADATA)
            broker.channel.close()
            await client.settle()
            assert client.outcomes == [METADATA]
            assert client.nodes.failure(node.id) is not None

        outside.run(main())
