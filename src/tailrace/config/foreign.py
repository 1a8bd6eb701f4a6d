"""Settings of Apache Kafka's broker that have no effect here: why, and their types and defaults.

Names are those of Kafka 4.3, with those of other releases, so that a `server.properties` as it is
starts this broker too. A name that is neither here nor declared by a `setting` is refused. One that
becomes a setting of ours is taken out here: a test finds a name that is in both places, or in none.

A line has a name, its type and the default of Kafka 4.3.1: nothing for null, and "" for an empty
value. DescribeConfigs shows those, since tools look for the names that every broker of Kafka has; a
name without a type is one that Kafka does not show. `compat/settings.py` compares all of them.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

_GROUPS: Final = {
    "A quorum of several controllers is Apache Kafka's.": """\
controller.quorum.append.linger.ms int 25
controller.quorum.auto.join.enable bool false
controller.quorum.election.backoff.max.ms int 1000
controller.quorum.election.timeout.ms int 1000
controller.quorum.fetch.timeout.ms int 2000
""",
    "The controller has a pace and batches of its own.": """\
controller.performance.always.log.threshold.ms
controller.performance.sample.period.ms
controller.socket.timeout.ms int 30000
internal.metadata.delete.delay.millis
internal.metadata.log.segment.bytes
internal.metadata.max.batch.size.in.bytes
metadata.max.idle.interval.ms int 500
server.max.startup.time.ms
""",
    "Connections between nodes have time limits and buffers of their own.": """\
replica.socket.receive.buffer.bytes int 65536
request.timeout.ms int 30000
socket.connection.setup.timeout.max.ms long 30000
socket.connection.setup.timeout.ms long 10000
""",
    "There is no tiered storage.": """\
follower.fetch.last.tiered.offset.enable bool false
remote.fetch.max.wait.ms int 500
remote.list.offsets.request.timeout.ms long 30000
remote.log.index.file.cache.total.size.bytes long 1073741824
remote.log.index.file.cache.ttl.ms
remote.log.manager.copier.thread.pool.size int 10
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807
remote.log.manager.copy.quota.window.num int 11
remote.log.manager.copy.quota.window.size.seconds int 1
remote.log.manager.expiration.thread.pool.size int 10
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807
remote.log.manager.fetch.quota.window.num int 11
remote.log.manager.fetch.quota.window.size.seconds int 1
remote.log.manager.follower.thread.pool.size int 2
remote.log.manager.task.interval.ms long 30000
remote.log.manager.task.retry.backoff.max.ms
remote.log.manager.task.retry.backoff.ms
remote.log.manager.task.retry.jitter
remote.log.manager.thread.pool.size int 2
remote.log.metadata.custom.metadata.max.bytes int 128
remote.log.metadata.manager.class.name string \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path string
remote.log.metadata.manager.impl.prefix string rlmm.config.
remote.log.metadata.manager.listener.name string
remote.log.reader.max.pending.tasks int 100
remote.log.reader.threads int 10
remote.log.storage.manager.class.name string
remote.log.storage.manager.class.path string
remote.log.storage.manager.impl.prefix string rsm.config.
""",
    "There are no share groups.": """\
group.share.assignment.interval.ms int 1000
group.share.assignors list simple
group.share.delivery.count.limit int 5
group.share.heartbeat.interval.ms int 5000
group.share.initialize.retry.interval.ms
group.share.max.assignment.interval.ms int 15000
group.share.max.delivery.count.limit int 10
group.share.max.heartbeat.interval.ms int 15000
group.share.max.partition.max.record.locks int 4000
group.share.max.record.lock.duration.ms int 60000
group.share.max.session.timeout.ms int 60000
group.share.max.share.sessions int 2000
group.share.max.size int 200
group.share.min.assignment.interval.ms int 0
group.share.min.delivery.count.limit int 2
group.share.min.heartbeat.interval.ms int 5000
group.share.min.partition.max.record.locks int 100
group.share.min.record.lock.duration.ms int 15000
group.share.min.session.timeout.ms int 45000
group.share.partition.max.record.locks int 2000
group.share.persister.class.name
group.share.record.lock.duration.ms int 30000
group.share.session.timeout.ms int 45000
share.coordinator.append.linger.ms int -1
share.coordinator.cached.buffer.max.bytes int 1048588
share.coordinator.cold.partition.snapshot.interval.ms
share.coordinator.load.buffer.size int 5242880
share.coordinator.snapshot.update.records.per.snapshot int 500
share.coordinator.state.topic.compression.codec int 0
share.coordinator.state.topic.min.isr short 2
share.coordinator.state.topic.num.partitions int 50
share.coordinator.state.topic.prune.interval.ms
share.coordinator.state.topic.replication.factor short 3
share.coordinator.state.topic.segment.bytes int 104857600
share.coordinator.threads int 1
share.coordinator.write.timeout.ms int 5000
share.fetch.purgatory.purge.interval.requests int 1000
""",
    "Groups of the streams protocol are not served.": """\
group.streams.assignment.interval.ms int 1000
group.streams.heartbeat.interval.ms int 5000
group.streams.initial.rebalance.delay.ms int 3000
group.streams.max.assignment.interval.ms int 15000
group.streams.max.heartbeat.interval.ms int 15000
group.streams.max.session.timeout.ms int 60000
group.streams.max.size int 2147483647
group.streams.max.standby.replicas int 2
group.streams.min.assignment.interval.ms int 0
group.streams.min.heartbeat.interval.ms int 5000
group.streams.min.session.timeout.ms int 45000
group.streams.num.standby.replicas int 0
group.streams.session.timeout.ms int 45000
""",
    "There is no two-phase commit of transactions.": """\
transaction.two.phase.commit.enable bool false
""",
    "Coordinators append records without a wait and without compression, and load them with "
    "buffers of their own.": """\
group.coordinator.append.linger.ms int -1
group.coordinator.cached.buffer.max.bytes int 1048588
offsets.load.buffer.size int 5242880
offsets.topic.compression.codec int 0
transaction.state.log.load.buffer.size int 5242880
""",
    "One event loop takes all requests, and there are no pools of threads to size.": """\
background.threads int 10
group.coordinator.background.threads int 2
group.coordinator.threads int 4
num.io.threads int 8
num.network.threads int 3
num.replica.alter.log.dirs.threads int
queued.max.requests int 500
""",
    "Sockets have the buffers and the queue of the operating system.": """\
socket.listen.backlog.size int 50
socket.receive.buffer.bytes int 102400
socket.send.buffer.bytes int 102400
""",
    "All listeners open together, when the node is ready.": """\
early.start.listeners list
""",
    "Requests that wait are forgotten at once when they are answered, so there is nothing "
    "to purge.": """\
delete.records.purgatory.purge.interval.requests int 1
fetch.purgatory.purge.interval.requests int 1000
producer.purgatory.purge.interval.requests int 1000
""",
    "Moves between directories keep to their rate at each moment, not over windows.": """\
alter.log.dirs.replication.quota.window.num int 11
alter.log.dirs.replication.quota.window.size.seconds int 1
""",
    "TLS is that of OpenSSL, without Java's providers and classes.": """\
ssl.engine.factory.class class
ssl.keymanager.algorithm string SunX509
ssl.provider string
ssl.secure.random.implementation string
ssl.trustmanager.algorithm string PKIX
""",
    "SASL has no Java classes and no tickets of its own; logins of this node begin when they are "
    "needed.": """\
sasl.client.callback.handler.class class
sasl.jaas.config password
sasl.kerberos.kinit.cmd string /usr/bin/kinit
sasl.kerberos.min.time.before.relogin long 60000
sasl.kerberos.ticket.renew.jitter float 0.05
sasl.kerberos.ticket.renew.window.factor float 0.8
sasl.login.callback.handler.class class
sasl.login.class class
sasl.login.connect.timeout.ms int
sasl.login.read.timeout.ms int
sasl.login.refresh.buffer.seconds short 300
sasl.login.refresh.min.period.seconds short 60
sasl.login.refresh.window.factor float 0.8
sasl.login.refresh.window.jitter float 0.05
sasl.login.retry.backoff.max.ms long 10000
sasl.login.retry.backoff.ms long 100
sasl.oauthbearer.assertion.algorithm string RS256
sasl.oauthbearer.assertion.claim.aud string
sasl.oauthbearer.assertion.claim.exp.seconds int 300
sasl.oauthbearer.assertion.claim.iss string
sasl.oauthbearer.assertion.claim.jti.include bool false
sasl.oauthbearer.assertion.claim.nbf.seconds int 60
sasl.oauthbearer.assertion.claim.sub string
sasl.oauthbearer.assertion.file string
sasl.oauthbearer.assertion.private.key.file string
sasl.oauthbearer.assertion.private.key.passphrase password
sasl.oauthbearer.assertion.template.file string
sasl.oauthbearer.jwt.retriever.class class \
org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class class \
org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
""",
    "There are no delegation tokens.": """\
delegation.token.expiry.check.interval.ms long 3600000
delegation.token.expiry.time.ms long 86400000
delegation.token.max.lifetime.ms long 604800000
delegation.token.secret.key password
""",
    "No Java class is loaded.": """\
alter.config.policy.class.name class
client.quota.callback.class class
create.topic.policy.class.name class
principal.builder.class class \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
security.providers string
""",
    "Metrics and log lines go where Python's logging and docs/metrics.md say, not to Java's "
    "reporters.": """\
kafka.metrics.polling.interval.secs int 10
kafka.metrics.reporters list ""
metric.reporters list org.apache.kafka.common.metrics.JmxReporter
metrics.jmx.exclude
metrics.jmx.include
metrics.num.samples int 2
metrics.recording.level string INFO
metrics.sample.window.ms long 30000
telemetry.max.bytes int 1048576
""",
    "Every version that is offered is stable.": """\
unstable.api.versions.enable
unstable.feature.versions.enable
""",
    "Kafka 4.3 has no such setting: it is of an earlier or a later release.": """\
alter.config.policy.kraft.compatibility.enable
auto.include.jmx.reporter
broker.id.generation.enable
control.plane.listener.name
controlled.shutdown.max.retries
controlled.shutdown.retry.backoff.ms
controller.max.records.per.batch
delegation.token.master.key
eligible.leader.replicas.enable
group.consumer.assignor.offload.enable
group.coordinator.new.enable
group.share.assignor.offload.enable
group.share.enable
group.share.max.groups
group.streams.assignor.offload.enable
group.streams.min.task.offset.interval.ms
group.streams.task.offset.interval.ms
inter.broker.protocol.version
internal.metadata.max.fetch.size.in.bytes
leader.imbalance.per.broker.percentage
log.message.downconversion.enable
log.message.format.version
log.message.timestamp.difference.max.ms
metadata.log.segment.min.bytes
offsets.commit.required.acks
password.encoder.cipher.algorithm
password.encoder.iterations
password.encoder.key.length
password.encoder.keyfactory.algorithm
password.encoder.old.secret
password.encoder.secret
reserved.broker.max.id
sasl.oauthbearer.header.urlencode
share.fetch.max.fetch.records
""",
}  # fmt: skip

_PREFIXES: Final = {
    "rlmm.config.": "There is no tiered storage.",
    "rsm.config.": "There is no tiered storage.",
    "zookeeper.": "Kafka 4 has no ZooKeeper either.",
}
"""Settings of plug-ins and of ZooKeeper, by what their names begin with."""

_OF_A_LISTENER: Final = re.compile(
    # Those of a mechanism have its name before theirs.
    r"listener\.name\.[^.]+\.(?:(?:plain|scram-sha-256|scram-sha-512|gssapi|oauthbearer)\.)?(.+)"
)

_OF_GROUPS: Final = {
    "there are no share groups": (
        "share.assignment.interval.ms share.auto.offset.reset share.delivery.count.limit "
        "share.heartbeat.interval.ms share.isolation.level share.partition.max.record.locks "
        "share.record.lock.duration.ms share.renew.acknowledge.enable share.session.timeout.ms"
    ),
    "groups of the streams protocol are not served": (
        "streams.assignment.interval.ms streams.heartbeat.interval.ms "
        "streams.initial.rebalance.delay.ms streams.num.standby.replicas "
        "streams.session.timeout.ms"
    ),
}

FOREIGN_OF_GROUPS: Final[Mapping[str, str]] = {
    name: why for why, names in _OF_GROUPS.items() for name in names.split()
}
"""Why there is no such setting of single groups here, by name, for the error that says so."""


class ForeignSetting(NamedTuple):
    """A setting of Kafka's broker that has no effect here."""

    reason: str
    """A sentence."""
    kind: str
    """The type of its values, as `Setting.kind`, or short, long, class or password; empty: Kafka's
    DescribeConfigs does not show it."""
    default: str | None
    """None: null."""


@cache
def foreign_settings() -> Mapping[str, ForeignSetting]:
    """The settings without effect, by name."""
    found = {}
    for reason, lines in _GROUPS.items():
        for line in lines.splitlines():
            name, kind, *rest = f"{line} ".split(" ", 2)
            default = rest[0].rstrip().removeprefix('""') if rest and rest[0] else None
            found[name] = ForeignSetting(reason, kind, default)
    return found


def base_name(name: str) -> str:
    """The setting that `listener.name.<listener>.<setting>` sets; other names as they are."""
    match = _OF_A_LISTENER.fullmatch(name)
    return name if match is None else match[1]


def foreign_reason(name: str) -> str | None:
    """Why a setting has no effect, as a sentence; None: it is not one of the settings without."""
    found = foreign_settings().get(base_name(name))
    if found is not None:
        return found.reason
    return next((why for start, why in _PREFIXES.items() if name.startswith(start)), None)


def describe_foreign_settings() -> str:
    """A Markdown table of them, for docs/configuration.md."""
    by_reason: dict[str, list[str]] = {}
    for name, each in foreign_settings().items():
        by_reason.setdefault(each.reason, []).append(name)
    for start, why in _PREFIXES.items():
        by_reason.setdefault(why, []).append(f"{start}*")
    return _table(by_reason)


def describe_foreign_of_groups() -> str:
    """Likewise those of single groups."""
    return _table({why: names.split() for why, names in _OF_GROUPS.items()})


def _table(by_reason: Mapping[str, list[str]]) -> str:
    rows = (
        f"| {why} | {', '.join(f'`{name}`' for name in names)} |"
        for why, names in by_reason.items()
    )
    return "\n".join(["| because | settings |", "|---|---|", *rows]) + "\n"
