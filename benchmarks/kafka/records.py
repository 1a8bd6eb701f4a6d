"""Our `send` and confluent-kafka's of records of each kind, both to Apache Kafka.

The time of the broker is the same for both. `benchmarks.macro.records` measures them on our broker.
"""

from dataclasses import dataclass, replace
from itertools import product

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka.brokers import SETTINGS
from benchmarks.kafka.peer import PEER, Peer
from benchmarks.macro.record_clients import KINDS
from benchmarks.macro.records import SIZES, measure_kind
from benchmarks.measure import Bench, Figure
from tailrace.client import BrokerAddress, parse_bootstrap

CLIENTS = ("ours", "confluent-kafka")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Broker:
    """Apache Kafka, as the clients find it."""

    address: BrokerAddress

    def create_topic(self, name: str, *, partition_count: int) -> None:
        """Make a topic; its leaders take records when a client has asked for them again."""
        admin = self._admin()
        admin.create_topics([NewTopic(name, partition_count, 1)])[name].result()

    def delete_topic(self, name: str) -> None:
        """Remove a topic."""
        admin = self._admin()
        admin.delete_topics([name])[name].result()

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": str(self.address), "log_level": 0})


def measure_records(bench: Bench, peer: Peer) -> list[Figure]:
    """Time and CPU time per record of each kind, against confluent-kafka."""
    figures: list[Figure] = []
    with peer.kafka(bench.directory / "kafka", settings=SETTINGS) as kafka:
        broker = _Broker(address=parse_bootstrap(kafka.bootstrap_servers)[0])
        for size, kind in product(SIZES, KINDS):
            found = measure_kind(bench, broker, kind, size=size, clients=CLIENTS)
            figures += [replace(each, name=f"{each.name}, to {PEER}") for each in found]
    return figures
