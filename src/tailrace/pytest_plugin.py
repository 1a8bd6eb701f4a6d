"""The pytest plugin: the fixture `tailrace_broker`, and the marks that prepare it.

    @pytest.mark.tailrace_topic("orders", partitions=3, configs={"retention.ms": 1000})
    @pytest.mark.tailrace_settings(auto_create_topics_enable=False)
    def test_orders(tailrace_broker):
        program.run(tailrace_broker.bootstrap_servers)
        assert tailrace_broker.log("orders").values() == [b"one"]

pytest loads this module in each of its runs, by an entry point of the package, so it imports pytest
alone, which is there. What a broker needs is imported by the first test that asks for one.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tailrace.testing import TestBroker

TOPIC_MARK = "tailrace_topic"
SETTINGS_MARK = "tailrace_settings"

_MARKS = (
    f"{TOPIC_MARK}(name, *, partitions=1, configs=None): a topic that tailrace_broker begins with",
    f"{SETTINGS_MARK}(settings=None, **more): settings of tailrace_broker, by Kafka's names",
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

    # The nearest mark comes first, so it goes over those of the class and of the module.
    settings: dict[str, object] = {}
    for mark in reversed(list(request.node.iter_markers(SETTINGS_MARK))):
        settings |= _settings(*mark.args, **mark.kwargs)
    with TestBroker(settings=settings) as broker:
        for mark in reversed(list(request.node.iter_markers(TOPIC_MARK))):
            broker.create_topic(*mark.args, **mark.kwargs)
        yield broker


def _settings(settings: dict[str, object] | None = None, **more: object) -> dict[str, object]:
    """The settings of one mark, with dotted names."""
    return (settings or {}) | {name.replace("_", "."): value for name, value in more.items()}
