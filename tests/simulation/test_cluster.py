"""Whatever happens to brokers, links and the controller: nothing acknowledged is lost."""

import pytest

from tests.simulation.cluster import play

SECONDS = 4.0
"""Virtual time of a life, with two faults a second."""
TOGETHER = 20


@pytest.mark.parametrize("first", range(0, 200, TOGETHER))
def test_nothing_acknowledged_is_lost(first: int) -> None:
    """Each acknowledged record is on all replicas once, in order, and readers never go back."""
    for seed in range(first, first + TOGETHER):
        play(seed, seconds=SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(200, 10_000, 200))
def test_nothing_acknowledged_is_lost_in_ten_thousand_lives(first: int) -> None:
    """The same over 9,800 more seeds."""
    for seed in range(first, first + 200):
        play(seed, seconds=SECONDS)
