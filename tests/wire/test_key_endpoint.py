"""Key sets by HTTPS from an endpoint on this machine, which may be hostile in every way."""

import logging
import re
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable

import pytest

from tailrace import Broker, Producer
from tailrace.client.nodes import AuthenticationError
from tailrace.security.key_set import BYTES_MAX, KeySet, KeySetError, KeySetSource
from tailrace.security.tls_config import TlsConfig
from tailrace.security.tls_context import tls_context
from tests.unit.security.certificates import BROKER, STRANGER
from tests.unit.security.token_issuer import key_set, public_key, token
from tests.wire.clients import TIMEOUT_S
from tests.wire.endpoints import HOSTILE, MIB, Answer, Endpoint, endpoint, saying, server_side

pytestmark = pytest.mark.wire

KEYS = key_set(public_key("RSA", kid="one"))


def settings(served: Endpoint, *, authority: str) -> dict[str, str]:
    """A listener that checks tokens against the key set of the endpoint."""
    pem = authority.replace("\n", "\\\\n")
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": served.url,
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            f'ssl.truststore.type="PEM" ssl.truststore.certificates="{pem}";'
        ),
    }


def signed() -> str:
    """A token that is valid now."""
    now = int(time.time())
    return token(iat=now - 5, exp=now + 300)


def send(bootstrap: str, given: Callable[[], str] = signed) -> int:
    """Log in with a token, and send a record; returns its offset."""
    with Producer(
        bootstrap_servers=bootstrap, security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER", sasl_oauth_token=given,
    ) as producer:  # fmt: skip
        return producer.send("t", b"v").result(TIMEOUT_S).offset


def test_a_key_set_comes_by_https() -> None:
    """Kafka's options ssl... of the JAAS entry trust the endpoint, which is asked once."""
    with (
        endpoint(saying(KEYS), server_side()) as served,
        Broker(
            listen="SASL_PLAINTEXT://127.0.0.1:0", settings=settings(served, authority=BROKER)
        ) as broker,
    ):
        assert [send(broker.bootstrap_servers) for _ in range(2)] == [0, 1]
    (request,) = served.requests
    assert request.startswith(b"GET /oauth/token?a=b HTTP/1.1\r\n")


def test_an_endpoint_that_is_not_trusted_logs_in_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The operator reads why and what to set; the client learns that its login has failed."""
    with (
        caplog.at_level(logging.INFO),
        endpoint(saying(KEYS), server_side()) as served,
        Broker(
            listen="SASL_PLAINTEXT://127.0.0.1:0", settings=settings(served, authority=STRANGER)
        ) as broker,
        pytest.raises(AuthenticationError) as refused,
    ):
        send(broker.bootstrap_servers)
    assert served.requests == []
    assert "its certificate is not trusted" in caplog.text
    assert "give its authorities by ssl.truststore.location" in caplog.text
    assert "certificate" not in str(refused.value)


def source(served: Endpoint) -> KeySetSource:
    """A source with a short time limit."""
    return KeySetSource(url=served.url, read_timeout_s=0.5)


def test_a_host_has_to_be_the_certificates() -> None:
    """A certificate that is trusted and names another host is refused."""
    trusting = tls_context(TlsConfig(ssl_truststore_certificates=BROKER))
    with endpoint(saying(KEYS), server_side()) as served:
        keys = KeySet(
            KeySetSource(url=served.url.replace("127.0.0.1", "localhost"), context=trusting)
        )
        with pytest.raises(KeySetError, match=r"not trusted.*localhost"):
            keys.find("one", "RSA", "")


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_endpoint_costs_little_time_and_memory(case: str) -> None:
    """There is one reason for the operator within the time limit, in a few megabytes."""
    began = time.process_time()
    with endpoint(HOSTILE[case]) as served:
        tracemalloc.start()
        try:
            with pytest.raises(
                KeySetError, match="^" + re.escape(f"there are no keys to check it: {served.url}: ")
            ) as raised:
                KeySet(source(served)).find("one", "RSA", "")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(str(raised.value)) < 700
    assert str(raised.value).isprintable()
    assert peak < 16 * MIB
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (saying(b"", status="302 Found", headers="Location: file:///etc/passwd\r\n"), "redirects"),
        (saying(b"", status="302 Found", headers="Location: http://[::1]:1/\r\n"), "not followed"),
        (saying(b"", status="404 Not Found"), "status 404"),
        (saying(b"", status="500 Broken"), "status 500"),
        (saying(b"<html>"), "not JSON"),
        (saying(b"\x1f\x8b\x08" + bytes(100)), "not JSON"),
        (saying([]), "no key set"),
        (saying({"keys": [7]}), "no key set"),
        (saying(b" " * (BYTES_MAX + 1)), "more than"),
        (saying(b"[" * BYTES_MAX), "not JSON"),
        (lambda connection: connection.sendall(b"\x1b[2J" * 5000 + b"\r\n\r\n"), "not HTTP"),
    ],
)
def test_an_answer_that_is_no_key_set_is_a_reason(answer: Answer, said: str) -> None:
    """Each has a sentence for the operator, in printable text."""
    with endpoint(answer) as served, pytest.raises(KeySetError, match=said) as raised:
        KeySet(source(served)).find("one", "RSA", "")
    assert str(raised.value).isprintable()


def test_known_keys_log_in_while_the_endpoint_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """A set that is due is read beside the logins, which use the one before."""
    clock, is_over = [0.0], threading.Event()

    def hang(connection: socket.socket) -> None:
        is_over.wait(TIMEOUT_S)
        connection.close()

    answers = iter((saying(KEYS), hang))

    def answer(connection: socket.socket) -> None:
        next(answers)(connection)

    with endpoint(answer) as served:
        keys = KeySet(
            KeySetSource(url=served.url, read_timeout_s=TIMEOUT_S, refresh_s=100),
            clock=lambda: clock[0],
        )
        assert len(keys.find("one", "RSA", "")) == 1
        clock[0] = 150.0
        assert [len(keys.find("one", "RSA", "")) for _ in range(100)] == [1] * 100
        # The read that hangs would have ended with a warning by now if a login had waited for it.
        assert "key_set_not_read" not in caplog.text
        is_over.set()
