"""A consumer of kafka-python keeps a fetch session with a real broker."""

import contextlib
from pathlib import Path

import pytest

from tailrace import Broker
from tests.wire.clients import CLIENTS, TIMEOUT_S, Sent, kafka

pytestmark = pytest.mark.wire


def test_kafka_python_reads_in_a_session(tmp_path: Path) -> None:
    """Records of several partitions come, each once, over many fetches of one session."""
    with (
        Broker(tmp_path / "data", settings={"num.partitions": "3"}) as broker,
        contextlib.ExitStack() as leaving,
    ):
        address, client = broker.bootstrap_servers, CLIENTS["confluent-kafka"]
        records = [Sent(key=b"k", value=b"%d" % n, timestamp=1_600_000_000_000) for n in range(50)]
        client.produce(address, "t", records[:10], codec="none", is_idempotent=False)
        consumer = kafka.KafkaConsumer(bootstrap_servers=address, max_poll_records=3)
        leaving.callback(consumer.close)
        consumer.assign([kafka.TopicPartition("t", number) for number in range(3)])
        consumer.seek_to_beginning()
        values: list[bytes] = []
        for start in range(10, 51, 10):
            while len(values) < start:
                polled = consumer.poll(timeout_ms=TIMEOUT_S * 1000)
                assert polled, "nothing came"
                values += [record.value for found in polled.values() for record in found]
            assert broker.statistics().fetch_sessions.session_count == 1
            client.produce(
                address, "t", records[start : start + 10], codec="none", is_idempotent=False
            )
        assert values == [record.value for record in records]
