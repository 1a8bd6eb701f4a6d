"""Read and alter subscriptions to metrics of clients (resource type CLIENT_METRICS, KIP-714).

Subscriptions are kept in the metadata log, as in Kafka, and no client is asked for its metrics:
a Kafka without a plug-in that takes them does not ask either.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from tailrace.cluster.config_changes import ConfigChange
from tailrace.cluster.metadata.image import ConfigResource
from tailrace.cluster.records import config_records
from tailrace.cluster.topic_rules import TooManyGroupsError
from tailrace.config.settings import INT32_MAX, Setting
from tailrace.errors import ConfigError
from tailrace.handlers.config_entries import ConfigEntry, ConfigValue
from tailrace.handlers.services import InvalidRequestError, Services
from tailrace.protocol.config_resources import ConfigOperation, ConfigSource, ResourceType

INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000
SUBSCRIPTIONS_MAX: Final = 1000
"""Most subscriptions of a cluster, since every broker keeps all of them in memory."""

_SETTINGS: Final = {
    each.name: each
    for each in (
        Setting(name="metrics", default=(), text="Telemetry metric name prefix list"),
        Setting(
            name="interval.ms", default=300_000, high=INT32_MAX,
            text="Metrics push interval in milliseconds",
        ),
        Setting(name="match", default=(), text="Client match criteria"),
    )
}  # fmt: skip
_MATCHED: Final = frozenset({
    "client_instance_id", "client_id", "client_software_name", "client_software_version",
    "client_source_address", "client_source_port",
})  # fmt: skip


def subscriptions(services: Services) -> list[str]:
    """The names of all subscriptions."""
    configs = services.cluster.metadata.configs
    return [each.name for each in configs if each.type == ResourceType.CLIENT_METRICS]


def subscription_entries(services: Services, name: str) -> Iterator[ConfigEntry]:
    """Every setting of a subscription, which need not exist.

    Raises:
        InvalidRequestError: the name is empty.
    """
    if not name:
        raise InvalidRequestError("Client metrics subscription name must not be empty")
    own = services.cluster.metadata.configs_of(ResourceType.CLIENT_METRICS, name)
    for key, setting in _SETTINGS.items():
        value = ConfigValue(key, setting.format(setting.default), ConfigSource.DEFAULT)
        if key in own:
            value = ConfigValue(key, own[key], ConfigSource.CLIENT_METRICS)
        yield ConfigEntry(setting=setting, values=(value,))


async def alter_subscription(
    services: Services,
    name: str,
    changes: Sequence[ConfigChange],
    *,
    is_replaced: bool,
    is_dry_run: bool,
) -> None:
    """Change a subscription; one without settings is gone. It is on the device then.

    Raises:
        ConfigError: an operation of lists, which Kafka does not have here.
        InvalidRequestError, ConfigError, TooManyGroupsError: as `check_subscription`.
        StorageError: the device refused; nothing has changed.
    """
    stored = services.cluster.metadata.configs_of(ResourceType.CLIENT_METRICS, name)
    planned = {} if is_replaced else dict(stored)
    for each in changes:
        match each.operation:
            case ConfigOperation.SET:
                planned[each.name] = each.value
            case ConfigOperation.DELETE:
                planned.pop(each.name, None)
            case operation:
                raise ConfigError(
                    [f"Can't {operation.name} to key {each.name} because its type is not LIST."]
                )
    check_subscription(subscriptions(services), name, planned)
    if planned == stored or is_dry_run:
        return
    owner = ConfigResource(ResourceType.CLIENT_METRICS, name)
    make = partial(config_records, owner=owner, wanted=planned)
    await services.changes.on_device(partial(services.own_controller.write, make))


def check_subscription(known: Collection[str], name: str, configs: Mapping[str, str]) -> None:
    """Check the settings that a subscription is to have, beside those that are `known`.

    The words are Kafka's.

    Raises:
        InvalidRequestError: no name, an unknown setting, an interval out of range.
        ConfigError: an interval that is no number; a pattern that matches nothing.
        TooManyGroupsError: it is one more than `SUBSCRIPTIONS_MAX`.
    """
    if not name:
        raise InvalidRequestError("Subscription name can't be empty")
    # Only for a new one: those that exist can always be changed and deleted.
    if configs and name not in known and len(known) >= SUBSCRIPTIONS_MAX:
        raise TooManyGroupsError(
            f"{SUBSCRIPTIONS_MAX} subscriptions to metrics of clients are the limit"
        )
    for key, text in configs.items():
        if key not in _SETTINGS:
            raise InvalidRequestError(f"Unknown client metrics configuration: {key}")
        if key == "interval.ms":
            _check_interval(text)
        if key == "match":
            for pattern in filter(None, map(str.strip, text.split(","))):
                _check_pattern(pattern)


def _check_interval(text: str) -> None:
    try:
        interval_ms = _SETTINGS["interval.ms"].parse(text)
    except ValueError:
        raise ConfigError(
            [f"Invalid value {text[:40]} for configuration interval.ms: Not a number of type INT"]
        ) from None
    assert isinstance(interval_ms, int), "the setting is a number"
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise InvalidRequestError(
            f"Invalid value {interval_ms} for interval.ms, interval must be between "
            f"{INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
        )


def _check_pattern(pattern: str) -> None:
    import re2  # Only a subscription with a pattern needs it (decision 32).

    name, _, expression = pattern.partition("=")
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(expression.strip(), options)
        is_sound = name.strip() in _MATCHED and bool(expression) and "=" not in expression
    except re2.error:
        is_sound = False
    if not is_sound:
        raise ConfigError([f"Illegal client matching pattern: {pattern[:100]}"])
