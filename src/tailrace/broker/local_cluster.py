"""`LocalCluster`: a controller and brokers as processes of this machine, to try a cluster with.

    DIR/controller.properties    DIR/broker-1.properties    the settings, as for `tailrace serve`
    DIR/controller/              DIR/broker-1/              log.dirs
    DIR/controller.log           DIR/broker-1.log           what the process prints

Each node is a process of its own, so one can be killed. Files of settings that are there are used
as they are: the next start with the directory continues with its ports and records.

Not here: brokers in one process, for tests (`tailrace.testing.TestCluster`).
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tailrace.config import read_properties
from tailrace.errors import FatalError
from tailrace.values import dataclass, field

HOST: Final = "127.0.0.1"
CONTROLLER_ID: Final = 100
_START_S: Final = 60.0
"""Longest time of a start; that of all nodes takes a second or two."""
_STOP_S: Final = 30.0
"""Time after which a node that does not stop is killed."""
_LOOK_S: Final = 0.02
_LINES: Final = 5
"""Last lines of the log of a node that did not start, which say why."""


class NodeNotStartedError(FatalError):
    """A node of the cluster has ended, or has not come into service."""


@dataclass(slots=True, kw_only=True)
class LocalNode:
    """One node: its files, and its process if there is one."""

    node_id: int
    name: str
    config: Path
    log: Path
    address: str
    """HOST:PORT."""
    process: "subprocess.Popen[bytes] | None" = None
    has_ended: bool = False
    """Whether `ended` has returned it since it was started."""
    _begin: int = field(default=0)
    """Size of the log when the process began."""

    @property
    def pid(self) -> int:
        """The id of its process.

        Raises:
            AssertionError: it was never started.
        """
        assert self.process is not None, "it was started"
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process; see `wait` for when it serves."""
        self._begin = self.log.stat().st_size if self.log.exists() else 0
        self.has_ended = False
        command = (sys.executable, "-m", "tailrace", "serve", "--config", str(self.config))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - this program
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C would reach all nodes at once: the brokers stop before their controller.
                start_new_session=True,
            )

    def wait(self, deadline: float) -> None:
        """Wait until it serves, by `time.monotonic`.

        Raises:
            NodeNotStartedError: it has ended, or the time is over.
        """
        is_controller = self.node_id == CONTROLLER_ID
        line = "controller_started" if is_controller else f"broker_unfenced broker={self.node_id}"
        while line not in (said := self._said()):
            if not self.is_running:
                last = " | ".join(said.splitlines()[-_LINES:])
                raise NodeNotStartedError(f"{self.name} did not start: {last}")
            if time.monotonic() > deadline:
                raise NodeNotStartedError(f"{self.name} is not in service yet; see {self.log}")
            time.sleep(_LOOK_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it runs."""
        if self.is_running:
            assert self.process is not None
            self.process.send_signal(number)

    def _said(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self._begin)
            return log.read().decode(errors="replace")


class LocalCluster:
    """The nodes of one directory; `start` and `stop` all of them, or `kill` and `restart` one."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int,
        ports: Sequence[int] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Writes the files of settings that are not there.

        `ports` are those of the brokers, and of the controller last; by default 9092 and the next
        ones. `settings` are for the brokers, over those for trying a cluster.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory = directory.resolve()
        *of_brokers, of_controller = ports or range(9092, 9093 + brokers)
        controller = directory / "controller.properties"
        _write(controller, _controller_settings(directory, brokers=brokers, port=of_controller))
        quorum = _address(controller)
        given = dict(settings or {})
        for number, port in enumerate(of_brokers[:brokers], 1):
            own = _broker_settings(directory, number, brokers=brokers, port=port, quorum=quorum)
            _write(directory / f"broker-{number}.properties", own | given)
        self.controller = _node(directory, CONTROLLER_ID, "controller")
        self.brokers = {
            each: _node(directory, each, f"broker-{each}") for each in range(1, brokers + 1)
        }
        """By their ids."""

    @property
    def nodes(self) -> tuple[LocalNode, ...]:
        """The controller and then the brokers."""
        return (self.controller, *self.brokers.values())

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of each broker, with commas between."""
        return ",".join(each.address for each in self.brokers.values())

    def start(self) -> None:
        """Start all nodes; returns when all are in service.

        Raises:
            NodeNotStartedError: one has ended, or takes too long; the others are stopped.
        """
        deadline = time.monotonic() + _START_S
        with ExitStack() as undo:
            undo.callback(self.stop)
            self.controller.start()
            # Brokers would wait for it too, and their first lines would be warnings.
            self.controller.wait(deadline)
            for each in self.brokers.values():
                each.start()
            for each in self.brokers.values():
                each.wait(deadline)
            undo.pop_all()

    def kill(self, broker: int) -> None:
        """End a broker by SIGKILL."""
        node = self.brokers[broker]
        node.signal(signal.SIGKILL)
        if node.process is not None:
            node.process.wait()

    def restart(self, broker: int) -> None:
        """Start a broker that has ended; returns when it is in service.

        Raises:
            NodeNotStartedError: it has ended, or takes too long.
        """
        node = self.brokers[broker]
        node.start()
        node.wait(time.monotonic() + _START_S)

    def ended(self) -> list[LocalNode]:
        """The nodes that have ended since the last call."""
        found = [
            each
            for each in self.nodes
            if each.process is not None and not each.is_running and not each.has_ended
        ]
        for each in found:
            each.has_ended = True
        return found

    def stop(self) -> None:
        """Stop all nodes in order: the brokers, and then the controller that they need for it."""
        _stop(self.brokers.values())
        _stop([self.controller])


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now."""
    with ExitStack() as kept:
        sockets = [kept.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def _stop(nodes: Iterable[LocalNode]) -> None:
    running = [each for each in nodes if each.is_running]
    for each in running:
        each.signal(signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    for each in running:
        assert each.process is not None
        try:
            each.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            # Everything that was acknowledged is in its files; the next start recovers.
            each.process.kill()
            each.process.wait()


def _node(directory: Path, node_id: int, name: str) -> LocalNode:
    config = directory / f"{name}.properties"
    return LocalNode(
        node_id=node_id,
        name=name,
        config=config,
        log=directory / f"{name}.log",
        address=_address(config),
    )


def _address(config: Path) -> str:
    """HOST:PORT of a node, by its file."""
    listeners = read_properties(config.read_text(encoding="utf-8"))["listeners"]
    return listeners.partition("://")[2]


def _write(path: Path, settings: Mapping[str, str]) -> None:
    if path.exists():
        return
    # There may be a password among them.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write("".join(f"{name}={value}\n" for name, value in settings.items()))


def _controller_settings(directory: Path, *, brokers: int, port: int) -> dict[str, str]:
    return {
        "process.roles": "controller",
        "node.id": str(CONTROLLER_ID),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://{HOST}:{port}",
        "log.dirs": str(directory / "controller"),
        # Shorter than Kafka's 9 s: who kills a broker by hand wants to see what follows.
        "broker.session.timeout.ms": "3000",
        "default.replication.factor": str(min(brokers, 3)),
        "min.insync.replicas": str(min(brokers, 3) // 2 + 1),
    }


def _broker_settings(
    directory: Path, number: int, *, brokers: int, port: int, quorum: str
) -> dict[str, str]:
    replicas = str(min(brokers, 3))
    return {
        "process.roles": "broker",
        "node.id": str(number),
        "controller.quorum.bootstrap.servers": quorum,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(directory / f"broker-{number}"),
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        "default.replication.factor": replicas,
        "min.insync.replicas": str(min(brokers, 3) // 2 + 1),
        "offsets.topic.replication.factor": replicas,
        # Kafka's 50 are for thousands of groups.
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(brokers, 3) // 2 + 1),
        "transaction.state.log.num.partitions": "3",
    }
