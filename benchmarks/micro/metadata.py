"""The metadata log of a cluster with 100,000 partitions: a start replays it, a topic changes it."""

from functools import partial
from pathlib import Path
from random import Random
from uuid import UUID

from benchmarks.measure import Bench, Figure, seconds_of
from tailrace.cluster import bootstrap, records
from tailrace.cluster.image import Topic
from tailrace.cluster.metadata.folder import MetadataFolder, MetadataLogConfig
from tailrace.cluster.metadata.log import MetadataLog, open_metadata_log
from tailrace.cluster.metadata.proof import METADATA_FOLDER, prove_metadata
from tailrace.cluster.metadata.snapshot import snapshot_records
from tailrace.records import packages
from tailrace.runtime.clock import SystemClock
from tailrace.runtime.files import DiskFiles
from tailrace.storage.folder import Removals

PARTITIONS = 100_000
TOPIC_PARTITIONS = 50
CHECKED_AT_ONCE = 1 << 20


def measure_metadata(bench: Bench) -> list[Figure]:
    """Seconds of the replay, against a checksum of the same bytes; of a change, against a sync."""
    count = bench.scaled(PARTITIONS, quick=500)
    bench.say(f"metadata: a log with {count:,} partitions")
    log = _open(bench.directory)
    _fill(log, count)
    log.close()
    folder = bench.directory / METADATA_FOLDER
    replays, checksums = [], []
    for _ in range(bench.rounds):
        replays.append(seconds_of(lambda: prove_metadata(DiskFiles(), str(folder), report=print)))
        checksums.append(seconds_of(lambda: _checksum(folder)))
    log = _open(bench.directory)
    changes, syncs = [], []
    for number in range(bench.rounds):
        topic = _topic(f"later-{number}", 10_000_000 + number, 1)
        changes.append(seconds_of(partial(_create, log, topic)) * 1000)
        syncs.append(seconds_of(lambda: _write_and_sync(bench.directory)) * 1000)
    log.close()
    return [
        Figure(
            name=f"replay of a metadata log, {PARTITIONS:,} partitions", unit="s",
            ours=tuple(replays), peer_name="crc32c of its bytes", peer=tuple(checksums),
        ),
        Figure(
            name=f"a topic's records in it, {PARTITIONS:,} partitions", unit="ms",
            ours=tuple(changes), peer_name="write and sync", peer=tuple(syncs),
        ),
    ]  # fmt: skip


_NODE = records.Node(node_id=1, directories={"": UUID(int=500)})


def _open(directory: Path) -> MetadataLog:
    files = DiskFiles()
    chance = Random(0)
    folder = MetadataFolder(files, SystemClock(), chance, Removals(files), str(directory))
    return open_metadata_log(folder, MetadataLogConfig(), node_id=1, report=print)


def _fill(log: MetadataLog, count: int) -> None:
    log.append(list(snapshot_records(bootstrap.new_image())))
    for number in range(count // TOPIC_PARTITIONS):
        _create(log, _topic(f"topic-{number}", 1_000_000 + number, TOPIC_PARTITIONS))


def _create(log: MetadataLog, topic: Topic) -> None:
    log.append(list(records.topic_records(topic, log.image, _NODE)))


def _topic(name: str, number: int, count: int) -> Topic:
    configs = {"retention.ms": "1000000"}
    return Topic(
        name=name, topic_id=UUID(int=number), partitions=tuple(range(count)), configs=configs
    )


def _checksum(folder: Path) -> None:
    for path in folder.glob("*.log"):
        with path.open("rb") as file:
            while data := file.read(CHECKED_AT_ONCE):
                packages.crc32c.crc32c(data)


def _write_and_sync(directory: Path) -> None:
    file = DiskFiles().open(str(directory / "synced"), create=True)
    file.write(file.size(), bytes(300))
    file.sync()
    file.close()
