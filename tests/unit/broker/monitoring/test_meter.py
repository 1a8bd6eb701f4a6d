"""Rates between two scrapes, which may be those of two readers."""

from tailrace.broker.monitoring.values import Meter
from tailrace.testing import Outside


async def test_a_scrape_that_begins_meanwhile_makes_no_rate_larger(outside: Outside) -> None:
    """A rate is over the time since its total was read last, by any reader."""
    meter = Meter(outside.clock.monotonic_s)
    meter.take()
    assert meter.rate("records", 100) == 0
    await outside.pass_time(10)
    meter.take()
    # Another reader, before the first one has got to this total.
    await outside.pass_time(0.01)
    meter.take()
    assert 99 < meter.rate("records", 1100) <= 100
    await outside.pass_time(5)
    assert 19 < meter.rate("records", 1200) <= 20
