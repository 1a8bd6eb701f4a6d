"""Our producer logs in to Kafka with Kerberos, where a KDC and the package gssapi are installed.

One node with a listener for GSSAPI, and a realm of its own whose user has a keytab.
"""

import os
from importlib.util import find_spec
from pathlib import Path

from compat.kafka import NODE_ID, SMALL_JVM, Kafka
from compat.processes import free_ports
from compat.report import Report
from compat.topics import create_topics
from tailrace.client.producer.producer import Producer
from tests.kerberos.realm import KDC, SERVICE, USER, Realm

TOPIC = "kerberos"
_MODULE = "com.sun.security.auth.module.Krb5LoginModule required"

Settings = dict[str, object]


def is_installed() -> bool:
    """Whether this machine has what the checks need."""
    return KDC is not None and find_spec("gssapi") is not None


def check(report: Report, java: Path, jars: str, directory: Path) -> None:
    """All checks, on a new directory."""
    directory.mkdir()
    realm = Realm(directory)
    own = {name: value for name, value in realm.environment.items() if name != "PATH"}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    jvm = (*SMALL_JVM, f"-Djava.security.krb5.conf={own['KRB5_CONFIG']}")
    kafka = Kafka(java, jars, directory / "kafka", jvm=jvm)
    plain, sasl, controller = free_ports(3)
    public = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://localhost:{sasl}"
    kafka.settings |= {
        "listeners": f"{public},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": public,
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller}",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
            f'{_MODULE} useKeyTab=true storeKey=true keyTab="{realm.service_keytab}" '
            f'principal="{SERVICE}";'
        ),
    }
    try:
        realm.start()
        with kafka:
            create_topics(f"127.0.0.1:{plain}", {TOPIC: {}})
            _check_logins(report, realm, f"localhost:{sasl}")
    finally:
        realm.stop()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _check_logins(report: Report, realm: Realm, sasl: str) -> None:
    login: Settings = {
        "bootstrap.servers": sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "max.block.ms": 20_000,
    }
    keytab: Settings = {
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": USER,
        "sasl.kerberos.keytab": str(realm.user_keytab),
    }
    report.check("a keytab logs in with GSSAPI", _told(_send_one(login | keytab)))
    text = f'{_MODULE} useTicketCache=true serviceName="kafka";'
    cached = login | {"sasl.jaas.config": text}
    refused = _send_one(cached)
    report.check(
        "a login without a ticket is told as one",
        [] if "kinit" in str(refused) else [repr(refused)],
    )
    realm.run("kinit", "-k", "-t", str(realm.user_keytab), USER)
    report.check(
        "a ticket of kinit logs in with sasl.jaas.config of a Java client",
        _told(_send_one(cached)),
    )


def _send_one(settings: Settings) -> Exception | None:
    with Producer(settings) as producer:
        return producer.send(TOPIC, b"secret").exception()


def _told(error: Exception | None) -> list[str]:
    return [] if error is None else [repr(error)]
