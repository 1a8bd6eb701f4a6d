"""Settings of the broker: Kafka's names, from a properties file, the command line or keywords.

The broker's defaults for topics (`log.segment.bytes` and so on) are derived from the topic
settings, so that each default and each text is in one place only.
"""

import dataclasses
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.broker.foreign import IGNORED, is_ignored
from tailrace.broker.listeners import ListenerNames, plan_addresses
from tailrace.cluster.controller import TopicDefaults
from tailrace.config.settings import INT32_MAX, INT64_MAX, Setting, Value, parse_settings
from tailrace.errors import ConfigError
from tailrace.protocol.frames import FRAME_BYTES_MAX
from tailrace.records.codecs import OUTPUT_SIZE_MAX
from tailrace.records.codecs import SETTING as DECOMPRESSED_SETTING
from tailrace.server.quotas import ConnectionLimits
from tailrace.storage.cleaner.worker import MAP_BYTES_MIN, CleanerConfig
from tailrace.storage.config import BROKER_DEFAULTED, DAY_MS

OWN_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="node.id",
        default=1,
        low=0,
        high=INT32_MAX,
        text="Number of this broker; must be that in the directory's meta.properties.",
    ),
    Setting(
        name="broker.id",
        default=1,
        low=0,
        high=INT32_MAX,
        text="node.id, where that is not given.",
    ),
    Setting(
        name="log.dirs",
        default=(),
        text="Data directories, separated by commas; --data on the command line. A new partition "
        "is created in the directory with the fewest partitions. The first directory also has the "
        "cluster's state: the broker stops if it fails, and continues without any other.",
    ),
    Setting(
        name="log.dir",
        default="",
        text="A single data directory, where log.dirs is not given.",
    ),
    Setting(
        name="tailrace.durability",
        default="page-cache",
        choices=("page-cache", "sync"),
        text="What acks=all means. `page-cache`: the operating system has the records, as in "
        "Kafka; a killed broker loses nothing, a machine without power may lose the tail. `sync`: "
        "the records are on the device.",
    ),
    Setting(
        name=DECOMPRESSED_SETTING,
        default=OUTPUT_SIZE_MAX,
        low=1024 * 1024,
        high=INT32_MAX,
        text="Most bytes that a batch may decompress to; one that gives more is refused as "
        "MESSAGE_TOO_LARGE, and what is in a log already is not read. Kafka has no such limit. "
        "Commands and readers go by the variable TAILRACE_DECOMPRESSED_BATCH_BYTES_MAX.",
    ),
    Setting(
        name="num.recovery.threads.per.data.dir",
        default=2,
        low=1,
        high=32,
        text="How many partitions of each data directory are opened at a time when the broker "
        "starts.",
    ),
    Setting(
        name="listeners",
        default="127.0.0.1:9092",
        text="HOST:PORT to listen on, also as PLAINTEXT://HOST:PORT; without a host all addresses "
        "of the machine, and port 0 takes any free one. Listeners of a controller are left out.",
    ),
    Setting(
        name="advertised.listeners",
        default="",
        text="HOST:PORT that clients are told to connect to; the one listened on if empty. Of "
        "several, the one with the name of the listener.",
    ),
    Setting(
        name="listener.security.protocol.map",
        default=(),
        text="What listeners with names of their own are, as NAME:PLAINTEXT; other protocols than "
        "PLAINTEXT are refused for a listener of clients.",
    ),
    Setting(
        name="controller.listener.names",
        default=(),
        text="Names of listeners that are for controllers only, which are left out: this broker is "
        "its own controller.",
    ),
    Setting(
        name="authorizer.class.name",
        default="",
        is_allowed=lambda name: not name,
        rule_text="empty, because this broker lets every client do everything",
        text="Who may do what.",
    ),
    Setting(
        name="num.partitions",
        default=1,
        low=1,
        high=10_000,
        text="Partitions of a topic that was created without a number.",
    ),
    Setting(
        name="default.replication.factor",
        default=1,
        is_allowed=lambda count: count == 1,
        rule_text="1, because this broker keeps one replica",
        text="Replicas of a topic that was created without a number.",
    ),
    Setting(
        name="auto.create.topics.enable",
        default=True,
        text="Whether asking for a topic that does not exist creates it.",
    ),
    Setting(
        name="socket.request.max.bytes",
        default=FRAME_BYTES_MAX,
        low=1,
        high=INT32_MAX,
        text="Largest produce request in bytes; other requests have a lower limit of their own.",
    ),
    Setting(
        name="queued.max.request.bytes",
        default=256 * 1024 * 1024,
        low=1,
        text="Most bytes of memory for the requests of all connections that are larger than 64 "
        "KiB, and for the objects that others than Produce above 16 KiB are decoded to; at least "
        "socket.request.max.bytes. A request that finds none left waits. While one waits, "
        "connections are closed that hold memory and hardly send, or have been answered for 10 s. "
        "(Kafka's default is no limit.)",
    ),
    Setting(
        name="max.connections",
        default=2048,
        low=1,
        high=INT32_MAX,
        text="Most connections at a time; others wait in the kernel's queue. Each takes 64 KiB. "
        "(Kafka's default is no limit.)",
    ),
    Setting(
        name="max.connections.per.ip",
        default=1024,
        low=0,
        high=INT32_MAX,
        text="Most connections from one address; others are closed at once. (Kafka's default is "
        "no limit.)",
    ),
    Setting(
        name="max.connections.per.ip.overrides",
        default=(),
        text="Other limits for single addresses: ADDRESS:COUNT, separated by commas.",
    ),
    Setting(
        name="connections.max.idle.ms",
        default=600_000,
        low=1,
        text="How long a connection may be silent before the broker closes it, also while one of "
        "its requests waits to be answered, as in Kafka. A fetch waits half as long at most.",
    ),
    Setting(
        name="fetch.max.bytes",
        default=55 * 1024 * 1024,
        low=1024,
        high=INT32_MAX,
        text="Most bytes of records in one fetch response; one batch may be larger.",
    ),
    Setting(
        name="log.flush.offset.checkpoint.interval.ms",
        default=60_000,
        low=1,
        text="How often closed segments are flushed and the recovery points written.",
    ),
    Setting(
        name="log.flush.start.offset.checkpoint.interval.ms",
        default=60_000,
        low=1,
        text="How often the log start offsets are written.",
    ),
    Setting(
        name="log.flush.scheduler.interval.ms",
        default=1000,
        low=1,
        text="How often the broker looks for logs whose flush.ms has passed. (In Kafka the default "
        "is never, so that flush.ms alone has no effect there.)",
    ),
    Setting(
        name="log.retention.check.interval.ms",
        default=300_000,
        low=1,
        text="How often the broker looks for segments that retention.ms, retention.bytes and "
        "DeleteRecords no longer keep.",
    ),
    Setting(
        name="log.retention.hours",
        default=168,
        low=-1,
        high=INT32_MAX,
        text="log.retention.ms in hours; counts where neither that nor the minutes are given.",
    ),
    Setting(
        name="log.retention.minutes",
        default=10_080,
        low=-1,
        high=INT32_MAX,
        text="log.retention.ms in minutes; counts where that is not given.",
    ),
    Setting(
        name="log.roll.hours",
        default=168,
        low=1,
        high=INT32_MAX,
        text="log.roll.ms in hours; counts where that is not given.",
    ),
    Setting(
        name="log.roll.jitter.hours",
        default=0,
        low=0,
        high=INT32_MAX,
        text="log.roll.jitter.ms in hours; counts where that is not given.",
    ),
    Setting(
        name="log.initial.task.delay.ms",
        default=30_000,
        low=0,
        text="How long after its start the broker checks for the first time for retention, flushes "
        "and checkpoints that are due.",
    ),
    Setting(
        name="log.cleaner.enable",
        default=True,
        text="Whether logs with the policy compact are compacted.",
    ),
    Setting(
        name="log.cleaner.threads",
        default=1,
        low=1,
        high=16,
        text="How many logs are compacted at a time. They share log.cleaner.dedupe.buffer.size, of "
        "which each needs 4 MiB, and log.cleaner.io.max.bytes.per.second.",
    ),
    Setting(
        name="log.cleaner.backoff.ms",
        default=15_000,
        low=1,
        text="How long a cleaner thread rests when no log is due, in milliseconds.",
    ),
    Setting(
        name="log.cleaner.dedupe.buffer.size",
        default=134_217_728,
        low=4 * 1024 * 1024,
        high=INT32_MAX,
        text="Most bytes of memory for the keys of all rounds of compaction at a time; a log with "
        "more keys than fit its share takes more rounds.",
    ),
    Setting(
        name="log.cleaner.io.max.bytes.per.second",
        default=1.7976931348623157e308,
        low=1,
        text="Most bytes that compaction reads and writes in a second, all threads together.",
    ),
    Setting(
        name="log.cleaner.io.buffer.size",
        default=524_288,
        low=0,
        high=INT32_MAX,
        is_stored_only=True,
        text="Bytes of the buffers that compaction reads and writes with.",
    ),
    Setting(
        name="log.cleaner.io.buffer.load.factor",
        default=0.9,
        is_stored_only=True,
        text="How full the map of keys may be.",
    ),
    Setting(
        name="remote.log.storage.system.enable",
        default=False,
        is_allowed=lambda is_enabled: not is_enabled,
        rule_text="false, because this broker has no tiered storage",
        text="Whether the broker has tiered storage.",
    ),
    Setting(
        name="replica.alter.log.dirs.io.max.bytes.per.second",
        default=INT64_MAX,
        low=1,
        text="Most bytes that moves between log directories copy in a second, all together.",
    ),
    Setting(
        name="producer.id.expiration.ms",
        default=DAY_MS,
        low=1,
        text="How long the state of an idle producer is kept. A batch that it repeats after that "
        "is appended again.",
    ),
    Setting(
        name="producer.id.expiration.check.interval.ms",
        default=600_000,
        low=1,
        text="How often the broker looks for such producers.",
    ),
)


def _as_broker_setting(setting: Setting) -> Setting:
    name = setting.broker_name or setting.name
    return dataclasses.replace(
        setting, name=name, text=f"Default of the topic setting `{setting.name}`."
    )


TOPIC_DEFAULT_SETTINGS = tuple(_as_broker_setting(setting) for setting in BROKER_DEFAULTED)
BROKER_SETTINGS = OWN_SETTINGS + TOPIC_DEFAULT_SETTINGS
_NAMES = frozenset(setting.name for setting in BROKER_SETTINGS)
_HINTS = {
    topic.name: f"it is of a topic; for all topics it is {broker.name}"
    for topic, broker in zip(BROKER_DEFAULTED, TOPIC_DEFAULT_SETTINGS, strict=True)
}

_COARSER = {
    "log.retention.ms": {"log.retention.minutes": 60_000, "log.retention.hours": 3_600_000},
    "log.roll.ms": {"log.roll.hours": 3_600_000},
    "log.roll.jitter.ms": {"log.roll.jitter.hours": 3_600_000},
}
"""Settings in milliseconds, and the coarser ones that apply if they are not given, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals of the broker's periodic jobs, in milliseconds."""

    initial_delay_ms: int
    checkpoint_ms: int
    log_start_checkpoint_ms: int
    flush_check_ms: int
    retention_check_ms: int
    producer_check_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The typed settings of a broker."""

    directories: tuple[str, ...]
    """The log directories, without duplicates."""
    node_id: int
    host: str
    port: int
    advertised: tuple[str, int] | None
    """Host and port for clients; None: where the broker listens."""
    auto_create_topics: bool
    frame_bytes_max: int
    idle_ms_max: int
    request_memory_bytes_max: int
    connection_limits: ConnectionLimits
    fetch_bytes_max: int
    decompressed_bytes_max: int
    is_durable: bool
    """Whether acks=all waits for the device."""
    recovery_thread_count: int
    """Threads per log directory that open partitions when the broker starts."""
    producer_expiration_ms: int
    move_bytes_per_second: int
    """Rate limit of moves between log directories, all together."""
    cleaner: CleanerConfig
    cleaner_backoff_ms: int | None
    """Pause of the cleaner while no log is due; None: the cleaner is disabled."""
    intervals: Intervals
    topic_defaults: TopicDefaults
    given: Mapping[str, str]
    """The settings that are not left to their defaults, as text, by name."""
    ignored: tuple[str, ...]
    """Names of Kafka's settings that were given and have no effect here."""


def broker_config(texts: Mapping[str, str]) -> BrokerConfig:
    """Typed settings from text; those of Kafka's that have no effect here are only noted.

    Raises:
        ConfigError: all unknown names, values out of range and invalid addresses.
    """
    faults: list[str] = []
    ignored = tuple(name for name in texts if is_ignored(name) and name not in _NAMES)
    given = {name: text for name, text in texts.items() if name not in ignored}
    try:
        values = parse_settings(BROKER_SETTINGS, given, hints=_HINTS, others=IGNORED)
    except ConfigError as error:
        faults += error.faults
        rest = {name: text for name, text in given.items() if _parses(name, text)}
        values = parse_settings(BROKER_SETTINGS, rest)
    (host, port), advertised = plan_addresses(
        str(values["listeners"]),
        str(values["advertised.listeners"]),
        names=_listeners(values),
        faults=faults,
    )
    directories = _directories(values, faults)
    cleaner = _cleaner(values, faults)
    overrides = _overrides(values, faults)
    _check_request_memory(values, faults)
    if faults:
        raise ConfigError(faults)

    def number(name: str) -> int:
        return int(str(values[name]))

    return BrokerConfig(
        directories=directories,
        node_id=number("node.id" if "node.id" in given else "broker.id"),
        host=host,
        port=port,
        advertised=advertised,
        auto_create_topics=bool(values["auto.create.topics.enable"]),
        frame_bytes_max=number("socket.request.max.bytes"),
        idle_ms_max=number("connections.max.idle.ms"),
        request_memory_bytes_max=number("queued.max.request.bytes"),
        connection_limits=ConnectionLimits(
            connections_max=number("max.connections"),
            per_address_max=number("max.connections.per.ip"),
            overrides=overrides,
        ),
        fetch_bytes_max=number("fetch.max.bytes"),
        decompressed_bytes_max=number(DECOMPRESSED_SETTING),
        is_durable=values["tailrace.durability"] == "sync",
        recovery_thread_count=number("num.recovery.threads.per.data.dir"),
        producer_expiration_ms=number("producer.id.expiration.ms"),
        move_bytes_per_second=number("replica.alter.log.dirs.io.max.bytes.per.second"),
        cleaner=cleaner,
        cleaner_backoff_ms=(
            number("log.cleaner.backoff.ms") if values["log.cleaner.enable"] else None
        ),
        intervals=Intervals(
            initial_delay_ms=number("log.initial.task.delay.ms"),
            checkpoint_ms=number("log.flush.offset.checkpoint.interval.ms"),
            log_start_checkpoint_ms=number("log.flush.start.offset.checkpoint.interval.ms"),
            flush_check_ms=number("log.flush.scheduler.interval.ms"),
            retention_check_ms=number("log.retention.check.interval.ms"),
            producer_check_ms=number("producer.id.expiration.check.interval.ms"),
        ),
        topic_defaults=TopicDefaults(
            partition_count=number("num.partitions"),
            replication_factor=number("default.replication.factor"),
            configs=_topic_defaults(given, values),
        ),
        given=given,
        ignored=ignored,
    )


def _topic_defaults(given: Mapping[str, str], values: Mapping[str, Value]) -> dict[str, str]:
    """The given defaults for topics, by the name of the topic setting."""
    named = dict(given)
    for name, coarser in _COARSER.items():
        for other, unit_ms in reversed(coarser.items()):
            if other in given and name not in given:
                count = int(str(values[other]))
                named[name] = str(count * unit_ms if count >= 0 else count)
    return {
        topic.name: named[broker.name]
        for topic, broker in zip(BROKER_DEFAULTED, TOPIC_DEFAULT_SETTINGS, strict=True)
        if broker.name in named
    }


def _cleaner(values: Mapping[str, Value], faults: list[str]) -> CleanerConfig:
    map_bytes_max = int(str(values["log.cleaner.dedupe.buffer.size"]))
    thread_count = int(str(values["log.cleaner.threads"]))
    if map_bytes_max < thread_count * MAP_BYTES_MIN:
        faults.append(
            f"log.cleaner.dedupe.buffer.size is {map_bytes_max}, less than {MAP_BYTES_MIN} bytes "
            f"for each of {thread_count} cleaner threads"
        )
    return CleanerConfig(
        map_bytes_max=map_bytes_max,
        io_bytes_per_second=float(str(values["log.cleaner.io.max.bytes.per.second"])),
        thread_count=thread_count,
    )


def _check_request_memory(values: Mapping[str, Value], faults: list[str]) -> None:
    frame_max, memory_max = values["socket.request.max.bytes"], values["queued.max.request.bytes"]
    if int(str(memory_max)) < int(str(frame_max)):
        faults.append(
            f"queued.max.request.bytes: {memory_max} is less than socket.request.max.bytes, which "
            f"is {frame_max}: no request of that size could ever be read"
        )


def _overrides(values: Mapping[str, Value], faults: list[str]) -> dict[str, int]:
    name = "max.connections.per.ip.overrides"
    given = values[name]
    assert isinstance(given, tuple)
    found = {}
    for each in given:
        host, _, count = each.rpartition(":")
        if not host or not count.isdecimal():
            faults.append(f"{name}: {each!r} is not ADDRESS:COUNT")
        else:
            found[host.strip("[]")] = int(count)
    return found


def _directories(values: Mapping[str, Value], faults: list[str]) -> tuple[str, ...]:
    given = values["log.dirs"]
    assert isinstance(given, tuple)
    directories = given or tuple(part for part in (str(values["log.dir"]),) if part)
    if not directories:
        faults.append("log.dirs: no data directory given; pass --data DIR")
    places = [posixpath.normpath(path) for path in directories]
    for number, place in enumerate(places):
        first = places.index(place)
        if first < number:
            faults.append(
                f"log.dirs: {directories[number]} is there twice (as {directories[first]})"
            )
    return directories


def _listeners(values: Mapping[str, Value]) -> ListenerNames:
    controllers = values["controller.listener.names"]
    protocols = values["listener.security.protocol.map"]
    assert isinstance(controllers, tuple)
    assert isinstance(protocols, tuple)
    return ListenerNames(controllers=controllers, protocols=protocols)


def _parses(name: str, text: str) -> bool:
    try:
        parse_settings([s for s in BROKER_SETTINGS if s.name == name], {name: text})
    except ConfigError:
        return False
    return name in _NAMES
