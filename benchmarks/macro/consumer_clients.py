"""One consumer at work in a process of its own, as a user's program has it.

    python -m benchmarks.macro.consumer_clients CONTENDER ADDRESS TOPIC COUNT PASSES WARM

It connects, reads WARM records of partition 0 of TOPIC that do not count, reads the whole partition
of COUNT records PASSES times, and prints a line of JSON: seconds and CPU seconds for each record,
and the bytes of all values, by which the caller sees that nothing was left out.

Each client is used as its documentation does it, without a group and with its own defaults. Rows
are taken `ROWS_MAX` at a time where a client lets its program choose. Each program looks at the
value of each record, so that a client that makes values only on request has to make them.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

ROWS_MAX = 500
"""Kafka's default of `max.poll.records`."""

WARM_COUNT = 20_000
"""Records with which a client warms up, unless the first record is to count."""
TIMEOUT_S = 10


@dataclass(slots=True, kw_only=True)
class Job:
    """A contender's work, and its results."""

    address: str
    topic: str
    count: int
    passes: int
    warm_count: int
    found: dict[str, Any] = field(default_factory=dict)

    def read(self, rewind: Callable[[], object], take: Callable[[], tuple[int, int]]) -> None:
        """Measure reading everything; `take` returns the numbers of records and of their bytes."""
        if self.warm_count:
            _take_all(take, min(self.count, self.warm_count))
            rewind()
        cpu_before, started = time.process_time(), time.perf_counter()
        size = 0
        for number in range(self.passes):
            if number:
                rewind()
            size += _take_all(take, self.count)
        self._note(size, started, cpu_before)

    async def read_async(
        self,
        rewind: Callable[[], Awaitable[object]],
        take: Callable[[], Awaitable[tuple[int, int]]],
    ) -> None:
        """Measure reading everything with coroutines, otherwise like `read`."""
        if self.warm_count:
            await _take_all_async(take, min(self.count, self.warm_count))
            await rewind()
        cpu_before, started = time.process_time(), time.perf_counter()
        size = 0
        for number in range(self.passes):
            if number:
                await rewind()
            size += await _take_all_async(take, self.count)
        self._note(size, started, cpu_before)

    def _note(self, size: int, started: float, cpu_before: float) -> None:
        count = self.count * self.passes
        self.found = {
            "seconds": (time.perf_counter() - started) / count,
            "cpu_seconds": (time.process_time() - cpu_before) / count,
            "bytes": size // self.passes,
        }


def _take_all(take: Callable[[], tuple[int, int]], count: int) -> int:
    size = 0
    while count > 0:
        taken, taken_size = take()
        count -= taken
        size += taken_size
    return size


async def _take_all_async(take: Callable[[], Awaitable[tuple[int, int]]], count: int) -> int:
    size = 0
    while count > 0:
        taken, taken_size = await take()
        count -= taken
        size += taken_size
    return size


def _size(records: Iterable[Any]) -> int:
    """The bytes of the values of records that have an attribute `value`."""
    size = 0
    for record in records:
        size += len(record.value)
    return size


# -- ours ---------------------------------------------------------------------------------------


def _ours(job: Job) -> Any:  # noqa: ANN401
    from tailrace import Consumer
    from tailrace.model import TopicPartition

    consumer = Consumer(
        bootstrap_servers=job.address, auto_offset_reset="earliest", max_poll_records=ROWS_MAX
    )
    consumer.assign(TopicPartition(job.topic, 0))
    return consumer


def poll(job: Job) -> None:
    """`Consumer.poll`."""

    def take() -> tuple[int, int]:
        records = consumer.poll(TIMEOUT_S)
        return len(records), _size(records)

    with _ours(job) as consumer:
        job.read(consumer.seek_to_beginning, take)


def columns(job: Job) -> None:
    """`Consumer.poll_columns`, all columns."""
    shape = _shape_of()

    def take() -> tuple[int, int]:
        return shape(consumer.poll_columns(TIMEOUT_S))

    with _ours(job) as consumer:
        job.read(consumer.seek_to_beginning, take)


def columns_value(job: Job) -> None:
    """`Consumer.poll_columns`, the value alone."""
    shape = _shape_of()

    def take() -> tuple[int, int]:
        return shape(consumer.poll_columns(TIMEOUT_S, columns=["value"]))

    with _ours(job) as consumer:
        job.read(consumer.seek_to_beginning, take)


def _shape_of() -> Callable[[Any], tuple[int, int]]:
    """The function that tells rows, and bytes of the values; PyArrow is imported by then."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def shape(batch: pa.RecordBatch) -> tuple[int, int]:
        lengths = pc.binary_length(batch.column("value"))
        return batch.num_rows, pc.sum(lengths.cast(pa.int64())).as_py() or 0

    return shape


def _ours_async(job: Job, take: Callable[[Any], Awaitable[tuple[int, int]]]) -> None:
    from tailrace import AsyncConsumer
    from tailrace.model import TopicPartition

    async def run() -> None:
        async with AsyncConsumer(
            bootstrap_servers=job.address, auto_offset_reset="earliest", max_poll_records=ROWS_MAX
        ) as consumer:
            consumer.assign(TopicPartition(job.topic, 0))

            async def rewind() -> None:
                consumer.seek_to_beginning()

            await job.read_async(rewind, lambda: take(consumer))

    asyncio.run(run())


def async_poll(job: Job) -> None:
    """`AsyncConsumer.poll`."""

    async def take(consumer: Any) -> tuple[int, int]:  # noqa: ANN401
        records = await consumer.poll(TIMEOUT_S)
        return len(records), _size(records)

    _ours_async(job, take)


def async_columns(job: Job) -> None:
    """`AsyncConsumer.poll_columns`, all columns."""
    shape = _shape_of()

    async def take(consumer: Any) -> tuple[int, int]:  # noqa: ANN401
        return shape(await consumer.poll_columns(TIMEOUT_S))

    _ours_async(job, take)


# -- confluent-kafka ----------------------------------------------------------------------------


def confluent(job: Job) -> None:
    """`consume`."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": job.address, "group.id": "none", "enable.auto.commit": False}
    )
    begin = TopicPartition(job.topic, 0, OFFSET_BEGINNING)
    consumer.assign([begin])

    def take() -> tuple[int, int]:
        size = 0
        messages = consumer.consume(ROWS_MAX, TIMEOUT_S)
        for message in messages:
            size += len(message.value())
        return len(messages), size

    with closing(consumer):
        job.read(lambda: consumer.assign([begin]), take)


# -- aiokafka -----------------------------------------------------------------------------------


def aiokafka(job: Job) -> None:
    """`getmany`."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=job.address, auto_offset_reset="earliest")
        partition = TopicPartition(job.topic, 0)
        await consumer.start()
        consumer.assign([partition])

        async def take() -> tuple[int, int]:
            found = await consumer.getmany(timeout_ms=TIMEOUT_S * 1000, max_records=ROWS_MAX)
            records = found.get(partition, [])
            return len(records), _size(records)

        try:
            await job.read_async(consumer.seek_to_beginning, take)
        finally:
            await consumer.stop()

    asyncio.run(run())


# -- kafka-python -------------------------------------------------------------------------------


def kafka_python(job: Job) -> None:
    """`poll`."""
    from kafka import KafkaConsumer, TopicPartition

    partition = TopicPartition(job.topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=job.address, auto_offset_reset="earliest")
    consumer.assign([partition])

    def take() -> tuple[int, int]:
        found = consumer.poll(timeout_ms=TIMEOUT_S * 1000, max_records=ROWS_MAX)
        records = found.get(partition, [])
        return len(records), _size(records)

    with closing(consumer):
        job.read(consumer.seek_to_beginning, take)


CONTENDERS: Mapping[str, Callable[[Job], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        poll, columns, columns_value, async_poll, async_columns, confluent, aiokafka, kafka_python,
    )
}  # fmt: skip


def main(arguments: list[str]) -> None:
    """Do the work, and print what it took."""
    name, address, topic, count, passes, warm_count = arguments
    job = Job(
        address=address,
        topic=topic,
        count=int(count),
        passes=int(passes),
        warm_count=int(warm_count),
    )
    CONTENDERS[name](job)
    print(json.dumps(job.found))


if __name__ == "__main__":
    main(sys.argv[1:])
