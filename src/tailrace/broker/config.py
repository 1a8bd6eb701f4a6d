"""Settings of the broker: Kafka's names, from a properties file, the command line or keywords.

The broker's defaults for topics (`log.segment.bytes` and so on) are derived from the topic
settings, so that each default and each text is in one place only.
"""

import logging
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tailrace.broker.kraft.settings import (
    FACTOR_MAX,
    KRAFT_SETTINGS,
    ControllerAddress,
    FollowingConfig,
    KRaftConfig,
    LifecycleConfig,
    MetadataFetchConfig,
    parse_controllers,
)
from tailrace.broker.listeners import (
    LISTENER_SETTINGS,
    Listener,
    ListenerConfig,
    connection_limits,
    listener_sasl,
    listener_tls,
    parse_address,
    plan_listeners,
)
from tailrace.broker.roles import OF_BROKERS, are_roles, quorum_faults, settings_without_effect
from tailrace.cluster.control.settings import CONTROL_SETTINGS, ControlConfig
from tailrace.cluster.metadata.folder import METADATA_LOG_SETTINGS, MetadataLogConfig
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.config.foreign import base_name, foreign_reason, foreign_settings
from tailrace.config.providers import PROVIDERS, looked_up
from tailrace.config.settings import (
    INT32_MAX,
    INT64_MAX,
    Setting,
    Value,
    field_values,
    parse_settings,
    setting,
    settings_of,
    suggestion,
)
from tailrace.coordinator.groups import settings as group_settings
from tailrace.coordinator.groups.settings import (
    CONSUMER_SETTINGS,
    GROUP_SETTINGS,
    ConsumerSettings,
    GroupSettings,
)
from tailrace.coordinator.transactions.settings import TRANSACTION_SETTINGS, TransactionSettings
from tailrace.errors import ConfigError
from tailrace.handlers.fetch_sessions import FetchSessionLimits
from tailrace.protocol.frames import FRAME_BYTES_MAX
from tailrace.records.codecs import OUTPUT_SIZE_MAX
from tailrace.records.codecs import SETTING as DECOMPRESSED_SETTING
from tailrace.runtime.log_lines import FORMATS
from tailrace.security.authorizer_config import AUTHORIZER_SETTINGS, AuthorizerConfig
from tailrace.security.listener_config import LISTENER_TLS_SETTINGS, ListenerTlsConfig
from tailrace.security.quotas import QUOTA_SETTINGS, QuotaConfig
from tailrace.security.sasl_config import SASL_SETTINGS, ListenerSaslConfig
from tailrace.server.quotas import ConnectionLimits
from tailrace.storage.cleaner.worker import MAP_BYTES_MIN, CleanerConfig
from tailrace.storage.config import BROKER_DEFAULTED, DAY_MS
from tailrace.values import dataclass, replace

logger = logging.getLogger(__name__)

LOG_FORMAT: Final = "tailrace.log.format"
SUGGESTIONS_AT_START_MAX: Final = 50
"""Most unknown names of a file that get a suggestion: no client has sent them, but a file may be
none of settings."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BrokerConfig:
    """The settings of a broker, and what follows from several of them.

    Without `__eq__` and `__repr__`, which nobody calls and each start would take 0.4 ms to make.
    """

    node_id: int = setting(
        "node.id",
        default=1,
        low=0,
        high=INT32_MAX,
        text="Number of this broker; must be that in the directory's meta.properties.",
    )
    broker_id: int = setting(
        "broker.id",
        default=1,
        low=0,
        high=INT32_MAX,
        text="node.id, where that is not given; both must be the same. (Kafka 4 generates no ids "
        "either, and refuses -1.)",
    )
    process_roles: tuple[str, ...] = setting(
        "process.roles",
        default=("broker", "controller"),
        is_allowed=are_roles,
        rule_text="broker,controller or broker or controller",
        text="Roles of this node. `broker,controller`: it is the only controller of its cluster, "
        "and the only broker; with a listener in `controller.listener.names` others can join. "
        "`broker`: its controllers are other nodes, one of Tailrace or those of an Apache Kafka "
        "cluster. `controller`: it is the only controller of a cluster, and no broker.",
    )
    providers: tuple[str, ...] = setting(
        PROVIDERS,
        default=(),
        text="Names of providers, which are asked for values such as `${file:/run/secrets/a:b}` "
        "when the broker starts; see below.",
    )
    quorum_voters: tuple[str, ...] = setting(
        "controller.quorum.voters",
        default=(),
        text="The voters of the quorum as ID@HOST:PORT. A node that is a controller may name "
        "itself alone.",
    )
    log_dirs: tuple[str, ...] = setting(
        "log.dirs",
        default=(),
        text="Data directories, separated by commas; --data on the command line. A new partition "
        "is created in the directory with the fewest partitions. The first directory also has the "
        "cluster's metadata log, unless metadata.log.dir names another: the broker stops if that "
        "directory fails, and continues without any other.",
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        "cordoned.log.dirs",
        default=(),
        text="Directories of log.dirs that get no new logs, or * for all of them; what is in them "
        "stays in service. Controllers place nothing on a broker whose directories are all "
        "cordoned (KIP-1066).",
    )
    log_dir: str = setting(
        "log.dir",
        default="",
        text="A single data directory, where log.dirs is not given.",
    )
    metadata_log_dir: str = setting(
        "metadata.log.dir",
        default="",
        text="The directory of the cluster's metadata log: one of log.dirs, or one of its own that "
        "gets no partitions. The first of log.dirs if empty.",
    )
    is_durable: bool = setting(
        "tailrace.durability",
        default="page-cache",
        choices=("page-cache", "sync"),
        convert=lambda text: text == "sync",
        text="What acks=all means. `page-cache`: the operating system has the records, as in "
        "Kafka; a killed broker loses nothing, a machine without power may lose the tail. `sync`: "
        "the records are on the device.",
    )
    http_listener: tuple[str, int] | None = setting(
        "tailrace.http.listener",
        default="",
        convert=lambda text: parse_address(text) if text else None,
        is_allowed=lambda text: not text or _is_address(text),
        rule_text="HOST:PORT, or empty",
        text="HOST:PORT on which metrics for Prometheus (/metrics) and health (/healthz, /readyz) "
        "are answered by HTTP, without a login, from the start of the process on; port 0: a free "
        "one. Empty: nowhere.",
    )
    has_opentelemetry: bool = setting(
        "tailrace.opentelemetry.metrics",
        default=False,
        text="Whether the metrics are instruments of OpenTelemetry too, which "
        "`opentelemetry-instrument tailrace serve` exports; needs `tailrace[otel]`.",
    )
    shutdown_timeout_ms: int = setting(
        "tailrace.shutdown.timeout.ms",
        default=30_000,
        low=1000,
        high=INT32_MAX,
        text="Longest time of a stop. For half of it the node waits until other brokers lead its "
        "partitions, with `controlled.shutdown.enable`; at its end the process ends as if it was "
        "killed, and the next start recovers. (Kafka waits for other leaders for 5 minutes, and "
        "then without a limit.)",
    )
    # Read by the command line, before the settings are checked.
    log_format: str = setting(
        LOG_FORMAT,
        default="text",
        choices=FORMATS,
        text="Lines of the log, one for each event: `text` for people, or `json`; --log-format on "
        "the command line.",
    )
    slow_request_ms: int = setting(
        "tailrace.slow.request.ms",
        default=1000,
        low=-1,
        high=INT32_MAX,
        text="A request that took longer has a line in the log that says where its time went, "
        "without what it waits on purpose: for records, for members of a group, for a quota. -1: "
        "none has.",
    )
    # Four bytes of Zstandard can stand for 128 KiB, and a client chooses what it sends.
    decompressed_bytes_max: int = setting(
        DECOMPRESSED_SETTING,
        default=OUTPUT_SIZE_MAX,
        low=1024 * 1024,
        high=INT32_MAX,
        text="Most bytes that a batch may decompress to; one that gives more is refused as "
        "MESSAGE_TOO_LARGE, and what is in a log already is not read. Kafka has no such limit. "
        "Commands, programs and Spark have options of their own: see reading.md.",
    )
    recovery_thread_count: int = setting(
        "num.recovery.threads.per.data.dir",
        default=2,
        low=1,
        high=32,
        text="How many partitions of each data directory are opened at a time when the broker "
        "starts.",
    )
    partition_count: int = setting(
        "num.partitions",
        default=1,
        low=1,
        high=10_000,
        text="Partitions of a topic that was created without a number.",
    )
    replication_factor: int = setting(
        "default.replication.factor",
        default=1,
        low=1,
        high=FACTOR_MAX,
        text="Replicas of a topic that was created without a number; 1 where this broker is its "
        "own controller, and the only one.",
    )
    auto_create_topics: bool = setting(
        "auto.create.topics.enable",
        default=True,
        text="Whether asking for a topic that does not exist creates it.",
    )
    can_delete_topics: bool = setting(
        "delete.topic.enable",
        default=True,
        text="Whether DeleteTopics deletes; else each topic is TOPIC_DELETION_DISABLED.",
    )
    frame_bytes_max: int = setting(
        "socket.request.max.bytes",
        default=FRAME_BYTES_MAX,
        low=1,
        high=INT32_MAX,
        text="Largest produce request in bytes; other requests have a lower limit of their own.",
    )
    request_memory_bytes_max: int = setting(
        "queued.max.request.bytes",
        default=256 * 1024 * 1024,
        convert=lambda bytes_max: bytes_max if bytes_max > 0 else INT64_MAX,
        text="Most bytes of memory for the requests of all connections that are larger than 64 "
        "KiB, and for the objects that others than Produce above 16 KiB are decoded to; at least "
        "socket.request.max.bytes. A request that finds none left waits. While one waits, "
        "connections are closed that hold memory and hardly send, or have been answered for 10 s. "
        "0 or less: no limit, which is Kafka's default.",
    )
    idle_ms_max: int = setting(
        "connections.max.idle.ms",
        default=600_000,
        is_allowed=lambda idle_ms: idle_ms != 0,
        rule_text="1 or more, or negative",
        convert=lambda idle_ms: idle_ms if idle_ms > 0 else INT64_MAX,
        text="How long a connection may be silent before the broker closes it, also while one of "
        "its requests waits to be answered, as in Kafka; negative: for ever. A fetch waits half as "
        "long at most.",
    )
    fetch_bytes_max: int = setting(
        "fetch.max.bytes",
        default=55 * 1024 * 1024,
        low=1024,
        high=INT32_MAX,
        text="Most bytes of records in one fetch response; one batch may be larger.",
    )
    # A session keeps its partitions in memory, and a client that crashes does not close it
    # (KIP-227).
    fetch_session_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        default=1000,
        low=0,
        high=INT32_MAX,
        text="Most fetch sessions at a time; a client that gets none sends all of its partitions "
        "with every fetch.",
    )
    fetch_session_eviction_ms: int = setting(
        "min.incremental.fetch.session.eviction.ms",
        default=120_000,
        low=0,
        text="How long a fetch session must exist, or be unused, before another one may replace "
        "it.",
    )
    # Metadata has no such limit; this API, which answers in parts, came with KIP-966.
    partitions_per_answer_max: int = setting(
        "max.request.partition.size.limit",
        default=2000,
        low=1,
        high=INT32_MAX,
        text="Most partitions in one answer to DescribeTopicPartitions.",
    )
    # Also how much a start after a crash has to read: all since the last recovery point.
    checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        default=60_000,
        low=1,
        high=INT32_MAX,
        text="How often closed segments are flushed and the recovery points written.",
    )
    start_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        default=60_000,
        low=1,
        high=INT32_MAX,
        text="How often the log start offsets are written.",
    )
    flush_check_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        default=1000,
        low=1,
        text="How often the broker looks for logs whose flush.ms has passed. (In Kafka the default "
        "is never, so that flush.ms alone has no effect there.)",
    )
    retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        default=300_000,
        low=1,
        text="How often the broker looks for segments that retention.ms, retention.bytes and "
        "DeleteRecords no longer keep.",
    )
    # Kafka has the retention time in three units and the times of `log.roll` in two. The finest
    # that is given counts (`COARSER`).
    log_retention_hours: int = setting(
        "log.retention.hours",
        default=168,
        low=-1,
        high=INT32_MAX,
        text="log.retention.ms in hours; counts where neither that nor the minutes are given.",
    )
    log_retention_minutes: int = setting(
        "log.retention.minutes",
        default=10_080,
        low=-1,
        high=INT32_MAX,
        text="log.retention.ms in minutes; counts where that is not given.",
    )
    log_roll_hours: int = setting(
        "log.roll.hours",
        default=168,
        low=1,
        high=INT32_MAX,
        text="log.roll.ms in hours; counts where that is not given.",
    )
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours",
        default=0,
        low=0,
        high=INT32_MAX,
        text="log.roll.jitter.ms in hours; counts where that is not given.",
    )
    initial_delay_ms: int = setting(
        "log.initial.task.delay.ms",
        default=30_000,
        low=0,
        text="How long after its start the broker checks for the first time for retention, flushes "
        "and checkpoints that are due.",
    )
    is_cleaner_enabled: bool = setting(
        "log.cleaner.enable",
        default=True,
        text="Whether logs with the policy compact are compacted.",
    )
    cleaner_thread_count: int = setting(
        "log.cleaner.threads",
        default=1,
        low=1,
        high=16,
        text="How many logs are compacted at a time. They share log.cleaner.dedupe.buffer.size, of "
        "which each needs 4 MiB, and log.cleaner.io.max.bytes.per.second.",
    )
    cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        default=15_000,
        low=1,
        text="How long a cleaner thread rests when no log is due, in milliseconds.",
    )
    cleaner_map_bytes_max: int = setting(
        "log.cleaner.dedupe.buffer.size",
        default=134_217_728,
        low=4 * 1024 * 1024,
        high=INT32_MAX,
        text="Most bytes of memory for the keys of all rounds of compaction at a time; a log with "
        "more keys than fit its share takes more rounds.",
    )
    cleaner_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        default=1.7976931348623157e308,
        low=1,
        text="Most bytes that compaction reads and writes in a second, all threads together.",
    )
    cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size",
        default=524_288,
        low=0,
        high=INT32_MAX,
        is_stored_only=True,
        text="Bytes of the buffers that compaction reads and writes with.",
    )
    cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        default=0.9,
        is_stored_only=True,
        text="How full the map of keys may be.",
    )
    remote_log_storage_system_enable: bool = setting(
        "remote.log.storage.system.enable",
        default=False,
        is_allowed=lambda is_enabled: not is_enabled,
        rule_text="false, because this broker has no tiered storage",
        text="Whether the broker has tiered storage.",
    )
    move_bytes_per_second: int = setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        default=INT64_MAX,
        low=1,
        text="Most bytes that moves between log directories copy in a second, all together.",
    )
    # Each producer without transactional id gets another id at its start, so ids only add up.
    producer_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        default=DAY_MS,
        low=1,
        high=INT32_MAX,
        text="How long the state of an idle producer is kept. A batch that it repeats after that "
        "is appended again.",
    )
    producer_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms",
        default=600_000,
        low=1,
        high=INT32_MAX,
        text="How often the broker looks for such producers.",
    )

    directories: tuple[str, ...]
    """The log directories, without duplicates."""
    metadata_directory: str
    """The directory of the metadata log: one of `directories`, or one of its own."""
    listeners: tuple[Listener, ...]
    """The listeners of clients and brokers; at least one."""
    inter_broker_listener: str
    """The name of the listener by which other brokers reach this one."""
    controller_listener: Listener | None
    """The listener of the node's controller; None where it is none."""
    controllers_listener: str
    """The name of the listener by which controllers are reached; empty without any."""
    listener_tls: Mapping[str, ListenerTlsConfig]
    """The settings of encrypted listeners, by name: of this node, and that of controllers."""
    listener_sasl: Mapping[str, ListenerSaslConfig]
    """The logins of listeners that ask for one, by name, likewise."""
    connection_limits: ConnectionLimits
    access: AuthorizerConfig
    control: ControlConfig
    topic_defaults: TopicDefaults
    groups: GroupSettings
    consumer_groups: ConsumerSettings
    transactions: TransactionSettings
    metadata_log: MetadataLogConfig
    kraft: KRaftConfig
    quotas: QuotaConfig
    lifecycle: LifecycleConfig
    metadata_fetch: MetadataFetchConfig
    following: FollowingConfig
    controllers: tuple[ControllerAddress, ...]
    """The controllers to ask first; none where the only one is in this process."""
    given: Mapping[str, str]
    """The settings that are not left to their defaults, as text, by name."""
    ignored: Mapping[str, str]
    """Kafka's settings that were given and have no effect here, as text, by name."""

    @property
    def has_controllers(self) -> bool:
        """Whether it is a broker that registers with controllers: on other nodes, or its own."""
        return self.is_broker and (
            "controller" not in self.process_roles or self.controller_listener is not None
        )

    @property
    def peer_listeners(self) -> tuple[str, ...]:
        """Names of the listeners of other nodes to which this one connects, as a broker."""
        if not self.has_controllers:
            return ()
        return tuple(dict.fromkeys((self.inter_broker_listener, self.controllers_listener)))

    def protocol_number(self, listener: str) -> int:
        """Kafka's number of the security protocol of one of `listeners`."""
        return next(each.protocol_number for each in self.listeners if each.name == listener)

    @property
    def is_broker(self) -> bool:
        """Whether the node serves clients."""
        return "broker" in self.process_roles

    @property
    def cordoned_directories(self) -> tuple[str, ...]:
        """The part of `directories` that gets no new logs."""
        return self.directories if "*" in self.cordoned_log_dirs else self.cordoned_log_dirs

    @property
    def cleaner(self) -> CleanerConfig:
        """The limits of the log cleaner."""
        return CleanerConfig(
            map_bytes_max=self.cleaner_map_bytes_max,
            io_bytes_per_second=self.cleaner_bytes_per_second,
            thread_count=self.cleaner_thread_count,
        )

    @property
    def fetch_sessions(self) -> FetchSessionLimits:
        """The limits of fetch sessions."""
        return FetchSessionLimits(
            slot_count=self.fetch_session_slots, eviction_s=self.fetch_session_eviction_ms / 1000
        )


OWN_SETTINGS = settings_of(BrokerConfig)


def _as_broker_setting(topic: Setting) -> Setting:
    name = topic.broker_name or topic.name
    return replace(topic, name=name, text=f"Default of the topic setting `{topic.name}`.")


TOPIC_DEFAULT_SETTINGS = tuple(_as_broker_setting(each) for each in BROKER_DEFAULTED)
BROKER_SETTINGS = (
    *OWN_SETTINGS,
    *LISTENER_SETTINGS,
    *LISTENER_TLS_SETTINGS,
    *SASL_SETTINGS,
    *AUTHORIZER_SETTINGS,
    *GROUP_SETTINGS,
    *CONSUMER_SETTINGS,
    *TRANSACTION_SETTINGS,
    *METADATA_LOG_SETTINGS,
    *(each for each in CONTROL_SETTINGS if each.name not in OF_BROKERS),
    *KRAFT_SETTINGS,
    *QUOTA_SETTINGS,
    *TOPIC_DEFAULT_SETTINGS,
)
_NAMES = frozenset(each.name for each in BROKER_SETTINGS)
_HINTS = {
    topic.name: f"it is of a topic; for all topics it is {broker.name}"
    for topic, broker in zip(BROKER_DEFAULTED, TOPIC_DEFAULT_SETTINGS, strict=True)
}

COARSER = {
    "log.retention.ms": {"log.retention.minutes": 60_000, "log.retention.hours": 3_600_000},
    "log.roll.ms": {"log.roll.hours": 3_600_000},
    "log.roll.jitter.ms": {"log.roll.jitter.hours": 3_600_000},
}
"""Settings in milliseconds, and the coarser ones that apply if they are not given, in order."""


def broker_config(texts: Mapping[str, str]) -> BrokerConfig:
    """Typed settings from text; those of Kafka's that have no effect here are only noted.

    Values that others refer to are looked up (`config.providers`), and are in no error.

    Raises:
        ConfigError: all unknown names, values out of range and invalid addresses.
    """
    faults: list[str] = []
    found = looked_up(texts, faults=faults)
    try:
        return parsed_config(found.texts, faults)
    except ConfigError as error:
        raise ConfigError(found.hidden(error.faults)) from None


def parsed_config(texts: Mapping[str, str], more: Iterable[str] = ()) -> BrokerConfig:
    """Typed settings from texts that are taken as they are; `more` are faults of theirs.

    Raises:
        ConfigError: as `broker_config`.
    """
    faults = list(more)
    without_effect = settings_without_effect(texts)
    ignored = {
        name: text
        for name, text in texts.items()
        if name in without_effect or (name not in _NAMES and _is_foreign(name))
    }
    # Only those that have an effect are parsed: the others may have any value that Kafka allows.
    given = {name: text for name, text in texts.items() if name not in ignored}
    hints = {**_HINTS, **_listener_hints(given)}
    values = parse_settings(
        BROKER_SETTINGS,
        given,
        hints=hints,
        others=foreign_settings,
        faults=faults,
        suggestions_max=SUGGESTIONS_AT_START_MAX,
    )
    own = field_values(BrokerConfig, values)
    if "node.id" not in given:
        own["node_id"] = own["broker_id"]
    elif "broker.id" not in given:
        own["broker_id"] = own["node_id"]
    listener_config = ListenerConfig(**field_values(ListenerConfig, values))
    roles = own["process_roles"]
    listeners = plan_listeners(listener_config, given, roles=roles, faults=faults)
    # Those of listeners that there are not are Kafka's to ignore, too.
    for name in listeners.setting_names() & ignored.keys():
        given[name] = ignored.pop(name)
    directories = _directories(own["log_dirs"], own["log_dir"], faults)
    kraft = KRaftConfig(**field_values(KRaftConfig, values))
    controllers: tuple[ControllerAddress, ...] = ()
    if roles == ("broker",):
        try:
            controllers = parse_controllers(own["quorum_voters"], kraft.bootstrap_servers)
        except ValueError as error:
            faults.append(f"controllers of the quorum: {error}")
    config = BrokerConfig(
        **own,
        directories=directories,
        metadata_directory=_metadata_directory(directories, own["metadata_log_dir"]),
        listeners=listeners.all,
        inter_broker_listener=listeners.inter_broker,
        controller_listener=listeners.controller,
        controllers_listener=(
            "" if listeners.to_controllers is None else listeners.to_controllers.name
        ),
        listener_tls=listener_tls(listeners, given, faults=faults),
        listener_sasl=listener_sasl(listeners, given, roles=roles, faults=faults),
        connection_limits=connection_limits(listener_config, listeners, given, faults=faults),
        access=AuthorizerConfig(**field_values(AuthorizerConfig, values)),
        control=ControlConfig(**field_values(ControlConfig, values)),
        topic_defaults=TopicDefaults(
            partition_count=own["partition_count"],
            replication_factor=own["replication_factor"],
            given=_topic_defaults(given, values),
        ),
        groups=GroupSettings(**field_values(GroupSettings, values)),
        consumer_groups=ConsumerSettings(**field_values(ConsumerSettings, values)),
        transactions=TransactionSettings(**field_values(TransactionSettings, values)),
        metadata_log=MetadataLogConfig(**field_values(MetadataLogConfig, values)),
        kraft=kraft,
        quotas=QuotaConfig(**field_values(QuotaConfig, values)),
        metadata_fetch=MetadataFetchConfig(**field_values(MetadataFetchConfig, values)),
        lifecycle=LifecycleConfig(**field_values(LifecycleConfig, values)),
        following=FollowingConfig(**field_values(FollowingConfig, values)),
        controllers=controllers,
        given=given,
        ignored=ignored,
    )
    faults += _contradictions(config)
    if faults:
        # A setting of all listeners is parsed for each of them.
        raise ConfigError(list(dict.fromkeys(faults)))
    return config


def _is_address(text: Value) -> bool:
    try:
        parse_address(str(text))
    except ValueError:
        return False
    return True


def _listener_hints(given: Iterable[str]) -> dict[str, str]:
    """Questions about settings of listeners that are none."""
    found = {}
    # Only some, as of other unknown names: each search takes its time.
    for name in [each for each in given if base_name(each) != each][:SUGGESTIONS_AT_START_MAX]:
        base = base_name(name)
        question = suggestion(base, (*_NAMES, *foreign_settings()))
        found[name] = question.replace("mean ", f"mean {name.removesuffix(base)}", 1)
    return found


def _is_foreign(name: str) -> bool:
    """Whether it is a setting of Kafka's that has no effect here, or has none for one listener."""
    return foreign_reason(name) is not None or (name != base_name(name) in _NAMES)


CORDONED: Final = "cordoned.log.dirs"


def _topic_defaults(given: Mapping[str, str], values: Mapping[str, Value]) -> dict[str, str]:
    """The given defaults for topics, by the name of the topic setting."""
    named = dict(given)
    for name, coarser in COARSER.items():
        for other, unit_ms in reversed(coarser.items()):
            if other in given and name not in given:
                # -1 means no limit in every unit.
                count = int(str(values[other]))
                named[name] = str(count * unit_ms if count >= 0 else count)
    return {
        topic.name: named[broker.name]
        for topic, broker in zip(BROKER_DEFAULTED, TOPIC_DEFAULT_SETTINGS, strict=True)
        if broker.name in named
    }


def _contradictions(config: BrokerConfig) -> Iterator[str]:
    """Sentences about settings that contradict each other."""
    if config.node_id != config.broker_id:
        yield (
            "You must set `node.id` to the same value as `broker.id`: they are "
            f"{config.node_id} and {config.broker_id}"
        )
    yield from quorum_faults(config)
    yield from _cordon_faults(config)
    map_bytes_max, thread_count = config.cleaner_map_bytes_max, config.cleaner_thread_count
    if map_bytes_max < thread_count * MAP_BYTES_MIN:
        yield (
            f"log.cleaner.dedupe.buffer.size is {map_bytes_max}, less than {MAP_BYTES_MIN} bytes "
            f"for each of {thread_count} cleaner threads"
        )
    if config.request_memory_bytes_max < config.frame_bytes_max:
        yield (
            f"queued.max.request.bytes: {config.request_memory_bytes_max} is less than "
            f"socket.request.max.bytes, which is {config.frame_bytes_max}: no request of that size "
            "could ever be read"
        )
    yield from group_settings.contradictions(config.consumer_groups)


def _cordon_faults(config: BrokerConfig) -> Iterator[str]:
    named = config.cordoned_log_dirs
    if "*" in named:
        if len(named) > 1:
            yield f"{CORDONED}: * is all directories, and others are named beside it"
        return
    missing = [each for each in named if each not in config.directories]
    if missing:
        yield f"{CORDONED}: {','.join(missing)} must be entries of log.dirs or log.dir"
    if len(set(named)) < len(named):
        yield f"{CORDONED}: a directory is named twice"


def _metadata_directory(directories: Sequence[str], given: str) -> str:
    """The directory of the metadata log, in the spelling of `directories` if they have it."""
    place = posixpath.normpath(given) if given else ""
    found = (each for each in directories if not given or posixpath.normpath(each) == place)
    return next(found, given)


def _directories(many: tuple[str, ...], one: str, faults: list[str]) -> tuple[str, ...]:
    directories = many or tuple(filter(None, [one]))
    if not directories:
        faults.append("log.dirs: no data directory given; pass --data DIR")
    # Two spellings of one directory would be locked twice, and refused as in use by another broker.
    places = [posixpath.normpath(path) for path in directories]
    for number, place in enumerate(places):
        first = places.index(place)
        if first < number:
            faults.append(
                f"log.dirs: {directories[number]} is there twice (as {directories[first]})"
            )
    return directories
