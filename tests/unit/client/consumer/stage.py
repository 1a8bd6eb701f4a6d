"""A broker on doubles, and consumers and a producer of it on virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tailrace.broker.broker import RunningBroker
from tailrace.client.consumer import AsyncConsumer, ConsumerRecord
from tailrace.client.producer.aio import AsyncProducer
from tailrace.model import TopicPartition
from tailrace.testing import Outside
from tests.unit.broker.brokers import connect, create_topic, running

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@dataclass(slots=True)
class Stage:
    """One test's broker."""

    outside: Outside
    broker: RunningBroker

    @property
    def bootstrap(self) -> str:
        """The broker's address."""
        host, port = self.broker.endpoint
        return f"{host}:{port}"

    def consumer(self, **settings: Any) -> AsyncConsumer:
        """A consumer that begins at the first record unless told so."""
        given: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "auto_offset_reset": "earliest",
        }
        return AsyncConsumer(runtime=self.outside.runtime, **(given | settings))

    def producer(self, **settings: Any) -> AsyncProducer:
        """A producer that does not linger unless told so."""
        given: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "linger_ms": 0}
        return AsyncProducer(runtime=self.outside.runtime, **(given | settings))

    async def topic(self, name: str = "t", *, partitions: int = 1, **configs: str) -> None:
        """Create a topic; `configs` with underscores."""
        given = {each.replace("_", "."): value for each, value in configs.items()}
        peer = connect(self.outside, self.broker)
        made = await create_topic(peer, name, partitions=partitions, configs=given or None)
        assert made.error_code == 0

    async def fill(
        self, count: int, *, partition: int = 0, topic: str = "t", start: int = 0
    ) -> None:
        """Write the numbers from `start` on as values."""
        async with self.producer() as producer:
            for number in range(start, start + count):
                producer.send(topic, b"%d" % number, partition=partition)


@asynccontextmanager
async def on_stage(outside: Outside, **settings: str) -> AsyncIterator[Stage]:
    """A stage with a broker of these settings, with underscores."""
    given = {each.replace("_", "."): value for each, value in settings.items()}
    async with running(outside, {"auto.create.topics.enable": "false"} | given) as broker:
        yield Stage(outside, broker)


async def read(consumer: AsyncConsumer, count: int) -> list[ConsumerRecord]:
    """Poll until there are so many records."""
    found: list[ConsumerRecord] = []
    while len(found) < count:
        records = await consumer.poll(60)
        assert records, f"{len(found)} of {count} records came"
        found += records
    return found


def values(records: list[ConsumerRecord]) -> list[int]:
    """The numbers that `Stage.fill` has written."""
    return [int(each.value) for each in records]
