"""Whatever happens while an operator moves replicas and leaders: clients were told the truth."""

import random
from dataclasses import replace

import pytest

from tests.simulation.cluster import MOVES, choose_life, play

SECONDS = 3.0
"""Virtual time of a life; a move takes a second where nothing is broken."""
TOGETHER = 10


@pytest.mark.parametrize("first", range(0, 20, TOGETHER))
def test_clients_were_told_the_truth_while_replicas_move(first: int) -> None:
    """Records, transactions and offsets are on all replicas when the last move is over."""
    live_through(range(first, first + TOGETHER))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(20, 2_000, 40))
def test_clients_were_told_the_truth_in_two_thousand_moving_lives(first: int) -> None:
    """The same over 1,980 more seeds."""
    live_through(range(first, min(first + 40, 2_000)))


def live_through(seeds: range) -> None:
    """Play seeds, in which reassignments are twice as frequent as each kind of fault."""
    for seed in seeds:
        life = choose_life(random.Random(seed))
        play(seed, seconds=SECONDS, life=replace(life, kinds=(*life.kinds, *MOVES, "reassign")))
