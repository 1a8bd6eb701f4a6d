"""What the tests of this folder share: drivers to kill, logs to read, and a seed for each round."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace import Broker
from tests.kills.drivers import Drivers
from tests.kills.logs import write_logs


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A round for each seed; the seed is in the name of the test, and decides who dies and when."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--kills")))


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Drivers for all tests of this folder."""
    started = Drivers(tmp_path_factory.mktemp("drivers"))
    yield started
    started.close()


@pytest.fixture(scope="session")
def broker_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of `broker`."""
    return tmp_path_factory.mktemp("broker") / "data"


@pytest.fixture(scope="session")
def broker(broker_data: Path) -> Iterator[Broker]:
    """A broker that lives through all kills."""
    with Broker(broker_data) as running:
        yield running


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory to read; see `write_logs`."""
    directory = tmp_path_factory.mktemp("logs") / "data"
    write_logs(directory)
    return directory
