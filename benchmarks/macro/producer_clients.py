"""One producer at work in a process of its own, as a user's program has it.

    python -m benchmarks.macro.producer_clients CONTENDER ADDRESS SIZE COUNT GROUP WARM

It connects, sends WARM records that do not count, works through COUNT records of SIZE bytes, and
prints a line of JSON: seconds and CPU seconds for the `produce-…` contenders, the seconds of each
record for the `wait-…` ones, and the growth in bytes of `memory`, for which ADDRESS ends in `/` and
the broker's process id. CPU seconds are the process's and those of its children that have ended.

GROUP is `defaults`, each client's own but for acks=all, or `same`: see `SETTINGS`.

Each client is used as its documentation does it. Values are made before anything is measured.
Of receipts and futures of the event loop each `WINDOW`-th is awaited, in both clients alike.
"""

import asyncio
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from benchmarks.measure import resident_bytes

TOPIC = "producers"
WINDOW = 10_000
WARM_COUNT = 3_000
"""Records with which a client warms up, unless the first record is to count."""
DISTINCT_VALUES = 1_024

BATCH_BYTES = 1_000_000
LINGER_MS = 5
SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "ours": {"defaults": {}, "same": {"batch.size": BATCH_BYTES, "linger.ms": LINGER_MS}},
    "confluent": {
        "defaults": {},
        "same": {
            "batch.size": BATCH_BYTES,
            "linger.ms": LINGER_MS,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
        },
    },
    "aiokafka": {
        "defaults": {},
        "same": {
            "max_batch_size": BATCH_BYTES,
            "linger_ms": LINGER_MS,
            "enable_idempotence": True,
        },
    },
    "kafka-python": {
        "defaults": {},
        "same": {
            "batch_size": BATCH_BYTES,
            "linger_ms": LINGER_MS,
            "enable_idempotence": True,
        },
    },
}
"""Settings of each client besides addresses and acks=all. With `same` all are idempotent, since
that is the promise a user wants and the one that ours makes by default, and all place keys as the
Java client does."""

BUFFER_MEMORY = 32 * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class Job:
    """A contender's work, and its results."""

    address: str
    size: int
    count: int
    group: str
    warm_count: int
    found: dict[str, Any] = field(default_factory=dict)

    def values(self, count: int) -> list[bytes]:
        """Return `count` values; few of them differ, as references cost the same either way."""
        distinct = [b"%0*d" % (self.size, number) for number in range(DISTINCT_VALUES)]
        return [distinct[number % DISTINCT_VALUES] for number in range(count)]

    def settings(self, client: str) -> dict[str, Any]:
        """The settings of a client in this group."""
        return dict(SETTINGS[client][self.group])

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Note what the block takes."""
        cpu_before, started = _cpu_seconds(), time.perf_counter()
        yield
        self.found["seconds"] = time.perf_counter() - started
        self.found["cpu_seconds"] = _cpu_seconds() - cpu_before

    def time_each(self, send: Callable[[bytes], object]) -> None:
        """Note the seconds of each record, after a tenth as many that do not count."""
        for value in self.values(self.count // 10):
            send(value)
        found = []
        for value in self.values(self.count):
            started = time.perf_counter()
            send(value)
            found.append(time.perf_counter() - started)
        self.found["each"] = found


def _cpu_seconds() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


# -- ours ---------------------------------------------------------------------------------------


@contextmanager
def _ours(job: Job, **more: object) -> Iterator[Any]:
    from tailrace.client.producer.producer import Producer

    settings = job.settings("ours") | more
    with Producer(settings, bootstrap_servers=job.address) as producer:
        for value in job.values(job.warm_count):
            producer.send(TOPIC, value)
        producer.flush()
        yield producer


def produce_send(job: Job) -> None:
    """`send` with receipts that the caller does not keep."""
    values = job.values(job.count)
    with _ours(job) as producer, job.measured():
        send = producer.send
        for value in values:
            send(TOPIC, value)
        producer.flush()
    assert producer.metrics()["record-error-total"] == 0


def produce_send_kept(job: Job) -> None:
    """`send`, all receipts kept until the end."""
    values = job.values(job.count)
    with _ours(job) as producer, job.measured():
        send = producer.send
        receipts = [send(TOPIC, value) for value in values]
        producer.flush()
    assert all(each.done() and each.exception() is None for each in receipts)


def produce_send_without_receipts(job: Job) -> None:
    """`send` with `receipt=False`."""
    values = job.values(job.count)
    with _ours(job) as producer, job.measured():
        send = producer.send
        for value in values:
            send(TOPIC, value, receipt=False)
        producer.flush()


def produce_send_many(job: Job) -> None:
    """`send_many` of an iterable of bytes."""
    values = job.values(job.count)
    with _ours(job) as producer:
        producer.send_many(TOPIC, values[: job.warm_count])
        with job.measured():
            summary = producer.send_many(TOPIC, iter(values))
    assert summary.acknowledged_count == job.count, summary


def produce_send_arrow(job: Job) -> None:
    """`send_many` of an Arrow table with a column of binaries."""
    import pyarrow as pa

    table = pa.table({"value": pa.array(job.values(job.count), pa.binary())})
    with _ours(job) as producer:
        producer.send_many(TOPIC, table[: job.warm_count])
        with job.measured():
            summary = producer.send_many(TOPIC, table)
    assert summary.acknowledged_count == job.count, summary


def produce_async_send(job: Job) -> None:
    """`AsyncProducer.send`, each `WINDOW`-th receipt awaited."""

    async def run() -> None:
        async with _ours_async(job) as producer:
            values = job.values(job.count)
            with job.measured():
                send = producer.send
                for number, value in enumerate(values):
                    receipt = send(TOPIC, value)
                    if not number % WINDOW:
                        await receipt
                await producer.flush()
            assert producer.metrics()["record-error-total"] == 0

    asyncio.run(run())


def _ours_async(job: Job, **more: object) -> Any:  # noqa: ANN401
    from contextlib import asynccontextmanager

    from tailrace.client.producer.aio import AsyncProducer

    @asynccontextmanager
    async def warm() -> Any:  # noqa: ANN401
        settings = job.settings("ours") | more
        async with AsyncProducer(settings, bootstrap_servers=job.address) as producer:
            for value in job.values(job.warm_count):
                producer.send(TOPIC, value)
            await producer.flush()
            yield producer

    return warm()


def wait_send(job: Job) -> None:
    """`send` and `result`, one record at a time."""
    with _ours(job, **{"linger.ms": 0}) as producer:
        job.time_each(lambda value: producer.send(TOPIC, value).result())


def wait_async_send(job: Job) -> None:
    """`await AsyncProducer.send`, one record at a time."""

    async def run() -> None:
        async with _ours_async(job, **{"linger.ms": 0}) as producer:
            await _time_each(job, lambda value: producer.send(TOPIC, value))

    asyncio.run(run())


async def _time_each(job: Job, send: Callable[[bytes], Any]) -> None:
    for value in job.values(job.count // 10):
        await send(value)
    found = []
    for value in job.values(job.count):
        started = time.perf_counter()
        await send(value)
        found.append(time.perf_counter() - started)
    job.found["each"] = found


def memory(job: Job) -> None:
    """Values of their own, sent to a broker that has stopped answering until memory is full."""
    from tailrace.client.producer.errors import BufferExhaustedError

    job.address, _, broker = job.address.partition("/")
    more = {"buffer.memory": BUFFER_MEMORY, "max.block.ms": 1000}
    with _ours(job, **more) as producer:
        os.kill(int(broker), signal.SIGSTOP)
        before = resident_bytes(os.getpid())
        numbers = count()
        while not (receipt := producer.send(TOPIC, b"%0*d" % (job.size, next(numbers)))).done():
            pass
        job.found["bytes"] = resident_bytes(os.getpid()) - before
        assert isinstance(receipt.exception(), BufferExhaustedError), receipt
        producer.close(0)


# -- confluent-kafka ----------------------------------------------------------------------------


def _confluent(job: Job, **more: object) -> Any:  # noqa: ANN401
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": job.address, "acks": "all"} | job.settings("confluent") | more
    )
    for value in job.values(job.warm_count):
        producer.produce(TOPIC, value)
    assert producer.flush(30) == 0
    return producer


def _produce_confluent(job: Job, **how: object) -> None:
    values = job.values(job.count)
    producer = _confluent(job)
    with job.measured():
        for value in values:
            while True:
                try:
                    producer.produce(TOPIC, value, **how)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(60) == 0


def produce_confluent(job: Job) -> None:
    """`produce`, nobody told what became of it."""
    _produce_confluent(job)


def produce_confluent_with_callbacks(job: Job) -> None:
    """`produce`, with a callback for each record."""
    delivered = 0

    def on_delivery(error: object, _message: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += 1

    _produce_confluent(job, on_delivery=on_delivery)
    assert delivered == job.count


def wait_confluent(job: Job) -> None:
    """`produce`, and `poll` until the callback was called."""
    producer = _confluent(job, **{"linger.ms": 0})
    told: list[object] = []

    def send(value: bytes) -> None:
        producer.produce(TOPIC, value, on_delivery=lambda error, _: told.append(error))
        while not told:
            producer.poll(1)
        assert told.pop() is None

    job.time_each(send)


# -- aiokafka -----------------------------------------------------------------------------------


async def _aiokafka(job: Job, **more: object) -> Any:  # noqa: ANN401
    import aiokafka

    settings = job.settings("aiokafka") | more
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=job.address, acks="all", **settings)
    await producer.start()
    for value in job.values(job.warm_count):
        await producer.send(TOPIC, value)
    await producer.flush()
    return producer


def produce_aiokafka(job: Job) -> None:
    """`send`, each `WINDOW`-th future awaited."""

    async def run() -> None:
        producer = await _aiokafka(job)
        values = job.values(job.count)
        with job.measured():
            for number, value in enumerate(values):
                future = await producer.send(TOPIC, value)
                if not number % WINDOW:
                    await future
            await producer.flush()
        await producer.stop()

    asyncio.run(run())


def produce_aiokafka_batches(job: Job) -> None:
    """`create_batch` and `send_batch`, futures awaited at the end."""

    async def run() -> None:
        producer = await _aiokafka(job)
        futures = []
        values = job.values(job.count)
        with job.measured():
            batch = producer.create_batch()
            for value in values:
                if batch.append(key=None, value=value, timestamp=None) is None:
                    futures.append(await producer.send_batch(batch, TOPIC, partition=0))
                    batch = producer.create_batch()
                    batch.append(key=None, value=value, timestamp=None)
            futures.append(await producer.send_batch(batch, TOPIC, partition=0))
            for future in futures:
                await future
        await producer.stop()

    asyncio.run(run())


def wait_aiokafka(job: Job) -> None:
    """`send_and_wait`, one record at a time."""

    async def run() -> None:
        producer = await _aiokafka(job, linger_ms=0)
        await _time_each(job, lambda value: producer.send_and_wait(TOPIC, value))
        await producer.stop()

    asyncio.run(run())


# -- kafka-python -------------------------------------------------------------------------------


def _kafka_python(job: Job, **more: object) -> Any:  # noqa: ANN401
    import kafka

    settings = job.settings("kafka-python") | more
    producer = kafka.KafkaProducer(bootstrap_servers=job.address, acks="all", **settings)
    for value in job.values(job.warm_count):
        producer.send(TOPIC, value)
    producer.flush()
    return producer


def produce_kafka_python(job: Job) -> None:
    """`send`, futures dropped."""
    values = job.values(job.count)
    producer = _kafka_python(job)
    with job.measured():
        for value in values:
            producer.send(TOPIC, value)
        producer.flush()
    producer.close()


def wait_kafka_python(job: Job) -> None:
    """`send` and `get`, one record at a time."""
    producer = _kafka_python(job, linger_ms=0)
    job.time_each(lambda value: producer.send(TOPIC, value).get(30))
    producer.close()


CONTENDERS: Mapping[str, Callable[[Job], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        produce_send,
        produce_send_kept,
        produce_send_without_receipts,
        produce_send_many,
        produce_send_arrow,
        produce_async_send,
        produce_confluent,
        produce_confluent_with_callbacks,
        produce_aiokafka,
        produce_aiokafka_batches,
        produce_kafka_python,
        wait_send,
        wait_async_send,
        wait_confluent,
        wait_aiokafka,
        wait_kafka_python,
        memory,
    )
}


def main(arguments: list[str]) -> None:
    """Do the work, and print what it took."""
    name, address, size, count, group, warm_count = arguments
    job = Job(
        address=address,
        size=int(size),
        count=int(count),
        group=group,
        warm_count=int(warm_count),
    )
    CONTENDERS[name](job)
    print(json.dumps(job.found))


if __name__ == "__main__":
    main(sys.argv[1:])
