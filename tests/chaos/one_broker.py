"""`OneBroker`: the only broker of a run, which is killed, stopped, paused and cut off."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from os import kill
from pathlib import Path
from random import Random

from compat.artifacts import KAFKA
from tailrace.testing.proxy import Action, Direction, Proxy
from tests.chaos.brokers import Killable, behind_proxy, settings_of
from tests.chaos.clocks import JUMP_SECONDS_MAX, ShiftedClock
from tests.chaos.fleet import Fleet


class OneBroker:
    """A broker behind a proxy, with its clock."""

    replication_factor = 1

    def __init__(
        self, broker: Killable, proxy: Proxy, clock: ShiftedClock | None, folder: Path
    ) -> None:
        self.bootstrap = proxy.address
        self.counts: Counter[str] = Counter()
        self._broker = broker
        self._proxy = proxy
        self._clock = clock
        self._folder = folder
        self._chance = Random()
        self._pause = threading.Event()

    def disturb(self, fleet: Fleet, chance: Random, until: float) -> list[str]:
        """Disturb until the monotonic time is over, then heal."""
        self._chance = chance
        kinds = [
            self._kill_broker,
            self._stop_broker,
            self._pause_broker,
            self._disturb_frames,
            self._cut,
            *[fleet.disturb] * 6,
        ]
        if self._clock is not None:
            kinds.append(self._jump)
        while time.monotonic() < until:
            self._wait(0.6)
            fleet.wake_due()
            chance.choice(kinds)()
        self._proxy.heal()
        return []

    def end(self) -> list[str]:
        """Count what Kafka has left out."""
        if left_out := self._left_out_markers():
            self.counts["ends of transactions without markers, by Kafka"] = left_out
        return []

    def _kill_broker(self) -> None:
        self.counts["broker killed"] += 1
        self._broker.kill()
        self._start_broker()

    def _stop_broker(self) -> None:
        self.counts["broker stopped in order"] += 1
        self._broker.stop()
        self._start_broker()

    def _start_broker(self) -> None:
        self._wait(1.0)
        self._broker.start()
        # Clients that find no broker for long do nothing that could go wrong.
        self._wait(4.0)

    def _pause_broker(self) -> None:
        self.counts["broker paused"] += 1
        kill(self._broker.pid, signal.SIGSTOP)
        self._wait(3.0)
        kill(self._broker.pid, signal.SIGCONT)

    def _jump(self) -> None:
        assert self._clock is not None
        self.counts["clock jumps"] += 1
        self._clock.set(self._chance.uniform(-JUMP_SECONDS_MAX, JUMP_SECONDS_MAX))

    def _disturb_frames(self) -> None:
        self.counts["frames disturbed"] += 1
        action = self._chance.choice([each for each in Action if each is not Action.PASS])
        self._proxy.disturb(self._chance.choice(tuple(Direction)), action)
        self._wait(1.5)
        self._proxy.heal()

    def _cut(self) -> None:
        self.counts["cuts"] += 1
        self._proxy.cut()

    def _wait(self, longest_s: float) -> None:
        self._pause.wait(self._chance.random() * longest_s)

    def _left_out_markers(self) -> int:
        """The number of transactions that Apache Kafka has completed without writing markers.

        Kafka 4.3 does so when the coordinator finds no leader of the partitions, which it takes for
        deleted: so it is while the controller has fenced the only broker, because that was too slow
        to send heartbeats. An aborted transaction stays open then, and the next one's marker
        commits it: aborted reads and doubled effects are no wonder after that.
        """
        return sum(
            each.read_text(errors="replace").count("these partitions are likely deleted already")
            for each in self._folder.glob("kafka-*.log")
        )


@contextmanager
def one_broker(folder: Path, *, is_kafka: bool, timeout_ms: int) -> Iterator[OneBroker]:
    """A broker of ours or of Kafka's that serves; killed at the end."""
    clock = ShiftedClock.compile(folder)
    with behind_proxy(
        folder,
        kafka=KAFKA.version if is_kafka else "",
        settings=settings_of(timeout_ms),
        environment={} if clock is None else clock.environment,
    ) as (broker, proxy):
        yield OneBroker(broker, proxy, clock, folder)
