"""The two ends of following, for all tests of it."""

from collections.abc import Iterator

import pytest

from tailrace.testing import Outside
from tests.unit.broker.leaders import Follower, ScriptedLeader


@pytest.fixture
def leader(outside: Outside) -> Iterator[ScriptedLeader]:
    """A leader of `flights-0` in epoch 0, with an empty log."""
    made = ScriptedLeader(outside)
    made.lead()
    yield made
    outside.run(made.close())


@pytest.fixture
def follower(outside: Outside) -> Iterator[Follower]:
    """A broker that does not follow yet."""
    made = Follower(outside)
    yield made
    outside.run(made.following.close())
