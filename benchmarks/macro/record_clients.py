"""One producer that sends records of one kind, in a process of its own.

    python -m benchmarks.macro.record_clients KIND CLIENT ADDRESS SIZE COUNT WARM

Kinds differ in what a record has besides its value: see `KINDS`. It connects, sends WARM records of
the same kind that do not count, sends COUNT records with values of SIZE bytes, waits until all are
acknowledged, and prints a line of JSON: seconds, and CPU seconds of its own. Settings are those of
the group `same` of `producer_clients`. Records are made before anything is measured.

`copy-and-checksum` sends nothing: it copies the values and keys into batches, and takes the CRC-32C
of each, which is the least that any client does with them.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks.macro.producer_clients import BATCH_BYTES, WINDOW, Job

TOPIC = "records"
PARTITIONS = 4
DISTINCT_KEYS = 1_000_003


class Record(NamedTuple):
    """The arguments of a send."""

    value: bytes | str
    key: bytes | None = None
    headers: list[tuple[str, bytes]] | None = None
    partition: int | None = None


HEADERS = [("trace", b"0af7651916cd43dd")]

KINDS: Mapping[str, Callable[[bytes, int], Record]] = {
    "value": lambda value, _: Record(value),
    "key": lambda value, number: Record(value, b"%d" % (number * 7_919 % DISTINCT_KEYS)),
    "header": lambda value, _: Record(value, headers=HEADERS),
    "callback": lambda value, _: Record(value),
    "partition": lambda value, number: Record(value, partition=number % PARTITIONS),
    "text": lambda value, _: Record(value.decode()),
}
"""Records of each kind, from a value and a number; with `callback` each has one."""


def _records(job: Job, kind: str, count: int) -> list[Record]:
    return [KINDS[kind](value, number) for number, value in enumerate(job.values(count))]


def _told() -> tuple[list[int], Callable[..., None]]:
    """A count of calls, and the callback that counts them."""
    count = [0]

    def told(*_: object) -> None:
        count[0] += 1

    return count, told


def ours(job: Job, kind: str) -> None:
    """`send`, with receipts that the caller does not keep."""
    from tailrace.client.producer.producer import Producer

    count, told = _told()
    callback = told if kind == "callback" else None
    with Producer(job.settings("ours"), bootstrap_servers=job.address) as producer:

        def work(records: list[Record]) -> None:
            send = producer.send
            if callback is not None:
                for value, *_ in records:
                    send(TOPIC, value, on_delivery=callback)
            elif kind in {"value", "text"}:
                for value, *_ in records:
                    send(TOPIC, value)
            elif kind == "key":
                for value, key, *_ in records:
                    send(TOPIC, value, key)
            else:
                for value, key, headers, partition in records:
                    send(TOPIC, value, key, headers=headers, partition=partition)
            producer.flush()
            # The producer's own thread calls them, and may have some left.
            while callback is not None and (count[0] - job.warm_count) % job.count:
                time.sleep(0.001)

        work(_records(job, kind, job.warm_count))
        _measure(job, kind, work, count)


def ours_without_receipts(job: Job, kind: str) -> None:
    """`send` of values and keys, without receipts."""
    from tailrace.client.producer.producer import Producer

    with Producer(job.settings("ours"), bootstrap_servers=job.address) as producer:

        def work(records: list[Record]) -> None:
            send = producer.send
            for value, key, *_ in records:
                send(TOPIC, value, key, receipt=False)
            producer.flush()

        work(_records(job, kind, job.warm_count))
        _measure(job, kind, work, [0])


def ours_of_arrow(job: Job, kind: str) -> None:
    """`send_many` of an Arrow table of values and keys."""
    from tailrace.client.producer.producer import Producer

    rows = _table(job, kind)
    with Producer(job.settings("ours"), bootstrap_servers=job.address) as producer:
        if job.warm_count:
            producer.send_many(TOPIC, rows[: job.warm_count])
        with job.measured():
            producer.send_many(TOPIC, rows)


def copy_and_checksum(job: Job, kind: str) -> None:
    """A copy of what `ours_of_arrow` sends, with a CRC-32C of every `BATCH_BYTES`."""
    import crc32c

    columns = [
        memoryview(each.chunk(0).buffers()[2]).cast("B") for each in _table(job, kind).columns
    ]
    batch = memoryview(bytearray(BATCH_BYTES))
    with job.measured():
        for column in columns:
            for start in range(0, len(column), BATCH_BYTES):
                part = column[start : start + BATCH_BYTES]
                batch[: len(part)] = part
                crc32c.crc32c(batch[: len(part)])


def _table(job: Job, kind: str) -> Any:  # noqa: ANN401
    import pyarrow as pa

    values, keys, *_ = zip(*_records(job, kind, job.count), strict=True)
    return pa.table({"value": values, "key": keys})


def confluent(job: Job, kind: str) -> None:
    """`produce`, with a `poll` for each record."""
    import confluent_kafka

    count, told = _told()
    settings = {"bootstrap.servers": job.address, "acks": "all"} | job.settings("confluent")
    producer = confluent_kafka.Producer(settings)

    def work(records: list[Record]) -> None:
        for value, key, headers, partition in records:
            how: dict[str, Any] = {}
            if headers is not None:
                how["headers"] = headers
            if partition is not None:
                how["partition"] = partition
            if kind == "callback":
                how["on_delivery"] = told
            while True:
                try:
                    producer.produce(TOPIC, value, key, **how)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(60) == 0

    work(_records(job, kind, job.warm_count))
    _measure(job, kind, work, count)


def kafka_python(job: Job, kind: str) -> None:
    """`send`, futures dropped."""
    import kafka

    count, told = _told()
    settings = job.settings("kafka-python")
    producer = kafka.KafkaProducer(bootstrap_servers=job.address, acks="all", **settings)

    def work(records: list[Record]) -> None:
        for value, key, headers, partition in records:
            octets = value.encode() if isinstance(value, str) else value
            future = producer.send(TOPIC, octets, key, headers=headers, partition=partition)
            if kind == "callback":
                future.add_callback(told)
        producer.flush()

    work(_records(job, kind, job.warm_count))
    _measure(job, kind, work, count)
    producer.close()


def aiokafka(job: Job, kind: str) -> None:
    """`send`, each `WINDOW`-th future awaited."""
    import aiokafka as package

    async def run() -> None:
        count, told = _told()
        settings = job.settings("aiokafka")
        producer = package.AIOKafkaProducer(bootstrap_servers=job.address, acks="all", **settings)
        await producer.start()

        async def work(records: list[Record]) -> None:
            for number, (value, key, headers, partition) in enumerate(records):
                octets = value.encode() if isinstance(value, str) else value
                future = await producer.send(TOPIC, octets, key, partition, headers=headers)
                if kind == "callback":
                    future.add_done_callback(told)
                if not number % WINDOW:
                    await future
            await producer.flush()

        await work(_records(job, kind, job.warm_count))
        records = _records(job, kind, job.count)
        with job.measured():
            await work(records)
        await producer.stop()
        assert kind != "callback" or count[0] == job.warm_count + job.count

    asyncio.run(run())


def _measure(job: Job, kind: str, work: Callable[[list[Record]], None], count: list[int]) -> None:
    records = _records(job, kind, job.count)
    with job.measured():
        work(records)
    assert kind != "callback" or count[0] == job.warm_count + job.count


CLIENTS: Mapping[str, Callable[[Job, str], None]] = {
    "ours": ours,
    "ours-without-receipts": ours_without_receipts,
    "ours-of-arrow": ours_of_arrow,
    "copy-and-checksum": copy_and_checksum,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


def main(arguments: list[str]) -> None:
    """Do the work, and print what it took."""
    kind, client, address, size, count, warm_count = arguments
    job = Job(
        address=address,
        size=int(size),
        count=int(count),
        group="same",
        warm_count=int(warm_count),
    )
    CLIENTS[client](job, kind)
    print(json.dumps(job.found))


if __name__ == "__main__":
    main(sys.argv[1:])
