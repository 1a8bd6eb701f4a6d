"""Reading with assign: records, order, limits, positions and seeks."""

import pytest

from tailrace.client.consumer.errors import (
    ClosedConsumerError,
    ConsumerTimeoutError,
    PositionOutOfRangeError,
    RecordDeserializationError,
    SubscriptionError,
    UnknownTopicError,
)
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.model import TimestampType, TopicPartition
from tailrace.testing import Outside
from tests.unit.client.consumer.stage import T0, T1, on_stage, read, values


async def test_records_come_in_order_and_once(outside: Outside) -> None:
    """Every record of a partition is returned once, in the order of its offsets."""
    async with on_stage(outside) as stage:
        await stage.topic()
        await stage.fill(2000)
        async with stage.consumer() as consumer:
            consumer.assign(T0)
            assert values(await read(consumer, 2000)) == list(range(2000))
            assert await consumer.poll(0.1) == []


async def test_a_record_has_all_that_was_sent(outside: Outside) -> None:
    """Key, value, headers, timestamp and place of a record are those of the producer."""
    async with on_stage(outside) as stage:
        await stage.topic(partitions=2)
        async with stage.producer() as producer:
            headers = [("a", b"1"), ("b", None)]
            producer.send("t", b"v", key=b"k", headers=headers, timestamp=1234, partition=1)
            producer.send("t", None, partition=1, timestamp=1235)
        async with stage.consumer() as consumer:
            consumer.assign([T0, T1])
            first, second = await read(consumer, 2)
            assert first[:8] == (
                "t", 1, 0, 1234, TimestampType.CREATE_TIME, b"k", b"v", (("a", b"1"), ("b", None)),
            )  # fmt: skip
            assert (second.key, second.value, second.headers) == (None, None, ())
            assert first.topic_partition == T1


async def test_a_poll_returns_at_most_max_poll_records(outside: Outside) -> None:
    """`max.poll.records` bounds each poll, and nothing is lost between two of them."""
    async with on_stage(outside) as stage:
        await stage.topic()
        await stage.fill(25)
        async with stage.consumer(max_poll_records=10) as consumer:
            consumer.assign(T0)
            sizes = []
            found: list[int] = []
            while len(found) < 25:
                records = await consumer.poll()
                sizes.append(len(records))
                found += values(records)
            assert max(sizes) == 10
            assert found == list(range(25))


async def test_iteration_hands_out_record_by_record(outside: Outside) -> None:
    """The position follows `async for` record by record, though many were fetched."""
    async with on_stage(outside) as stage:
        await stage.topic()
        await stage.fill(10)
        async with stage.consumer() as consumer:
            consumer.assign(T0)
            async for record in consumer:
                if record.offset == 3:
                    break
            assert await consumer.position(T0) == 4
            assert values(await read(consumer, 6)) == [4, 5, 6, 7, 8, 9]


async def test_seek_goes_to_an_offset(outside: Outside) -> None:
    """After a seek the next record is the one at that offset, also while a fetch is under way."""
    async with on_stage(outside) as stage:
        await stage.topic()
        await stage.fill(100)
        async with stage.consumer(max_poll_records=5) as consumer:
            consumer.assign(T0)
            await consumer.poll()
            consumer.seek(T0, 50)
            assert values(await consumer.poll()) == [50, 51, 52, 53, 54]
            consumer.seek(T0, OffsetAndMetadata(10))
            assert values(await consumer.poll()) == [10, 11, 12, 13, 14]


async def test_seek_to_the_ends_and_to_a_time(outside: Outside) -> None:
    """The first, the next and the first record of a time can be sought."""
    async with on_stage(outside) as stage:
        await stage.topic()
        async with stage.producer() as producer:
            for number in range(10):
                producer.send("t", b"%d" % number, timestamp=1000 + number)
        async with stage.consumer() as consumer:
            consumer.assign(T0)
            consumer.seek_to_end()
            assert await consumer.position(T0) == 10
            consumer.seek_to_beginning(T0)
            assert await consumer.position(T0) == 0
            found = await consumer.seek_to_time(1007)
            first = found[T0]
            assert first is not None
            assert first.offset == 7
            assert values(await consumer.poll()) == [7, 8, 9]
            assert (await consumer.seek_to_time(5000)) == {T0: None}
            assert await consumer.position(T0) == 10


async def test_offsets_of_partitions_that_are_not_assigned(outside: Outside) -> None:
    """The ends of logs, and offsets for times, can be asked for any partition."""
    async with on_stage(outside) as stage:
        await stage.topic(partitions=2)
        await stage.fill(3, partition=1)
        async with stage.consumer() as consumer:
            assert await consumer.end_offsets([T0, T1]) == {T0: 0, T1: 3}
            assert await consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
            assert (await consumer.offsets_for_times({T0: 0}))[T0] is None


async def test_offsets_for_times_takes_tuples_and_refuses_the_rest(outside: Outside) -> None:
    """A tuple is a partition, as elsewhere; a wrong argument raises and harms no later call."""
    async with on_stage(outside) as stage:
        await stage.topic()
        await stage.fill(3)
        async with stage.consumer() as consumer:
            for wrong in ({"t": 1001}, {T0: "yesterday"}, {T0: None}):
                with pytest.raises(TypeError, match="give"):
                    await consumer.offsets_for_times(wrong)  # type: ignore[arg-type]
            found = (await consumer.offsets_for_times({("t", 0): 1001}))[T0]
            assert found is not None
            assert found == (await consumer.offsets_for_times({T0: 1001}))[T0]


async def test_a_paused_partition_returns_nothing(outside: Outside) -> None:
    """A paused partition keeps its place, and goes on after `resume`."""
    async with on_stage(outside) as stage:
        await stage.topic(partitions=2)
        await stage.fill(5)
        await stage.fill(5, partition=1)
        async with stage.consumer() as consumer:
            consumer.assign([T0, T1])
            consumer.pause(T0)
            assert {each.partition for each in await read(consumer, 5)} == {1}
            assert await consumer.poll(1) == []
            assert consumer.paused() == {T0}
            consumer.resume(T0)
            assert values(await read(consumer, 5)) == list(range(5))


async def test_new_records_end_a_poll_that_waits(outside: Outside) -> None:
    """A poll that waits at the end of the log returns as soon as a record is written."""
    async with on_stage(outside) as stage:
        await stage.topic()
        async with stage.consumer() as consumer:
            consumer.assign(T0)
            assert await consumer.poll(1) == []
            begin = outside.loop.time()
            outside.loop.call_later(0.2, lambda: outside.loop.create_task(stage.fill(1)))
            assert values(await consumer.poll(10)) == [0]
            assert outside.loop.time() - begin < 0.3


async def test_latest_begins_at_the_end(outside: Outside) -> None:
    """With `auto.offset.reset=latest` a new reader gets what comes after it."""
    async with on_stage(outside) as stage:
        await stage.topic()
        await stage.fill(5)
        async with stage.consumer(auto_offset_reset="latest") as consumer:
            consumer.assign(T0)
            assert await consumer.poll(0.5) == []
            await stage.fill(2, start=5)
            assert values(await read(consumer, 2)) == [5, 6]


async def test_an_offset_that_the_log_does_not_have_is_reset(outside: Outside) -> None:
    """A position beyond the log goes where `auto.offset.reset` says."""
    async with on_stage(outside) as stage:
        await stage.topic()
        await stage.fill(5)
        async with stage.consumer() as consumer:
            consumer.assign(T0)
            consumer.seek(T0, 1000)
            assert values(await read(consumer, 5)) == list(range(5))


async def test_an_offset_that_the_log_does_not_have_is_an_error_with_none(outside: Outside) -> None:
    """With `none` the error has the position, and a seek goes on."""
    async with on_stage(outside) as stage:
        await stage.topic()
        await stage.fill(5)
        async with stage.consumer(auto_offset_reset="none") as consumer:
            consumer.assign(T0)
            consumer.seek(T0, 1000)
            for _ in range(2):
                with pytest.raises(PositionOutOfRangeError) as caught:
                    await consumer.poll(10)
                assert caught.value.offsets == {T0: 1000}
            consumer.seek(T0, 3)
            assert values(await consumer.poll()) == [3, 4]


async def test_a_seek_outlasts_a_deserializer_that_fails(outside: Outside) -> None:
    """The partition is read where the program wants it, and not from the record that failed."""
    async with on_stage(outside) as stage:
        await stage.topic()
        await stage.fill(6)

        def skipping(data: bytes) -> int:
            if data == b"2":
                consumer.seek(T0, 4)
                raise ValueError(data)
            return int(data)

        async with stage.consumer(value_deserializer=skipping) as consumer:
            consumer.assign(T0)
            assert [each.value for each in await consumer.poll(60)] == [0, 1]
            assert await consumer.position(T0) == 4
            assert [each.value for each in await consumer.poll(60)] == [4, 5]


async def test_a_deserializer_that_fails_names_the_record(outside: Outside) -> None:
    """Records before the one that fails are returned, then the error, until a seek past it."""
    async with on_stage(outside) as stage:
        await stage.topic()
        async with stage.producer() as producer:
            for value in (b"1", b"2", b"x", b"4"):
                producer.send("t", value)
        async with stage.consumer(value_deserializer=int) as consumer:
            consumer.assign(T0)
            assert [each.value for each in await consumer.poll()] == [1, 2]
            for _ in range(2):
                with pytest.raises(RecordDeserializationError, match="seek to 3") as caught:
                    await consumer.poll()
                assert (caught.value.partition, caught.value.offset) == (T0, 2)
            consumer.seek(T0, 3)
            assert [each.value for each in await consumer.poll()] == [4]


async def test_topics_and_partitions_are_listed(outside: Outside) -> None:
    """The topics of the cluster, and the partitions of one; a missing one is an error."""
    async with on_stage(outside) as stage:
        await stage.topic(partitions=2)
        async with stage.consumer() as consumer:
            assert [each.partition for each in await consumer.partitions_for("t")] == [0, 1]
            assert set(await consumer.list_topics()) >= {"t"}
            with pytest.raises(UnknownTopicError, match="nowhere"):
                await consumer.partitions_for("nowhere", timeout=1)


async def test_lag_counts_what_is_left(outside: Outside) -> None:
    """The lag is the number of records between the position and the end."""
    async with on_stage(outside) as stage:
        await stage.topic()
        await stage.fill(30)
        async with stage.consumer(max_poll_records=10) as consumer:
            consumer.assign(T0)
            assert await consumer.lag() == {T0: 30}
            await consumer.poll()
            assert await consumer.lag() == {T0: 20}


async def test_polling_without_anything_to_read_is_an_error(outside: Outside) -> None:
    """A poll before `assign` or `subscribe` says what to call."""
    async with on_stage(outside) as stage, stage.consumer() as consumer:
        with pytest.raises(SubscriptionError, match="subscribe"):
            await consumer.poll()
        with pytest.raises(SubscriptionError, match=r"group\.id"):
            consumer.subscribe("t")
        with pytest.raises(SubscriptionError, match="not assigned"):
            consumer.seek(T0, 1)


async def test_a_partition_that_does_not_exist_is_waited_for(outside: Outside) -> None:
    """The position of a partition of no topic is not known in time, and the error says why."""
    async with on_stage(outside) as stage, stage.consumer() as consumer:
        consumer.assign(TopicPartition("nowhere", 0))
        assert await consumer.poll(1) == []
        with pytest.raises(ConsumerTimeoutError, match="nowhere"):
            await consumer.position(("nowhere", 0), timeout=1)


async def test_a_closed_consumer_refuses_calls(outside: Outside) -> None:
    """After `close` every call says that the consumer is closed."""
    async with on_stage(outside) as stage:
        await stage.topic()
        consumer = stage.consumer()
        consumer.assign(T0)
        await consumer.close()
        await consumer.close()
        with pytest.raises(ClosedConsumerError):
            await consumer.poll()
        with pytest.raises(ClosedConsumerError):
            consumer.assign(T0)


async def test_columns_have_the_same_records(outside: Outside) -> None:
    """`poll_columns` gives what `poll` gives, as columns, and moves the same position."""
    async with on_stage(outside) as stage:
        await stage.topic(partitions=2)
        await stage.fill(50)
        await stage.fill(50, partition=1)
        async with stage.consumer(max_poll_records=10) as consumer:
            consumer.assign([T0, T1])
            rows = await consumer.poll()
            found = {(each.partition, each.offset): each.value for each in rows}
            while len(found) < 100:
                table = await consumer.poll_columns(60)
                assert table.num_rows
                assert set(table["topic"].to_pylist()) == {"t"}
                for partition, offset, value in zip(
                    table["partition"].to_pylist(),
                    table["offset"].to_pylist(),
                    table["value"].to_pylist(),
                    strict=True,
                ):
                    assert (partition, offset) not in found
                    found[partition, offset] = value
            assert found == {(p, n): b"%d" % n for p in (0, 1) for n in range(50)}
            assert (await consumer.poll_columns(0)).num_rows == 0
