"""Every figure that must be good from the first record: nothing is warm, and no cache is there.

Each client, tool and broker is a new process with an empty home, in which it must leave nothing: so
no run profits from one before it. Time counts from the first record that is sent or asked for, and
from the start of the process for a program as a whole (`benchmarks.newcomer.programs`), a tool and
a broker. The files of a log are in the page cache.

Producers have the settings `same` of `producer_clients`: acks=all, idempotent, `linger.ms` 5,
`batch.size` 1,000,000, keys placed by murmur2. Consumers have their own defaults, without a group,
and take 500 rows at a time; a program that reads columns has imported PyArrow before. Kafka's rows
are left out where there is no Java or no Kafka.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from benchmarks.kafka.directories import measure_dump
from benchmarks.kafka.peer import Peer
from benchmarks.kafka.startup import measure_startup
from benchmarks.macro.brokers import BrokerProcess, serving
from benchmarks.macro.consumers import Layout, measure_layout
from benchmarks.macro.directories import measure_verify
from benchmarks.macro.producers import run_producer
from benchmarks.macro.record_clients import KINDS, PARTITIONS, TOPIC
from benchmarks.macro.records import measure_kind, run_client
from benchmarks.macro.startup import resident_after_traffic
from benchmarks.measure import Bench, Cost, Figure, cost_of_command, empty_home, interleave
from benchmarks.newcomer.run import PROGRAMS, build_wheel, install
from tailrace.errors import FatalError

CLIENTS = ("ours", "confluent-kafka")
PROCESS_RECORDS = 100_000
ASYNC_RECORDS = 300_000
ARROW_RECORDS = 100_000
LAYOUTS = tuple(Layout(size, batch) for size in (100, 1000) for batch in ("16 KB", "1 MB"))

INSTALLED_MB_MAX = 60
RESIDENT_MB_MAX = 80

AIMS: Mapping[str, float] = {
    **dict.fromkeys(("send with key, 100 bytes", "send with key, 100 bytes, CPU"), 0.3),
    **{
        f"send with {kind}{suffix}": 0.5
        for kind in (
            "callback, 100 bytes", "header, 100 bytes", "text, 100 bytes", "partition, 100 bytes",
            "key, 1000 bytes",
        )
        for suffix in ("", ", CPU")
    },
    **dict.fromkeys(
        ("send_many of Arrow with key, 100 bytes", "send_many of Arrow with key, 100 bytes, CPU"),
        0.06,
    ),
    **{f"poll, {layout}, CPU": 0.25 if layout.size == 100 else 0.5 for layout in LAYOUTS},
    **{f"poll_columns, {layout}, CPU": 1 / 15 for layout in LAYOUTS if layout.size == 100},
    "verify 1 GB": 2,
    "records of a segment of 1 GB, log cat to DumpLogSegments --print-data-log": 0.2,
    # As it was before kernels were compiled ahead of time.
    "start to first answer": 0.09,
}  # fmt: skip
"""Ratios to reach, for figures of other stages by their name there."""


def measure_first(bench: Bench) -> list[Figure]:
    """The figures of all parts, each with `first: ` before its name."""
    figures = [] if bench.is_quick else [_installed(bench)]
    peer = _kafka_or_none(bench)
    with empty_home(bench.directory) as home:
        with serving(bench.directory / "first") as broker:
            figures += _measure_records(bench, broker)
            figures += _measure_process(bench, broker)
            figures += _measure_async(bench, broker)
            figures += _measure_arrow(bench, broker)
        for layout in LAYOUTS:
            names = ("poll", "columns", "confluent")
            figures += measure_layout(bench, layout, names=names, warm_count=0)
        figures += measure_verify(bench)[:1]
        if not bench.is_quick:
            figures.append(_resident(bench))
        if peer:
            figures += _measure_against_kafka(bench, peer)
        left = sorted(map(str, home.rglob("*")))
        assert not left, f"processes left files in their home: {left}"
    return [
        replace(each, name=f"first: {each.name}", aim=AIMS.get(each.name, each.aim))
        for each in figures
    ]


def _kafka_or_none(bench: Bench) -> Peer | None:
    try:
        return Peer.find()
    except FatalError as error:
        bench.say(f"first: no comparison with Kafka: {error}")
        return None


def _installed(bench: Bench) -> Figure:
    bench.say("first: building a wheel, and installing it")
    installed = install(build_wheel(bench.directory), bench.directory / "environment")
    return _limited("site-packages after pip install", installed.megabytes, INSTALLED_MB_MAX)


def _resident(bench: Bench) -> Figure:
    bench.say("first: 6 GB of traffic")
    megabytes = resident_after_traffic(bench)
    return _limited("broker memory after 6 GB of traffic", megabytes, RESIDENT_MB_MAX)


def _limited(name: str, megabytes: float, limit: float) -> Figure:
    return Figure(name=name, unit="MB", ours=(megabytes,), peer_name="limit", peer=(limit,), aim=1)


def _measure_records(bench: Bench, broker: BrokerProcess) -> Iterator[Figure]:
    """Sending records of each kind."""
    for size, kind in (*product((100,), KINDS), (1000, "key")):
        found = measure_kind(bench, broker, kind, size=size, clients=CLIENTS, warm_count=0)
        # Aims of the stage `records` are for clients that are warm.
        yield from (replace(each, aim=None) for each in found)


def _measure_process(bench: Bench, broker: BrokerProcess) -> Iterator[Figure]:
    """A whole program that sends."""
    count = bench.scaled(PROCESS_RECORDS, quick=1_000)
    bench.say(f"first: processes that send {count:,} records")

    def run(client: str) -> Cost:
        broker.create_topic(TOPIC, partition_count=PARTITIONS)
        given = ("send", client, broker.address, TOPIC, count)
        cost = cost_of_command([sys.executable, PROGRAMS, *map(str, given)])
        broker.delete_topic(TOPIC)
        return cost

    found = interleave(bench, {client: partial(run, client) for client in CLIENTS})
    for field, suffix, aim in (("seconds", "", None), ("cpu_seconds", ", CPU", 0.5)):
        yield Figure(
            name=f"process that sends {count:,} records{suffix}",
            unit="s",
            ours=tuple(getattr(cost, field) for cost in found["ours"]),
            peer_name="confluent-kafka",
            peer=tuple(getattr(cost, field) for cost in found["confluent-kafka"]),
            aim=aim,
        )


def _measure_async(bench: Bench, broker: BrokerProcess) -> Iterable[Figure]:
    """The asyncio producer, to the other one."""
    count = bench.scaled(ASYNC_RECORDS, quick=1_000)
    bench.say(f"first: {count:,} records with asyncio")
    work = partial(run_producer, broker, size=100, count=count, group="same", warm_count=0)
    found = interleave(
        bench,
        {name: partial(work, name) for name in ("produce-async-send", "produce-send")},
    )
    return _per_record(
        "AsyncProducer.send, 100 bytes", count, found, peer_name="Producer.send", aim=1.25
    )


def _measure_arrow(bench: Bench, broker: BrokerProcess) -> Iterable[Figure]:
    """Arrow tables with keys, to the least that can be done with their bytes."""
    count = bench.scaled(ARROW_RECORDS, quick=1_000)
    bench.say(f"first: {count:,} records of Arrow")
    found = interleave(
        bench,
        {
            client: partial(run_client, broker, "key", client, size=1000, count=count, warm_count=0)
            for client in ("ours-of-arrow", "copy-and-checksum")
        },
    )
    return _per_record(
        "send_many of Arrow with key, 1000 bytes", count, found,
        peer_name="a copy and CRC-32C", aim=1.5,
    )  # fmt: skip


def _per_record(
    name: str,
    count: int,
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    peer_name: str,
    aim: float,
) -> Iterator[Figure]:
    """Time and CPU time per record of two contenders, the first of which is ours."""
    ours, peer = found.values()
    for field, suffix in (("seconds", ""), ("cpu_seconds", ", CPU")):
        yield Figure(
            name=f"{name}{suffix}",
            unit="us/record",
            ours=tuple(each[field] / count * 1e6 for each in ours),
            peer_name=peer_name,
            peer=tuple(each[field] / count * 1e6 for each in peer),
            aim=aim,
        )


def _measure_against_kafka(bench: Bench, peer: Peer) -> Iterator[Figure]:
    """A dump of a segment, and a start."""
    for each in (*measure_dump(bench, peer), *measure_startup(bench, peer)):
        if each.name.startswith(("records of a segment", "start to first answer")):
            yield each
