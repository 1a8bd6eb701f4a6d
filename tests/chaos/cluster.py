"""`Cluster`: three brokers under a controller of Kafka, each with troubles of its own.

    each broker       killed, stopped in order, paused, its time of day set; away for less than its
                      session or for longer
    the controller    killed, paused
    the network       one broker cut off from all, from its peers, from all that connect to it, or
                      from the controller; frames held, halved and swallowed; connections reset

Each of them has a thread, so that troubles meet: all three brokers may be away at once. With
`min.insync.replicas=2` and without unclean elections nothing that was acknowledged may be lost by
that, since a killed process loses nothing of what its log has.

At the end of a run all replicas are in sync, their logs are the same bytes below the high
watermark, and no broker has logged an error or a traceback.

Invariant: rules of the proxies are set by the network's thread alone; one broker at a time is cut
off.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Final

from compat.artifacts import KAFKA, class_path
from compat.controllers import controller_alone
from compat.kafka import Kafka
from compat.processes import free_ports
from tailrace.client.admin import Admin
from tailrace.errors import TailraceError
from tailrace.spark.java import find_java
from tailrace.testing.proxy import Action, Direction, Proxy
from tests.chaos.brokers import Killable, Ours, settings_of
from tests.chaos.clocks import JUMP_SECONDS_MAX, ShiftedClock
from tests.chaos.fleet import ROOT, Fleet

IDS: Final = (1, 2, 3)

_SESSION_S: Final = 4.0
"""The session of a broker: longer than a loaded machine delays heartbeats."""

_SYNC_SECONDS_MAX: Final = 120

_IS_PEER: Final = re.compile(r"(?:broker-|raft-client-)?(\d+)\b")
"""Client ids of brokers, which name them: those of ours and of Kafka's."""

_REPLICATED: Final = {
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # A request to the controller may take as long: half a second was not enough on a machine with a
    # load of thirty.
    "broker.heartbeat.interval.ms": "1000",
    # Below the session, so that a follower that is cut off from its leader alone leaves in time for
    # producers to be answered.
    "replica.lag.time.max.ms": "3000",
    # A connection whose frames were swallowed answers nothing any more.
    "replica.socket.timeout.ms": "3000",
    "request.timeout.ms": "3000",
    # A leader has the lease of an idle follower looked at often.
    "replica.fetch.wait.max.ms": "300",
}
_CONTROLLER: Final = {
    "broker.session.timeout.ms": f"{_SESSION_S * 1000:.0f}",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    # Leaderships come back while the run goes on, which is one more way in which they move.
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "5",
    "leader.imbalance.per.broker.percentage": "0",
}
_TROUBLE: Final = re.compile(r" (?:ERROR|CRITICAL) |^Traceback ")


class Cluster:
    """Brokers and their controller, by the proxies before them."""

    replication_factor = len(IDS)

    def __init__(
        self,
        controller: Kafka,
        brokers: Mapping[int, Killable],
        *,
        proxies: Mapping[int, Proxy],
        controller_proxy: Proxy,
        clocks: Mapping[int, ShiftedClock],
        folder: Path,
        threads: Executor,
    ) -> None:
        self.bootstrap = ",".join(each.address for each in proxies.values())
        self.counts: Counter[str] = Counter()
        self._controller = controller
        self._brokers = brokers
        self._proxies = proxies
        self._controller_proxy = controller_proxy
        self._clocks = clocks
        self._folder = folder
        self._threads = threads
        self._over = threading.Event()
        self._never = threading.Event()

    def disturb(self, fleet: Fleet, chance: Random, until: float) -> list[str]:
        """Disturb until the monotonic time is over, then heal; what did not come back."""
        seed = chance.random()
        troubles = {
            name: self._threads.submit(self._trouble, kinds, Random(f"{seed} {name}"))
            for name, kinds in self._kinds().items()
        }
        while time.monotonic() < until:
            fleet.wake_due()
            fleet.disturb()
            self._over.wait(chance.random() * 3)
        self._over.set()
        faults = {name: each.exception() for name, each in troubles.items()}
        return [f"{name}: {fault}" for name, fault in faults.items() if fault is not None]

    def end(self) -> list[str]:
        """Stop all in order, and return what is wrong with the logs that they leave."""
        faults = list(self._not_in_sync())
        for number, broker in self._brokers.items():
            try:
                broker.stop()
            except TailraceError as error:
                faults.append(f"broker {number}: {error}")
        return [*faults, *self._different(), *self._troubles()]

    def _kinds(self) -> dict[str, list["_Trouble"]]:
        kinds: dict[str, list[_Trouble]] = {
            f"broker {number}": self._kinds_of_broker(number) for number in self._brokers
        }
        kinds["controller"] = [self._kill_controller, self._pause_controller]
        kinds["network"] = [
            self._cut_off,
            self._cut_off_from_controller,
            self._cut_off_from_peers,
            self._cut_off_listener,
            self._disturb_frames,
            self._reset,
        ]
        return kinds

    def _trouble(self, kinds: Sequence["_Trouble"], chance: Random) -> None:
        """One trouble after the other, each of which is over before the next."""
        while not self._over.wait(chance.uniform(1, 12)):
            chance.choice(kinds)(chance)

    def _wait(self, chance: Random) -> None:
        """Be away for a part of a session, or for longer than one, or until the run is over."""
        longest_s = chance.choice((_SESSION_S / 2, 2 * _SESSION_S))
        self._over.wait(chance.uniform(0.2, longest_s))

    # -- brokers and controller ---------------------------------------------------------------

    def _kinds_of_broker(self, number: int) -> list["_Trouble"]:
        broker = self._brokers[number]

        def kill(chance: Random) -> None:
            self.counts["broker killed"] += 1
            broker.kill()
            self._wait(chance)
            self._start(broker)

        def stop(chance: Random) -> None:
            self.counts["broker stopped in order"] += 1
            broker.stop()
            self._wait(chance)
            self._start(broker)

        def pause(chance: Random) -> None:
            self.counts["broker paused"] += 1
            self._pause(broker.pid, chance)

        def jump(chance: Random) -> None:
            self.counts["clock jumps"] += 1
            self._clocks[number].set(chance.uniform(-JUMP_SECONDS_MAX, JUMP_SECONDS_MAX))

        return [kill, kill, stop, pause, *([jump] if number in self._clocks else [])]

    def _start(self, broker: Killable) -> None:
        """Start a broker, and again if it has ended because no controller was there for long."""
        while True:
            try:
                broker.start()
            except TailraceError:
                if self._over.is_set():
                    raise  # All is healed: now it has to come back.
                self.counts["broker not started without a controller"] += 1
            else:
                return

    def _kill_controller(self, chance: Random) -> None:
        self.counts["controller killed"] += 1
        self._controller.kill()
        self._wait(chance)
        self._controller.start()

    def _pause_controller(self, chance: Random) -> None:
        self.counts["controller paused"] += 1
        self._pause(self._controller.pid, chance)

    def _pause(self, pid: int, chance: Random) -> None:
        os.kill(pid, signal.SIGSTOP)
        self._wait(chance)
        os.kill(pid, signal.SIGCONT)

    # -- the network --------------------------------------------------------------------------

    def _cut_off(self, chance: Random) -> None:
        self.counts["broker cut off"] += 1
        number = chance.choice(IDS)
        self._hinder(
            chance,
            {
                self._proxies[number]: _is_any,
                self._controller_proxy: _is_broker(number),
                **self._outgoing(number),
            },
        )

    def _cut_off_from_peers(self, chance: Random) -> None:
        self.counts["broker cut off from peers"] += 1
        number = chance.choice(IDS)
        self._hinder(chance, {self._proxies[number]: _is_broker(*IDS), **self._outgoing(number)})

    def _cut_off_listener(self, chance: Random) -> None:
        self.counts["broker cut off from those that come"] += 1
        self._hinder(chance, {self._proxies[chance.choice(IDS)]: _is_any})

    def _cut_off_from_controller(self, chance: Random) -> None:
        self.counts["broker cut off from the controller"] += 1
        self._hinder(chance, {self._controller_proxy: _is_broker(chance.choice(IDS))})

    def _outgoing(self, number: int) -> dict[Proxy, "_Concerned"]:
        """A broker's own connections to its peers."""
        return {
            proxy: _is_broker(number) for other, proxy in self._proxies.items() if other != number
        }

    def _hinder(self, chance: Random, concerned: Mapping[Proxy, "_Concerned"]) -> None:
        """Let nothing pass for a while; held frames come late, others never, or with a reset."""
        action = chance.choice((Action.HOLD, Action.BLACK_HOLE, Action.CUT))
        for proxy, is_concerned in concerned.items():
            for direction in Direction:
                proxy.disturb(direction, action, is_concerned=is_concerned)
        self._wait(chance)
        for proxy in concerned:
            proxy.heal()

    def _disturb_frames(self, chance: Random) -> None:
        self.counts["frames disturbed"] += 1
        proxy = chance.choice((*self._proxies.values(), self._controller_proxy))
        action = chance.choice([each for each in Action if each is not Action.PASS])
        proxy.disturb(chance.choice(tuple(Direction)), action)
        self._over.wait(chance.uniform(0, 1.5))
        proxy.heal()

    def _reset(self, chance: Random) -> None:
        self.counts["connections reset"] += 1
        chance.choice((*self._proxies.values(), self._controller_proxy)).cut()

    # -- the end ------------------------------------------------------------------------------

    def _not_in_sync(self) -> Iterator[str]:
        """Wait until all replicas are in sync; a sentence for each partition that is not."""
        deadline = time.monotonic() + _SYNC_SECONDS_MAX
        late = ["unknown"]
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            while late and time.monotonic() < deadline:
                self._never.wait(0.3)
                try:
                    late = [
                        f"{topic.name}-{each.partition} has the ISR {each.isr}"
                        for topic in admin.list_topics()
                        for each in topic.partitions
                        if len(each.isr) < len(IDS)
                    ]
                except TailraceError as error:
                    late = [str(error)]
        yield from (f"after {_SYNC_SECONDS_MAX} s: {each}" for each in late)

    def _different(self) -> Iterator[str]:
        """Differences of the replicas' logs, by `tailrace log compare`."""
        directories = ",".join(str(_data(self._folder, number)) for number in IDS)
        compared = subprocess.run(
            [sys.executable, "-m", "tailrace", "log", "compare", "--data", directories],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if compared.returncode:
            told = (compared.stdout + compared.stderr).splitlines()
            yield from (each for each in told if not each.startswith("explained"))

    def _troubles(self) -> Iterable[str]:
        """Errors and tracebacks in what the brokers have logged."""
        for path in sorted(self._folder.glob("broker-*/broker-*.log")):
            lines = path.read_text(errors="replace").splitlines()
            for number, line in enumerate(lines):
                if _TROUBLE.search(line):
                    name = path.relative_to(self._folder)
                    yield f"{name}:{number + 1}: {' '.join(lines[number : number + 2])[:400]}"


_Trouble = Callable[[Random], None]
_Concerned = Callable[[str], bool]


def _is_any(_: str) -> bool:
    return True


def _is_broker(*numbers: int) -> _Concerned:
    """Chooses the connections of these brokers."""
    wanted = frozenset(map(str, numbers))

    def is_concerned(client_id: str) -> bool:
        found = _IS_PEER.match(client_id)
        return found is not None and found[1] in wanted

    return is_concerned


def _data(folder: Path, number: int) -> Path:
    return folder / f"broker-{number}" / "data"


@contextmanager
def three_brokers(folder: Path, *, timeout_ms: int) -> Iterator[Cluster]:
    """Three brokers of ours that serve, under Kafka's controller; killed at the end.

    Raises:
        FatalError: Java or Maven is missing, or one of them does not start; it says what to do.
    """
    controller = Kafka(
        find_java(os.environ).home / "bin" / "java",
        class_path(KAFKA, os.environ),
        folder / "controller",
    )
    node = controller_alone(controller)
    ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
    with ExitStack() as stack:
        # The kernel ends a process with the thread that has started it (`bound_to_us`): these live
        # until all is over.
        threads = stack.enter_context(ThreadPoolExecutor(len(IDS) + 2))
        controller_proxy = stack.enter_context(Proxy(f"127.0.0.1:{node.port}"))
        proxies = {
            number: stack.enter_context(Proxy(f"127.0.0.1:{port}"))
            for number, port in ports.items()
        }
        # Brokers go where the quorum says that its leader is.
        controller.settings |= _CONTROLLER | {
            "advertised.listeners": f"CONTROLLER://{controller_proxy.address}",
            "controller.quorum.voters": f"{node.id}@{controller_proxy.address}",
        }
        stack.callback(controller.kill)
        controller.start()
        clocks, brokers = {}, {}
        for number, port in ports.items():
            directory = folder / f"broker-{number}"
            directory.mkdir()
            clock = ShiftedClock.compile(directory)
            if clock is not None:
                clocks[number] = clock
            brokers[number] = Ours(
                directory,
                port,
                proxies[number].address,
                settings={
                    **settings_of(timeout_ms),
                    **_REPLICATED,
                    "node.id": str(number),
                    "controller.quorum.voters": f"{node.id}@{controller_proxy.address}",
                },
                environment={} if clock is None else clock.environment,
            )
            stack.callback(brokers[number].kill)
            brokers[number].start()
        yield Cluster(
            controller,
            brokers,
            proxies=proxies,
            controller_proxy=controller_proxy,
            clocks=clocks,
            folder=folder,
            threads=threads,
        )
