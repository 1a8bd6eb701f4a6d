"""Read and alter the levels of this process's loggers (resource type BROKER_LOGGER, KIP-412).

The loggers are those of this package, and `root`, which is that of Python. Levels have Kafka's
names. They are not kept: the next start has those of its command line, as in Kafka.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from tailrace.cluster.config_changes import ConfigChange
from tailrace.errors import ConfigError
from tailrace.handlers.services import InvalidRequestError, Services
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.runtime.log_lines import LEVELS, level_name

ROOT: Final = "root"
_PACKAGE: Final = "tailrace"


def logger_levels(services: Services, name: str) -> Iterator[tuple[str, str]]:
    """The loggers and the levels that count for them.

    Raises:
        InvalidRequestError: the name is empty, of another broker, or no number.
    """
    if not name:
        raise InvalidRequestError("Broker id must not be empty")
    _check_node(
        services, name, kind="Broker id", words="Unexpected broker id, expected {} but received {}"
    )
    return ((each, level_name(_logger(each).getEffectiveLevel())) for each in sorted(_names()))


def alter_loggers(
    services: Services, name: str, changes: Sequence[ConfigChange], *, is_dry_run: bool
) -> None:
    """Change the levels of loggers, all of the request or none.

    Raises:
        InvalidRequestError: another broker, or an operation that loggers do not have.
        ConfigError: an unknown logger or level. All words are Kafka's.
    """
    _check_node(
        services, name, kind="Node id", words="Unexpected node id. Expected {}, but received {}"
    )
    # All are checked before the first is changed: a request changes all loggers or none.
    for each in changes:
        _check(each)
    for each in () if is_dry_run else changes:
        is_set = each.operation is ConfigOperation.SET
        _logger(each.name).setLevel(LEVELS[each.value] if is_set else logging.NOTSET)


def _check_node(services: Services, name: str, *, kind: str, words: str) -> None:
    try:
        number = int(name)
    except ValueError:
        raise InvalidRequestError(f"{kind} must be an integer, but it is: {name[:40]}") from None
    if number != services.node_id:
        raise InvalidRequestError(words.format(services.node_id, number))


def _check(change: ConfigChange) -> None:
    if change.operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise InvalidRequestError(
            f"{change.operation.name} operation is not allowed for the BROKER_LOGGER resource"
        )
    if change.name not in _names():
        raise ConfigError([f"Logger {change.name[:100]} does not exist!"])
    if change.operation is ConfigOperation.SET and change.value not in LEVELS:
        fault = (
            f"Cannot set the log level of {change.name} to {change.value[:40]} as it is not a "
            f"supported log level. Valid log levels are {', '.join(sorted(LEVELS))}"
        )
        raise ConfigError([fault])
    if change.operation is ConfigOperation.DELETE and change.name == ROOT:
        raise InvalidRequestError("Removing the log level of the root logger is not allowed")


def _names() -> set[str]:
    """The loggers that there are; a module has one when it is imported."""
    known = logging.root.manager.loggerDict
    # Loggers of libraries are no part of the broker's interface.
    return {ROOT, *(each for each in known if each.partition(".")[0] == _PACKAGE)}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
