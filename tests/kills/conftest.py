"""Fixtures of the tests of this folder: drivers, logs to read, and the victim of each round.

`--kills` is shared out evenly between the kinds of victims, and rounded up: 3 are one of each for
each job, 50 are 17 of each. A broker that is killed comes on top, as often as each of them.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace import Broker
from tests.kills.drivers import Drivers, Victim
from tests.kills.logs import write_logs


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Rounds for each victim; it is in the name of the test, with the seed that decides when."""
    if "victim" in metafunc.fixturenames:
        # By its scope, all jobs lose their executors one after the other, on one cluster.
        # An executor has a cluster around it, which takes long to start.
        victims = [
            pytest.param(each, marks=[pytest.mark.slow] * (each is Victim.EXECUTOR))
            for each in Victim
        ]
        names = [each.value for each in Victim]
        metafunc.parametrize("victim", victims, ids=names, scope="session")
    if "seed" in metafunc.fixturenames:
        rounds = math.ceil(metafunc.config.getoption("--kills") / len(Victim))
        metafunc.parametrize("seed", range(rounds))


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
