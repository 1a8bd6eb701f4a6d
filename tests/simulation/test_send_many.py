"""Rows that are sent at once are written once each and in order, and each has its outcome."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tailrace.kernels.encoding import choose_partition
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.produce import BatchIndexAndErrorMessage
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T0, T1, Stage, check_empty, play, with_fields

COUNT = 300
VALUES = [b"%d " % number + b"." * 20 for number in range(COUNT)]
KEYS = [b"key %d" % (number % 17) for number in range(COUNT)]
PARTITIONS = 3


def numbers(values: Sequence[bytes | None]) -> list[int]:
    """Which of `VALUES` these are."""
    return [int((each or b"").split()[0]) for each in values]


def written(stage: Stage) -> dict[int, list[int]]:
    """The rows in each partition's log, in their order there."""
    return {
        place.partition: numbers(led.log.values())
        for place, led in stage.cluster.partitions.items()
    }


def check_once_in_order(stage: Stage, rows: Sequence[int]) -> None:
    """Each of the rows is in one log, once, and those of a log stand as they were given."""
    found = written(stage)
    assert sorted(number for each in found.values() for number in each) == sorted(rows)
    assert all(each == sorted(each) for each in found.values()), "rows changed their order"


def an_iterator() -> Iterator[tuple[bytes, bytes]]:
    """Keys and values that can be read once."""
    yield from zip(KEYS, VALUES, strict=True)


FORMS: dict[str, Callable[[], object]] = {
    "table": lambda: pa.table({"value": VALUES, "key": KEYS}),
    "pieces": lambda: pa.concat_tables(
        pa.table({"value": VALUES[at : at + 70], "key": KEYS[at : at + 70]})
        for at in range(0, COUNT, 70)
    ),
    "columns": lambda: {"value": VALUES, "key": KEYS},
    "iterable": an_iterator,
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_with_keys_go_to_the_partitions_of_their_keys(form: str) -> None:
    """However rows come, each is where its key belongs, in the order of the rows."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=500) as producer:
            summary = await producer.send_many("t", FORMS[form]())
            assert (summary.row_count, summary.acknowledged_count) == (COUNT, COUNT)
            assert not summary.errors
            check_empty(producer)
        expected: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        for number, key in enumerate(KEYS):
            expected[choose_partition(key, PARTITIONS)].append(number)
        assert written(stage) == expected
        assert summary.offsets == {
            place: (0, len(rows) - 1) for place, rows in expected.items() if rows
        }

    play(main, partitions=PARTITIONS)


def test_rows_go_to_the_partitions_they_name() -> None:
    """A column of partitions goes before keys; null leaves the choice to the producer."""
    named = [None if number % 4 == 3 else number % 3 for number in range(COUNT)]

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=500) as producer:
            table = pa.table({"value": VALUES, "partition": pa.array(named, pa.int32())})
            summary = await producer.send_many("t", table)
            assert summary.acknowledged_count == COUNT
        check_once_in_order_by_name(stage)

    def check_once_in_order_by_name(stage: Stage) -> None:
        found = written(stage)
        assert sorted(number for each in found.values() for number in each) == list(range(COUNT))
        for place, rows in found.items():
            own = [number for number in rows if named[number] is not None]
            assert own == [number for number in range(COUNT) if named[number] == place]

    play(main, partitions=PARTITIONS)


def test_a_row_that_cannot_be_sent_has_its_own_error() -> None:
    """Rows that are too large or for no partition fail by number; the others are written."""

    async def main(stage: Stage) -> None:
        values = [*VALUES]
        values[7] = b"7 " + bytes(3000)
        partitions = [number % 2 for number in range(COUNT)]
        partitions[11], partitions[12] = 2, -5
        async with stage.producer(batch_size=500, max_request_size=2000) as producer:
            summary = await producer.send_many("t", {"value": values, "partition": partitions})
            assert sorted(summary.errors) == [7, 11, 12]
            assert "max.request.size" in str(summary.errors[7])
            assert "partition" in str(summary.errors[11])
            assert summary.acknowledged_count == COUNT - 3
            with pytest.raises(type(summary.errors[7]), match="row 7") as raised:
                summary.raise_errors()
            assert "the first of 3" in raised.value.__notes__[0]
            check_empty(producer)
        check_once_in_order(stage, [each for each in range(COUNT) if each not in {7, 11, 12}])

    play(main)


def test_a_refused_batch_fails_its_rows_alone() -> None:
    """The rows of a batch that the broker refuses have its error, and all others are written."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.INVALID_TIMESTAMP, skip=2
        )
        async with stage.producer(batch_size=500) as producer:
            rows = {"value": VALUES, "partition": [0] * COUNT}
            summary = await producer.send_many("t", rows)
            code = ErrorCode.INVALID_TIMESTAMP
            (refused,) = (each for each in stage.cluster.sent if each.error is code)
            assert len(summary.errors) == refused.record_count
            assert len(summary.errors) + summary.acknowledged_count == COUNT
            assert all("INVALID_TIMESTAMP" in str(each) for each in summary.errors.values())
            check_empty(producer)
        check_once_in_order(stage, sorted(set(range(COUNT)) - set(summary.errors)))

    play(main)


def test_an_error_of_one_record_reaches_its_row() -> None:
    """The broker's words about records are those of their rows, whatever rows stand before them."""
    with_errors = partial(
        with_fields,
        error_code=ErrorCode.INVALID_RECORD,
        record_errors=(
            BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key"),
        ),
    )

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.EDIT, edit=with_errors, partition=T1)
        async with stage.producer() as producer:
            rows = {"value": VALUES[:6], "partition": [0, 1, 0, 1, 1, 0]}
            summary = await producer.send_many("t", rows)
        assert sorted(summary.errors) == [1, 3, 4]
        assert "no key" in str(summary.errors[3])
        assert "1 other" in str(summary.errors[1])
        assert "1 other" in str(summary.errors[4])
        assert numbers(stage.cluster.log("t", 0).values()) == [0, 2, 5]

    # On a node of its own, so that the two batches go in different requests.
    play(main, nodes=2)


@pytest.mark.parametrize(("codec", "limit"), [("none", 1500), ("gzip", 160)])
def test_batches_that_are_too_large_are_split_and_later_ones_are_not_made(
    codec: str, limit: int
) -> None:
    """The rows of refused batches arrive in parts; the next call makes no batch of that size."""

    async def main(stage: Stage) -> None:
        log = stage.cluster.log()
        log.batch_bytes_max = limit
        count = 5 * COUNT
        rows = {"value": VALUES * 5, "partition": [0] * count}
        async with stage.producer(batch_size=8000, compression_type=codec) as producer:
            summary = await producer.send_many("t", rows)
            assert summary.acknowledged_count == count
            assert summary.offsets == {0: (0, count - 1)}
            assert any(each.error is ErrorCode.MESSAGE_TOO_LARGE for each in stage.cluster.sent)
            so_far = len(stage.cluster.sent)
            summary = await producer.send_many("t", rows)
            assert summary.acknowledged_count == count
            assert not any(each.error for each in stage.cluster.sent[so_far:])
            check_empty(producer)
        assert numbers(log.values()) == [*range(COUNT)] * 10

    play(main)


def test_a_row_that_is_too_large_for_the_topic_fails_alone() -> None:
    """A batch is split until the large row is alone; the other rows are written."""

    async def main(stage: Stage) -> None:
        stage.cluster.log().batch_bytes_max = 2000
        values = [*VALUES]
        values[100] = b"100 " + bytes(5000)
        async with stage.producer(batch_size=10_000) as producer:
            summary = await producer.send_many("t", {"value": values, "partition": [0] * COUNT})
            assert list(summary.errors) == [100]
            assert "MESSAGE_TOO_LARGE" in str(summary.errors[100])
            check_empty(producer)
        check_once_in_order(stage, [each for each in range(COUNT) if each != 100])

    play(main)


def test_rows_wait_for_memory() -> None:
    """With memory for a few batches all rows are written, and single records in between too."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=0.5, times=20)
        async with stage.producer(batch_size=1000, buffer_memory=8000) as producer:
            single: list[Any] = []

            async def send_singles() -> None:
                for _ in range(10):
                    single.append(producer.send("t", b"1000 single", partition=1))
                    await stage.pass_time(0.2)

            sending = asyncio.ensure_future(send_singles())
            rows = {"value": VALUES * 3, "partition": [0] * COUNT * 3}
            summary = await producer.send_many("t", rows)
            await sending
            assert summary.acknowledged_count == 3 * COUNT
            assert {(await each).partition for each in single} == {1}
            assert producer.metrics()["bufferpool-wait-time-ns-total"] > 0
            check_empty(producer)
        assert numbers(stage.cluster.log().values()) == list(range(COUNT)) * 3

    play(main)


def test_memory_that_stays_full_ends_the_call() -> None:
    """After max.block.ms the call raises; rows that were taken before are still sent."""

    async def main(stage: Stage) -> None:
        async with stage.producer(
            batch_size=1000, buffer_memory=8000, max_block_ms=2000
        ) as producer:
            await producer.send("t", b"1000 first", partition=0)
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=5)
            started = stage.now
            with pytest.raises(TimeoutError, match=r"buffer\.memory"):
                await producer.send_many("t", {"value": VALUES, "partition": [0] * COUNT})
            assert stage.now - started == pytest.approx(2, abs=0.1)
            await producer.flush()
            check_empty(producer)
        rows = numbers(stage.cluster.log().values())[1:]
        assert rows
        assert rows == list(range(len(rows)))

    play(main)


HOWS = (
    FaultKind.CUT,
    FaultKind.CUT_AFTER,
    FaultKind.LOSE_REPLY,
    FaultKind.LOSE,
    FaultKind.GARBAGE,
    FaultKind.TWICE,
    FaultKind.SWAP,
)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("skip", [0, 3])
def test_rows_survive_broken_connections(how: FaultKind, skip: int) -> None:
    """Rows are written once and in order although connections break during several batches."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, how, skip=skip, times=2)
        async with stage.producer(batch_size=400, request_timeout_ms=2000) as producer:
            summary = await producer.send_many("t", {"value": VALUES, "key": KEYS})
            assert summary.acknowledged_count == COUNT
            check_empty(producer)
        check_once_in_order(stage, range(COUNT))

    play(main)


def test_rows_follow_a_leader_that_moves() -> None:
    """Leaders change and a node dies during a call; each row is written once, in order."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=400, buffer_memory=4000) as producer:
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=0.05, times=100)
            loop = stage.outside.loop
            loop.call_later(0.2, stage.cluster.move, T0, 2)
            loop.call_later(0.4, stage.cluster.move, T0, 3)
            loop.call_later(0.6, stage.cluster.kill, 2)
            rows = {"value": VALUES, "partition": [each % 3 for each in range(COUNT)]}
            summary = await producer.send_many("t", rows)
            assert summary.acknowledged_count == COUNT
            assert stage.now > 0.6, "the call was over before anything happened"
            check_empty(producer)
        check_once_in_order(stage, range(COUNT))

    play(main, nodes=3, partitions=PARTITIONS)


def test_several_calls_at_once_do_not_mix_up_their_outcomes() -> None:
    """Calls for two topics and one of the same share the memory, and each counts its own rows."""

    async def main(stage: Stage) -> None:
        stage.cluster.create_topic("u", partitions=1)
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.CUT_AFTER, skip=4)
        async with stage.producer(batch_size=500, buffer_memory=6000) as producer:
            half = COUNT // 2
            found = await asyncio.gather(
                producer.send_many("t", {"value": VALUES[:half], "partition": [0] * half}),
                producer.send_many("t", {"value": VALUES[half:], "partition": [0] * half}),
                producer.send_many("u", VALUES),
            )
            assert [each.acknowledged_count for each in found] == [half, half, COUNT]
            check_empty(producer)
        rows = written_of(stage, "t")
        assert sorted(rows) == list(range(COUNT))
        assert [each for each in rows if each < half] == list(range(half))
        assert [each for each in rows if each >= half] == list(range(half, COUNT))
        assert written_of(stage, "u") == list(range(COUNT))

    def written_of(stage: Stage, topic: str) -> list[int]:
        return numbers(stage.cluster.partitions[TopicPartition(topic, 0)].log.values())

    play(main)


def test_no_rows_are_no_error() -> None:
    """An empty table is written at once, and its summary counts nothing."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            summary = await producer.send_many("t", pa.table({"value": pa.array([], pa.binary())}))
            assert (summary.row_count, summary.acknowledged_count) == (0, 0)
            assert "0 of 0 rows" in repr(summary)
            summary.raise_errors()

    play(main)


def test_a_call_ends_when_the_producer_is_closed() -> None:
    """A forced close ends a call that waits, and leaves nothing behind."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(batch_size=500, buffer_memory=4000)
        await producer.send("t", b"1000", partition=0)
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.LOSE)
        call = asyncio.ensure_future(
            producer.send_many("t", {"value": VALUES, "partition": [0] * COUNT})
        )
        await stage.pass_time(1)
        assert not call.done()
        await producer.close(0)
        with pytest.raises(Exception, match="closed"):
            await call
        check_empty(producer)

    play(main)
