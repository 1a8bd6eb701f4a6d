"""What all tests share: how many inputs a fuzz target gets, examples a property, rounds a kill."""

import pytest
from hypothesis import HealthCheck, settings

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("default", max_examples=200, deadline=None, suppress_health_check=QUIET)
settings.register_profile("slow", max_examples=10_000, deadline=None, suppress_health_check=QUIET)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--fuzz-inputs` and `--kills`."""
    parser.addoption(
        "--fuzz-inputs", type=int, default=500, help="mutated inputs for each fuzz target"
    )
    parser.addoption("--kills", type=int, default=3, help="kills of each of the jobs on Spark")
