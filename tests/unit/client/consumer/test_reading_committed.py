"""Transactions as a consumer reads them, with either isolation level."""

from typing import Any

import pytest

from tailrace.client.consumer import AsyncConsumer
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.fetch import AbortedTransaction, FetchRequest, PartitionData
from tailrace.protocol.messages.list_offsets import ListOffsetsRequest
from tailrace.records.builder import BatchBuilder
from tailrace.testing import Outside
from tests.unit.client.consumer.leaders import Leaders, offsets, read
from tests.unit.client.consumer.stage import T0
from tests.unit.client.reading import ReadableLog


def reader(cluster: Leaders, *, is_committed: bool = True, **settings: Any) -> AsyncConsumer:
    """A consumer of t-0."""
    level = "read_committed" if is_committed else "read_uncommitted"
    consumer = cluster.consumer(isolation_level=level, **settings)
    consumer.assign(T0)
    return consumer


def cluster_with(outside: Outside, text: str) -> Leaders:
    """A cluster whose log has these, one after the other.

    `a` and `b` write two records of a transaction each, `A` and `B` commit it, `x` and `y` abort
    it, `-` writes a record without one.
    """
    cluster = Leaders(outside)
    log = cluster.logs[T0]
    for each in text:
        match each:
            case "-":
                log.write(1)
            case "a" | "b":
                log.write(2, producer_id="ab".index(each))
            case "A" | "B":
                log.finish("AB".index(each), is_commit=True)
            case _:
                log.finish("xy".index(each), is_commit=False)
    return cluster


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("aA", [0, 1]),
        ("ax", []),
        ("ax-", [3]),
        ("aAaxaA", [0, 1, 6, 7]),
        ("abAyaA", [0, 1, 6, 7]),
        ("abxB-", [2, 3, 6]),
        ("axaxby-", [9]),
        ("aaxa-A", [5, 6, 7]),
        ("-a-", [0]),
    ],
)
async def test_aborted_records_are_left_out_and_markers_are_passed(
    outside: Outside, log: str, expected: list[int]
) -> None:
    """The records of committed transactions come in order; the position ends behind the markers."""
    cluster = cluster_with(outside, log)
    async with reader(cluster) as consumer:
        found = []
        while records := await consumer.poll(1):
            found += offsets(records)
        assert found == expected
        end = cluster.logs[T0].end_for(1)
        assert await consumer.position(T0) == end
        assert await consumer.lag() == {T0: 0}
    assert {each.body.isolation_level for each in cluster.requests(FetchRequest)} == {1}


async def test_without_isolation_all_records_come_and_no_marker(outside: Outside) -> None:
    """Aborted records and open ones are returned too, control records never."""
    cluster = cluster_with(outside, "axbB-a")
    async with reader(cluster, is_committed=False) as consumer:
        assert offsets(await read(consumer, 7)) == [0, 1, 3, 4, 6, 7, 8]
        assert await consumer.position(T0) == 9


async def test_the_lag_ends_at_the_last_stable_offset(outside: Outside) -> None:
    """Records of an open transaction are no lag of a reader of committed records."""
    cluster = cluster_with(outside, "aA-b-")
    for is_committed, lag in ((True, 3), (False, 6)):
        async with reader(cluster, is_committed=is_committed, max_poll_records=1) as consumer:
            await read(consumer, 1)
            assert await consumer.lag() == {T0: lag}


async def test_a_marker_whose_records_are_gone_ends_the_transaction(outside: Outside) -> None:
    """Retention may have taken the records that the list of aborted transactions is about."""
    cluster = Leaders(outside)
    log = cluster.logs[T0]
    log.write(2, producer_id=1)
    log.finish(1, is_commit=False)
    log.write(3, producer_id=1)
    log.finish(1, is_commit=True)
    log.start = 2
    del log.batches[0]
    async with reader(cluster) as consumer:
        assert offsets(await read(consumer, 3)) == [3, 4, 5]


async def test_a_second_marker_of_a_transaction_changes_nothing(outside: Outside) -> None:
    """A coordinator that starts again may write its marker twice."""
    cluster = cluster_with(outside, "ax")
    log = cluster.logs[T0]
    marker = bytearray(log.batches[-1][1])
    log.append(marker, 1)
    log.write(2, producer_id=0)
    log.finish(0, is_commit=True)
    async with reader(cluster) as consumer:
        assert offsets(await read(consumer, 2)) == [4, 5]


async def test_compaction_may_leave_batches_without_records(outside: Outside) -> None:
    """Neither an empty batch of a transaction nor an empty marker hinders the others."""
    cluster = Leaders(outside)
    log = cluster.logs[T0]
    for is_control in (True, False):
        empty = BatchBuilder(
            producer_id=1,
            producer_epoch=0,
            base_sequence=-1 if is_control else 0,
            is_transactional=True,
            is_control=is_control,
        )
        log.append(bytearray(empty.build()), 1)
    log.write(2, producer_id=1)
    log.finish(1, is_commit=True)
    log.write(2, producer_id=1)
    log.finish(1, is_commit=False)
    async with reader(cluster) as consumer:
        assert offsets(await read(consumer, 2)) == [2, 3]
        assert await consumer.poll(1) == []
        assert await consumer.position(T0) == 8


async def test_aborted_transactions_may_be_listed_in_any_order(outside: Outside) -> None:
    """Kafka's brokers list them by their ends; each still begins at its first offset."""
    cluster = cluster_with(outside, "abyAbB")
    data = cluster.logs[T0].data(0, size_max=10_000, isolation=1)
    listed = (
        AbortedTransaction(producer_id=9, first_offset=70),
        *(data.aborted_transactions or ()),
        AbortedTransaction(producer_id=9, first_offset=1),
    )
    cluster.queue(
        ApiKey.FETCH,
        T0,
        PartitionData(
            high_watermark=9,
            last_stable_offset=9,
            aborted_transactions=listed,
            records=data.records,
        ),
    )
    async with reader(cluster) as consumer:
        assert offsets(await read(consumer, 4)) == [0, 1, 6, 7]


@pytest.mark.parametrize("is_committed", [True, False])
async def test_offsets_are_asked_for_with_the_isolation_level(
    outside: Outside, *, is_committed: bool
) -> None:
    """The end of a log is its last stable offset for a reader of committed records."""
    cluster = Leaders(outside)
    async with reader(cluster, is_committed=is_committed) as consumer:
        await consumer.end_offsets(T0)
        await consumer.position(T0)
    levels = {each.body.isolation_level for each in cluster.requests(ListOffsetsRequest)}
    assert levels == {int(is_committed)}


def test_a_log_of_the_test_is_what_it_says() -> None:
    """The last stable offset is before the first open transaction."""
    log = ReadableLog()
    log.write(3)
    log.write(1, producer_id=1)
    assert (log.end, log.end_for(1), log.end_for(0)) == (4, 3, 4)
