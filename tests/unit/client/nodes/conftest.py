"""Fixtures of the tests of connections: a broker, and a client that is not connected yet."""

import pytest

from tailrace.testing import Outside
from tests.unit.client.nodes.stand_in import Client, StandIn


@pytest.fixture
def broker(outside: Outside) -> StandIn:
    """The one broker on the network."""
    return StandIn(outside)


@pytest.fixture
def client(outside: Outside) -> Client:
    """A client that is not connected yet."""
    return Client(outside)
