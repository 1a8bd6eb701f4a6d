"""The settings of groups, under Kafka's names: the operator's, and those of single groups.

A consumer group has the broker's setting where it has none of its own (resource type GROUP). Its
own has to lie between the limits of the broker when it is set; if the operator changes these
afterwards, the nearest limit counts.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from tailrace.config.foreign import FOREIGN_OF_GROUPS
from tailrace.config.settings import INT32_MAX, field_values, parse_settings, setting, settings_of
from tailrace.errors import ConfigError
from tailrace.values import dataclass, replace

_MINUTE_MS: Final = 60_000
_PROTOCOLS: Final = {"classic", "consumer", "share", "streams"}


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
    replication_factor: int = setting(
        "offsets.topic.replication.factor",
        default=3,
        low=1,
        high=(1 << 15) - 1,
        text="Replicas of `__consumer_offsets` when a broker of a cluster has it created; a node "
        "that is its own controller has one.",
    )
    # A tenth of what a topic has, as in Kafka: only closed segments are compacted, and each load
    # reads all that is not.
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
    # Consumers that are deployed together come within seconds. Without a delay the first of them
    # would get all partitions, and each other one would cost a rebalance (KIP-134).
    initial_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        default=3_000,
        low=0,
        high=INT32_MAX,
        text="How long the first member of an empty group waits for others.",
    )
    # Kafka's name says bytes, and its check counts characters.
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
    # Seven days: with one day a group that rests over a weekend began from nothing (KIP-186).
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConsumerSettings:
    """Limits and times of one consumer group; times are in milliseconds."""

    is_served: bool = setting(
        "group.coordinator.rebalance.protocols",
        default=("classic", "consumer", "streams"),
        convert=lambda names: "consumer" in names,
        is_allowed=lambda names: {"classic"} <= set(names) <= _PROTOCOLS,  # type: ignore[arg-type]
        rule_text="classic, and any of consumer, share and streams",
        text="The protocols of groups. Without `consumer` its requests get UNSUPPORTED_VERSION. "
        "There are no share groups and no streams groups here, whether they are named or not.",
    )
    size_max: int = setting(
        "group.consumer.max.size",
        default=INT32_MAX,
        low=1,
        high=INT32_MAX,
        text="Most members of a consumer group.",
    )
    session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        default=45_000,
        low=1,
        high=INT32_MAX,
        text="A member of a consumer group that is silent for so long is removed.",
    )
    session_timeout_ms_min: int = setting(
        "group.consumer.min.session.timeout.ms",
        default=45_000,
        low=1,
        high=INT32_MAX,
        text="Lower limit of group.consumer.session.timeout.ms.",
    )
    session_timeout_ms_max: int = setting(
        "group.consumer.max.session.timeout.ms",
        default=60_000,
        low=1,
        high=INT32_MAX,
        text="Upper limit of group.consumer.session.timeout.ms.",
    )
    heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        default=5_000,
        low=1,
        high=INT32_MAX,
        text="Time between two heartbeats of a member of a consumer group.",
    )
    heartbeat_interval_ms_min: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        default=5_000,
        low=1,
        high=INT32_MAX,
        text="Lower limit of group.consumer.heartbeat.interval.ms.",
    )
    heartbeat_interval_ms_max: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        default=15_000,
        low=1,
        high=INT32_MAX,
        text="Upper limit of group.consumer.heartbeat.interval.ms.",
    )
    assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        default=1_000,
        low=0,
        high=INT32_MAX,
        text="Least time between two target assignments of a consumer group.",
    )
    assignment_interval_ms_min: int = setting(
        "group.consumer.min.assignment.interval.ms",
        default=0,
        low=0,
        high=INT32_MAX,
        text="Lower limit of group.consumer.assignment.interval.ms.",
    )
    assignment_interval_ms_max: int = setting(
        "group.consumer.max.assignment.interval.ms",
        default=15_000,
        low=0,
        high=INT32_MAX,
        text="Upper limit of group.consumer.assignment.interval.ms.",
    )
    assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        default=("uniform", "range"),
        is_allowed=lambda names: bool(names) and set(names) <= {"uniform", "range"},  # type: ignore[arg-type]
        rule_text="uniform, range, or both in any order",
        text="The assignors that members of consumer groups can ask for, the default first.",
    )
    migration_policy: str = setting(
        "group.consumer.migration.policy",
        default="bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        text="Which groups with members may change their protocol: `upgrade` lets a member of the "
        "consumer protocol join a classic group, which becomes a consumer group; with `downgrade` "
        "a consumer group becomes a classic one when only members of that protocol are left.",
    )
    regex_refresh_interval_ms: int = setting(
        "group.consumer.regex.refresh.interval.ms",
        default=600_000,
        low=10_000,
        high=INT32_MAX,
        text="How often the topics that match the regular expressions of a group are looked for, "
        "if no topic is created meanwhile.",
    )

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self.migration_policy in {"bidirectional", "upgrade"}

    @property
    def allows_downgrade(self) -> bool:
        """Whether a consumer group with members may become a classic group."""
        return self.migration_policy in {"bidirectional", "downgrade"}


CONSUMER_SETTINGS = settings_of(ConsumerSettings)


def contradictions(settings: ConsumerSettings) -> Iterator[str]:
    """Sentences about settings that contradict each other."""
    for name, value, low, high in (
        (
            "session.timeout.ms",
            settings.session_timeout_ms,
            settings.session_timeout_ms_min,
            settings.session_timeout_ms_max,
        ),
        (
            "heartbeat.interval.ms",
            settings.heartbeat_interval_ms,
            settings.heartbeat_interval_ms_min,
            settings.heartbeat_interval_ms_max,
        ),
        (
            "assignment.interval.ms",
            settings.assignment_interval_ms,
            settings.assignment_interval_ms_min,
            settings.assignment_interval_ms_max,
        ),
    ):
        if not low <= value <= high:
            yield (
                f"group.consumer.{name}: {value} is not between group.consumer.min.{name}, which "
                f"is {low}, and group.consumer.max.{name}, which is {high}"
            )
    # Every member would be fenced, join again, and be fenced again.
    if settings.heartbeat_interval_ms >= settings.session_timeout_ms:
        yield (
            f"group.consumer.heartbeat.interval.ms: {settings.heartbeat_interval_ms} is not less "
            "than group.consumer.session.timeout.ms, which is "
            f"{settings.session_timeout_ms}: members would be removed between two heartbeats"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupConfig:
    """Times of one consumer group in milliseconds; a field has the name of the broker's setting."""

    session_timeout_ms: int = setting(
        "consumer.session.timeout.ms",
        default=45_000,
        low=1,
        high=INT32_MAX,
        text="A member of the group that is silent for so long is removed; from its next heartbeat "
        "on. Default: group.consumer.session.timeout.ms.",
    )
    heartbeat_interval_ms: int = setting(
        "consumer.heartbeat.interval.ms",
        default=5_000,
        low=1,
        high=INT32_MAX,
        text="Time between two heartbeats of a member of the group. "
        "Default: group.consumer.heartbeat.interval.ms.",
    )
    assignment_interval_ms: int = setting(
        "consumer.assignment.interval.ms",
        default=1_000,
        low=0,
        high=INT32_MAX,
        text="Least time between two target assignments of the group. "
        "Default: group.consumer.assignment.interval.ms.",
    )


GROUP_CONFIGS: Final = settings_of(GroupConfig)
_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    dict(zip((each.name for each in GROUP_CONFIGS), GroupConfig.__slots__, strict=True))
)
"""The field of each setting, by its name."""


def broker_values(broker: ConsumerSettings) -> dict[str, str]:
    """The values that a group has without settings of its own, as text."""
    return {name: str(getattr(broker, field)) for name, field in _FIELDS.items()}


def check_group_configs(configs: Mapping[str, str], broker: ConsumerSettings) -> None:
    """Check the settings of a group.

    Raises:
        ConfigError: all unknown names, values that are no numbers or not between the limits of the
            broker; or else a session timeout that is not longer than the heartbeat interval.
    """
    faults: list[str] = []
    values = parse_settings(
        GROUP_CONFIGS,
        {**broker_values(broker), **configs},
        hints=FOREIGN_OF_GROUPS,
        faults=faults,
    )
    config = GroupConfig(**field_values(GroupConfig, values))
    for name in configs.keys() & _FIELDS.keys():
        # Kafka allows a group only what lies between the limits of the broker.
        value, (low, high) = getattr(config, _FIELDS[name]), _limits(broker, name)
        if not faults and not low <= value <= high:
            faults.append(
                f"{name}: {value} is not between group.{name.replace('consumer.', 'consumer.min.')}"
                f", which is {low}, and group.{name.replace('consumer.', 'consumer.max.')}, which "
                f"is {high}"
            )
    if not faults and config.session_timeout_ms <= config.heartbeat_interval_ms:
        faults.append(
            f"consumer.session.timeout.ms: {config.session_timeout_ms} is not more than "
            f"consumer.heartbeat.interval.ms, which is {config.heartbeat_interval_ms}"
        )
    if faults:
        raise ConfigError(sorted(faults))


def settings_of_group(configs: Mapping[str, str], broker: ConsumerSettings) -> ConsumerSettings:
    """The settings of a group that has some of its own."""
    return _settings_of_group(tuple(configs.items()), broker)


@lru_cache(maxsize=1_000)
def _settings_of_group(
    configs: tuple[tuple[str, str], ...], broker: ConsumerSettings
) -> ConsumerSettings:
    fields: dict[str, int] = {}
    # A heartbeat must not fail by a setting: one that an older or newer broker has stored and this
    # one cannot read is left out.
    for name, text in configs:
        field = _FIELDS.get(name)
        if field is not None and text.isdecimal():
            # The operator may have changed the limits since: the nearest one counts.
            low, high = _limits(broker, name)
            fields[field] = min(max(int(text), low), high)
    return replace(broker, **fields)  # type: ignore[arg-type]


def _limits(broker: ConsumerSettings, name: str) -> tuple[int, int]:
    field = _FIELDS[name]
    return getattr(broker, f"{field}_min"), getattr(broker, f"{field}_max")
