"""Whatever happens to brokers, links and the controller: clients were told the truth."""

import pytest

from tests.simulation.cluster import play

SECONDS = 2.0
"""Virtual time of a life, with two faults a second."""
TOGETHER = 20


@pytest.mark.parametrize("first", range(0, 200, TOGETHER))
def test_clients_were_told_the_truth(first: int) -> None:
    """Acknowledged records, transactions and offsets are on all replicas, and nothing goes back."""
    for seed in range(first, first + TOGETHER):
        play(seed, seconds=SECONDS)


def test_a_seed_replays_exactly() -> None:
    """The story of a seed is the same each time."""
    assert play(0, seconds=SECONDS).story == play(0, seconds=SECONDS).story


@pytest.mark.slow
@pytest.mark.parametrize("first", range(200, 10_000, 200))
def test_clients_were_told_the_truth_in_ten_thousand_lives(first: int) -> None:
    """The same over 9,800 more seeds."""
    for seed in range(first, first + 200):
        play(seed, seconds=SECONDS)
