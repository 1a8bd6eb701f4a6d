"""What all tests share: how many inputs a fuzz target gets, examples a property, rounds a kill."""

import gc

import pytest
from hypothesis import HealthCheck, settings

from tests.steps import Steps, every, spread

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("default", max_examples=100, deadline=None, suppress_health_check=QUIET)
settings.register_profile("slow", max_examples=10_000, deadline=None, suppress_health_check=QUIET)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--fuzz-inputs`, `--kills` and `--every`."""
    parser.addoption(
        "--fuzz-inputs", type=int, default=200, help="mutated inputs for each fuzz target"
    )
    parser.addoption(
        "--every", action="store_true", help="try every step of an enumeration, not only some"
    )
    parser.addoption("--kills", type=int, default=3, help="kills of each of the jobs on Spark")


def pytest_collection_finish() -> None:
    """Keep what is imported out of later searches for garbage, so that these come in time.

    A test leaves hundreds of megabytes of disks in memory, which only such a search finds.
    """
    gc.freeze()


@pytest.fixture(scope="session")
def steps(request: pytest.FixtureRequest) -> Steps:
    """Chooses what a test tries of an enumeration: all with `--every`, else some of it."""
    return every if request.config.getoption("--every") else spread
