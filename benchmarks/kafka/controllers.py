"""Controllers, Tailrace's and Kafka's in turn: elections, starts, new topics, and rest.

The brokers are the same on both sides, and only the controller differs. Where partitions are many
they have no logs (`scripted`); new topics and rest are measured with three brokers of Tailrace.

    elections   a broker of 10,000 partitions with three replicas is fenced: all of them change, and
                a third elects. Counted is what an observer of the metadata log sees, which is when
                the other brokers can act. The controllers start again in each round: a broker dies
                seldom, so the first time counts as well as a later one, when the JVM has compiled
                it. Also the whole of a death by silence, in which the session of 9 s is both times.
    start       from the start of the process until a broker is registered, which only an active
                controller does, on copies of one log with 100,000 partitions
    snapshots   decisions, one after the other, while a snapshot of these is written
    topics      with 100 in a request, and one by one, through a broker
    rest        CPU with 2,000 partitions and three brokers that have nothing to do

Both put decisions on the device before anybody sees them. Kafka's has the Java options of its own
start scripts, and both have Kafka's default settings.
"""

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka.brokers import compare
from benchmarks.kafka.clusters import CLUSTER_SETTINGS, IDS, Cluster
from benchmarks.kafka.peer import Peer
from benchmarks.kafka.scripted import (
    Brokers,
    Channel,
    Seen,
    create_topics,
    delete_topics,
    log_end,
    observe,
    registration,
)
from benchmarks.measure import (
    Bench,
    Cost,
    Figure,
    cost_of,
    cpu_seconds,
    interleave,
    resident_bytes,
    wait_until_idle,
)
from compat.brokers import OurBroker, OurController
from compat.controllers import CONTROLLER_ID, controller_alone
from compat.kafka import CLUSTER_ID, Kafka
from compat.processes import free_ports
from tailrace.client.nodes import Node
from tailrace.cluster.metadata.batches import decoded_records
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tailrace.records.batch import read_batches

T = TypeVar("T")

KINDS = ("ours", "kafka")
SESSION_MS = 9_000
"""Kafka's default."""
DYING = IDS[0]

ELECTION_TOPICS = 100
ELECTION_PARTITIONS = 100
"""In each of the topics."""
WARM_AFTER = 2
"""Fencings after the first one of a process, before the one that counts as a later one."""
ELECTION_AIM = 0.7

START_TOPICS = 1_000
START_PARTITIONS = 100
START_AIM = 0.5
NO_FENCING = MappingProxyType({"broker.session.timeout.ms": "600000"})
"""For starts with partitions whose brokers are not there any more."""
ASK_SECONDS = 0.005
"""Between two attempts to be registered by a controller that starts."""
START_SECONDS_MAX = 120
SNAPSHOT_MS = 3_000
"""Age of the state at which a snapshot is written: some seconds after a start."""
DECISIONS = 20
"""Between two looks for the snapshot."""

REST_PARTITIONS = 2_000
REST_SECONDS = 10
REST_AIM = 0.5

TOGETHER = 100
REQUESTS = 3
ONE_BY_ONE = 50
TOPICS_AIM = 1.0


class Controller(NamedTuple):
    """A controller of either kind."""

    process: OurController | Kafka
    node: Node


def _controller(
    kind: str, peer: Peer, directory: Path, *, settings: Mapping[str, str] = MappingProxyType({})
) -> Controller:
    """A controller that does not run yet, on a directory that may be of either kind."""
    chosen = {"broker.session.timeout.ms": str(SESSION_MS), **settings}
    if kind == "kafka":
        kafka = peer.kafka(directory)
        node = controller_alone(kafka)
        kafka.settings |= chosen
        return Controller(kafka, node)
    [port] = free_ports(1)
    node = Node(CONTROLLER_ID, "127.0.0.1", port)
    ours = OurController(
        CONTROLLER_ID,
        directory,
        address=f"{node.host}:{port}",
        cluster_id=CLUSTER_ID,
        # As Kafka's has it here: in the settings, so that a copy may listen on another port.
        settings={
            "controller.quorum.bootstrap.servers": "",
            "controller.quorum.voters": f"{CONTROLLER_ID}@{node.host}:{port}",
            **chosen,
        },
    )
    return Controller(ours, node)


# -- elections ------------------------------------------------------------------------------------


class Elections(NamedTuple):
    """One round."""

    first: Cost
    """The first fencing of a process, from the request until all changes are seen."""
    later: Cost
    silence_seconds: float
    """From the last heartbeat until all changes are seen."""
    silence_cpu_seconds: float
    resident_mb: float


def measure_elections(bench: Bench, peer: Peer) -> list[Figure]:
    """Time and CPU until all partitions of a broker have changed, and the controller's memory."""
    topics = bench.scaled(ELECTION_TOPICS, quick=2)
    total = topics * ELECTION_PARTITIONS
    with ExitStack() as stack:
        bench.say(f"elections: {total:,} partitions of brokers without logs")
        contenders: dict[str, Callable[[], Elections]] = {}
        for kind in KINDS:
            controller = _controller(kind, peer, bench.directory / kind)
            stack.callback(controller.process.kill)
            controller.process.start()
            brokers = stack.enter_context(Brokers(controller.node, IDS))
            names = [f"topic-{number}" for number in range(topics)]
            with Channel(controller.node) as channel:
                _create(channel, names)
            contenders[kind] = partial(_elect, controller, brokers, names)
        found = interleave(bench, contenders)
    name = f"{total:,} partitions"
    return [
        compare(
            f"{name}: a broker is fenced, until the last change is observed, first time", "ms",
            found, lambda one: one.first.seconds * 1e3, aim=ELECTION_AIM,
        ),
        compare(
            f"{name}: the same, later", "ms", found, lambda one: one.later.seconds * 1e3,
            aim=ELECTION_AIM,
        ),
        compare(
            f"{name}: the same, CPU of the controller, first time", "ms", found,
            lambda one: one.first.cpu_seconds * 1e3,
        ),
        compare(
            f"{name}: the same, CPU of the controller, later", "ms", found,
            lambda one: one.later.cpu_seconds * 1e3,
        ),
        compare(
            f"{name}: a broker's last heartbeat, until the last change is observed, "
            f"session of {SESSION_MS / 1e3:.0f} s", "s",
            found, lambda one: one.silence_seconds,
        ),
        compare(
            f"{name}: the same, CPU of the controller", "ms", found,
            lambda one: one.silence_cpu_seconds * 1e3,
        ),
        compare(f"{name}: memory of the controller", "MB", found, lambda one: one.resident_mb),
    ]  # fmt: skip


def _create(channel: Channel, names: Sequence[str]) -> None:
    create_topics(channel, names, partition_count=ELECTION_PARTITIONS, replication_factor=len(IDS))


def _elect(controller: Controller, brokers: Brokers, names: Sequence[str]) -> Elections:
    process = controller.process
    process.stop()
    process.start()
    with (
        Channel(controller.node) as channel,
        Channel(controller.node) as following,
        ThreadPoolExecutor(1) as pool,
    ):
        for each in IDS:
            brokers.speak(channel, each)

        def seen_after(do: Callable[[], object]) -> Cost:
            brokers.be_silent(DYING)
            wait_until_idle(process.pid)
            total = len(names) * ELECTION_PARTITIONS
            observing = pool.submit(observe, following, log_end(channel), record_count=total)
            started, cpu = time.perf_counter(), cpu_seconds(process.pid)
            do()
            seen = observing.result()
            cost = Cost(seconds=seen[-1].at - started, cpu_seconds=cpu_seconds(process.pid) - cpu)
            _check_changes(seen, total)
            # The others are not in sync with it any more, and as no leader here asks for that, the
            # next time is of new topics.
            brokers.speak(channel, DYING)
            delete_topics(channel, names)
            _create(channel, names)
            return cost

        fence = partial(brokers.beat, channel, DYING, wants_fence=True)
        first, *_, later = [seen_after(fence) for _ in range(WARM_AFTER + 2)]
        silence = seen_after(partial(brokers.beat, channel, DYING))
    return Elections(
        first, later, silence.seconds, silence.cpu_seconds, resident_bytes(process.pid) / 1e6
    )


def _check_changes(seen: Sequence[Seen], total: int) -> None:
    """Check that each partition has lost the broker, and has a leader if that led it."""
    changes = [
        found.record
        for each in seen
        for _, batch in read_batches(memoryview(each.records))
        for _, found in decoded_records(batch)
        if type(found.record).__name__ == "PartitionChangeRecord"
    ]
    assert len(changes) == total, f"{len(changes)} partitions have changed"
    assert all(DYING not in each.isr for each in changes)  # type: ignore[attr-defined]
    elected = [each.leader for each in changes if each.leader != -2]  # type: ignore[attr-defined]
    # Placed by chance, it has led about a third.
    assert len(elected) > total / 4, f"{len(elected)} leaders were elected"
    assert set(elected) <= set(IDS) - {DYING}


# -- start ----------------------------------------------------------------------------------------


class Start(NamedTuple):
    """A start of a controller."""

    seconds: float
    cpu_seconds: float
    resident_mb: float


class Registered(NamedTuple):
    """A broker that was registered."""

    at: float
    broker_epoch: int


def measure_start(bench: Bench, peer: Peer) -> list[Figure]:
    """Time, CPU and memory of a start, with a log alone, and with a snapshot."""
    topics = bench.scaled(START_TOPICS, quick=5)
    name = f"{topics * START_PARTITIONS:,} partitions"
    bench.say(f"start of a controller: {name}")
    made = _make_log(bench, peer, topics)
    numbers = count(100)
    figures = []
    for state in made:
        contenders = {}
        for kind in KINDS:
            directory = bench.directory / f"{state}-{kind}"
            shutil.copytree(made[state], directory / "logs")
            controller = _controller(
                kind, peer, directory, settings=NO_FENCING,
            )  # fmt: skip
            contenders[kind] = partial(_start, controller, numbers)
        found = interleave(bench, contenders)
        figures += [
            compare(
                f"start with {name}, {state}, until a broker is registered", "s", found,
                lambda one: one.seconds, aim=START_AIM,
            ),
            compare(
                f"start with {name}, {state}, CPU", "s", found, lambda one: one.cpu_seconds
            ),
            compare(f"memory with {name}, {state}", "MB", found, lambda one: one.resident_mb),
        ]  # fmt: skip
    return figures + _measure_snapshots(bench, peer, made["log alone"], name)


def _measure_snapshots(bench: Bench, peer: Peer, made: Path, name: str) -> list[Figure]:
    """The longest decision while a snapshot is written, and the usual one."""
    bench.say(f"decisions while a snapshot of {name} is written")
    numbers = count(100)
    contenders = {}
    for kind in KINDS:
        directory = bench.directory / f"snapshots-{kind}"
        shutil.copytree(made, directory / "logs")
        controller = _controller(
            kind, peer, directory,
            settings={"metadata.log.max.snapshot.interval.ms": str(SNAPSHOT_MS), **NO_FENCING},
        )  # fmt: skip
        contenders[kind] = partial(_decide_beside_snapshot, controller, numbers)
    found = interleave(bench, contenders)
    return [
        compare(
            f"longest decision while a snapshot of {name} is written", "ms", found,
            lambda one: max(one) * 1e3,
        ),
        compare(
            "decision in these seconds, p50", "ms", found,
            lambda one: statistics.median(one) * 1e3,
        ),
    ]  # fmt: skip


def _decide_beside_snapshot(controller: Controller, numbers: Iterator[int]) -> list[float]:
    """Seconds of each decision from a start until its first snapshot is there."""
    process, broker_id = controller.process, next(numbers)
    folder = process.logs / "__cluster_metadata-0"
    process.start()
    epoch = _register(controller.node, broker_id).broker_epoch
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
    before = {*folder.glob("*.checkpoint")}
    seconds = []
    with Channel(controller.node) as channel:
        while {*folder.glob("*.checkpoint")} <= before:
            for _ in range(DECISIONS):
                started = time.perf_counter()
                answer = channel.ask(ApiKey.ALLOCATE_PRODUCER_IDS, request)
                seconds.append(time.perf_counter() - started)
                assert answer.error_code == ErrorCode.NONE, answer
    process.stop()
    return seconds


def _make_log(bench: Bench, peer: Peer, topics: int) -> dict[str, Path]:
    """The directories of a controller of ours: without a snapshot, and with one of all."""
    ours = _controller("ours", peer, bench.directory / "made")
    with ours.process, Brokers(ours.node, IDS), Channel(ours.node) as channel:
        names = [f"topic-{number}" for number in range(topics)]
        create_topics(channel, names, partition_count=START_PARTITIONS, replication_factor=len(IDS))
        ours.process.stop()
    copied = bench.directory / "with-snapshot"
    shutil.copytree(ours.process.logs, copied / "logs")
    due = {"metadata.log.max.record.bytes.between.snapshots": "1", **NO_FENCING}
    with _controller("ours", peer, copied, settings=due).process as process:
        while not list(process.logs.glob("__cluster_metadata-0/*.checkpoint")):
            time.sleep(0.1)
        process.stop()
    return {"log alone": ours.process.logs, "snapshot": process.logs}


def _start(controller: Controller, numbers: Iterator[int]) -> Start:
    process = controller.process
    with ThreadPoolExecutor(1) as pool:
        started = time.perf_counter()
        registered = pool.submit(_register, controller.node, next(numbers))
        # Here and not on the other thread: the process lives as long as the thread that begins it.
        process.start()
        seconds = registered.result().at - started
    found = Start(seconds, cpu_seconds(process.pid), resident_bytes(process.pid) / 1e6)
    process.stop()
    return found


def _register(node: Node, broker_id: int) -> Registered:
    """Have the controller register a new broker as soon as it can.

    Raises:
        TimeoutError: it does not.
    """
    deadline = time.perf_counter() + START_SECONDS_MAX
    request = registration(broker_id, uuid4(), -1)
    while time.perf_counter() < deadline:
        try:
            with Channel(node) as channel:
                while time.perf_counter() < deadline:
                    answer = channel.ask(ApiKey.BROKER_REGISTRATION, request)
                    if answer.error_code == ErrorCode.NONE:
                        return Registered(time.perf_counter(), answer.broker_epoch)
                    assert answer.error_code == ErrorCode.NOT_CONTROLLER, answer
                    time.sleep(ASK_SECONDS)
        except OSError:
            time.sleep(ASK_SECONDS)
    raise TimeoutError(f"no broker was registered after {START_SECONDS_MAX} s")


# -- with brokers ---------------------------------------------------------------------------------


class Controlled(NamedTuple):
    """Three brokers of Tailrace, and the process of their controller."""

    cluster: Cluster
    controller_pid: int


class Topics(NamedTuple):
    """One round of new topics."""

    one_by_one: list[float]
    """Seconds of each."""
    together: Cost
    """With the CPU of the controller."""


def measure_topics_and_rest(bench: Bench, peer: Peer) -> list[Figure]:
    """New topics through three brokers, and CPU and memory of a controller at rest."""
    partitions = bench.scaled(REST_PARTITIONS, quick=20)
    with ExitStack() as stack:
        bench.say("starting two clusters of Tailrace's brokers")
        sides = {kind: stack.enter_context(_running(bench, peer, kind)) for kind in KINDS}
        bench.say(f"rest with {partitions:,} partitions")
        for side in sides.values():
            stack.enter_context(side.cluster.topic(partitions, replicas=()))
        for side in sides.values():
            for each in (side.controller_pid, *side.cluster.process_ids):
                wait_until_idle(each)
        rest = _in_turn(bench, sides, partial(_rest_percent, bench))
        memory = {kind: [resident_bytes(side.controller_pid) / 1e6] for kind, side in sides.items()}
        bench.say("topics through three brokers")
        for side in sides.values():
            _make_topics(bench, side)
        topics = _in_turn(bench, sides, partial(_make_topics, bench))
    each = bench.scaled(TOGETHER, quick=5) * REQUESTS
    name = f"{partitions:,} partitions with 3 replicas"
    return [
        compare(
            "create topics with 3 replicas, 100 in a request", "ms/topic", topics,
            lambda one: one.together.seconds * 1000 / each, aim=TOPICS_AIM,
        ),
        compare(
            "create topics with 3 replicas, 100 in a request, CPU of the controller", "ms/topic",
            topics, lambda one: one.together.cpu_seconds * 1000 / each,
        ),
        compare(
            "create one topic with 3 replicas, p50", "ms", topics,
            lambda one: statistics.median(one.one_by_one) * 1000, aim=TOPICS_AIM,
        ),
        compare(
            f"CPU of a controller of {name}, at rest", "% of a core", rest, float, aim=REST_AIM
        ),
        compare(f"memory of a controller of {name}", "MB", memory, float),
    ]  # fmt: skip


@contextmanager
def _running(bench: Bench, peer: Peer, kind: str) -> Iterator[Controlled]:
    """A controller of this kind, with three brokers of ours."""
    directory = bench.directory / kind
    controller = _controller(kind, peer, directory / "controller")
    ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
    brokers = {
        number: OurBroker(
            number,
            directory / f"broker-{number}",
            address=f"127.0.0.1:{port}",
            controllers=f"{controller.node.host}:{controller.node.port}",
            settings=CLUSTER_SETTINGS,
        )
        for number, port in ports.items()
    }
    with ExitStack() as stack:
        for each in (controller.process, *brokers.values()):
            stack.callback(each.kill)
            each.start()
        cluster = Cluster(
            brokers=brokers,
            bootstrap_servers=",".join(f"127.0.0.1:{port}" for port in ports.values()),
            names=map("topic-{}".format, count()),
        )
        yield Controlled(cluster, controller.process.pid)


def _in_turn(
    bench: Bench, sides: Mapping[str, Controlled], work: Callable[[Controlled], T]
) -> dict[str, list[T]]:
    return interleave(bench, {kind: partial(work, side) for kind, side in sides.items()})


def _rest_percent(bench: Bench, side: Controlled) -> float:
    """Per cent of a core that the controller takes."""
    seconds = bench.scaled(REST_SECONDS, quick=1)
    cost = cost_of(side.controller_pid, lambda: time.sleep(seconds))
    return cost.cpu_seconds * 100 / cost.seconds


def _make_topics(bench: Bench, side: Controlled) -> Topics:
    cluster = side.cluster
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def create(number: int) -> list[str]:
        names = [next(cluster.names) for _ in range(number)]
        for future in admin.create_topics([NewTopic(each, 1, 3) for each in names]).values():
            future.result()
        return names

    made: list[str] = []

    def create_many() -> None:
        for _ in range(REQUESTS):
            made.extend(create(bench.scaled(TOGETHER, quick=5)))

    seconds = []
    for _ in range(bench.scaled(ONE_BY_ONE, quick=3)):
        started = time.perf_counter()
        made += create(1)
        seconds.append(time.perf_counter() - started)
    pids = (side.controller_pid, *cluster.process_ids)
    for each in pids:
        wait_until_idle(each)
    together = cost_of(side.controller_pid, create_many)
    # So that each round is one of as many partitions.
    for future in admin.delete_topics(made).values():
        future.result()
    for each in pids:
        wait_until_idle(each)
    return Topics(seconds, together)
