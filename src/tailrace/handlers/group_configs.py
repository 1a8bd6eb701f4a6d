"""Read and alter the settings of single groups, for the APIs of settings (resource type GROUP).

A group need not exist to have settings, and keeps them when it is deleted, as in Kafka.
"""

from collections.abc import Iterable, Iterator, Mapping

from tailrace.cluster.config_changes import ConfigChange, changed_configs
from tailrace.cluster.topic_rules import check_group_limit
from tailrace.coordinator.groups.settings import (
    GROUP_CONFIGS,
    broker_values,
    check_group_configs,
)
from tailrace.errors import ConfigError
from tailrace.handlers.config_entries import ConfigEntry, ConfigValue
from tailrace.handlers.services import InvalidRequestError, Services
from tailrace.protocol.config_resources import ConfigSource

_DECLARED = {each.name: each for each in GROUP_CONFIGS}


def group_entries(services: Services, group_id: str) -> Iterator[ConfigEntry]:
    """Every setting of a group: its own value, or the broker's.

    Raises:
        InvalidRequestError: the id is empty.
    """
    own, default = _configs_of(services, group_id), broker_values(services.consumer_settings)
    for name, setting in _DECLARED.items():
        # What a group has without a value of its own is a setting of the broker, by that name.
        values = [ConfigValue(f"group.{name}", default[name], ConfigSource.DEFAULT)]
        if name in own:
            values.insert(0, ConfigValue(name, own[name], ConfigSource.GROUP))
        yield ConfigEntry(setting=setting, values=tuple(values))


async def alter_group(
    services: Services,
    group_id: str,
    changes: Iterable[ConfigChange],
    *,
    is_replaced: bool,
    is_dry_run: bool,
) -> None:
    """Change the settings of a group; they are on the device when this returns.

    They count from the next heartbeat of a member on.

    Raises:
        InvalidRequestError: the id is empty.
        ConfigError: see `check_group_configs`; all faults together.
        TooManyGroupsError: too many groups have settings of their own.
        StorageError: the device refused; nothing has changed.
    """
    current = _configs_of(services, group_id)
    planned, faults = changed_configs(
        {} if is_replaced else current, changes, declared=_DECLARED, defaults={}
    )
    try:
        check_group_configs(planned, services.consumer_settings)
    except ConfigError as error:
        # All faults together, so that a user does not find them one by one.
        raise ConfigError(faults + error.faults) from None
    if faults:
        raise ConfigError(faults)
    if planned != current:
        # In a dry run too, which has to fail where the change would.
        check_group_limit(group_id, services.cluster.image.group_configs)
        if not is_dry_run:
            await services.changes.on_device(
                lambda: services.own_controller.configure_group(group_id, planned)
            )


def _configs_of(services: Services, group_id: str) -> Mapping[str, str]:
    if not group_id:
        raise InvalidRequestError(
            "the id of the group is empty; the defaults of all groups are settings of the broker"
        )
    return services.cluster.image.group_configs.get(group_id, {})
