"""The settings of single consumer groups (resource type GROUP), under Kafka's names.

A group has the broker's setting where it has none of its own. Its own has to lie between the limits
of the broker when it is set; if the operator changes these afterwards, the nearest limit counts.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from tailrace.config.settings import INT32_MAX, field_values, parse_settings, setting, settings_of
from tailrace.coordinator.groups.settings import ConsumerSettings
from tailrace.errors import ConfigError
from tailrace.values import dataclass, replace


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
    values = parse_settings(GROUP_CONFIGS, {**broker_values(broker), **configs}, faults=faults)
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
