"""Tailrace and Kafka side by side, with the same settings, each on a directory of its own.

Neither forces anything to the disk: both leave that to the kernel, as Kafka does by default.

Both are warm before anything is measured: each has taken `WARM_UP_BYTES` in small batches, and what
a stage throws away besides. The JVM has compiled its hot paths, Tailrace has loaded its kernels.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka.peer import PEER, Peer
from benchmarks.macro.brokers import ONE_SEGMENT, serving
from benchmarks.macro.load import (
    build_batch,
    connected,
    produce_frame,
    require_appended,
    send_all,
)
from benchmarks.macro.secured import PROTOCOLS, Secured
from benchmarks.measure import Bench, Figure, interleave
from compat.kafka import NODE_ID
from compat.processes import free_ports
from tailrace.client import BrokerAddress, ClusterReader, parse_bootstrap
from tailrace.model import TopicPartition

T = TypeVar("T")

SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        **ONE_SEGMENT,
        # A round's files are not to wait a minute for their end.
        "log.segment.delete.delay.ms": "1000",
        "log.initial.task.delay.ms": "500",
        # With 0, as the harness of the proof has it, the first member is alone in a generation.
        "group.initial.rebalance.delay.ms": "500",
    }
)
"""For both brokers."""

WARM_UP_BYTES = 300_000_000
"""Two million records and more, which is when Tailrace loads its kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One of the two, running."""

    address: BrokerAddress
    process_id: int
    secured: Secured | None = None
    """Its listeners with TLS and logins, if it was asked for them."""

    def create_topic(self, name: str) -> None:
        """Make a topic of one partition; it takes records when this returns."""
        create_topic(str(self.address), name)

    def delete_topic(self, name: str) -> None:
        """Remove a topic; its files go a second or two later, during the other's turn."""
        admin = _admin(str(self.address))
        admin.delete_topics([name])[name].result()


class Brokers(NamedTuple):
    """Both brokers, running at the same time; one idles while the other works."""

    ours: Broker
    kafka: Broker


@contextmanager
def both(bench: Bench, peer: Peer, *, is_secured: bool = False) -> Iterator[Brokers]:
    """Tailrace and Kafka, new, empty and warm, until the end of the block.

    With `is_secured` each has listeners with TLS and logins beside its plain one.
    """
    data = bench.directory / "tailrace"
    ours_secured, kafka_secured = (
        Secured.make(bench.directory) if is_secured else None for _ in range(2)
    )
    kafka = peer.kafka(bench.directory / "kafka", settings={**SETTINGS, **_of_kafka(kafka_secured)})
    with serving(data, settings={**SETTINGS, **_of_ours(ours_secured)}) as ours, kafka:
        address = (
            parse_bootstrap(kafka.bootstrap_servers)[0]
            if kafka_secured is None
            else BrokerAddress("127.0.0.1", kafka_secured.plaintext)
        )
        brokers = Brokers(
            Broker(address=ours.address, process_id=ours.process_id, secured=ours_secured),
            Broker(address=address, process_id=kafka.pid, secured=kafka_secured),
        )
        bench.say("warming up both brokers")
        for broker in brokers:
            _warm_up(broker, bench.scaled(WARM_UP_BYTES, quick=4_000_000))
        yield brokers


def _of_ours(secured: Secured | None) -> dict[str, str]:
    return {} if secured is None else {**secured.settings, "listeners": secured.listeners}


def _of_kafka(secured: Secured | None) -> dict[str, str]:
    if secured is None:
        return {}
    [port] = free_ports(1)
    protocols = ",".join(f"{name.upper()}:{name.upper()}" for name in PROTOCOLS)
    return {
        **secured.settings,
        "listeners": f"{secured.listeners},CONTROLLER://127.0.0.1:{port}",
        "advertised.listeners": secured.listeners,
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{port}",
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocols}",
    }


def _warm_up(broker: Broker, total: int) -> None:
    """Send so many bytes in small batches."""
    topic = "warm-up"
    broker.create_topic(topic)
    batch = build_batch(16 * 1024)
    batch_count = total // len(batch.data)
    with connected(broker.address) as channel:
        answer = send_all(channel, produce_frame(topic, batch), batch_count)
    require_appended(answer, batch, batch_count)
    broker.delete_topic(topic)


def take_turns(bench: Bench, brokers: Brokers, work: Callable[[Broker], T]) -> dict[str, list[T]]:
    """Run the same work on each broker in turn; return the results by name and round."""
    return interleave(
        bench, {name: partial(work, broker) for name, broker in brokers._asdict().items()}
    )


def compare(
    name: str,
    unit: str,
    found: Mapping[str, Sequence[T]],
    value: Callable[[T], float],
    *,
    aim: float | None = None,
) -> Figure:
    """One line of the result: a value of each round of both brokers."""
    return Figure(
        name=name,
        unit=unit,
        ours=tuple(map(value, found["ours"])),
        peer_name=PEER,
        peer=tuple(map(value, found["kafka"])),
        aim=aim,
    )


def create_topic(address: str, name: str) -> None:
    """Make a topic of one partition; it takes records when this returns."""
    admin = _admin(address)
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])[name].result()
    # Kafka answers before its broker has heard of the topic from its controller.
    with closing(ClusterReader(address)) as reader:
        reader.log_range(TopicPartition(name, 0))


def _admin(address: str) -> AdminClient:
    """Return an admin client, which must be kept until its answers are there."""
    return AdminClient({"bootstrap.servers": address, "log_level": 0})
