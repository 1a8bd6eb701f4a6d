"""The rate of throttled replicas, and which these are."""

import pytest

from tailrace.replication.quotas import ReplicationQuota
from tailrace.testing import Outside
from tests.unit.broker.leaders import create_log, place
from tests.unit.storage.test_manager import manager


def quota(outside: Outside, *, rate: int, windows: int = 10) -> ReplicationQuota:
    """The leader's side of broker 1, with windows of a second."""
    made = ReplicationQuota("leader", outside.clock, node_id=1, window_count=windows, window_s=1)
    made.configure({}, {"leader.replication.throttled.rate": str(rate)})
    return made


async def test_the_rate_falls_as_time_passes(outside: Outside) -> None:
    """It is that of all windows together, and one byte above it is too much."""
    made = quota(outside, rate=100)
    assert not made.is_exceeded()
    await outside.pass_time(1.5)
    made.record(1)
    made.record(149)
    assert not made.is_exceeded()
    made.record(1)
    assert made.rate() == pytest.approx(151 / 1.5)
    assert made.is_exceeded()
    await outside.pass_time(0.5)
    assert made.rate() == pytest.approx(151 / 2)
    assert not made.is_exceeded()
    await outside.pass_time(0.5)
    made.record(99)
    assert not made.is_exceeded()
    made.record(1)
    assert made.rate() == pytest.approx(251 / 2.5)
    assert made.is_exceeded()
    await outside.pass_time(2)
    assert made.rate() == pytest.approx(251 / 4.5)
    assert not made.is_exceeded()


async def test_bytes_of_long_ago_do_not_count(outside: Outside) -> None:
    """Nor does the rest that follows them: a burst is as large as before it."""
    made = quota(outside, rate=1000, windows=3)
    made.record(1_000_000)
    await outside.pass_time(2.9)
    assert made.is_exceeded()
    await outside.pass_time(0.2)
    assert made.rate() == 0
    await outside.pass_time(1)
    made.record(500)
    assert made.rate() == 500


async def test_a_window_is_the_shortest_time(outside: Outside) -> None:
    """The first bytes are not taken for a rate without bounds."""
    made = quota(outside, rate=100)
    made.record(100)
    assert not made.is_exceeded()
    made.record(1)
    assert made.is_exceeded()


@pytest.mark.parametrize(
    ("replicas", "throttled"),
    [
        ((), []),
        (("*",), [0, 1, 2]),
        (("0:1", "1:2", "2:01"), [0, 2]),
        (("1:11", "11:1"), []),
    ],
)
def test_replicas_are_throttled_by_the_settings_of_their_topic(
    outside: Outside, replicas: tuple[str, ...], throttled: list[int]
) -> None:
    """All of them, or those that the list has for this broker and this side."""
    made, logs = quota(outside, rate=1), manager(outside.files)
    config = {
        "leader_replication_throttled_replicas": ",".join(replicas),
        "follower_replication_throttled_replicas": "*",
    }
    found = [create_log(logs, place(each), **config) for each in range(3)]
    assert [each for each, log in enumerate(found) if made.is_throttled(log)] == throttled


def test_the_setting_of_one_broker_counts_more_than_that_of_all(outside: Outside) -> None:
    """A text that is no number counts as no rate."""
    name, made = "leader.replication.throttled.rate", quota(outside, rate=7)
    unlimited = 2**63 - 1
    for of_all, of_this, rate in (
        ({name: "1"}, {}, 1),
        ({name: "1"}, {name: "2"}, 2),
        ({name: "1"}, {name: "x"}, unlimited),
        ({"follower.replication.throttled.rate": "1"}, {}, unlimited),
    ):
        made.configure(of_all, of_this)
        assert made.bytes_per_second == rate
