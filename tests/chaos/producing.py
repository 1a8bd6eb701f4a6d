"""Idempotent producers of four makers, which send to all partitions and write what became of it.

A send has failed for sure only if the client has refused to take the record; whatever happens
later leaves it open whether the record was written.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from tests.chaos.life import EVENTS, Life, named
from tests.histories.history import Outcome, Send

BURST_MAX: Final = 8
"""Records that a producer sends at once."""


def _begin(life: Life) -> tuple[int, int, bytes]:
    """Begin a send; its number in the history, its partition and its value."""
    partition, value = life.partition(), life.value()
    number = life.recorder.begin(Send(partition=named(EVENTS, partition), value=value))
    return number, partition, value.encode()


def _bursts(life: Life) -> range:
    return range(life.chance.randrange(1, BURST_MAX))


def produce_with_confluent(life: Life) -> None:
    """Send with librdkafka until the end of the life.

    Its messages outlive every outage: when one times out, librdkafka raises the epoch of all
    partitions, and sends a batch of another partition again whose answer was lost
    (librdkafka #4953), which no broker can recognize as a repetition.

    It has one request in flight: it raises the epoch too when a request is refused as out of order
    because one before it failed. That one may be written, by a leader that resigned before the
    replicas had it.
    """
    import confluent_kafka

    timeout_ms = life.plan.timeout_ms
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": life.plan.bootstrap,
            "enable.idempotence": True,
            "max.in.flight": 1,
            "linger.ms": 5,
            "socket.timeout.ms": timeout_ms,
            "request.timeout.ms": timeout_ms,
            "message.timeout.ms": 60 * timeout_ms,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )

    def delivered(number: int, error: Any, message: Any) -> None:
        if error is None:
            life.recorder.end(number, Outcome.OK, offset=message.offset())
        else:
            life.recorder.end(number, Outcome.INFO)

    while not life.stopping.is_set():
        for _ in _bursts(life):
            number, partition, value = _begin(life)
            try:
                producer.produce(
                    EVENTS,
                    value,
                    partition=partition,
                    on_delivery=lambda *got, number=number: delivered(number, *got),
                )
            except BufferError:
                life.recorder.end(number, Outcome.FAIL)
        producer.poll(0)
        life.stopping.wait(life.pause_s())
    producer.flush(8 * timeout_ms / 1000)


def produce_with_kafka_python(life: Life) -> None:
    """Send with kafka-python until the end of the life."""
    from tests.wire.clients import kafka

    timeout_ms = life.plan.timeout_ms
    producer = kafka.KafkaProducer(
        bootstrap_servers=life.plan.bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=5,
        request_timeout_ms=timeout_ms,
        delivery_timeout_ms=6 * timeout_ms,
        max_block_ms=3 * timeout_ms,
        reconnect_backoff_max_ms=500,
    )
    while not life.stopping.is_set():
        for _ in _bursts(life):
            number, partition, value = _begin(life)
            try:
                future = producer.send(EVENTS, value, partition=partition)
            except kafka.errors.KafkaError:
                # It may have been queued before the error came.
                life.recorder.end(number, Outcome.INFO)
                continue
            future.add_callback(
                lambda sent, number=number: life.recorder.end(
                    number, Outcome.OK, offset=sent.offset
                )
            )
            future.add_errback(lambda _, number=number: life.recorder.end(number, Outcome.INFO))
        life.stopping.wait(life.pause_s())
    producer.close(timeout=8 * timeout_ms / 1000)


def produce_with_aiokafka(life: Life) -> None:
    """Send with aiokafka until the end of the life."""
    asyncio.run(_produce_with_aiokafka(life))


async def _produce_with_aiokafka(life: Life) -> None:
    import aiokafka
    import aiokafka.errors

    timeout_ms = life.plan.timeout_ms
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=life.plan.bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=5,
        request_timeout_ms=timeout_ms,
    )

    def delivered(number: int, sent: Any) -> None:
        if sent.cancelled() or sent.exception() is not None:
            life.recorder.end(number, Outcome.INFO)
        else:
            life.recorder.end(number, Outcome.OK, offset=sent.result().offset)

    while not life.stopping.is_set():
        with suppress(aiokafka.errors.KafkaError):
            await producer.start()
            break
    while not life.stopping.is_set():
        for _ in _bursts(life):
            number, partition, value = _begin(life)
            try:
                sent = await producer.send(EVENTS, value, partition=partition)
            except aiokafka.errors.KafkaError:
                life.recorder.end(number, Outcome.INFO)
            else:
                sent.add_done_callback(lambda sent, number=number: delivered(number, sent))
        await asyncio.to_thread(life.stopping.wait, life.pause_s())
    with suppress(TimeoutError):
        await asyncio.wait_for(producer.stop(), 8 * timeout_ms / 1000)


def produce_with_ours(life: Life) -> None:
    """Send with tailrace until the end of the life."""
    from tailrace import Producer
    from tailrace.client.producer.errors import (
        BufferExhaustedError,
        MetadataTimeoutError,
        SendCancelledError,
    )

    never_sent = (BufferExhaustedError, MetadataTimeoutError, SendCancelledError)
    timeout_ms = life.plan.timeout_ms
    settings = {
        "bootstrap.servers": life.plan.bootstrap,
        "request.timeout.ms": timeout_ms,
        "delivery.timeout.ms": 6 * timeout_ms,
        "max.block.ms": 3 * timeout_ms,
        "reconnect.backoff.max.ms": 500,
    }

    def delivered(number: int, metadata: Any, error: BaseException | None) -> None:
        if error is None:
            life.recorder.end(number, Outcome.OK, offset=metadata.offset)
        else:
            is_certain = isinstance(error, never_sent)
            life.recorder.end(number, Outcome.FAIL if is_certain else Outcome.INFO)

    with Producer(settings) as producer:
        while not life.stopping.is_set():
            for _ in _bursts(life):
                number, partition, value = _begin(life)
                producer.send(
                    EVENTS,
                    value,
                    partition=partition,
                    on_delivery=lambda *got, number=number: delivered(number, *got),
                )
            life.stopping.wait(life.pause_s())


PRODUCERS: Final[dict[str, Callable[[Life], None]]] = {
    "confluent": produce_with_confluent,
    "kafka-python": produce_with_kafka_python,
    "aiokafka": produce_with_aiokafka,
    "ours": produce_with_ours,
}
