"""The demo's consumer group, with librdkafka and a broker over a real socket."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.broker import Broker
from tailrace.demo.consume import consume
from tailrace.demo.flights import TopicRecords
from tailrace.demo.produce import end_offsets, produce
from tailrace.demo.run import BROKER_SETTINGS
from tailrace.errors import FatalError

pytestmark = pytest.mark.wire


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of a broker."""
    with Broker(data=tmp_path, settings=BROKER_SETTINGS) as running:
        yield running.bootstrap_servers


def fill(address: str, *, count: int) -> tuple[TopicRecords, list[int]]:
    """`count` records in the topic, and the ends of its partitions."""
    records = TopicRecords(
        topic="flights",
        partition_count=4,
        keys=[b"N%d" % (number % 50) for number in range(count)],
        values=[b"value %d" % number for number in range(count)],
        timestamps_ms=list(range(1, count + 1)),
    )
    present = end_offsets(records, bootstrap_servers=address)
    produce(records, bootstrap_servers=address, present=present, progress=lambda _: None)
    return records, end_offsets(records, bootstrap_servers=address)


def test_a_group_reads_all_records_and_later_only_the_new_ones(broker: str) -> None:
    """Both members read, the lag of the middle is shown, and the group goes on where it was."""
    said: list[str] = []
    _, ends = fill(broker, count=2_000)
    first = consume("flights", end_offsets=ends, bootstrap_servers=broker, say=said.append)
    assert sum(first.records) == 2_000
    assert all(first.records)
    (shown,) = said
    assert shown.startswith("$ tailrace group describe flights-board --bootstrap")
    assert "2 members" in shown
    _, ends = fill(broker, count=2_500)
    again = consume("flights", end_offsets=ends, bootstrap_servers=broker, say=said.append)
    assert sum(again.records) == 500


def test_a_group_that_has_read_further_than_the_topic_is_told(broker: str) -> None:
    """The demo fails when the offsets of the group are not those of its records."""
    _, ends = fill(broker, count=1_000)
    consume("flights", end_offsets=ends, bootstrap_servers=broker, say=lambda _: None)
    shorter = [each - 1 for each in ends]
    with pytest.raises(FatalError, match="its partitions end at"):
        consume("flights", end_offsets=shorter, bootstrap_servers=broker, say=lambda _: None)
