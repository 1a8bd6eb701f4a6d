"""Differences that the check of throttles finds."""

import pytest

from compat.quotas import TOLERANCE_MS, Measured, _differences

TOLD = Measured("produce", "code 0", throttle_ms=2000, delayed_ms=2000)


@pytest.mark.parametrize("delayed_ms", [0, 1, 2000 - TOLERANCE_MS - 1, 2000 + TOLERANCE_MS + 1])
def test_a_broker_that_does_not_wait_as_long_as_it_tells_differs(delayed_ms: int) -> None:
    """Neither one that answers the next request at once."""
    other = TOLD._replace(delayed_ms=delayed_ms)
    fault = f"delayed by {delayed_ms} ms for 2000 ms"
    assert _differences(TOLD, other) == _differences(other, TOLD) == [fault]


def test_times_that_are_alike_are_no_difference() -> None:
    """Nor is a step after which nothing was asked."""
    assert _differences(TOLD, TOLD._replace(throttle_ms=2300, delayed_ms=2300)) == []
    unasked = TOLD._replace(delayed_ms=None)
    assert _differences(unasked, unasked) == []
