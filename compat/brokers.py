"""Brokers of a cluster, ours and Kafka's, under a controller that is a process of its own.

    controller = controller_alone(kafka)            of `controllers`
    ours = OurBroker(1, directory, address=…, controllers=…)
    kafka.settings |= kafkas_broker(2, port=…, controller=controller)

Both take the same settings by the same names, and both are started, stopped and killed alike.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Self

from compat.processes import Server, bound_to_us
from tailrace.client.nodes import Node


class OurBroker(AbstractContextManager["OurBroker"]):
    """A broker of ours on one directory and one port, which can be started again."""

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
        """`address` is HOST:PORT, `controllers` are several; `prefix` is before the command."""
        self.logs = directory / "logs"
        self._number = number
        self._directory = directory
        self._server: Server | None = None
        self._start_count = 0
        chosen = {
            "process.roles": "broker",
            "node.id": str(number),
            "controller.quorum.bootstrap.servers": controllers,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{address}",
            "log.dirs": str(self.logs),
            **settings,
        }
        self._command = [
            *prefix,
            *bound_to_us([
                sys.executable, "-m", "tailrace", "serve",
                *(f"--override={name}={value}" for name, value in chosen.items()),
            ]),
        ]  # fmt: skip
        directory.mkdir(parents=True)

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
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
            f"Tailrace, broker {self._number},",
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
