"""Other people's clients against quotas: they wait as long as answers say, and lose nothing."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tailrace import Broker
from tailrace.client.admin import Admin, NewTopic, QuotaEntity
from tailrace.client.producer import Producer
from tests.wire.clients import TIMEOUT_S, kafka

pytestmark = pytest.mark.wire

RATE = 400_000
"""Bytes in a second: 0.8 MB at once, and what comes on top waits for a window to pass."""
WINDOWS = {"quota.window.num": 3}
"""Windows of a second each; Kafka's default of 11 would have the test wait for ten seconds."""
VALUES = [b"%03d" % number * 5000 for number in range(90)]
"""1.35 MB."""


@contextlib.contextmanager
def limited(directory: Path) -> Iterator[Broker]:
    """A broker with a topic, and quotas of the client id `app` alone."""
    with (
        Broker(directory, settings=WINDOWS) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic("t", 1)]).results()
        rates = {"producer_byte_rate": float(RATE), "consumer_byte_rate": float(RATE)}
        admin.alter_client_quotas({QuotaEntity.of(client_id="app"): rates}).results()
        yield broker


def read_all(address: str) -> list[bytes]:
    """The values of the topic, as a librdkafka with a quota gets them."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": address, "group.id": "g", "client.id": "app",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    values: list[bytes] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        while len(values) < len(VALUES):
            message = consumer.poll(TIMEOUT_S) or pytest.fail("nothing came")
            assert not message.error()
            values.append(message.value())
    finally:
        consumer.close()
    return values


def test_librdkafka_waits_and_loses_nothing(tmp_path: Path) -> None:
    """It reports the throttle times, and what it reads is whole and in order."""
    with limited(tmp_path / "data") as broker:
        throttled: list[float] = []
        begun = time.monotonic()
        producer = confluent_kafka.Producer({
            "bootstrap.servers": broker.bootstrap_servers, "client.id": "app",
            "batch.size": 100_000, "linger.ms": 5, "enable.idempotence": True,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        })  # fmt: skip
        for value in VALUES:
            producer.produce("t", value)
        assert producer.flush(TIMEOUT_S) == 0
        assert max(throttled, default=0) > 0
        assert broker.statistics().quotas.throttled_count["producer_byte_rate"] > 0
        assert read_all(broker.bootstrap_servers) == VALUES
        assert broker.statistics().quotas.throttled_count["consumer_byte_rate"] > 0
        assert time.monotonic() - begun > 1


def test_kafka_python_and_ours_wait_and_lose_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both tell of the throttle, in the log and in a metric."""
    with limited(tmp_path / "data") as broker:
        address = broker.bootstrap_servers
        python = kafka.KafkaProducer(
            bootstrap_servers=address, client_id="app", batch_size=100_000, linger_ms=5
        )
        try:
            for value in VALUES:
                python.send("t", value)
            python.flush(TIMEOUT_S)
        finally:
            python.close()
        assert any("throttled by broker" in each for each in caplog.messages)
        with Producer(bootstrap_servers=address, client_id="app") as ours:
            for value in VALUES[:10]:  # The quota is used up already.
                ours.send("t", value)
            ours.flush()
            assert ours.metrics()["produce-throttle-time-max"] > 0
        assert broker.statistics().quotas.throttled_count["producer_byte_rate"] > 1
