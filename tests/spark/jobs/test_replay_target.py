"""Batches of a replay at a broker: under numbers that are taken, and too large for the topic."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tailrace import Broker
from tailrace.client.admin import create_topic
from tailrace.client.producer import OwnedIdentity
from tailrace.client.producer.intake.columns import chunks_of
from tailrace.client.producer.intake.slices import ColumnSlice, plan_chunk
from tailrace.model import NO_TIMESTAMP, Offset, TopicPartition
from tailrace.spark.jobs.replay import ReplaySettings, check_arguments
from tailrace.spark.jobs.replay_ends import (
    BrokerTarget,
    OvertakenError,
    PlacedCallback,
    TargetSettings,
)
from tailrace.spark.jobs.replay_plan import PlannedRange
from tailrace.spark.jobs.replay_send import ReplayItem, send_item
from tailrace.spark.planning import OffsetRange
from tests.spark.directories import write_numbered
from tests.spark.topics import records

pytestmark = [pytest.mark.spark, pytest.mark.wire]

S0 = TopicPartition("s", 0)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for all targets."""
    with Broker(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.bootstrap_servers


def make(bootstrap: str, topic: str, **settings: str) -> None:
    """A topic that keeps old records; settings have `_` for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    create_topic(bootstrap, topic, partition_count=1, settings={"retention.ms": "-1", **named})


def open_target(bootstrap: str) -> BrokerTarget:
    """A target with the producer's own settings."""
    return BrokerTarget(
        TargetSettings(
            bootstrap=bootstrap,
            producer_settings={"bootstrap.servers": bootstrap},
            batch_size=1000,
            request_size_max=1 << 20,
        )
    )


def batch(first: int, count: int) -> ColumnSlice:
    """A batch of some of the numbers."""
    values = [b"value-%d" % number for number in range(first, first + count)]
    rows = {"value": values, "partition": [0] * count, "timestamp": [1] * count}
    [chunk] = chunks_of(rows)
    [found] = plan_chunk(
        chunk, partition_count=1, batch_size=100_000, request_size_max=100_000, now_ms=NO_TIMESTAMP
    ).slices
    return found


def identity(producer: tuple[int, int], topic: str, first: int) -> OwnedIdentity:
    """The numbers of one partition from `first` on."""
    return OwnedIdentity(
        producer_id=producer[0],
        producer_epoch=producer[1],
        first_sequences={TopicPartition(topic, 0): first},
    )


def send_all(target: BrokerTarget, topic: str, placed: PlacedCallback) -> None:
    """Send ten batches of three records each, and wait for them."""
    for first in range(0, 30, 3):
        target.send(topic, batch(first, 3), placed)
    target.settle()


def test_a_number_that_is_taken_ends_the_attempt(bootstrap: str) -> None:
    """Records that another attempt has sent in other batches are not sent again, nor later ones."""
    make(bootstrap, "taken")
    placed: list[tuple[int, int, int]] = []

    def note(*place: int) -> None:
        placed.append((place[0], place[1], place[2]))

    with closing(open_target(bootstrap)) as target, closing(open_target(bootstrap)) as rival:
        producer = target.new_producer()
        for each in (target, rival):
            each.begin(identity(producer, "taken", 0))
        rival.send("taken", batch(0, 5), note)
        assert rival.settle() > 0
        assert placed == [(0, 0, 5)]
        with pytest.raises(OvertakenError, match="'taken': another attempt to send the same"):
            send_all(target, "taken", note)
        target.begin(identity(producer, "taken", 5))
        target.send("taken", batch(5, 2), note)
        target.settle()
    assert placed == [(0, 0, 5), (0, 5, 2)]
    assert [each.value for each in records(bootstrap, "taken")] == [
        b"value-%d" % number for number in range(7)
    ]


def test_batches_that_are_too_large_arrive_in_parts(bootstrap: str, tmp_path: Path) -> None:
    """Each record once, the map has its place, and memory for two batches is enough."""
    count = 3000
    write_numbered(tmp_path / "data", S0, limit=count, per_batch=500)
    make(bootstrap, "small", max_message_bytes="4000")
    task = check_arguments(
        {"path": str(tmp_path / "data"), "subscribe": "s"},
        {"bootstrap.servers": bootstrap, "batch.size": 20_000, "buffer.memory": 40_000},
        offset_map=str(tmp_path / "map"),
        settings=ReplaySettings(),
    )
    with closing(BrokerTarget(task.target)) as target:
        producer_id, epoch = target.new_producer()
    planned = PlannedRange(
        topic="s", partition=0, start=0, limit=count, target="small", partition_count=1,
        keeps_partition=True, producer_id=producer_id, producer_epoch=epoch, since={0: 0},
    )  # fmt: skip
    wanted = OffsetRange(partition=S0, start=Offset(0), limit=Offset(count), size=0)
    staged = send_item(task, ReplayItem(planned=planned, wanted=(wanted, ())))
    found = records(bootstrap, "small")
    assert [each.value for each in found] == [b"value-%d" % number for number in range(count)]
    assert (staged.entry.records, staged.entry.found) == (count, 0)
    [name] = staged.renamed
    [row] = pq.ParquetFile(tmp_path / "map" / name).read().to_pylist()
    assert (row["offset"], row["target_offset"], row["records"]) == (0, 0, count)
