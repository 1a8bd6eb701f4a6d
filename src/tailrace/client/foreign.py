"""Hints about settings of other Kafka clients: our names of them, or why there are none.

Names are those of Java's clients, librdkafka, aiokafka and kafka-python, with dots for underscores.

Not here: settings that have the same name everywhere, and other names that are taken as they are
(`security.SAME`).
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from importlib import import_module
from typing import Final


class Client(Enum):
    """The kinds of clients that have settings; the value is the plural in messages."""

    PRODUCER = "producers"
    CONSUMER = "consumers"
    ADMIN = "admin clients"
    READER = "clients that only read"


_DECLARATIONS: Final = {
    Client.PRODUCER: ("producer.config", "PRODUCER_SETTINGS"),
    Client.CONSUMER: ("consumer.config", "CONSUMER_SETTINGS"),
    Client.ADMIN: ("admin.config", "ADMIN_SETTINGS"),
    Client.READER: ("config", "CLIENT_SETTINGS"),
}
"""Module and name of the declared settings of each.

These modules import this one. They are imported by name, and only for the text of an error."""

_RENAMED: Final = {
    # librdkafka
    # Names are not taken silently: units and defaults differ, as `message.timeout.ms` of librdkafka
    # (5 minutes) from `delivery.timeout.ms` of Kafka (2 minutes).
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.send.max.retries": "retries",
    "message.max.bytes": "max.request.size",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "socket.timeout.ms": "request.timeout.ms",
    "metadata.request.timeout.ms": "request.timeout.ms",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.error.backoff.ms": "retry.backoff.ms",
    "auto.commit.enable": "enable.auto.commit",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "https.ca.pem": "https.ca.location",
    "oauth.cb": "sasl.oauth.token",
    "oauthbearer.token.refresh.cb": "sasl.oauth.token",
    "sasl.oauthbearer.config": "sasl.jaas.config",
    "enable.sasl.oauthbearer.unsecure.jwt": "sasl.jaas.config",
    # aiokafka and kafka-python
    "max.batch.size": "batch.size",
    "rebalance.timeout.ms": "max.poll.interval.ms",
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "ssl.cafile": "ssl.truststore.location",
    "ssl.certfile": "ssl.keystore.location",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
    "ssl.check.hostname": "ssl.endpoint.identification.algorithm",
    "ssl.ciphers": "ssl.cipher.suites",
    "sasl.kerberos.name": "sasl.kerberos.service.name",
    "sasl.oauth.token.provider": "sasl.oauth.token",
}

_ARGUMENTS: Final = {
    Client.PRODUCER: {
        "key.serializer": "key_serializer",
        "value.serializer": "value_serializer",
        "partitioner.class": "partitioner",
        "interceptor.classes": "interceptors",
        "stats.cb": "on_metrics",
    },
    Client.CONSUMER: {
        "key.deserializer": "key_deserializer",
        "value.deserializer": "value_deserializer",
        "stats.cb": "on_metrics",
    },
}

_ABSENT_IN: Final = {
    Client.PRODUCER: {
        "queue.buffering.max.kbytes": "buffer.memory, in bytes, is the bound of what waits",
        "queue.buffering.max.messages": "buffer.memory, in bytes, is the bound of what waits",
        "batch.num.messages": "batch.size, in bytes, is the bound of a batch",
        "bootstrap.timeout.ms": "max.block.ms is how long a send waits for brokers and metadata",
        "default.api.timeout.ms": "max.block.ms is how long a call waits",
        "produce.offset.report": "every receipt has its offset",
        # librdkafka's callbacks; ours are arguments of `send`, as in confluent-kafka.
        "delivery.report.only.error": "on_delivery is called with every outcome",
        "dr.cb": "give on_delivery to send()",
        "dr.msg.cb": "give on_delivery to send()",
        "on.delivery": "give on_delivery to send()",
        "error.cb": "errors are those of receipts, and are logged by the logger tailrace",
    },
    Client.CONSUMER: {
        "bootstrap.timeout.ms": "default.api.timeout.ms is how long a call waits",
        "consumer.timeout.ms": "poll(timeout) returns an empty list when no record came in time",
        "consume.callback.max.messages": "poll() returns at most max.poll.records",
        "consume.cb": "poll() returns the records",
        "default.offset.commit.callback": "commit() returns when the offsets are stored, or raises",
        "enable.auto.offset.store": (
            "commit(record) commits up to that record, with enable.auto.commit=false"
        ),
        "enable.partition.eof": "lag() is 0 at the end of a partition",
        "error.cb": "poll() raises errors that the program has to handle",
        "fetch.queue.backoff.ms": "fetch.max.bytes, for each broker, bounds what is fetched ahead",
        "interceptor.classes": "handle the records that poll() returns",
        "offset.commit.cb": "commit() returns when the offsets are stored, or raises",
        "offset.store.method": "the group stores the offsets",
        "offset.store.path": "the group stores the offsets",
        "offset.store.sync.interval.ms": "the group stores the offsets",
        "on.commit": "commit() returns when the offsets are stored, or raises",
        "queued.max.messages.kbytes": (
            "fetch.max.bytes, for each broker, bounds what is fetched ahead"
        ),
        "queued.min.messages": "fetch.max.bytes, for each broker, bounds what is fetched ahead",
        "rebalance.cb": "give on_assigned, on_revoked and on_lost to subscribe()",
        "share.acknowledgement.mode": "there are no share groups",
        "topics": "give topics to subscribe()",
    },
}
"""Reasons that hold for one kind of client."""

_REASONS: Final = {
    # A switch that turns the check off ends up in production, so there is none.
    "enable.ssl.certificate.verification": (
        "certificates are always checked, against ssl.truststore.location; an empty "
        "ssl.endpoint.identification.algorithm leaves out the check of the host's name"
    ),
    "bootstrap.timeout.ms": "default.api.timeout.ms is how long a call waits",
    "metadata.recovery.rebootstrap.trigger.ms": (
        "metadata.recovery.strategy goes back to bootstrap.servers when no broker can be reached"
    ),
    "error.cb": "calls raise errors, which are logged by the logger tailrace too",
}

_GROUPS: Final = {
    "the client asks each broker for its versions": (
        "api.version api.version.fallback.ms api.version.request api.version.request.timeout.ms "
        "api.version.auto.timeout.ms broker.version.fallback"
    ),
    "Kerberos tickets come from the ticket cache or from sasl.kerberos.keytab": (
        "sasl.kerberos.domain.name sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin "
        "sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor"
    ),
    "a token comes from sasl.oauth.token, from sasl.oauthbearer.token.endpoint.url, or from "
    "sasl.jaas.config, and is renewed after 80 % of its life": (
        "enable.sasl.queue sasl.client.callback.handler.class sasl.login.callback.handler.class "
        "sasl.login.class sasl.login.refresh.buffer.seconds "
        "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor "
        "sasl.login.refresh.window.jitter sasl.oauthbearer.assertion.algorithm "
        "sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds "
        "sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include "
        "sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub "
        "sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file "
        "sasl.oauthbearer.assertion.private.key.file "
        "sasl.oauthbearer.assertion.private.key.passphrase "
        "sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.assertion.template.file "
        "sasl.oauthbearer.grant.type sasl.oauthbearer.jwt.retriever.class "
        "sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.metadata.authentication.type "
        "sasl.oauthbearer.method sasl.oauthbearer.sub.claim.name"
    ),
    "the broker checks the token": (
        "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience "
        "sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url "
        "sasl.oauthbearer.scope.claim.name"
    ),
    "TLS is that of Python, with certificates in PEM or PKCS12": (
        "ssl.ca ssl.ca.certificate.stores ssl.certificate "
        "ssl.certificate.verify.cb ssl.context ssl.crl.location "
        "ssl.crlfile ssl.curves.list ssl.engine.factory.class ssl.engine.id "
        "ssl.engine.location ssl.key ssl.keymanager.algorithm "
        "ssl.provider ssl.providers ssl.secure.random.implementation ssl.sigalgs.list "
        "ssl.trustmanager.algorithm security.providers"
    ),
    "sockets use the defaults of the operating system": (
        "broker.address.family broker.address.ttl client.dns.lookup connect.cb closesocket.cb "
        "kafka.client log.connection.close open.cb proxy.url receive.buffer.bytes "
        "receive.message.max.bytes resolve.cb selector send.buffer.bytes socket.blocking.max.ms "
        "socket.cb socket.keepalive.enable socket.max.fails socket.nagle.disable socket.options "
        "socket.receive.buffer.bytes socket.send.buffer.bytes socks5.proxy"
    ),
    "log lines go to Python's logging, and metrics() returns the numbers": (
        "background.event.cb debug enabled.events log.cb log.level log.queue log.thread.name "
        "metric.reporters metrics.enabled metrics.num.samples metrics.recording.level "
        "metrics.sample.window.ms enable.metrics.push throttle.cb "
        "logger metric.group.prefix"
    ),
    "it needs no setting here": (
        "auto.include.jmx.reporter builtin.features client.software.name "
        "client.software.version coordinator.query.interval.ms "
        "enable.incremental.fetch.sessions default.topic.conf enable.gapless.guarantee "
        "enable.random.seed enable.sparse.connections internal.termination.signal loop "
        "message.copy.max.bytes group.protocol.type msg.order.cmp opaque plugin.library.paths "
        "queuing.strategy "
        "queue.buffering.backpressure.threshold reconnect.backoff.jitter.ms "
        "sticky.partitioning.linger.ms test.mock.broker.rtt test.mock.num.brokers "
        "topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt "
        "topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse "
        "transaction.two.phase.commit.enable"
    ),
}

_ABSENT: Final = _REASONS | {name: why for why, names in _GROUPS.items() for name in names.split()}

FOREIGN_NAMES: Final = frozenset(_RENAMED).union(
    _ABSENT, *_ARGUMENTS.values(), *_ABSENT_IN.values()
)
"""Names of settings that another client has."""


def foreign_hints(client: Client, names: Iterable[str]) -> Mapping[str, str]:
    """Text for the errors about settings that `client` does not have, by their names.

    Also for those of another of our clients. Names of which nothing is known are left out.
    """
    owners = _owners()
    return {name: hint for name in names if (hint := _hint(client, name, owners))}


def _hint(client: Client, name: str, owners: Mapping[str, list[Client]]) -> str:
    ours = _RENAMED.get(name, name)
    having = owners.get(ours) or [
        each
        for each in Client
        if name in _ARGUMENTS.get(each, ()) or name in _ABSENT_IN.get(each, ())
    ]
    kinds = " and ".join(each.value for each in having)
    if ours != name:
        return f"it is {ours} here" + ("" if client in having else f", a setting of {kinds}")
    if name in _ARGUMENTS.get(client, {}):
        return f"it is the argument {_ARGUMENTS[client][name]} here"
    # The reason for this kind of client comes first; the general one is for the others.
    why = _ABSENT_IN.get(client, {}).get(name) or _ABSENT.get(name)
    if why:
        return f"it has no counterpart: {why}"
    return f"it is a setting of {kinds}" if kinds else ""


def _owners() -> dict[str, list[Client]]:
    """Which clients have a setting, by its name; only a mistake needs it."""
    owners: dict[str, list[Client]] = {}
    for client, (module, name) in _DECLARATIONS.items():
        for each in getattr(import_module(f"tailrace.client.{module}"), name):
            owners.setdefault(each.name, []).append(client)
    return owners


def describe_foreign() -> str:
    """A Markdown table of the names and what is said about them, for docs/configuration.md."""
    by_hint: dict[str, list[str]] = {}
    for client in (Client.PRODUCER, Client.CONSUMER, Client.ADMIN):
        for name, hint in foreign_hints(client, sorted(FOREIGN_NAMES)).items():
            if not hint.startswith("it is a setting of"):
                names = by_hint.setdefault(hint.partition(", a setting of")[0], [])
                names += [f"`{name}`"] * (f"`{name}`" not in names)
    rows = (f"| {', '.join(sorted(names))} | {hint} |" for hint, names in by_hint.items())
    return "\n".join(["| names | what to do |", "|---|---|", *rows]) + "\n"
