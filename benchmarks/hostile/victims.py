"""A producer and a consumer that work beside an attack, and what they notice of it."""

import struct
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.macro.secured import renamed
from tailrace import Producer

TOPIC: Final = "honest"
INTERVAL_S: Final = 1 / 150
"""Between two records: a broker with room to spare."""
SWITCH_INTERVAL_S: Final = 0.0001

_VALUE: Final = struct.Struct(">qd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Latencies of the records of one phase, in milliseconds."""

    produced: tuple[float, ...]
    """From the time a record was due to be sent to its acknowledgement."""
    consumed: tuple[float, ...]
    """From the time a record was due to be sent to the consumer."""


def p99(values: tuple[float, ...]) -> float:
    """The value that one of a hundred is above; infinite if there is none at all."""
    ordered = sorted(values)
    return ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)] if ordered else float("inf")


class Victims:
    """A producer with acks=all that sends by the clock, and a consumer that reads along.

    Latencies count from the time a record was due: a broker that stands still for a second delays
    all the records of that second, and not just the one that waits for it.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` are those of the connection, by the names of librdkafka."""
        self.acknowledged: dict[int, float] = {}
        """Milliseconds by the number of the record."""
        self.received: dict[int, float] = {}
        self._settings = dict(settings)
        self._due_count = 0
        self._phase_start = 0
        self._is_ended = threading.Event()
        self._is_drained = threading.Event()
        # Two threads of this process that have work at the same moment: by default one waits 5 ms
        # for the interpreter, and a broker would be blamed for that.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._produce, self._consume)
        ]
        for thread in self._threads:
            thread.start()

    def take(self, timeout_s: float) -> Latencies:
        """Return the latencies of the records that were due since the last call.

        Waits until all of them have arrived; one that has not after `timeout_s` counts as infinite.
        """
        numbers = range(self._phase_start, self._due_count)
        self._phase_start = numbers.stop
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and not all(
            each in self.received and each in self.acknowledged for each in numbers
        ):
            time.sleep(0.01)
        return Latencies(
            produced=tuple(self.acknowledged.get(each, float("inf")) for each in numbers),
            consumed=tuple(self.received.get(each, float("inf")) for each in numbers),
        )

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
        with Producer(renamed(self._settings), linger_ms=0) as producer:
            started = time.perf_counter()
            while not self._is_ended.is_set():
                number = self._due_count
                due = started + number * INTERVAL_S
                time.sleep(max(due - time.perf_counter(), 0))
                self._due_count += 1
                producer.send(
                    TOPIC,
                    _VALUE.pack(number, due),
                    on_delivery=partial(self._delivered, number, due),
                )

    def _delivered(self, number: int, due: float, _: object, error: Exception | None) -> None:
        if error is None:
            self.acknowledged[number] = (time.perf_counter() - due) * 1000

    def _consume(self) -> None:
        import confluent_kafka

        settings = {
            **self._settings,
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
            number, due = _VALUE.unpack(message.value())
            self.received[number] = (time.perf_counter() - due) * 1000
        consumer.close()
