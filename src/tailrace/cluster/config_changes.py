"""Apply single changes to the settings of a topic or a group. Pure; reports all faults at once.

    topic has                 change                           topic has then
    cleanup.policy=delete     APPEND cleanup.policy=compact    cleanup.policy=delete,compact
    (none)                    APPEND cleanup.policy=compact    cleanup.policy=delete,compact
    retention.ms=1000         DELETE retention.ms              (none)

If the topic does not have the list, the broker's default is changed, as the second line shows.
`controller` saves the result, and `handlers.topics` applies it to open logs.
"""

from collections.abc import Iterable, Mapping

from tailrace.config.settings import Setting
from tailrace.errors import ConfigError
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.storage.config import TOPIC_SETTINGS, log_config
from tailrace.values import dataclass

_DECLARED = {setting.name: setting for setting in TOPIC_SETTINGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """A change to one setting."""

    name: str
    operation: ConfigOperation
    value: str = ""
    """The value as text; ignored for DELETE."""


def plan_configs(
    current: Mapping[str, str], changes: Iterable[ConfigChange], defaults: Mapping[str, str]
) -> dict[str, str]:
    """The settings of a topic after changes to its `current` ones.

    DELETE of a setting that is not set is no error, as in Kafka.

    Raises:
        ConfigError: all unknown names, values out of range, and list operations on settings that
            are no lists; or, without such faults, two settings that contradict each other.
    """
    planned, faults = changed_configs(current, changes, declared=_DECLARED, defaults=defaults)
    try:
        log_config(planned, defaults)
    except ConfigError as error:
        # All faults together: an operator should not have to find them one by one.
        raise ConfigError(faults + error.faults) from None
    if faults:
        raise ConfigError(faults)
    return planned


def changed_configs(
    current: Mapping[str, str],
    changes: Iterable[ConfigChange],
    *,
    declared: Mapping[str, Setting],
    defaults: Mapping[str, str],
) -> tuple[dict[str, str], list[str]]:
    """The settings of a resource after changes, and the faults of list operations.

    `declared` are all settings of such resources, by name; the values are not checked.
    """
    planned, faults = dict(current), []
    for change in changes:
        setting = declared.get(change.name)
        if change.operation is ConfigOperation.DELETE:
            # No error if it is not set, as in Kafka.
            planned.pop(change.name, None)
        elif change.operation is ConfigOperation.SET or setting is None:
            planned[change.name] = change.value
        elif setting.kind != "list":
            verb = change.operation.name
            faults.append(f"Can't {verb} to key {change.name} because its type is not LIST.")
        else:
            # As in Kafka a list that the topic does not have begins with the broker's default.
            before = planned.get(change.name, defaults.get(change.name))
            planned[change.name] = _changed_list(setting, before, change)
    return planned, faults


def _changed_list(setting: Setting, before: str | None, change: ConfigChange) -> str:
    words = _words(setting.format(setting.default) if before is None else before)
    named = _words(change.value)
    if change.operation is ConfigOperation.APPEND:
        # Each word once, in order: to append what is there changes nothing.
        return ",".join(dict.fromkeys((*words, *named)))
    return ",".join(word for word in words if word not in named)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
