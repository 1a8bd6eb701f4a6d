"""`HINTS`: what settings of other Kafka clients are called here, or why they have no counterpart.

Names are those of Java's producer, librdkafka, aiokafka and kafka-python, with dots for
underscores.

Not here: settings that have the same name everywhere (`settings`).
"""

from typing import Final

from tailrace.records.codecs import LEVELS

_RENAMED: Final = {
    # librdkafka
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
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    # aiokafka and kafka-python
    "max.batch.size": "batch.size",
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "ssl.cafile": "ssl.truststore.location",
    "ssl.certfile": "ssl.keystore.location",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
    "ssl.check.hostname": "ssl.endpoint.identification.algorithm",
    # Java
    **{f"compression.{codec.label}.level": "compression.level" for codec in LEVELS},
    "ssl.keystore.password": "ssl.key.password",
}

_ARGUMENTS: Final = {
    "key.serializer": "key_serializer",
    "value.serializer": "value_serializer",
    "partitioner": "partitioner",
    "partitioner.class": "partitioner",
    "interceptor.classes": "interceptors",
}

_IN_UNITS: Final = {
    "queue.buffering.max.kbytes": "buffer.memory, in bytes, is the bound of what waits",
    "queue.buffering.max.messages": "buffer.memory, in bytes, is the bound of what waits",
    "batch.num.messages": "batch.size, in bytes, is the bound of a batch",
    "sasl.jaas.config": "give sasl.username and sasl.password",
    "enable.ssl.certificate.verification": (
        "certificates are always checked, against ssl.truststore.location; an empty "
        "ssl.endpoint.identification.algorithm leaves out the check of the host's name"
    ),
    "bootstrap.timeout.ms": "max.block.ms is how long a send waits for brokers and metadata",
    "default.api.timeout.ms": "max.block.ms is how long a call waits",
    "metadata.recovery.rebootstrap.trigger.ms": (
        "metadata.recovery.strategy goes back to bootstrap.servers when no broker can be reached"
    ),
    "produce.offset.report": "every receipt has its offset",
    "delivery.report.only.error": "on_delivery is called with every outcome",
    "dr.cb": "give on_delivery to send()",
    "dr.msg.cb": "give on_delivery to send()",
    "error.cb": "errors are those of receipts, and are logged by the logger tailrace",
}

_GROUPS: Final = {
    "it is a setting of consumers": (
        "auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs consume.cb "
        "consume.callback.max.messages coordinator.query.interval.ms enable.auto.commit "
        "enable.auto.offset.store enable.partition.eof fetch.error.backoff.ms fetch.max.bytes "
        "fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms "
        "fetch.max.wait.ms group.id group.instance.id group.protocol group.protocol.type "
        "group.remote.assignor heartbeat.interval.ms isolation.level max.partition.fetch.bytes "
        "max.poll.interval.ms max.poll.records offset.commit.cb offset.store.method "
        "offset.store.path offset.store.sync.interval.ms partition.assignment.strategy "
        "queued.max.messages.kbytes queued.min.messages rebalance.cb rebalance.timeout.ms "
        "session.timeout.ms share.acknowledgement.mode consumer.timeout.ms client.rack"
    ),
    "the client asks each broker for its versions": (
        "api.version api.version.fallback.ms api.version.request api.version.request.timeout.ms "
        "api.version.auto.timeout.ms broker.version.fallback"
    ),
    "SASL is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512": (
        "enable.sasl.oauthbearer.unsecure.jwt enable.sasl.queue oauthbearer.token.refresh.cb "
        "oauth.cb sasl.client.callback.handler.class sasl.kerberos.domain.name "
        "sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin "
        "sasl.kerberos.name sasl.kerberos.principal sasl.kerberos.service.name "
        "sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor "
        "sasl.login.callback.handler.class sasl.login.class sasl.oauth.token.provider "
        "sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.exp.seconds "
        "sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds "
        "sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config "
        "sasl.oauthbearer.extensions sasl.oauthbearer.grant.type "
        "sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method "
        "sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name "
        "sasl.oauthbearer.token.endpoint.url"
    ),
    "TLS takes PEM files and Python's own choice of ciphers and versions": (
        "ssl.ca ssl.ca.certificate.stores ssl.ca.pem ssl.certificate ssl.certificate.pem "
        "ssl.certificate.verify.cb ssl.cipher.suites ssl.ciphers ssl.context ssl.crl.location "
        "ssl.crlfile ssl.curves.list ssl.enabled.protocols ssl.engine.factory.class ssl.engine.id "
        "ssl.engine.location ssl.key ssl.key.pem ssl.keymanager.algorithm "
        "ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.type ssl.protocol "
        "ssl.provider ssl.providers ssl.secure.random.implementation ssl.sigalgs.list "
        "ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.password "
        "ssl.truststore.type security.providers"
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
        "metrics.sample.window.ms enable.metrics.push statistics.interval.ms stats.cb throttle.cb"
    ),
    "it needs no setting here": (
        "allow.auto.create.topics auto.include.jmx.reporter builtin.features client.software.name "
        "client.software.version default.topic.conf enable.gapless.guarantee enable.random.seed "
        "enable.sparse.connections internal.termination.signal loop message.copy.max.bytes "
        "msg.order.cmp on.delivery opaque plugin.library.paths queuing.strategy "
        "queue.buffering.backpressure.threshold reconnect.backoff.jitter.ms "
        "sticky.partitioning.linger.ms test.mock.broker.rtt test.mock.num.brokers "
        "topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt "
        "topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse "
        "transaction.two.phase.commit.enable"
    ),
}

HINTS: Final = (
    {name: f"it is {ours} here" for name, ours in _RENAMED.items()}
    | {name: f"it is the argument {ours} here" for name, ours in _ARGUMENTS.items()}
    | {name: f"it has no counterpart: {why}" for name, why in _IN_UNITS.items()}
    | {
        name: f"it has no counterpart: {why}"
        for why, names in _GROUPS.items()
        for name in names.split()
    }
)
"""Text for the error about an unknown setting, by that setting's name."""
