"""`IGNORED`: settings of Apache Kafka's broker that have no effect here, and why.

Names are those of Kafka 4.3, with those of 3.x that 4.0 has removed, so that a `server.properties`
as it is starts this broker too. What is obeyed is declared in `config`; a name that is in neither
table is refused.
"""

from collections.abc import Mapping
from typing import Final

_GROUPS: Final = {
    "they are for several controllers, which are Apache Kafka's": (
        "controller.quorum.append.linger.ms controller.quorum.auto.join.enable "
        "controller.quorum.election.backoff.max.ms "
        "controller.quorum.election.timeout.ms "
        "controller.quorum.fetch.timeout.ms "
        ""
        "controller.performance.always.log.threshold.ms "
        "controller.performance.sample.period.ms controller.max.records.per.batch "
        "controller.socket.timeout.ms metadata.log.segment.min.bytes "
        "metadata.max.idle.interval.ms "
        "server.max.startup.time.ms "
        "internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes "
        "internal.metadata.max.batch.size.in.bytes internal.metadata.max.fetch.size.in.bytes"
    ),
    "leaders are elected by controllers, and followers have other settings": (
        "leader.imbalance.per.broker.percentage "
        "controlled.shutdown.max.retries "
        "controlled.shutdown.retry.backoff.ms "
        ""
        "replica.socket.receive.buffer.bytes "
        "follower.fetch.last.tiered.offset.enable "
        "request.timeout.ms socket.connection.setup.timeout.max.ms "
        "socket.connection.setup.timeout.ms eligible.leader.replicas.enable"
    ),
    "groups have no such limits or times here": (
        "group.consumer.assignor.offload.enable "
        "group.coordinator.append.linger.ms group.coordinator.background.threads "
        "group.coordinator.cached.buffer.max.bytes group.coordinator.new.enable "
        "group.coordinator.threads "
        "offsets.commit.required.acks "
        "offsets.load.buffer.size "
        "offsets.topic.compression.codec"
    ),
    "there are no share groups and no streams groups": (
        "group.share.assignment.interval.ms group.share.assignor.offload.enable "
        "group.share.assignors group.share.delivery.count.limit group.share.enable "
        "group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms "
        "group.share.max.assignment.interval.ms group.share.max.delivery.count.limit "
        "group.share.max.groups group.share.max.heartbeat.interval.ms "
        "group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms "
        "group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size "
        "group.share.min.assignment.interval.ms group.share.min.delivery.count.limit "
        "group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks "
        "group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms "
        "group.share.partition.max.record.locks group.share.persister.class.name "
        "group.share.record.lock.duration.ms group.share.session.timeout.ms "
        "group.streams.assignment.interval.ms group.streams.assignor.offload.enable "
        "group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms "
        "group.streams.max.assignment.interval.ms group.streams.max.heartbeat.interval.ms "
        "group.streams.max.session.timeout.ms group.streams.max.size "
        "group.streams.max.standby.replicas group.streams.min.assignment.interval.ms "
        "group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms "
        "group.streams.num.standby.replicas group.streams.session.timeout.ms "
        "group.streams.task.offset.interval.ms group.streams.min.task.offset.interval.ms "
        "share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes "
        "share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size "
        "share.coordinator.snapshot.update.records.per.snapshot "
        "share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr "
        "share.coordinator.state.topic.num.partitions "
        "share.coordinator.state.topic.prune.interval.ms "
        "share.coordinator.state.topic.replication.factor "
        "share.coordinator.state.topic.segment.bytes share.coordinator.threads "
        "share.coordinator.write.timeout.ms share.fetch.max.fetch.records "
        "share.fetch.purgatory.purge.interval.requests"
    ),
    "transactions have no two-phase commit here": (
        "transaction.state.log.load.buffer.size transaction.two.phase.commit.enable"
    ),
    "one event loop takes all requests, with buffers of its own": (
        "num.network.threads num.io.threads background.threads queued.max.requests "
        "num.replica.alter.log.dirs.threads socket.listen.backlog.size "
        "socket.receive.buffer.bytes socket.send.buffer.bytes early.start.listeners "
        "fetch.purgatory.purge.interval.requests "
        "producer.purgatory.purge.interval.requests "
        "delete.records.purgatory.purge.interval.requests remote.fetch.max.wait.ms "
        "remote.list.offsets.request.timeout.ms"
    ),
    "moves between directories keep to their rate at each moment, not over windows": (
        "alter.log.dirs.replication.quota.window.num "
        "alter.log.dirs.replication.quota.window.size.seconds"
    ),
    "clients are not throttled": (
        "client.quota.callback.class "
        "controller.quota.window.num controller.quota.window.size.seconds "
        "max.connection.creation.rate quota.window.num quota.window.size.seconds"
    ),
    "there is no TLS and no SASL, and listeners with them are refused": (
        "connection.failed.authentication.delay.ms connections.max.reauth.ms "
        "delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms "
        "delegation.token.master.key delegation.token.max.lifetime.ms "
        "delegation.token.secret.key allow.everyone.if.no.acl.found super.users "
        "password.encoder.cipher.algorithm "
        "password.encoder.iterations password.encoder.key.length "
        "password.encoder.keyfactory.algorithm password.encoder.old.secret "
        "password.encoder.secret principal.builder.class "
        "sasl.client.callback.handler.class sasl.enabled.mechanisms sasl.jaas.config "
        "sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin "
        "sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name "
        "sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor "
        "sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms "
        "sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds "
        "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor "
        "sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms "
        "sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol "
        "sasl.mechanism.inter.broker.protocol sasl.oauthbearer.assertion.algorithm "
        "sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds "
        "sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include "
        "sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub "
        "sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file "
        "sasl.oauthbearer.assertion.private.key.passphrase "
        "sasl.oauthbearer.assertion.template.file "
        "sasl.oauthbearer.client.credentials.client.id "
        "sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds "
        "sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer "
        "sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url "
        "sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class "
        "sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name "
        "sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url "
        "sasl.server.callback.handler.class sasl.server.max.receive.size security.providers "
        "ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites ssl.client.auth "
        "ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class "
        "ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain "
        "ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type "
        "ssl.principal.mapping.rules ssl.protocol ssl.provider "
        "ssl.secure.random.implementation ssl.trustmanager.algorithm "
        "ssl.truststore.certificates ssl.truststore.location ssl.truststore.password "
        "ssl.truststore.type"
    ),
    "there is no tiered storage": (
        "remote.log.index.file.cache.total.size.bytes remote.log.index.file.cache.ttl.ms "
        "remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second "
        "remote.log.manager.copy.quota.window.num "
        "remote.log.manager.copy.quota.window.size.seconds "
        "remote.log.manager.expiration.thread.pool.size "
        "remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num "
        "remote.log.manager.fetch.quota.window.size.seconds "
        "remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms "
        "remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms "
        "remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size "
        "remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name "
        "remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix "
        "remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks "
        "remote.log.reader.threads remote.log.storage.manager.class.name "
        "remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix"
    ),
    "no Java class is loaded, and Python's logging has the log": (
        "alter.config.policy.class.name create.topic.policy.class.name config.providers "
        "auto.include.jmx.reporter kafka.metrics.polling.interval.secs kafka.metrics.reporters "
        "metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms "
        "telemetry.max.bytes"
    ),
    "topics can always be deleted, and every version that is offered is stable": (
        "delete.topic.enable unstable.api.versions.enable unstable.feature.versions.enable"
    ),
    "Kafka 4 has no such setting either": (
        "broker.id.generation.enable reserved.broker.max.id inter.broker.protocol.version "
        "log.message.format.version log.message.downconversion.enable "
        "log.message.timestamp.difference.max.ms control.plane.listener.name"
    ),
}

IGNORED: Final[Mapping[str, str]] = {
    name: why for why, names in _GROUPS.items() for name in names.split()
}
"""Why a setting of Kafka's has no effect, by name."""

IGNORED_PREFIXES: Final = (
    "config.providers.", "listener.name.", "rlmm.config.", "rsm.config.", "zookeeper.",
)  # fmt: skip
"""Prefixes of more ignored settings: those of plug-ins, of single listeners, and of ZooKeeper."""


def is_ignored(name: str) -> bool:
    """Whether a setting is one of Kafka's that has no effect here."""
    return name in IGNORED or name.startswith(IGNORED_PREFIXES)


def describe_ignored() -> str:
    """A Markdown table of them, for docs/configuration.md."""
    lines = ["| because | settings |", "|---|---|"]
    lines += [
        f"| {why} | {', '.join(f'`{name}`' for name in names.split())} |"
        for why, names in _GROUPS.items()
    ]
    return "\n".join(lines) + "\n"
