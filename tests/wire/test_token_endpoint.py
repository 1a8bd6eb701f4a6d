"""Tokens by HTTP from a small endpoint on this machine, which may be hostile in every way."""

import socket
import ssl
import time
import tracemalloc
from base64 import b64encode
from dataclasses import replace

import pytest

from tailrace import Producer
from tailrace.client.nodes import (
    AuthenticationError,
    DisconnectedError,
    NodeError,
)
from tailrace.client.nodes.oauth import OAuthToken, first_message
from tailrace.client.nodes.oidc import BODY_BYTES_MAX, ClientCredentials
from tailrace.security.tls_config import TlsConfig
from tailrace.security.tls_context import tls_context
from tailrace.testing.real_cluster import real_cluster
from tests.unit.security.certificates import BROKER
from tests.wire.clients import TIMEOUT_S
from tests.wire.endpoints import HOSTILE, MIB, Answer, Endpoint, endpoint, saying, server_side

pytestmark = pytest.mark.wire


def client_of(served: Endpoint) -> ClientCredentials:
    """A client with short time limits that does not try again."""
    return ClientCredentials(
        url=served.url, client_id="me:you", client_secret="SECRET", scope="a b+c",
        read_timeout_ms=500, retry_backoff_max_ms=0,
    )  # fmt: skip


def failure(answer: Answer, context: ssl.SSLContext | None = None) -> NodeError:
    """The error of a client that gets such an answer."""
    with endpoint(answer, context) as served, pytest.raises(NodeError) as raised:
        client_of(served).fetch()
    assert "SECRET" not in str(raised.value)
    assert len(str(raised.value)) < 700
    return raised.value


def test_a_token_is_asked_for_as_the_standard_says() -> None:
    """The request has the client's name and secret in its header, and the grant in its body."""
    began = time.time()
    with endpoint(saying({"access_token": "abc", "expires_in": 60})) as served:
        token = replace(client_of(served), extensions={"pool": "x"}).fetch()
    (request,) = served.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /oauth/token?a=b HTTP/1.1\r\n")
    assert b"Authorization: Basic " + b64encode(b"me:you:SECRET") in head
    assert body == b"grant_type=client_credentials&scope=a+b%2Bc"
    assert (token.value, dict(token.extensions)) == ("abc", {"pool": "x"})
    assert token.expires_at is not None
    assert began + 60 <= token.expires_at <= time.time() + 60


def test_id_and_secret_may_be_encoded() -> None:
    """With sasl.oauthbearer.header.urlencode the header has them as RFC 6749 asks."""
    with endpoint(saying({"access_token": "abc"})) as served:
        replace(client_of(served), encodes_header=True).fetch()
    assert b64encode(b"me%3Ayou:SECRET") in served.requests[0]


def test_the_endpoint_has_to_be_trusted() -> None:
    """With its authority the token comes through TLS; without it no secret is sent."""
    answer = saying({"access_token": "abc"})
    with endpoint(answer, server_side()) as served:
        trusting = tls_context(TlsConfig(ssl_truststore_certificates=BROKER))
        assert replace(client_of(served), context=trusting).fetch().value == "abc"
        with pytest.raises(AuthenticationError, match=r"https\.ca\.location"):
            client_of(served).fetch()
    assert len(served.requests) == 1


def test_an_endpoint_that_cannot_answer_is_asked_again() -> None:
    """After errors that may pass the request is repeated with growing pauses."""
    statuses = ["503 Busy", "429 Slow down", "200 OK"]
    pauses: list[float] = []

    def answer(connection: socket.socket) -> None:
        saying({"access_token": "abc"}, status=statuses.pop(0))(connection)

    with endpoint(answer) as served:
        client = replace(client_of(served), retry_backoff_max_ms=10_000, sleep=pauses.append)
        assert client.fetch().value == "abc"
    assert pauses == [0.1, 0.2]


def test_an_endpoint_that_never_can_is_given_up() -> None:
    """The pauses together are no longer than sasl.login.retry.backoff.max.ms."""
    pauses: list[float] = []
    with endpoint(saying(b"", status="500 Broken")) as served:
        client = replace(client_of(served), retry_backoff_max_ms=1000, sleep=pauses.append)
        with pytest.raises(DisconnectedError, match="status 500"):
            client.fetch()
    assert sum(pauses) == pytest.approx(1.0)


def test_nobody_there_is_told() -> None:
    """A port where nobody listens is an error that names the setting."""
    with endpoint(saying({})) as served:
        client = client_of(served)
    with pytest.raises(DisconnectedError, match=r"sasl\.oauthbearer\.token\.endpoint\.url"):
        client.fetch()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            saying({"error": "invalid_client", "error_description": "no"}, status="401 No"),
            "with status 401: invalid_client: no; check the client id",
        ),
        (saying({"error": "x" * 10_000, "other": "SECRET"}, status="400 Bad"), "status 400: xxx"),
        (saying([], status="403 Forbidden"), "status 403"),
        (saying(b"", status="302 Found", headers="Location: /oauth/token\r\n"), "redirects to"),
        (saying(b"<html>"), "the answer is not JSON"),
        (saying(b"[" * 100_000), "the answer is not JSON"),
        (saying(b"\xff\xfe"), "the answer is not JSON"),
        (saying(["SECRET"]), "has no access_token"),
        (saying({"access_token": 7}), "has no access_token"),
        (saying({"access_token": " "}), "has no access_token"),
        (saying({"access_token": "a", "expires_in": "soon"}), "expires_in"),
        (saying({"access_token": "a", "expires_in": -1}), "expires_in"),
        (saying({"access_token": "a", "expires_in": [1]}), "expires_in"),
        (saying(b'{"access_token": "a", "expires_in": 1e999}'), "expires_in"),
        (saying(b"x" * (BODY_BYTES_MAX + 1)), "more than"),
    ],
)
def test_an_answer_that_is_no_token_is_a_fatal_error(answer: Answer, said: str) -> None:
    """Each is told in one sentence that shows no secret, and nothing is tried again."""
    error = failure(answer)
    assert isinstance(error, AuthenticationError)
    assert said in str(error)


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_endpoint_costs_little_time_and_memory(case: str) -> None:
    """It ends in one error within the time limit, and in a few megabytes."""
    began = time.process_time()
    tracemalloc.start()
    try:
        error = failure(HOSTILE[case])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, AuthenticationError | DisconnectedError)
    assert peak < 16 * MIB
    assert time.process_time() - began < 5


def test_a_producer_gets_its_token_from_the_endpoint() -> None:
    """Settings alone lead from the endpoint's answer to a record in the log."""
    token = OAuthToken(value="abc", expires_at=1.0, extensions={"pool": "one"})
    with (
        endpoint(saying({"access_token": "abc", "expires_in": 3600})) as served,
        real_cluster() as cluster,
    ):
        cluster.create_topic("t")
        cluster.password = first_message(token)
        with Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": served.url,
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "SECRET",
                "sasl.oauthbearer.extensions": "pool=one",
            }
        ) as producer:
            assert producer.send("t", b"v").result(TIMEOUT_S).offset == 0
    assert len(served.requests) == 1
