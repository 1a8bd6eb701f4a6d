"""The metadata log of a real Kafka, followed by an observer of ours, and the copy given to Kafka.

    Kafka, node 1   controller and broker; takes snapshots often, and keeps little of its log
    first           an observer of ours from the beginning; stays through a stop and a kill of Kafka
    late            another, which starts when the beginning of the log is gone
    Kafka, node 2   a broker on the directory of the first, and then the first again

After each step the published image is compared with the records in the controller's own directory,
up to the same offset.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

from compat.kafka import CLUSTER_ID, NODE_ID, Kafka
from compat.metadata_turns import undumped
from compat.processes import free_ports
from compat.report import Report
from tailrace.broker.kraft.metadata_fetch import MetadataFetch, Observer
from tailrace.broker.kraft.settings import MetadataFetchConfig
from tailrace.broker.peers import Peers
from tailrace.client.admin import (
    AclBinding,
    AclOperation,
    AclResource,
    Admin,
    ConfigResource,
    NewTopic,
    QuotaEntity,
    ScramMechanism,
    ScramUpsertion,
)
from tailrace.client.config import ClientConfig
from tailrace.client.nodes import Node
from tailrace.cluster.metadata.folder import MetadataFolder, MetadataLogConfig
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.observer import open_observer_log
from tailrace.cluster.metadata.proof import METADATA_FOLDER, PARTITION
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot_files import find_snapshots, load_snapshot
from tailrace.protocol.config_resources import ResourceType
from tailrace.reading.view import open_view
from tailrace.records.batch import Batch
from tailrace.runtime.files import DiskFiles
from tailrace.runtime.system import system_runtime
from tailrace.storage.checkpoints import format_topic_id
from tailrace.storage.folder import Removals
from tailrace.values import replace

OBSERVER_ID = 2
SECONDS_MAX = 30.0
TRIM_SECONDS_MAX = 150.0
SNAPSHOT_BYTES = 4000
"""A few seconds of an idle controller, which writes a NoOp twice a second."""
_SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": str(SNAPSHOT_BYTES),
    "metadata.max.retention.bytes": "9000",
}
_PARTS = tuple(MetadataImage.__dataclass_fields__)


class Copy(NamedTuple):
    """An observer that runs."""

    fetch: MetadataFetch
    published: list[tuple[MetadataImage, int]]
    told: list[str]
    first_offset: int
    """The end of the log that this start has found."""


def check(report: Report, kafka: Kafka, scratch: Path) -> None:
    """Follow `kafka`, which is new; `scratch` gets the directories of the observers."""
    asyncio.run(_check(report, kafka, scratch / "following"))


async def _check(report: Report, kafka: Kafka, scratch: Path) -> None:
    port, controller_port = free_ports(2)
    kafka.settings |= _SETTINGS | {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller_port}",
    }
    unknown = Node(-1, "127.0.0.1", controller_port)
    voter = unknown._replace(id=NODE_ID)
    first, late = scratch / "first", scratch / "late"
    servers = f"127.0.0.1:{port}"
    await asyncio.to_thread(kafka.start)
    try:
        async with _observing(first, unknown) as copy:
            await _caught_up(copy)
            report.check("an observer that starts with nothing has the image", _unlike(copy, kafka))
            await asyncio.to_thread(_change, servers, "a")
            await _has(copy, lambda image: "a-19" in image.topic_ids)
            report.check("it has all kinds of changes", _unlike(copy, kafka))
            await asyncio.to_thread(kafka.stop)
            await asyncio.to_thread(kafka.start)
            await asyncio.to_thread(_change, servers, "b")
            await _has(copy, lambda image: "b-19" in image.topic_ids)
            report.check("it follows on when the controller has restarted", _unlike(copy, kafka))
            kafka.kill()
            await asyncio.to_thread(kafka.start)
            await asyncio.to_thread(_change, servers, "c")
            await _has(copy, lambda image: "c-19" in image.topic_ids)
            report.check("and when it was killed", _unlike(copy, kafka))
            report.check("the epochs are those of the controller", _epochs(copy, kafka))
            await _trimmed(kafka)
            async with _observing(late, voter) as other:
                await _caught_up(other)
                report.check(
                    "where the beginning is gone, a snapshot takes its place", _unlike(other, kafka)
                )
                await asyncio.to_thread(_change, servers, "d")
                await _has(other, lambda image: "d-19" in image.topic_ids)
                report.check("and records go on after it", _unlike(other, kafka))
                report.check(
                    "the observer is one in Kafka's DescribeQuorum",
                    await asyncio.to_thread(_undescribed, kafka, servers),
                )
        async with _observing(first, unknown) as copy:
            await _caught_up(copy)
            report.check("a stopped observer follows on with its log", [
                *_unlike(copy, kafka), *copy.told,
                *([] if copy.first_offset else ["it began with nothing"]),
            ])  # fmt: skip
        for name, directory in (("first", first), ("late", late)):
            faults = await asyncio.to_thread(_undumped, kafka, directory / "logs")
            report.check(f"Kafka's dump tool reads every record that the {name} has copied", faults)
        await _check_kafka_on_copy(report, kafka, first, voter)
    finally:
        kafka.kill()


def check_voters_in_log(report: Report, kafka: Kafka, scratch: Path) -> None:
    """Follow `kafka`, which was formatted with `--standalone`: its log names the voters."""
    asyncio.run(_check_voters_in_log(report, kafka, scratch / "following-voters"))


async def _check_voters_in_log(report: Report, kafka: Kafka, scratch: Path) -> None:
    port, controller_port = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
    kafka.settings |= _SETTINGS | {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
    }
    await asyncio.to_thread(kafka.start)
    try:
        async with _observing(scratch, Node(-1, "127.0.0.1", controller_port)) as copy:
            await _caught_up(copy)
            kafka.kill()
            await asyncio.to_thread(kafka.start)
            await asyncio.to_thread(_change, f"127.0.0.1:{port}", "a")
            await _has(copy, lambda image: "a-19" in image.topic_ids)
            report.check("a quorum whose log names its voters is followed", _unlike(copy, kafka))
        memory = (scratch / "logs" / METADATA_FOLDER / "quorum-state").read_text()
        theirs = (kafka.logs / METADATA_FOLDER / "quorum-state").read_text()
        versions = ('"data_version":1' in each for each in (memory, theirs))
        report.check("quorum-state is of the version for that", [] if all(versions) else [memory])
    finally:
        kafka.kill()


async def _check_kafka_on_copy(report: Report, kafka: Kafka, first: Path, voter: Node) -> None:
    """Start a broker of Kafka on the directory of an observer, and then the observer again."""
    (port,) = free_ports(1)
    broker = kafka.moved_to(first)
    broker.settings |= {
        "process.roles": "broker",
        "node.id": str(OBSERVER_ID),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }
    end = _log_end(first)
    await asyncio.to_thread(broker.start)
    try:
        found = [line for line in broker.printed() if "truncat" in line.lower()]
        topics = await asyncio.to_thread(_topics, f"127.0.0.1:{port}")
    finally:
        await asyncio.to_thread(broker.stop)
    wanted = {f"{round_}-{number}" for round_ in "abcd" for number in range(20) if number % 5}
    report.check(
        "a broker of Kafka continues in the directory of the observer",
        [*found, *(f"topic {each}" for each in sorted(topics ^ wanted))]
        + ([] if _log_end(first) > end else ["it has fetched nothing"]),
    )
    async with _observing(first, voter) as copy:
        await _caught_up(copy)
        report.check(
            "and the observer after Kafka",
            [*_unlike(copy, kafka), *copy.told]
            + ([] if copy.first_offset > end else ["the log of Kafka was dropped"]),
        )


@asynccontextmanager
async def _observing(directory: Path, server: Node) -> AsyncIterator[Copy]:
    """An observer on a directory, which is formatted if it is new."""
    logs = directory / "logs"
    if not logs.exists():
        logs.mkdir(parents=True)
        (logs / "meta.properties").write_text(
            f"version=1\nnode.id={OBSERVER_ID}\ncluster.id={CLUSTER_ID}\n"
            f"directory.id={format_topic_id(uuid4())}\n"
        )
    runtime = system_runtime()
    told: list[str] = []
    published: list[tuple[MetadataImage, int]] = []
    removals = Removals(runtime.files)
    folder = MetadataFolder(runtime.files, runtime.clock, runtime.chance, removals, str(logs))
    log = open_observer_log(
        folder,
        MetadataLogConfig(snapshot_bytes=SNAPSHOT_BYTES),
        node_id=OBSERVER_ID,
        report=told.append,
    )
    peers = Peers(ClientConfig(client_id=f"raft-client-{OBSERVER_ID}"), runtime)
    fetch = MetadataFetch(
        log,
        peers,
        runtime,
        config=MetadataFetchConfig(),
        observer=Observer(OBSERVER_ID, CLUSTER_ID, UUID(int=1000)),
        servers=[server],
        publish=lambda image, _, offset: published.append((image, offset)),
    )
    task = asyncio.create_task(fetch.run())
    try:
        yield Copy(fetch, published, told, log.end_offset)
    finally:
        task.cancel()
        await asyncio.wait([task])
        peers.close()
        log.close()
        runtime.threads.close()


async def _caught_up(copy: Copy) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        await copy.fetch.caught_up.wait()


async def _has(copy: Copy, holds: Callable[[MetadataImage], bool]) -> None:
    """Wait until the published image has something."""
    await _until(lambda: bool(copy.published) and holds(copy.published[-1][0]), SECONDS_MAX)


async def _trimmed(kafka: Kafka) -> None:
    """Wait until the controller has removed the beginning of its log: it looks once a minute."""
    files, folder = DiskFiles(), _folder(kafka)
    oldest = find_snapshots(files, folder)[0]
    await _until(lambda: oldest not in find_snapshots(files, folder), TRIM_SECONDS_MAX)


async def _until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it takes too long"
        await asyncio.sleep(0.05)


def _change(servers: str, name: str) -> None:
    """Make one change of each kind that the log has, and topics with `name`, the last one last."""
    with Admin(bootstrap_servers=servers) as admin:
        topics = [NewTopic(f"{name}-{number}", 3) for number in range(19)]
        admin.create_topics(topics)
        own = {"retention.ms": "1234567"}
        admin.incremental_alter_configs({ConfigResource(ResourceType.TOPIC, f"{name}-1"): own})
        admin.create_partitions({f"{name}-2": 5})
        admin.delete_topics([f"{name}-{number}" for number in range(0, 19, 5)])
        upsertion = ScramUpsertion(f"user-{name}", ScramMechanism.SHA_256, "secret")
        admin.alter_user_scram_credentials([upsertion])
        user = f"User:{name}"
        admin.create_acls([AclBinding(AclResource.TOPIC, name, user, AclOperation.READ)])
        admin.alter_client_quotas({QuotaEntity.of(user=name): {"producer_byte_rate": 1e6}})
        admin.incremental_alter_configs(
            {ConfigResource(ResourceType.BROKER, ""): {"log.retention.ms": "123456789"}}
        )
        admin.create_topics([NewTopic(f"{name}-19", 1)])


def _undumped(kafka: Kafka, logs: Path) -> list[str]:
    return list(undumped(kafka, logs))


def _topics(servers: str) -> set[str]:
    with Admin(bootstrap_servers=servers) as admin:
        return {each.name for each in admin.list_topics(include_internal=False)}


def _folder(kafka: Kafka) -> str:
    return str(kafka.logs / METADATA_FOLDER)


def _unlike(copy: Copy, kafka: Kafka) -> list[str]:
    """The parts in which the published image differs from the controller's own records."""
    image, offset = copy.published[-1]
    wanted = _image_at(_folder(kafka), offset + 1)
    found, right = _without_order(image), _without_order(wanted)
    parts = ((each, getattr(found, each), getattr(right, each)) for each in _PARTS)
    return [
        f"{part} at offset {offset}: {mine!r:.300}, not {theirs!r:.300}"
        for part, mine, theirs in parts
        if mine != theirs
    ]


def _image_at(folder: str, end: int) -> MetadataImage:
    """The image of the records below an offset, from the files of the controller."""
    files = DiskFiles()
    replay = MetadataReplay()
    for each in reversed(find_snapshots(files, folder)):
        if each.next_offset <= end:
            image = load_snapshot(files, each).image
            replay = MetadataReplay(image, next_offset=each.next_offset, epoch=each.epoch)
            break
    view = open_view(files, folder, PARTITION)

    def batches() -> Iterator[Batch]:
        for stored in view.batches(view.reader.start_offset, view.reader.end_offset):
            if replay.next_offset <= stored.batch.base_offset < end:
                yield stored.batch

    replay.see_all(batches())
    assert replay.next_offset == end, f"the controller's log ends at {replay.next_offset}"
    return replay.image


def _without_order(image: MetadataImage) -> MetadataImage:
    """The image with features and endpoints of nodes in one order; Kafka's is that of a hash."""
    nodes = {
        part: {
            number: replace(
                node,
                features=tuple(sorted(node.features, key=lambda each: each.name)),
                end_points=tuple(sorted(node.end_points, key=lambda each: each.name)),
            )
            for number, node in getattr(image, part).items()
        }
        for part in ("brokers", "controllers")
    }
    return replace(image, **nodes)  # type: ignore[arg-type]


def _epochs(copy: Copy, kafka: Kafka) -> list[str]:
    """Epochs of the log as the controller and the observer have them in their checkpoints."""
    theirs = (kafka.logs / METADATA_FOLDER / "leader-epoch-checkpoint").read_text().split()
    if int(theirs[-2]) != copy.fetch.epoch:
        return [f"the controller is in epoch {theirs[-2]}, and {copy.fetch.epoch} is known"]
    return []


def _undescribed(kafka: Kafka, servers: str) -> list[str]:
    said = kafka.run_tool("MetadataQuorumCommand", "--bootstrap-server", servers,
                          "describe", "--replication")  # fmt: skip
    return [] if f"\n{OBSERVER_ID} " in said or f"\n{OBSERVER_ID}\t" in said else [said[-500:]]


def _log_end(directory: Path) -> int:
    view = open_view(DiskFiles(), str(directory / "logs" / METADATA_FOLDER), PARTITION)
    return view.reader.end_offset
