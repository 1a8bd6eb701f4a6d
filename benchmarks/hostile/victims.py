"""A producer and a consumer that work beside an attack, and what they notice of it."""

import struct
import threading
import time
from dataclasses import dataclass
from typing import Final

from tailrace import Producer

TOPIC: Final = "honest"
PAUSE_S: Final = 0.005
"""Between two records: a broker with room to spare."""

_VALUE: Final = struct.Struct(">qd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """What was measured in one phase, in milliseconds."""

    produced: tuple[float, ...]
    """From `send` to the acknowledgement."""
    consumed: tuple[float, ...]
    """From `send` to the consumer."""


def p99(values: tuple[float, ...]) -> float:
    """The value that one of a hundred is above; infinite if there is none at all."""
    ordered = sorted(values)
    return ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)] if ordered else float("inf")


class Victims:
    """One record at a time, acknowledged with acks=all; and whoever reads them."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[int] = []
        self.received: list[int] = []
        self._bootstrap = bootstrap
        self._produced: list[float] = []
        self._consumed: list[float] = []
        self._is_ended = threading.Event()
        self._is_drained = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._produce, self._consume)
        ]
        for thread in self._threads:
            thread.start()

    def take(self) -> Latencies:
        """What was measured since the last call."""
        produced, self._produced = self._produced, []
        consumed, self._consumed = self._consumed, []
        return Latencies(produced=tuple(produced), consumed=tuple(consumed))

    def finish(self, timeout_s: float) -> list[int]:
        """Stop sending, read on for a while; the acknowledged records that did not come."""
        self._is_ended.set()
        self._threads[0].join(timeout_s)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and not set(self.acknowledged) <= set(self.received):
            time.sleep(0.1)
        self._is_drained.set()
        self._threads[1].join(timeout_s)
        return sorted(set(self.acknowledged) - set(self.received))

    def _produce(self) -> None:
        number = 0
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            while not self._is_ended.is_set():
                started = time.perf_counter()
                producer.send(TOPIC, _VALUE.pack(number, started)).result(300)
                self._produced.append((time.perf_counter() - started) * 1000)
                self.acknowledged.append(number)
                number += 1
                time.sleep(PAUSE_S)

    def _consume(self) -> None:
        import confluent_kafka

        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        while not self._is_drained.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            number, started = _VALUE.unpack(message.value())
            self.received.append(number)
            self._consumed.append((time.perf_counter() - started) * 1000)
        consumer.close()
