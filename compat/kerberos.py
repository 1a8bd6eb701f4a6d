"""Logins with Kerberos, our producer to Kafka and Kafka's producer to our broker.

It needs a KDC and the package gssapi. Both brokers have one listener for GSSAPI, in a realm whose
users have keytabs.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from compat.kafka import NODE_ID, SMALL_JVM, Kafka
from compat.processes import free_ports, run
from compat.report import Report
from compat.topics import create_topics
from tailrace import Broker
from tailrace.client.producer.producer import Producer
from tailrace.errors import FatalError
from tests.kerberos.realm import ADMIN, KDC, SERVICE, USER, Realm

TOPIC = "kerberos"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"

Settings = dict[str, object]


def is_installed() -> bool:
    """Whether this machine has what the checks need."""
    return KDC is not None and find_spec("gssapi") is not None


@contextmanager
def realm_at(directory: Path) -> Iterator[Realm]:
    """A realm with a KDC, for this process and all that it starts; `directory` is there."""
    realm = Realm(directory)
    own = {name: value for name, value in realm.environment.items() if name != "PATH"}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        realm.start()
        yield realm
    finally:
        realm.stop()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def jaas_of_broker(realm: Realm) -> str:
    """The login of a broker, for `sasl.jaas.config`."""
    keytab = f'useKeyTab=true storeKey=true keyTab="{realm.service_keytab}"'
    return f'{MODULE} {keytab} principal="{SERVICE}";'


def jvm_option() -> str:
    """Tell a JVM of the realm; inside of `realm_at`."""
    return f"-Djava.security.krb5.conf={os.environ['KRB5_CONFIG']}"


def check(report: Report, java: Path, jars: str, directory: Path) -> None:
    """All checks, on a new directory."""
    directory.mkdir()
    with realm_at(directory) as realm:
        jvm = (*SMALL_JVM, jvm_option())
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
            "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas_of_broker(realm),
        }
        with kafka:
            create_topics(f"127.0.0.1:{plain}", {TOPIC: {}})
            _check_logins(report, realm, f"localhost:{sasl}")
        _check_our_broker(report, realm, java, jars)


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
    text = f'{MODULE} useTicketCache=true serviceName="kafka";'
    cached = login | {"sasl.jaas.config": text}
    refused = _send_one(cached)
    report.check(
        "the error of a login without a ticket names kinit",
        [] if "kinit" in str(refused) else [repr(refused)],
    )
    realm.run("kinit", "-k", "-t", str(realm.user_keytab), USER)
    report.check(
        "a ticket of kinit logs in with sasl.jaas.config of a Java client",
        _told(_send_one(cached)),
    )


def _check_our_broker(report: Report, realm: Realm, java: Path, jars: str) -> None:
    """Java's client looks up the name of the address, which is localhost."""
    prefix = "listener.name.sasl_plaintext.gssapi"
    settings: Settings = {
        "sasl.enabled.mechanisms": "GSSAPI",
        f"{prefix}.sasl.jaas.config": (
            f'{MODULE} useKeyTab=true storeKey=true keyTab="{realm.service_keytab}" '
            f'principal="{SERVICE}";'
        ),
        f"{prefix}.sasl.kerberos.principal.to.local.rules": (
            "RULE:[2:$1;$2](^.*;admin$)s/;admin$/-root/,DEFAULT"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:bob-root",
    }
    logins = {"alice": (USER, realm.user_keytab), "bob/admin": (ADMIN, realm.admin_keytab)}
    for name, service, expected in (
        ("bob/admin", "kafka", "99.9th"),
        ("alice", "kafka", "Not authorized"),
        ("bob/admin", "other", "SaslAuthenticationException"),
    ):
        principal, keytab = logins[name]
        config = realm.directory / "java.properties"
        with Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", settings=settings) as broker:
            lines = {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": service,
                "sasl.jaas.config": f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" '
                f'principal="{principal}";',
                "max.block.ms": "20000",
                "delivery.timeout.ms": "20000",
                "request.timeout.ms": "10000",
            }
            config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
            command = [
                str(java), *SMALL_JVM, f"-Djava.security.krb5.conf={realm.config}", "-cp", jars,
                "org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC, "--num-records",
                "10", "--record-size", "10", "--throughput", "-1", "--command-config", str(config),
            ]  # fmt: skip
            try:
                said = run(command, name="ProducerPerformance", seconds_max=120)
            except FatalError as error:
                said = str(error)
        report.check(
            f"Java's producer as {name} for the service {service}: {expected}",
            [] if expected in said else [said[:1000]],
        )


def _send_one(settings: Settings) -> Exception | None:
    with Producer(settings) as producer:
        return producer.send(TOPIC, b"secret").exception()


def _told(error: Exception | None) -> list[str]:
    return [] if error is None else [repr(error)]
