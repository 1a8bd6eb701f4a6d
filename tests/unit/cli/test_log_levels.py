"""Levels of loggers in the variables of Apache Kafka's image."""

import logging
from collections.abc import Iterator

import pytest

from tailrace.cli.environment import take_levels
from tailrace.config.environment import Variables, kafka_variables
from tailrace.errors import ConfigError

NAMES = ("", "tailrace.server", "tailrace.audit", "kafka.controller")


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in NAMES}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def taken(**given: str) -> Variables:
    """The variables that are left when those of levels have been taken."""
    named = {f"KAFKA_LOG4J_{name}": text for name, text in given.items()}
    return take_levels(kafka_variables(named), named)


def test_loggers_begin_with_the_levels_of_the_variables() -> None:
    """Levels have Kafka's names, and the variables count as taken."""
    left = taken(ROOT_LOGLEVEL="WARN", LOGGERS="tailrace.server=DEBUG, tailrace.audit=info,")
    levels = [logging.getLogger(name).level for name in NAMES[:3]]
    assert levels == [logging.WARNING, logging.DEBUG, logging.INFO]
    assert left.passed_over == ()


def test_loggers_of_java_are_told_as_passed_over() -> None:
    """Others of the same variable have their effect."""
    left = taken(LOGGERS="kafka.controller=DEBUG,tailrace.server=ERROR")
    assert logging.getLogger("tailrace.server").level == logging.ERROR
    assert logging.getLogger("kafka.controller").level == logging.NOTSET
    assert left.passed_over == ("KAFKA_LOG4J_LOGGERS",)


def test_a_level_that_there_is_not_ends_the_start() -> None:
    """All of them, each with its variable."""
    with pytest.raises(ConfigError) as raised:
        taken(ROOT_LOGLEVEL="LOUD", LOGGERS="tailrace.server")
    known = "there are TRACE, DEBUG, INFO, WARN, ERROR, FATAL"
    assert raised.value.faults == [
        f"KAFKA_LOG4J_ROOT_LOGLEVEL: root has the level 'LOUD'; {known}",
        f"KAFKA_LOG4J_LOGGERS: tailrace.server has the level ''; {known}",
    ]


def test_without_the_variables_nothing_changes() -> None:
    """Nor by empty ones."""
    logging.getLogger("tailrace.server").setLevel(logging.ERROR)
    taken(ROOT_LOGLEVEL="", LOGGERS=" ")
    assert logging.getLogger("tailrace.server").level == logging.ERROR
