"""`AdminConfig`: the settings of `Admin` and `AsyncAdmin`, with Kafka's names and defaults."""

import itertools
from collections.abc import Mapping
from typing import ClassVar

from tailrace.client.config import ClientConfig, given_settings, typed_settings
from tailrace.client.foreign import Client
from tailrace.config import setting, settings_of
from tailrace.config.settings import INT32_MAX
from tailrace.errors import ConfigError
from tailrace.values import dataclass

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AdminConfig(ClientConfig):
    """Settings of connections, and of the calls that use them."""

    client: ClassVar[Client] = Client.ADMIN

    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms",
        default=60000,
        low=0,
        high=INT32_MAX,
        text="Longest time of a call, with all retries.",
    )
    retries: int = setting(
        "retries",
        default=INT32_MAX,
        low=0,
        high=INT32_MAX,
        text="Most retries of one item of a call; its time limit ends them too.",
    )


ADMIN_SETTINGS = settings_of(AdminConfig)
"""The settings of `Admin` and `AsyncAdmin`."""


def parse_admin_config(given: object, more: Mapping[str, object] | None = None) -> AdminConfig:
    """The settings of an admin client from names and values; the rest have their defaults.

    See `given_settings` for what `given` and `more` may be. A time limit of calls below
    `request.timeout.ms` is taken for that too, unless both are given.

    Raises:
        TypeError: `given` is no mapping.
        ConfigError: unknown names with what may have been meant, bad values, and settings that
            contradict each other; all of them at once.
    """
    faults: list[str] = []
    texts = given_settings(given, more, faults=faults)
    typed = typed_settings(AdminConfig, texts, faults=faults)
    typed["client_id"] = typed["client_id"] or f"adminclient-{next(_numbers)}"
    limit_ms = typed["default_api_timeout_ms"]
    if limit_ms < typed["request_timeout_ms"]:
        if "request.timeout.ms" in texts and "default.api.timeout.ms" in texts:
            faults.append(
                f"default.api.timeout.ms: must be at least request.timeout.ms "
                f"({typed['request_timeout_ms']})"
            )
        elif "request.timeout.ms" in texts:
            typed["default_api_timeout_ms"] = typed["request_timeout_ms"]
        else:
            typed["request_timeout_ms"] = limit_ms
    if faults:
        raise ConfigError(faults)
    return AdminConfig(**typed)
