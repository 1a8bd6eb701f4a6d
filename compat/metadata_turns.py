"""One cluster's metadata log, written by both brokers in turn: nothing of either is lost.

    ours formats -> Kafka -> ours, killed -> Kafka, killed -> ours -> Kafka -> ours

Each turn creates a topic, grows and configures one, deletes one and takes producer ids. Kafka's
first turn also makes what our broker keeps without acting on it: users, access control lists,
quotas and settings of all brokers. The same changes are then made by Kafka alone on another
directory, and the two states are compared, without what has to differ: ids, epochs, registrations.
"""

import json
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from compat import clients, ours
from compat.administering import SETTINGS
from compat.clients import Sender
from compat.kafka import NODE_ID, Kafka
from compat.report import Report
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
from tailrace.cluster import bootstrap
from tailrace.cluster.metadata.batches import decoded_records
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.proof import METADATA_FOLDER, PARTITION, prove_metadata
from tailrace.cluster.metadata.snapshot_files import find_snapshots, load_snapshot
from tailrace.protocol.config_resources import ResourceType
from tailrace.reading.view import open_view
from tailrace.runtime.files import DiskFiles

RECORD_COUNT = 50
_PAYLOAD = re.compile(r"payload: (\{.*\})\s*$")


class Turn(NamedTuple):
    """A broker's time with the directory."""

    is_kafka: bool
    is_killed: bool = False


TURNS = (
    Turn(is_kafka=False),
    Turn(is_kafka=True),
    Turn(is_kafka=False, is_killed=True),
    Turn(is_kafka=True, is_killed=True),
    Turn(is_kafka=False),
    Turn(is_kafka=True),
    Turn(is_kafka=False),
)


def check(report: Report, both: Kafka, alone: Kafka) -> None:
    """Take turns on the directory of `both`, which is new; `alone` does all on another."""
    for kafka in (both, alone):
        kafka.settings |= SETTINGS
    both.logs.mkdir(parents=True)
    senders: list[Sender] = []
    differences: list[str] = []
    for number, turn in enumerate(TURNS):
        with _broker(both, turn) as servers:
            differences += _take_turn(servers, number)
            senders.append(_send(servers))
            expected = set(_existing(number))
            with Admin(bootstrap_servers=servers) as admin:
                listed = {each.name for each in admin.list_topics(include_internal=False)}
            differences += [f"turn {number}: {each}" for each in sorted(listed ^ expected)]
        if number and not (both.logs / _unmade(number - 1)).is_dir():
            differences.append(f"turn {number}: {_unmade(number - 1)} has no folder")
        if turn.is_killed:
            # As if it had been killed between the answer and the making of the log.
            shutil.rmtree(both.logs / _unmade(number))
    report.check("each broker finds the topics that the other has left", differences)
    with both:
        read = clients.read_topics(both.bootstrap_servers, ["kept"])
    acknowledged = [each for sender in senders for each in sender.acknowledged]
    report.check(
        "all records of every turn are there, the killed ones' too",
        list(clients.lost(acknowledged, read["kept", False])),
    )
    report.check(
        "no folder was set aside by either",
        sorted(path.name for path in both.logs.glob("*-stray")),
    )
    with alone:
        for number, _ in enumerate(TURNS):
            _take_turn(alone.bootstrap_servers, number)
            _send(alone.bootstrap_servers)
    states = [_state(each.logs) for each in (both, alone)]
    report.check(
        "the state that both have made in turn is that which Kafka makes alone",
        list(_unlike(*states)),
        explained="without ids, epochs and registrations",
    )
    report.check("Kafka's dump tool reads every record of it", list(undumped(both, both.logs)))
    report.check("the directory passes tailrace log verify", ours.verify(both.logs))


def check_format(report: Report, kafka: Kafka, scratch: Path) -> None:
    """Compare a directory that our broker has made with one of Kafka's storage tool."""
    with kafka:
        pass
    own = scratch / "formatted" / "logs"
    own.mkdir(parents=True)
    with ours.serving(own):
        pass
    files = DiskFiles()
    snapshots = []
    for directory in (kafka.logs, own):
        path = directory / bootstrap.FILE
        data = bytearray(path.read_bytes())
        snapshots.append((len(data), bootstrap.first_image(
            files, str(directory), min_insync_replicas="1"
        )))  # fmt: skip
    report.check(
        "bootstrap.checkpoint of a new directory is that of Kafka's storage tool",
        [] if snapshots[0] == snapshots[1] else [f"{snapshots[0]} and {snapshots[1]}"],
        explained="the time of writing differs",
    )
    keys = [
        {line.partition("=")[0] for line in text.splitlines() if "=" in line}
        for text in ((each / "meta.properties").read_text() for each in (kafka.logs, own))
    ]
    report.check("so are the names in meta.properties", sorted(keys[0] ^ keys[1]))
    images = [_image(each) for each in (kafka.logs, own)]
    report.check(
        "so are the features and settings that a new cluster begins with",
        [
            f"{name}: {found} and {mine}"
            for name in ("features", "configs")
            for found, mine in [[getattr(each, name) for each in images]]
            if found != mine
        ],
    )


@contextmanager
def _broker(kafka: Kafka, turn: Turn) -> Iterator[str]:
    """The address of a broker on the directory, which ends as the turn says."""
    if not turn.is_kafka:
        ending = signal.SIGKILL if turn.is_killed else signal.SIGTERM
        with ours.serving(kafka.logs, ending=ending) as servers:
            yield servers
        return
    with kafka:
        yield kafka.bootstrap_servers
        if turn.is_killed:
            kafka.kill()


def _existing(number: int) -> Iterator[str]:
    """The topics that exist after a turn."""
    yield "kept"
    yield f"made-{number}"
    if number:
        yield f"made-{number - 1}"


def _unmade(number: int) -> str:
    """The folder of a turn that is removed if the turn ended with a kill; the next makes it."""
    return f"made-{number}-1"


def _take_turn(servers: str, number: int) -> list[str]:
    """The changes of a turn; returns those that were refused."""
    kept = ConfigResource(ResourceType.TOPIC, "kept")
    with Admin(bootstrap_servers=servers) as admin:
        outcomes: list[Any] = []
        wanted = [
            NewTopic(f"made-{number}", 2, configs={"retention.ms": str(1000 * number + 60_000)})
        ]
        if number == 0:
            wanted.append(NewTopic("kept", 1, configs={"segment.bytes": "1048576"}))
        outcomes.append(admin.create_topics(wanted))
        if number:
            outcomes.append(admin.create_partitions({"kept": number + 1}))
            own = {
                "retention.ms": str(10_000_000 + number),
                "flush.ms": None if number % 2 else "9",
            }
            outcomes.append(admin.incremental_alter_configs({kept: own}))
        if number > 1:
            outcomes.append(admin.delete_topics([f"made-{number - 2}"]))
        if number == 1:
            outcomes += _keep_only(admin)
    return [f"turn {number}: {error}" for each in outcomes for error in each.errors.values()]


def _keep_only(admin: Admin) -> list[Any]:
    """Make, in Kafka's first turn, what our broker keeps without acting on it."""
    mechanism = ScramMechanism.SHA_256
    return [
        admin.alter_user_scram_credentials([ScramUpsertion("alice", mechanism, "secret")]),
        admin.create_acls([AclBinding(AclResource.TOPIC, "kept", "User:alice", AclOperation.READ)]),
        admin.alter_client_quotas({QuotaEntity.of(user="alice"): {"producer_byte_rate": 1e6}}),
        admin.incremental_alter_configs(
            {ConfigResource(ResourceType.BROKER, ""): {"log.retention.ms": "123456789"}}
        ),
    ]


def _send(servers: str) -> Sender:
    sender = Sender(servers)
    for number in range(RECORD_COUNT):
        sender.send("kept", b"record %d" % number)
    sender.flush()
    return sender


def _image(logs: Path) -> MetadataImage:
    def refuse(sentence: str) -> None:
        raise AssertionError(sentence)

    return prove_metadata(DiskFiles(), str(logs / METADATA_FOLDER), report=refuse).replay.image


def _state(logs: Path) -> dict[str, object]:
    """The parts of a state that two clusters with the same history have alike."""
    image = _image(logs)
    return {
        "features": dict(image.features),
        "topics": {
            state.name: {
                number: (each.replicas, each.leader, each.isr)
                for number, each in sorted(state.partitions.items())
            }
            for state in image.topics.values()
            if not state.name.startswith("__")
        },
        "configs": {
            resource: dict(own)
            for resource, own in image.configs.items()
            if not resource.name.startswith("__")
        },
        "quotas": {entity: dict(own) for entity, own in image.quotas.items()},
        "acls": sorted(
            (each.principal, each.resource_name, each.operation) for each in image.acls.values()
        ),
        "users": sorted(
            (each.name, each.mechanism, each.iterations) for each in image.scram.values()
        ),
    }


def _unlike(both: dict[str, object], alone: dict[str, object]) -> Iterator[str]:
    for name, found in both.items():
        if name == "topics":
            continue
        if found != alone[name]:
            yield f"{name}: {found} and {alone[name]}"
    topics, others = both["topics"], alone["topics"]
    assert isinstance(topics, dict)
    assert isinstance(others, dict)
    for topic in sorted(topics.keys() | others.keys()):
        sizes = [len(each.get(topic, ())) for each in (topics, others)]
        if sizes[0] != sizes[1]:
            yield f"{topic} has {sizes[0]} and {sizes[1]} partitions"
        for number, (replicas, _leader, isr) in topics.get(topic, {}).items():
            if replicas != (NODE_ID,) or not {*isr} <= {NODE_ID}:
                yield f"{topic}-{number} has replicas {replicas} and in sync {isr}"


def undumped(kafka: Kafka, logs: Path) -> Iterator[str]:
    """Records in a metadata log that Kafka's tool does not print as we do."""
    folder = logs / METADATA_FOLDER
    lines = kafka.dump(sorted(folder.glob("*.log")), "--cluster-metadata-decoder")
    yield from (line for line in lines if "error" in line.lower() or "exception" in line.lower())
    dumped = [json.loads(match[1])["type"] for line in lines if (match := _PAYLOAD.search(line))]
    shown = _shown(logs)
    if dumped != shown:
        yield f"Kafka prints {len(dumped)} records and we {len(shown)}, or others"
    for each in find_snapshots(DiskFiles(), str(folder)):
        load_snapshot(DiskFiles(), each)
        yield from (
            line
            for line in kafka.dump([Path(each.path)], "--cluster-metadata-decoder")
            if "exception" in line.lower()
        )


def _shown(logs: Path) -> list[str]:
    view = open_view(DiskFiles(), str(logs / METADATA_FOLDER), PARTITION)
    found = []
    for stored in view.batches(view.reader.start_offset, view.reader.end_offset):
        if stored.batch.is_control:
            continue
        for _, each in decoded_records(stored.batch):
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(each.record).__name__)
            found.append(name.upper())
    return found
