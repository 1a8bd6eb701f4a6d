"""Small requests, groups, transactions and consumers: what both brokers take for them.

Prebuilt requests over raw sockets, and librdkafka for what takes a client: transactions, and a
consumer that waits for what a producer sends. A round of each load on each broker is thrown away.
"""

import statistics
import time
from collections.abc import Iterator
from functools import partial
from itertools import count

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.kafka.brokers import Broker, Brokers, both, compare, take_turns
from benchmarks.kafka.peer import Peer
from benchmarks.macro.groups import (
    MEMBERS,
    commit_frame,
    rebalance_seconds,
    require_committed,
    wait_for_coordinator,
)
from benchmarks.macro.load import build_batch, produce_frame
from benchmarks.macro.requester import Job, Result, run_job
from benchmarks.macro.requests import ONE_RECORD_BYTES
from benchmarks.measure import Bench, Cost, Figure, cost_of

TOPIC = "requests"
GROUP = "requests"
COUNT = 20_000
WARM_UP_COUNT = 40_000
TRANSACTIONS = 500
RECORDS = 300_000
"""Records that a consumer of a group reads in a round."""
MESSAGES = 2_000
"""Records that are sent one at a time to a consumer that waits."""
WAIT_SECONDS = 60

LATENCY_AIM = 0.7
CPU_AIM = 0.5
COMMITS_AIM = 1 / 1.5
"""For the CPU of a commit: 1.5 times as many commits in a CPU second."""
END_TO_END_AIM = 0.8


def measure_requests(bench: Bench, peer: Peer) -> list[Figure]:
    """Each kind of request, a rebalance, transactions, and a consumer."""
    names = count()
    with both(bench, peer) as brokers:
        for broker in brokers:
            broker.create_topic(TOPIC)
            wait_for_coordinator(broker.address, GROUP)
        return [
            *_measure_frames(bench, brokers),
            *_measure_rebalance(bench, brokers, names),
            *_measure_transactions(bench, brokers, names),
            *_measure_consumer(bench, brokers, names),
        ]


def _measure_frames(bench: Bench, brokers: Brokers) -> list[Figure]:
    small = produce_frame(TOPIC, build_batch(ONE_RECORD_BYTES))
    commit = commit_frame(GROUP, TOPIC)
    figures = []
    for name, frame, at_once, latency_aim, cpu_aim in (
        ("produce of one record", small, 1, LATENCY_AIM, CPU_AIM),
        ("produce of one record, 16 at once", small, 16, None, CPU_AIM),
        ("commit of one offset", commit, 1, None, COMMITS_AIM),
        ("commit of one offset, 16 at once", commit, 16, None, COMMITS_AIM),
    ):
        bench.say(f"requests: {name}")
        run = partial(_run, frame=frame, at_once=at_once)
        for broker in brokers:
            run(broker, requests=bench.scaled(WARM_UP_COUNT, quick=64))
        count_each = bench.scaled(COUNT, quick=640)
        found = take_turns(bench, brokers, partial(run, requests=count_each))
        if frame is commit:
            require_committed(bytes.fromhex(found["kafka"][-1].answer))
            require_committed(bytes.fromhex(found["ours"][-1].answer))
        figures += [
            compare(f"{name}, p50", "us", found, lambda run: run.p50_us, aim=latency_aim),
            compare(f"{name}, p99", "us", found, lambda run: run.p99_us),
            compare(f"{name}, p99.9", "us", found, lambda run: run.p999_us),
            compare(f"{name}, CPU", "us", found, lambda run: run.cpu_us, aim=cpu_aim),
        ]
    return figures


def _run(broker: Broker, *, frame: bytes, at_once: int, requests: int) -> Result:
    host, port = broker.address
    job = Job(
        host=host,
        port=port,
        process_id=broker.process_id,
        frames=(frame.hex(),),
        count=requests,
        at_once=at_once,
    )
    return run_job(job)


def _measure_rebalance(bench: Bench, brokers: Brokers, names: Iterator[int]) -> list[Figure]:
    members = bench.scaled(MEMBERS, quick=5)
    bench.say(f"requests: {members} members rebalance")

    def run(broker: Broker) -> float:
        return rebalance_seconds(broker.address, f"members-{next(names)}", members)

    for broker in brokers:
        wait_for_coordinator(broker.address, "members-0")
        run(broker)
    found = take_turns(bench, brokers, run)
    return [compare(f"rebalance of {members} members", "s", found, float, aim=1.0)]


def _measure_transactions(bench: Bench, brokers: Brokers, names: Iterator[int]) -> list[Figure]:
    transactions = bench.scaled(TRANSACTIONS, quick=10)
    bench.say(f"requests: {transactions} transactions")

    def run(broker: Broker) -> Cost:
        producer = Producer(
            {
                "bootstrap.servers": str(broker.address),
                "transactional.id": f"transactions-{next(names)}",
                "linger.ms": 0,
            }
        )
        producer.init_transactions(WAIT_SECONDS)

        def work() -> None:
            for _ in range(transactions):
                producer.begin_transaction()
                producer.produce(TOPIC, bytes(100), partition=0)
                producer.commit_transaction(WAIT_SECONDS)

        return cost_of(broker.process_id, work)

    for broker in brokers:
        run(broker)
    found = take_turns(bench, brokers, run)
    return [
        compare(
            "a transaction of one record",
            "ms",
            found,
            lambda cost: cost.seconds / transactions * 1e3,
            aim=1.0,
        ),
        compare(
            "a transaction of one record, CPU",
            "us",
            found,
            lambda cost: cost.cpu_seconds / transactions * 1e6,
        ),
    ]


def _measure_consumer(bench: Bench, brokers: Brokers, names: Iterator[int]) -> list[Figure]:
    records = bench.scaled(RECORDS, quick=5_000)
    messages = bench.scaled(MESSAGES, quick=50)
    bench.say(f"requests: a consumer of {records} records, and of {messages} one at a time")
    for broker in brokers:
        broker.create_topic("consumed")
        producer = Producer({"bootstrap.servers": str(broker.address)})
        for _ in range(records):
            producer.produce("consumed", bytes(100), partition=0)
            producer.poll(0)
        assert not producer.flush(WAIT_SECONDS)
    times = take_turns(bench, brokers, partial(_us_a_record, names=names, records=records))
    delays = take_turns(bench, brokers, partial(_delay_ms, names=names, messages=messages))
    return [
        compare("a record that a consumer of a group reads", "us", times, float),
        compare("from send to poll, p50", "ms", delays, float, aim=END_TO_END_AIM),
    ]


def _consumer(broker: Broker, names: Iterator[int]) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": str(broker.address),
            "group.id": f"consumer-{next(names)}",
            "auto.offset.reset": "earliest",
        }
    )


def _us_a_record(broker: Broker, *, names: Iterator[int], records: int) -> float:
    """Microseconds a record, from the first to the last, after the group's rebalance."""
    consumer = _consumer(broker, names)
    consumer.subscribe(["consumed"])
    first = read = len(consumer.consume(1_000, timeout=WAIT_SECONDS))
    assert read, "no records came"
    started = time.perf_counter()
    while read < records:
        found = consumer.consume(1_000, timeout=WAIT_SECONDS)
        assert found, f"{read} of {records} records came"
        read += len(found)
    elapsed = time.perf_counter() - started
    consumer.commit(asynchronous=False)
    consumer.close()
    return elapsed / (records - first) * 1e6


def _delay_ms(broker: Broker, *, names: Iterator[int], messages: int) -> float:
    """The median time from a send until the consumer has the record."""
    topic = f"delays-{next(names)}"
    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": str(broker.address), "linger.ms": 0, "acks": 1})
    consumer = _consumer(broker, names)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    for number in range(messages + 1):
        started = time.perf_counter()
        producer.produce(topic, bytes(100), partition=0)
        producer.poll(0)
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None
        assert message.error() is None, message.error()
        if number:
            found.append((time.perf_counter() - started) * 1e3)
    consumer.close()
    broker.delete_topic(topic)
    return statistics.median(found)
