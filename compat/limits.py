"""Every topic and broker setting of ours with values around its limits, held against Kafka's own.

Limits.java asks Kafka's definitions of its settings. It is compiled when it is run, so this takes a
JDK.
"""

from collections.abc import Iterator
from pathlib import Path

from compat.kafka import run_java
from compat.report import Report
from tailrace.broker.config import BROKER_SETTINGS
from tailrace.config.settings import INT32_MAX, INT64_MAX, Setting
from tailrace.storage.config import SMALL_SEGMENT, TOPIC_SETTINGS

_LAXER = frozenset(
    {"controller.quorum.voters", "log.dirs", "log.dir", "listeners", "advertised.listeners",
     "controller.listener.names", "sasl.server.callback.handler.class"}
)  # fmt: skip
"""Settings that count as not given if they are empty; and the voters, which are not acted on."""
_STRICTER = frozenset(
    {
        # There is none of it here.
        "authorizer.class.name", "group.consumer.assignors", "remote.storage.enable",
        "remote.log.storage.system.enable", "default.replication.factor",
        # Numbers of threads, partitions and bytes with which a process of ours does not start.
        "num.partitions", "num.recovery.threads.per.data.dir", "log.cleaner.threads",
        "log.cleaner.dedupe.buffer.size", "log.cleaner.io.max.bytes.per.second",
        "offsets.topic.num.partitions", "transaction.state.log.num.partitions",
        "internal.segment.bytes", "offsets.topic.segment.bytes",
        "transaction.state.log.segment.bytes", "max.connections", "offset.metadata.max.bytes",
        # Values that a Kafka 4 refuses when it starts, though its definition takes them: it has no
        # ids of brokers below 0, and ends no connection before a failed login is answered.
        "broker.id", "connections.max.idle.ms",
        # Times of 0 or less, with which Kafka does nothing, or does it without a pause.
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms", "log.flush.scheduler.interval.ms",
        "log.flush.interval.ms", "log.retention.hours", "log.retention.minutes",
        "log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.cleaner.backoff.ms",
        "group.min.session.timeout.ms", "group.max.session.timeout.ms",
        "group.initial.rebalance.delay.ms", "metadata.log.segment.ms",
        "metadata.max.retention.bytes", "metadata.max.retention.ms",
        "broker.heartbeat.interval.ms", "broker.session.timeout.ms",
        "controller.quorum.request.timeout.ms",
        "controller.quorum.retry.backoff.ms", "initial.broker.registration.timeout.ms",
        "replica.fetch.min.bytes", "replica.fetch.wait.max.ms",
        "replica.high.watermark.checkpoint.interval.ms", "replica.lag.time.max.ms",
        "replica.socket.timeout.ms",
        # Names of classes, stores, protocols and mechanisms: Kafka ends later, where it does not
        # find one.
        "replica.selector.class", "ssl.keystore.type", "ssl.truststore.type", "ssl.protocol",
        "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm",
        "sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol",
        "sasl.mechanism.controller.protocol",
        # Times and sizes below 0, or of 0, of logins.
        "connections.max.reauth.ms", "sasl.server.max.receive.size",
        "sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    }
)  # fmt: skip
"""Settings of which Kafka takes more values."""
_PROGRAM = Path(__file__).with_name("Limits.java")
_DECLARED = {"topic": (*TOPIC_SETTINGS, SMALL_SEGMENT), "broker": BROKER_SETTINGS}
_TEXTS = ("", "x", "true", "-1", "0", "1", "0.5", "none", str(INT32_MAX), str(INT64_MAX))


def check(report: Report, java: Path, class_path: str, directory: Path) -> None:
    """Ask both for each value of each setting."""
    asked = [
        (kind, setting, text)
        for kind, declared in _DECLARED.items()
        for setting in declared
        for text in dict.fromkeys(_texts(setting))
    ]
    path = directory / "limits.tsv"
    path.write_text("".join(f"{kind}\t{each.name}\t{text}\n" for kind, each, text in asked))
    printed = run_java(java, class_path, [str(_PROGRAM), str(path)]).splitlines()
    differences = []
    for (kind, setting, text), theirs in zip(asked, printed, strict=True):
        ours = "takes" if _is_taken(setting, text) else "refuses"
        apart = _STRICTER if theirs == "takes" else _LAXER
        if theirs not in {ours, "unknown"} and setting.name not in apart:
            differences.append(f"{kind} {setting.name}={text!r}: Kafka {theirs}, ours {ours}")
    report.check(
        f"{len(asked)} values of settings are taken or refused as Kafka does",
        differences,
        explained=f"Kafka takes more values of {len(_STRICTER)} settings",
    )


def _texts(setting: Setting) -> Iterator[str]:
    yield from _TEXTS
    yield setting.format(setting.default)
    for limit in (setting.low, setting.high):
        if limit is not None:
            yield from (str(int(limit) + each) for each in (-1, 0, 1))


def _is_taken(setting: Setting, text: str) -> bool:
    try:
        setting.parse(text)
    except ValueError:
        return False
    return True
