"""Metadata logs and snapshots of Kafka 3.3 to 4.1: read, written again alike, gone on with.

    the old Kafka formats, makes topics and settings, writes snapshots -> ours -> the old Kafka

Each release has its own level of `metadata.version`, and with it other records and versions of
them. Afterwards the old Kafka finds what our broker has made: we wrote nothing that it cannot read.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from compat import clients, ours
from compat.artifacts import Release, old_release
from compat.clients import Sender
from compat.kafka import Kafka
from compat.report import Report
from tailrace.client.admin import Admin, ConfigResource, NewTopic
from tailrace.cluster.metadata.batches import decoded_records
from tailrace.cluster.metadata.proof import METADATA_FOLDER, prove_metadata
from tailrace.cluster.metadata.snapshot import read_snapshot, write_snapshot
from tailrace.cluster.metadata.snapshot_files import find_snapshots
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.metadata_records import ProducerIdsRecord
from tailrace.records.batch import read_batches
from tailrace.runtime.files import DiskFiles

RELEASES = tuple(map(old_release, ("3.3.2", "3.5.2", "3.7.2", "3.9.1", "4.0.1", "4.1.1")))
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "600",
    "metadata.max.idle.interval.ms": "0",
}
"""So that there are snapshots, and nothing but what was asked for."""
RECORD_COUNT = 50
KEPT, OURS = "kept", "ours"


def check(report: Report, start: Callable[[Release], Kafka]) -> None:
    """Take the directory of each release over and give it back; `start` gives a Kafka on it."""
    for release in RELEASES:
        name, kafka = f"Kafka {release.version}", start(release)
        kafka.settings |= SETTINGS
        senders = []
        with kafka, Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(KEPT, 3, configs={"retention.ms": "500000"})]).results()
            admin.create_topics([NewTopic(f"more-{number}", 1) for number in range(8)]).results()
            admin.delete_topics(["more-0"]).results()
            kept = ConfigResource(ResourceType.TOPIC, KEPT)
            admin.incremental_alter_configs({kept: {"flush.ms": "7000"}}).results()
            senders.append(_send(kafka.bootstrap_servers, KEPT))
        report.check(
            f"the snapshots of {name} are written again record for record",
            list(_unlike_snapshots(kafka.logs / METADATA_FOLDER)),
            explained="3.3 names the broker that has the newest block of producer ids",
        )
        told: list[str] = []
        folder = str(kafka.logs / METADATA_FOLDER)
        before = prove_metadata(DiskFiles(), folder, report=told.append).replay.image
        report.check(f"the metadata log of {name} is proven whole", told)
        with ours.serving(kafka.logs) as servers, Admin(bootstrap_servers=servers) as admin:
            listed = {each.name for each in admin.list_topics(include_internal=False)}
            admin.create_topics([NewTopic(OURS, 2, configs={"retention.ms": "600000"})]).results()
            senders.append(_send(servers, KEPT, OURS))
        wanted = {each for each in before.topic_ids if not each.startswith("__")}
        report.check(f"our broker has the topics of {name}", sorted(listed ^ wanted))
        with kafka, Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            listed = {each.name for each in admin.list_topics(include_internal=False)}
            read = clients.read_topics(kafka.bootstrap_servers, [KEPT, OURS])
        lost = [
            each
            for topic in (KEPT, OURS)
            for sender in senders
            for each in clients.lost(
                (one for one in sender.acknowledged if one.topic == topic), read[topic, False]
            )
        ]
        report.check(
            f"{name} goes on with what our broker has made",
            [*sorted(listed ^ wanted ^ {OURS}), *lost, *_strays(kafka.logs)],
        )


def _send(servers: str, *topics: str) -> Sender:
    sender = Sender(servers)
    for number in range(RECORD_COUNT):
        for topic in topics:
            sender.send(topic, b"%s %d" % (topic.encode(), number))
    sender.flush()
    return sender


def _strays(logs: Path) -> list[str]:
    return sorted(path.name for path in logs.glob("*-stray"))


def _unlike_snapshots(folder: Path) -> Iterator[str]:
    found = find_snapshots(DiskFiles(), str(folder))
    if not found:
        yield "there are none"
    for each in found:
        data = Path(each.path).read_bytes()
        written = write_snapshot(read_snapshot(memoryview(data)), epoch=each.epoch, timestamp=0)
        before, after = (sorted(map(repr, _records(one))) for one in (data, written))
        yield from (f"{each.path}: {one}" for one in set(before) ^ set(after))
        if len(before) != len(after):
            yield f"{each.path}: {len(before)} records, written {len(after)}"


def _records(data: bytes) -> Iterator[object]:
    for _, batch in read_batches(memoryview(data)):
        for _, (version, record) in decoded_records(batch):
            if isinstance(record, ProducerIdsRecord):
                yield version, record.next_producer_id
            else:
                yield version, record
