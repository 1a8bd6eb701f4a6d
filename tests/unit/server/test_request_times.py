"""Times of requests, and their quantiles."""

import pytest

from tailrace.server.request_times import WINDOWS, ApiTimes, Distribution, quantiles_s

QUARTERS = (0.25, 0.5, 0.75, 1.0)


@pytest.mark.parametrize("unit_s", [1e-6, 1e-3, 1.0, 100.0])
def test_quantiles_are_right_to_an_eighth(unit_s: float) -> None:
    """Each quantile of the times 1 to 100 is within an eighth of the true one, in any unit."""
    times = Distribution()
    for number in range(1, 101):
        times.add(number * unit_s)
    found = quantiles_s(times.counts(), QUARTERS)
    for wanted, each in zip(QUARTERS, found, strict=True):
        assert each == pytest.approx(wanted * 100 * unit_s, rel=0.125, abs=1e-6)


def test_old_times_leave_the_quantiles() -> None:
    """After some windows only later times are in the quantiles."""
    times = Distribution()
    times.add(10.0)
    for _ in range(WINDOWS):
        times.turn()
    assert quantiles_s(times.counts(), (0.5,)) == [0.0]
    times.add(0.001)
    assert quantiles_s(times.counts(), (1.0,)) == [pytest.approx(0.001, rel=0.125)]


def test_times_out_of_range_are_counted_at_its_ends() -> None:
    """A clock that goes back, and a request of a month, are counted and fail nothing."""
    times = Distribution()
    times.add(-1.0)
    times.add(30 * 86400.0)
    low, high = quantiles_s(times.counts(), (0.5, 1.0))
    assert low < 1e-5
    assert high > 1000


def test_requests_that_did_not_wait_have_no_remote_time() -> None:
    """Each stage has all ten of nine requests that did not wait and one that did."""
    times = ApiTimes()
    for _ in range(9):
        times.add(0.001, 0.0)
    times.add(0.002, 1.0)
    found = {stage: quantiles_s(counts, (0.5, 1.0)) for stage, counts in times.stages().items()}
    assert found["local"] == [pytest.approx(0.001, rel=0.125), pytest.approx(0.002, rel=0.125)]
    assert found["remote"] == [pytest.approx(0.0, abs=1e-6), pytest.approx(1.0, rel=0.125)]
    assert found["total"] == [pytest.approx(0.001, rel=0.125), pytest.approx(1.002, rel=0.125)]
