"""Settings of a resource as clients see them: values and their sources."""

from typing import NamedTuple

from tailrace.config.settings import Setting
from tailrace.protocol.config_resources import ConfigSource
from tailrace.values import dataclass


class ConfigValue(NamedTuple):
    """A value of a setting; values before it in the list take precedence."""

    name: str
    """The setting with this value: the topic's, or the broker's default for it."""
    text: str | None
    """None: it is secret."""
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting of a resource."""

    setting: Setting
    values: tuple[ConfigValue, ...]
    """In order of precedence, the default last."""

    @property
    def value(self) -> ConfigValue:
        """The effective value."""
        return self.values[0]
