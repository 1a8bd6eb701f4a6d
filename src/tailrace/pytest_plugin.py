"""The pytest plugin: `tailrace_broker`, `tailrace_cluster`, `tailrace_registry`, and marks.

    @pytest.mark.tailrace_topic("orders", partitions=3, configs={"retention.ms": 1000})
    @pytest.mark.tailrace_settings(auto_create_topics_enable=False)
    def test_orders(tailrace_broker):
        program.run(tailrace_broker.bootstrap_servers)
        assert tailrace_broker.log("orders").values() == [b"one"]

pytest loads this module in each of its runs, by an entry point of the package, so it imports pytest
alone, which is there. What a broker needs is imported by the first test that asks for one.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tailrace.testing import TestBroker, TestCluster, TestRegistry

TOPIC_MARK = "tailrace_topic"
SETTINGS_MARK = "tailrace_settings"
SECURITY_MARK = "tailrace_security"

_MARKS = (
    f"{TOPIC_MARK}(name, *, partitions=1, configs=None): a topic that is there at the beginning",
    f"{SETTINGS_MARK}(settings=None, **more): settings of the brokers, by Kafka's names",
    f"{SECURITY_MARK}(security, users=None): whether clients encrypt and log in, such as SASL_SSL",
)


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Leave the package as it is; called before any conftest is imported.

    pytest rewrites the asserts of a package that has a plugin. For this one that takes four times
    as long as its import, and the asserts are not those of a test. Without the private attribute
    it would only be slower.
    """
    marked: set[str] = getattr(pluginmanager.rewrite_hook, "_must_rewrite", set())
    marked.difference_update({"tailrace", "pyspark_tailrace", "pyspark_tailrace_metadata"})


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks, so that `--strict-markers` knows them."""
    for line in _MARKS:
        config.addinivalue_line("markers", line)


@pytest.fixture
def tailrace_broker(request: pytest.FixtureRequest) -> Iterator["TestBroker"]:
    """A Kafka broker of this test's own, on a free port, in a directory that goes with it.

    Give `tailrace_broker.bootstrap_servers` to any client. See `tailrace.testing.TestBroker`.
    """
    from tailrace.testing import TestBroker

    with TestBroker(**_security(request), settings=_settings(request)) as broker:
        for mark in _topics(request):
            broker.create_topic(*mark.args, **mark.kwargs)
        yield broker


@pytest.fixture
def tailrace_cluster(request: pytest.FixtureRequest) -> Iterator["TestCluster"]:
    """Three Kafka brokers of this test's own, with replicas, which it may kill and cut off.

    Give `tailrace_cluster.bootstrap_servers` to any client. See `tailrace.testing.TestCluster`.
    """
    from tailrace.testing import TestCluster

    with TestCluster(**_security(request), settings=_settings(request)) as cluster:
        for mark in _topics(request):
            cluster.create_topic(*mark.args, **mark.kwargs)
        yield cluster


@pytest.fixture
def tailrace_registry() -> Iterator["TestRegistry"]:
    """A schema registry of this test's own, without schemas.

    Give `tailrace_registry.url` to any client. See `tailrace.testing.TestRegistry`.
    """
    from tailrace.testing import TestRegistry

    with TestRegistry() as registry:
        yield registry


def _topics(request: pytest.FixtureRequest) -> list[pytest.Mark]:
    """The marks of topics, those of the module first."""
    return list(request.node.iter_markers(TOPIC_MARK))[::-1]


def _security(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of the nearest mark of security."""
    mark = request.node.get_closest_marker(SECURITY_MARK)
    return {} if mark is None else _security_of(*mark.args, **mark.kwargs)


def _security_of(security: str, users: dict[str, str] | None = None) -> dict[str, Any]:
    return {"security": security, "users": users}


def _settings(request: pytest.FixtureRequest) -> dict[str, object]:
    """The settings of all marks together."""
    settings: dict[str, object] = {}
    # The nearest mark comes first, so it goes over those of the class and of the module.
    for mark in reversed(list(request.node.iter_markers(SETTINGS_MARK))):
        settings |= _settings_of(*mark.args, **mark.kwargs)
    return settings


def _settings_of(settings: dict[str, object] | None = None, **more: object) -> dict[str, object]:
    """The settings of one mark, with dotted names."""
    return (settings or {}) | {name.replace("_", "."): value for name, value in more.items()}
