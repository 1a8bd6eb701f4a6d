"""Two clusters of three brokers side by side, Tailrace's and Kafka's, under Kafka's controllers.

The controllers are the same program with the same settings, in processes of their own which no
figure counts. All of a cluster is on one machine, so that its disk writes each record three times.

Both clusters are warm before anything is measured: a topic with three replicas, led by the first
broker, has taken `WARM_UP_BYTES` in batches of 16 KB.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from benchmarks.kafka.brokers import SETTINGS
from benchmarks.kafka.client import Load, run_client
from benchmarks.kafka.peer import Peer
from benchmarks.measure import Bench, interleave
from compat.brokers import OurBroker, kafkas_broker
from compat.controllers import controller_alone
from compat.kafka import Kafka
from compat.processes import free_ports
from tailrace.client.admin import Admin, NewTopic
from tailrace.client.reader import PartitionDescription
from tailrace.errors import FatalError, RetriableError, TailraceError

T = TypeVar("T")

IDS = (1, 2, 3)
LEADER, FOLLOWER, LAST = IDS

CLUSTER_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        **SETTINGS,
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
    }
)
"""For the brokers of both clusters."""

WARM_UP_BYTES = 100_000_000
WARM_UP_RECORD_BYTES = 1_000
SYNC_SECONDS_MAX = 300
ASK_SECONDS = 0.02
"""Between two questions for the replicas in sync: a hundredth of what is timed with them."""

UNKNOWN = PartitionDescription(
    partition=0, leader=-1, leader_epoch=-1, replicas=(), isr=(), offline=()
)
"""In place of those of a topic that the broker has not heard of yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Three brokers of one kind, running, and what is asked of them."""

    brokers: Mapping[int, OurBroker | Kafka]
    bootstrap_servers: str
    names: Iterator[str]
    """A new name for each topic."""

    @property
    def process_ids(self) -> list[int]:
        """The brokers' processes, by their ids."""
        return [each.pid for each in self.brokers.values()]

    @contextmanager
    def topic(self, partition_count: int = 1, *, replicas: Sequence[int] = IDS) -> Iterator[str]:
        """A topic with these replicas, the first of which leads; it is removed at the end.

        Without any each broker has a replica, and leads a third of the partitions.
        """
        name = next(self.names)
        turns = [replicas] if replicas else [IDS[first:] + IDS[:first] for first in range(len(IDS))]
        placed = dict(zip(range(partition_count), cycle(turns)))
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, replicas=placed)]).results()
            self.wait_until_in_sync(name)
            astray = [each for each in _partitions(admin, name) if each.leader != each.replicas[0]]
            assert not astray, astray
            yield name
            admin.delete_topics([name]).results()

    def wait_until_in_sync(self, topic: str) -> None:
        """Return when each partition of the topic has a leader, and all of its replicas in sync.

        Raises:
            FatalError: that does not come.
        """
        deadline = time.monotonic() + SYNC_SECONDS_MAX
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            while not all(map(_is_in_sync, _partitions(admin, topic))):
                if time.monotonic() > deadline:
                    raise FatalError(f"replicas of {topic} are not in sync: see the brokers' logs")
                time.sleep(ASK_SECONDS)


def _partitions(admin: Admin, topic: str) -> tuple[PartitionDescription, ...]:
    """The partitions as a broker has them."""
    described = admin.describe_topics([topic])[topic]
    if isinstance(described, RetriableError):
        return (UNKNOWN,)
    if isinstance(described, TailraceError):
        raise described
    return tuple(described.partitions)


def _is_in_sync(partition: PartitionDescription) -> bool:
    return partition.leader >= 0 and len(partition.isr) == len(partition.replicas)


class Clusters(NamedTuple):
    """Both clusters, running at the same time; one idles while the other works."""

    ours: Cluster
    kafka: Cluster


@contextmanager
def both_clusters(
    bench: Bench, peer: Peer, *, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Clusters]:
    """Tailrace's and Kafka's, new, empty and warm, until the end of the block.

    `settings` are for the brokers and the controllers of both, over `CLUSTER_SETTINGS`.
    """
    with ExitStack() as stack:
        bench.say("starting two clusters of three brokers")
        clusters = Clusters(
            *(
                stack.enter_context(_running(bench, peer, kind, settings))
                for kind in Clusters._fields
            )
        )
        bench.say("warming up both clusters")
        total = bench.scaled(WARM_UP_BYTES, quick=1_000_000)
        for cluster in clusters:
            with cluster.topic() as topic:
                load = Load(
                    topic=topic,
                    count=total // WARM_UP_RECORD_BYTES,
                    value_bytes=WARM_UP_RECORD_BYTES,
                    settings={"batch.size": 16 * 1024, "linger.ms": 50},
                )
                run_client(
                    "produce", load,
                    address=cluster.bootstrap_servers, process_ids=cluster.process_ids,
                )  # fmt: skip
        yield clusters


@contextmanager
def _running(bench: Bench, peer: Peer, kind: str, settings: Mapping[str, str]) -> Iterator[Cluster]:
    directory = bench.directory / kind
    controller = Kafka(peer.java, peer.class_path, directory / "controller", settings=settings)
    node = controller_alone(controller)
    # Kafka's own, and not the short one of the proofs: a broker that is fenced for a moment on a
    # busy machine leads nothing of the next topic.
    controller.settings |= {"broker.session.timeout.ms": "9000", **settings}
    ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))

    settings = {**CLUSTER_SETTINGS, **settings}

    def broker(number: int, port: int) -> OurBroker | Kafka:
        home = directory / f"broker-{number}"
        if kind == "ours":
            return OurBroker(
                number,
                home,
                address=f"127.0.0.1:{port}",
                controllers=f"{node.host}:{node.port}",
                settings=settings,
            )
        chosen = kafkas_broker(number, port=port, controller=node)
        return peer.kafka(home, settings={**settings, **chosen})

    brokers = {number: broker(number, port) for number, port in ports.items()}
    with ExitStack() as stack:
        for each in (controller, *brokers.values()):
            # Nobody reads what is left: an orderly stop of all would wait for each other's leaders.
            stack.callback(each.kill)
            each.start()
        yield Cluster(
            brokers=brokers,
            bootstrap_servers=",".join(f"127.0.0.1:{port}" for port in ports.values()),
            names=map("topic-{}".format, count()),
        )


def take_turns(
    bench: Bench, clusters: Clusters, work: Callable[[Cluster], T]
) -> dict[str, list[T]]:
    """Run the same work on each cluster in turn; return the results by name and round."""
    return interleave(
        bench, {name: partial(work, cluster) for name, cluster in clusters._asdict().items()}
    )
