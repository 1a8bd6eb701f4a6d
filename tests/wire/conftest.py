"""A real broker on a real port and a real disk, for other people's clients."""

from collections.abc import Iterator

import pytest

from tailrace import Broker


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a broker that all tests of this folder share; topics keep them apart."""
    data = tmp_path_factory.mktemp("broker") / "data"
    # Records of tests are older than a week, and the first look at retention comes after 30 s.
    with Broker(data, settings={"log.retention.ms": -1}) as broker:
        yield broker.bootstrap_servers
