"""Logins and certificates of producers on real sockets and threads."""

import asyncio
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tailrace import AsyncProducer, OAuthToken, Producer
from tailrace.client.nodes.oauth import first_message
from tailrace.errors import ConfigError
from tailrace.testing.real_cluster import real_cluster
from tests.unit.security.certificates import BROKER, STRANGER
from tests.wire.clients import TIMEOUT_S
from tests.wire.test_producer_peers import serving_tls

pytestmark = pytest.mark.wire

GOOD = OAuthToken(value="good", expires_at=20_000_000_000.0, extensions={"pool": "one"})
LOGIN: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


def test_a_token_function_runs_on_a_thread_of_its_own() -> None:
    """A producer of threads logs in with the token that a blocking function returns."""
    threads = []

    def token() -> OAuthToken:
        threads.append(threading.current_thread().name)
        return GOOD

    with real_cluster() as cluster:
        cluster.create_topic("t")
        cluster.password = first_message(GOOD)
        with Producer(
            bootstrap_servers=cluster.bootstrap, sasl_oauth_token=token, **LOGIN
        ) as producer:
            assert producer.send("t", b"v").result(TIMEOUT_S).offset == 0
    assert threads == ["tailrace login"]


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_the_event_loop_goes_on_while_a_token_is_fetched(is_coroutine: bool) -> None:  # noqa: FBT001
    """A function that blocks leaves the loop to others; a coroutine function is awaited."""
    asked, release = threading.Event(), threading.Event()

    def token() -> OAuthToken:
        asked.set()
        assert release.wait(TIMEOUT_S)
        return GOOD

    async def token_later() -> OAuthToken:
        return await asyncio.to_thread(token)

    async def main(bootstrap: str) -> int:
        async with AsyncProducer(
            bootstrap_servers=bootstrap,
            sasl_oauth_token=token_later if is_coroutine else token,
            **LOGIN,
        ) as producer:
            receipt = producer.send("t", b"v")
            assert await asyncio.to_thread(asked.wait, TIMEOUT_S)
            release.set()
            return int((await receipt).offset)

    with real_cluster() as cluster:
        cluster.create_topic("t")
        cluster.password = first_message(GOOD)
        assert asyncio.run(asyncio.wait_for(main(cluster.bootstrap), TIMEOUT_S)) == 0


def test_a_wrong_token_is_told_to_the_sender_at_once() -> None:
    """A broker that refuses the token fails the record without a wait for its time limit."""
    with real_cluster() as cluster:
        cluster.create_topic("t")
        cluster.password = first_message(GOOD)
        with Producer(
            bootstrap_servers=cluster.bootstrap, sasl_oauth_token=lambda: "bad", **LOGIN
        ) as producer:
            error = producer.send("t", b"v").exception(TIMEOUT_S)
    assert "check the token" in str(error)


def test_records_go_through_tls_with_certificates_in_settings(tmp_path: Path) -> None:
    """A truststore as a setting works on real sockets, and a stranger's is refused by name."""
    with serving_tls(tmp_path) as address:
        settings = {"bootstrap.servers": address, "security.protocol": "SSL"}
        with Producer(settings, ssl_truststore_certificates=BROKER) as producer:
            assert producer.send("t", b"v").result(TIMEOUT_S).offset == 0
        with Producer(settings, ssl_truststore_certificates=STRANGER) as producer:
            error = producer.send("t", b"v").exception(TIMEOUT_S)
        assert "ssl.truststore" in str(error)


def test_a_keystore_of_keytool_is_read(tmp_path: Path) -> None:
    """A PKCS12 truststore from Java's own tool is used; a JKS one is refused with the command."""
    pytest.importorskip("cryptography")
    keytool = shutil.which("keytool")
    if keytool is None:
        pytest.skip("there is no keytool")
    certificate = tmp_path / "ca.pem"
    certificate.write_text(BROKER)
    for kind in ("PKCS12", "JKS"):
        _import_certificate(keytool, certificate, tmp_path / kind, kind=kind)
    with serving_tls(tmp_path) as address:
        settings = {
            "bootstrap.servers": address,
            "security.protocol": "SSL",
            "ssl.truststore.password": "secret",
        }
        with Producer(settings, ssl_truststore_location=tmp_path / "PKCS12") as producer:
            assert producer.send("t", b"v").result(TIMEOUT_S).offset == 0
        with pytest.raises(ConfigError, match="keytool -importkeystore"):
            Producer(settings, ssl_truststore_location=tmp_path / "JKS")


def _import_certificate(keytool: str, certificate: Path, store: Path, *, kind: str) -> None:
    subprocess.run(
        [keytool, "-importcert", "-noprompt", "-alias", "ca", "-file", str(certificate),
         "-keystore", str(store), "-storetype", kind, "-storepass", "secret"],
        check=True, capture_output=True, timeout=TIMEOUT_S,
    )  # fmt: skip
