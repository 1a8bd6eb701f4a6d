"""`to_arrow`: a table of all records up to the ends."""

import pytest

from tailrace.client.consumer.errors import ConsumerTimeoutError
from tailrace.errors import ConfigError
from tailrace.testing import Outside
from tests.unit.client.consumer.stage import T0, T1, Stage, on_stage

GROUP = {"offsets_topic_num_partitions": "1", "group_initial_rebalance_delay_ms": "0"}


async def abort(stage: Stage, count: int) -> None:
    """Write records that no reader of committed ones sees."""
    async with stage.producer(transactional_id="x") as producer:
        await producer.begin_transaction()
        for _ in range(count):
            await producer.send("t", b"aborted", partition=0)
        await producer.abort_transaction()


async def test_a_table_has_all_up_to_the_ends(outside: Outside) -> None:
    """From the positions on, of all partitions; the next table has what came since."""
    async with on_stage(outside) as stage:
        await stage.topic(partitions=2)
        await stage.fill(50)
        await stage.fill(30, partition=1)
        async with stage.consumer() as consumer:
            consumer.assign([T0, T1])
            consumer.seek(T0, 20)
            table = await consumer.to_arrow(columns=["partition", "offset", "value"])
            found = set(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
            expected = {(0, n, b"%d" % n) for n in range(20, 50)}
            assert found == expected | {(1, n, b"%d" % n) for n in range(30)}
            assert table.num_rows == 60
            assert (await consumer.to_arrow()).num_rows == 0
            await stage.fill(5)
            assert (await consumer.to_arrow(columns=["offset"]))["offset"].to_pylist() == [
                *range(50, 55)
            ]


async def test_an_aborted_end_is_an_end(outside: Outside) -> None:
    """The table is there at once, although the last records are not seen."""
    async with on_stage(outside, transaction_state_log_num_partitions="1") as stage:
        await stage.topic()
        await stage.fill(10)
        await abort(stage, 5)
        async with stage.consumer(isolation_level="read_committed") as consumer:
            consumer.assign(T0)
            began = outside.loop.time()
            table = await consumer.to_arrow(60)
            assert table["value"].to_pylist() == [b"%d" % n for n in range(10)]
            assert outside.loop.time() - began < 2


async def test_an_empty_topic_is_an_empty_table(outside: Outside) -> None:
    """With the columns that were asked for."""
    async with on_stage(outside) as stage:
        await stage.topic()
        async with stage.consumer() as consumer:
            consumer.assign(T0)
            table = await consumer.to_arrow(columns=["key", "value"])
            assert (table.num_rows, table.column_names) == (0, ["key", "value"])
            with pytest.raises(ConfigError, match="no column 'valeu'"):
                await consumer.to_arrow(columns=["valeu"])


async def test_a_bound_on_bytes_gives_a_part(outside: Outside) -> None:
    """The next calls go on behind it, and together they have each record once."""
    async with on_stage(outside) as stage:
        await stage.topic()
        for start in range(0, 2000, 100):
            await stage.fill(100, start=start)
        async with stage.consumer(max_partition_fetch_bytes=2000) as consumer:
            consumer.assign(T0)
            offsets: list[int] = []
            calls = 0
            while len(offsets) < 2000:
                table = await consumer.to_arrow(columns=["offset"], bytes_max=1000)
                offsets += table["offset"].to_pylist()
                calls += 1
            assert offsets == list(range(2000))
            assert calls > 1


async def test_a_member_of_a_group_waits_for_its_partitions(outside: Outside) -> None:
    """The table has the records of the partitions that the group gives it."""
    async with on_stage(outside, **GROUP) as stage:
        await stage.topic(partitions=2)
        await stage.fill(10)
        await stage.fill(10, partition=1)
        async with stage.consumer(group_id="g") as consumer:
            consumer.subscribe("t")
            assert (await consumer.to_arrow()).num_rows == 20


async def test_a_table_ends_at_its_timeout(outside: Outside) -> None:
    """A member without partitions gets an empty one; ends that nobody tells are an error."""
    async with on_stage(outside, **GROUP) as stage:
        await stage.topic()
        async with stage.consumer(group_id="g") as consumer:
            consumer.subscribe("t")
            assert (await consumer.to_arrow(0)).num_rows == 0
        async with stage.consumer() as consumer:
            consumer.assign(T0)
            with pytest.raises(ConsumerTimeoutError):
                await consumer.to_arrow(0)


async def test_paused_partitions_are_left_out(outside: Outside) -> None:
    """The table does not wait for them, as little as `poll`; the next one continues with them."""
    async with on_stage(outside) as stage:
        await stage.topic(partitions=2)
        await stage.fill(5)
        await stage.fill(3, partition=1)
        async with stage.consumer() as consumer:
            consumer.assign([T0, T1])
            consumer.pause(T1)
            began = outside.loop.time()
            table = await consumer.to_arrow(60, columns=["partition"])
            assert table["partition"].to_pylist() == [0] * 5
            assert outside.loop.time() - began < 2
            consumer.pause(T0)
            assert (await consumer.to_arrow()).num_rows == 0
            consumer.resume(T1)
            table = await consumer.to_arrow(columns=["partition"])
            assert table["partition"].to_pylist() == [1] * 3
