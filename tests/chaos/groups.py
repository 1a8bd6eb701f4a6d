"""Groups of consumers and transactions while broker and clients are killed, paused and cut off.

    python -m tests.chaos.groups --seconds 60 [--seed N] [--kafka | --cluster] [--java]

Idempotent producers of four makers write a topic that groups of four makers read, and with `--java`
Kafka's own consumer in each of them; where the broker
has transactions, transactional producers write it too, and transformers write another topic from it
exactly once. The members of one more group commit late (`zombies`). Meanwhile the broker is killed,
stopped, paused and started again, its time of day jumps, its connections are disturbed, and clients
are killed, paused, replaced and told to leave. With `--cluster` there are three brokers under a
controller of Kafka (`cluster`), which needs Java and Maven, and otherwise one (`one_broker`).
Then all is healed, the topics are read to their ends, and each group has to come to the end too.

Every client writes a history of its own; `tests/histories/anomalies` says what none of them may
show. Prints figures and the seed; with an anomaly it exits with 1 and leaves the histories in a
folder. The seed gives the same plan of disturbances; processes take their own time. Loopback only;
with `--kafka` against Apache Kafka 4.3.1, where Java and Maven are there.
"""

import argparse
import logging
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tailrace.client.admin import Admin, NewTopic
from tailrace.client.reader import ClusterReader
from tailrace.errors import FatalError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.chaos.fleet import Berth, Fleet
from tests.chaos.life import EVENTS, RESULTS, Plan, Role, named
from tests.chaos.one_broker import one_broker
from tests.histories.anomalies import Anomaly, Report, find_anomalies
from tests.histories.history import (
    Assign,
    Outcome,
    Poll,
    ReadToEnd,
    Record,
    Recorder,
    read_histories,
)

PARTITION_COUNT: Final = 3
_TOPICS: Final = (EVENTS, RESULTS)
_END_SECONDS_MAX: Final = 120
"""For how long a read to the ends may take, and for how long a group may commit nothing more."""

_START_SECONDS_MAX: Final = 60

_PROGRESS_SECONDS: Final = 10
"""The time between two lines with the lag of a group that the run waits for."""

_SECONDS_PER_GIVING_UP: Final = 30
"""A run of so many seconds may have one more client that gives up on an answer of the broker
(`consuming.records_of`)."""

_GROUPS: Final = {
    "mixed": ("confluent-range", "kafka-python", "aiokafka", "ours-range"),
    "cooperative": ("confluent-cooperative", "confluent-cooperative", "ours-cooperative"),
    "next-generation": (
        "confluent-consumer",
        "confluent-consumer",
        "ours-consumer",
        "ours-consumer-async",
    ),
}
"""Groups of consumers, and the client of each member."""

_JAVA: Final = {
    "mixed": "java-range",
    "cooperative": "java-cooperative",
    "next-generation": "java-consumer",
}
"""The further member of each group with `--java`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a run."""

    report: Report
    faults: list[str]
    """Sentences about what did not come to its end."""
    counts: Counter[str]
    """Disturbances of broker and clients, by kind."""


def _served(bootstrap: str) -> frozenset[int]:
    """The APIs that the broker offers."""
    request = ApiVersionsRequest(client_software_name="tailrace-chaos", client_software_version="1")
    with closing(ClusterReader(bootstrap)) as cluster:
        answer = cluster.any_broker().request(request, ApiVersionsResponse)
    return frozenset(each.api_key for each in answer.api_keys)


def _plans(
    apis: frozenset[int],
    bootstrap: str,
    folder: Path,
    *,
    seed: int,
    timeout_ms: int,
    has_java: bool,
) -> list[Plan]:
    """A plan for each client; what the broker does not serve is left out."""
    wanted: list[tuple[Role, str, str, bool]] = [
        *(
            (Role.PRODUCER, each, "", False)
            for each in ("confluent", "kafka-python", "aiokafka", "ours")
        ),
        *(
            (Role.CONSUMER, client, group, group != "mixed")
            for group, clients in _GROUPS.items()
            if group != "next-generation" or ApiKey.CONSUMER_GROUP_HEARTBEAT in apis
            for client in (*clients, *([_JAVA[group]] if has_java else []))
        ),
        (Role.ZOMBIE, "ours", "zombies", False),
        (Role.WATCHER, "confluent", "", False),
    ]
    if ApiKey.END_TXN in apis:
        wanted += [(Role.TRANSACTIONAL, "confluent", "", False)]
        wanted += [(Role.TRANSFORMER, "confluent", "transformers", True)] * 2
    return [
        Plan(
            process="",
            role=role.value,
            client=client,
            name=f"{group or role.value}-{client}-{index}",
            group=group,
            is_committed=is_committed,
            bootstrap=bootstrap,
            folder=str(folder),
            seed=seed,
            partition_count=PARTITION_COUNT,
            timeout_ms=timeout_ms,
        )
        for index, (role, client, group, is_committed) in enumerate(wanted)
    ]


class Site(Protocol):
    """The brokers of a run, and what happens to them."""

    replication_factor: int
    """Replicas of each partition."""
    bootstrap: str
    counts: Counter[str]
    """Disturbances, by kind."""

    def disturb(self, fleet: Fleet, chance: Random, until: float) -> list[str]:
        """Disturb brokers and clients until the monotonic time is over, then heal; the faults."""
        ...

    def end(self) -> list[str]:
        """Look at what the brokers leave, when all clients are gone; the faults."""
        ...


def run(
    seconds: float,
    seed: int,
    folder: Path,
    *,
    is_kafka: bool = False,
    is_cluster: bool = False,
    has_java: bool = False,
) -> Result:
    """Disturb for some seconds, and check the histories, which are left in the folder.

    Raises:
        FatalError: Java or Maven is missing, or a broker does not start; it says what to do.
    """
    java: list[str] = []
    if has_java:
        # Its harness is imported only where it is wanted: it needs what Spark needs.
        from tests.chaos.java import compile_member

        java = compile_member(folder)
    # A cluster has the session of a broker and an election between a fault and its end.
    timeout_ms = 3000 if is_kafka else 2000 if is_cluster else 1000
    chance = Random(seed)
    histories = folder / "histories"
    histories.mkdir()
    with _site(folder, timeout_ms, is_kafka=is_kafka, is_cluster=is_cluster) as site:
        bootstrap = site.bootstrap
        _create_topics(site)
        plans = _plans(
            _served(bootstrap),
            bootstrap,
            histories,
            seed=seed,
            timeout_ms=timeout_ms,
            has_java=has_java,
        )
        berths = [
            Berth(each, folder, command=java)
            if each.client.startswith("java")
            else Berth(each, folder)
            for each in plans
        ]
        fleet = Fleet(berths, chance)
        try:
            fleet.start()
            faults = site.disturb(fleet, chance, time.monotonic() + seconds)
            faults += _come_to_the_end(fleet, bootstrap, histories, timeout_ms=timeout_ms)
        finally:
            fleet.kill()
        faults += site.end()
    gave_up = fleet.gave_up()
    faults += fleet.crashed()
    if not is_cluster:  # There groups move to another coordinator with each trouble of theirs.
        faults += faults_of_giving_up(gave_up, seconds, is_kafka=is_kafka)
    counts = site.counts + fleet.counts
    counts.update({f"clients replaced that gave up on {name}": n for name, n in gave_up.items()})
    report = find_anomalies(read_histories(histories))
    return Result(report=report, faults=faults, counts=counts)


def _create_topics(site: Site) -> None:
    left = {name: NewTopic(name, PARTITION_COUNT, site.replication_factor) for name in _TOPICS}
    deadline = time.monotonic() + _START_SECONDS_MAX
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        while left:
            outcomes = admin.create_topics(left.values())
            left = {name: left[name] for name in outcomes.errors}
            # A broker serves before the controllers take it for one that can have replicas.
            if left and time.monotonic() > deadline:
                outcomes.results()


def _site(
    folder: Path, timeout_ms: int, *, is_kafka: bool, is_cluster: bool
) -> AbstractContextManager[Site]:
    if is_cluster:
        # Only here: it needs what Spark needs to find Java.
        from tests.chaos.cluster import three_brokers

        return three_brokers(folder, timeout_ms=timeout_ms)
    return one_broker(folder, is_kafka=is_kafka, timeout_ms=timeout_ms)


def faults_of_giving_up(gave_up: Counter[str], seconds: float, *, is_kafka: bool) -> list[str]:
    """The faults in why clients have given up, and how often.

    Our broker coordinates every group, so it never says that another one does. Apache Kafka does
    for some 50 ms before each orderly stop and after each start. Errors that librdkafka finds by
    itself (`_TRANSPORT`, `_TIMED_OUT_QUEUE`) are no fault of the broker: kills and pauses make
    them, the more the slower the machine is.
    """
    limit = 2 + int(seconds / _SECONDS_PER_GIVING_UP)
    faults = []
    answered = {name: count for name, count in gave_up.items() if not name.startswith("_")}
    if sum(answered.values()) > limit:
        faults.append(f"more than {limit} clients gave up on an answer of the broker: {answered}")
    if gave_up["NOT_COORDINATOR"] and not is_kafka:
        faults.append(
            f"{gave_up['NOT_COORDINATOR']} OffsetFetch requests were answered with NOT_COORDINATOR"
            " by the only broker"
        )
    return faults


def _come_to_the_end(
    fleet: Fleet, bootstrap: str, histories: Path, *, timeout_ms: int
) -> list[str]:
    """Stop writing, read everything, and wait for the groups; what has not come to its end."""
    within_s = 20 * timeout_ms / 1000
    fleet.revive(*Role)
    fleet.end(Role.PRODUCER, Role.TRANSACTIONAL, within_s=within_s)
    faults: list[str] = []
    try:
        ends = read_to_end(bootstrap, histories, [EVENTS], is_committed=True)
        readers = {Role.CONSUMER.value, Role.TRANSFORMER.value}
        groups = sorted({each.plan.group for each in fleet.berths if each.plan.role in readers})
        faults += [each for group in groups for each in _lagging(fleet, bootstrap, group, ends)]
        fleet.end(*Role, within_s=within_s)
        read_to_end(bootstrap, histories, [RESULTS], is_committed=True)
        read_to_end(bootstrap, histories, [*_TOPICS], is_committed=False)
    except TimeoutError as error:
        faults.append(str(error))
    return faults


def read_to_end(
    bootstrap: str, histories: Path, topics: list[str], *, is_committed: bool
) -> dict[int, int]:
    """Read topics from beginning to end; the offsets behind the last records of the first one.

    A committed reader waits for the ends of all transactions.

    Raises:
        TimeoutError: they were not read in time.
    """
    name = f"reader-{'-'.join(topics)}-{'un' * (not is_committed)}committed"
    recorder = Recorder(histories / f"{name}.history")
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(
        settings | {"isolation.level": "read_committed" if is_committed else "read_uncommitted"}
    )
    wanted = {(topic, number) for topic in topics for number in range(PARTITION_COUNT)}
    partitions = tuple(named(*each) for each in sorted(wanted))
    recorder.note(Assign(added=partitions))
    read = recorder.begin(ReadToEnd(partitions=partitions, is_committed=is_committed))
    behind = dict.fromkeys(range(PARTITION_COUNT), 0)
    deadline = time.monotonic() + _END_SECONDS_MAX
    try:
        limits = _ends(bootstrap, wanted, deadline)
        consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in sorted(wanted)])
        left = {each for each, limit in limits.items() if limit > 0}
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} has not read {left} within {_END_SECONDS_MAX} s")
            records = []
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                place = message.topic(), message.partition()
                if error is None:
                    value = message.value().decode()
                    records.append(Record(named(*place), message.offset(), value))
                    if message.topic() == topics[0]:
                        behind[message.partition()] = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF and (
                    message.offset() >= limits[place]
                ):
                    left.discard(place)
            if records:
                recorder.note(Poll(records=tuple(records), is_committed=is_committed))
    finally:
        consumer.close()
    recorder.end(read, Outcome.OK)
    return behind


def _ends(
    bootstrap: str, wanted: set[tuple[str, int]], deadline: float
) -> dict[tuple[str, int], int]:
    """The high watermarks of partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        while True:
            try:
                return {
                    each: consumer.get_watermark_offsets(TopicPartition(*each), timeout=5)[1]
                    for each in wanted
                }
            except KafkaException:
                if time.monotonic() > deadline:
                    raise TimeoutError("the ends of the topics cannot be read") from None
    finally:
        consumer.close()


def _lagging(fleet: Fleet, bootstrap: str, group: str, ends: dict[int, int]) -> list[str]:
    """Wait until a group has committed the ends of the topic; a fault if it stands still before."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    wanted = [TopicPartition(EVENTS, number) for number in ends]
    pause = threading.Event()
    committed: dict[int, int] = {}
    told_at = time.monotonic()
    deadline = time.monotonic() + _END_SECONDS_MAX
    try:
        while time.monotonic() < deadline:
            with suppress(KafkaException):
                found = {
                    each.partition: each.offset for each in consumer.committed(wanted, timeout=5)
                }
                if all(found[number] >= end for number, end in ends.items() if end):
                    return []
                behind = sum(max(0, end - max(found[each], 0)) for each, end in ends.items())
                if time.monotonic() > told_at + _PROGRESS_SECONDS:
                    told_at = time.monotonic()
                    print(f"group {group}: {behind} records behind the end", flush=True)
                if found != committed:
                    # A loaded machine may have left a long way; only a group that stops is stuck.
                    committed = found
                    deadline = time.monotonic() + _END_SECONDS_MAX
            fleet.revive(Role.CONSUMER, Role.TRANSFORMER)
            pause.wait(0.2)
    finally:
        consumer.close()
    still = f"nothing more within {_END_SECONDS_MAX} s"
    return [f"group {group} has committed {committed}, not the ends {ends}, and {still}"]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tests.chaos.groups")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=Random().randrange(1 << 30))
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--kafka", action="store_true", help="Apache Kafka instead of our broker")
    which.add_argument("--cluster", action="store_true", help="three brokers of ours, replicated")
    parser.add_argument("--java", action="store_true", help="members with Kafka's client too")
    given = parser.parse_args()
    logging.getLogger("tailrace").setLevel(logging.CRITICAL)
    print(f"groups: seed {given.seed}, {given.seconds:g} s", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="tailrace-groups-"))
    try:
        result = run(
            given.seconds,
            given.seed,
            folder,
            is_kafka=given.kafka,
            is_cluster=given.cluster,
            has_java=given.java,
        )
    except FatalError as error:
        sys.exit(f"chaos: {error}")
    anomalies: tuple[Anomaly, ...] = result.report.anomalies
    for figures in (result.counts, result.report.figures):
        print(", ".join(f"{name} {count}" for name, count in sorted(figures.items())))
    for fault in result.faults:
        print(f"broken: {fault}")
    for anomaly in anomalies[:20]:
        print(anomaly)
    kinds = Counter(each.kind.value for each in anomalies)
    print(f"anomalies {len(anomalies)} {dict(kinds) or ''}")
    if anomalies or result.faults:
        options = " --kafka" * given.kafka + " --cluster" * given.cluster + " --java" * given.java
        print(
            f"the histories are in {folder / 'histories'}; to repeat: python -m tests.chaos.groups "
            f"--seconds {given.seconds:g} --seed {given.seed}{options}"
        )
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
