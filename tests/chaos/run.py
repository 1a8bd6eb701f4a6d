"""`make chaos`: producers at work while their broker is killed and their connections are disturbed.

    python -m tests.chaos.run --seconds 60 [--seed N] [--kafka]

A broker process is killed with SIGKILL and started again, at random; the proxy before it cuts
connections, and holds, halves and swallows frames. Then all is healed, every producer comes to its
end, and the log is read: see `verdict` for what has to hold. Prints what was done, and the seed;
exits with 1 if a promise was broken. The seed gives the same plan of disturbances and records, and
threads and processes take their own time. Loopback only; with `--kafka` against Apache Kafka 4.3.1,
with transactions too, where Java and Maven are there.
"""

import argparse
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from compat.artifacts import KAFKA
from tailrace.client.admin import create_topic
from tailrace.testing.proxy import Action, Direction, Proxy
from tests.chaos.brokers import Killable, behind_proxy
from tests.chaos.load import TOPIC, Load
from tests.chaos.verdict import End, Found, Told, violations

PARTITION_COUNT: Final = 3
_READ_SECONDS_MAX: Final = 120
_LOADS: Final = ("plain-1", "plain-2-keys", "async-1", "async-2-keys", "many-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Timeouts of the producers; a Kafka takes longer to start than our broker."""

    request_ms: int
    delivery_ms: int
    block_ms: int

    @property
    def end_s(self) -> float:
        """By when every record has its outcome, counted from the last send."""
        return (self.block_ms + self.delivery_ms + 4 * self.request_ms) / 1000 + 10


_OURS: Final = Times(request_ms=1000, delivery_ms=6000, block_ms=3000)
_KAFKA: Final = Times(request_ms=3000, delivery_ms=20_000, block_ms=15_000)


class Chaos:
    """Disturbs a broker and the connections to it."""

    def __init__(self, broker: Killable, proxy: Proxy, chance: Random) -> None:
        self.counts: Counter[str] = Counter()
        self._broker = broker
        self._proxy = proxy
        self._chance = chance
        self._pause = threading.Event()

    def go_on(self, until: float) -> None:
        """Disturb until the monotonic time is over, then heal."""
        while time.monotonic() < until:
            self._wait(0.6)
            kind = self._chance.choice(("kill", "cut", *Action))
            if kind == "kill":
                self.counts["restarts"] += 1
                self._broker.kill()
                self._wait(1.0)
                self._broker.start()
            elif kind == "cut":
                self.counts["cuts"] += 1
                self._proxy.cut()
            elif kind is not Action.PASS:
                self.counts["frames disturbed"] += 1
                self._proxy.disturb(self._chance.choice(tuple(Direction)), Action(kind))
                self._wait(1.5)
                self._proxy.heal()
        self._proxy.heal()

    def _wait(self, longest_s: float) -> None:
        self._pause.wait(self._chance.random() * longest_s)


def run(seconds: float, seed: int, *, is_kafka: bool = False) -> tuple[Counter[str], list[str]]:
    """Counts of what was done, and the promises that were broken."""
    times = _KAFKA if is_kafka else _OURS
    with (
        tempfile.TemporaryDirectory(prefix="tailrace-chaos-") as directory,
        behind_proxy(Path(directory), kafka=KAFKA.version if is_kafka else "") as (broker, proxy),
    ):
        create_topic(proxy.address, TOPIC, partition_count=PARTITION_COUNT)
        names = [*_LOADS, *(["transactional-1", "transactional-2"] if is_kafka else [])]
        loads = [Load(name, _settings(proxy, times), seed) for name in names]
        for load in loads:
            load.start()
        chaos = Chaos(broker, proxy, Random(seed))
        chaos.go_on(time.monotonic() + seconds)
        for load in loads:
            load.stop()
        deadline = time.monotonic() + times.end_s
        faults = [load.join(max(0.0, deadline - time.monotonic())) for load in loads]
        told = [each for load in loads for each in load.told()]
        log = read(proxy.address)
        faults = [*filter(None, faults), *violations(told, log)]
    return _counted(told, log) + chaos.counts, faults


def read(bootstrap: str) -> dict[int, list[Found]]:
    """All records of the topic that are committed, by another client than the one that wrote."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: dict[int, list[Found]] = {number: [] for number in range(PARTITION_COUNT)}
    left = set(found)
    deadline = time.monotonic() + _READ_SECONDS_MAX
    try:
        consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in found])
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"partitions {left} were not read in {_READ_SECONDS_MAX} s")
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    found[message.partition()].append(Found(message.offset(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
    finally:
        consumer.close()
    return found


def _settings(proxy: Proxy, times: Times) -> dict[str, Any]:
    return {
        "bootstrap.servers": proxy.address,
        "request.timeout.ms": times.request_ms,
        "delivery.timeout.ms": times.delivery_ms,
        "max.block.ms": times.block_ms,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 200,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "linger.ms": 2,
        # Several batches in flight, and a buffer that gets full while the broker is down.
        "batch.size": 2000,
        "buffer.memory": 200_000,
        "max.request.size": 100_000,
    }


def _counted(told: Sequence[Told], log: dict[int, list[Found]]) -> Counter[str]:
    ends = Counter(each.end for each in told)
    return Counter(
        {
            "sent": len(told),
            **{end.value: ends[end] for end in End},
            "in the log": sum(map(len, log.values())),
        }
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tests.chaos.run")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=Random().randrange(1 << 30))
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka instead of our broker")
    given = parser.parse_args()
    # What goes wrong on the way is wanted here; what counts is the end.
    logging.getLogger("tailrace").setLevel(logging.CRITICAL)
    print(f"seed {given.seed}, {given.seconds:g} s", flush=True)
    counts, faults = run(given.seconds, given.seed, is_kafka=given.kafka)
    print(", ".join(f"{name} {count}" for name, count in counts.items()))
    for fault in faults[:20]:
        print(f"broken: {fault}")
    if faults:
        kafka = " --kafka" * given.kafka
        print(
            f"{len(faults)} promises were broken; to repeat: python -m tests.chaos.run "
            f"--seconds {given.seconds:g} --seed {given.seed}{kafka}"
        )
        sys.exit(1)
    print("nothing acknowledged is lost, nothing is doubled, and the order is kept")


if __name__ == "__main__":
    main()
