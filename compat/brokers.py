"""Brokers of a cluster, ours and Kafka's, under a controller that is a process of its own.

    controller = controller_alone(kafka)            of `controllers`; or
    controller = OurController(101, directory, address=…, cluster_id=…)
    ours = OurBroker(1, directory, address=…, controllers=…)
    kafka.settings |= kafkas_broker(2, port=…, controller=controller)

Both take the same settings by the same names, and both are started, stopped and killed alike.
"""

import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Self

from compat.processes import Server, bound_to_us
from tailrace.client.nodes import Node
from tailrace.offline.formatting import Wanted, format_directories, levels_of
from tailrace.runtime.clock import SystemClock
from tailrace.runtime.files import DiskFiles


class OurNode(AbstractContextManager["OurNode"]):
    """A node of ours on one directory and one port, which can be started again."""

    def __init__(
        self,
        number: int,
        directory: Path,
        *,
        settings: Mapping[str, str],
        prefix: Sequence[str] = (),
    ) -> None:
        """`prefix` is before the command."""
        self.logs = directory / "logs"
        self._number = number
        self._directory = directory
        self._server: Server | None = None
        chosen = {"node.id": str(number), "log.dirs": str(self.logs), **settings}
        self._command = [
            *prefix,
            *bound_to_us([
                sys.executable, "-m", "tailrace", "serve",
                *(f"--override={name}={value}" for name, value in chosen.items()),
            ]),
        ]  # fmt: skip
        # A controller has the directory of another one, which began here.
        directory.mkdir(parents=True, exist_ok=True)
        self._start_count = len(list(directory.glob("tailrace-*.log")))

    @property
    def pid(self) -> int:
        """Process id of the running node."""
        assert self._server is not None
        return self._server.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start, and return when it serves.

        Raises:
            FatalError: it does not.
        """
        # Each start has its output in a file of its own, or `ready` would be found in the last.
        self._start_count += 1
        self._server = Server(
            f"Tailrace, node {self._number},",
            self._command,
            self._directory / f"tailrace-{self._start_count}.log",
            ready=f"[KafkaServer id={self._number}] started",
        )

    def stop(self) -> None:
        """Stop in order; nothing if it does not run.

        Raises:
            FatalError: it does not.
        """
        if self._server is not None:
            server, self._server = self._server, None
            server.stop()

    def kill(self) -> None:
        """End it at once, as a crash does; nothing if it does not run."""
        if self._server is not None:
            self._server.kill()
            self._server = None


class OurBroker(OurNode):
    """A broker of ours, whose controllers are other nodes."""

    def __init__(
        self,
        number: int,
        directory: Path,
        *,
        address: str,
        controllers: str,
        settings: Mapping[str, str] = MappingProxyType({}),
        prefix: Sequence[str] = (),
    ) -> None:
        """`address` is HOST:PORT, `controllers` are several."""
        chosen = {
            "process.roles": "broker",
            "controller.quorum.bootstrap.servers": controllers,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{address}",
            **settings,
        }
        super().__init__(number, directory, settings=chosen, prefix=prefix)


class OurController(OurNode):
    """The only controller of a cluster, on a directory that is formatted if it is new."""

    def __init__(
        self,
        number: int,
        directory: Path,
        *,
        address: str,
        cluster_id: str,
        settings: Mapping[str, str] = MappingProxyType({}),
        prefix: Sequence[str] = (),
    ) -> None:
        """`address` is HOST:PORT."""
        chosen = {
            "process.roles": "controller",
            "controller.quorum.bootstrap.servers": address,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{address}",
            **settings,
        }
        super().__init__(number, directory, settings=chosen, prefix=prefix)
        if not self.logs.exists():
            files = DiskFiles()
            # Of a cluster id that Kafka's brokers are formatted with, too.
            format_directories(
                files,
                [str(self.logs)],
                Wanted(levels=levels_of(None, {}), cluster_id=cluster_id, node_id=number),
                clock=SystemClock(),
                chance=random.SystemRandom(),
            )


def kafkas_broker(number: int, *, port: int, controller: Node) -> dict[str, str]:
    """Settings that make a Kafka a broker of the cluster that has this controller."""
    address = f"PLAINTEXT://127.0.0.1:{port}"
    return {
        "process.roles": "broker",
        "node.id": str(number),
        "listeners": address,
        "advertised.listeners": address,
        "controller.quorum.voters": f"{controller.id}@{controller.host}:{controller.port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
