"""Checks partitions over several directories, by Kafka and us in turn, and an added directory.

1  Kafka writes to two directories, and stops
2  our storage opens both; our broker serves both and a third one, which it makes, and goes on
3  Kafka opens all three, reads everything, and puts a topic into the third
4  our storage opens all three

`check_apart` has the metadata log in a directory of its own, which is none of log.dirs.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from compat import clients, ours
from compat.bytewise import partition_folders, read_differences
from compat.clients import ReadBack, Sender
from compat.kafka import NODE_ID, Kafka
from compat.report import Report
from compat.topics import LATER, PLACED, configure, create_topics
from tailrace.client.admin import Admin
from tailrace.offline.handover import Effect, plan_handover, server_properties
from tailrace.runtime.files import DiskFiles
from tailrace.storage import names

PARTITION_COUNT = 3
RECORD_COUNT = 400
"""Records for each partition in each step."""

_TOPICS = {**PLACED, **LATER}


def check(report: Report, kafka: Kafka, scratch: Path) -> None:
    """The whole way, with `kafka` on a directory of its own, which is the first."""
    two = [kafka.logs, scratch / "placed-second"]
    three = [*two, scratch / "placed-third"]
    kafka.settings["log.dirs"] = _comma_separated(two)
    with kafka:
        create_topics(kafka.bootstrap_servers, PLACED, partition_count=PARTITION_COUNT)
        senders = [_produce(kafka.bootstrap_servers, PLACED)]
        expected = _read(kafka.bootstrap_servers, PLACED)
    identities, folders = _identities(two), _folders(two)
    _check_opening(report, two, expected, "over two directories of Kafka's")
    with ours.serving(*three) as servers:
        configure(servers, PLACED)
        served = _read(servers, PLACED)
        senders.append(_produce(servers, PLACED))
        went_on = _read(servers, PLACED)
    report.check(
        "our broker on two directories of Kafka's serves what Kafka's consumer read",
        list(_differences(served, expected)),
    )
    report.check(
        "our broker leaves Kafka's partitions in the directories where they were",
        list(_changed(folders, _folders(two))),
    )
    report.check(
        "our broker keeps Kafka's meta.properties and directory ids",
        list(_changed(identities, _identities(two))),
    )
    identities = _identities(three)
    kafka.settings["log.dirs"] = _comma_separated(three)
    with kafka:
        read = _read(kafka.bootstrap_servers, PLACED)
        create_topics(kafka.bootstrap_servers, LATER, partition_count=PARTITION_COUNT)
        senders.append(_produce(kafka.bootstrap_servers, LATER))
        expected = _read(kafka.bootstrap_servers, _TOPICS)
        printed = kafka.printed()
    report.check(
        "Kafka on three directories, one of them made by us, reads what our broker served",
        list(_differences(read, went_on)),
    )
    report.check(
        "all that either broker acknowledged over several directories is there in the end",
        list(_lost([each for one in senders for each in one.acknowledged], expected)),
    )
    report.check(
        "neither broker refuses what an idempotent producer sends to several partitions",
        [each for one in senders for each in one.refused],
    )
    report.check(
        "Kafka keeps the meta.properties and directory ids that we left and made",
        list(_changed(identities, _identities(three))),
    )
    report.check(
        "Kafka leaves the partitions in the directories where they were",
        list(_changed(folders, _folders(two))),
    )
    in_third = partition_folders(three[2], LATER)
    report.check(
        "Kafka puts new partitions into the directory that we made",
        [] if in_third else ["none is there"],
    )
    report.check(
        "Kafka finds no directory offline and no partition stray",
        [line for line in printed if "stray" in line.lower() or "offline" in line.lower()],
    )
    _check_opening(report, three, expected, "over three directories, one of them made by us,")


def check_apart(report: Report, kafka: Kafka) -> None:
    """From Kafka to our broker and back, with `kafka` on new directories, formatted by its tool."""
    apart = kafka.directory / "metadata"
    both = [kafka.logs, apart]
    kafka.settings["metadata.log.dir"] = str(apart)
    with kafka:
        create_topics(kafka.bootstrap_servers, PLACED, partition_count=PARTITION_COUNT)
        senders = [_produce(kafka.bootstrap_servers, PLACED)]
        expected = _read(kafka.bootstrap_servers, PLACED)
    identities = _identities(both)
    with ours.serving(kafka.logs, settings={"metadata.log.dir": str(apart)}) as servers:
        served = _read(servers, PLACED)
        senders.append(_produce(servers, PLACED))
        with Admin(bootstrap_servers=servers) as admin:
            directories = admin.describe_log_dirs().results()[NODE_ID]
    report.check(
        "our broker with the metadata log in a directory apart serves what Kafka's consumer read",
        list(_differences(served, expected)),
    )
    report.check(
        "our broker puts no logs there, and tells clients of log.dirs alone",
        [each for each in directories if each != str(kafka.logs)]
        + [f"{apart.name}/{each}" for each in partition_folders(apart, PLACED)],
    )
    found = plan_handover(DiskFiles(), [str(each) for each in both])
    settings = server_properties(found)
    report.check(
        "handover is ready and names the directory of the metadata log",
        [note.sentence for note in found.notes if note.effect is Effect.HINDERS]
        + [each for each in (f"metadata.log.dir={apart}", f"log.dirs={kafka.logs}")
           if each not in [f"{name}={value}" for name, value in settings.items()]],
    )  # fmt: skip
    with kafka:
        read = _read(kafka.bootstrap_servers, PLACED)
        printed = kafka.printed()
    report.check(
        "Kafka has all that was acknowledged, with the metadata log in a directory apart",
        list(_lost([each for one in senders for each in one.acknowledged], read)),
    )
    report.check(
        "Kafka finds no partition stray after a turn of our broker with it",
        [line for line in printed if "stray" in line.lower() or "offline" in line.lower()],
    )
    report.check(
        "both brokers keep the meta.properties of the directory apart",
        list(_changed(identities, _identities(both))),
    )


def _check_opening(
    report: Report, paths: Sequence[Path], expected: Mapping[tuple[str, int], ReadBack], where: str
) -> None:
    with ours.opened(*paths, topics=_TOPICS) as logs:
        found = {
            (topic, partition): ours.read_log(
                ours.log_of(logs, topic, partition), is_committed=False
            )
            for topic, partition in expected
        }
    report.check(
        f"partitions {where} read the same to us as to Kafka's consumer",
        list(_differences(found, expected)),
    )
    for path in paths:
        report.check(f"{path.name} {where} passes tailrace log verify", ours.verify(path))


def _produce(bootstrap_servers: str, topics: Mapping[str, object]) -> Sender:
    sender = Sender(bootstrap_servers, codec="lz4")
    for number in range(RECORD_COUNT):
        for topic in topics:
            for partition in range(PARTITION_COUNT):
                sender.send(topic, b"%d of %d" % (number, partition), partition=partition)
    sender.flush()
    return sender


def _read(bootstrap_servers: str, topics: Mapping[str, object]) -> dict[tuple[str, int], ReadBack]:
    places = [(topic, partition) for topic in topics for partition in range(PARTITION_COUNT)]
    return clients.read_partitions(bootstrap_servers, places, is_committed=False)


def _differences(
    mine: Mapping[tuple[str, int], ReadBack], theirs: Mapping[tuple[str, int], ReadBack]
) -> Iterator[str]:
    for place, read in theirs.items():
        for each in read_differences(mine[place], read):
            yield f"{place}: {each}"


def _lost(
    acknowledged: Sequence[clients.Acknowledged], read: Mapping[tuple[str, int], ReadBack]
) -> Iterator[str]:
    for (topic, partition), found in read.items():
        wanted = [each for each in acknowledged if each[:2] == (topic, partition)]
        yield from clients.lost(wanted, found)


def _identities(paths: Sequence[Path]) -> dict[str, str]:
    """Read `meta.properties` of each directory without the comments, which have the time."""
    return {
        path.name: "\n".join(
            sorted(
                line
                for line in (path / names.META_PROPERTIES).read_text().splitlines()
                if not line.startswith("#")
            )
        )
        for path in paths
    }


def _folders(paths: Sequence[Path]) -> dict[str, str]:
    found = {path.name: " ".join(partition_folders(path, PLACED)) for path in paths}
    assert all(found.values()), found
    return found


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for path, text in before.items():
        if after[path] != text:
            yield f"{path}: {text!r} before and {after[path]!r} after"


def _comma_separated(paths: Sequence[Path]) -> str:
    return ",".join(map(str, paths))
