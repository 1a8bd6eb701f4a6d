"""Whatever happens to brokers, links and the controller: clients were told the truth."""

import pytest

from tests.simulation.cluster import Role, play

SECONDS = 2.0
"""Virtual time of a life, with two faults a second.

Sessions and followers have longer to go quiet: nearly no broker is fenced in such a life.
"""
LONG_SECONDS = 15.0
"""Long enough for brokers to be fenced, to leave the ISR and to come back while faults go on."""
TOGETHER = 20
OWN: tuple[Role, ...] = ("alone", "in a broker")
CONTROLLERS: tuple[Role, ...] = ("scripted", *OWN)


@pytest.mark.parametrize("first", range(0, 80, TOGETHER))
def test_clients_were_told_the_truth(first: int) -> None:
    """Acknowledged records, transactions and offsets are on all replicas, and nothing goes back."""
    for seed in range(first, first + TOGETHER):
        play(seed, seconds=SECONDS)


@pytest.mark.parametrize("controller", OWN)
@pytest.mark.parametrize("first", range(0, 60, TOGETHER))
def test_our_own_controller_forgets_nothing(first: int, controller: Role) -> None:
    """The same while it crashes: topics stay, ids are given once, and no epoch goes back."""
    for seed in range(first, first + TOGETHER):
        play(seed, seconds=SECONDS, controller=controller)


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_seed_replays_exactly(controller: Role) -> None:
    """The story of a seed is the same each time."""
    first, second = (play(3, seconds=SECONDS, controller=controller).story for _ in range(2))
    assert first == second


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_clients_were_told_the_truth_for_longer_than_sessions(controller: Role) -> None:
    """The same while brokers are fenced and lead again under faults that go on."""
    for seed in range(3):
        play(seed, seconds=LONG_SECONDS, controller=controller)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 10))
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_clients_were_told_the_truth_in_200_long_lives(first: int, controller: Role) -> None:
    """The same over 200 seeds under each controller."""
    for seed in range(first, first + 10):
        play(seed, seconds=LONG_SECONDS, controller=controller)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 10_000, 100))
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_clients_were_told_the_truth_in_ten_thousand_lives(first: int, controller: Role) -> None:
    """The same over 10,000 seeds under each controller."""
    for seed in range(first, first + 100):
        play(seed, seconds=SECONDS, controller=controller)
