"""A directory of ours that Kafka gets with the server.properties that `tailrace handover` writes.

formatted by us for an earlier release -> ours -> handover -> Kafka -> handover -> ours, upgraded

`check_folders` puts folders of others beside the partitions, by which Kafka must start whenever
handover says that it is ready.
"""

import random
from pathlib import Path

from compat import clients, ours
from compat.clients import Sender
from compat.kafka import Kafka, run_java
from compat.report import Report
from tailrace.client.admin import Admin, FeatureUpdate, NewTopic
from tailrace.cluster.metadata.features import metadata_level
from tailrace.errors import FatalError
from tailrace.offline.formatting import Wanted, format_directories, levels_of
from tailrace.offline.handover import Effect, plan_handover, server_properties
from tailrace.runtime.system import system_runtime
from tailrace.storage import names

RELEASE = "4.0"
RECORD_COUNT = 50
TOPIC = "handed-over"

_UNIQUE = "0f" * 16
_FATAL = ("lost+found", ".snapshot", "backup", f"{TOPIC}-0.bak", "x-delete", "x-2147483648")
"""Folders beside which Kafka does not start, one at a time."""
_HARMLESS = (f"gone-0.{_UNIQUE}-delete", "gone-1.old-delete", "remote-log-index-cache")
"""Folders beside which it starts, all together."""
_PIECES = (
    "a", "b_", "0", "1", "03", "-", "-", "-", ".", "+", " ", "٣", "x-0", "2147483647", "2147483648",
    "-delete", "-future", "-stray", _UNIQUE, "__cluster_metadata",
)  # fmt: skip
_PROGRAM = Path(__file__).with_name("Folders.java")
_NAMES_COUNT = 20_000


def check(report: Report, kafka: Kafka) -> None:
    """Hand a directory over and back; that of Kafka is new."""
    runtime = system_runtime()
    levels = levels_of(metadata_level(RELEASE), {})
    format_directories(
        runtime.files,
        [str(kafka.logs)],
        Wanted(levels=levels),
        clock=runtime.clock,
        chance=runtime.chance,
    )
    with ours.serving(kafka.logs) as servers, Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(
            [NewTopic(TOPIC, 1, configs={"internal.segment.bytes": "4096"})]
        ).results()
        sender = _send(servers)
    report.check("handover to Kafka: ready after an orderly stop", _hindrances(kafka))
    settings = server_properties(plan_handover(runtime.files, [str(kafka.logs)]))
    kafka.settings |= settings
    address = settings["advertised.listeners"].removeprefix("PLAINTEXT://")
    with kafka, Admin(bootstrap_servers=address) as admin:
        features = admin.describe_features().finalized
        found = {name: each.max_level for name, each in features.items()}
        report.check(
            f"Kafka starts with the settings of handover, at the levels of {RELEASE}",
            [] if found == levels else [f"{found} and {levels}"],
        )
        read = clients.read_topics(address, [TOPIC])
        report.check(
            "it has all records", list(clients.lost(sender.acknowledged, read[TOPIC, False]))
        )
    report.check("handover to Tailrace: ready after Kafka's orderly stop", _hindrances(kafka))
    upgrade = {name: FeatureUpdate(level) for name, level in levels_of(None, {}).items()}
    with ours.serving(kafka.logs) as servers, Admin(bootstrap_servers=servers) as admin:
        outcomes = admin.update_features(upgrade)
        report.check("our broker upgrades all features", [*map(str, outcomes.errors.values())])
    with kafka, Admin(bootstrap_servers=address) as admin:
        features = admin.describe_features().finalized
        found = {name: each.max_level for name, each in features.items()}
        report.check(
            "Kafka starts at the new levels",
            [] if found == levels_of(None, {}) else [f"{found}"],
        )
    report.check(
        "no folder was set aside", sorted(path.name for path in kafka.logs.glob("*-stray"))
    )


def _send(servers: str) -> Sender:
    sender = Sender(servers)
    for number in range(RECORD_COUNT):
        sender.send(TOPIC, b"record %d" % number)
    sender.flush()
    return sender


def _hindrances(kafka: Kafka) -> list[str]:
    found = plan_handover(system_runtime().files, [str(kafka.logs)])
    return [each.sentence for each in found.notes if each.effect is Effect.HINDERS]


def check_folders(report: Report, kafka: Kafka, java: Path, class_path: str) -> None:
    """Folders of others, in a directory that `check` has handed over and Kafka has stopped."""
    chance = random.Random(41)  # noqa: S311 - no secret
    tried = sorted(
        {"".join(chance.choices(_PIECES, k=chance.randint(1, 5))) for _ in range(_NAMES_COUNT)}
    )
    listed = kafka.directory / "folders.txt"
    listed.write_text("".join(f"{name}\n" for name in tried), encoding="utf-8")
    printed = run_java(java, class_path, [str(_PROGRAM), str(listed)]).splitlines()
    expected = ["false" if names.stops_kafka(name) else "true" for name in tried]
    report.check(
        f"{_NAMES_COUNT} random names of folders stop Kafka, or do not, as handover says",
        [f"{name!r}: {theirs}" for name, ours_, theirs in zip(tried, expected, printed, strict=True)
         if ours_ != theirs],
    )  # fmt: skip
    for name in _HARMLESS:
        (kafka.logs / name).mkdir()
    (kafka.logs / "notes").touch()
    (kafka.logs / "gone").symlink_to("nowhere")
    report.check("handover is ready beside folders and files that Kafka knows", _hindrances(kafka))
    with kafka:
        report.check("Kafka starts beside them", [])
    for name in _FATAL:
        folder = kafka.logs / name
        folder.mkdir()
        report.check(
            f"handover says that Kafka does not start beside a folder {name}",
            [] if any(str(folder) in each for each in _hindrances(kafka)) else ["ready"],
        )
        report.check(f"Kafka does not start beside a folder {name}", _start(kafka, name))
        folder.rmdir()


def _start(kafka: Kafka, name: str) -> list[str]:
    """Start a Kafka that has to refuse; the difference if it does not, or for another reason."""
    try:
        kafka.start()
    except FatalError:
        told = [line for line in kafka.printed() if "is not in the form of topic-partition" in line]
        return [] if any(name in line for line in told) else ["it died of something else"]
    kafka.stop()
    return ["it started"]
