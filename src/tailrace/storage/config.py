"""Topic settings that shape a log: Kafka's names and defaults, and our own where noted.

Declared whole, so that a CreateTopics request written for Kafka is understood; those whose
machinery is not built yet say so in the reference (`is_stored_only`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.config.settings import INT32_MAX, INT64_MAX, Setting, Value, parse_settings
from tailrace.model import CleanupPolicy, TimestampType

DAY_MS = 24 * 60 * 60 * 1000
BATCH_HEADER_BYTES = 61

TOPIC_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="segment.bytes",
        kind="int",
        default=1073741824,
        low=BATCH_HEADER_BYTES,
        high=INT32_MAX,
        text="Bytes of log after which a segment is closed and a new one begun.",
        broker_name="log.segment.bytes",
    ),
    Setting(
        name="segment.ms",
        kind="int",
        default=7 * DAY_MS,
        low=1,
        broker_name="log.roll.ms",
        text="Milliseconds after which a segment is closed even if it has room.",
        is_stored_only=True,
    ),
    Setting(
        name="segment.jitter.ms",
        kind="int",
        default=0,
        low=0,
        broker_name="log.roll.jitter.ms",
        text="Most by which segment.ms is shortened at random.",
        is_stored_only=True,
    ),
    Setting(
        name="segment.index.bytes",
        kind="int",
        default=10485760,
        low=24,
        high=INT32_MAX,
        text="Bytes preallocated for each index of the segment that takes writes.",
        broker_name="log.index.size.max.bytes",
    ),
    Setting(
        name="index.interval.bytes",
        kind="int",
        default=4096,
        low=0,
        high=INT32_MAX,
        text="Bytes of log between two index entries.",
        broker_name="log.index.interval.bytes",
    ),
    Setting(
        name="max.message.bytes",
        kind="int",
        default=1048588,
        low=0,
        high=INT32_MAX,
        text="Largest batch that is taken, in bytes as sent (compressed).",
        broker_name="message.max.bytes",
    ),
    Setting(
        name="cleanup.policy",
        kind="list",
        default=("delete",),
        choices=("delete", "compact"),
        text="How old segments make room. Under compact a record must have a key; "
        "retention and compaction themselves are not built yet.",
        broker_name="log.cleanup.policy",
    ),
    Setting(
        name="message.timestamp.type",
        kind="string",
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        broker_name="log.message.timestamp.type",
        text="Whether records keep the producer's timestamp or get the broker's.",
    ),
    Setting(
        name="message.timestamp.before.max.ms",
        kind="int",
        default=INT64_MAX,
        low=0,
        text="How far a record's timestamp may lie before the broker's clock, in milliseconds.",
        broker_name="log.message.timestamp.before.max.ms",
    ),
    Setting(
        name="message.timestamp.after.max.ms",
        kind="int",
        default=3600000,
        low=0,
        text="How far a record's timestamp may lie after the broker's clock, in milliseconds.",
        broker_name="log.message.timestamp.after.max.ms",
    ),
    Setting(
        name="retention.ms",
        kind="int",
        default=7 * DAY_MS,
        low=-1,
        broker_name="log.retention.ms",
        text="Age in milliseconds at which a segment may go; -1 for never.",
        is_stored_only=True,
    ),
    Setting(
        name="retention.bytes",
        kind="int",
        default=-1,
        low=-1,
        broker_name="log.retention.bytes",
        text="Bytes per partition above which the oldest segments may go; -1 for no limit.",
        is_stored_only=True,
    ),
    Setting(
        name="flush.messages",
        kind="int",
        default=INT64_MAX,
        low=1,
        is_stored_only=True,
        text="Records after which the log is flushed to the device.",
        broker_name="log.flush.interval.messages",
    ),
    Setting(
        name="flush.ms",
        kind="int",
        default=INT64_MAX,
        low=0,
        is_stored_only=True,
        text="Milliseconds after which the log is flushed to the device.",
        broker_name="log.flush.interval.ms",
    ),
    Setting(
        name="delete.retention.ms",
        kind="int",
        default=DAY_MS,
        low=0,
        is_stored_only=True,
        text="How long compaction keeps tombstones.",
        broker_name="log.cleaner.delete.retention.ms",
    ),
    Setting(
        name="min.compaction.lag.ms",
        kind="int",
        default=0,
        low=0,
        is_stored_only=True,
        text="Age below which compaction leaves a record alone.",
        broker_name="log.cleaner.min.compaction.lag.ms",
    ),
    Setting(
        name="max.compaction.lag.ms",
        kind="int",
        default=INT64_MAX,
        low=1,
        is_stored_only=True,
        text="Age at which a record must have been compacted.",
        broker_name="log.cleaner.max.compaction.lag.ms",
    ),
    Setting(
        name="min.cleanable.dirty.ratio",
        kind="float",
        default=0.5,
        low=0,
        high=1,
        text="Share of uncompacted bytes from which a log is compacted.",
        is_stored_only=True,
        broker_name="log.cleaner.min.cleanable.ratio",
    ),
    Setting(
        name="file.delete.delay.ms",
        kind="int",
        default=60000,
        low=0,
        is_stored_only=True,
        text="How long a removed segment stays on disk under another name.",
        broker_name="log.segment.delete.delay.ms",
    ),
    Setting(
        name="compression.type",
        kind="string",
        default="producer",
        is_stored_only=True,
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        text="Codec that stored batches have; `producer` keeps what was sent.",
    ),
    Setting(
        name="compression.gzip.level",
        kind="int",
        default=-1,
        low=-1,
        high=9,
        is_stored_only=True,
        text="Level for gzip; -1 for the library's own.",
    ),
    Setting(
        name="compression.lz4.level",
        kind="int",
        default=9,
        low=1,
        high=17,
        is_stored_only=True,
        text="Level for lz4.",
    ),
    Setting(
        name="compression.zstd.level",
        kind="int",
        default=3,
        low=-131072,
        high=22,
        text="Level for zstd.",
        is_stored_only=True,
    ),
    Setting(
        name="min.insync.replicas",
        kind="int",
        default=1,
        low=1,
        is_stored_only=True,
        text="Replicas that must have a record before acks=all is answered.",
    ),
    Setting(
        name="unclean.leader.election.enable",
        kind="bool",
        default=False,
        is_stored_only=True,
        text="Whether a replica that lags may become leader.",
    ),
    Setting(
        name="preallocate",
        kind="bool",
        default=False,
        is_stored_only=True,
        text="Whether a new segment's log file gets its full size at once.",
        broker_name="log.preallocate",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one topic that its logs act on."""

    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    cleanup_policies: frozenset[CleanupPolicy]
    timestamp_type: TimestampType
    timestamp_before_ms_max: int
    timestamp_after_ms_max: int

    @property
    def is_compacted(self) -> bool:
        """Whether every record must have a key."""
        return CleanupPolicy.COMPACT in self.cleanup_policies


def topic_values(given: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, Value]:
    """Every topic setting: what the topic was given, else the broker's, else Kafka's default.

    Raises:
        ConfigError: unknown names and values out of range, all of them.
    """
    return parse_settings(TOPIC_SETTINGS, {**defaults, **given})


def log_config(given: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> LogConfig:
    """The typed settings of a topic; see `topic_values`.

    Raises:
        ConfigError: unknown names and values out of range, all of them.
    """
    values = topic_values(given, defaults or {})

    def number(name: str) -> int:
        value = values[name]
        assert isinstance(value, int)
        return value

    policies = values["cleanup.policy"]
    assert isinstance(policies, tuple)
    is_append_time = values["message.timestamp.type"] == "LogAppendTime"
    return LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_index_bytes=number("segment.index.bytes"),
        index_interval_bytes=number("index.interval.bytes"),
        max_message_bytes=number("max.message.bytes"),
        cleanup_policies=frozenset(CleanupPolicy(policy) for policy in policies),
        timestamp_type=TimestampType.LOG_APPEND_TIME
        if is_append_time
        else TimestampType.CREATE_TIME,
        timestamp_before_ms_max=number("message.timestamp.before.max.ms"),
        timestamp_after_ms_max=number("message.timestamp.after.max.ms"),
    )
