"""Delays of new connections: the rates of the broker, of a listener and of an address."""

from collections.abc import Mapping

import pytest

from tailrace.cluster.metadata.image import QuotaEntity
from tailrace.config.settings import INT32_MAX
from tailrace.runtime.rates import Windows
from tailrace.server import quotas as quotas_module
from tailrace.server.quotas import ConnectionLimits, ConnectionRates

INSIDE, OUTSIDE = "INSIDE", "OUTSIDE"
ADDRESS = "10.0.0.1"


class Counting:
    """New connections, and the rates that count them."""

    def __init__(self, *, rate: int = INT32_MAX, preferred: str = "", **rates: int) -> None:
        self.now_ms = 0
        self.given: dict[QuotaEntity, Mapping[str, float]] = {}
        self.rates = ConnectionRates(
            limits(rate, preferred, rates), Windows(11, 1000), quotas_now=lambda: self.given
        )

    def set(self, address: str | None, rate: float | None) -> None:
        """Set or remove the quota of an address; None is the default."""
        entity = QuotaEntity((("ip", address),))
        values = {} if rate is None else {"connection_creation_rate": rate}
        self.given = {**self.given, entity: values}

    def accept(self, listener: str = OUTSIDE, *, count: int = 1) -> int:
        """The delay of the last of some connections."""
        return [self.rates.accept_delay_ms(listener, self.now_ms) for _ in range(count)][-1]

    def close(self, address: str = ADDRESS, *, count: int = 1) -> int:
        """The time until the last of some connections of an address is closed."""
        return [self.rates.close_delay_ms(OUTSIDE, address, self.now_ms) for _ in range(count)][-1]


def limits(
    rate: int = INT32_MAX, preferred: str = "", rates: Mapping[str, int] | None = None
) -> ConnectionLimits:
    """Limits of rates alone."""
    return ConnectionLimits(
        connections_max=1 << 30,
        per_address_max=1 << 30,
        overrides={},
        preferred=preferred,
        creation_rate=rate,
        creation_rates=rates or {},
    )


def test_without_limits_no_connection_waits() -> None:
    """A million a second is no reason."""
    counting = Counting()
    assert counting.accept(count=1000) == 0
    assert counting.close(count=1000) == 0


def test_the_rate_of_the_broker_is_that_of_all_listeners() -> None:
    """The next one waits for as long as it is above, at most for a window."""
    counting = Counting(rate=10)
    assert counting.accept(OUTSIDE, count=60) == 0
    assert counting.accept(INSIDE, count=40) == 0
    assert counting.accept(INSIDE) == 100
    assert counting.accept(OUTSIDE, count=9) == 1000
    assert counting.accept(OUTSIDE, count=50) == 1000


def test_a_listener_may_have_a_slower_rate_or_a_faster_one() -> None:
    """The slower one of the two counts."""
    counting = Counting(rate=10, OUTSIDE=2, INSIDE=50)
    assert counting.accept(OUTSIDE, count=20) == 0
    assert counting.accept(OUTSIDE) == 500
    assert counting.accept(INSIDE, count=79) == 0
    assert counting.accept(INSIDE) == 100


def test_a_listener_without_a_rate_of_its_own_has_the_brokers() -> None:
    """Kafka measures it for each listener, too, which tells where clients of brokers come."""
    counting = Counting(rate=10, preferred=INSIDE)
    assert counting.accept(INSIDE, count=100) == 0
    assert counting.accept(INSIDE) == 100
    assert counting.accept(OUTSIDE, count=100) == 0


def test_the_listener_of_brokers_is_not_held_up_by_clients() -> None:
    """It counts for its own rate alone (KIP-612)."""
    counting = Counting(rate=10, preferred=INSIDE, INSIDE=100)
    assert counting.accept(OUTSIDE, count=101) == 100
    assert counting.accept(INSIDE, count=500) == 0
    assert counting.accept(OUTSIDE) == 200


def test_a_rate_of_zero_lets_one_in_each_window() -> None:
    """Kafka takes the number, so it does not stop a broker."""
    assert Counting(rate=0).accept() == 1000
    assert Counting(OUTSIDE=0).accept(OUTSIDE) == 1000


def test_a_rate_changes_while_the_broker_runs() -> None:
    """It counts for the connections before it, where there was a limit before."""
    counting = Counting(rate=100)
    assert counting.accept(count=200) == 0
    counting.rates.limit(limits(19))
    assert counting.accept() == 579
    counting.rates.limit(limits(100))
    assert counting.accept() == 0
    counting.rates.limit(limits())
    assert counting.accept(count=10_000) == 0


def test_connections_of_long_ago_do_not_count() -> None:
    """After all windows a listener accepts as many as at first."""
    counting = Counting(rate=10)
    assert counting.accept(count=110) == 1000
    counting.now_ms = 11_000
    assert counting.accept(count=100) == 0


def test_an_address_above_its_quota_is_closed_later() -> None:
    """It is not counted then, so that one that comes when it may is let in."""
    counting = Counting()
    counting.set(ADDRESS, 1)
    assert counting.close(count=10) == 0
    assert counting.close() == 1000
    assert counting.close(count=50) == 1000
    counting.now_ms = 11_000
    assert counting.close() == 0


def test_an_address_has_the_default_or_its_own_quota() -> None:
    """Each address is counted alone; a quota that goes leaves the default."""
    counting = Counting()
    counting.set(None, 1)
    counting.set(ADDRESS, 5)
    assert counting.close("10.0.0.2", count=11) > 0
    assert counting.close("10.0.0.3", count=10) == 0
    assert counting.close(ADDRESS, count=50) == 0
    assert counting.close(ADDRESS) > 0
    counting.set(ADDRESS, 100)
    assert counting.close(ADDRESS) == 0
    counting.set(ADDRESS, None)
    assert counting.close(ADDRESS) > 0
    counting.set(None, None)
    assert counting.close(ADDRESS, count=1000) == 0


@pytest.mark.parametrize(
    ("quota", "peer"),
    [
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("::ffff:10.0.0.1", ADDRESS),
    ],
)
def test_an_address_is_the_same_however_it_is_written(quota: str, peer: str) -> None:
    """A socket for both versions shows IPv4 addresses in its own way."""
    counting = Counting()
    counting.set(quota, 1)
    assert counting.close(peer, count=11) > 0


def test_a_connection_that_is_closed_takes_no_room_from_others() -> None:
    """It counts neither for its listener nor for the broker."""
    counting = Counting(rate=10, OUTSIDE=10)
    counting.set(ADDRESS, 1)
    for _ in range(99):
        assert counting.accept() == 0
        counting.close()
    assert counting.accept(count=89) == 0
    assert counting.accept() == 0
    assert counting.accept() == 100


def test_many_addresses_do_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of them is forgotten."""
    monkeypatch.setattr(quotas_module, "COUNTERS_MAX", 10)
    counting = Counting()
    counting.set(None, 1)
    for number in range(100):
        assert counting.close(f"10.0.1.{number}", count=11) > 0
    assert counting.close("10.0.1.99") > 0
    assert counting.close("10.0.1.5", count=10) == 0
