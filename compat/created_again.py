"""Topics of Apache Kafka that are deleted and created again between the runs of jobs on Spark.

The identity of a topic is the same from Kafka's broker and from its directory. Where a Kafka has no
topic ids, as before 2.8, all that a job can say is that it has not checked them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compat.kafka import CLUSTER_ID, Kafka
from compat.old_kafka import OldKafka
from compat.report import Report
from compat.spark_drivers import spark_drivers
from tailrace import Admin, Producer
from tailrace.client.admin import NewTopic
from tailrace.model import TopicPartition
from tailrace.spark.folder import open_folder
from tailrace.spark.jobs.archive import FORMAT
from tailrace.spark.jobs.manifest import Manifest
from tailrace.spark.jobs.topics import SOURCES
from tailrace.storage.checkpoints import format_topic_id
from tests.kills.drivers import Drivers
from tests.kills.logs import write_logs

TOPIC = "again"
UNCHECKED = "whether of this topic is not checked: the log does not tell its topic id"


def check(report: Report, kafka: Kafka) -> None:
    """Archive, replay into and create again a topic of a Kafka with topic ids."""
    with spark_drivers() as (drivers, folder), kafka:
        jobs = _Jobs(drivers, folder, kafka.bootstrap_servers)
        first = _make(kafka.bootstrap_servers, 100)
        report.check(
            "a topic is archived from the broker, and then from its directory without a warning",
            [
                *_faults("from the broker", jobs.archive(), None),
                *_faults("from the directory", jobs.archive_directory(kafka.logs), None),
                *_faults("identity", jobs.noted(), {"topic_id": first, "cluster_id": CLUSTER_ID}),
                *_faults("rows", jobs.rows(), 100),
                *(each for each in drivers.running().errors().splitlines() if UNCHECKED in each),
            ],
        )
        with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            admin.delete_records({TopicPartition(TOPIC, 0): 60}).results()
        report.check(
            "an archive that begins after records were deleted says how many",
            [
                *_faults("outcome", jobs.archive("late"), None),
                *_says(
                    drivers, f"{TOPIC}-0 was to be read from offset 0 on, and its log begins at"
                ),
            ],
        )
        report.check("a topic is the target of a replay", _faults("outcome", jobs.replay(), None))
        second = _make(kafka.bootstrap_servers, 300)
        told = (
            f"the archive has records of topic {first} of cluster {CLUSTER_ID}, and this is topic "
            f"{second} of cluster {CLUSTER_ID}"
        )
        report.check(
            "the topic is created again: jobs refuse it, and name both",
            [
                *_has("from the broker", jobs.archive(), told),
                *_has("from the directory", jobs.archive_directory(kafka.logs), told),
                *_has(
                    "replay", jobs.replay(), f"the replay has written to this name of topic {first}"
                ),
                *_faults("another archive", jobs.archive("another"), None),
                *_faults("its rows", jobs.rows("another"), 300),
            ],
        )


def check_without_ids(report: Report, kafka: OldKafka) -> None:
    """The same with a Kafka that has no topic ids: jobs run, and say what they do not check."""
    with spark_drivers() as (drivers, folder), kafka:
        jobs = _Jobs(drivers, folder, kafka.bootstrap_servers)
        _make(kafka.bootstrap_servers, 100)
        first = jobs.archive()
        before = len(drivers.running().errors())
        report.check(
            "without topic ids a topic is archived and is the target of a replay, with a warning",
            [
                *_faults("first", first, None),
                *_faults("second", jobs.archive(), None),
                *_faults("topic id", (jobs.noted() or {}).get("topic_id"), None),
                *_says(drivers, UNCHECKED, since=before),
                *_faults("replay", jobs.replay(), None),
                *_faults("replay again", jobs.replay(), None),
                *_says(drivers, f"{TOPIC}: the replay has written to this name, and {UNCHECKED}"),
            ],
        )


class _Jobs:
    """Runs of jobs over one topic."""

    def __init__(self, drivers: Drivers, folder: Path, bootstrap: str) -> None:
        self._drivers = drivers
        self._folder = folder
        self._where = {"bootstrap": bootstrap, "topic": TOPIC}
        write_logs(folder / "data", limit=20)

    def archive(self, name: str = "lake") -> object:
        """The error of an archive of the broker's topic, or None."""
        return self._run("archive topic", **self._where, lake=self._folder / name)

    def archive_directory(self, logs: Path) -> object:
        """The same from a directory."""
        lake = self._folder / "lake"
        return self._run("archive directory", data=logs, topic=TOPIC, lake=lake)

    def replay(self) -> object:
        """The error of a replay into the topic, or None."""
        data, moved = self._folder / "data", self._folder / "moved"
        return self._run("replay", **self._where, data=data, offset_map=moved)

    def noted(self) -> Mapping[str, str] | None:
        """The identity in the manifest."""
        found: dict[str, Any] = self._manifest("lake").settings.get(SOURCES, {})
        return found.get(TOPIC)

    def rows(self, name: str = "lake") -> int:
        """The rows of an archive by its manifest."""
        return sum(each["rows"] for each in self._manifest(name).entries)

    def _manifest(self, name: str) -> Manifest:
        return Manifest.open(open_folder(str(self._folder / name)), form=FORMAT)

    def _run(self, name: str, **arguments: object) -> object:
        return self._drivers.run("ending", name=name, **arguments)


def _make(bootstrap: str, count: int) -> str:
    """Create the topic with so many records, in place of what is there; returns its id."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        if TOPIC in {each.name for each in admin.list_topics()}:
            admin.delete_topics([TOPIC]).results()
        new = NewTopic(TOPIC, 1, configs={"retention.ms": "-1"})
        topic_id = admin.create_topics([new]).result(TOPIC).topic_id
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(count):
            producer.send(TOPIC, b"%d" % number)
    return "" if topic_id is None else format_topic_id(topic_id)


def _faults(what: str, found: object, expected: object) -> list[str]:
    return [] if found == expected else [f"{what}: {found!r}, not {expected!r}"]


def _has(what: str, found: object, expected: str) -> list[str]:
    return [] if expected in str(found) else [f"{what}: {found!r} does not say {expected!r}"]


def _says(drivers: Drivers, expected: str, *, since: int = 0) -> list[str]:
    text = drivers.running().errors()[since:]
    return [] if expected in text else [f"no warning says {expected!r}"]
