"""Rates over windows and token buckets, by the arithmetic of Kafka's metrics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.runtime.rates import Rate, TokenBucket, WindowedSum, Windows, java_round

WINDOWS = Windows(11, 1000)
HOUR_MS = 3_600_000


class NaiveSum:
    """Kafka's windows as a ring, counted from its beginning at each question."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.ring: list[list[float]] = []
        """Begin, time of the last value, and sum of each window."""
        self.current = 0

    def add(self, value: float, now_ms: int) -> None:
        """Add a value to the current window, or to the next one."""
        if not self.ring:
            self.ring.append([now_ms, now_ms, 0])
        if now_ms - self.ring[self.current][0] >= self.windows.size_ms:
            self.current = (self.current + 1) % (self.windows.count + 1)
            if self.current == len(self.ring):
                self.ring.append([now_ms, now_ms, 0])
            self.ring[self.current] = [now_ms, now_ms, 0]
        self.ring[self.current][1] = now_ms
        self.ring[self.current][2] += value

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The sum of all windows, and the age of the oldest."""
        for place, (_, last_ms, _) in enumerate(self.ring):
            if now_ms - last_ms >= self.windows.count * self.windows.size_ms:
                self.ring[place] = [now_ms, now_ms, 0]
        if not self.ring:
            self.ring.append([now_ms, now_ms, 0])
        return sum(each[2] for each in self.ring), now_ms - int(min(each[0] for each in self.ring))


@given(
    st.builds(Windows, st.integers(1, 12), st.sampled_from([1, 7, 1000])),
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 3000), st.integers(0, 20).map(lambda count: count * 1000)),
            st.one_of(st.none(), st.integers(-50, 5000)),
        ),
        max_size=60,
    ),
)
def test_sums_are_those_of_a_ring(windows: Windows, steps: list[tuple[int, int | None]]) -> None:
    """Whatever the times between values and questions, with values that are taken back."""
    made, naive, now_ms = WindowedSum(windows), NaiveSum(windows), 5
    for passed_ms, value in steps:
        now_ms += passed_ms
        if value is None:
            assert made.measure(now_ms) == naive.measure(now_ms)
        else:
            made.add(value, now_ms)
            naive.add(value, now_ms)
    assert made.measure(now_ms) == naive.measure(now_ms)


@given(
    st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 3000)), max_size=40),
    st.integers(1, 500),
    st.integers(0, 4000),
)
def test_what_has_room_is_not_throttled(
    values: list[tuple[int, int]], limit: int, asked: int
) -> None:
    """And what has none is, whenever it comes."""
    rate, now_ms = Rate(WINDOWS), 0
    for passed_ms, value in values:
        now_ms += passed_ms
        if rate.has_room(value, limit, now_ms):
            rate.record(value, now_ms)
            assert rate.per_second(now_ms) <= limit * (1 + 1e-9)
    has_room = rate.has_room(asked, limit, now_ms)
    rate.record(asked, now_ms)
    assert has_room == (rate.per_second(now_ms) <= limit * (1 + 1e-9))


def test_a_spike_is_throttled_by_what_it_exceeds() -> None:
    """6300 bytes in 10.5 s are 600 a second, a fifth above 500: a fifth of 10.5 s is 2100 ms."""
    rate, now_ms = Rate(WINDOWS), 0
    for _ in range(10):
        rate.record(400, now_ms)
        assert rate.throttle_ms(500, now_ms) == 0
        now_ms += 1000
    now_ms += 500
    rate.record(2300, now_ms)
    assert rate.per_second(now_ms) == 600
    assert rate.throttle_ms(500, now_ms) == 2100


def test_the_first_values_are_spread_over_all_windows_but_one() -> None:
    """25 kB at once are 2500 a second, of which 1000 are allowed: 15 s, as Kafka says."""
    rate = Rate(WINDOWS)
    rate.record(25_000, 0)
    assert rate.per_second(0) == 2500
    assert rate.throttle_ms(1000, 0) == 15_000
    assert rate.per_second(999) == 25_000 / 10.999
    assert rate.per_second(1000) == 2500


def test_the_room_is_the_value_that_the_limit_has_left() -> None:
    """With it there is no throttle yet, with one more there is."""
    rate = Rate(WINDOWS)
    rate.record(9000, 0)
    assert rate.room(1000, 0) == 1000
    rate.record(1000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(1, 0)
    assert rate.room(1000, 0) == -1
    assert rate.throttle_ms(1000, 0) == 1


def test_a_value_that_is_taken_back_does_not_count() -> None:
    """An answer that leaves without its records is fetched again."""
    rate = Rate(WINDOWS)
    rate.record(25_000, 0)
    rate.record(-25_000, 0)
    assert rate.throttle_ms(1000, 0) == 0


def test_values_are_forgotten_after_all_windows() -> None:
    """The rate is zero then, and what follows counts as the first."""
    rate = Rate(WINDOWS)
    rate.record(1_000_000, 0)
    assert rate.throttle_ms(1000, 10_999) > 0
    assert rate.throttle_ms(1000, 11_000) == 0
    rate.record(10_000, HOUR_MS)
    assert rate.throttle_ms(1000, HOUR_MS) == 0


def test_a_full_bucket_may_be_overdrawn_once() -> None:
    """The tokens beyond it have to come before the next request."""
    bucket = TokenBucket(WINDOWS)
    assert bucket.tokens(2, 0) == 22
    bucket.take(100, 2, 0)
    assert bucket.tokens(2, 0) == -78
    assert bucket.throttle_ms(2, 0) == 39_000
    assert bucket.throttle_ms(2, 38_999) == 1
    assert bucket.throttle_ms(2, 39_000) == 0


def test_a_bucket_is_never_more_than_full() -> None:
    """An hour without requests allows no more than all windows."""
    bucket = TokenBucket(WINDOWS)
    bucket.take(30, 2, 0)
    assert bucket.tokens(2, HOUR_MS) == 22


def test_another_rate_counts_from_now_on() -> None:
    """The tokens stay, and no more than the new rate allows."""
    bucket = TokenBucket(WINDOWS)
    bucket.take(2, 2, 0)
    assert bucket.tokens(1, 0) == 11
    assert bucket.tokens(10, 1000) == 21


@pytest.mark.parametrize(("value", "rounded"), [(0.5, 1), (1.49, 1), (2.5, 3), (-0.5, 0)])
def test_halves_are_rounded_up(value: float, rounded: int) -> None:
    """Java does so, where Python takes the even number."""
    assert java_round(value) == rounded


def test_the_smallest_limit_has_the_longest_time() -> None:
    """It would be infinite; Java's largest number stands for it."""
    rate, bucket = Rate(WINDOWS), TokenBucket(WINDOWS)
    rate.record(1, 0)
    bucket.take(1, 5e-324, 0)
    assert rate.throttle_ms(5e-324, 0) == bucket.throttle_ms(5e-324, 0) == 2**63 - 1
