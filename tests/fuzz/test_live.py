"""Mutated bytes on the sockets of a broker in its own process: plain, encrypted, logins, HTTP.

Before a login, in the middle of one, and after it. Whatever comes, the broker answers a sound
client afterwards, has logged no error of its own, and has not grown.
"""

import random
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import cast

import pytest

from benchmarks.macro.brokers import BrokerProcess, serving
from benchmarks.macro.secured import Secured
from benchmarks.measure import peak_bytes
from compat.processes import free_ports
from tailrace import Admin
from tailrace.client import ClusterReader
from tailrace.client.admin.quotas import QuotaEntity
from tailrace.protocol.apis import APIS, BETWEEN_NODES, ApiKey
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import SIZE_BYTES, encode_request
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tailrace.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.fuzz.engine import GROWTH_BYTES_MAX, mutate
from tests.unit.protocol.strategies import full_message
from tests.unit.security.certificates import BROKER

pytestmark = pytest.mark.wire

QUIET_S = 0.01
"""A connection that says nothing for so long has answered, or waits."""
SETTINGS = {
    "connection.failed.authentication.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
TOPIC = "fuzzed"
MUTATIONS_PER_S = 5
"""Quota of partitions that are created and deleted: a single request may make ten thousand, here as
in Kafka, and who has the right may send it again and again."""
LOGIN = b"\0alice\0secret"


def _request(key: ApiKey, version: int, body: Message) -> bytes:
    return encode_request(APIS[key], body, version=version, correlation_id=1, client_id="fuzz")


def _requests() -> list[bytes]:
    found = []
    for key, api in APIS.items():
        if key not in BETWEEN_NODES:
            for version in {api.first_version, api.last_version}:
                message = cast("Message", full_message(api.request, version))
                found.append(_request(ApiKey(key), version, message))
    return found


def _changes() -> list[bytes]:
    """Requests that change topics, settings and quotas, and are carried out."""
    topic = CreatableTopic(name="new", num_partitions=-1, replication_factor=-1)
    more = CreatePartitionsTopic(name=TOPIC, count=3, assignments=None)
    entry = EntryData(
        entity=(EntityData(entity_type="client-id", entity_name="other"),),
        ops=(OpData(key="producer_byte_rate", value=1e6, remove=False),),
    )
    settings = [
        (ResourceType.TOPIC, TOPIC, "retention.ms"),
        (ResourceType.BROKER, "1", "log.retention.ms"),
    ]
    bodies: list[tuple[ApiKey, Message]] = [
        (ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=(topic,))),
        (
            ApiKey.CREATE_PARTITIONS,
            CreatePartitionsRequest(topics=(more,), timeout_ms=1000, validate_only=True),
        ),
        (ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(entries=(entry,))),
    ]
    for kind, name, setting in settings:
        given = AlterableConfig(name=setting, value="1000000")
        whole = AlterConfigsResource(resource_type=kind, resource_name=name, configs=(given,))
        one = IncrementalAlterableConfig(name=setting, config_operation=0, value="1000000")
        added = IncrementalAlterConfigsResource(
            resource_type=kind, resource_name=name, configs=(one,)
        )
        bodies += [
            (ApiKey.ALTER_CONFIGS, AlterConfigsRequest(resources=(whole,))),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=(added,))),
        ]
    return [
        _request(key, version, body)
        for key, body in bodies
        for version in {APIS[key].first_version, APIS[key].last_version}
    ]


def _shake(mechanism: str) -> bytes:
    return _request(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))


def _token(token: bytes) -> bytes:
    return _request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))


REQUESTS = _requests()
CHANGES = _changes()
BEFORE = [
    _shake("PLAIN"),
    _shake("SCRAM-SHA-256"),
    _request(ApiKey.API_VERSIONS, 3, ApiVersionsRequest()),
    _token(LOGIN),
]
DURING = [_token(LOGIN + b"x"), _token(b"n,,n=alice,r=abc"), _token(b"c=biws,r=abc,p=AAAA")]


def _hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _trusting().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


def _trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=BROKER)


def _frame(chance: random.Random, seeds: list[bytes]) -> bytes:
    """A mutated request, most often with the size that it has."""
    seed = chance.choice(seeds)
    if chance.random() < 0.1:
        return mutate(chance, seed)
    body = mutate(chance, seed[SIZE_BYTES:])
    return len(body).to_bytes(SIZE_BYTES, "big") + body


PAGES = [
    b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.5\r\n\r\n",
    b"HEAD /readyz?a=b HTTP/1.0\r\nContent-Length: 5\r\n\r\nabcde",
    b"GET /healthz HTTP/1.1\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.1\r\n\r\n",
]
"""Requests to the listener of metrics and health."""

Opened = Callable[[Secured], socket.socket]


def _plain(port: int, *first: bytes) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port), timeout=10)
    for each in first:
        opened.sendall(each)
        size = int.from_bytes(opened.recv(SIZE_BYTES, socket.MSG_WAITALL), "big")
        opened.recv(size, socket.MSG_WAITALL)
    return opened


def _encrypted(port: int) -> socket.socket:
    return _trusting().wrap_socket(_plain(port), server_hostname="127.0.0.1")


PHASES: dict[str, tuple[Opened, list[bytes]]] = {
    "in plain text": (lambda at: _plain(at.plaintext), REQUESTS),
    "changes of topics, settings and quotas": (lambda at: _plain(at.plaintext), CHANGES),
    "in place of a handshake": (lambda at: _plain(at.ssl), [_hello()]),
    "encrypted": (lambda at: _encrypted(at.ssl), REQUESTS),
    "before a login": (lambda at: _plain(at.sasl_plaintext), [*BEFORE, *REQUESTS]),
    "encrypted, before a login": (lambda at: _encrypted(at.sasl_ssl), BEFORE),
    "in the middle of a login by PLAIN": (
        lambda at: _plain(at.sasl_plaintext, _shake("PLAIN")), DURING,
    ),
    "in the middle of a login by SCRAM": (
        lambda at: _plain(
            at.sasl_plaintext, _shake("SCRAM-SHA-256"), _token(b"n,,n=alice,r=abc")
        ),
        DURING,
    ),
    "after a login": (
        lambda at: _plain(at.sasl_plaintext, _shake("PLAIN"), _token(LOGIN)),
        [*REQUESTS, *BEFORE],
    ),
}  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
def test_mutated_bytes_on_a_socket_leave_a_broker_that_works(
    phase: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """It continues for others, logs no error of its own, and its memory is bounded."""
    secured = Secured.make(tmp_path)
    settings = {**secured.settings, **SETTINGS, "listeners": secured.listeners}
    with serving(tmp_path / "data", settings=settings) as broker:
        broker.create_topic(TOPIC, partition_count=2)
        with Admin(bootstrap_servers=str(broker.address)) as admin:
            rate = {"controller_mutation_rate": MUTATIONS_PER_S}
            admin.alter_client_quotas({QuotaEntity.of(user=None): rate})
        before = peak_bytes(broker.process_id)
        _fuzz(secured, phase, count=pytestconfig.getoption("--fuzz-inputs"))
        _require_sound(broker)
        assert peak_bytes(broker.process_id) - before < GROWTH_BYTES_MAX
        errors = [each for each in broker.log.read_text().splitlines() if " ERROR " in each]
        assert not errors, errors[:3]


def test_mutated_requests_to_the_http_listener_leave_it_and_the_broker_at_work(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Its next page is whole, and clients of the broker are served."""
    [port] = free_ports(1)
    chance = random.Random("live http")
    settings = {**SETTINGS, "tailrace.http.listener": f"127.0.0.1:{port}"}
    with serving(tmp_path / "data", settings=settings) as broker:
        before = peak_bytes(broker.process_id)
        for _ in range(pytestconfig.getoption("--fuzz-inputs")):
            with suppress(OSError), _plain(port) as connection:
                connection.settimeout(QUIET_S)
                connection.sendall(mutate(chance, chance.choice(PAGES)))
                while connection.recv(1 << 16):
                    pass
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            assert b"\ntailrace_ready 1.0\n" in page.read()
        _require_sound(broker)
        assert peak_bytes(broker.process_id) - before < GROWTH_BYTES_MAX
        errors = [each for each in broker.log.read_text().splitlines() if " ERROR " in each]
        assert not errors, errors[:3]


def _fuzz(secured: Secured, phase: str, *, count: int) -> None:
    opened, seeds = PHASES[phase]
    chance = random.Random(f"live {phase}")
    sent = 0
    while sent < count:
        with suppress(OSError), opened(secured) as connection:
            connection.settimeout(QUIET_S)
            # One after the other: what follows a frame that ends a connection is never seen.
            is_answered = True
            while is_answered and sent < count:
                sent += 1
                connection.sendall(_frame(chance, seeds))
                is_answered = bool(connection.recv(1 << 16))


def _require_sound(broker: BrokerProcess) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            with closing(ClusterReader(str(broker.address))) as reader:
                assert reader.any_broker() is not None
            return
        except OSError:
            assert time.monotonic() < deadline, "the broker answers no more"
