"""Our clients log in to Kafka and encrypt, with settings in each manner in which they may be given.

One node with a listener for SASL and one for TLS that asks for a certificate. Tokens are Kafka's
unsecured ones, which its default validator takes. A session with a token lasts `SESSION_MS`, so a
producer that sends for longer has to come back with a new one.
"""

import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat.clients import WAIT_SECONDS, read_back
from compat.kafka import NODE_ID, Kafka
from compat.processes import free_ports
from compat.report import Report
from compat.topics import create_topics
from tailrace import OAuthToken
from tailrace.client import ClusterReader
from tailrace.client.nodes.oauth import unsecured_token
from tailrace.client.producer.producer import Producer
from tailrace.errors import TailraceError
from tests.unit.security.certificates import (
    BROKER,
    BROKER_KEY,
    BROKER_LOCKED_KEY,
    STRANGER,
    STRANGER_KEY,
)

USER, PASSWORD = "alice", 'se;cr"et'
TOPIC = "secured"
SESSION_MS = 2000
SESSIONS = 3
_JAAS = "org.apache.kafka.common.security"
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")

Settings = dict[str, object]


def check(report: Report, kafka: Kafka, directory: Path) -> None:
    """All checks, on a Kafka whose directory is new."""
    plain, sasl, tls, controller = (f"127.0.0.1:{port}" for port in free_ports(4))
    public = f"PLAINTEXT://{plain},SASL_PLAINTEXT://{sasl},SSL://{tls}"
    kafka.settings |= {
        "listeners": f"{public},CONTROLLER://{controller}",
        "advertised.listeners": public,
        "controller.quorum.voters": f"{NODE_ID}@{controller}",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL"
        ),
        **_broker_settings(),
    }
    with kafka:
        create_topics(plain, {TOPIC: {}})
        _create_users(plain)
        _check_passwords(report, sasl)
        _check_tokens(report, plain, sasl)
        _check_certificates(report, tls, directory)


def _broker_settings() -> dict[str, str]:
    listener = "listener.name.sasl_plaintext"
    password = PASSWORD.replace('"', '\\\\"')
    return {
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *_SCRAM, "OAUTHBEARER")),
        f"{listener}.plain.sasl.jaas.config": (
            f'{_JAAS}.plain.PlainLoginModule required user_{USER}="{password}";'
        ),
        **{
            f"{listener}.{mechanism.lower()}.sasl.jaas.config": (
                f"{_JAAS}.scram.ScramLoginModule required;"
            )
            for mechanism in _SCRAM
        },
        f"{listener}.oauthbearer.sasl.jaas.config": (
            f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";'
        ),
        f"{listener}.oauthbearer.connections.max.reauth.ms": str(SESSION_MS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": BROKER.replace("\n", "\\n"),
        "ssl.keystore.key": BROKER_KEY.replace("\n", "\\n"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": BROKER.replace("\n", "\\n"),
        "listener.name.ssl.ssl.client.auth": "required",
    }


def _create_users(plain: str) -> None:
    admin = AdminClient({"bootstrap.servers": plain, "log_level": 0})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credential = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
        )
        for future in admin.alter_user_scram_credentials([credential]).values():
            future.result(WAIT_SECONDS)


def _check_passwords(report: Report, sasl: str) -> None:
    """PLAIN and SCRAM by `sasl.jaas.config`; `producing` has them by their own settings."""
    password = PASSWORD.replace('"', '\\"')
    for mechanism in ("PLAIN", *_SCRAM):
        module = "scram.Scram" if mechanism in _SCRAM else "plain.Plain"
        text = f'{_JAAS}.{module}LoginModule required username="{USER}" password="{password}";'
        login: Settings = {
            "bootstrap.servers": sasl,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
        }
        error = _send_one(login | {"sasl.jaas.config": text})
        report.check(f"sasl.jaas.config of a Java client logs in with {mechanism}", _told(error))


def _check_tokens(report: Report, plain: str, sasl: str) -> None:
    """OAUTHBEARER by a function and by `sasl.jaas.config`, sessions that end, and refusals."""
    login: Settings = {
        "bootstrap.servers": sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }
    text = (
        f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope="|a|b" '
        'unsecuredLoginExtension_traceId="123";'
    )
    error = _send_one(login | {"sasl.jaas.config": text})
    report.check("an unsecured token of sasl.jaas.config logs in, with an extension", _told(error))
    ClusterReader(sasl, settings=_without_servers(login | {"sasl.jaas.config": text})).topics()
    report.check("a client that reads logs in with a token too", [])

    numbers = count(1)

    def token() -> OAuthToken:
        return unsecured_token({"sub": f"alice{next(numbers)}"}, lifetime_s=SESSION_MS / 1000 + 1)

    before = len(read_back(plain, TOPIC, is_committed=True).records)
    ends = time.monotonic() + SESSIONS * SESSION_MS / 1000
    differences: list[str] = []
    sent = 0
    with Producer(login, sasl_oauth_token=token) as producer:
        while time.monotonic() < ends:
            error = producer.send(TOPIC, b"%d" % sent).exception()
            differences += _told(error)
            sent += 1
    read = [each.value for each in read_back(plain, TOPIC, is_committed=True).records[before:]]
    if read != [b"%d" % number for number in range(sent)]:
        differences.append(f"{sent} were sent, and {len(read)} read")
    token_count = next(numbers) - 1
    if token_count < SESSIONS - 1:
        differences.append(f"{token_count} tokens were asked for")
    report.check("a producer goes on with new tokens when its sessions end", differences)
    for name, function in (
        ("expired", _expired),
        ("signed by nobody", lambda: "a.b.c"),
    ):
        refused = _send_one(login | {"max.block.ms": 10_000}, sasl_oauth_token=function)
        report.check(
            f"the error of a token that is {name} says so",
            [] if "token" in str(refused) else [repr(refused)],
        )


def _expired() -> OAuthToken:
    """A token that expired an hour ago, by its own claims."""
    value = unsecured_token({"sub": "alice"}, lifetime_s=60, wall=lambda: time.time() - 3600).value
    return OAuthToken(value=value, expires_at=time.time() + 3600)


def _check_certificates(report: Report, tls: str, directory: Path) -> None:
    """Certificates and keys in settings and in files, for a listener that asks for one."""
    secured: Settings = {"bootstrap.servers": tls, "security.protocol": "SSL"}
    inline = secured | {
        "ssl.truststore.certificates": BROKER.replace("\n", "\\n"),
        "ssl.keystore.certificate.chain": BROKER,
        "ssl.keystore.key": BROKER_KEY,
    }
    report.check(
        "Kafka takes a certificate and key that stand in settings", _told(_send_one(inline))
    )
    locked = inline | {"ssl.keystore.key": BROKER_LOCKED_KEY, "ssl.key.password": "secret"}
    report.check("and an encrypted key with ssl.key.password", _told(_send_one(locked)))
    store = directory / "client.pem"
    store.write_text(BROKER_KEY + BROKER)
    filed = secured | {
        "ssl.truststore.location": str(store),
        "ssl.keystore.location": str(store),
        "ssl.keystore.type": "PEM",
    }
    report.check("one PEM file is keystore and truststore", _told(_send_one(filed)))
    for name, more in (
        ("TLSv1.2", {"ssl.enabled.protocols": "TLSv1.2"}),
        (
            "a suite by Java's name",
            {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"},
        ),
        ("TLSv1.3", {"ssl.enabled.protocols": "TLSv1.3"}),
    ):
        report.check(f"Kafka and our producer agree on {name}", _told(_send_one(inline | more)))
    quick: Settings = {
        "max.block.ms": 5000,
        "delivery.timeout.ms": 8000,
        "request.timeout.ms": 2000,
    }
    strangers: tuple[tuple[str, Settings], ...] = (
        (
            "no certificate",
            {"ssl.keystore.certificate.chain": None, "ssl.keystore.key": None},
        ),
        (
            "a stranger's certificate",
            {"ssl.keystore.certificate.chain": STRANGER, "ssl.keystore.key": STRANGER_KEY},
        ),
    )
    for name, changed in strangers:
        error = _send_one(inline | quick | changed)
        report.check(
            f"a client with {name} is refused",
            [] if error is not None else ["the record was taken"],
        )


def _send_one(
    settings: Mapping[str, object],
    **more: Any,  # noqa: ANN401 - settings and arguments of any type
) -> Exception | None:
    try:
        with Producer(settings, **more) as producer:
            return producer.send(TOPIC, b"secret").exception()
    except TailraceError as error:
        return error


def _told(error: Exception | None) -> list[str]:
    return [] if error is None else [repr(error)]


def _without_servers(settings: Settings) -> Settings:
    return {name: value for name, value in settings.items() if name != "bootstrap.servers"}
