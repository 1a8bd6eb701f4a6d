"""One consumer's life, as a program of its own: `python -m compat.life CLIENT '{"servers": …}'`.

Each client is used as its documentation says. A line on standard output says what happens:

    ready       the consumer subscribes now
    begin P O   the record of partition P and offset O is being handled
    done P O    it is handled
    end         the consumer has been closed

Not here: who sends the signals and looks at the offsets (`lives`).
"""

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from typing import Any

POLL_S = 1.0
"""Time after which a loop of a client without `wakeup` looks whether it is to end."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """Instructions to one life."""

    servers: str
    topic: str
    group: str
    work_s: float
    """Time that the handling of a record takes."""
    max_poll_interval_ms: int
    stop_at: int = -1
    """Number of records after which the loop ends by itself; -1: it does not."""
    fail_at: int = -1
    """Number of the record whose handling raises."""
    stop_by: str = ""
    """`thread`: a line of standard input, not SIGTERM, ends the loop, by a thread or the task."""
    begun: int = 0

    def begin(self, partition: int, offset: int) -> None:
        """The handling of a record begins.

        Raises:
            ZeroDivisionError: it is the one that fails.
        """
        say(f"begin {partition} {offset}")
        self.begun += 1
        if self.begun == self.fail_at:
            raise ZeroDivisionError("the handler has a bug")

    def end(self, partition: int, offset: int) -> bool:
        """The handling ends; returns whether the loop ends, too."""
        say(f"done {partition} {offset}")
        return self.begun == self.stop_at

    def handle(self, partition: int, offset: int) -> bool:
        """Handle a record on a thread; returns whether the loop ends, too."""
        self.begin(partition, offset)
        time.sleep(self.work_s)
        return self.end(partition, offset)

    def on_stop(self, stop: Callable[[], object]) -> None:
        """Have SIGTERM, or another thread, stop the loop."""
        if self.stop_by == "thread":
            threading.Thread(target=self._wait, args=(stop,), daemon=True).start()
        else:
            signal.signal(signal.SIGTERM, lambda *_: stop())

    def _wait(self, stop: Callable[[], object]) -> None:
        sys.stdin.readline()
        stop()


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _settings(plan: Plan) -> dict[str, Any]:
    """The settings of every client, by the names that all take (librdkafka with dots)."""
    return {
        "bootstrap_servers": plan.servers,
        "group_id": plan.group,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 1000,
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 500,
        "max_poll_interval_ms": plan.max_poll_interval_ms,
    }


def tailrace(plan: Plan) -> None:
    """`tailrace.Consumer`."""
    from tailrace import Consumer

    consumer = Consumer(**_settings(plan))
    plan.on_stop(consumer.wakeup)
    say("ready")
    with consumer:
        consumer.subscribe(plan.topic)
        for record in consumer:
            if plan.handle(record.partition, record.offset):
                break


def confluent_kafka(plan: Plan) -> None:
    """`confluent_kafka.Consumer`."""
    from confluent_kafka import Consumer

    consumer = Consumer({name.replace("_", "."): value for name, value in _settings(plan).items()})
    is_stopped = threading.Event()
    plan.on_stop(is_stopped.set)
    say("ready")
    try:
        consumer.subscribe([plan.topic])
        while not is_stopped.is_set():
            message: Any = consumer.poll(POLL_S)
            if message is None or message.error():
                continue
            if plan.handle(message.partition(), message.offset()):
                break
    finally:
        consumer.close()


def kafka_python(plan: Plan) -> None:
    """`kafka.KafkaConsumer`."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(**_settings(plan), consumer_timeout_ms=int(POLL_S * 1000))
    is_stopped = threading.Event()
    plan.on_stop(is_stopped.set)
    say("ready")
    try:
        consumer.subscribe([plan.topic])
        while not is_stopped.is_set():
            for record in consumer:
                if plan.handle(record.partition, record.offset) or is_stopped.is_set():
                    is_stopped.set()
                    break
    finally:
        consumer.close()


async def _loop(plan: Plan, consumer: AsyncIterable[Any]) -> None:
    async for record in consumer:
        plan.begin(record.partition, record.offset)
        await asyncio.sleep(plan.work_s)
        if plan.end(record.partition, record.offset):
            break


def _on_stop(plan: Plan, wakeup: Callable[[], object] | None = None) -> None:
    """Have SIGTERM call `wakeup`, or cancel this task as another task would."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    if plan.stop_by == "thread":
        plan.on_stop(lambda: loop.call_soon_threadsafe(task.cancel))
    else:
        loop.add_signal_handler(signal.SIGTERM, wakeup or task.cancel)


async def tailrace_asyncio(plan: Plan) -> None:
    """`tailrace.AsyncConsumer`."""
    from tailrace import AsyncConsumer

    consumer = AsyncConsumer(**_settings(plan))
    _on_stop(plan, consumer.wakeup)
    say("ready")
    async with consumer:
        consumer.subscribe(plan.topic)
        await _loop(plan, consumer)


async def aiokafka(plan: Plan) -> None:
    """`aiokafka.AIOKafkaConsumer`."""
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(plan.topic, **_settings(plan))
    _on_stop(plan)
    say("ready")
    await consumer.start()
    try:
        await _loop(plan, consumer)
    finally:
        await consumer.stop()


ON_THREADS = {
    "Tailrace": tailrace,
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
}
ON_A_LOOP = {"Tailrace, asyncio": tailrace_asyncio, "aiokafka": aiokafka}
CLIENTS = ("Tailrace", "confluent-kafka", "kafka-python", "Tailrace, asyncio", "aiokafka")


def main() -> None:
    """Live."""
    name, plan = sys.argv[1], Plan(**json.loads(sys.argv[2]))
    if name in ON_THREADS:
        ON_THREADS[name](plan)
    else:
        asyncio.run(ON_A_LOOP[name](plan))
    say("end")


if __name__ == "__main__":
    main()
