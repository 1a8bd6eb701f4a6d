"""Settings as keywords of clients and brokers, which mypy knows; nothing runs them.

As in `swaps`, each mistake is ignored under its code, and an ignore without a mistake is an error:
so `make check` fails if mypy takes a wrong keyword, and if it refuses a right one.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from tailrace import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Broker, Consumer, Producer
from tailrace.testing import TestBroker, TestCluster

if TYPE_CHECKING:
    from tailrace import BrokerSettings
    from tailrace.client.producer import ProducerSettings


def right() -> None:
    """Keywords of each kind of setting, with values of Python's types."""
    Producer(bootstrap_servers="localhost:9092", acks="all", linger_ms=0.5, partitioner="murmur2")
    AsyncProducer(bootstrap_servers=["a:1", "b:1"], acks=1, enable_idempotence=False)
    Consumer({"group.id": "g"}, auto_offset_reset="earliest", isolation_level="read_committed")
    AsyncConsumer(group_id="g", max_poll_records=10, partition_assignment_strategy=["range"])
    Admin(security_protocol="SSL", ssl_truststore_location=Path("authorities.pem"), retries=3)
    AsyncAdmin(sasl_oauth_token=lambda: "token", client_id="mine")
    kept: ProducerSettings = {"bootstrap_servers": "localhost:9092", "acks": "all"}
    Producer(**kept)
    ours: BrokerSettings = {"num_partitions": 4, "log_retention_ms": -1}
    Broker("data", auto_create_topics_enable=False, ssl_keystore_location=Path("key.pem"))
    TestBroker(security="SSL", ssl_client_auth="required", compression_type="zstd")
    TestCluster(min_insync_replicas=2)
    Broker(**ours)


def unknown() -> None:
    """Names that no setting has, and those of another client."""
    Producer(bootstrap_server="localhost:9092")  # type: ignore[call-arg]
    AsyncProducer(group_id="g")  # type: ignore[call-arg]
    Consumer(acks="all")  # type: ignore[call-arg]
    AsyncConsumer(linger_ms=5)  # type: ignore[call-arg]
    Admin(group_id="g")  # type: ignore[call-arg]
    AsyncAdmin(linger_ms=5)  # type: ignore[call-arg]
    Broker(num_partition=4)  # type: ignore[call-arg]
    Broker(listeners="localhost:9092")  # type: ignore[call-arg]
    TestBroker(retention_ms=5)  # type: ignore[call-arg]
    TestCluster(group_id="g")  # type: ignore[call-arg]


def wrong_values() -> None:
    """Values of another type, or none of the choices."""
    Producer(acks="some")  # type: ignore[arg-type]
    AsyncProducer(linger_ms="5")  # type: ignore[arg-type]
    Consumer(isolation_level="committed")  # type: ignore[arg-type]
    AsyncConsumer(max_poll_records="many")  # type: ignore[arg-type]
    Admin(retries=None)  # type: ignore[arg-type]
    AsyncAdmin(security_protocol="TLS")  # type: ignore[arg-type]
    Broker(num_partitions="4")  # type: ignore[arg-type]
    TestBroker(ssl_client_auth="yes")  # type: ignore[arg-type]
    TestCluster(compression_type="rar")  # type: ignore[arg-type]
