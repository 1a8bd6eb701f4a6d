"""Clients of five languages with certificates and logins, on both brokers with the same settings.

    TLS       the client checks the broker's certificate and name, and shows none of its own
    mTLS      carol, by the name in the certificate of the client
    PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER with a signed token, and GSSAPI where a KDC and
    the package gssapi are installed, all over TLS: alice

Each client writes and reads with each of them. An authorizer gives alice and carol topics and
groups of their own only, so what is written shows the principal that a broker has found. Then each
is refused in several ways while another works, and sends through several sessions that end.

Programs of the clients get these as arguments `NAME=VALUE`, most by Kafka's names:

    security.protocol, sasl.mechanism, sasl.username, sasl.password
    ssl.truststore.location         certificates as PEM
    ssl.keystore.location           key and certificate as PEM
    sasl.oauthbearer.token.endpoint.url
                                    `file:` of a token
    sasl.jaas.config, …             what Java needs besides
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Self, TypeVar

from compat import kerberos
from compat.brokers import OurNode
from compat.clients import read_back
from compat.kafka import NODE_ID, SMALL_JVM, Kafka
from compat.others import OtherClient, records_of, run_client
from compat.processes import free_ports
from compat.report import Report
from compat.tools import Tools
from tailrace.client.admin import (
    AclBinding,
    AclOperation,
    AclResource,
    Admin,
    NewTopic,
    PatternType,
    ScramMechanism,
    ScramUpsertion,
)
from tailrace.client.producer.producer import Producer
from tailrace.errors import FatalError, TailraceError
from tailrace.security.authorizer_config import STANDARD_AUTHORIZER
from tests.kerberos.realm import USER, Realm
from tests.unit.security.parties import Party, authority, name_of, party
from tests.unit.security.token_issuer import key_set, public_key, token

RECORD_COUNT = 100
SESSION_MS = 2000
TRICKLE_COUNT = 100
"""Records of a client whose sessions end: for 10 s or more, which is five sessions."""
RENEWALS_MIN = 3

_LISTENERS = {
    "PLAINTEXT": "PLAINTEXT", "TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_SSL",
    "BRIEF": "SASL_SSL",
}  # fmt: skip
"""The protocol of each listener. Sessions of BRIEF end."""
_SCRAM = {"SCRAM-SHA-256": ScramMechanism.SHA_256, "SCRAM-SHA-512": ScramMechanism.SHA_512}
_MECHANISMS = ("PLAIN", *_SCRAM, "OAUTHBEARER")
_BRIEF = "SCRAM-SHA-256"
_JAVA = "kafka-clients"
_WORKING = "alice-working"
"""Topic of a client that works while others are refused."""
_Result = TypeVar("_Result")
_USER, _PASSWORD, _CAROL = "alice", "alice-secret", "carol"
_JAAS = "org.apache.kafka.common.security"
_LOGIN_HANDLER = f"{_JAAS}.oauthbearer.OAuthBearerLoginCallbackHandler"
_ISSUER = {
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
    "sasl.oauthbearer.expected.audience": "compat",
}
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A way to reach a broker."""

    name: str
    listener: str
    settings: Mapping[str, str]
    """Settings of the programs."""
    topics: str
    """Beginning of the names of its topics and groups, after the user that may use them."""
    host: str = "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """A way that each client fails to go, and what the client has to say."""

    name: str
    way: _Way
    words: str
    """A regular expression, for any case of letters."""


class _Files:
    """Certificates, keys and tokens, in a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        # Without 127.0.0.1, which is the name of another host then.
        broker = Party(name_of("broker"), signed_by=authority(), hosts=("localhost",))
        stranger = Party(name_of("Stranger"))
        carols = Party(name_of(_CAROL), signed_by=stranger, hosts=())
        self.broker = self._write("broker.pem", broker.key + broker.certificate)
        self.authority = self._write("authority.pem", authority().certificate)
        self.carol = self._write("carol.pem", party(_CAROL).key + party(_CAROL).certificate)
        self.stranger = self._write("stranger.pem", stranger.certificate)
        self.false_carol = self._write("false-carol.pem", carols.key + carols.certificate)
        self.keys = self._write("keys.json", key_set(public_key("RSA", kid="one")).decode())
        now = int(time.time())
        issuer, audience = _ISSUER.values()
        claims = {
            "sub": _USER, "iss": issuer, "aud": audience, "scope": "all", "iat": now,
            "exp": now + 24 * 3600,
        }  # fmt: skip
        self.token = self._write("token", token(claims))
        # By a key that is not that of the name in it.
        self.false_token = self._write("false-token", token(claims, kind="EC", algorithm="ES256"))

    def _write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Broker:
    """A broker that runs, and the clients that use it."""

    name: str
    ports: Mapping[str, int]
    """By listener."""
    clients: Sequence[OtherClient]

    def address(self, way: _Way) -> str:
        """HOST:PORT."""
        return f"{way.host}:{self.ports[way.listener]}"

    def each(
        self, run: Callable[[OtherClient], _Result], *, without: str = ""
    ) -> dict[str, _Result]:
        """The results of all clients at once, by name; of those that have a mechanism."""
        able = [client for client in self.clients if without not in client.lacks]
        with ThreadPoolExecutor(len(able)) as pool:
            return dict(zip((each.name for each in able), pool.map(run, able), strict=True))


def check(report: Report, tools: Tools, directory: Path) -> None:
    """All checks at either broker, on a new directory."""
    files = _Files(directory / "files")
    named = [each for each in tools.others if "Kafka's client" not in each.name]
    java = replace(tools.others[-1], name=_JAVA)
    clients = [*named, *tools.without_transactions, java]
    said = {}
    with ExitStack() as stack:
        realm, jvm = None, [*SMALL_JVM, f"-D{_ALLOWED_URLS}={files.keys.as_uri()}"]
        if kerberos.is_installed():
            realm = stack.enter_context(kerberos.realm_at(files.directory))
            jvm.append(kerberos.jvm_option())
            for client in clients:
                if "GSSAPI" in client.lacks:
                    report.leave_out(f"GSSAPI of {client.name}", client.lacks["GSSAPI"])
        else:
            report.leave_out("GSSAPI of all clients", "here is no KDC or no package gssapi")
        for name in ("Tailrace", "Kafka"):
            free = free_ports(len(_LISTENERS) + 1)
            ports = dict(zip((*_LISTENERS, "CONTROLLER"), free, strict=True))
            settings = _settings(ports, files, realm)
            node: Kafka | OurNode
            if name == "Kafka":
                place = directory / "kafka"
                node = Kafka(tools.java, tools.jars, place, settings=settings, jvm=jvm)
            else:
                node = OurNode(NODE_ID, directory / "tailrace", settings=settings)
            with node:
                broker = _Broker(name=name, ports=ports, clients=clients)
                said[name] = _check_broker(report, broker, files, realm)
    theirs = said["Kafka"]
    report.check(
        "refused logins say the same to a client on both brokers",
        [
            f"{each}: {ours!r}, on Kafka {theirs[each]!r}"
            for each, ours in said["Tailrace"].items()
            if ours != theirs[each]
        ],
    )


def _settings(ports: Mapping[str, int], files: _Files, realm: Realm | None) -> dict[str, str]:
    """The settings of both brokers."""
    listeners = ",".join(f"{each}://localhost:{ports[each]}" for each in _LISTENERS)
    controller = f"localhost:{ports['CONTROLLER']}"
    protocols = {**_LISTENERS, "CONTROLLER": "PLAINTEXT"}
    logins = {
        "PLAIN": f'{_JAAS}.plain.PlainLoginModule required user_{_USER}="{_PASSWORD}";',
        **dict.fromkeys(_SCRAM, f"{_JAAS}.scram.ScramLoginModule required;"),
        "OAUTHBEARER": f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required;",
    }
    if realm is not None:
        logins["GSSAPI"] = kerberos.jaas_of_broker(realm)
    sasl, brief = "listener.name.sasl.", "listener.name.brief."
    return {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": f"{listeners},CONTROLLER://{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
        "controller.quorum.voters": f"{NODE_ID}@{controller}",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        # Of the listener without logins, and of the one whose clients show no certificate.
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.authority),
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": ",".join(logins),
        "sasl.kerberos.service.name": "kafka",
        **{
            f"{sasl}{mechanism.lower()}.sasl.jaas.config": login
            for mechanism, login in logins.items()
        },
        f"{sasl}oauthbearer.sasl.server.callback.handler.class":
            f"{_JAAS}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{sasl}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": files.keys.as_uri(),
        **{f"{sasl}oauthbearer.{name}": value for name, value in _ISSUER.items()},
        f"{brief}sasl.enabled.mechanisms": _BRIEF,
        f"{brief}{_BRIEF.lower()}.sasl.jaas.config": logins[_BRIEF],
        f"{brief}{_BRIEF.lower()}.connections.max.reauth.ms": str(SESSION_MS),
    }  # fmt: skip


def _ways(files: _Files, realm: Realm | None) -> list[_Way]:
    encrypted = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(files.authority),
        "ssl.truststore.type": "PEM",
    }
    return [
        _Way(name="TLS", listener="TLS", settings=encrypted, topics="anonymous"),
        _Way(
            name="mTLS",
            listener="MUTUAL",
            topics=f"{_CAROL}-mtls",
            settings=encrypted
            | {
                "ssl.keystore.location": str(files.carol),
                "ssl.keystore.type": "PEM",
            },
        ),
        *(
            _Way(
                name=each,
                listener="SASL",
                topics=f"{_USER}-{each.lower()}",
                settings=encrypted | _login(each, files.token),
            )
            for each in _MECHANISMS
        ),
        *(() if realm is None else (_kerberos_way(encrypted, realm),)),
    ]


def _kerberos_way(encrypted: Mapping[str, str], realm: Realm) -> _Way:
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": USER,
        "sasl.kerberos.keytab": str(realm.user_keytab),
        "sasl.jaas.config":
            f'{kerberos.MODULE} useKeyTab=true storeKey=true keyTab="{realm.user_keytab}" '
            f'principal="{USER}";',
    }  # fmt: skip
    settings = {**encrypted, **login}
    return _Way(name="GSSAPI", listener="SASL", topics=f"{_USER}-gssapi", settings=settings)


def _login(mechanism: str, token_file: Path, password: str = _PASSWORD) -> dict[str, str]:
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return settings | {
            "sasl.oauthbearer.token.endpoint.url": token_file.as_uri(),
            "sasl.login.callback.handler.class": _LOGIN_HANDLER,
            "sasl.jaas.config": f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required;",
        }
    module = "scram.Scram" if mechanism in _SCRAM else "plain.Plain"
    return settings | {
        "sasl.username": _USER,
        "sasl.password": password,
        "sasl.jaas.config":
            f'{_JAAS}.{module}LoginModule required username="{_USER}" password="{password}";',
    }  # fmt: skip


def _refusals(ways: Sequence[_Way], files: _Files) -> Iterator[_Refusal]:
    by_name = {each.name: each for each in ways}
    tls, mutual = by_name["TLS"], by_name["mTLS"]
    alert = "alert|bad.?certificate|certificate.?(required|unknown)|unknown.*(ca|authority)"
    stranger = {"ssl.truststore.location": str(files.stranger)}
    false_carol = {"ssl.keystore.location": str(files.false_carol)}
    yield _Refusal(
        name="a broker whose authority they do not know",
        way=replace(tls, settings={**tls.settings, **stranger}),
        words="unknown ?(authority|issuer|ca)|PKIX|self.signed|unable to (get|verify)|"
        "verify failed|invalid peer certificate",
    )
    yield _Refusal(
        name="a broker whose certificate is another host's",
        way=replace(tls, host="127.0.0.1"),
        words="subject alternative|SANs|altnames|not valid for|hostname|verify failed",
    )
    yield _Refusal(name="no certificate", way=replace(mutual, settings=tls.settings), words=alert)
    yield _Refusal(
        name="a certificate of an unknown authority",
        way=replace(mutual, settings={**mutual.settings, **false_carol}),
        words=alert,
    )
    for name in _MECHANISMS:
        way = by_name[name]
        login = _login(name, files.false_token, "x")
        kind = "a token of another key" if name == "OAUTHBEARER" else f"a wrong password of {name}"
        yield _Refusal(
            name=kind,
            way=replace(way, settings={**way.settings, **login}),
            words="authentication.?failed|SaslAuthentication|SASL auth|invalid.?(token|credential)|"
            # franz-go and kafkajs do not read the answer of a broker that refuses a token.
            "unexpected data in oauth response|closed connection",
        )
    yield _Refusal(
        name="the topic of another user",
        way=replace(mutual, topics=by_name["PLAIN"].topics),
        words="authori[sz]",
    )


def _check_broker(
    report: Report, broker: _Broker, files: _Files, realm: Realm | None
) -> dict[str, str]:
    """Check all clients at one broker; return what each printed of each refused login."""
    ways = _ways(files, realm)
    plain = f"localhost:{broker.ports['PLAINTEXT']}"
    brief = next(
        replace(each, listener="BRIEF", topics="alice-brief")
        for each in ways
        if each.name == _BRIEF
    )
    topics = [f"{way.topics}-{client.name}" for way in (*ways, brief) for client in broker.clients]
    _prepare(plain, [_WORKING, *topics])
    for way in ways:
        found = broker.each(partial(_exchange, broker=broker, way=way), without=way.name)
        for client, wrong in found.items():
            report.check(f"{client} writes and reads by {way.name}, on {broker.name}", wrong)
    said: dict[str, str] = {}
    with _Working(f"localhost:{broker.ports['SASL']}", ways) as working:
        for refusal in _refusals(ways, files):
            lines = broker.each(partial(_refused, broker=broker, way=refusal.way))
            wrong = [
                f"{client}: {line}"
                for client, line in lines.items()
                if not re.search(refusal.words, line, re.IGNORECASE)
            ]
            report.check(f"all clients are refused by {broker.name} with {refusal.name}", wrong)
            if refusal.way.listener == "SASL":
                said |= {
                    f"{client} with {refusal.name}": re.sub(r"\d+", "N", line)
                    for client, line in lines.items()
                }
    report.check(f"meanwhile another client of {broker.name} works", [*working.faults(plain)])
    renewals = broker.each(partial(_renew, broker=broker, way=brief, plain=plain))
    for client, wrong in renewals.items():
        report.check(f"{client} sends while its sessions end, on {broker.name}", wrong)
    return said


def _prepare(plain: str, topics: Sequence[str]) -> None:
    """Create topics and alice's credentials, and give both users names of their own."""
    with Admin({"bootstrap.servers": plain}) as admin:
        admin.create_topics([NewTopic(each, 1) for each in topics]).results()
        # The first question for a group has the topic of offsets created, which takes a while.
        admin.describe_groups(["nobody's"])
        for mechanism in _SCRAM.values():
            upsertion = ScramUpsertion(_USER, mechanism, _PASSWORD)
            admin.alter_user_scram_credentials([upsertion]).results()
        bindings = [
            AclBinding(
                resource=resource, name=f"{user}-", principal=f"User:{user}",
                operation=AclOperation.ALL, pattern=PatternType.PREFIXED,
            )
            for user in (_USER, _CAROL)
            for resource in (AclResource.TOPIC, AclResource.GROUP)
        ]  # fmt: skip
        admin.create_acls(bindings).results()


def _arguments(way: _Way) -> list[str]:
    return [f"{name}={value}" for name, value in way.settings.items()]


def _exchange(client: OtherClient, broker: _Broker, way: _Way) -> list[str]:
    """Have a client write and read; return what is wrong."""
    topic, at = f"{way.topics}-{client.name}", broker.address(way)
    try:
        printed = run_client(
            client, "exchange", at, topic, topic, str(RECORD_COUNT), *_arguments(way)
        )
    except FatalError as error:
        return [str(error)]
    return [*_differing(RECORD_COUNT, Counter(each.split()[2] for each in records_of(printed)))]


def _refused(client: OtherClient, broker: _Broker, way: _Way) -> str:
    """Have a client send that has to be refused; return what it prints."""
    topic, at = f"{way.topics}-{client.name}", broker.address(way)
    try:
        run_client(client, "produce", at, topic, "1", *_arguments(way))
    except FatalError as error:
        return str(error)
    return "it has sent a record"


def _renew(client: OtherClient, broker: _Broker, way: _Way, plain: str) -> list[str]:
    """Have a client send through several sessions; return what is wrong."""
    topic, at = f"{way.topics}-{client.name}", broker.address(way)
    try:
        printed = run_client(client, "trickle", at, topic, str(TRICKLE_COUNT), *_arguments(way))
    except FatalError as error:
        return [str(error)]
    wrong = [*_differing(TRICKLE_COUNT, _values(plain, topic))]
    if client.name == _JAVA:
        renewed = re.search(r"logged in again (\d+)", printed)
        if renewed is None or int(renewed[1]) < RENEWALS_MIN:
            wrong.append(f"it has not logged in again {RENEWALS_MIN} times: {printed[-200:]}")
    return wrong


def _differing(count: int, found: Counter[str]) -> Iterator[str]:
    """The numbers below `count` that are not there once."""
    due = Counter(map(str, range(count)))
    yield from (f"{value} is missing" for value in due - found)
    yield from (f"{value} is there too often" for value in found - due)


def _values(plain: str, topic: str) -> Counter[str]:
    found = read_back(plain, topic, is_committed=True).records
    return Counter((each.value or b"").decode() for each in found)


class _Working:
    """A producer of ours that sends all the time, until the end of the `with`."""

    def __init__(self, at: str, ways: Sequence[_Way]) -> None:
        names = ("security.protocol", "ssl.truststore.location", "sasl.mechanism",
                 "sasl.username", "sasl.password")  # fmt: skip
        way = next(each for each in ways if each.name == "SCRAM-SHA-512")
        self._settings = {name: way.settings[name] for name in names} | {"bootstrap.servers": at}
        self._ended = Event()
        self._failures: list[str] = []
        self._sent = 0
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        self._pool.submit(self._send)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._pool.shutdown()

    def _send(self) -> None:
        try:
            with Producer(self._settings) as producer:
                while not self._ended.wait(0.05):
                    error = producer.send(_WORKING, b"%d" % self._sent).exception()
                    if error is not None:
                        self._failures.append(repr(error))
                    self._sent += 1
        except TailraceError as error:
            self._failures.append(repr(error))

    def faults(self, plain: str) -> Iterator[str]:
        """The errors that it got, and whether a record is missing."""
        yield from self._failures
        yield from _differing(self._sent, _values(plain, _WORKING))
        if not self._sent:
            yield "it has not sent a record"
