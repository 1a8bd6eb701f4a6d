"""Ranges that are sent with interruptions of all sorts: each record arrives once, in order."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import FatalError, RetriableError
from tailrace.kernels.encoding import choose_partition
from tailrace.model import NO_TIMESTAMP, Offset, TopicPartition
from tailrace.records.builder import Record
from tailrace.spark.jobs.replay_plan import PlannedRange, runs_of
from tailrace.spark.jobs.replay_send import Walk, send_range
from tests.unit.records.batches import record_at
from tests.unit.spark.jobs.replay_logs import (
    Break,
    BrokenConnectionError,
    Connection,
    Logs,
    settings_of,
)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("headers", HEADERS),
        ("offset", pa.int64()),
    ]
)


TIMES = {3: NO_TIMESTAMP, 5: -86_400_000}
"""Timestamps of some records by their number, modulo 7: without a time, and before 1970."""


def source(count: int, *, keys: int = 3) -> list[Record]:
    """Records with gaps in their offsets, some without key, value, headers or time."""
    return [
        record_at(
            offset=10 + number + number // 4,
            timestamp=TIMES.get(number % 7, 1_700_000_000_000 + number * 9_999_999),
            key=None if number % 5 == 4 else b"key-%d" % (number % keys),
            value=None if number % 6 == 5 else b"value-%d" % number,
            headers=(("h", b"%d" % number), ("h", None)) if number % 3 == 0 else (),
        )
        for number in range(count)
    ]


def tables_of(records: Sequence[Record], size: int) -> Iterator[pa.Table]:
    """The records as a source gives them, `size` at a time."""
    for start in range(0, len(records), size):
        rows = [
            {
                "key": each.key,
                "value": each.value,
                "timestamp": each.timestamp,
                "headers": [{"key": name, "value": content} for name, content in each.headers]
                or None,
                "offset": each.offset,
            }
            for each in records[start : start + size]
        ]
        yield pa.Table.from_pylist(rows, schema=SCHEMA)


def planned_for(
    logs: Logs, *, partition_count: int = 1, keeps_partition: bool = False, partition: int = 0
) -> PlannedRange:
    """A plan for a range of `s` into `t`, as its logs stand now."""
    numbers = [partition] if keeps_partition else range(partition_count)
    return PlannedRange(
        topic="s", partition=partition, start=10, limit=10_000, target="t",
        partition_count=partition_count, keeps_partition=keeps_partition, producer_id=77,
        producer_epoch=0, since={each: logs.end(TopicPartition("t", each)) for each in numbers},
    )  # fmt: skip


def at_once(attempt: Callable[[], Walk]) -> Walk:
    """Tries again what may pass, a bounded number of times."""
    for _ in range(6):
        try:
            return attempt()
        except RetriableError:
            pass
    return attempt()


def walk(
    planned: PlannedRange,
    records: Sequence[Record],
    connection: Connection,
    *,
    batch_size: int = 150,
    table_size: int = 7,
) -> Walk:
    """One attempt of a task."""
    return send_range(
        planned,
        lambda: tables_of(records, table_size),
        connection,
        settings=settings_of(batch_size),
        retrying=at_once,
    )


def expected(records: Sequence[Record], planned: PlannedRange, number: int) -> list[Record]:
    """Return the records that a partition of the target should have, with offset 0 throughout."""

    def goes_to(each: Record) -> int:
        if planned.keeps_partition:
            return planned.partition
        if each.key is None:
            return planned.partition % planned.partition_count
        return choose_partition(each.key, planned.partition_count)

    return [each._replace(offset=Offset(0)) for each in records if goes_to(each) == number]


def check(logs: Logs, planned: PlannedRange, records: Sequence[Record], last: Walk) -> None:
    """Each record is there once and in order, and the offset map says where."""
    by_offset = {each.offset: each for each in records}
    mapped = 0
    for number in range(planned.partition_count):
        found = logs.records(TopicPartition("t", number))
        assert [each._replace(offset=Offset(0)) for each in found] == expected(
            records, planned, number
        )
    for moved in last.moved():
        there = {each.offset: each for each in logs.records(TopicPartition("t", moved.partition))}
        for offset, target_offset, count in zip(*map(list, runs_of(moved)), strict=True):
            for step in range(count):
                original = by_offset[offset + step]
                assert there[target_offset + step]._replace(offset=Offset(0)) == original._replace(
                    offset=Offset(0)
                )
                mapped += 1
    assert mapped == last.records == len(records)


breaks = st.builds(
    Break,
    sends=st.integers(0, 12),
    refused=st.integers(0, 2),
    arrived=st.integers(0, 5),
    late=st.booleans(),
)


@given(
    st.integers(0, 60),
    st.integers(1, 3),
    st.lists(st.tuples(breaks, st.integers(120, 400), st.integers(1, 40)), max_size=4),
    st.integers(0, 2),
)
def test_an_interrupted_range_arrives_once(
    count: int, partition_count: int, attempts: list[tuple[Break, int, int]], foreign: int
) -> None:
    """Records arrive once however connections break, batches are cut, and others write."""
    logs, records = Logs(), source(count)
    logs.append_foreign(TopicPartition("t", 0), [b"before"])
    planned = planned_for(logs, partition_count=partition_count)
    for end, batch_size, table_size in attempts:
        connection = Connection(logs, end)
        try:
            walk(planned, records, connection, batch_size=batch_size, table_size=table_size)
        except BrokenConnectionError:
            for _ in range(foreign):
                logs.append_foreign(TopicPartition("t", 0), [b"a", b"b"])
    last = walk(planned, records, Connection(logs))
    check(logs, planned, records, last)


@given(
    st.integers(1, 60),
    st.integers(1, 3),
    st.dictionaries(st.integers(0, 8), st.tuples(breaks, st.integers(120, 400)), max_size=3),
)
def test_attempts_at_one_time_do_not_double(
    count: int, partition_count: int, rivals: dict[int, tuple[Break, int]]
) -> None:
    """Others of the same range send in between, to the end or up to a broken connection."""
    logs, records = Logs(), source(count)
    planned = planned_for(logs, partition_count=partition_count)

    def let_rivals_send(number: int) -> None:
        if number in rivals:
            end, batch_size = rivals.pop(number)
            try:
                walk(planned, records, Connection(logs, end), batch_size=batch_size)
            except BrokenConnectionError:
                logs.deliver_late()

    last = walk(planned, records, Connection(logs, before_send=let_rivals_send))
    check(logs, planned, records, last)


@given(st.integers(0, 40), breaks)
def test_partitions_can_be_kept(count: int, end: Break) -> None:
    """All records of a partition are in the one of its number, whatever their keys."""
    logs, records = Logs(), source(count)
    planned = planned_for(logs, partition_count=3, keeps_partition=True, partition=2)
    with suppress(BrokenConnectionError):
        walk(planned, records, Connection(logs, end))
    last = walk(planned, records, Connection(logs))
    check(logs, planned, records, last)
    assert {each.partition for each in last.moved()} == ({2} if count else set())


def test_a_broker_that_forgot_the_producer_is_no_obstacle() -> None:
    """The job continues after the records in the log, with the next sequence number."""
    logs, records = Logs(), source(40)
    planned = planned_for(logs)
    with pytest.raises(BrokenConnectionError):
        walk(planned, records, Connection(logs, Break(sends=4, refused=0, arrived=2, late=False)))
    logs.forget_producers()
    last = walk(planned, records, Connection(logs))
    check(logs, planned, records, last)
    assert 0 < last.found < 40


def interrupted() -> tuple[Logs, PlannedRange, list[Record]]:
    """A range of which some batches have arrived."""
    logs, records = Logs(), source(40)
    planned = planned_for(logs)
    with pytest.raises(BrokenConnectionError):
        walk(planned, records, Connection(logs, Break(sends=5, refused=0, arrived=5, late=False)))
    return logs, planned, records


@pytest.mark.parametrize(
    "change",
    [
        lambda records: records[1:],
        lambda records: [records[0]._replace(value=b"other"), *records[1:]],
        lambda records: [records[0]._replace(headers=()), *records[1:]],
        lambda records: records[:2],
        lambda records: records[:0],
    ],
    ids=["first one gone", "other value", "other headers", "shorter", "empty"],
)
def test_a_source_that_changed_is_refused(
    change: Callable[[list[Record]], list[Record]],
) -> None:
    """When it no longer has what was sent, as after compaction; nothing more is sent."""
    logs, planned, records = interrupted()
    before = logs.end(TopicPartition("t", 0))
    with pytest.raises(FatalError, match="t-0 has records of an interrupted replay that the"):
        walk(planned, change(records), Connection(logs))
    assert logs.end(TopicPartition("t", 0)) == before


def test_what_is_behind_the_part_that_arrived_may_change() -> None:
    """It is taken as it is now."""
    logs, planned, records = interrupted()
    records[-1] = records[-1]._replace(value=b"newer")
    check(logs, planned, records, walk(planned, records, Connection(logs)))


def test_a_target_that_lost_the_last_batch_is_refused() -> None:
    """Retention was faster than the next run."""
    logs, planned, records = interrupted()
    logs.start[TopicPartition("t", 0)] = logs.end(TopicPartition("t", 0))
    with pytest.raises(FatalError, match="t-0 has lost records since offset 0"):
        walk(planned, records, Connection(logs))


def test_a_target_that_lost_earlier_batches_is_gone_on_with() -> None:
    """The last number is enough; the map has what is left."""
    logs, planned, records = interrupted()
    [*batches] = logs.batches(TopicPartition("t", 0))
    logs.start[TopicPartition("t", 0)] = batches[1].base_offset
    last = walk(planned, records, Connection(logs))
    found = logs.records(TopicPartition("t", 0))
    lost = batches[1].base_offset
    assert [each.value for each in found] == [each.value for each in records[lost:]]
    assert sum(int(runs_of(each)[2].sum()) for each in last.moved()) == len(records) - lost


def test_another_topic_of_the_same_name_is_refused() -> None:
    """It ends before the replay began."""
    logs, planned, records = interrupted()
    planned = replace(planned, since={0: 1_000})
    with pytest.raises(FatalError, match="it is another topic of that name now"):
        walk(planned, records, Connection(logs))


def test_a_record_that_cannot_be_sent_is_told_with_its_offset() -> None:
    """A record that is larger than a request may be is such a record."""
    records = [*source(3), record_at(99, 0, None, b"x" * (1 << 20))]
    logs = Logs()
    with pytest.raises(FatalError, match="s-0, offset 99: the record cannot be sent: it takes"):
        walk(planned_for(logs), records, Connection(logs))
