"""Queries of a broker while the log is compacted, cut, deleted or made again between two requests.

Each change has its turn before each request of a batch query and of a stream, for topics whose ids
the broker tells, and for those of an old one.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from tailrace.client import ClusterReader
from tailrace.client.admin.topics import delete_topics
from tailrace.errors import FatalError
from tailrace.protocol.apis import ApiKey
from tailrace.spark.batch_reader import plan_scan
from tailrace.spark.losses import GONE, LOST, PartitionGoneError
from tailrace.spark.options import parse_options
from tailrace.spark.stores import BrokerStore, measure_ranges, open_store
from tailrace.spark.streaming import TailraceStreamReader
from tailrace.testing.broker import TestBroker
from tests.unit.client.reading import ReadableCluster, ReadableLog, waiting_world
from tests.unit.spark.changing import Logs, Outcome, Row, check, run_batch, run_stream, steps

BATCHES = 6
COUNT = 10

FIRST_REQUESTS = 16
"""More than it takes to plan a query."""


def log(batches: int, prefix: bytes = b"") -> ReadableLog:
    """A log with batches of ten records."""
    made = ReadableLog(prefix=prefix)
    for _ in range(batches):
        made.write(COUNT)
    return made


def rows_of(made: ReadableLog, *, without: tuple[int, ...] = ()) -> frozenset[Row]:
    """The records of a log, except for batches that compaction has taken."""
    return frozenset(
        (offset, b"%s%d" % (made.prefix, offset))
        for offset in range(made.start, made.end)
        if offset // COUNT not in without
    )


def compact(cluster: ReadableCluster) -> None:
    """Take batches out of the middle; offsets stay."""
    cluster.flights.batches = [
        each for number, each in enumerate(cluster.flights.batches) if number not in {1, 2, 4}
    ]


def retain(cluster: ReadableCluster) -> None:
    """Delete what is older than the middle of a batch."""
    cluster.flights.start = 35


def retain_nothing(cluster: ReadableCluster) -> None:
    """Delete everything."""
    cluster.flights.start = cluster.flights.end
    cluster.flights.batches = []


def truncate(cluster: ReadableCluster) -> None:
    """Lose the last batches, as after an unclean election."""
    cluster.flights.truncate(40)


def delete(cluster: ReadableCluster) -> None:
    """Delete the topic."""
    cluster.delete_topic("flights")


def shorter(cluster: ReadableCluster) -> None:
    """Delete it, and create it with fewer records."""
    cluster.make_again(log(2, b"new "), UUID(int=2))


def longer(cluster: ReadableCluster) -> None:
    """Delete it, and create it with more records."""
    cluster.make_again(log(9, b"new "), UUID(int=2))


BEFORE = rows_of(log(BATCHES))

CHANGES: dict[Callable[[ReadableCluster], None], frozenset[Row]] = {
    compact: rows_of(log(BATCHES), without=(1, 2, 4)),
    retain: frozenset(row for row in BEFORE if row[0] >= 35),
    retain_nothing: frozenset(),
    truncate: frozenset(row for row in BEFORE if row[0] < 40),
    delete: frozenset(),
    shorter: rows_of(log(2, b"new ")),
    longer: rows_of(log(9, b"new ")),
}
"""The records after each change."""


@contextmanager
def broker(monkeypatch: pytest.MonkeyPatch, *, has_ids: bool = True) -> Iterator[ReadableCluster]:
    """A broker that answers with one batch at a time, to all queries of this process."""
    with waiting_world() as (outside, network):
        cluster = ReadableCluster(outside)
        if not has_ids:
            cluster.versions |= {ApiKey.METADATA: 8, ApiKey.FETCH: 12}
        cluster.start()
        cluster.flights = log(BATCHES)
        cluster.answer_bytes = 1
        monkeypatch.setattr(
            "tailrace.spark.stores.ClusterReader",
            partial(
                ClusterReader,
                open_network=lambda: network,
                monotonic=outside.loop.time,
                chance=outside.runtime.chance,
            ),
        )
        yield cluster


def options(cluster: ReadableCluster, *, fails: bool, **more: str) -> dict[str, str]:
    """Options of a query of the topic."""
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "flights",
        "failOnDataLoss": str(fails).lower(),
    } | more


def run(
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[ReadableCluster], None],
    *,
    at: int,
    is_stream: bool,
    fails: bool,
    has_ids: bool,
    **more: str,
) -> tuple[Outcome, int]:
    """Run a query with the change before a request; returns its outcome and all its requests."""
    with broker(monkeypatch, has_ids=has_ids) as cluster:
        count = 0

        def step() -> None:
            nonlocal count
            if count == at:
                change(cluster)
            count += 1

        cluster.before_request = step
        if is_stream:
            given = options(cluster, fails=fails, maxOffsetsPerTrigger="17", **more)
            return run_stream(given, has_changed=lambda: count > at), count
        return run_batch(options(cluster, fails=fails, **more)), count


def prove(
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[ReadableCluster], None],
    *,
    is_stream: bool,
    is_every: bool,
) -> None:
    """Have the change at each step, with losses as errors and without, with ids and without."""
    logs = Logs(BEFORE, CHANGES[change])
    for fails, has_ids in product((True, False), repeat=2):
        once = partial(run, monkeypatch, change, is_stream=is_stream, fails=fails, has_ids=has_ids)
        outcome, count = once(at=-1)
        assert frozenset(outcome.rows) == BEFORE
        assert count > BATCHES
        for at in steps(count, is_every=is_every or not is_stream):
            outcome, _ = once(at=at)
            check(logs, outcome, fails=fails)
            if is_stream and not fails and not outcome.error and has_ids and change is not delete:
                assert set(outcome.rows) >= logs.after, f"a record is missing, step {at}"


def read_while(
    cluster: ReadableCluster,
    change: Callable[[ReadableCluster], None],
    *,
    fails: bool,
    **more: str,
) -> list[int]:
    """Plan a query, and make a change when the first batch of its task has come."""
    given = parse_options(options(cluster, fails=fails, **more))
    driver, task = open_store(given), open_store(given)
    assert isinstance(task, BrokerStore)
    extents = driver.extents(driver.partitions(given.selection))
    spans = {each: (extent.start, extent.end) for each, extent in extents.items()}
    [wanted] = measure_ranges(driver, spans)
    pieces = task.pieces(wanted, fails_on_data_loss=fails)
    offsets: list[int] = [next(pieces)[0].base_offset]
    change(cluster)
    return offsets + [piece.base_offset for piece, _, _ in pieces]


def test_a_log_start_that_moves_during_a_read_is_a_loss_or_where_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without failOnDataLoss the rest is read, and a line says what is not."""
    with broker(monkeypatch) as cluster:
        assert read_while(cluster, retain, fails=False) == [0, 30, 40, 50]
    assert skipped(caplog) == ["of which 10 to 35 are gone: 25 offsets"]
    with broker(monkeypatch) as cluster, pytest.raises(FatalError) as caught:
        read_while(cluster, retain, fails=True)
    assert str(caught.value).startswith(f"{LOST} flights-0: offsets 0 to 60 were planned, but ")
    assert str(caught.value).endswith("or set failOnDataLoss=false to read what is there")


def test_a_log_start_among_aborted_records_is_where_a_read_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches that read_committed does not see have been read too: none comes twice."""
    with broker(monkeypatch) as cluster:
        cluster.flights = log(1)
        for _ in range(2):
            cluster.flights.write(COUNT, producer_id=7)
        cluster.flights.finish(7, is_commit=False)
        cluster.flights.write(COUNT)
        level = {"kafka.isolation.level": "read_committed"}
        assert read_while(cluster, lambda _: None, fails=True, **level) == [0, 30, 31]

        def move(at: ReadableCluster) -> None:
            at.flights.start = 25

        assert read_while(cluster, move, fails=False, **level) == [0, 30, 31]


def skipped(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The ends of the lines about ranges that were skipped."""
    lines = [each for each in caplog.messages if each.startswith(f"Skipped: {LOST} ")]
    return [each.rpartition(" were planned, ")[2] for each in lines]


def test_a_log_that_is_cut_during_a_read_ends_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unclean election may take the end of the log; the rest is not waited for without end."""
    with broker(monkeypatch) as cluster:
        assert read_while(cluster, truncate, fails=False) == [0, 10, 20, 30]
    assert skipped(caplog) == ["of which 40 to 60 are gone: 20 offsets"]
    with broker(monkeypatch) as cluster, pytest.raises(FatalError, match="which has 0 to 40"):
        read_while(cluster, truncate, fails=True)


@pytest.mark.parametrize("change", [delete, longer])
def test_a_topic_that_goes_during_a_read_is_a_loss_or_its_end(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[ReadableCluster], None]
) -> None:
    """No record comes from another topic of the name, which has the same offsets."""
    with broker(monkeypatch) as cluster:
        found = read_while(cluster, change, fails=False)
        assert found in ([0], [0, 10]), "the next fetch may be answered already"
    with broker(monkeypatch) as cluster, pytest.raises(PartitionGoneError) as caught:
        read_while(cluster, change, fails=True)
    assert str(caught.value).startswith(GONE)


def test_a_broker_without_topic_ids_is_read_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody can tell one topic of a name from another."""
    with broker(monkeypatch, has_ids=False) as cluster:
        assert read_while(cluster, longer, fails=True) == [0, 10, 20, 30, 40, 50]
        assert cluster.asked_version == 8


def test_the_offsets_of_a_stream_have_the_ids_that_a_broker_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They stand beside the positions; an old broker tells none."""
    for has_ids in (True, False):
        with broker(monkeypatch, has_ids=has_ids) as cluster:
            given = parse_options(options(cluster, fails=True), is_stream=True)
            reader = TailraceStreamReader(given, columns=["offset"])
            offset = reader.latestOffset({}, reader.getDefaultReadLimit())
            expected = {"flights": {"0": 60}, "@from": {"flights": {"0": 60}}}
            if has_ids:
                expected["@id flights AAAAAAAAAAAAAAAAAAAAAQ"] = {}
            assert offset == expected
            reader.stop()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_query_beside_a_change_is_right_or_tells_the_loss(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[ReadableCluster], None], *, is_stream: bool
) -> None:
    """No row is wrong, none comes twice, and none is missing that was there all the time."""
    prove(monkeypatch, change, is_stream=is_stream, is_every=False)


def append(cluster: ReadableCluster) -> None:
    """Write two more batches; the timestamp of each record is its offset."""
    for _ in range(2):
        cluster.flights.write(COUNT)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_start_by_time_is_never_older_records(
    monkeypatch: pytest.MonkeyPatch, *, is_stream: bool
) -> None:
    """Records come before each request: the first new enough one is the start, or there is none."""
    least = BATCHES * COUNT + 15
    given = {"startingTimestamp": str(least)}
    found = set()
    for at in range(FIRST_REQUESTS):
        outcome, _ = run(
            monkeypatch, append, at=at, is_stream=is_stream, fails=True, has_ids=True, **given
        )
        offsets = [offset for offset, _ in outcome.rows]
        if outcome.error is not None:
            assert f"flights-0 has no record from {least} ms on" in str(outcome.error)
            assert not offsets
        elif offsets or is_stream:
            assert offsets == list(range(least, BATCHES * COUNT + 20))
        found.add((bool(outcome.error), bool(offsets)))
    # A batch ends where its log did at first.
    assert found == {(True, False), (False, True)} | (set() if is_stream else {(False, False)})


def test_an_end_by_time_may_come_while_a_batch_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch ends there, or where its log did at first; it is no loss."""
    limit = BATCHES * COUNT + 15
    ends = set()
    for at in range(FIRST_REQUESTS):
        outcome, _ = run(
            monkeypatch, append, at=at, is_stream=False, fails=True, has_ids=True,
            endingTimestamp=str(limit),
        )  # fmt: skip
        assert outcome.error is None
        ends.add(len(outcome.rows))
        assert [offset for offset, _ in outcome.rows] == list(range(len(outcome.rows)))
    assert ends == {BATCHES * COUNT, limit}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_stream_beside_a_change_at_any_request_is_right_or_tells_the_loss(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[ReadableCluster], None]
) -> None:
    """The same with the change at each request of a stream."""
    prove(monkeypatch, change, is_stream=True, is_every=True)


@pytest.mark.parametrize("is_by_partition", [False, True])
def test_times_of_all_partitions_are_one_question(*, is_by_partition: bool) -> None:
    """Beside those for the ends of the logs there is one request for each bound."""
    count = 20
    with TestBroker() as broker:
        broker.create_topic("t", partitions=count)
        for number in range(count):
            for time in (1000, 2000, 3000):
                broker.produce("t", "v", partition=number, timestamp_ms=time)
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}
        if is_by_partition:
            starts = {str(number): 1500 + number for number in range(count)}
            given["startingOffsetsByTimestamp"] = json.dumps({"t": starts})
        else:
            given["startingTimestamp"] = "1500"
        given["endingTimestamp"] = "2500"
        options = parse_options(given)
        with broker.delay("ListOffsets", seconds=0.001) as asked:
            tasks = plan_scan(options, open_store(options), core_count=1)
            assert asked.count == 4
        ranges = [each for task in tasks for each in task.ranges]
        assert [(each.start, each.limit) for each in ranges] == [(1, 2)] * count


def test_a_stream_of_a_real_broker_knows_a_topic_that_was_made_again() -> None:
    """Its own ids travel from the broker to the checkpoint and back, and into the fetches."""
    with TestBroker() as broker:
        for _ in range(3):
            broker.produce("flights", "old")
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": "flights",
            "startingOffsets": "earliest",
            "failOnDataLoss": "false",
        }
        start: dict[str, Any] = {}
        found = []
        for prefix in ("old", "new", "new"):
            reader = TailraceStreamReader(
                parse_options(given, is_stream=True), columns=["offset", "value"]
            )
            end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
            [noted] = [key for key in end if key.startswith("@id flights ")]
            rows = [
                (row["offset"], row["value"])
                for task in reader.partitions(start, end)
                for batch in reader.read(task)
                for row in batch.to_pylist()
            ]
            reader.stop()
            found.append((noted, rows))
            start = end
            if prefix == "old":
                cluster = ClusterReader(broker.bootstrap_servers)
                cluster.do(delete_topics, ["flights"]).results()
                cluster.close()
                broker.create_topic("flights")
                for _ in range(5):
                    broker.produce("flights", "new")
        (old, first), (new, second), (again, third) = found
        assert old != new == again
        assert first == [(offset, b"old") for offset in range(3)]
        assert second == [(offset, b"new") for offset in range(5)]
        assert third == []
