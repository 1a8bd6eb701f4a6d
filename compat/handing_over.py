"""A directory of ours that Kafka gets with the server.properties that `tailrace handover` writes.

formatted by us for an earlier release -> ours -> handover -> Kafka -> handover -> ours, upgraded
"""

from compat import clients, ours
from compat.clients import Sender
from compat.kafka import Kafka
from compat.report import Report
from tailrace.client.admin import Admin, FeatureUpdate, NewTopic
from tailrace.cluster.metadata.features import metadata_level
from tailrace.offline.formatting import Wanted, format_directories, levels_of
from tailrace.offline.handover import Effect, plan_handover
from tailrace.offline.server_properties import server_properties
from tailrace.runtime.system import system_runtime

RELEASE = "4.0"
RECORD_COUNT = 50
TOPIC = "handed-over"


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
        admin.create_topics([NewTopic(TOPIC, 1, configs={"segment.bytes": "4096"})]).results()
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
