"""The geometry of charts: to scale, and with round values on their axes."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.jobs.report_html import BYTES, COUNTS, WIDTH, Quantity, bars, columns, ticks

MINUTE_MS = 60_000
DAY_MS = 86_400_000


def test_half_the_value_is_half_the_bar() -> None:
    """A bar of nothing has no length."""
    chart = bars([("a", 10, ""), ("b", 5, ""), ("c", 0, "")], axis="records", quantity=COUNTS)
    first, second, third = (each.length for each in chart.bars)
    assert first == 2 * second
    assert third == 0


def test_a_tick_is_where_a_bar_of_its_value_ends() -> None:
    """The axis and the bars have one scale."""
    chart = bars([("a", 1000, ""), ("b", 400, "")], axis="records", quantity=COUNTS)
    [tick] = [each for each in chart.ticks if each.text == "400"]
    assert tick.at == chart.start + chart.bars[1].length


def test_charts_of_nothing_have_an_axis() -> None:
    """No values, or only zeros, are no division by nothing."""
    assert bars([], axis="records", quantity=COUNTS).ticks[0].text == "0"
    assert columns([0], start_ms=0, step_ms=1, axis="bytes", quantity=BYTES).ticks[0].text == "0 B"


def test_ticks_are_round() -> None:
    """Counts go by 1, 2 and 5; bytes by powers of two, with their unit."""

    def texts(largest: int, quantity: Quantity) -> list[str]:
        return [each.text for each in ticks(largest, quantity, start=0, length=1)]

    assert texts(2644, COUNTS) == ["0", "500", "1,000", "1,500", "2,000", "2,500"]
    assert texts(5 * 2**20, BYTES) == ["0 B", "1 MiB", "2 MiB", "3 MiB", "4 MiB", "5 MiB"]


@given(st.integers(0, 2**63))
def test_ticks_are_few_and_on_the_axis(largest: int) -> None:
    """There are at most seven, from zero on, however large the values are."""
    for quantity in (BYTES, COUNTS):
        found = [each.at for each in ticks(largest, quantity, start=0, length=WIDTH)]
        assert 1 <= len(found) <= 7
        assert found == sorted(found)
        assert (found[0], found[-1] <= WIDTH) == (0, True)


def test_times_on_the_axis_are_round() -> None:
    """Hours have their time, days their date; a tick stands where its column begins."""
    hours = columns([1] * 24, start_ms=0, step_ms=60 * MINUTE_MS, axis="", quantity=COUNTS)
    assert [each.text for each in hours.time_ticks] == [
        "01-01 00:00", "01-01 06:00", "01-01 12:00", "01-01 18:00",
    ]  # fmt: skip
    assert hours.time_ticks[1].at == hours.columns[6].at
    days = columns([1] * 7, start_ms=DAY_MS, step_ms=DAY_MS, axis="", quantity=COUNTS)
    assert [each.text for each in days.time_ticks][:2] == ["1970-01-02", "1970-01-03"]


@given(st.integers(0, 2**62), st.integers(1, 300), st.sampled_from([MINUTE_MS, DAY_MS, 2**40]))
def test_times_on_the_axis_are_few(start_ms: int, count: int, step_ms: int) -> None:
    """An axis of any years has at most eight times, and none beyond the chart."""
    start_ms -= start_ms % step_ms
    chart = columns([1] * count, start_ms=start_ms, step_ms=step_ms, axis="", quantity=COUNTS)
    assert len(chart.time_ticks) <= 8
    assert all(chart.start <= each.at <= WIDTH for each in chart.time_ticks)
