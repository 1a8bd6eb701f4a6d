"""The operator's settings for groups, under Kafka's names."""

from tailrace.config.settings import INT32_MAX, setting, settings_of
from tailrace.values import dataclass

_MINUTE_MS = 60_000


def _minutes(count: int) -> int:
    return count * _MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupSettings:
    """Limits and times of groups; times are in milliseconds."""

    partition_count: int = setting(
        "offsets.topic.num.partitions",
        default=50,
        low=1,
        high=10_000,
        text="Partitions of `__consumer_offsets` when it is created; a group is in one of them.",
    )
    segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        default=104_857_600,
        low=1024,
        high=INT32_MAX,
        text="`segment.bytes` of `__consumer_offsets` when it is created.",
    )
    size_max: int = setting(
        "group.max.size",
        default=INT32_MAX,
        low=1,
        high=INT32_MAX,
        text="Most members of a group.",
    )
    session_timeout_ms_min: int = setting(
        "group.min.session.timeout.ms",
        default=6_000,
        low=0,
        high=INT32_MAX,
        text="Shortest session timeout that a member may ask for.",
    )
    session_timeout_ms_max: int = setting(
        "group.max.session.timeout.ms",
        default=1_800_000,
        low=0,
        high=INT32_MAX,
        text="Longest session timeout that a member may ask for.",
    )
    initial_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        default=3_000,
        low=0,
        high=INT32_MAX,
        text="How long the first member of an empty group waits for others.",
    )
    metadata_characters_max: int = setting(
        "offset.metadata.max.bytes",
        default=4_096,
        low=0,
        high=INT32_MAX,
        text="Most characters of the metadata that a client stores with an offset.",
    )
    commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        default=5_000,
        low=1,
        high=INT32_MAX,
        text="How long a request of a group waits until its records are committed.",
    )
    retention_ms: int = setting(
        "offsets.retention.minutes",
        default=10_080,
        low=1,
        high=INT32_MAX,
        convert=_minutes,
        text="How long an offset stays after its group has become empty, or has left the topic.",
    )
    expiry_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        default=600_000,
        low=1,
        text="How often the broker looks for expired offsets.",
    )
    first_join_timeout_ms: int = 300_000
    """Milliseconds that a new member may wait in its first join; Kafka has no setting for it."""


GROUP_SETTINGS = settings_of(GroupSettings)
