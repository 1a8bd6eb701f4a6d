"""Levels of loggers, and subscriptions to metrics of clients, which are resources with settings."""

import logging
from collections.abc import Iterator

import pytest

from tailrace.handlers.client_metrics import SUBSCRIPTIONS_MAX
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import connect, running
from tests.unit.broker.test_configs import (
    Change,
    alter_all,
    by_name,
    describe,
    replace_all,
    resource,
    set_to,
)

LOGGER, METRICS = 8, 16
PART = "tailrace.broker.broker"
VALID = "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
INVALID, CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """The levels are those of the process."""
    loggers = [logging.getLogger(), logging.getLogger(PART), logging.getLogger("tailrace")]
    before = [each.level for each in loggers]
    yield
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


async def change(
    peer: Peer, kind: int, *changes: Change, name: str = "1"
) -> tuple[int, str | None]:
    """Code and message of changes to a resource."""
    (answer,) = await alter_all(peer, resource(*changes, name=name, kind=kind))
    return answer.error_code, answer.error_message


async def levels(peer: Peer) -> dict[str, str | None]:
    """The level of each logger."""
    found = by_name(await describe(peer, "1", kind=LOGGER))
    return {name: each.value for name, each in found.items()}


async def test_a_level_is_changed_and_given_back(outside: Outside) -> None:
    """A logger has its own level until it is deleted, and then that of the one above it."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert await change(peer, LOGGER, set_to("root", "ERROR")) == (0, None)
        assert await change(peer, LOGGER, set_to(PART, "TRACE")) == (0, None)
        found = await levels(peer)
        assert (found[PART], found["root"], found["tailrace"]) == ("TRACE", "ERROR", "ERROR")
        assert logging.getLogger(PART).isEnabledFor(logging.DEBUG)
        assert await change(peer, LOGGER, (PART, ConfigOperation.DELETE, None)) == (0, None)
        assert (await levels(peer))[PART] == "ERROR"


@pytest.mark.parametrize(
    ("one", "code", "words"),
    [
        (set_to("root", "LOUD"), CONFIG,
         f"Cannot set the log level of root to LOUD as it is not a supported log level. {VALID}"),
        (set_to("kafka.server", "INFO"), CONFIG, "Logger kafka.server does not exist!"),
        (("root", ConfigOperation.DELETE, None), INVALID,
         "Removing the log level of the root logger is not allowed"),
        (("root", ConfigOperation.APPEND, "INFO"), INVALID,
         "APPEND operation is not allowed for the BROKER_LOGGER resource"),
    ],
)  # fmt: skip
async def test_a_level_that_cannot_be_is_refused(
    outside: Outside, one: Change, code: ErrorCode, words: str
) -> None:
    """With Kafka's words, and no logger of the request is changed."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        before = await levels(peer)
        assert await change(peer, LOGGER, set_to(PART, "FATAL"), one) == (code, words)
        assert await levels(peer) == before


async def test_loggers_have_no_old_request(outside: Outside) -> None:
    """AlterConfigs would have to unset all others; Kafka refuses it too."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        answer = await replace_all(peer, {"root": "INFO"}, name="1", kind=LOGGER)
        assert (answer.error_code, answer.error_message) == (INVALID, "Unknown resource type 8")


async def subscriptions(peer: Peer, version: int) -> list[str]:
    """The names that are listed."""
    request = ListConfigResourcesRequest(resource_types=(METRICS,) if version else ())
    key = ApiKey.LIST_CONFIG_RESOURCES
    found = await peer.ask(key, request, ListConfigResourcesResponse, version=version)
    return [each.resource_name for each in found.config_resources]


async def test_subscriptions_are_kept(outside: Outside) -> None:
    """One is listed while it has a setting, and survives a restart."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        wanted = [
            set_to("metrics", "org.,x"), set_to("interval.ms", "1000"),
            set_to("match", "client_id=a.*,client_software_name=Java"),
        ]  # fmt: skip
        assert await change(peer, METRICS, *wanted, name="sub") == (0, None)
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert await subscriptions(peer, 0) == await subscriptions(peer, 1) == ["sub"]
        found = by_name(await describe(peer, "sub", kind=METRICS, is_full=True))
        assert [(each.value, each.config_source) for each in found.values()] == [
            ("org.,x", 7), ("1000", 7), ("client_id=a.*,client_software_name=Java", 7),
        ]  # fmt: skip
        other = by_name(await describe(peer, "none", kind=METRICS, is_full=True))
        assert [(each.value, each.synonyms) for each in other.values()] == [
            ("", ()), ("300000", ()), ("", ()),
        ]  # fmt: skip
        gone = [(name, ConfigOperation.DELETE, None) for name in found]
        assert await change(peer, METRICS, *gone, name="sub") == (0, None)
        assert await subscriptions(peer, 1) == []


@pytest.mark.parametrize(
    ("name", "one", "code", "words"),
    [
        ("", set_to("metrics", "*"), INVALID, "Subscription name can't be empty"),
        ("s", set_to("metric", "x"), INVALID, "Unknown client metrics configuration: metric"),
        ("s", set_to("interval.ms", "50"), INVALID,
         "Invalid value 50 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        ("s", set_to("interval.ms", "z"), CONFIG,
         "Invalid value z for configuration interval.ms: Not a number of type INT"),
        ("s", set_to("match", "a=b"), CONFIG, "Illegal client matching pattern: a=b"),
        ("s", set_to("match", "client_id=["), CONFIG,
         "Illegal client matching pattern: client_id=["),
        ("s", set_to("match", "client_id"), CONFIG, "Illegal client matching pattern: client_id"),
        ("s", ("metrics", ConfigOperation.APPEND, "q"), CONFIG,
         "Can't APPEND to key metrics because its type is not LIST."),
    ],
)  # fmt: skip
async def test_a_subscription_that_cannot_be_is_refused(
    outside: Outside, name: str, one: Change, code: ErrorCode, words: str
) -> None:
    """With Kafka's codes and words."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert await change(peer, METRICS, one, name=name) == (code, words)
        assert await subscriptions(peer, 1) == []


async def test_subscriptions_have_a_limit(outside: Outside) -> None:
    """One too many is refused; the others can still be changed."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        one = set_to("interval.ms", "1000")
        wanted = [
            resource(one, name=f"s{number}", kind=METRICS) for number in range(SUBSCRIPTIONS_MAX)
        ]
        assert not any(each.error_code for each in await alter_all(peer, *wanted))
        code, _ = await change(peer, METRICS, one, name="more")
        assert code == ErrorCode.POLICY_VIOLATION
        assert await change(peer, METRICS, set_to("metrics", "x"), name="s1") == (0, None)
