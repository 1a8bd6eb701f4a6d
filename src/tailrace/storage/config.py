"""Topic settings that shape a log: Kafka's names and defaults, and our own where noted.

All of Kafka's are declared, so that a CreateTopics request written for Kafka is accepted. Settings
that have no effect are marked in the reference (`is_stored_only`).
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from tailrace.config.settings import (
    INT32_MAX,
    INT64_MAX,
    Setting,
    Value,
    field_values,
    parse_settings,
    setting,
    settings_by_key,
    settings_of,
)
from tailrace.errors import ConfigError
from tailrace.model import Codec, TimestampType
from tailrace.records.codecs import LEVELS, Levels
from tailrace.values import dataclass

DAY_MS = 24 * 60 * 60 * 1000
BATCH_HEADER_BYTES = 61
SEGMENT_BYTES_MIN: Final = 1_048_576
"""Least value of `segment.bytes` since Kafka 4.0, which does not start if a topic has less."""

INDEX_BYTES_MIN = 24
"""Two entries of a time index: one for the roll, one before it. Kafka accepts 4, and then rolls
after every record."""

_DELETE = "delete"
_COMPACT = "compact"

_REPLICA = re.compile(r"[0-9]+:[0-9]+")


def _are_replicas(value: Value) -> bool:
    assert isinstance(value, tuple)
    return value == ("*",) or all(_REPLICA.fullmatch(each) for each in value)


# The values of compression.type.
_CODECS: Mapping[str, Codec | None] = {
    "uncompressed": Codec.NONE,
    **{codec.label: codec for codec in reversed(Codec) if codec is not Codec.NONE},
    "producer": None,
}

# The values of message.timestamp.type.
_TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


def level_setting(label: str, levels: Levels) -> Setting:
    """The topic setting for the level of a codec."""
    is_apart = levels.default < levels.low
    advice = f"; {levels.default} for the library's own" if is_apart else ""
    return Setting(
        name=f"compression.{label}.level",
        default=levels.default,
        low=min(levels.low, levels.default),
        high=levels.high,
        is_allowed=levels.__contains__,
        rule_text=str(levels),
        text=f"Level for {label}{advice}.",
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogConfig:
    """The settings of one topic: every topic setting of Apache Kafka 4.3, with Kafka's limits."""

    segment_bytes: int = setting(
        "segment.bytes",
        default=1073741824,
        low=SEGMENT_BYTES_MIN,
        high=INT32_MAX,
        text="Bytes of log after which a segment is closed and a new one begun.",
        broker_name="log.segment.bytes",
    )
    segment_ms: int = setting(
        "segment.ms",
        default=7 * DAY_MS,
        low=1,
        broker_name="log.roll.ms",
        text="Milliseconds after which a segment is closed even if it has room.",
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        default=0,
        low=0,
        broker_name="log.roll.jitter.ms",
        text="Most by which segment.ms is shortened at random.",
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        default=10485760,
        low=4,
        high=INT32_MAX,
        convert=lambda size: max(size, INDEX_BYTES_MIN),
        text="Bytes preallocated for each index of the segment that takes writes; at least 24.",
        broker_name="log.index.size.max.bytes",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        default=4096,
        low=0,
        high=INT32_MAX,
        text="Bytes of log between two index entries.",
        broker_name="log.index.interval.bytes",
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        default=1048588,
        low=0,
        high=INT32_MAX,
        text="Largest batch that is taken, in bytes as sent (compressed).",
        broker_name="message.max.bytes",
    )
    cleanup_policies: tuple[str, ...] = setting(
        "cleanup.policy",
        default=("delete",),
        choices=(_DELETE, _COMPACT),
        text="How old segments make room: whole segments by age and size, or record by record, all "
        "but the last of each key. Under compact a record must have a key.",
        broker_name="log.cleanup.policy",
    )
    timestamp_type: TimestampType = setting(
        "message.timestamp.type",
        default="CreateTime",
        choices=tuple(_TIMESTAMP_TYPES),
        broker_name="log.message.timestamp.type",
        convert=_TIMESTAMP_TYPES.__getitem__,
        text="Whether records keep the producer's timestamp or get the broker's.",
    )
    timestamp_before_ms_max: int = setting(
        "message.timestamp.before.max.ms",
        default=INT64_MAX,
        low=0,
        text="How far a record's timestamp may lie before the broker's clock, in milliseconds.",
        broker_name="log.message.timestamp.before.max.ms",
    )
    timestamp_after_ms_max: int = setting(
        "message.timestamp.after.max.ms",
        default=3600000,
        low=0,
        text="How far a record's timestamp may lie after the broker's clock, in milliseconds.",
        broker_name="log.message.timestamp.after.max.ms",
    )
    retention_ms: int = setting(
        "retention.ms",
        default=7 * DAY_MS,
        low=-1,
        broker_name="log.retention.ms",
        text="Age in milliseconds at which a segment may go; -1 for never.",
    )
    retention_bytes: int = setting(
        "retention.bytes",
        default=-1,
        broker_name="log.retention.bytes",
        text="Bytes per partition above which the oldest segments may go; below 0 for no limit.",
    )
    flush_messages: int = setting(
        "flush.messages",
        default=INT64_MAX,
        low=1,
        text="Records after which the log is flushed to the device.",
        broker_name="log.flush.interval.messages",
    )
    flush_ms: int = setting(
        "flush.ms",
        default=INT64_MAX,
        low=0,
        text="Milliseconds after which the log is flushed to the device.",
        broker_name="log.flush.interval.ms",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        default=DAY_MS,
        low=0,
        text="How long compaction keeps tombstones.",
        broker_name="log.cleaner.delete.retention.ms",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        default=0,
        low=0,
        text="Age below which compaction leaves a record alone.",
        broker_name="log.cleaner.min.compaction.lag.ms",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        default=INT64_MAX,
        low=1,
        text="Age at which a record must have been compacted.",
        broker_name="log.cleaner.max.compaction.lag.ms",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        default=0.5,
        low=0,
        high=1,
        text="Share of uncompacted bytes from which a log is compacted.",
        broker_name="log.cleaner.min.cleanable.ratio",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        default=60000,
        low=0,
        text="How long a removed segment stays on disk under another name.",
        broker_name="log.segment.delete.delay.ms",
    )
    codec: Codec | None = setting(
        "compression.type",
        default="producer",
        choices=tuple(_CODECS),
        convert=_CODECS.__getitem__,
        text="Codec that stored batches have; `producer` keeps what was sent.",
    )
    compression_levels: Mapping[Codec, int] = settings_by_key(
        {codec: level_setting(codec.label, levels) for codec, levels in LEVELS.items()}
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        default=1,
        low=1,
        high=INT32_MAX,
        text="Replicas that must be in sync for acks=all, and have a record before anybody reads "
        "it; a topic with fewer replicas needs all of them.",
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        default=False,
        text="Whether the controller may elect a replica that lags.",
    )
    is_preallocated: bool = setting(
        "preallocate",
        default=False,
        text="Whether a new segment's log file gets its full size at once.",
        broker_name="log.preallocate",
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable",
        default=False,
        is_allowed=lambda is_enabled: not is_enabled,
        rule_text="false, because this broker has no tiered storage",
        is_topic_only=True,
        text="Whether old segments go to tiered storage. This broker has none.",
    )
    local_retention_ms: int = setting(
        "local.retention.ms",
        default=-2,
        low=-2,
        is_stored_only=True,
        broker_name="log.local.retention.ms",
        text="Age at which a segment may go that tiered storage has; -2 for retention.ms.",
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes",
        default=-2,
        low=-2,
        is_stored_only=True,
        broker_name="log.local.retention.bytes",
        text="Bytes above which segments may go that tiered storage has; -2 for retention.bytes.",
    )
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable",
        default=False,
        is_stored_only=True,
        is_topic_only=True,
        text="Whether nothing more is copied to tiered storage.",
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        default=False,
        is_stored_only=True,
        is_topic_only=True,
        text="Whether tiered data goes when tiered storage is turned off.",
    )
    throttled_replicas: Mapping[str, tuple[str, ...]] = settings_by_key(
        {
            role: Setting(
                name=f"{role}.replication.throttled.replicas",
                default=(),
                is_allowed=_are_replicas,
                rule_text="*, or a list of PARTITION:BROKER",
                is_topic_only=True,
                text=f"Replicas that are copied at `{role}.replication.throttled.rate` at most by "
                f"{copier} while they are not in sync; `*` is all. `kafka-reassign-partitions "
                "--throttle` sets it.",
            )
            for role, copier in (("leader", "their leaders"), ("follower", "themselves"))
        }
    )

    @property
    def is_compacted(self) -> bool:
        """Whether every record must have a key."""
        return _COMPACT in self.cleanup_policies

    @property
    def is_deleted_from(self) -> bool:
        """Whether segments go by age and size."""
        return _DELETE in self.cleanup_policies

    @property
    def roll_ms(self) -> int:
        """Milliseconds after which a segment is closed.

        At most `max.compaction.lag.ms` for a compacted log, as an open segment is not compacted.
        """
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms


TOPIC_SETTINGS = settings_of(LogConfig)

SMALL_SEGMENT: Final = Setting(
    name="internal.segment.bytes",
    default=0,
    low=BATCH_HEADER_BYTES,
    high=INT32_MAX,
    text="As `segment.bytes`, over which it goes, without its least value; for tests.",
)
"""A topic setting that Kafka has for its own tests: it takes it, and does not describe it."""

_BY_NAME = {each.name: each for each in (*TOPIC_SETTINGS, SMALL_SEGMENT)}
BROKER_DEFAULTED = tuple(each for each in TOPIC_SETTINGS if not each.is_topic_only)
"""The settings whose default is a broker setting."""


KEPT_MAX: Final = 64
"""Most combinations of settings that are kept: most topics have the same as many others."""
KEPT_CHARACTERS_MAX: Final = 1000


def log_config(given: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> LogConfig:
    """The typed settings: what the topic was given, else the broker's, else Kafka's defaults.

    Raises:
        ConfigError: unknown names and values out of range, all of them; or, if each is right by
            itself, two that contradict each other.
    """
    parse = _log_config if _is_small(given) else _log_config.__wrapped__
    return parse(tuple(given.items()), tuple((defaults or {}).items()))


def stored_log_config(given: Mapping[str, str], defaults: Mapping[str, str]) -> LogConfig:
    """The typed settings, as `log_config`, of a topic that exists; each is usable by itself."""
    try:
        return log_config(given, defaults)
    except ConfigError:
        # Who has checked a topic's settings, as another node's controller, need not know the
        # defaults of this broker, and these may change. As in Kafka the longer lag counts then:
        # nothing is compacted before.
        low = {**defaults, **given}["min.compaction.lag.ms"]
        return log_config({**given, "max.compaction.lag.ms": low}, defaults)


def _is_small(given: Mapping[str, str]) -> bool:
    """Whether settings may be kept: a client may send some of many megabytes."""
    return sum(map(len, given.values())) <= KEPT_CHARACTERS_MAX


@lru_cache(maxsize=KEPT_MAX)
def _log_config(
    given: tuple[tuple[str, str], ...], defaults: tuple[tuple[str, str], ...]
) -> LogConfig:
    named = {**dict(defaults), **dict(given)}
    values = parse_settings(_BY_NAME.values(), named)
    small = values.pop(SMALL_SEGMENT.name)
    if small:
        values["segment.bytes"] = small
    config = LogConfig(**field_values(LogConfig, values))
    low, high = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if high < low:
        raise ConfigError([f"max.compaction.lag.ms is {high}, below min.compaction.lag.ms, {low}"])
    return config


def segment_configs(size_bytes: int) -> dict[str, str]:
    """The setting for segments of this size, which may be below `SEGMENT_BYTES_MIN`."""
    is_small = size_bytes < SEGMENT_BYTES_MIN
    return {SMALL_SEGMENT.name if is_small else "segment.bytes": str(size_bytes)}


def usable_configs(stored: Mapping[str, str]) -> Mapping[str, str]:
    """The stored settings of a topic that this release can act on, as text.

    Another broker may have stored names that are unknown here, or values that are refused here.
    """
    usable = {name: text for name, text in stored.items() if _is_usable(name, text)}
    size = stored.get("segment.bytes", "")
    if "segment.bytes" not in usable and _is_usable(SMALL_SEGMENT.name, size):
        usable.setdefault(SMALL_SEGMENT.name, size)  # An earlier release has stored it so.
    if "max.compaction.lag.ms" in usable:
        try:
            log_config(usable)
        except ConfigError:
            del usable["max.compaction.lag.ms"]
    return usable


@lru_cache(maxsize=4096)
def _is_usable(name: str, text: str) -> bool:
    found = _BY_NAME.get(name)
    try:
        return found is not None and found.parse(text) is not None
    except ValueError:
        return False
