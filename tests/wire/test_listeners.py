"""Clients of each listener on real sockets: all that they need is by addresses of that listener."""

import socket
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from tailrace import Admin, Broker
from tests.wire.clients import CLIENTS, Sent

pytestmark = pytest.mark.wire


def free_port(host: str) -> int:
    with socket.create_server((host, 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_a_client_works_by_the_listener_that_it_came_by(tmp_path: Path, name: str) -> None:
    """It writes by one and reads by the other, and is never sent to an address that is not its."""
    # Machines have all of 127.0.0.0/8 as their own.
    inside = f"127.0.0.1:{free_port('127.0.0.1')}"
    outside = f"127.0.0.2:{free_port('127.0.0.2')}"
    settings = {
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    listen = f"INSIDE://{inside},OUTSIDE://{outside}"
    records = [Sent(b"k", b"%d" % number, 1_700_000_000_000) for number in range(10)]
    with Broker(tmp_path / "data", listen=listen, settings=settings) as broker:
        assert broker.bootstrap_servers == inside
        for address in (inside, outside):
            [known] = (
                confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
                .list_topics(timeout=60)
                .brokers.values()
            )
            assert f"{known.host}:{known.port}" == address
            with Admin(bootstrap_servers=address) as admin:
                [node] = admin.describe_cluster().brokers
                assert f"{node.host}:{node.port}" == address
        client = CLIENTS[name]
        client.produce(outside, "t", records, codec="none", is_idempotent=False)
        assert [each.value for each in client.read(inside, "t", 0, count=10)] == [
            each.value for each in records
        ]
        # Its coordinator is looked up.
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": outside, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["t"])
        try:
            found = consumer.consume(10, timeout=60)
        finally:
            consumer.close()
        assert [each.value() for each in found] == [each.value for each in records]
