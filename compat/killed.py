"""Our broker is killed while clients produce: Kafka and we recover the same from what it leaves.

Kafka has made the topics before, so that its metadata knows them. Some logs are torn on top of it:

    half-written  the first bytes of one more batch stand behind the last one
    padded        zeros behind the last batch, as a machine leaves that lost power
"""

import signal
from collections.abc import Mapping
from pathlib import Path

from compat import clients, ours
from compat.bytewise import (
    copy_directory,
    differences,
    epoch_differences,
    read_differences,
    snapshot_differences,
)
from compat.clients import Sender
from compat.kafka import Kafka
from compat.report import Report
from compat.topics import CODECS, configure, create_topics
from compat.topics import TOPICS as ALL
from tailrace.records.batch import read_batches
from tailrace.storage import names

TOPICS: Mapping[str, Mapping[str, str]] = {
    name: ALL[name] for name in (*(f"codec-{codec}" for codec in CODECS), "idempotent", "torn")
}
HALF_WRITTEN = "torn"
PADDED = "idempotent"
ACKNOWLEDGED_MIN = 2500
"""Records of one topic when the broker is killed: several segments."""

_KINDS: Mapping[str, tuple[str, ...]] = {
    "logs": (names.LOG_SUFFIX,),
    "offset and time indexes": (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX),
}


def check(report: Report, kafka: Kafka, scratch: Path) -> None:
    """Kill our broker on the directory of `kafka`, which is new, and have both recover it."""
    with kafka:
        create_topics(kafka.bootstrap_servers, TOPICS)
    senders = _produce_and_kill(kafka.logs)
    _tear(kafka.logs)
    mine = copy_directory(kafka.logs, scratch / "killed-ours")
    with kafka:
        places = [(topic, 0) for topic in TOPICS]
        read = clients.read_partitions(kafka.bootstrap_servers, places, is_committed=False)
    for topic, sender in senders.items():
        report.check(
            f"all that our broker had acknowledged of {topic} before it was killed, Kafka reads",
            list(clients.lost(sender.acknowledged, read[topic, 0])),
        )
    with ours.opened(mine) as logs:
        for topic in TOPICS:
            found = ours.read_log(ours.log_of(logs, topic), is_committed=False)
            report.check(
                f"{topic} after our kill reads the same to us as to Kafka",
                read_differences(found, read[topic, 0]),
            )
    for what, suffixes in _KINDS.items():
        report.check(
            f"a directory after our kill has {what} recovered by us as by Kafka",
            differences(kafka.logs, mine, suffixes=suffixes, topics=TOPICS),
        )
    report.check(
        "a directory after our kill has producer snapshots recovered by us as by Kafka",
        snapshot_differences(kafka.logs, mine, topics=TOPICS),
    )
    report.check(
        "a directory after our kill has leader epochs recovered by us as by Kafka",
        list(epoch_differences(mine, kafka.logs, topics=TOPICS)),
        explained="which adds the one that it leads with",
    )
    report.check("what we have recovered after our kill passes verify", ours.verify(mine))


def _produce_and_kill(logs: Path) -> dict[str, Sender]:
    with ours.serving(logs, ending=signal.SIGKILL) as servers:
        configure(servers, TOPICS)
        senders = {
            topic: Sender(servers, codec=topic.removeprefix("codec-") if "-" in topic else "none")
            for topic in TOPICS
        }
        number = 0
        while min(len(each.acknowledged) for each in senders.values()) < ACKNOWLEDGED_MIN:
            for _ in range(100):
                for topic, sender in senders.items():
                    sender.send(topic, b"%s %d %s" % (topic.encode(), number, bytes(number % 90)))
                number += 1
            for sender in senders.values():
                sender.poll()
        for topic, sender in senders.items():
            for each in range(number, number + 500):
                sender.send(topic, b"%s %d" % (topic.encode(), each))
    for sender in senders.values():
        sender.give_up()
    return senders


def _tear(logs: Path) -> None:
    active = max((logs / f"{HALF_WRITTEN}-0").glob("*.log"))
    data = active.read_bytes()
    *_, (_, last) = read_batches(memoryview(data))
    again = bytearray(last.view)
    again[:8] = last.next_offset.to_bytes(8, "big")
    active.write_bytes(data + again[:-20])
    padded = max((logs / f"{PADDED}-0").glob("*.log"))
    padded.write_bytes(padded.read_bytes() + bytes(5000))
