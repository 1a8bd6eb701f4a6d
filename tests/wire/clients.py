"""Three Kafka clients of other people with one interface: produce, read, and find by time."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka
import aiokafka.admin
import confluent_kafka

with warnings.catch_warnings():
    # kafka-python asks for resources in a way that newer Pythons warn of.
    warnings.simplefilter("ignore")
    import kafka as kafka  # noqa: PLC0414 - tests of groups take it from here

T = TypeVar("T")

TIMEOUT_S = 60


class Sent(NamedTuple):
    """A record as it is sent, and as it must come back."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Client(Protocol):
    """Operations of each of the three clients, on partition 0 of a topic."""

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], *, codec: str, is_idempotent: bool
    ) -> list[int]:
        """Send records with acks=all; returns their offsets."""
        ...

    def read(self, address: str, topic: str, offset: int, *, count: int) -> list[Sent]:
        """`count` records from an offset on."""
        ...

    def find(self, address: str, topic: str, timestamp: int) -> int | None:
        """The first offset at or after a timestamp."""
        ...


class Confluent:
    """confluent-kafka, which is librdkafka."""

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], *, codec: str, is_idempotent: bool
    ) -> list[int]:
        """See `Client`."""
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "compression.type": codec,
                "enable.idempotence": is_idempotent,
                "acks": "all",
                "linger.ms": 20,
            }
        )
        offsets: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            offsets.append(message.offset())

        for record in records:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=0,
                on_delivery=delivered,
                timestamp=record.timestamp,
                headers=list(record.headers),
            )
        assert producer.flush(TIMEOUT_S) == 0
        return offsets

    def read(self, address: str, topic: str, offset: int, *, count: int) -> list[Sent]:
        """See `Client`."""
        consumer = self._consumer(address)
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
        found: list[Sent] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), TIMEOUT_S)
            assert messages, "nothing came"
            for message in messages:
                assert message.error() is None, message.error()
                headers = tuple((name, value) for name, value in message.headers() or ())
                found.append(Sent(message.key(), message.value(), message.timestamp()[1], headers))
        consumer.close()
        return found

    def find(self, address: str, topic: str, timestamp: int) -> int | None:
        """See `Client`."""
        consumer = self._consumer(address)
        wanted = confluent_kafka.TopicPartition(topic, 0, timestamp)
        (found,) = consumer.offsets_for_times([wanted], TIMEOUT_S)
        consumer.close()
        return None if found.offset < 0 else int(found.offset)

    @staticmethod
    def _consumer(address: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False}
        )


class KafkaPython:
    """kafka-python, in pure Python."""

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], *, codec: str, is_idempotent: bool
    ) -> list[int]:
        """See `Client`."""
        producer = kafka.KafkaProducer(
            bootstrap_servers=address,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=is_idempotent,
            acks="all",
            linger_ms=20,
        )
        futures = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=0,
                timestamp_ms=record.timestamp,
            )
            for record in records
        ]
        producer.flush(TIMEOUT_S)
        offsets = [future.get(TIMEOUT_S).offset for future in futures]
        producer.close()
        return offsets

    def read(self, address: str, topic: str, offset: int, *, count: int) -> list[Sent]:
        """See `Client`."""
        partition = kafka.TopicPartition(topic, 0)
        consumer = self._consumer(address)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        found: list[Sent] = []
        while len(found) < count:
            batches = consumer.poll(TIMEOUT_S * 1000, max_records=count - len(found))
            assert batches, "nothing came"
            for record in batches[partition]:
                headers = tuple(record.headers)
                found.append(Sent(record.key, record.value, record.timestamp, headers))
        consumer.close()
        return found

    def find(self, address: str, topic: str, timestamp: int) -> int | None:
        """See `Client`."""
        partition = kafka.TopicPartition(topic, 0)
        consumer = self._consumer(address)
        found = consumer.offsets_for_times({partition: timestamp})[partition]
        consumer.close()
        return None if found is None else int(found.offset)

    @staticmethod
    def _consumer(address: str) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            bootstrap_servers=address, group_id=None, enable_auto_commit=False
        )


class AioKafka:
    """aiokafka, on asyncio."""

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], *, codec: str, is_idempotent: bool
    ) -> list[int]:
        """See `Client`."""

        async def send() -> list[int]:
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=address,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=is_idempotent,
                acks="all",
                linger_ms=20,
            ) as producer:
                futures = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=0,
                        timestamp_ms=record.timestamp,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                return [(await future).offset for future in futures]

        return asyncio.run(send())

    def read(self, address: str, topic: str, offset: int, *, count: int) -> list[Sent]:
        """See `Client`."""
        partition = aiokafka.TopicPartition(topic, 0)

        async def receive(consumer: aiokafka.AIOKafkaConsumer) -> list[Sent]:
            consumer.assign([partition])
            consumer.seek(partition, offset)
            found: list[Sent] = []
            while len(found) < count:
                async with asyncio.timeout(TIMEOUT_S):
                    record = await consumer.getone()
                headers = tuple(record.headers)
                found.append(Sent(record.key, record.value, record.timestamp, headers))
            return found

        return self._with_consumer(address, receive)

    def find(self, address: str, topic: str, timestamp: int) -> int | None:
        """See `Client`."""
        partition = aiokafka.TopicPartition(topic, 0)

        async def ask(consumer: aiokafka.AIOKafkaConsumer) -> int | None:
            found = (await consumer.offsets_for_times({partition: timestamp}))[partition]
            return None if found is None else int(found.offset)

        return self._with_consumer(address, ask)

    @staticmethod
    def _with_consumer(address: str, use: Callable[[Any], Awaitable[T]]) -> T:
        async def run() -> T:
            async with aiokafka.AIOKafkaConsumer(
                bootstrap_servers=address, group_id=None, enable_auto_commit=False
            ) as consumer:
                return await use(consumer)

        return asyncio.run(run())


CLIENTS: dict[str, Client] = {
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": AioKafka(),
}
