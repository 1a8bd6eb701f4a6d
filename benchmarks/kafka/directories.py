"""Measures whole directories with both brokers: recovery after a kill, compaction, a dump.

Kafka makes the topic, so that its metadata knows it, and stops. Our storage then writes the records
into its folders, and each broker gets a copy: the same bytes, which both read as their own.

Invariant: both sides have to come to the same answer, or the stage fails.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.kafka.peer import JVM, PEER, Peer
from benchmarks.macro.brokers import serving
from benchmarks.macro.directories import (
    BATCH_BYTES,
    COMPACTED,
    KEYS,
    MAP_BYTES,
    PARTITION,
    clean_all,
    fill,
    fill_keyed,
    prepare,
)
from benchmarks.macro.load import build_batch
from benchmarks.measure import Bench, Cost, Figure, cpu_seconds, interleave, seconds_of
from compat.bytewise import copy_directory
from compat.kafka import Kafka, java_command
from compat.ours import make_unclean
from tailrace.client import ClusterReader
from tailrace.client.producer.intake.encoding import BATCH_OVERHEAD, record_size_bound
from tailrace.errors import RetriableError
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.records.batch import read_batches
from tailrace.records.builder import BatchBuilder
from tailrace.runtime.files import DiskFiles
from tailrace.storage import names
from tailrace.storage.checkpoints import read_offset_checkpoint

TOPIC = PARTITION.topic
PARTITIONS = tuple(TopicPartition(TOPIC, number) for number in range(4))
"""Partitions of the recovered directory: more than the recovery threads, two on both sides."""
RECOVERY_BYTES = 2_000_000_000
ANSWER_SECONDS_MAX = 120
STOPPED = "stopped"
STATES = {
    "warm": "recovery of {}, warm",
    "cold": "recovery of {}, cold",
    STOPPED: "start on {} after an orderly stop",
}

IMPATIENT = {
    f"{what}.backoff{most}.ms": 10 for what in ("retry", "reconnect") for most in ("", ".max")
}
"""Settings of a reader that asks again at once."""

COMPACTION_BYTES = 2_000_000_000
CLEAN_SECONDS_MAX = 300
DUMP_BYTES = 1_000_000_000
TEXT_BYTES = 1000

TOOL_JVM = ("-Xmx256M", *(option for option in JVM if not option.startswith(("-Xmx", "-Xms"))))
"""JVM options that `kafka-run-class.sh` gives a tool by default."""

NEVER = {"min.cleanable.dirty.ratio": "1.0"}
"""A log is cleaned when it is dirtier than this, which none can be."""

_CLEANED = re.compile(r"of log processed in ([\d,.]+) seconds")


def measure_recovery(bench: Bench, peer: Peer) -> list[Figure]:
    """Seconds from the start of the process to the first answer about every partition.

    After a kill with no recovery point, with the log in the page cache and not; and, to tell the
    start itself from the recovery, after an orderly stop.
    """
    size = bench.scaled(RECOVERY_BYTES, quick=20_000_000)
    bench.say(f"recovery: writing {size / 1e9:.2f} GB")
    kafka = peer.kafka(bench.directory / "kafka")
    with kafka:
        _create(kafka, {}, partition_count=len(PARTITIONS))
    batch = build_batch(BATCH_BYTES)
    fill(kafka.logs, size, batch.data, partitions=PARTITIONS)
    end = batch.record_count * (size // len(PARTITIONS) // len(batch.data))
    ours = copy_directory(kafka.logs, bench.directory / "ours")
    sides: dict[str, tuple[Path, Callable[[], AbstractContextManager[str]]]] = {
        "ours": (ours, partial(_serving_us, ours)),
        "peer": (kafka.logs, partial(_serving_kafka, kafka)),
    }
    found = interleave(
        bench,
        {
            f"{state} {who}": partial(_seconds_to_answer, state, logs, side, end=end)
            for state in STATES
            for who, (logs, side) in sides.items()
        },
    )
    return [
        Figure(
            name=what.format(f"{size / 1e9:.0f} GB"),
            unit="s",
            ours=tuple(found[f"{state} ours"]),
            peer_name=PEER,
            peer=tuple(found[f"{state} peer"]),
        )
        for state, what in STATES.items()
    ]


def measure_compaction(bench: Bench, peer: Peer) -> list[Figure]:
    """Seconds and CPU seconds until nothing of a log is dirty, one thread and 128 MB on each side.

    Kafka's seconds are those that its cleaner tells; its CPU is that of the whole process from when
    the topic may be cleaned. Ours is the cleaner alone, in this process and without a broker.
    """
    size = bench.scaled(COMPACTION_BYTES, quick=20_000_000)
    keys = bench.scaled(KEYS, quick=40_000)
    bench.say(f"compaction: writing {size / 1e9:.2f} GB with {keys:,} keys")
    settings = {"log.cleaner.dedupe.buffer.size": str(MAP_BYTES)}
    kafka = peer.kafka(bench.directory / "dirty", settings=settings)
    with kafka:
        _create(kafka, {**COMPACTED, **NEVER})
    fill_keyed(kafka.logs, size, keys)
    numbers = count()
    contenders: dict[str, Callable[[], tuple[Cost, int]]] = {
        "ours": lambda: _cleaned_by_us(kafka, bench.directory / f"clean-{next(numbers)}"),
        "peer": lambda: _cleaned_by_kafka(kafka, bench.directory / f"clean-{next(numbers)}"),
    }
    found = interleave(bench, contenders)
    counts = {records for each in found.values() for _, records in each}
    assert len(counts) == 1, f"not the same number of records survive: {found}"
    costs = {name: [cost for cost, _ in each] for name, each in found.items()}
    title = f"compaction of {size / 1e9:.0f} GB, {keys / 1e6:.0f} million keys"
    return [
        Figure(
            name=name,
            unit=unit,
            ours=tuple(map(value, costs["ours"])),
            peer_name=PEER,
            peer=tuple(map(value, costs["peer"])),
        )
        for name, unit, value in (
            (title, "s", lambda cost: cost.seconds),
            (f"{title}, CPU", "CPU s", lambda cost: cost.cpu_seconds),
        )
    ]


def measure_dump(bench: Bench, peer: Peer) -> list[Figure]:
    """Seconds to look into one segment of a gigabyte with each side's tool, started anew.

    Headers: DumpLogSegments prints a line of every batch and whether its checksum is right; `log
    verify` checks that and much more, and prints what is wrong. Records: both print all of them to
    a file, keys and values as text.
    """
    path = bench.directory / "dump"
    size = bench.scaled(DUMP_BYTES, quick=20_000_000)
    bench.say(f"dump: writing {size / 1e9:.2f} GB")
    fill(path, size, _text_batch())
    (segment,) = (path / str(PARTITION)).glob("*.log")
    dump = ["org.apache.kafka.tools.DumpLogSegments", "--files", str(segment)]
    log = [sys.executable, "-m", "tailrace", "log"]
    java = partial(java_command, peer.java, peer.class_path, jvm=TOOL_JVM)
    commands = {
        "headers ours": [*log, "verify", "--data", str(path)],
        "headers peer": java(dump),
        "records ours": [*log, "cat", "--data", str(path), str(PARTITION)],
        "records peer": java([*dump, "--print-data-log"]),
    }
    output = bench.directory / "printed"
    found = interleave(
        bench, {name: partial(_printed, command, output) for name, command in commands.items()}
    )
    return [
        Figure(
            name=f"{what} of a segment of {size / 1e9:.0f} GB, {tools}",
            unit="s",
            ours=tuple(found[f"{what} ours"]),
            peer_name=PEER,
            peer=tuple(found[f"{what} peer"]),
        )
        for what, tools in (
            ("headers", "log verify to DumpLogSegments"),
            ("records", "log cat to DumpLogSegments --print-data-log"),
        )
    ]


@contextmanager
def _serving_us(logs: Path) -> Iterator[str]:
    with serving(logs, settings={}) as broker:
        yield str(broker.address)
        os.kill(broker.process_id, signal.SIGTERM)
        os.waitid(os.P_PID, broker.process_id, os.WEXITED | os.WNOWAIT)


@contextmanager
def _serving_kafka(kafka: Kafka) -> Iterator[str]:
    with kafka:
        yield kafka.bootstrap_servers


def _seconds_to_answer(
    state: str, logs: Path, side: Callable[[], AbstractContextManager[str]], *, end: int
) -> float:
    """Measure the time until a broker on `logs` tells that every partition ends at `end`."""
    if state != STOPPED:
        make_unclean(logs)
    prepare(state, logs.glob("*/*.log"))
    started = time.perf_counter()
    with side() as address:
        reader = ClusterReader(address, settings=IMPATIENT)
        while _ends(reader) != dict.fromkeys(PARTITIONS, end):
            assert time.perf_counter() - started < ANSWER_SECONDS_MAX, _ends(reader)
        seconds = time.perf_counter() - started
        reader.close()
    return seconds


def _ends(reader: ClusterReader) -> dict[TopicPartition, int]:
    try:
        return reader.list_offsets(dict.fromkeys(PARTITIONS, SpecialTimestamp.LATEST))
    except RetriableError:
        return {}


def _create(kafka: Kafka, settings: Mapping[str, str], *, partition_count: int = 1) -> None:
    """The topic, in a Kafka that runs."""
    topic = NewTopic(TOPIC, partition_count, 1, config=dict(settings))
    admin = _admin(kafka)
    admin.create_topics([topic])[TOPIC].result()


def _admin(kafka: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})


def _cleaned_by_us(source: Kafka, target: Path) -> tuple[Cost, int]:
    copy_directory(source.logs, target)
    found = clean_all(target)
    shutil.rmtree(target)
    return found


def _cleaned_by_kafka(source: Kafka, target: Path) -> tuple[Cost, int]:
    ratio = ConfigEntry(
        "min.cleanable.dirty.ratio",
        COMPACTED["min.cleanable.dirty.ratio"],
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[ratio])
    with source.moved_to(copy_directory(source.directory, target)) as kafka:
        cpu_before = cpu_seconds(kafka.pid)
        admin = _admin(kafka)
        admin.incremental_alter_configs([resource])[resource].result()
        _wait_until_cleaned(kafka.logs)
        cpu = cpu_seconds(kafka.pid) - cpu_before
        rounds = _CLEANED.findall("\n".join(kafka.printed()))
        kafka.kill()
    records = sum(
        batch.record_count
        for path in (kafka.logs / str(PARTITION)).glob("*.log")
        for _, batch in read_batches(memoryview(path.read_bytes()))
    )
    shutil.rmtree(target)
    seconds = sum(float(each.replace(",", "")) for each in rounds)
    return Cost(seconds=seconds, cpu_seconds=cpu), records


def _wait_until_cleaned(logs: Path) -> None:
    active = max(int(path.stem) for path in (logs / str(PARTITION)).glob("*.log"))
    checkpoint = str(logs / names.CLEANER_OFFSETS)
    deadline = time.monotonic() + CLEAN_SECONDS_MAX
    while read_offset_checkpoint(DiskFiles(), checkpoint).get(PARTITION, 0) < active:
        assert time.monotonic() < deadline, f"Kafka has not cleaned in {CLEAN_SECONDS_MAX} s"
        time.sleep(0.1)


def _text_batch() -> bytes:
    """A batch of 16 KB with values of a kilobyte that are text, since they are printed."""
    value = b"0123456789" * (TEXT_BYTES // 10)
    builder = BatchBuilder()
    now_ms = time.time_ns() // 1_000_000
    for _ in range((BATCH_BYTES - BATCH_OVERHEAD) // record_size_bound(b"key", value)):
        builder.append(b"key", value, timestamp=now_ms)
    return builder.build()


def _printed(command: Sequence[str], output: Path) -> float:
    with output.open("wb") as file:
        seconds = seconds_of(lambda: subprocess.run(command, stdout=file, check=True))
    assert output.stat().st_size
    output.unlink()
    return seconds
